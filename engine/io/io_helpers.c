/* What is made of the calls in the table: whole reads and writes. */
#include "engine/io/io.h"

#include "engine/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#define ZEROS_BYTES ((size_t)16 * 1024)
#define ZEROS_IOV 16

void nrd_io_close(int *fd)
{
    if (*fd < 0)
        return;
    int rc = nrd_io->close(*fd);
    *fd = -1;
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "closing a file failed: %s", g_strerror(-rc));
}

int nrd_io_open_root(const char *path, int *ret_fd)
{
    int fd = nrd_io->open_root(path);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

int nrd_io_open_dir(int dirfd, const char *path, int *ret_fd)
{
    int fd = nrd_io->open(dirfd, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

int nrd_io_pread_full(int fd, void *buf, size_t size, int64_t pos, size_t *ret_size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = nrd_io->pread(fd, (char *)buf + done, size - done, pos + (int64_t)done);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret_size = done;
    return 0;
}

int nrd_io_next_data(int fd, uint64_t pos, uint64_t size_bytes, uint64_t *ret_pos, uint64_t *ret_end)
{
    int64_t data = nrd_io->seek ? nrd_io->seek(fd, (int64_t)pos, false) : -EINVAL;
    int64_t hole = data < 0 ? data : nrd_io->seek(fd, data, true);
    if (data == -ENXIO || (data >= 0 && (uint64_t)data >= size_bytes)) {
        *ret_pos = *ret_end = size_bytes;
        return 0;
    }
    if (hole == -EINVAL || hole == -EOPNOTSUPP || hole == -ENOSYS || hole == -ENXIO) {
        *ret_pos = pos;
        *ret_end = size_bytes;
        return 0;
    }
    if (hole < 0)
        return (int)hole;
    *ret_pos = MAX((uint64_t)data, pos);
    *ret_end = (uint64_t)hole > *ret_pos ? MIN((uint64_t)hole, size_bytes) : size_bytes;
    return 0;
}

int nrd_io_pwritev_full(int fd, struct iovec *iov, int n_iov, int64_t pos)
{
    while (n_iov > 0) {
        if (iov->iov_len == 0) {
            iov++;
            n_iov--;
            continue;
        }
        ssize_t n = nrd_io->pwritev(fd, iov, MIN(n_iov, IOV_MAX), pos);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return (int)n;
        if (n == 0)
            return -EIO;
        pos += n;
        while (n > 0) {
            size_t step = MIN((size_t)n, iov->iov_len);
            iov->iov_base = (char *)iov->iov_base + step;
            iov->iov_len -= step;
            n -= (ssize_t)step;
            if (iov->iov_len == 0) {
                iov++;
                n_iov--;
            }
        }
    }
    return 0;
}

int nrd_io_pwrite_full(int fd, const void *buf, size_t size, int64_t pos)
{
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = size };
    return nrd_io_pwritev_full(fd, &iov, 1, pos);
}

int nrd_io_write_zeros(int fd, uint64_t pos, uint64_t end)
{
    static const uint8_t zeros[ZEROS_BYTES];
    int rc = 0;
    while (rc == 0 && pos < end) {
        struct iovec iov[ZEROS_IOV];
        int n = 0;
        uint64_t from = pos;
        for (; n < ZEROS_IOV && pos < end; n++) {
            size_t size = (size_t)MIN((uint64_t)ZEROS_BYTES, end - pos);
            iov[n] = (struct iovec){ (void *)(uintptr_t)zeros, size };
            pos += size;
        }
        rc = nrd_io_pwritev_full(fd, iov, n, (int64_t)from);
    }
    return rc;
}
