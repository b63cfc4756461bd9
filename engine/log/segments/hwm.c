/* See hwm.h. */
#include "engine/log/segments/hwm.h"

#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>

#define HWM_BYTES 8
#define MAX_LOOKS 4
#define OPEN_FLAGS (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

/* Opens the file and makes sure that it is a regular one. */
static int open_file(int root_fd, const char *path, int flags, int *ret_fd, uint64_t *ret_size)
{
    struct stat st;
    int fd = nrd_io->open(root_fd, path, flags | OPEN_FLAGS, 0600);
    if (fd < 0)
        return fd;
    int r = nrd_io->fstat(fd, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -EINVAL;
    if (r < 0) {
        nrd_io_close(&fd);
        return r;
    }
    *ret_fd = fd;
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

static int read_file(int root_fd, const char *path, bool past_cache, NrdHwm *ret_hwm)
{
    NrdHwm hwm = { .exists = true };
    uint8_t bytes[HWM_BYTES];
    uint64_t size = 0;
    size_t n = 0;
    int fd = -1;

    int r = open_file(root_fd, path, O_RDONLY, &fd, &size);
    if (r == -ENOENT) {
        *ret_hwm = (NrdHwm){ .exists = false };
        return 0;
    }
    if (r == 0 && past_cache)
        r = nrd_io->drop_cache(fd);
    if (r == 0 && size == HWM_BYTES) {
        r = nrd_io_pread_full(fd, bytes, sizeof bytes, 0, &n);
        hwm.clean = r == 0 && n == HWM_BYTES && nrd_get_be64(bytes) <= INT64_MAX;
        if (hwm.clean)
            hwm.value = nrd_get_be64(bytes);
    }
    nrd_io_close(&fd);
    if (r < 0)
        return r;
    *ret_hwm = hwm;
    return 0;
}

int nrd_hwm_read(int root_fd, const char *path, NrdHwm *ret_hwm)
{
    return read_file(root_fd, path, false, ret_hwm);
}

int nrd_hwm_read_again(int root_fd, const char *path, NrdHwm *hwm)
{
    bool same = false;

    for (int i = 0; !same; i++) {
        NrdHwm next;
        int r = i < MAX_LOOKS ? read_file(root_fd, path, true, &next) : -EIO;
        if (r < 0)
            return r;
        same = next.exists == hwm->exists && next.clean == hwm->clean && next.value == hwm->value;
        *hwm = next;
    }
    return 0;
}

/* A sync of a file system that is shut down meanwhile may return success for what it threw away; a read that begins
 * afterwards fails. */
static int prove_empty(int fd)
{
    uint8_t byte;
    size_t n = 0;
    int r = nrd_io_pread_full(fd, &byte, 1, 0, &n);
    return r == 0 && n > 0 ? -EIO : r;
}

int nrd_hwm_empty(int root_fd, const char *path, bool again)
{
    uint64_t size = 0;
    int fd = -1;

    int r = open_file(root_fd, path, O_RDWR, &fd, &size);
    if (r == -ENOENT)
        return 0;
    if (r == 0 && again)
        r = nrd_io_pwrite_full(fd, "", 1, 0);
    if (r == 0)
        r = nrd_io->ftruncate(fd, 0);
    /* A crash before the sync is over may leave the old 8 bytes: the records above them are in no acknowledged commit
     * yet, and stay hidden. After it the file is empty, and the record tail tells the boundary. */
    if (r == 0)
        r = nrd_io->fsync(fd);
    if (r == 0)
        r = prove_empty(fd);
    nrd_io_close(&fd);
    return r;
}

int nrd_hwm_write(int root_fd, const char *dir, const char *path, uint64_t value)
{
    uint8_t bytes[HWM_BYTES + 1] = { 0 };
    uint64_t size = 0;
    bool created = false;
    int fd = -1;

    int r = open_file(root_fd, path, O_WRONLY, &fd, &size);
    if (r == -ENOENT) {
        created = true;
        r = open_file(root_fd, path, O_WRONLY | O_CREAT, &fd, &size);
    }
    nrd_put_be64(bytes, value);
    /* A size may reach the disk without its bytes, and eight zeros are a boundary that hides every record. So a file that
     * has to grow gets a byte too many, which counts as empty, and loses it when its bytes are on the disk. One that has
     * eight keeps them: they lie in one sector, and are the old ones or the new ones after a crash. */
    bool grows = size != HWM_BYTES;
    if (r == 0)
        r = nrd_io_pwrite_full(fd, bytes, grows ? HWM_BYTES + 1 : HWM_BYTES, 0);
    if (r == 0)
        r = nrd_io->fdatasync(fd);
    /* Not synced: a crash may leave the byte, and then the records tell the boundary. */
    if (r == 0 && grows)
        r = nrd_io->ftruncate(fd, HWM_BYTES);
    nrd_io_close(&fd);
    if (r == 0 && created)
        r = nrd_io_sync_dir(root_fd, dir);
    return r;
}
