/* Reading a round back before anybody is told that it is durable, and whether it can be found again. The promise is in
 * wal.h. */
#include "engine/base/clock.h"
#include "engine/ingress/wal_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

#define NAME_CHECK_MS 1000

/* Walks over the bytes that the round should have left. */
typedef struct Expected {
    const NrdWalAppend *at;
    size_t skip; /* of its bytes */
} Expected;

static bool same_as_expected(Expected *expected, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        size_t n = MIN(size, expected->at->size - expected->skip);
        if (memcmp(bytes, expected->at->bytes + expected->skip, n) != 0)
            return false;
        bytes += n;
        size -= n;
        expected->skip += n;
        if (expected->skip == expected->at->size)
            *expected = (Expected){ expected->at->next, 0 };
    }
    return true;
}

int nrd_wal_prove(NrdWal *wal, const NrdWalAppend *head, uint64_t n_bytes)
{
    Expected expected = { head, 0 };
    uint64_t pos = wal->active_size;
    while (n_bytes > 0) {
        size_t want = (size_t)MIN(n_bytes, NRD_WAL_PROOF_BYTES), n = 0;
        int rc = nrd_io_pread_full(wal->active_fd, wal->proof, want, (int64_t)pos, &n);
        if (rc < 0)
            return rc;
        if (n < want || !same_as_expected(&expected, wal->proof, n))
            return -EIO;
        pos += n;
        n_bytes -= n;
    }
    return 0;
}

/* That it has a name at all is seen each time, and which one, once in a second: that costs more. */
int nrd_wal_check_place(NrdWal *wal)
{
    struct stat file, named;
    int64_t now_ms = nrd_clock_mono_ms();
    if (nrd_io->fstat(wal->active_fd, &file) < 0)
        return 0;
    if (file.st_nlink == 0)
        return -ENOENT;
    if (wal->named_ms != 0 && now_ms - wal->named_ms < NAME_CHECK_MS)
        return 0;
    int rc = nrd_io_stat(wal->options.root_fd, wal->active->path, &named);
    if (rc == 0 && (named.st_ino != file.st_ino || named.st_dev != file.st_dev))
        rc = -ENOENT;
    if (rc == 0)
        wal->named_ms = now_ms;
    return rc == -ENOENT || rc == -ENOTDIR ? -ENOENT : 0;
}
