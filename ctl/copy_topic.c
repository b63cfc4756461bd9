/* The target of a copy: it is made, or it is looked at. See copy.h.
 *
 * A target that has never held a record gets the settings of the source, whether this run has made it or not: a run that was
 * killed between the two leaves just that. What its engine has no meaning for stays as it is, and is told. */
#include "ctl/copy.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define KEPT_FD_MAX 4095

static int refuse(char **ret_why, int error, char *why)
{
    *ret_why = why;
    return error;
}

static int make(const NrdCopyJob *job, char **ret_why)
{
    struct stat st;
    if (stat(job->from.dir, &st) < 0)
        return refuse(ret_why, -errno, g_strdup_printf("%s: %s", job->from.dir, g_strerror(errno)));
    if (mkdir(job->to.dir, st.st_mode & 0777) == 0 || errno == EEXIST)
        return 0;
    return refuse(ret_why, -errno, g_strdup_printf("%s cannot be made: %s", job->to.dir, g_strerror(errno)));
}

/* ---- one copy into a target at a time ---- */

/* Two at once would mix their records. Files of a mount take no locks, so a name that the kernel gives to one process is
 * taken, for as long as this one lives. Descriptors are closed in the order of their numbers when a process is killed, and
 * only when the daemon has answered what it was asked through them: this one is the last, so the next copy begins when
 * nothing of the one before is under way any more. */
static int keep(NrdCopyJob *job, char **ret_why)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    g_autofree char *id = NULL;
    int rc = nrd_tree_xattr(job->to.dir, "incarnation", &id);
    if (rc < 0)
        return refuse(ret_why, rc, g_strdup_printf("%s cannot be used: %s", job->to.dir, g_strerror(-rc)));
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "naradctl-copy-%s", id);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0) {
        rc = -errno;
        if (fd >= 0)
            close(fd);
        return refuse(ret_why, rc,
                      rc == -EADDRINUSE
                          ? g_strdup_printf("another copy into %s is running on this machine", job->to.dir)
                          : g_strdup_printf("%s cannot be kept for this copy: %s", job->to.dir, g_strerror(-rc)));
    }
    long most = sysconf(_SC_OPEN_MAX);
    job->kept_fd = fcntl(fd, F_DUPFD_CLOEXEC, (int)CLAMP(most - 1, 0, KEPT_FD_MAX));
    if (job->kept_fd < 0)
        job->kept_fd = fd;
    else
        close(fd);
    return 0;
}

/* ---- settings ---- */

static GHashTable *parse(const char *text)
{
    GHashTable *settings = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        char *equals = strchr(lines[i], '=');
        if (equals)
            g_hash_table_insert(settings, g_strndup(lines[i], (gsize)(equals - lines[i])), g_strdup(equals + 1));
    }
    return settings;
}

static int read_settings(const char *topic_dir, GHashTable **ret_settings, char **ret_why)
{
    g_autofree char *path = g_strconcat(topic_dir, "/config", NULL);
    g_autofree char *text = NULL;
    int rc = nrd_tree_read(path, &text);
    if (rc < 0)
        return refuse(ret_why, rc, g_strdup_printf("%s cannot be read: %s", path, g_strerror(-rc)));
    *ret_settings = parse(text);
    return 0;
}

static int set(const NrdCopyJob *job, const char *key, const char *value)
{
    g_autofree char *path = g_strconcat(job->to.dir, "/config", NULL);
    g_autofree char *line = g_strdup_printf("%s=%s\n", key, value);
    return nrd_tree_write(path, line);
}

/* One at a time: one that the target has no meaning for keeps no other from it. segment_bytes goes first, since it bounds
 * another one. */
static void set_all(NrdCopyJob *job, GHashTable *source, GHashTable *target)
{
    g_autoptr(GList) keys = g_list_sort(g_hash_table_get_keys(source), (GCompareFunc)strcmp);
    keys = g_list_concat(g_list_prepend(NULL, (gpointer) "segment_bytes"), keys);
    for (GList *at = keys; at; at = at->next) {
        const char *key = at->data, *value = g_hash_table_lookup(source, key), *old = g_hash_table_lookup(target, key);
        if (!value || (old && g_str_equal(old, value)) || g_str_equal(key, "partitions") ||
            (at != keys && g_str_equal(key, "segment_bytes")))
            continue;
        int rc = set(job, key, value);
        if (rc < 0)
            g_ptr_array_add(job->notes, g_strdup_printf("%s stays %s there, it is %s in the source: %s", key,
                                                        old ? old : "unset", value, g_strerror(-rc)));
    }
}

/* ---- what is there ---- */

static int count(const char *topic_dir, uint64_t *ret_n, char **ret_why)
{
    int rc = nrd_tree_number(topic_dir, "partitions", ret_n);
    if (rc < 0)
        *ret_why = g_strdup_printf("%s cannot be used: %s", topic_dir, g_strerror(-rc));
    return rc;
}

/* Whether no partition of the target has ever held a record. */
static int look_whether_new(const NrdCopyJob *job, uint64_t n, bool *ret_new, char **ret_why)
{
    *ret_new = true;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t hwm;
        g_autofree char *dir = g_strdup_printf("%s/p%05u", job->to.dir, (unsigned)i);
        int rc = nrd_tree_number(dir, "hwm", &hwm);
        if (rc < 0)
            return refuse(ret_why, rc, g_strdup_printf("%s cannot be used: %s", dir, g_strerror(-rc)));
        *ret_new = *ret_new && hwm == 0;
    }
    return 0;
}

static int settle_partitions(const NrdCopyJob *job, uint64_t there, bool new, char **ret_why)
{
    g_autofree char *n = g_strdup_printf("%" PRIu64, job->n_partitions);
    if (there == job->n_partitions)
        return 0;
    if (there > job->n_partitions || !new)
        return refuse(ret_why, -EEXIST,
                      g_strdup_printf("%s has %" PRIu64 " partition%s and the source %" PRIu64
                                      ": they have to be as many%s%s",
                                      job->to.dir, there, nrd_plural(there), job->n_partitions,
                                      there < job->n_partitions ? "; if the source has grown, naradctl config TARGET "
                                                                  "partitions="
                                                                : "",
                                      there < job->n_partitions ? n : ""));
    int rc = set(job, "partitions", n);
    if (rc < 0)
        *ret_why = g_strdup_printf("%s cannot be given %s partitions: %s", job->to.dir, n, g_strerror(-rc));
    return rc;
}

/* The same one, under whichever name or mount. */
static int check_other(const NrdCopyJob *job, char **ret_why)
{
    g_autofree char *from = NULL;
    g_autofree char *to = NULL;
    if (nrd_tree_xattr(job->from.dir, "incarnation", &from) == 0 &&
        nrd_tree_xattr(job->to.dir, "incarnation", &to) == 0 && g_str_equal(from, to))
        return refuse(ret_why, -EINVAL,
                      g_strdup_printf("%s and %s are the same topic (incarnation %s)", job->from.dir, job->to.dir, to));
    return 0;
}

static int settle_settings(NrdCopyJob *job, char **ret_why)
{
    g_autoptr(GHashTable) source = NULL;
    g_autoptr(GHashTable) target = NULL;
    uint64_t there;
    bool new = false;
    int rc = count(job->to.dir, &there, ret_why);
    if (rc == 0)
        rc = look_whether_new(job, there, &new, ret_why);
    if (rc == 0)
        rc = settle_partitions(job, there, new, ret_why);
    if (rc < 0 || !new)
        return rc;
    rc = read_settings(job->from.dir, &source, ret_why);
    if (rc == 0)
        rc = read_settings(job->to.dir, &target, ret_why);
    if (rc == 0)
        set_all(job, source, target);
    return rc;
}

int nrd_copy_prepare(NrdCopyJob *job, char **ret_why)
{
    int rc = count(job->from.dir, &job->n_partitions, ret_why);
    if (rc == 0)
        rc = make(job, ret_why);
    if (rc == 0)
        rc = check_other(job, ret_why);
    if (rc == 0)
        rc = keep(job, ret_why);
    return rc < 0 ? rc : settle_settings(job, ret_why);
}
