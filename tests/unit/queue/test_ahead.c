/* The slot of consumer.ahead: what goes in comes out, and no damage comes out as a state. */
#include "engine/queue/ahead.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <string.h>

typedef struct Slot {
    uint8_t bytes[NRD_AHEAD_SLOT_SIZE];
} Slot;

static NrdFrontier new_state(uint64_t frontier)
{
    return (NrdFrontier){ .frontier = frontier, .ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
}

static void add(NrdFrontier *state, uint64_t offset)
{
    g_array_append_val(state->ahead, offset);
}

static bool fits(const NrdFrontier *state)
{
    return nrd_ahead_fits(state->frontier, (const uint64_t *)(const void *)state->ahead->data, state->ahead->len);
}

static void assert_round_trip(const NrdFrontier *state, uint64_t sequence)
{
    Slot slot;
    g_assert_true(fits(state));
    g_assert_cmpint(nrd_ahead_encode(state, sequence, slot.bytes), ==, 0);
    NrdFrontier back = new_state(1);
    uint64_t back_sequence = 0;
    add(&back, 5); /* is cleared */
    g_assert_cmpint(nrd_ahead_decode(slot.bytes, &back, &back_sequence), ==, 0);
    g_assert_cmpuint(back_sequence, ==, sequence);
    g_assert_cmpuint(back.frontier, ==, state->frontier);
    g_assert_cmpmem(back.ahead->data, back.ahead->len * sizeof(uint64_t), state->ahead->data,
                    state->ahead->len * sizeof(uint64_t));
    g_array_unref(back.ahead);
}

static void test_round_trip(void)
{
    static const uint64_t frontiers[] = { 0, 1, 450832, INT64_MAX - 40000, INT64_MAX };
    for (size_t f = 0; f < G_N_ELEMENTS(frontiers); f++) {
        NrdFrontier state = new_state(frontiers[f]);
        assert_round_trip(&state, 1);
        if (frontiers[f] < INT64_MAX) {
            for (uint64_t i = 1; i < 5; i++)
                add(&state, frontiers[f] + i * i);
            assert_round_trip(&state, NRD_AHEAD_SEQUENCE_MAX);
        }
        g_array_unref(state.ahead);
    }
}

/* 4,096 offsets anywhere in the 32,000 after the frontier fit: next to it, at the end, spread. */
static void test_full(void)
{
    static const uint64_t starts[] = { 1, 32000 - 4096 };
    for (size_t s = 0; s < G_N_ELEMENTS(starts); s++) {
        NrdFrontier state = new_state(1000);
        for (uint64_t i = 0; i < NRD_QUEUE_ACKED_AHEAD_MAX; i++)
            add(&state, 1000 + starts[s] + i);
        assert_round_trip(&state, 2);
        g_array_unref(state.ahead);
    }
    NrdFrontier state = new_state(1000);
    for (uint64_t i = 0; i < NRD_QUEUE_ACKED_AHEAD_MAX; i++)
        add(&state, 1000 + 1 + i * 32000 / NRD_QUEUE_ACKED_AHEAD_MAX);
    assert_round_trip(&state, 2);
    add(&state, 1000 + 32001);
    g_assert_false(fits(&state)); /* one too many */
    g_array_unref(state.ahead);
}

/* Around the reach of the bitmap, and around the room for gaps. */
static void test_limits(void)
{
    Slot slot;
    NrdFrontier state = new_state(77);
    for (uint64_t i = 0; i < NRD_AHEAD_BODY_SIZE; i++)
        add(&state, 77 + 1 + i);
    uint64_t *last = &g_array_index(state.ahead, uint64_t, state.ahead->len - 1);
    *last = 77 + NRD_AHEAD_WINDOW;
    assert_round_trip(&state, 3); /* beyond one byte a gap, at the last bit of the bitmap */
    *last = 77 + NRD_AHEAD_WINDOW + 1;
    g_assert_false(fits(&state));
    g_assert_cmpint(nrd_ahead_encode(&state, 3, slot.bytes), ==, -EINVAL);
    g_array_set_size(state.ahead, NRD_AHEAD_BODY_SIZE - 2); /* 4,061 gaps of a byte and one of three */
    last = &g_array_index(state.ahead, uint64_t, state.ahead->len - 1);
    *last = 77 + NRD_AHEAD_WINDOW + 5000;
    assert_round_trip(&state, 3);
    g_array_unref(state.ahead);
}

static void test_far(void)
{
    NrdFrontier state = new_state(0);
    add(&state, 1);
    add(&state, INT64_MAX - 1);
    assert_round_trip(&state, 4);
    g_array_unref(state.ahead);
}

static void test_random(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(99);
    for (int round = 0; round < 500; round++) {
        NrdFrontier state = new_state(g_rand_int(rand));
        uint64_t offset = state.frontier;
        int n = g_rand_int_range(rand, 0, 1500), spread = 1 << g_rand_int_range(rand, 1, 14);
        for (int i = 0; i < n; i++) {
            offset += (uint64_t)g_rand_int_range(rand, 1, spread + 1);
            add(&state, offset);
        }
        assert_round_trip(&state, (uint64_t)round + 1);
        g_array_unref(state.ahead);
    }
}

static void test_refused_states(void)
{
    Slot slot;
    NrdFrontier state = new_state(10);
    g_assert_cmpint(nrd_ahead_encode(&state, 0, slot.bytes), ==, -EINVAL);
    g_assert_cmpint(nrd_ahead_encode(&state, NRD_AHEAD_SEQUENCE_MAX + 1, slot.bytes), ==, -EINVAL);
    add(&state, 10);
    g_assert_cmpint(nrd_ahead_encode(&state, 1, slot.bytes), ==, -EINVAL); /* the frontier itself */
    g_array_set_size(state.ahead, 0);
    add(&state, 12);
    add(&state, 12);
    g_assert_cmpint(nrd_ahead_encode(&state, 1, slot.bytes), ==, -EINVAL);
    g_array_set_size(state.ahead, 0);
    add(&state, INT64_MAX);
    g_assert_cmpint(nrd_ahead_encode(&state, 1, slot.bytes), ==, -EINVAL);
    g_array_unref(state.ahead);
}

static void assert_damaged(const Slot *slot)
{
    NrdFrontier state = new_state(4711);
    uint64_t sequence = 42;
    add(&state, 4712);
    g_assert_cmpint(nrd_ahead_decode(slot->bytes, &state, &sequence), ==, -EBADMSG);
    g_assert_cmpuint(state.frontier, ==, 4711);
    g_assert_cmpuint(sequence, ==, 42);
    g_assert_cmpuint(state.ahead->len, ==, 0);
    g_array_unref(state.ahead);
}

/* A slot of each encoding, with something in every sector. */
static void make_samples(Slot *ret_bitmap, Slot *ret_gaps)
{
    NrdFrontier state = new_state(5);
    for (uint64_t i = 0; i < 4000; i++)
        add(&state, 5 + 1 + 8 * i);
    g_assert_cmpint(nrd_ahead_encode(&state, 9, ret_bitmap->bytes), ==, 0);
    g_array_set_size(state.ahead, 0);
    for (uint64_t i = 0; i < 2000; i++)
        add(&state, 5 + 1 + 1000 * i);
    g_assert_cmpint(nrd_ahead_encode(&state, 9, ret_gaps->bytes), ==, 0);
    g_array_unref(state.ahead);
    g_assert_cmpuint(ret_bitmap->bytes[25], ==, 1);
    g_assert_cmpuint(ret_gaps->bytes[25], ==, 2);
}

static void test_every_bit(void)
{
    Slot samples[2];
    make_samples(&samples[0], &samples[1]);
    for (int s = 0; s < 2; s++) {
        for (size_t bit = 0; bit < 8 * NRD_AHEAD_SLOT_SIZE; bit++) {
            samples[s].bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
            assert_damaged(&samples[s]);
            samples[s].bytes[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        }
    }
}

static void test_every_sector(void)
{
    Slot samples[2];
    make_samples(&samples[0], &samples[1]);
    for (int s = 0; s < 2; s++) {
        for (size_t pos = 0; pos < NRD_AHEAD_SLOT_SIZE; pos += 512) {
            Slot torn = samples[s];
            memset(torn.bytes + pos, 0, 512);
            assert_damaged(&torn);
            g_assert_false(nrd_ahead_unwritten(torn.bytes));
            torn = samples[s];
            memcpy(torn.bytes + pos, samples[1 - s].bytes + pos, 512); /* an older slot shows through */
            assert_damaged(&torn);
        }
    }
    Slot zeros = { { 0 } };
    assert_damaged(&zeros);
    g_assert_true(nrd_ahead_unwritten(zeros.bytes));
}

static void seal(Slot *slot)
{
    nrd_put_be32(slot->bytes + NRD_AHEAD_CRC_POS, nrd_crc32c(0, slot->bytes, NRD_AHEAD_CRC_POS));
}

/* A right checksum makes nothing right: one byte changed, then sealed again. */
static void assert_sealed_damage(const Slot *slot, size_t pos, uint8_t value)
{
    Slot changed = *slot;
    changed.bytes[pos] = value;
    seal(&changed);
    assert_damaged(&changed);
}

static void test_sealed_damage(void)
{
    Slot bitmap, gaps, none;
    make_samples(&bitmap, &gaps);
    NrdFrontier state = new_state(5);
    g_assert_cmpint(nrd_ahead_encode(&state, 9, none.bytes), ==, 0);
    g_array_unref(state.ahead);
    assert_sealed_damage(&bitmap, 0, 'X');
    assert_sealed_damage(&bitmap, 24, 2);    /* version */
    assert_sealed_damage(&bitmap, 25, 3);    /* encoding */
    assert_sealed_damage(&bitmap, 25, 0);    /* a body without an encoding */
    assert_sealed_damage(&bitmap, 8, 0x40);  /* sequence beyond its limit */
    assert_sealed_damage(&bitmap, 15, 0);    /* sequence 0 */
    assert_sealed_damage(&bitmap, 16, 0x80); /* frontier beyond its limit */
    assert_sealed_damage(&bitmap, 27, 0xa1); /* one offset more than bits */
    assert_sealed_damage(&bitmap, 27, 0x9f); /* one fewer */
    assert_sealed_damage(&gaps, 4091, 1);    /* unused bytes that are not zero */
    assert_sealed_damage(&bitmap, 26, 0x20); /* 8,096 offsets */
    assert_sealed_damage(&none, 27, 1);      /* a count without a body */
    assert_sealed_damage(&none, 25, 1);      /* an encoding without a count */
    assert_sealed_damage(&none, 25, 2);
    assert_sealed_damage(&none, 28, 1);
}

static void set_gaps(Slot *slot, uint64_t frontier, uint8_t n, const uint8_t *body, size_t size)
{
    memset(slot->bytes + 16, 0, NRD_AHEAD_SLOT_SIZE - 16);
    nrd_put_be64(slot->bytes + 16, frontier);
    slot->bytes[24] = 1;
    slot->bytes[25] = 2;
    slot->bytes[27] = n;
    memcpy(slot->bytes + NRD_AHEAD_BODY_POS, body, size);
    seal(slot);
}

/* Varints made to overflow, to be cut short, or to be longer than they need be. */
static void test_hostile_gaps(void)
{
    Slot slot, unused;
    make_samples(&unused, &slot);
    static const uint8_t huge[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01 };
    static const uint8_t wider[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f };
    static const uint8_t long_zero[] = { 0x80, 0x00 };
    static const uint8_t half[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f,
                                    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f };
    set_gaps(&slot, 5, 1, huge, sizeof huge);
    assert_damaged(&slot);
    set_gaps(&slot, 5, 1, wider, sizeof wider);
    assert_damaged(&slot);
    set_gaps(&slot, 5, 1, long_zero, sizeof long_zero);
    assert_damaged(&slot);
    set_gaps(&slot, 5, 2, half, sizeof half);
    assert_damaged(&slot);
    set_gaps(&slot, INT64_MAX, 1, (const uint8_t *)"", 1);
    assert_damaged(&slot);
    set_gaps(&slot, INT64_MAX - 2, 1, (const uint8_t *)"", 1); /* the last offset that there can be */
    NrdFrontier state = new_state(0);
    uint64_t sequence;
    g_assert_cmpint(nrd_ahead_decode(slot.bytes, &state, &sequence), ==, 0);
    g_array_unref(state.ahead);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ahead/round-trip", test_round_trip);
    g_test_add_func("/ahead/full", test_full);
    g_test_add_func("/ahead/limits", test_limits);
    g_test_add_func("/ahead/far", test_far);
    g_test_add_func("/ahead/random", test_random);
    g_test_add_func("/ahead/refused-states", test_refused_states);
    g_test_add_func("/ahead/every-bit", test_every_bit);
    g_test_add_func("/ahead/every-sector", test_every_sector);
    g_test_add_func("/ahead/sealed-damage", test_sealed_damage);
    g_test_add_func("/ahead/hostile-gaps", test_hostile_gaps);
    return g_test_run();
}
