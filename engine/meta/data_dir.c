/* See data_dir.h. The layout: lock, format, meta/, ingress/, topics/. `format` is written before the folders, so that a
 * crash while a new directory is laid out leaves one that the next start completes. */
#include "engine/meta/data_dir.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct NrdDataDir {
    int root_fd;
    int folder_fd;        /* locked; -1 where folders cannot be */
    int lock_fd;          /* -1 on a read-only file system without a lock file */
    bool owned;           /* the lock is ours, and to be written */
    int64_t last_used_ms; /* of the lock file, before it was taken */
    int64_t known_ms;     /* what its time is to be from now on; 0: the file system's */
};

static const char *const folders[] = { "meta", "topics", "ingress" };

static int refuse(char **ret_why, int error, char *sentence)
{
    *ret_why = sentence;
    return error;
}

/* ---- the folder itself ---- */

/* What to do about an error of the system, as the end of a sentence. */
static const char *remedy(int error)
{
    switch (-error) {
    case EACCES:
    case EPERM:
        return "; run this as the user that it belongs to, which is the one that naradfs runs as, or as root";
    case ENOENT:
        return "; make the folder that it is to lie in first";
    case ENOTDIR:
        return "; name a folder, or move away what has its name";
    case ENOSPC:
    case EDQUOT:
        return "; make room on that file system first";
    case EROFS:
        return "; mount with -o ro, or make the file system writable";
    case EIO:
        return "; the disk fails: the kernel's log (dmesg) says more";
    default:
        return "";
    }
}

/* The parent has to exist. It may be named through a symbolic link ("/."): only what lies inside DATA is ours to judge. */
static int create_root(const char *path)
{
    g_autofree char *trimmed = g_strdup(path); /* without the slashes of "data/" */
    for (size_t n = strlen(trimmed); n > 1 && trimmed[n - 1] == '/'; n--)
        trimmed[n - 1] = '\0';
    g_autofree char *dir = g_path_get_dirname(trimmed);
    g_autofree char *name = g_path_get_basename(trimmed);
    g_autofree char *parent = g_strconcat(dir, "/.", NULL);
    int parent_fd = -1;
    int rc = nrd_io_open_root(parent, &parent_fd);
    if (rc == 0)
        rc = nrd_io_make_dir(parent_fd, name);
    nrd_io_close(&parent_fd);
    return rc;
}

static int open_root(const char *path, bool read_only, int *ret_fd, char **ret_why)
{
    int rc = nrd_io_open_root(path, ret_fd);
    if (rc == -ENOENT && !read_only) {
        rc = create_root(path);
        if (rc == 0)
            rc = nrd_io_open_root(path, ret_fd);
    }
    if (rc == -ELOOP)
        return refuse(ret_why, rc,
                      g_strdup_printf("the data directory %s is a symbolic link; name the folder itself", path));
    if (rc < 0)
        return refuse(ret_why, rc,
                      g_strdup_printf("the data directory %s cannot be opened: %s%s", path, g_strerror(-rc),
                                      rc == -ENOENT && read_only ? "" : remedy(rc)));
    return 0;
}

/* ---- the lock ---- */

/* Who holds the lock, for the sentence: what stands in the file, if it is a number. */
static char *lock_holder(int root_fd)
{
    g_autoptr(GBytes) bytes = NULL;
    if (nrd_io_read_file(root_fd, "lock", 64, &bytes) < 0)
        return g_strdup("another process");
    gsize size;
    const char *data = g_bytes_get_data(bytes, &size);
    g_autofree char *text = g_strndup(data ? data : "", size);
    g_strstrip(text);
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text))
        return g_strdup("another process");
    return g_strdup_printf("the process with pid %s", text);
}

/* For the sentence of a daemon that is refused; nothing depends on it. */
static void write_pid(int fd)
{
    char text[32];
    int n = g_snprintf(text, sizeof text, "%ld\n", (long)getpid());
    int rc = nrd_io->ftruncate(fd, 0);
    if (rc == 0)
        rc = nrd_io_pwrite_full(fd, text, (size_t)n, 0);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the pid could not be written into the lock file: %s",
                 g_strerror(-rc));
}

/* Whether a lock on this descriptor is a lock on a file, and not on a FIFO or a device that took its place. */
static int check_regular(int fd, int64_t *ret_mtime_ms)
{
    struct stat st;
    int rc = nrd_io->fstat(fd, &st);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -EINVAL;
    if (rc == 0)
        *ret_mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    return rc;
}

static int refuse_odd_lock(int rc, const char *path, char **ret_why)
{
    return refuse(
        ret_why, rc,
        g_strdup_printf("%s/lock is not a regular file; remove it (rm -r %s/lock): a start makes it", path, path));
}

static int refuse_in_use(const NrdDataDir *dir, const char *path, char **ret_why)
{
    g_autofree char *holder = lock_holder(dir->root_fd);
    return refuse(
        ret_why, -EBUSY,
        g_strdup_printf("the data directory %s is in use by %s; one daemon at a time serves it", path, holder));
}

/* The folder is locked as well as the file in it, which somebody may remove. Not every file system can lock a folder. */
static int lock_folder(NrdDataDir *dir)
{
    int rc = nrd_io_open_dir(dir->root_fd, ".", &dir->folder_fd);
    if (rc == 0)
        rc = nrd_io->lock(dir->folder_fd);
    return rc == -EWOULDBLOCK ? rc : 0;
}

static int take_lock(NrdDataDir *dir, const char *path, bool read_only, char **ret_why)
{
    if (lock_folder(dir) < 0)
        return refuse_in_use(dir, path, ret_why);
    /* O_NONBLOCK: a FIFO must not hold us up; it is refused below. */
    int access = read_only ? O_RDONLY : O_RDWR | O_CREAT;
    int fd = nrd_io->open(dir->root_fd, "lock", access | O_NONBLOCK | O_NOCTTY, 0600);
    if (read_only && fd == -ENOENT)
        return 0;
    if (fd == -EROFS)
        return refuse(ret_why, fd,
                      g_strdup_printf("the data directory %s is on a read-only file system; mount with -o ro", path));
    if (fd == -EISDIR || fd == -ELOOP || fd == -ENXIO)
        return refuse_odd_lock(fd, path, ret_why);
    if (fd < 0)
        return refuse(ret_why, fd,
                      g_strdup_printf("%s/lock cannot be opened: %s%s", path, g_strerror(-fd), remedy(fd)));
    dir->lock_fd = fd;
    int rc = check_regular(fd, &dir->last_used_ms);
    if (rc == -EINVAL)
        return refuse_odd_lock(rc, path, ret_why);
    if (rc == 0)
        rc = nrd_io->lock(fd);
    if (rc == -EWOULDBLOCK)
        return refuse_in_use(dir, path, ret_why);
    if (rc < 0)
        return refuse(ret_why, rc,
                      g_strdup_printf("%s/lock cannot be locked: %s%s", path, g_strerror(-rc), remedy(rc)));
    dir->owned = !read_only;
    if (dir->owned)
        write_pid(fd);
    return 0;
}

/* ---- the layout ---- */

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
        return refuse(ret_why, -EINVAL,
                      g_strdup_printf("%s/format does not hold a version number; for this program it should be %d "
                                      "(nothing was changed)",
                                      path, NRD_DATA_FORMAT));
    if (version > NRD_DATA_FORMAT)
        return refuse(ret_why, -ENOTSUP,
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
        return refuse(ret_why, rc,
                      g_strdup_printf("%s/format cannot be written: %s%s", path, g_strerror(-rc), remedy(rc)));
    return 0;
}

/* Whether this is a data directory of a version that we know (*ret_laid_out), or an empty folder that can become one.
 * Changes nothing: it is asked before the lock is taken, so that nothing is left in a folder of somebody else's, and
 * again under the lock. */
static int check_format(int root_fd, const char *path, bool *ret_laid_out, char **ret_why)
{
    g_autoptr(GBytes) bytes = NULL;
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_io_read_file(root_fd, "format", 64, &bytes);
    if (rc == 0) {
        *ret_laid_out = true;
        return check_version(path, bytes, ret_why);
    }
    if (rc != -ENOENT)
        return refuse(ret_why, rc,
                      g_strdup_printf("%s/format cannot be read: %s%s", path,
                                      rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc),
                                      rc == -EINVAL || rc == -ELOOP || rc == -ENXIO
                                          ? "; put the file from a backup in its place"
                                          : remedy(rc)));
    rc = nrd_io_list_dir(root_fd, ".", &names);
    if (rc < 0)
        return refuse(ret_why, rc, g_strdup_printf("%s cannot be listed: %s%s", path, g_strerror(-rc), remedy(rc)));
    if (!counts_as_empty(names))
        return refuse(ret_why, -EINVAL,
                      g_strdup_printf("%s is not a data directory of naradfs: it is not empty and has no file "
                                      "`format`; name an empty folder, or put `format` back if it is one (nothing was "
                                      "changed)",
                                      path));
    *ret_laid_out = false;
    return 0;
}

static int settle_format(int root_fd, const char *path, bool read_only, char **ret_why)
{
    bool laid_out = false;
    int rc = check_format(root_fd, path, &laid_out, ret_why);
    if (rc < 0 || laid_out)
        return rc;
    if (read_only)
        return refuse(ret_why, -ENOENT, g_strdup_printf("%s is empty; a read-only mount cannot lay it out", path));
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
        return refuse(ret_why, rc < 0 ? rc : -ENOTDIR,
                      g_strdup_printf("%s/meta cannot be used: %s%s", path,
                                      rc < 0 ? g_strerror(-rc) : "it is not a folder", remedy(rc < 0 ? rc : -ENOTDIR)));
    rc = nrd_io_list_dir(root_fd, "topics", &topics);
    if (rc == -ENOENT || (rc == 0 && topics->len == 0))
        return 0;
    return refuse(
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
        return refuse(ret_why, rc,
                      g_strdup_printf("%s/meta cannot be listed: %s%s", path, g_strerror(-rc), remedy(rc)));
    return refuse(ret_why, -EIO,
                  g_strdup_printf(
                      "%s/topics is missing although there are topic records; restore it (nothing was changed)", path));
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
            return refuse(ret_why, rc,
                          g_strdup_printf("%s/%s cannot be used as a folder: %s%s", path, folders[i], g_strerror(-rc),
                                          remedy(rc)));
    }
    return 0;
}

/* What is seen in them may be what a killed process has created, renamed or removed and did not get to sync. It is made
 * durable before anything is built upon it, or deleted because of it: else a power cut could take back a record whose
 * topic has acknowledged since. */
static int make_folders(int root_fd, const char *path, char **ret_why)
{
    for (size_t i = 0; i < G_N_ELEMENTS(folders); i++) {
        int rc = nrd_io_make_dir(root_fd, folders[i]);
        if (rc == 0)
            rc = nrd_io_sync_dir(root_fd, folders[i]);
        if (rc < 0)
            return refuse(ret_why, rc,
                          g_strdup_printf("%s/%s cannot be used as a folder: %s%s", path, folders[i], g_strerror(-rc),
                                          remedy(rc)));
    }
    return 0;
}

/* Whether somebody has laid a data directory out here, whatever has become of it since. */
static bool was_laid_out(int root_fd)
{
    struct stat st;
    return nrd_io_stat(root_fd, "format", &st) == 0 ||
           (nrd_io_stat(root_fd, "meta", &st) == 0 && nrd_io_stat(root_fd, "ingress", &st) == 0);
}

int nrd_data_dir_inspect(const char *path, NrdDataDir **ret_dir, char **ret_damage, char **ret_why)
{
    NrdDataDir *dir = g_new0(NrdDataDir, 1);
    g_autofree char *damage = NULL;
    dir->root_fd = dir->folder_fd = dir->lock_fd = -1;
    int rc = open_root(path, true, &dir->root_fd, ret_why);
    if (rc == 0 && !was_laid_out(dir->root_fd))
        rc = refuse(ret_why, -EINVAL, g_strdup_printf("%s is not a data directory of naradfs", path));
    if (rc == 0)
        rc = take_lock(dir, path, true, ret_why);
    int format_rc = rc == 0 ? settle_format(dir->root_fd, path, true, &damage) : 0;
    if (format_rc == -ENOTSUP) /* nothing here can be judged by what is known here */
        rc = refuse(ret_why, format_rc, g_steal_pointer(&damage));
    if (rc < 0) {
        nrd_data_dir_close(dir);
        return rc;
    }
    if (format_rc == 0 && check_meta(dir->root_fd, path, &damage) == 0 &&
        check_topics(dir->root_fd, path, &damage) == 0)
        (void)!check_folders(dir->root_fd, path, &damage); /* its sentence is what counts */
    *ret_dir = dir;
    *ret_damage = g_steal_pointer(&damage);
    return 0;
}

int nrd_data_dir_open(const char *path, bool read_only, NrdDataDir **ret_dir, char **ret_why)
{
    NrdDataDir *dir = g_new0(NrdDataDir, 1);
    bool laid_out = false;
    dir->root_fd = dir->folder_fd = dir->lock_fd = -1;
    int rc = open_root(path, read_only, &dir->root_fd, ret_why);
    if (rc == 0)
        rc = check_format(dir->root_fd, path, &laid_out, ret_why);
    if (rc == 0)
        rc = take_lock(dir, path, read_only, ret_why);
    if (rc == 0)
        rc = settle_format(dir->root_fd, path, read_only, ret_why);
    if (rc == 0)
        rc = check_meta(dir->root_fd, path, ret_why);
    if (rc == 0)
        rc = check_topics(dir->root_fd, path, ret_why);
    if (rc == 0)
        rc = check_folders(dir->root_fd, path, ret_why);
    if (rc == 0 && !read_only)
        rc = make_folders(dir->root_fd, path, ret_why);
    if (rc < 0) {
        nrd_data_dir_close(dir);
        return rc;
    }
    *ret_dir = dir;
    return 0;
}

int nrd_data_dir_fd(const NrdDataDir *dir)
{
    return dir->root_fd;
}

int64_t nrd_data_dir_last_used_ms(const NrdDataDir *dir)
{
    return dir->last_used_ms;
}

/* Only a hint: a failure is nothing. */
void nrd_data_dir_note_time(NrdDataDir *dir, int64_t unix_ms)
{
    dir->known_ms = unix_ms;
    if (dir->owned)
        (void)nrd_io->set_mtime(dir->lock_fd, unix_ms);
}

void nrd_data_dir_close(NrdDataDir *dir)
{
    if (!dir)
        return;
    /* Nobody's any more; and its time tells the next run how far the clock had come. */
    if (dir->owned)
        (void)nrd_io->ftruncate(dir->lock_fd, 0);
    if (dir->known_ms != 0)
        nrd_data_dir_note_time(dir, dir->known_ms);
    nrd_io_close(&dir->lock_fd);
    nrd_io_close(&dir->folder_fd);
    nrd_io_close(&dir->root_fd);
    g_free(dir);
}
