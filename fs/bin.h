/* A record in binary, as `consume.bin` and `log.bin` have it. Pure.
 *
 *   u32 length      of what follows it
 *   u32 partition
 *   u64 offset
 *   u64 nonce       with the two above the receipt for `ack`; 0 in `log.bin`, which leases nothing
 *   u64 timestamp   commit time, Unix milliseconds
 *   u32 key length  0: no key
 *   key, payload
 *
 * Big-endian. */
#ifndef NRD_FS_BIN_H
#define NRD_FS_BIN_H

#include "engine/base/endian.h"
#include "engine/base/rendering.h"

#include <glib.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NRD_BIN_HEAD_BYTES ((size_t)36)

/* Bytes of a record. */
static inline size_t nrd_bin_size(size_t key_size, size_t payload_size)
{
    return NRD_BIN_HEAD_BYTES + key_size + payload_size;
}

/* Writes a record to `at`, where there is room for it. In the header, since it is most of what a record costs. */
static inline void nrd_bin_put(uint8_t *at, uint32_t partition, uint64_t offset, uint64_t nonce, int64_t timestamp_ms,
                               const uint8_t *key, size_t key_size, const uint8_t *payload, size_t payload_size)
{
    nrd_put_be32(at, (uint32_t)(nrd_bin_size(key_size, payload_size) - 4));
    nrd_put_be32(at + 4, partition);
    nrd_put_be64(at + 8, offset);
    nrd_put_be64(at + 16, nonce);
    nrd_put_be64(at + 24, (uint64_t)timestamp_ms);
    nrd_put_be32(at + 32, (uint32_t)key_size);
    if (key_size > 0)
        memcpy(at + NRD_BIN_HEAD_BYTES, key, key_size);
    if (payload_size > 0)
        memcpy(at + NRD_BIN_HEAD_BYTES + key_size, payload, payload_size);
}

/* `log.bin`. Its lengths are kept on the disk: the version changes with every change to the layout. */
extern const NrdRendering nrd_bin_rendering;

#endif
