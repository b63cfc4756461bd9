/* Names: what stands there, and durable creates, renames and removals.
 *
 * Every function that creates, renames or removes a name syncs the folder that holds it before it reports success
 * ("Durable create, rename, unlink"): until then a power cut may undo it. */
#include "engine/io/io.h"

#include "engine/base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define PROOF_BYTES 4096

/* Opens the folder that holds the last component of path; *ret_name points into path. */
static int open_parent(int dirfd, const char *path, int *ret_fd, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        int rc = nrd_io_open_dir(dirfd, ".", ret_fd);
        if (rc == 0)
            *ret_name = path;
        return rc;
    }
    g_autofree char *parent = g_strndup(path, (gsize)(slash - path));
    int rc = nrd_io_open_dir(dirfd, parent, ret_fd);
    if (rc == 0)
        *ret_name = slash + 1;
    return rc;
}

int nrd_io_sync_dir(int dirfd, const char *path)
{
    int fd = -1;
    int rc = nrd_io_open_dir(dirfd, path, &fd);
    if (rc < 0)
        return rc;
    rc = nrd_io->fsync(fd);
    nrd_io_close(&fd);
    return rc;
}

int nrd_io_make_dir(int dirfd, const char *path)
{
    int parent_fd = -1;
    const char *name = NULL;
    int rc = open_parent(dirfd, path, &parent_fd, &name);
    if (rc < 0)
        return rc;
    rc = nrd_io->mkdir(parent_fd, name, 0700);
    if (rc == -EEXIST) {
        struct stat st;
        rc = nrd_io->fstatat(parent_fd, name, &st);
        if (rc == 0 && !S_ISDIR(st.st_mode))
            rc = -ENOTDIR;
    }
    /* Also when it existed: the crash of an earlier attempt may have come before its sync. */
    if (rc == 0)
        rc = nrd_io->fsync(parent_fd);
    nrd_io_close(&parent_fd);
    return rc;
}

static int write_temporary(int parent_fd, const char *name, const void *data, size_t size, int *ret_fd)
{
    /* A stray one of an earlier crash is removed rather than reused: it may be a link or a folder. */
    int rc = nrd_io->unlink(parent_fd, name, false);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    int fd = nrd_io->open(parent_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return fd;
    rc = nrd_io_pwrite_full(fd, data, size, 0);
    /* The content first, then the name: a crash between leaves the old file, never a name without its bytes. */
    if (rc == 0)
        rc = nrd_io->fsync(fd);
    if (rc < 0)
        nrd_io_close(&fd);
    else
        *ret_fd = fd;
    return rc;
}

/* Whether the file holds exactly data. A file system that is shut down meanwhile may let syncs return success for what they
 * threw away; it fails every read that begins afterwards. */
static int prove(int fd, const uint8_t *data, size_t size)
{
    uint8_t buf[PROOF_BYTES];
    for (size_t pos = 0;;) {
        size_t n = 0;
        int rc = nrd_io_pread_full(fd, buf, sizeof buf, (int64_t)pos, &n);
        if (rc < 0)
            return rc;
        if (n > size - pos || memcmp(buf, data + pos, n) != 0)
            return -EIO;
        pos += n;
        if (n < sizeof buf)
            return pos == size ? 0 : -EIO;
    }
}

int nrd_io_replace_file(int dirfd, const char *path, const void *data, size_t size)
{
    int parent_fd = -1, fd = -1;
    const char *name = NULL;
    int rc = open_parent(dirfd, path, &parent_fd, &name);
    if (rc < 0)
        return rc;
    g_autofree char *temporary = g_strconcat(name, ".tmp", NULL);
    rc = write_temporary(parent_fd, temporary, data, size, &fd);
    if (rc == 0)
        rc = nrd_io->rename(parent_fd, temporary, parent_fd, name, true);
    if (rc < 0)
        (void)nrd_io->unlink(parent_fd, temporary, false); /* best effort: the next replacement removes it too */
    /* A crash before this is over leaves the old file or the new one; nobody has been told of the new one. */
    if (rc == 0)
        rc = nrd_io->fsync(parent_fd);
    if (rc == 0)
        rc = prove(fd, data, size);
    nrd_io_close(&fd);
    nrd_io_close(&parent_fd);
    return rc;
}

int nrd_io_rename(int dirfd, const char *path, const char *to_path, bool replace)
{
    int from_fd = -1, to_fd = -1;
    const char *from = NULL, *to = NULL;
    int rc = open_parent(dirfd, path, &from_fd, &from);
    if (rc == 0)
        rc = open_parent(dirfd, to_path, &to_fd, &to);
    if (rc == 0)
        rc = nrd_io->rename(from_fd, from, to_fd, to, replace);
    if (rc == 0)
        rc = nrd_io->fsync(to_fd);
    if (rc == 0)
        rc = nrd_io->fsync(from_fd);
    nrd_io_close(&from_fd);
    nrd_io_close(&to_fd);
    return rc;
}

int nrd_io_unlink(int dirfd, const char *path)
{
    int parent_fd = -1;
    const char *name = NULL;
    int rc = open_parent(dirfd, path, &parent_fd, &name);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    rc = nrd_io->unlink(parent_fd, name, false);
    /* Also when it is gone already: an earlier attempt may have failed at the sync. */
    if (rc == 0 || rc == -ENOENT)
        rc = nrd_io->fsync(parent_fd);
    nrd_io_close(&parent_fd);
    return rc;
}

int nrd_io_stat(int dirfd, const char *path, struct stat *ret_st)
{
    int parent_fd = -1;
    const char *name = NULL;
    int rc = open_parent(dirfd, path, &parent_fd, &name);
    if (rc < 0)
        return rc;
    rc = nrd_io->fstatat(parent_fd, name, ret_st);
    nrd_io_close(&parent_fd);
    return rc;
}

static bool is_file(const struct stat *st, const NrdIoFileId *id)
{
    return st->st_dev == id->dev && st->st_ino == id->ino;
}

int nrd_io_check_place(int fd, const NrdIoFileId *known, int dirfd, const char *path, bool *ret_looked)
{
    struct stat st;
    int rc = nrd_io->fstat_untimed(fd, &st);
    if (rc < 0)
        return rc;
    NrdIoFileId id = { st.st_dev, st.st_ino };
    if (st.st_nlink == 0)
        return -ENOENT;
    if (known && !is_file(&st, known))
        return -ESTALE;
    if (!path)
        return 0;
    rc = nrd_io_stat(dirfd, path, &st);
    if (rc == 0 && !is_file(&st, &id))
        rc = -ESTALE;
    if (rc < 0 && !nrd_error_is_shortage(rc))
        return rc;
    *ret_looked = rc == 0;
    return 0;
}

const char *nrd_io_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "a plain file";
    case S_IFDIR:
        return "a folder";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

char *nrd_io_foreign_kind(int dirfd, const char *path)
{
    struct stat st;
    if (nrd_io_stat(dirfd, path, &st) < 0 || S_ISREG(st.st_mode))
        return NULL;
    return g_strdup_printf("it is %s, and no regular file", nrd_io_kind(st.st_mode));
}

int nrd_io_list_dir(int dirfd, const char *path, GPtrArray **ret_names)
{
    int fd = -1;
    int rc = nrd_io_open_dir(dirfd, path, &fd);
    if (rc < 0)
        return rc;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    rc = nrd_io->list(fd, names);
    nrd_io_close(&fd);
    if (rc == 0)
        *ret_names = g_steal_pointer(&names);
    return rc;
}

static int remove_below(int fd, unsigned depth);

static int remove_entry(int parent_fd, const char *name, unsigned depth)
{
    struct stat st;
    int rc = nrd_io->fstatat(parent_fd, name, &st);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    bool is_dir = S_ISDIR(st.st_mode);
    if (is_dir) {
        int fd = -1;
        rc = nrd_io_open_dir(parent_fd, name, &fd);
        if (rc < 0)
            return rc;
        rc = remove_below(fd, depth + 1);
        nrd_io_close(&fd);
        if (rc < 0)
            return rc;
    }
    return nrd_io->unlink(parent_fd, name, is_dir);
}

static int remove_below(int fd, unsigned depth)
{
    if (depth > 16) /* our own trees are three deep */
        return -ELOOP;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    int rc = nrd_io->list(fd, names);
    for (guint i = 0; rc == 0 && i < names->len; i++)
        rc = remove_entry(fd, names->pdata[i], depth);
    return rc;
}

int nrd_io_remove_tree(int dirfd, const char *path)
{
    int parent_fd = -1;
    const char *name = NULL;
    int rc = open_parent(dirfd, path, &parent_fd, &name);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    rc = remove_entry(parent_fd, name, 0);
    if (rc == 0)
        rc = nrd_io->fsync(parent_fd);
    nrd_io_close(&parent_fd);
    return rc;
}
