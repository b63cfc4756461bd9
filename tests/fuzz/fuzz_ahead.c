/* A slot of consumer.ahead: what decodes encodes to the same bytes where the encoding is the same, and to the same state in
 * any case; and any state that fits comes back.
 * Input: flags (1: the checksum is made right; 2: the input is a state), the slot's first bytes, or frontier and gaps. */
#include "fuzz.h"

#include "engine/base/endian.h"
#include "engine/queue/ahead.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, STATE = 2 };

static void expect_same(const NrdFrontier *a, const NrdFrontier *b)
{
    FUZZ_CHECK(a->frontier == b->frontier && a->ahead->len == b->ahead->len);
    FUZZ_CHECK(a->ahead->len == 0 || memcmp(a->ahead->data, b->ahead->data, a->ahead->len * 8) == 0);
}

static void check_state(const NrdFrontier *state)
{
    uint64_t before = state->frontier;
    FUZZ_CHECK(state->frontier <= NRD_AHEAD_FRONTIER_MAX && state->ahead->len <= 4096);
    for (guint i = 0; i < state->ahead->len; i++) {
        uint64_t offset = g_array_index(state->ahead, uint64_t, i);
        FUZZ_CHECK(offset > before);
        before = offset;
    }
}

static void check_slot(uint8_t *slot)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, 8) }, again = { 0, g_array_new(FALSE, FALSE, 8) };
    uint8_t encoded[NRD_AHEAD_SLOT_SIZE];
    uint64_t sequence = 0, sequence_again = 0;
    int rc = nrd_ahead_decode(slot, &state, &sequence);
    FUZZ_CHECK(rc == 0 || (rc == -EBADMSG && state.ahead->len == 0));
    if (rc == 0) {
        check_state(&state);
        FUZZ_CHECK(!nrd_ahead_unwritten(slot));
        FUZZ_CHECK(nrd_ahead_encode(&state, sequence, encoded) == 0);
        if (encoded[25] == slot[25])
            FUZZ_CHECK(memcmp(encoded, slot, sizeof encoded) == 0);
        FUZZ_CHECK(nrd_ahead_decode(encoded, &again, &sequence_again) == 0 && sequence == sequence_again);
        expect_same(&state, &again);
        slot[NRD_AHEAD_CRC_POS - 1] ^= 1; /* and one changed bit is seen */
        FUZZ_CHECK(nrd_ahead_decode(slot, &again, &sequence_again) == -EBADMSG);
    }
    g_array_unref(state.ahead);
    g_array_unref(again.ahead);
}

/* Gaps of one byte, but for 255, which begins one of four. */
static void check_made(FuzzInput *in)
{
    NrdFrontier state = { fuzz_u64(in) >> 1, g_array_new(FALSE, FALSE, 8) },
                again = { 0, g_array_new(FALSE, FALSE, 8) };
    uint8_t slot[NRD_AHEAD_SLOT_SIZE];
    uint64_t sequence = 1 + fuzz_u16(in), sequence_again, offset = state.frontier;
    while (in->size > 0) {
        uint64_t gap = fuzz_u8(in);
        gap = gap == 255 ? fuzz_u32(in) : gap;
        offset += gap + 1;
        if (offset >= NRD_AHEAD_FRONTIER_MAX) /* no record has that one */
            break;
        g_array_append_val(state.ahead, offset);
    }
    bool fits = nrd_ahead_fits(state.frontier, (const uint64_t *)state.ahead->data, state.ahead->len);
    int rc = nrd_ahead_encode(&state, sequence, slot);
    FUZZ_CHECK(rc == (fits ? 0 : -EINVAL));
    if (rc == 0) {
        FUZZ_CHECK(nrd_ahead_decode(slot, &again, &sequence_again) == 0 && sequence_again == sequence);
        expect_same(&state, &again);
    }
    g_array_unref(state.ahead);
    g_array_unref(again.ahead);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    uint8_t slot[NRD_AHEAD_SLOT_SIZE] = { 0 };
    if (flags & STATE) {
        check_made(&in);
        return 0;
    }
    memcpy(slot, in.data, MIN(in.size, sizeof slot));
    if (flags & REPAIR)
        nrd_put_be32(slot + NRD_AHEAD_CRC_POS, fuzz_crc32c(0, slot, NRD_AHEAD_CRC_POS));
    check_slot(slot);
    return 0;
}
