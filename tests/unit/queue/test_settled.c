/* What is settled, against a plain array of flags; and that the running size agrees with nrd_ahead_fits. */
#include "engine/queue/ahead.h"
#include "engine/queue/offset_store.h"
#include "engine/queue/settled.h"

#define N_OFFSETS 2000

static void assert_same(const NrdSettled *settled, const bool *flags, GArray *ahead)
{
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    nrd_settled_get(settled, &state);
    uint64_t frontier = 0;
    while (frontier < N_OFFSETS && flags[frontier])
        frontier++;
    g_assert_cmpuint(nrd_settled_frontier(settled), ==, frontier);
    guint n = 0;
    for (uint64_t offset = frontier; offset < N_OFFSETS; offset++) {
        g_assert_true(nrd_settled_contains(settled, offset) == flags[offset]);
        if (!flags[offset])
            continue;
        g_assert_cmpuint(n, <, ahead->len);
        g_assert_cmpuint(g_array_index(ahead, uint64_t, n), ==, offset);
        n++;
    }
    g_assert_cmpuint(ahead->len, ==, n);
    g_assert_cmpuint(nrd_settled_n_ahead(settled), ==, n);
}

static void assert_next_unsettled(const NrdSettled *settled, const bool *flags, uint64_t from)
{
    uint64_t expected = from;
    while (expected < N_OFFSETS && flags[expected])
        expected++;
    g_assert_cmpuint(nrd_settled_next_unsettled(settled, from), ==, expected);
}

static void advance(NrdSettled *settled, bool *flags, uint64_t below)
{
    uint64_t n_settled = 0;
    for (uint64_t offset = 0; offset < below; offset++) {
        n_settled += !flags[offset];
        flags[offset] = true;
    }
    g_assert_cmpuint(nrd_settled_advance(settled, below), ==, n_settled);
}

static void test_model(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (int round = 0; round < 20; round++) {
        NrdSettled *settled = nrd_settled_new();
        bool flags[N_OFFSETS + 1] = { false };
        for (int i = 0; i < 1500; i++) {
            uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, N_OFFSETS);
            if (i % 300 == 299) {
                advance(settled, flags, MIN(offset, nrd_settled_frontier(settled) + 40));
            } else if (!flags[offset] && nrd_settled_can_add(settled, offset, 1000)) {
                nrd_settled_add(settled, offset);
                flags[offset] = true;
            }
            assert_next_unsettled(settled, flags, offset);
            if (i % 50 == 0)
                assert_same(settled, flags, ahead);
        }
        assert_same(settled, flags, ahead);
        nrd_settled_free(settled);
    }
}

static uint64_t random_offset(GRand *rand)
{
    return (uint64_t)g_rand_int(rand) << g_rand_int_range(rand, 0, 20);
}

/* can_add keeps a running size; nrd_ahead_fits counts anew. They agree at the limit, whatever was absorbed before. */
static void test_fits(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(8);
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    NrdSettled *settled = nrd_settled_new();
    int n_refused = 0, n_added = 0;
    for (int i = 0; i < 6000; i++) {
        uint64_t offset = random_offset(rand);
        if (i % 1000 == 500)
            (void)nrd_settled_advance(settled, nrd_settled_frontier(settled) + ((uint64_t)1 << 34));
        if (nrd_settled_contains(settled, offset) || offset == nrd_settled_frontier(settled))
            continue;
        bool can_add = nrd_settled_can_add(settled, offset, NRD_QUEUE_ACKED_AHEAD_MAX);
        nrd_settled_get(settled, &state);
        guint at = 0;
        while (at < ahead->len && g_array_index(ahead, uint64_t, at) < offset)
            at++;
        g_array_insert_val(ahead, at, offset);
        g_assert_true(nrd_ahead_fits(state.frontier, (const uint64_t *)(const void *)ahead->data, ahead->len) ==
                      can_add);
        if (can_add)
            nrd_settled_add(settled, offset);
        n_added += can_add;
        n_refused += !can_add;
    }
    g_assert_cmpint(n_added, >, 500);
    g_assert_cmpint(n_refused, >, 500);
    nrd_settled_free(settled);
}

/* A set from outside: only what is in order, above the frontier and below the watermark is taken. */
static void test_set(void)
{
    static const uint64_t offsets[] = { 10, 11, 9, 13, 13, 30, 12, 31, 20 };
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_array_append_vals(ahead, offsets, G_N_ELEMENTS(offsets));
    NrdFrontier state = { .frontier = 10, .ahead = ahead };
    NrdSettled *settled = nrd_settled_new();
    nrd_settled_set(settled, &state, 31);
    g_assert_cmpuint(nrd_settled_frontier(settled), ==, 14);
    g_assert_cmpuint(nrd_settled_n_ahead(settled), ==, 2);
    g_assert_true(nrd_settled_contains(settled, 20));
    g_assert_true(nrd_settled_contains(settled, 30));
    g_assert_false(nrd_settled_contains(settled, 31));
    nrd_settled_set(settled, &state, 5);
    g_assert_cmpuint(nrd_settled_frontier(settled), ==, 5);
    g_assert_cmpuint(nrd_settled_n_ahead(settled), ==, 0);
    nrd_settled_free(settled);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/settled/model", test_model);
    g_test_add_func("/settled/fits", test_fits);
    g_test_add_func("/settled/set", test_set);
    return g_test_run();
}
