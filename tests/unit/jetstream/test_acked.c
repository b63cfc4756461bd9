/* What is known of what servers have acknowledged. */
#include "engine/jetstream/acked.h"

#include <glib.h>

static void test_of_the_last_ones(void)
{
    NrdJsAcked *acked = nrd_js_acked_new();
    g_assert_cmpuint(nrd_js_acked_get(acked, 1), ==, 0);
    g_assert_cmpuint(nrd_js_acked_next(acked, 1), ==, 0);
    for (uint64_t sequence = 1000; sequence < 1000 + 3 * NRD_JS_ACKED_MAX; sequence++) {
        g_assert_true(nrd_js_acked_note(acked, sequence, (uint32_t)sequence));
        g_assert_cmpuint(nrd_js_acked_get(acked, sequence), ==, sequence);
    }
    uint64_t last = 1000 + 3 * NRD_JS_ACKED_MAX - 1, first = last - NRD_JS_ACKED_MAX + 1;
    for (uint64_t sequence = first; sequence <= last; sequence++)
        g_assert_cmpuint(nrd_js_acked_get(acked, sequence), ==, sequence);
    g_assert_cmpuint(nrd_js_acked_get(acked, first - 1), ==, 0);
    g_assert_cmpuint(nrd_js_acked_get(acked, last + 1), ==, 0);
    g_assert_cmpuint(nrd_js_acked_next(acked, 1), ==, first);
    nrd_js_acked_free(acked);
}

/* Others' records lie between, and answers come in any order. */
static void test_with_gaps(void)
{
    NrdJsAcked *acked = nrd_js_acked_new();
    const uint64_t sequences[] = { 900, 7, 5000, 6, 12000, 4999 };
    for (size_t i = 0; i < G_N_ELEMENTS(sequences); i++)
        g_assert_true(nrd_js_acked_note(acked, sequences[i], (uint32_t)sequences[i]));
    const uint64_t in_order[] = { 6, 7, 900, 4999, 5000, 12000 };
    uint64_t at = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(in_order); i++) {
        at = nrd_js_acked_next(acked, at + 1);
        g_assert_cmpuint(at, ==, in_order[i]);
        g_assert_cmpuint(nrd_js_acked_get(acked, at), ==, at);
    }
    g_assert_cmpuint(nrd_js_acked_next(acked, at + 1), ==, 0);
    g_assert_true(nrd_js_acked_note(acked, 6 + NRD_JS_ACKED_MAX, 1)); /* in the place of 6 */
    g_assert_cmpuint(nrd_js_acked_next(acked, 1), ==, 7);
    g_assert_true(nrd_js_acked_note(acked, 1, 2)); /* too old to be kept */
    g_assert_cmpuint(nrd_js_acked_get(acked, 1), ==, 0);
    nrd_js_acked_free(acked);
}

static void test_two_at_one_sequence(void)
{
    NrdJsAcked *acked = nrd_js_acked_new();
    g_assert_true(nrd_js_acked_note(acked, 3, nrd_js_acked_hash("a-1")));
    g_assert_true(nrd_js_acked_note(acked, 3, nrd_js_acked_hash("a-1")));
    g_assert_false(nrd_js_acked_note(acked, 3, nrd_js_acked_hash("a-2")));
    g_assert_cmpuint(nrd_js_acked_get(acked, 3), ==, nrd_js_acked_hash("a-1"));
    g_assert_cmpuint(nrd_js_acked_hash(NULL), !=, 0);
    nrd_js_acked_free(acked);
    nrd_js_acked_free(NULL);
}

/* What is held is known however much comes behind it, in its place among the others, until it is let go. */
static void test_held(void)
{
    NrdJsAcked *acked = nrd_js_acked_new();
    for (uint64_t sequence = 1; sequence <= 20; sequence++)
        g_assert_true(nrd_js_acked_note(acked, sequence, (uint32_t)sequence * 7));
    nrd_js_acked_hold(acked, 9);
    nrd_js_acked_hold(acked, 4);
    nrd_js_acked_hold(acked, 4);
    nrd_js_acked_hold(acked, 21); /* nothing is known of it */
    g_assert_cmpuint(nrd_js_acked_next(acked, 1), ==, 1);
    g_assert_cmpuint(nrd_js_acked_next(acked, 5), ==, 5);
    g_assert_false(nrd_js_acked_is_old(acked, 4));
    for (uint64_t sequence = 21; sequence <= 20 + NRD_JS_ACKED_MAX; sequence++)
        g_assert_true(nrd_js_acked_note(acked, sequence, (uint32_t)sequence * 7));
    g_assert_cmpuint(nrd_js_acked_get(acked, 4), ==, 28);
    g_assert_cmpuint(nrd_js_acked_get(acked, 9), ==, 63);
    g_assert_cmpuint(nrd_js_acked_get(acked, 5), ==, 0);
    g_assert_true(nrd_js_acked_is_old(acked, 4));
    g_assert_cmpuint(nrd_js_acked_next(acked, 1), ==, 4);
    g_assert_cmpuint(nrd_js_acked_next(acked, 5), ==, 9);
    g_assert_cmpuint(nrd_js_acked_next(acked, 10), ==, 21);
    g_assert_false(nrd_js_acked_note(acked, 9, 1));
    nrd_js_acked_let_go(acked, 0, 9);
    g_assert_cmpuint(nrd_js_acked_get(acked, 4), ==, 0);
    g_assert_true(nrd_js_acked_holds(acked, 9));
    nrd_js_acked_let_go(acked, 9, 10);
    g_assert_false(nrd_js_acked_holds(acked, 9));
    for (uint64_t sequence = 100; sequence < 100 + 2 * NRD_JS_ACKED_HELD; sequence++)
        nrd_js_acked_hold(acked, sequence);
    g_assert_true(nrd_js_acked_holds(acked, 100 + NRD_JS_ACKED_HELD - 1));
    g_assert_false(nrd_js_acked_holds(acked, 100 + NRD_JS_ACKED_HELD));
    nrd_js_acked_let_go(acked, 0, UINT64_MAX);
    g_assert_false(nrd_js_acked_holds(acked, 100));
    nrd_js_acked_free(acked);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/acked/of-the-last-ones", test_of_the_last_ones);
    g_test_add_func("/jetstream/acked/with-gaps", test_with_gaps);
    g_test_add_func("/jetstream/acked/two-at-one-sequence", test_two_at_one_sequence);
    g_test_add_func("/jetstream/acked/held", test_held);
    return g_test_run();
}
