/* The table of real calls. Each entry is one system call, with errno turned into a negative return. */
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Without openat2 (a kernel or a sandbox that lacks it) the last component at least is not followed, and every folder on
 * the way is opened with O_NOFOLLOW in turn. */
static int open_stepwise(int dirfd, const char *path, int flags, mode_t mode)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    int at = dirfd;
    for (guint i = 0; parts[i]; i++) {
        bool last = parts[i + 1] == NULL;
        if (strcmp(parts[i], "..") == 0 || parts[i][0] == '\0') {
            if (at != dirfd)
                close(at);
            return -EXDEV;
        }
        int fd = last ? openat(at, parts[i], flags | O_NOFOLLOW | O_CLOEXEC, mode)
                      : openat(at, parts[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        if (at != dirfd)
            close(at);
        if (fd < 0)
            return -error;
        at = fd;
    }
    return at;
}

static int real_open_root(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int real_open(int dirfd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;
    do
        fd = syscall(SYS_openat2, dirfd, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename beside us (openat2(2)) */
    if (fd >= 0)
        return (int)fd;
    if (errno == ENOSYS || errno == EPERM)
        return open_stepwise(dirfd, path, flags, mode);
    return -errno;
}

static int real_close(int fd)
{
    return close(fd) < 0 ? -errno : 0;
}

static ssize_t real_pread(int fd, void *buf, size_t size, int64_t pos)
{
    ssize_t n = pread(fd, buf, size, pos);
    return n < 0 ? -errno : n;
}

static ssize_t real_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    ssize_t n = pwritev(fd, iov, n_iov, pos);
    return n < 0 ? -errno : n;
}

static int real_fdatasync(int fd)
{
    return fdatasync(fd) < 0 ? -errno : 0;
}

static int real_fsync(int fd)
{
    return fsync(fd) < 0 ? -errno : 0;
}

static int real_ftruncate(int fd, int64_t size_bytes)
{
    return ftruncate(fd, size_bytes) < 0 ? -errno : 0;
}

static int real_punch(int fd, int64_t pos, int64_t size_bytes)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, pos, size_bytes) < 0 ? -errno : 0;
}

static int64_t real_seek(int fd, int64_t pos, bool hole)
{
    off_t found = lseek(fd, pos, hole ? SEEK_HOLE : SEEK_DATA);
    return found < 0 ? -errno : found;
}

static int real_set_mtime(int fd, int64_t unix_ms)
{
    const struct timespec times[2] = {
        { .tv_nsec = UTIME_OMIT },
        { .tv_sec = unix_ms / 1000, .tv_nsec = unix_ms % 1000 * 1000000 },
    };
    return futimens(fd, times) < 0 ? -errno : 0;
}

static int real_fstat(int fd, struct stat *ret_st)
{
    return fstat(fd, ret_st) < 0 ? -errno : 0;
}

/* Asking for a file's time makes the write that follows it change the time, and so the next sync write the inode: 60 us a commit
 * (Linux 6.13 and later, "multigrain timestamps"). So it is not asked for. Where statx is forbidden by an old filter of system
 * calls, fstat does. */
static int real_fstat_untimed(int fd, struct stat *ret_st)
{
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS & ~(STATX_ATIME | STATX_MTIME | STATX_CTIME), &x) < 0)
        return errno != ENOSYS && errno != EPERM ? -errno : real_fstat(fd, ret_st);
    *ret_st = (struct stat){
        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .st_ino = x.stx_ino,
        .st_mode = x.stx_mode,
        .st_nlink = x.stx_nlink,
        .st_uid = x.stx_uid,
        .st_gid = x.stx_gid,
        .st_size = (off_t)x.stx_size,
        .st_blksize = (blksize_t)x.stx_blksize,
        .st_blocks = (blkcnt_t)x.stx_blocks,
    };
    return 0;
}

static int real_fstatat(int dirfd, const char *name, struct stat *ret_st)
{
    return fstatat(dirfd, name, ret_st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int real_mkdir(int dirfd, const char *name, mode_t mode)
{
    return mkdirat(dirfd, name, mode) < 0 ? -errno : 0;
}

static int real_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    return renameat2(from_dirfd, from, to_dirfd, to, replace ? 0 : RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static int real_unlink(int dirfd, const char *name, bool is_dir)
{
    return unlinkat(dirfd, name, is_dir ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
}

static int real_list(int dirfd, GPtrArray *names)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int error = -errno;
        close(fd);
        return error;
    }
    guint before = names->len;
    int rc = 0;
    for (;;) {
        errno = 0; /* readdir(3): NULL with errno 0 is the end, with another errno an error */
        struct dirent *entry = readdir(dir);
        if (!entry) {
            rc = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            g_ptr_array_add(names, g_strdup(entry->d_name));
    }
    if (rc < 0) {
        for (guint i = before; i < names->len; i++)
            g_free(names->pdata[i]);
        names->len = before;
    }
    closedir(dir);
    return rc;
}

static int real_drop_cache(int fd)
{
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* returns a positive error, errno untouched */
}

static int real_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

static int real_fstatvfs(int fd, struct statvfs *ret_st)
{
    return fstatvfs(fd, ret_st) < 0 ? -errno : 0;
}

static int real_map(int fd, size_t size, void **ret_addr)
{
    void *addr = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED)
        return -errno;
    *ret_addr = addr;
    return 0;
}

static int real_unmap(void *addr, size_t size)
{
    return munmap(addr, size) < 0 ? -errno : 0;
}

const NrdIo nrd_io_real = {
    .open_root = real_open_root,
    .open = real_open,
    .close = real_close,
    .pread = real_pread,
    .pwritev = real_pwritev,
    .fdatasync = real_fdatasync,
    .fsync = real_fsync,
    .ftruncate = real_ftruncate,
    .punch = real_punch,
    .seek = real_seek,
    .set_mtime = real_set_mtime,
    .fstat = real_fstat,
    .fstat_untimed = real_fstat_untimed,
    .fstatat = real_fstatat,
    .mkdir = real_mkdir,
    .rename = real_rename,
    .unlink = real_unlink,
    .list = real_list,
    .drop_cache = real_drop_cache,
    .lock = real_lock,
    .fstatvfs = real_fstatvfs,
    .map = real_map,
    .unmap = real_unmap,
};

const NrdIo *nrd_io = &nrd_io_real;
