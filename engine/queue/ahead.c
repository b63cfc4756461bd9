/* Encoding and decoding of a slot; the byte table is in ahead.h.
 *
 * Two encodings, since neither bounds the other: 4,096 offsets next to the frontier take 4,096 bytes or more as gaps
 * and 512 as a bitmap; two offsets a million apart are a few bytes as gaps and no bitmap reaches them. */
#include "engine/queue/ahead.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/base/zeros.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <string.h>

#define MAGIC "NRDAHEAD"
#define SEQUENCE_POS 8
#define FRONTIER_POS 16
#define VERSION_POS 24
#define ENCODING_POS 25
#define COUNT_POS 26
#define VERSION 1

enum { ENCODING_NONE = 0, ENCODING_BITMAP = 1, ENCODING_GAPS = 2 };

_Static_assert(NRD_AHEAD_BODY_POS + NRD_AHEAD_BODY_SIZE == NRD_AHEAD_CRC_POS, "the body ends at the checksum");
_Static_assert(NRD_AHEAD_CRC_POS + 4 == NRD_AHEAD_SLOT_SIZE, "the checksum ends the slot");
_Static_assert(NRD_QUEUE_ACKED_AHEAD_MAX < 1 << 16, "the count has two bytes");
_Static_assert(NRD_AHEAD_WINDOW >= 32000, "a full set next to the frontier always fits");

size_t nrd_ahead_gap_size(uint64_t previous, uint64_t offset)
{
    uint8_t bytes[NRD_UVARINT_MAX];
    return nrd_put_uvarint(bytes, offset - previous - 1);
}

static size_t gaps_size(uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead)
{
    size_t size = 0;
    uint64_t previous = frontier;
    for (uint32_t i = 0; i < n_ahead; i++) {
        size += nrd_ahead_gap_size(previous, ahead[i]);
        previous = ahead[i];
    }
    return size;
}

/* Bytes of a bitmap up to the last offset, or SIZE_MAX when it lies beyond the window. */
static size_t bitmap_size(uint64_t frontier, uint64_t last)
{
    uint64_t n_bits = last - frontier;
    return n_bits > NRD_AHEAD_WINDOW ? SIZE_MAX : (size_t)((n_bits + 7) / 8);
}

bool nrd_ahead_fits(uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead)
{
    if (n_ahead == 0)
        return true;
    if (n_ahead > NRD_QUEUE_ACKED_AHEAD_MAX)
        return false;
    return bitmap_size(frontier, ahead[n_ahead - 1]) <= NRD_AHEAD_BODY_SIZE ||
           gaps_size(frontier, ahead, n_ahead) <= NRD_AHEAD_BODY_SIZE;
}

static bool ascending(const NrdFrontier *state)
{
    uint64_t previous = state->frontier;
    for (guint i = 0; i < state->ahead->len; i++) {
        uint64_t offset = g_array_index(state->ahead, uint64_t, i);
        if (offset <= previous || offset >= NRD_AHEAD_FRONTIER_MAX)
            return false;
        previous = offset;
    }
    return state->frontier <= NRD_AHEAD_FRONTIER_MAX;
}

static void put_bitmap(uint8_t *body, uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead)
{
    for (uint32_t i = 0; i < n_ahead; i++) {
        uint64_t bit = ahead[i] - frontier - 1;
        body[bit / 8] |= (uint8_t)(1U << (bit % 8));
    }
}

static void put_gaps(uint8_t *body, uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead)
{
    uint64_t previous = frontier;
    for (uint32_t i = 0; i < n_ahead; i++) {
        body += nrd_put_uvarint(body, ahead[i] - previous - 1);
        previous = ahead[i];
    }
}

/* Fills the body and returns which encoding it has. */
static uint8_t put_body(uint8_t *body, uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead)
{
    if (n_ahead == 0)
        return ENCODING_NONE;
    if (bitmap_size(frontier, ahead[n_ahead - 1]) <= gaps_size(frontier, ahead, n_ahead)) {
        put_bitmap(body, frontier, ahead, n_ahead);
        return ENCODING_BITMAP;
    }
    put_gaps(body, frontier, ahead, n_ahead);
    return ENCODING_GAPS;
}

int nrd_ahead_encode(const NrdFrontier *state, uint64_t sequence, uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE])
{
    const uint64_t *ahead = (const uint64_t *)(const void *)state->ahead->data;
    uint32_t n_ahead = state->ahead->len;
    if (sequence == 0 || sequence > NRD_AHEAD_SEQUENCE_MAX || !ascending(state) ||
        !nrd_ahead_fits(state->frontier, ahead, n_ahead))
        return -EINVAL;
    memset(ret_slot, 0, NRD_AHEAD_SLOT_SIZE);
    memcpy(ret_slot, MAGIC, sizeof MAGIC - 1);
    nrd_put_be64(ret_slot + SEQUENCE_POS, sequence);
    nrd_put_be64(ret_slot + FRONTIER_POS, state->frontier);
    ret_slot[VERSION_POS] = VERSION;
    ret_slot[ENCODING_POS] = put_body(ret_slot + NRD_AHEAD_BODY_POS, state->frontier, ahead, n_ahead);
    ret_slot[COUNT_POS] = (uint8_t)(n_ahead >> 8);
    ret_slot[COUNT_POS + 1] = (uint8_t)n_ahead;
    nrd_put_be32(ret_slot + NRD_AHEAD_CRC_POS, nrd_crc32c(0, ret_slot, NRD_AHEAD_CRC_POS));
    return 0;
}

/* ---- decoding: nothing here trusts the bytes, checksum or not ---- */

bool nrd_ahead_unwritten(const uint8_t slot[NRD_AHEAD_SLOT_SIZE])
{
    return nrd_all_zero(slot, NRD_AHEAD_SLOT_SIZE);
}

/* Appends offset to the set; false when it is no offset, or when the set has the number it was to have. */
static bool add_offset(GArray *ahead, uint64_t offset, uint32_t n_ahead)
{
    if (offset >= NRD_AHEAD_FRONTIER_MAX || ahead->len >= n_ahead)
        return false;
    g_array_append_val(ahead, offset);
    return true;
}

static bool get_bitmap(const uint8_t *body, uint64_t frontier, uint32_t n_ahead, GArray *ahead)
{
    size_t used = nrd_size_without_zeros(body, NRD_AHEAD_BODY_SIZE);
    for (size_t pos = 0; pos < used; pos++) {
        /* frontier + 1 + bit cannot wrap: both are far below 2^64. */
        for (unsigned byte = body[pos]; byte != 0; byte &= byte - 1) {
            uint64_t bit = pos * 8 + (unsigned)__builtin_ctz(byte);
            if (!add_offset(ahead, frontier + 1 + bit, n_ahead))
                return false;
        }
    }
    return ahead->len == n_ahead;
}

static bool get_gaps(const uint8_t *body, uint64_t frontier, uint32_t n_ahead, GArray *ahead)
{
    size_t pos = 0;
    uint64_t previous = frontier;
    while (ahead->len < n_ahead) {
        uint64_t gap = 0;
        size_t size = nrd_get_uvarint(body + pos, NRD_AHEAD_BODY_SIZE - pos, &gap);
        if (size == 0 || (size > 1 && body[pos + size - 1] == 0)) /* cut short, or not the shortest form */
            return false;
        if (gap >= NRD_AHEAD_FRONTIER_MAX || !add_offset(ahead, previous + 1 + gap, n_ahead))
            return false;
        previous += 1 + gap;
        pos += size;
    }
    return nrd_all_zero(body + pos, NRD_AHEAD_BODY_SIZE - pos);
}

static bool get_body(const uint8_t *slot, uint64_t frontier, GArray *ahead)
{
    const uint8_t *body = slot + NRD_AHEAD_BODY_POS;
    uint32_t n_ahead = (uint32_t)slot[COUNT_POS] << 8 | slot[COUNT_POS + 1];
    if (n_ahead > NRD_QUEUE_ACKED_AHEAD_MAX)
        return false;
    switch (slot[ENCODING_POS]) {
    case ENCODING_NONE:
        return n_ahead == 0 && nrd_all_zero(body, NRD_AHEAD_BODY_SIZE);
    case ENCODING_BITMAP:
        return n_ahead > 0 && get_bitmap(body, frontier, n_ahead, ahead);
    case ENCODING_GAPS:
        return n_ahead > 0 && get_gaps(body, frontier, n_ahead, ahead);
    default:
        return false;
    }
}

int nrd_ahead_decode(const uint8_t slot[NRD_AHEAD_SLOT_SIZE], NrdFrontier *ret_state, uint64_t *ret_sequence)
{
    g_array_set_size(ret_state->ahead, 0);
    if (memcmp(slot, MAGIC, sizeof MAGIC - 1) != 0 || slot[VERSION_POS] != VERSION ||
        nrd_get_be32(slot + NRD_AHEAD_CRC_POS) != nrd_crc32c(0, slot, NRD_AHEAD_CRC_POS))
        return -EBADMSG;
    uint64_t sequence = nrd_get_be64(slot + SEQUENCE_POS);
    uint64_t frontier = nrd_get_be64(slot + FRONTIER_POS);
    if (sequence == 0 || sequence > NRD_AHEAD_SEQUENCE_MAX || frontier > NRD_AHEAD_FRONTIER_MAX)
        return -EBADMSG;
    if (!get_body(slot, frontier, ret_state->ahead)) {
        g_array_set_size(ret_state->ahead, 0);
        return -EBADMSG;
    }
    ret_state->frontier = frontier;
    *ret_sequence = sequence;
    return 0;
}
