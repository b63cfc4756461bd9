/* Reading small files whole. */
#include "engine/io/io.h"

#include "engine/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MAX_LOOKS 5

static int read_whole(int fd, size_t max_bytes, GBytes **ret_bytes)
{
    struct stat st;
    int rc = nrd_io->fstat(fd, &st);
    if (rc < 0)
        return rc;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((uint64_t)st.st_size > max_bytes)
        return -EFBIG;
    size_t size = (size_t)st.st_size;
    g_autofree char *buf = g_try_malloc(size + 1);
    if (!buf)
        return -ENOMEM;
    rc = nrd_io_pread_full(fd, buf, size, 0, &size);
    if (rc < 0)
        return rc;
    *ret_bytes = g_bytes_new_take(g_steal_pointer(&buf), size);
    return 0;
}

int nrd_io_read_file(int dirfd, const char *path, size_t max_bytes, GBytes **ret_bytes)
{
    /* O_NONBLOCK: a FIFO in the place of the file must not hold us up. */
    int fd = nrd_io->open(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = read_whole(fd, max_bytes, ret_bytes);
    nrd_io_close(&fd);
    return rc;
}

/* The same, past the page cache. Nothing in it is dirty but what a process that died has left, and that stays. */
static int read_again(int dirfd, const char *path, size_t max_bytes, GBytes **ret_bytes)
{
    int fd = nrd_io->open(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = nrd_io->drop_cache(fd);
    if (rc == 0)
        rc = read_whole(fd, max_bytes, ret_bytes);
    nrd_io_close(&fd);
    return rc;
}

static bool passes(GBytes *bytes, NrdIoCheckFn check, void *data)
{
    gsize size = 0;
    const uint8_t *start = g_bytes_get_data(bytes, &size);
    return check(start, size, data);
}

int nrd_io_read_checked(int dirfd, const char *path, size_t max_bytes, NrdIoCheckFn check, void *data,
                        GBytes **ret_bytes)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(dirfd, path, max_bytes, &bytes);
    bool same = false;
    for (int i = 1; rc == 0 && !same && !passes(bytes, check, data); i++) {
        GBytes *next = NULL;
        rc = i < MAX_LOOKS ? read_again(dirfd, path, max_bytes, &next) : -EIO;
        if (rc < 0)
            break;
        same = g_bytes_equal(bytes, next);
        if (!same)
            nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                     "%s was read twice, and not alike: the disk, or what is between, gives wrong bytes now and then",
                     path);
        g_bytes_unref(bytes);
        bytes = next;
    }
    if (rc == 0)
        *ret_bytes = g_steal_pointer(&bytes);
    return rc;
}
