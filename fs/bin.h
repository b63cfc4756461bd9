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

#include "engine/base/rendering.h"

#include <glib.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_BIN_HEAD_BYTES ((size_t)36)

/* Bytes of a record. */
size_t nrd_bin_size(size_t key_size, size_t payload_size);

/* Writes a record to `at`, where there is room for it. */
void nrd_bin_put(uint8_t *at, const NrdRenderRecord *record, uint64_t nonce);

/* `log.bin`. Its lengths are kept on the disk: the version changes with every change to the layout. */
extern const NrdRendering nrd_bin_rendering;

#endif
