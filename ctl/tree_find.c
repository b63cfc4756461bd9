/* Which mount and which topic are meant: names, paths and the working folder. See tree.h. */
#include "ctl/partition_name.h"
#include "ctl/tree.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TYPE "fuse.naradfs"

/* ---- which mount ---- */

/* /proc writes a space, a tab, a newline and a backslash as \ooo. */
static char *unescape(const char *text)
{
    return g_strcompress(text);
}

GPtrArray *nrd_tree_mounts(const char *text)
{
    GPtrArray *mounts = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        g_auto(GStrv) fields = g_strsplit(lines[i], " ", 4);
        if (g_strv_length(fields) >= 3 && strcmp(fields[2], TYPE) == 0)
            g_ptr_array_add(mounts, unescape(fields[1]));
    }
    return mounts;
}

static int list_mounts(GPtrArray **ret_mounts, char **ret_why)
{
    g_autofree char *text = NULL;
    int rc = nrd_tree_read("/proc/self/mounts", &text);
    if (rc < 0) {
        *ret_why = g_strdup_printf("/proc/self/mounts cannot be read: %s; name the mount point", g_strerror(-rc));
        return rc;
    }
    *ret_mounts = nrd_tree_mounts(text);
    return 0;
}

const char *nrd_tree_below(const char *mnt, const char *path)
{
    size_t n = strlen(mnt);
    if (strncmp(path, mnt, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n + (path[n] == '/');
}

/* The mount that a path lies in, and the rest of the path; -ENOENT when it lies in none, errno when it cannot be followed. */
static int locate(const char *path, char **ret_mnt, char **ret_rest)
{
    g_autoptr(GPtrArray) mounts = NULL;
    g_autofree char *why = NULL;
    char *real = realpath(path, NULL);
    int rc = real ? list_mounts(&mounts, &why) : -errno;
    const char *best = NULL;
    for (guint i = 0; rc == 0 && i < mounts->len; i++) {
        if (nrd_tree_below(mounts->pdata[i], real) && (!best || strlen(mounts->pdata[i]) > strlen(best)))
            best = mounts->pdata[i];
    }
    if (rc == 0 && !best)
        rc = -ENOENT;
    if (rc == 0) {
        *ret_mnt = g_strdup(best);
        *ret_rest = g_strdup(nrd_tree_below(best, real));
    }
    free(real);
    return rc;
}

/* Who looks at the mount of somebody else gets -EACCES for all of it, its top too, unless it is mounted with allow_other.
 * path is taken as it is written, since it cannot be followed. NULL: that is not what keeps from it; else a sentence. */
static char *why_of_another_user(const char *path)
{
    g_autofree char *text = NULL;
    g_autofree char *full = g_canonicalize_filename(path, NULL);
    struct stat st;
    if (nrd_tree_read("/proc/self/mounts", &text) < 0)
        return NULL;
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        g_auto(GStrv) fields = g_strsplit(lines[i], " ", 5);
        if (g_strv_length(fields) < 4 || strcmp(fields[2], TYPE) != 0 || strstr(fields[3], "allow_other"))
            continue;
        g_autofree char *mnt = unescape(fields[1]);
        if (nrd_tree_below(mnt, full) && stat(mnt, &st) < 0 && errno == EACCES)
            return g_strdup_printf(
                "the mount %s cannot be used: %s; it was mounted without -o allow_other, so that only "
                "the user who mounted it sees it: run this as that user, or mount it with allow_other",
                mnt, g_strerror(EACCES));
    }
    return NULL;
}

/* That of the working folder, else the only one. */
static int find_near(char **ret_mnt, char **ret_why)
{
    g_autoptr(GPtrArray) mounts = NULL;
    g_autofree char *rest = NULL;
    if (locate(".", ret_mnt, &rest) == 0)
        return 0;
    int rc = list_mounts(&mounts, ret_why);
    if (rc < 0)
        return rc;
    if (mounts->len == 1) {
        *ret_why = why_of_another_user(mounts->pdata[0]);
        if (*ret_why)
            return -EACCES;
        *ret_mnt = g_strdup(mounts->pdata[0]);
        return 0;
    }
    if (mounts->len == 0) {
        *ret_why = g_strdup("no naradfs is mounted; mount one, or name the mount point");
        return -ENOENT;
    }
    g_ptr_array_add(mounts, NULL);
    g_autofree char *list = g_strjoinv(", ", (char **)mounts->pdata);
    *ret_why = g_strdup_printf("several naradfs are mounted: %s; name the one that is meant, or a path in it", list);
    return -EINVAL;
}

/* Whether a naradfs is mounted there, to whoever sees it: 0 or why not. */
static int check_mount(const char *path)
{
    struct stat st;
    g_autofree char *topics = g_strconcat(path, "/topics", NULL);
    g_autofree char *metrics = g_strconcat(path, "/metrics", NULL);
    return stat(topics, &st) < 0 || stat(metrics, &st) < 0 ? -errno : 0;
}

int nrd_tree_find(const char *given, char **ret_mnt, char **ret_why)
{
    g_autofree char *rest = NULL;
    if (!given)
        return find_near(ret_mnt, ret_why);
    int rc = check_mount(given);
    if (rc == 0) {
        *ret_mnt = g_strdup(given);
        return 0;
    }
    if ((rc == -ENOENT || rc == -ENOTDIR) && locate(given, ret_mnt, &rest) == 0)
        return 0;
    *ret_why = rc == -EACCES ? why_of_another_user(given) : NULL;
    if (!*ret_why)
        *ret_why = rc == -ENOENT || rc == -ENOTDIR
                       ? g_strdup_printf("no naradfs is mounted at %s", given)
                       : g_strdup_printf("the mount %s cannot be used: %s", given, g_strerror(-rc));
    return rc;
}

/* ---- which topic ---- */

/* What cannot be looked at may be there; that comes out when it is used. */
static int look_at_partition(const NrdTreePlace *place, char **ret_why)
{
    struct stat st;
    uint64_t n = 0;
    g_autofree char *dir = g_strconcat(place->dir, "/", place->partition, NULL);
    if (stat(dir, &st) == 0 || errno != ENOENT)
        return 0;
    if (nrd_tree_number(place->dir, "partitions", &n) < 0 || n == 0)
        *ret_why = g_strdup_printf("%s has no %s", place->topic, place->partition);
    else
        *ret_why = g_strdup_printf("%s has %" G_GUINT64_FORMAT " partition%s, the last one is p%05u", place->topic, n,
                                   nrd_plural(n), (unsigned)n - 1);
    return -ENOENT;
}

static int look_at_topic(const char *mnt, const char *topic, char **ret_dir, char **ret_why)
{
    struct stat st;
    g_autofree char *dir = g_strconcat(mnt, "/topics/", topic, NULL);
    int rc = *topic == '\0' || *topic == '.' || strchr(topic, '/') ? -EINVAL : stat(dir, &st) < 0 ? -errno : 0;
    if (rc < 0) {
        *ret_why = rc == -EACCES ? why_of_another_user(dir) : NULL;
        if (*ret_why)
            return rc;
        *ret_why = rc == -EINVAL ? g_strdup_printf("\"%s\" is no name of a topic", topic)
                   : rc == -ENOENT
                       ? g_strdup_printf("there is no topic %s at %s; naradctl topics lists them", topic, mnt)
                       : g_strdup_printf("the topic %s cannot be looked at: %s", topic, g_strerror(-rc));
        return rc;
    }
    *ret_dir = g_steal_pointer(&dir);
    return 0;
}

/* The name that the mount has for it (g_free); NULL: it names none. */
static char *partition_called(const char *name)
{
    uint32_t number;
    return nrd_partition_name_parse(name, &number) ? g_strdup_printf("p%05u", number) : NULL;
}

bool nrd_tree_split(const char *path, char **ret_topic, char **ret_partition)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    if (!parts[0] || !*parts[0])
        return false;
    *ret_topic = g_strdup(parts[0]);
    *ret_partition = partition_called(parts[1]);
    return true;
}

/* locate for a path whose last part need not be there. */
static int locate_name(const char *path, char **ret_mnt, char **ret_rest)
{
    int rc = locate(path, ret_mnt, ret_rest);
    g_autofree char *dir = g_path_get_dirname(path);
    g_autofree char *base = g_path_get_basename(path);
    g_autofree char *rest = NULL;
    if (rc != -ENOENT || locate(dir, ret_mnt, &rest) < 0)
        return rc;
    *ret_rest = g_strdup_printf("%s/%s", rest, base);
    return 0;
}

/* Only with a slash, or a dot in front, can it be one. */
static bool may_be_path(const char *name)
{
    return strchr(name, '/') || *name == '.';
}

/* A name as a path, if it is one that leads into a topic of a mount. */
static bool follow_path(const char *name, NrdTreePlace *place)
{
    g_autofree char *mnt = NULL;
    g_autofree char *rest = NULL;
    if (!may_be_path(name) || locate_name(name, &mnt, &rest) < 0 || !g_str_has_prefix(rest, "topics/") ||
        !nrd_tree_split(rest + strlen("topics/"), &place->topic, &place->partition))
        return false;
    place->mnt = g_steal_pointer(&mnt);
    return true;
}

/* A name that is no path: "TOPIC", or "TOPIC/pNNNNN". */
static int take_name(const char *given, const char *name, NrdTreePlace *place, char **ret_why)
{
    g_auto(GStrv) parts = g_strsplit(name, "/", -1);
    g_autofree char *partition = g_strv_length(parts) == 2 ? partition_called(parts[1]) : NULL;
    if (!given && !partition && may_be_path(name)) {
        *ret_why = why_of_another_user(name);
        if (*ret_why)
            return -EACCES;
        *ret_why = g_strdup_printf("\"%s\" is no name of a topic, and no path to one in a mounted naradfs", name);
        return -ENOENT;
    }
    place->topic = g_strdup(partition ? parts[0] : name);
    place->partition = g_steal_pointer(&partition);
    return nrd_tree_find(given, &place->mnt, ret_why);
}

int nrd_tree_find_topic(const char *given, const char *name, NrdTreePlace *ret_place, char **ret_why)
{
    NrdTreePlace place = { .mnt = NULL };
    int rc = 0;
    if (given || !follow_path(name, &place))
        rc = take_name(given, name, &place, ret_why);
    if (rc == 0)
        rc = look_at_topic(place.mnt, place.topic, &place.dir, ret_why);
    if (rc == 0 && place.partition)
        rc = look_at_partition(&place, ret_why);
    if (rc < 0) {
        nrd_tree_place_clear(&place);
        return rc;
    }
    *ret_place = place;
    return 0;
}

int nrd_tree_find_target(const char *path, const char *name, NrdTreePlace *ret_place, char **ret_why)
{
    NrdTreePlace place = { .mnt = NULL };
    g_autofree char *inside = g_build_filename(path, name, NULL);
    g_autofree char *full = g_build_filename(path, NULL); /* without a slash at its end */
    bool found = may_be_path(path) && (follow_path(full, &place) || follow_path(inside, &place));
    if (!found || place.partition) {
        *ret_why = why_of_another_user(path);
        if (!*ret_why)
            *ret_why = g_strdup_printf(place.partition ? "%s is a partition; a topic is copied as a whole, to "
                                                         "MNT/topics/TOPIC"
                                                       : "%s is no place for a topic in a mounted naradfs; "
                                                         "MNT/topics/TOPIC is",
                                       path);
        nrd_tree_place_clear(&place);
        return -ENOENT;
    }
    place.dir = g_strconcat(place.mnt, "/topics/", place.topic, NULL);
    *ret_place = place;
    return 0;
}

void nrd_tree_place_clear(NrdTreePlace *place)
{
    g_clear_pointer(&place->mnt, g_free);
    g_clear_pointer(&place->topic, g_free);
    g_clear_pointer(&place->partition, g_free);
    g_clear_pointer(&place->dir, g_free);
}
