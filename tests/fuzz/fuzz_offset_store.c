/* consumer.offset and consumer.ahead together: what an open makes of any bytes in them, again and again, and that what is
 * written after it is found.
 *
 * Input: flags (1: checksums are made right; 2, 4, 8: what is done), size of consumer.offset (1 byte) and its bytes, the
 * high watermark (1 byte), the new frontier's distance (1 byte), length of slot 0 (2 bytes) and its beginning, slot 1. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/queue/ahead.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, TICK = 2, LEVEL = 4, SHORT = 8 };

static NrdFrontier open_store(int root, uint64_t hwm, NrdOffsetStore **ret_store)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, 8) };
    FUZZ_CHECK(nrd_offset_store_open(root, "p", "t", 0, hwm, &state, ret_store) == 0);
    return state;
}

static void expect(int root, uint64_t hwm, const NrdFrontier *want)
{
    NrdOffsetStore *store;
    NrdFrontier state = open_store(root, hwm, &store);
    FUZZ_CHECK(state.frontier == want->frontier && state.ahead->len == want->ahead->len);
    FUZZ_CHECK(state.ahead->len == 0 || memcmp(state.ahead->data, want->ahead->data, state.ahead->len * 8) == 0);
    nrd_offset_store_free(store);
    g_array_unref(state.ahead);
}

/* What consumer.offset says by itself. */
static uint64_t plain_frontier(const uint8_t *bytes, size_t size, uint64_t hwm)
{
    uint64_t value = size == 8 ? nrd_get_be64(bytes) : UINT64_MAX;
    return value < hwm && value < (uint64_t)INT64_MAX ? value + 1 : 0;
}

/* The state that the newer valid slot holds, or an empty one. */
static NrdFrontier slot_state(const uint8_t slots[2 * NRD_AHEAD_SLOT_SIZE], size_t size)
{
    NrdFrontier best = { 0, g_array_new(FALSE, FALSE, 8) };
    uint64_t best_sequence = 0;
    for (size_t i = 0; i < 2 && (i + 1) * NRD_AHEAD_SLOT_SIZE <= size; i++) {
        NrdFrontier state = { 0, g_array_new(FALSE, FALSE, 8) };
        uint64_t sequence;
        if (nrd_ahead_decode(slots + i * NRD_AHEAD_SLOT_SIZE, &state, &sequence) == 0 && sequence > best_sequence) {
            GArray *other = best.ahead;
            best = state;
            best_sequence = sequence;
            g_array_unref(other);
        } else {
            g_array_unref(state.ahead);
        }
    }
    return best;
}

static void check_found(const NrdFrontier *state, const NrdFrontier *slot, uint64_t plain)
{
    uint64_t frontier = MAX(slot->frontier, plain);
    FUZZ_CHECK(state->frontier >= frontier);
    guint k = 0;
    while (k < slot->ahead->len && g_array_index(slot->ahead, uint64_t, k) < frontier)
        k++;
    for (uint64_t i = frontier; i < state->frontier; i++, k++) /* what it was raised by was acked ahead */
        FUZZ_CHECK(k < slot->ahead->len && g_array_index(slot->ahead, uint64_t, k) == i);
    for (guint i = 0; i < state->ahead->len; i++)
        FUZZ_CHECK(g_array_index(state->ahead, uint64_t, i) > state->frontier);
}

/* What a process does next, and the next one finds. */
static void write_on(int root, uint64_t hwm, uint8_t flags, uint8_t distance)
{
    NrdOffsetStore *store;
    NrdFrontier state = open_store(root, hwm, &store);
    uint64_t frontier = MIN(state.frontier + distance, NRD_AHEAD_FRONTIER_MAX - 2);
    if (frontier >= state.frontier) {
        uint64_t one_ahead = frontier + 2;
        g_array_set_size(state.ahead, 0);
        state.frontier = frontier;
        if (flags & TICK && one_ahead < NRD_AHEAD_FRONTIER_MAX)
            g_array_append_val(state.ahead, one_ahead);
        if (flags & TICK) {
            FUZZ_CHECK(nrd_offset_store_tick(store, &state) == 0);
            FUZZ_CHECK(nrd_offset_store_write_out(store) == 0);
            expect(root, hwm, &state);
        }
        if (flags & LEVEL && frontier <= hwm)
            FUZZ_CHECK(nrd_offset_store_level(store, frontier) == 0);
        if (flags & LEVEL && flags & TICK && frontier <= hwm)
            expect(root, hwm, &state);
    }
    nrd_offset_store_free(store);
    g_array_unref(state.ahead);
}

static size_t take_slots(FuzzInput *in, uint8_t flags, uint8_t slots[2 * NRD_AHEAD_SLOT_SIZE])
{
    size_t n[2];
    uint8_t *parts[2];
    parts[0] = fuzz_piece(in, &n[0]);
    parts[1] = fuzz_rest(in, &n[1]);
    for (int i = 0; i < 2; i++) {
        uint8_t *slot = slots + (size_t)i * NRD_AHEAD_SLOT_SIZE;
        memset(slot, 0, NRD_AHEAD_SLOT_SIZE);
        memcpy(slot, parts[i], MIN(n[i], NRD_AHEAD_SLOT_SIZE));
        if (flags & REPAIR && n[i] > 0)
            nrd_put_be32(slot + NRD_AHEAD_CRC_POS, nrd_crc32c(0, slot, NRD_AHEAD_CRC_POS));
        g_free(parts[i]);
    }
    return flags & SHORT ? NRD_AHEAD_SLOT_SIZE + 100 : 2 * NRD_AHEAD_SLOT_SIZE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t slots[2 * NRD_AHEAD_SLOT_SIZE];
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    size_t n_offset;
    uint8_t *offset = fuzz_bytes(&in, fuzz_u8(&in) % 16, &n_offset);
    uint64_t hwm = fuzz_u8(&in);
    uint8_t distance = fuzz_u8(&in);
    bool has_ahead = in.size > 0;
    size_t n_slots = take_slots(&in, flags, slots);
    NrdOffsetStore *store;
    int root = memory_io_start();
    memory_io_put_folder("p");
    hwm = hwm == 255 ? UINT64_MAX / 2 : hwm;
    if (n_offset > 0)
        memory_io_put("p/consumer.offset", offset, n_offset);
    if (has_ahead)
        memory_io_put("p/consumer.ahead", slots, n_slots);
    NrdFrontier slot = slot_state(slots, has_ahead ? n_slots : 0);
    NrdFrontier state = open_store(root, hwm, &store);
    nrd_offset_store_free(store);
    check_found(&state, &slot, plain_frontier(offset, n_offset, hwm));
    expect(root, hwm, &state);
    write_on(root, hwm, flags, distance);
    g_array_unref(slot.ahead);
    g_array_unref(state.ahead);
    g_free(offset);
    memory_io_end();
    return 0;
}
