/* Opening a data directory, and the lock by which it belongs to one daemon. See data_dir.h. */
#include "engine/meta/data_dir_private.h"

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

int nrd_data_dir_refuse(char **ret_why, int error, char *sentence)
{
    *ret_why = sentence;
    return error;
}

/* ---- the folder itself ---- */

const char *nrd_data_dir_remedy(int error)
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
        return nrd_data_dir_refuse(
            ret_why, rc, g_strdup_printf("the data directory %s is a symbolic link; name the folder itself", path));
    if (rc < 0)
        return nrd_data_dir_refuse(ret_why, rc,
                                   g_strdup_printf("the data directory %s cannot be opened: %s%s", path,
                                                   g_strerror(-rc),
                                                   rc == -ENOENT && read_only ? "" : nrd_data_dir_remedy(rc)));
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
    return nrd_data_dir_refuse(
        ret_why, rc,
        g_strdup_printf("%s/lock is not a regular file; remove it (rm -r %s/lock): a start makes it", path, path));
}

static int refuse_in_use(const NrdDataDir *dir, const char *path, char **ret_why)
{
    g_autofree char *holder = lock_holder(dir->root_fd);
    return nrd_data_dir_refuse(
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
        return nrd_data_dir_refuse(
            ret_why, fd,
            g_strdup_printf("the data directory %s is on a read-only file system; mount with -o ro", path));
    if (fd == -EISDIR || fd == -ELOOP || fd == -ENXIO)
        return refuse_odd_lock(fd, path, ret_why);
    if (fd < 0)
        return nrd_data_dir_refuse(
            ret_why, fd,
            g_strdup_printf("%s/lock cannot be opened: %s%s", path, g_strerror(-fd), nrd_data_dir_remedy(fd)));
    dir->lock_fd = fd;
    int rc = check_regular(fd, &dir->last_used_ms);
    if (rc == -EINVAL)
        return refuse_odd_lock(rc, path, ret_why);
    if (rc == 0)
        rc = nrd_io->lock(fd);
    if (rc == -EWOULDBLOCK)
        return refuse_in_use(dir, path, ret_why);
    if (rc < 0)
        return nrd_data_dir_refuse(
            ret_why, rc,
            g_strdup_printf("%s/lock cannot be locked: %s%s", path, g_strerror(-rc), nrd_data_dir_remedy(rc)));
    dir->owned = !read_only;
    if (dir->owned)
        write_pid(fd);
    return 0;
}

int nrd_data_dir_inspect(const char *path, NrdDataDir **ret_dir, char **ret_damage, char **ret_why)
{
    NrdDataDir *dir = g_new0(NrdDataDir, 1);
    g_autofree char *damage = NULL;
    dir->root_fd = dir->folder_fd = dir->lock_fd = -1;
    int rc = open_root(path, true, &dir->root_fd, ret_why);
    if (rc == 0 && !nrd_data_layout_was_made(dir->root_fd))
        rc = nrd_data_dir_refuse(ret_why, -EINVAL, g_strdup_printf("%s is not a data directory of naradfs", path));
    if (rc == 0)
        rc = take_lock(dir, path, true, ret_why);
    int format_rc = rc == 0 ? nrd_data_layout_settle_format(dir->root_fd, path, true, &damage) : 0;
    if (format_rc == -ENOTSUP) /* nothing here can be judged by what is known here */
        rc = nrd_data_dir_refuse(ret_why, format_rc, g_steal_pointer(&damage));
    if (rc < 0) {
        nrd_data_dir_close(dir);
        return rc;
    }
    if (format_rc == 0)
        (void)!nrd_data_layout_check(dir->root_fd, path, &damage); /* its sentence is what counts */
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
        rc = nrd_data_layout_check_format(dir->root_fd, path, &laid_out, ret_why);
    if (rc == 0)
        rc = take_lock(dir, path, read_only, ret_why);
    if (rc == 0)
        rc = nrd_data_layout_settle_format(dir->root_fd, path, read_only, ret_why);
    if (rc == 0)
        rc = nrd_data_layout_check(dir->root_fd, path, ret_why);
    if (rc == 0 && !read_only)
        rc = nrd_data_layout_make_folders(dir->root_fd, path, ret_why);
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
