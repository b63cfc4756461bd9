/* Reading a round back before anybody is told that it is durable. The promise is in wal.h. */
#include "engine/ingress/wal_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

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
