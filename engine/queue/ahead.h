/* The bytes of one slot of consumer.ahead. Pure: no I/O, no locks.
 *
 *   pos   size  what
 *   0     8     magic "NRDAHEAD"
 *   8     8     sequence, big-endian: 1 to NRD_AHEAD_SEQUENCE_MAX; each slot written has one higher than the last
 *   16    8     frontier, big-endian: at most INT64_MAX
 *   24    1     version: 1
 *   25    1     encoding of the body: 0 none, 1 bitmap, 2 gaps
 *   26    2     number of acked-ahead offsets, big-endian: at most 4096; 0 exactly when the encoding is none
 *   28    4064  body
 *   4092  4     CRC-32C of bytes 0 to 4091, big-endian
 *
 * Bitmap: bit i (bit i % 8, of value 1 << i % 8, of byte i / 8) stands for offset frontier + 1 + i. 32,512 offsets.
 * Gaps: for each offset, ascending, the number of offsets between it and the one before it (the frontier before the
 * first), as a LEB128 varint in its shortest form.
 * The writer takes the shorter of the two; both are read whatever their length. Bytes that the encoding does not use
 * are zero, up to the checksum.
 *
 * A slot is valid when all of that holds. A slot of zeros alone was never written. */
#ifndef NRD_QUEUE_AHEAD_H
#define NRD_QUEUE_AHEAD_H

#include "engine/base/macros.h"
#include "engine/queue/queue.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_AHEAD_SLOT_SIZE 4096
#define NRD_AHEAD_BODY_POS 28
#define NRD_AHEAD_BODY_SIZE 4064
#define NRD_AHEAD_CRC_POS 4092

/* Offsets frontier + 1 to frontier + NRD_AHEAD_WINDOW fit, however many of them are acked. */
#define NRD_AHEAD_WINDOW (UINT64_C(8) * NRD_AHEAD_BODY_SIZE)

#define NRD_AHEAD_SEQUENCE_MAX ((UINT64_C(1) << 62) - 1)

/* Offsets and frontiers are signed 64-bit numbers in the seed's files: more is damage. */
#define NRD_AHEAD_FRONTIER_MAX ((uint64_t)INT64_MAX)

/* Bytes that offset takes in the gaps encoding after the settled offset before it (previous < offset). */
size_t nrd_ahead_gap_size(uint64_t previous, uint64_t offset);

/* -EINVAL when state is not ascending above its frontier, or does not fit (nrd_ahead_fits). */
int nrd_ahead_encode(const NrdFrontier *state, uint64_t sequence, uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE]) NRD_MUST_CHECK;

/* Fills *ret_state (whose ahead is cleared first, and left empty on failure) and *ret_sequence. -EBADMSG. */
int nrd_ahead_decode(const uint8_t slot[NRD_AHEAD_SLOT_SIZE], NrdFrontier *ret_state,
                     uint64_t *ret_sequence) NRD_MUST_CHECK;

/* Whether every byte is zero. */
bool nrd_ahead_unwritten(const uint8_t slot[NRD_AHEAD_SLOT_SIZE]);

#endif
