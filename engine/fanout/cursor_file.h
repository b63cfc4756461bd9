/* How far one link has come in one partition of its parent: topics/<parent>/pNNNNN/fanout-<child>.offset.
 *
 * Two slots, at 0 and at 4096, so that no two of them share a block of the disk; what lies between and behind them is
 * not looked at. A slot:
 *
 *   pos   size  what (numbers big-endian)
 *   0     8     magic "NRDFANCU"
 *   8     4     version: 1
 *   12    4     zero
 *   16    8     sequence: of two valid slots the higher one counts; from 1
 *   24    8     epoch of the attachment
 *   32    8     incarnation of the child
 *   40    8     offset: the next one to copy, below 2^63
 *   48    12    zero
 *   60    4     CRC-32C of the 60 bytes before
 *
 * A slot counts when all of that is so and epoch and incarnation are those of the link that the parent's record names: what
 * an earlier attachment left says nothing. Pure. */
#ifndef NRD_FANOUT_CURSOR_FILE_H
#define NRD_FANOUT_CURSOR_FILE_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_CURSOR_SLOT_BYTES 64
#define NRD_CURSOR_SLOT_GAP 4096
#define NRD_CURSOR_FILE_BYTES (NRD_CURSOR_SLOT_GAP + NRD_CURSOR_SLOT_BYTES)
#define NRD_CURSOR_OFFSET_MAX (UINT64_MAX / 2)

/* Whose cursor it is. */
typedef struct NrdCursorOwner {
    uint64_t epoch;
    uint64_t child; /* its incarnation */
} NrdCursorOwner;

typedef struct NrdCursorSlot {
    NrdCursorOwner owner;
    uint64_t sequence;
    uint64_t offset;
} NrdCursorSlot;

void nrd_cursor_slot_encode(const NrdCursorSlot *slot, uint8_t ret_bytes[NRD_CURSOR_SLOT_BYTES]);

/* -EBADMSG: not a slot. */
int nrd_cursor_slot_decode(const uint8_t bytes[NRD_CURSOR_SLOT_BYTES], NrdCursorSlot *ret_slot) NRD_MUST_CHECK;

typedef enum NrdCursorFound {
    NRD_CURSOR_VALID,
    NRD_CURSOR_OTHERS, /* whole, but of another attachment or incarnation */
    NRD_CURSOR_DAMAGED,
    NRD_CURSOR_NO_FILE, /* a link, a folder, a pipe or a device stands there (cursor_store.h) */
} NrdCursorFound;

/* What a file of any length says to this owner; the outputs are set when it is VALID. */
NrdCursorFound nrd_cursor_file_decode(const uint8_t *bytes, size_t size, const NrdCursorOwner *owner,
                                      NrdCursorSlot *ret_slot, unsigned *ret_index);

#endif
