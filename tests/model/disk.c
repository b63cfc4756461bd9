/* See disk.h. */
#include "disk.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static NrdIo below;
/* What fails: the first so many calls pass, then one, or all, with this errno. Written while no call of it is under way. */
static atomic_bool armed;
static atomic_uint n_fired;
static char folder[256]; /* below the data directory */
static Call failing;
static atomic_int n_left;
static bool stays;
static int error_of_it;

/* Whether an armed call is to fail now. */
static bool fails(Call call, const char *path)
{
    bool also = failing == CALL_FTRUNCATE && call == CALL_FDATASYNC; /* else nothing is ever cut */
    if ((call != failing && !also) || strstr(path, folder) == NULL)
        return false;
    int left = atomic_fetch_sub(&n_left, 1);
    bool now = left == 0 || (left < 0 && stays);
    atomic_fetch_add(&n_fired, now);
    return now;
}

static bool fd_fails(Call call, int fd)
{
    char link[64], path[512];
    if (!atomic_load(&armed))
        return false;
    g_snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 2);
    if (n < 0)
        return false;
    path[n] = '/'; /* the folder itself counts */
    path[n + 1] = '\0';
    return fails(call, path);
}

static ssize_t sick_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return fd_fails(CALL_PWRITEV, fd) ? -error_of_it : below.pwritev(fd, iov, n_iov, pos);
}

static ssize_t sick_pread(int fd, void *buf, size_t size, int64_t pos)
{
    return fd_fails(CALL_PREAD, fd) ? -error_of_it : below.pread(fd, buf, size, pos);
}

static int sick_fdatasync(int fd)
{
    return fd_fails(CALL_FDATASYNC, fd) ? -error_of_it : below.fdatasync(fd);
}

static int sick_fsync(int fd)
{
    return fd_fails(CALL_FSYNC, fd) ? -error_of_it : below.fsync(fd);
}

static int sick_ftruncate(int fd, int64_t size_bytes)
{
    return fd_fails(CALL_FTRUNCATE, fd) ? -error_of_it : below.ftruncate(fd, size_bytes);
}

static int sick_open(int dirfd, const char *path, int flags, mode_t mode)
{
    if (atomic_load(&armed)) {
        g_autofree char *slashed = g_strconcat(path, "/", NULL);
        if (fails(CALL_OPEN, slashed))
            return -error_of_it;
    }
    return below.open(dirfd, path, flags, mode);
}

static int sick_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    return fd_fails(CALL_RENAME, to_dirfd) ? -error_of_it : below.rename(from_dirfd, from, to_dirfd, to, replace);
}

void disk_start(NrdIo *table)
{
    below = *table;
    table->pwritev = sick_pwritev;
    table->pread = sick_pread;
    table->fdatasync = sick_fdatasync;
    table->fsync = sick_fsync;
    table->ftruncate = sick_ftruncate;
    table->open = sick_open;
    table->rename = sick_rename;
}

void disk_fail(const char *in, Call call, int error, unsigned n_pass, bool for_ever)
{
    g_strlcpy(folder, in, sizeof folder);
    failing = call;
    error_of_it = error;
    stays = for_ever;
    atomic_store(&n_fired, 0);
    atomic_store(&n_left, (int)n_pass);
    atomic_store(&armed, true);
}

void disk_heal(void)
{
    atomic_store(&armed, false);
}

unsigned disk_n_failed(void)
{
    return atomic_load(&n_fired);
}
