/* See quiet_io.h. */
#include "ctl/quiet_io.h"

#include "ctl/cli.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>

static NrdProgress *listener;

static int quiet_open(int dirfd, const char *path, int flags, mode_t mode)
{
    if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0)
        return -EROFS;
    return nrd_io_real.open(dirfd, path, flags, mode);
}

static ssize_t quiet_pread(int fd, void *buf, size_t size, int64_t pos)
{
    if (nrd_cli_interrupted())
        return -ECANCELED;
    ssize_t n = nrd_io_real.pread(fd, buf, size, pos);
    if (n > 0)
        nrd_progress_read(listener, (size_t)n);
    return n;
}

static ssize_t no_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return -EROFS;
}

static int no_sync(int fd)
{
    return -EROFS;
}

static int no_ftruncate(int fd, int64_t size_bytes)
{
    return -EROFS;
}

static int no_mkdir(int dirfd, const char *name, mode_t mode)
{
    return -EROFS;
}

static int no_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    return -EROFS;
}

static int no_unlink(int dirfd, const char *name, bool is_dir)
{
    return -EROFS;
}

void nrd_quiet_io_install(NrdProgress *progress)
{
    static NrdIo quiet;
    listener = progress;
    quiet = nrd_io_real;
    quiet.open = quiet_open;
    quiet.pread = quiet_pread;
    quiet.pwritev = no_pwritev;
    quiet.fdatasync = quiet.fsync = no_sync;
    quiet.ftruncate = quiet.set_mtime = no_ftruncate;
    quiet.mkdir = no_mkdir;
    quiet.rename = no_rename;
    quiet.unlink = no_unlink;
    nrd_io = &quiet;
}
