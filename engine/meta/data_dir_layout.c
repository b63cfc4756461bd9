/* What a data directory holds: lock, format, meta/, ingress/, topics/. `format` is written before the folders, so that a crash
 * while a new directory is laid out leaves one that the next start completes. */
#include "engine/meta/data_dir_private.h"

#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

static const char *const folders[] = { "meta", "topics", "ingress" };

static bool counts_as_empty(const GPtrArray *names)
{
    for (guint i = 0; i < names->len; i++) {
        const char *name = names->pdata[i];
        if (strcmp(name, "lock") != 0 && strcmp(name, "lost+found") != 0 && strcmp(name, "format.tmp") != 0)
            return false;
    }
    return true;
}

static int check_version(const char *path, GBytes *bytes, char **ret_why)
{
    gsize size;
    const char *data = g_bytes_get_data(bytes, &size);
    g_autofree char *text = g_strndup(data ? data : "", size);
    g_strchomp(text);
    guint64 version;
    if (strlen(text) == 0 || strspn(text, "0123456789") != strlen(text) ||
        !g_ascii_string_to_unsigned(text, 10, 1, G_MAXUINT32, &version, NULL))
        return nrd_data_dir_refuse(
            ret_why, -EINVAL,
            g_strdup_printf("%s/format does not hold a version number; for this program it should be %d "
                            "(nothing was changed)",
                            path, NRD_DATA_FORMAT));
    if (version > NRD_DATA_FORMAT)
        return nrd_data_dir_refuse(ret_why, -ENOTSUP,
                                   g_strdup_printf("%s/format says version %" G_GUINT64_FORMAT
                                                   ", this program knows up to %d: use a newer naradfs",
                                                   path, version, NRD_DATA_FORMAT));
    return 0;
}

static int write_format(int root_fd, const char *path, char **ret_why)
{
    g_autofree char *text = g_strdup_printf("%d\n", NRD_DATA_FORMAT);
    int rc = nrd_io_replace_file(root_fd, "format", text, strlen(text));
    if (rc < 0)
        return nrd_data_dir_refuse(
            ret_why, rc,
            g_strdup_printf("%s/format cannot be written: %s%s", path, g_strerror(-rc), nrd_data_dir_remedy(rc)));
    return 0;
}

int nrd_data_layout_check_format(int root_fd, const char *path, bool *ret_laid_out, char **ret_why)
{
    g_autoptr(GBytes) bytes = NULL;
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_io_read_file(root_fd, "format", 64, &bytes);
    if (rc == 0) {
        *ret_laid_out = true;
        return check_version(path, bytes, ret_why);
    }
    if (rc != -ENOENT)
        return nrd_data_dir_refuse(ret_why, rc,
                                   g_strdup_printf("%s/format cannot be read: %s%s", path,
                                                   rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc),
                                                   rc == -EINVAL || rc == -ELOOP || rc == -ENXIO
                                                       ? "; put the file from a backup in its place"
                                                       : nrd_data_dir_remedy(rc)));
    rc = nrd_io_list_dir(root_fd, ".", &names);
    if (rc < 0)
        return nrd_data_dir_refuse(
            ret_why, rc, g_strdup_printf("%s cannot be listed: %s%s", path, g_strerror(-rc), nrd_data_dir_remedy(rc)));
    if (!counts_as_empty(names))
        return nrd_data_dir_refuse(
            ret_why, -EINVAL,
            g_strdup_printf("%s is not a data directory of naradfs: it is not empty and has no file "
                            "`format`; name an empty folder, or put `format` back if it is one (nothing was "
                            "changed)",
                            path));
    *ret_laid_out = false;
    return 0;
}

int nrd_data_layout_settle_format(int root_fd, const char *path, bool read_only, char **ret_why)
{
    bool laid_out = false;
    int rc = nrd_data_layout_check_format(root_fd, path, &laid_out, ret_why);
    if (rc < 0 || laid_out)
        return rc;
    if (read_only)
        return nrd_data_dir_refuse(ret_why, -ENOENT,
                                   g_strdup_printf("%s is empty; a read-only mount cannot lay it out", path));
    return write_format(root_fd, path, ret_why);
}

/* Whether meta/ is gone although there are topics: then every topic would look deleted. */
static int check_meta(int root_fd, const char *path, char **ret_why)
{
    struct stat st;
    g_autoptr(GPtrArray) topics = NULL;
    int rc = nrd_io_stat(root_fd, "meta", &st);
    if (rc == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (rc == 0 || rc != -ENOENT)
        return nrd_data_dir_refuse(ret_why, rc < 0 ? rc : -ENOTDIR,
                                   g_strdup_printf("%s/meta cannot be used: %s%s", path,
                                                   rc < 0 ? g_strerror(-rc) : "it is not a folder",
                                                   nrd_data_dir_remedy(rc < 0 ? rc : -ENOTDIR)));
    rc = nrd_io_list_dir(root_fd, "topics", &topics);
    if (rc == -ENOENT || (rc == 0 && topics->len == 0))
        return 0;
    return nrd_data_dir_refuse(
        ret_why, -EIO,
        g_strdup_printf("%s/meta is missing although there are topics; restore it (nothing was changed)", path));
}

static bool holds_record(const GPtrArray *names)
{
    for (guint i = 0; i < names->len; i++) {
        if (g_str_has_suffix(names->pdata[i], ".topic"))
            return true;
    }
    return false;
}

/* Whether topics/ is gone although there are records: every topic would start again at offset 0, over offsets that were
 * acknowledged. No crash leaves that, since topics/ is there before the first record. */
static int check_topics(int root_fd, const char *path, char **ret_why)
{
    struct stat st;
    g_autoptr(GPtrArray) records = NULL;
    int rc = nrd_io_stat(root_fd, "topics", &st);
    if (rc != -ENOENT)
        return 0; /* whatever it is, making the folders and listing it judge it */
    rc = nrd_io_list_dir(root_fd, "meta", &records);
    if (rc == -ENOENT || (rc == 0 && !holds_record(records)))
        return 0;
    if (rc < 0)
        return nrd_data_dir_refuse(
            ret_why, rc,
            g_strdup_printf("%s/meta cannot be listed: %s%s", path, g_strerror(-rc), nrd_data_dir_remedy(rc)));
    return nrd_data_dir_refuse(
        ret_why, -EIO,
        g_strdup_printf("%s/topics is missing although there are topic records; restore it (nothing was changed)",
                        path));
}

/* Whether something else stands in the place of a folder. One that is missing is made. */
static int check_folders(int root_fd, const char *path, char **ret_why)
{
    for (size_t i = 0; i < G_N_ELEMENTS(folders); i++) {
        struct stat st;
        int rc = nrd_io_stat(root_fd, folders[i], &st);
        if (rc == 0 && !S_ISDIR(st.st_mode))
            rc = -ENOTDIR;
        if (rc < 0 && rc != -ENOENT)
            return nrd_data_dir_refuse(ret_why, rc,
                                       g_strdup_printf("%s/%s cannot be used as a folder: %s%s", path, folders[i],
                                                       g_strerror(-rc), nrd_data_dir_remedy(rc)));
    }
    return 0;
}

int nrd_data_layout_check(int root_fd, const char *path, char **ret_why)
{
    int rc = check_meta(root_fd, path, ret_why);
    if (rc == 0)
        rc = check_topics(root_fd, path, ret_why);
    return rc == 0 ? check_folders(root_fd, path, ret_why) : rc;
}

/* What is seen in them may be what a killed process has created, renamed or removed and did not get to sync. It is made
 * durable before anything is built upon it, or deleted because of it: else a power cut could take back a record whose
 * topic has acknowledged since. */
int nrd_data_layout_make_folders(int root_fd, const char *path, char **ret_why)
{
    for (size_t i = 0; i < G_N_ELEMENTS(folders); i++) {
        int rc = nrd_io_make_dir(root_fd, folders[i]);
        if (rc == 0)
            rc = nrd_io_sync_dir(root_fd, folders[i]);
        if (rc < 0)
            return nrd_data_dir_refuse(ret_why, rc,
                                       g_strdup_printf("%s/%s cannot be used as a folder: %s%s", path, folders[i],
                                                       g_strerror(-rc), nrd_data_dir_remedy(rc)));
    }
    return 0;
}

bool nrd_data_layout_was_made(int root_fd)
{
    struct stat st;
    return nrd_io_stat(root_fd, "format", &st) == 0 ||
           (nrd_io_stat(root_fd, "meta", &st) == 0 && nrd_io_stat(root_fd, "ingress", &st) == 0);
}
