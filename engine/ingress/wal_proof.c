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

int nrd_wal_check_place(NrdWal *wal)
{
    int64_t now_ms = nrd_clock_mono_ms();
    bool due = wal->named_ms == 0 || now_ms - wal->named_ms >= NAME_CHECK_MS;
    bool looked = false;
    /* The descriptor is the one that has made the file: it is never opened anew. */
    int rc = nrd_io_check_place(wal->active_fd, NULL, wal->options.root_fd, due ? wal->active->path : NULL, &looked);
    if (looked)
        wal->named_ms = now_ms;
    return rc;
}
