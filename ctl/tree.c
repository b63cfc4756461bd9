/* See tree.h. */
#include "ctl/tree.h"

#include "engine/base/diag.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TEXT_MAX_BYTES ((size_t)16 * 1024 * 1024)
#define VALUE_MAX_BYTES 4096

/* ---- files ---- */

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int nrd_tree_list(const char *dir, GPtrArray **ret_names)
{
    DIR *stream = opendir(dir);
    if (!stream)
        return -errno;
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    struct dirent *entry;
    while (errno = 0, (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            g_ptr_array_add(names, g_strdup(entry->d_name));
    }
    int rc = -errno;
    closedir(stream);
    if (rc < 0) {
        g_ptr_array_unref(names);
        return rc;
    }
    g_ptr_array_sort(names, by_name);
    *ret_names = names;
    return 0;
}

int nrd_tree_topics(const char *mnt, GPtrArray **ret_names)
{
    g_autofree char *dir = g_strconcat(mnt, "/topics", NULL);
    return nrd_tree_list(dir, ret_names);
}

int nrd_tree_xattr(const char *path, const char *name, char **ret_value)
{
    char value[VALUE_MAX_BYTES + 1];
    g_autofree char *full = g_strconcat("user.narad.", name, NULL);
    ssize_t n = lgetxattr(path, full, value, VALUE_MAX_BYTES);
    if (n < 0)
        return -errno;
    value[n] = '\0';
    *ret_value = g_strdup(value);
    return 0;
}

int nrd_tree_number(const char *path, const char *name, uint64_t *ret_number)
{
    g_autofree char *value = NULL;
    int rc = nrd_tree_xattr(path, name, &value);
    if (rc < 0)
        return rc;
    return g_ascii_string_to_unsigned(value, 10, 0, G_MAXUINT64, ret_number, NULL) ? 0 : -EBADMSG;
}

int nrd_tree_read(const char *path, char **ret_text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    GString *text = g_string_new(NULL);
    char piece[16384];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0)
            g_string_append_len(text, piece, n);
        if (text->len > TEXT_MAX_BYTES)
            break;
    }
    int rc = n < 0 ? -errno : n > 0 ? -EFBIG : 0;
    close(fd);
    if (rc < 0) {
        g_string_free(text, TRUE);
        return rc;
    }
    *ret_text = g_string_free(text, FALSE);
    return 0;
}

int nrd_tree_write(const char *path, const char *text)
{
    size_t size = strlen(text);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, size);
    int rc = n < 0 ? -errno : (size_t)n < size ? -EIO : 0;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

/* ---- what a topic is like ---- */

char *nrd_tree_line(const char *status, const char *label)
{
    g_autofree char *start = g_strconcat(label, " ", NULL);
    g_autofree char *inside = g_strconcat("\n", start, NULL);
    const char *found = g_str_has_prefix(status, start) ? status : strstr(status, inside);
    if (!found)
        return NULL;
    found += *found == '\n' ? 1 : 0;
    g_autofree char *line = g_strndup(found, strcspn(found, "\n"));
    return g_strdup(g_strstrip(line + strlen(start)));
}

char *nrd_tree_state_line(const char *status)
{
    return nrd_tree_line(status, "state");
}

/* Whether the line of `status` was written at that time or later; it tells seconds. */
static bool is_since(const char *line, int64_t since_ms)
{
    g_autofree char *time = g_strndup(line, strcspn(line, " "));
    time[strcspn(time, "Z") + (strchr(time, 'Z') != NULL)] = 0; /* without the colon */
    g_autoptr(GDateTime) at = g_date_time_new_from_iso8601(time, NULL);
    return at && g_date_time_to_unix(at) >= since_ms / 1000;
}

char *nrd_tree_refusal(const char *topic_dir, int error, int64_t since_ms)
{
    if (error == -EACCES || error == -EPERM || error == -EROFS || error == -ENOENT)
        return NULL; /* that is all there is to say, and it was not the daemon's word */
    g_autofree char *path = g_strconcat(topic_dir, "/status", NULL);
    g_autofree char *status = NULL;
    if (nrd_tree_read(path, &status) < 0)
        return NULL;
    g_autofree char *line = nrd_tree_line(status, "refused");
    const char *text = line && is_since(line, since_ms) ? strstr(line, ": ") : NULL; /* behind the time */
    return text ? g_strdup(text + 2) : NULL;
}

int nrd_tree_command(const char *topic_dir, const char *ctl_path, const char *line, char **ret_why)
{
    g_autofree char *text = g_strconcat(line, "\n", NULL);
    int64_t begun_ms = g_get_real_time() / 1000;
    int rc = nrd_tree_write(ctl_path, text);
    if (rc < 0)
        *ret_why = nrd_tree_refusal(topic_dir, rc, begun_ms);
    return rc;
}

/* A number that a partition has; 0, and *error, when it cannot be read. */
static uint64_t get(const char *dir, const char *name, int *error)
{
    uint64_t number = 0;
    int rc = nrd_tree_number(dir, name, &number);
    if (rc < 0)
        *error = rc;
    return number;
}

static int add_partition(const char *dir, NrdTopicSums *sums)
{
    int rc = 0;
    uint64_t hwm = get(dir, "hwm", &rc), oldest = get(dir, "oldest_offset", &rc);
    uint64_t settled = get(dir, "frontier", &rc) + get(dir, "acked_ahead", &rc);
    uint64_t lag = get(dir, "lag", &rc), in_flight = get(dir, "in_flight", &rc), size = get(dir, "size_bytes", &rc);
    if (rc < 0)
        return rc;
    sums->n_records += hwm - MIN(oldest, hwm);
    sums->produced += hwm;
    sums->settled += settled;
    sums->lag += lag;
    sums->in_flight += in_flight;
    sums->size_bytes += size;
    return 0;
}

/* How many partitions of the status page's table are in a state of that name. */
static unsigned count_rows(const char *status, const char *word)
{
    unsigned n = 0;
    g_autofree char *cell = g_strconcat("  ", word, "  ", NULL);
    for (const char *at = strstr(status, cell); at; at = strstr(at + 1, cell))
        n++;
    return n;
}

static void append_count(GString *text, unsigned n, uint64_t n_partitions, const char *what)
{
    if (n > 0)
        g_string_append_printf(text, "%s%u of %" G_GUINT64_FORMAT " partition%s %s", text->len > 0 ? ", " : "", n,
                               n_partitions, nrd_plural(n_partitions), what);
}

static unsigned count_out(const char *status)
{
    return count_rows(status, "out of service") + count_rows(status, "not known");
}

static char *describe_state(const char *status, uint64_t n_partitions, unsigned n_unread)
{
    g_autofree char *state = nrd_tree_state_line(status);
    GString *text = g_string_new(NULL);
    append_count(text, count_rows(status, "poisoned"), n_partitions, "poisoned");
    append_count(text, MAX(count_out(status), n_unread), n_partitions, "out of service");
    append_count(text, count_rows(status, "failing"), n_partitions, "failing");
    append_count(text, count_rows(status, "unreadable"), n_partitions, "unreadable");
    append_count(text, count_rows(status, "damaged"), n_partitions, "damaged");
    append_count(text, count_rows(status, "anew"), n_partitions, "anew");
    append_count(text, count_rows(status, "hiding"), n_partitions, "hiding records");
    append_count(text, count_rows(status, "unsaved"), n_partitions, "not saving progress");
    append_count(text, count_rows(status, "differing"), n_partitions, "with copies that differ");
    if (text->len == 0)
        g_string_append(text, state ? state : "unknown");
    return g_string_free(text, FALSE);
}

/* Whether the daemon itself says that there is nothing to be read where nothing could be. */
static bool is_told(const char *status, unsigned n_unread)
{
    g_autofree char *state = nrd_tree_state_line(status);
    return (state && g_str_has_prefix(state, "out of service")) || (n_unread > 0 && count_out(status) >= n_unread);
}

static void find_state(const char *topic_dir, unsigned n_unread, NrdTopicSums *sums)
{
    g_autofree char *path = g_strconcat(topic_dir, "/status", NULL);
    g_autofree char *status = NULL;
    int rc = nrd_tree_read(path, &status);
    if (rc < 0) {
        sums->state = g_strdup_printf("not readable: %s", g_strerror(-rc));
        sums->error = rc;
        return;
    }
    sums->state = describe_state(status, sums->n_partitions, n_unread);
    if (is_told(status, n_unread))
        sums->error = 0;
}

int nrd_tree_sums(const char *topic_dir, NrdTopicSums *ret_sums)
{
    NrdTopicSums sums = { .n_partitions = 0 };
    unsigned n_unread = 0;
    sums.error = nrd_tree_number(topic_dir, "partitions", &sums.n_partitions);
    if (sums.error < 0)
        sums.n_partitions = 0;
    for (uint64_t i = 0; i < sums.n_partitions; i++) {
        g_autofree char *dir = g_strdup_printf("%s/p%05u", topic_dir, (unsigned)i);
        int rc = add_partition(dir, &sums);
        n_unread += rc < 0;
        sums.error = sums.error < 0 ? sums.error : rc;
    }
    find_state(topic_dir, n_unread, &sums);
    *ret_sums = sums;
    return sums.error;
}

bool nrd_tree_is_gone(const char *topic_dir)
{
    struct stat st;
    return lstat(topic_dir, &st) < 0 && errno == ENOENT;
}

void nrd_tree_sums_clear(NrdTopicSums *sums)
{
    g_clear_pointer(&sums->state, g_free);
}
