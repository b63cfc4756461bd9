/* The delay's gate and the heap of due times. */
#include "engine/fanout/due_heap.h"
#include "engine/fanout/gate.h"

static void test_gate(void)
{
    g_assert_true(nrd_gate_open(5000, 0, 10)); /* no delay: whatever the clock says */
    g_assert_false(nrd_gate_open(5000, 100, 5099));
    g_assert_true(nrd_gate_open(5000, 100, 5100));
    g_assert_cmpint(nrd_gate_due_ms(5000, 100), ==, 5100);
    g_assert_cmpint(nrd_gate_due_ms(INT64_MAX - 5, 100), ==, INT64_MAX);
    g_assert_false(nrd_gate_open(INT64_MAX - 5, 100, INT64_MAX - 1));
    g_assert_true(nrd_gate_open(-50, 100, 50)); /* a clock before 1970 */
}

#define N 200

static NrdDueNode *soonest(NrdDueNode *nodes)
{
    NrdDueNode *found = NULL;
    for (unsigned i = 0; i < N; i++) {
        if (nodes[i].index > 0 && (!found || nodes[i].at_ms < found->at_ms))
            found = &nodes[i];
    }
    return found;
}

static void assert_top(const NrdDueHeap *heap, NrdDueNode *nodes)
{
    NrdDueNode *expected = soonest(nodes), *top = nrd_due_heap_top(heap);
    g_assert_cmpint(expected != NULL, ==, top != NULL);
    if (top)
        g_assert_cmpint(top->at_ms, ==, expected->at_ms);
}

/* Any order of adding, moving and removing, beside a search through all of them. */
static void test_heap(void)
{
    NrdDueNode nodes[N] = { 0 };
    NrdDueHeap heap;
    g_autoptr(GRand) rand = g_rand_new_with_seed(20261130);
    nrd_due_heap_init(&heap);
    g_assert_null(nrd_due_heap_top(&heap));
    for (unsigned i = 0; i < 20000; i++) {
        NrdDueNode *node = &nodes[g_rand_int_range(rand, 0, N)];
        if (g_rand_int_range(rand, 0, 3) == 0)
            nrd_due_heap_remove(&heap, node);
        else
            nrd_due_heap_set(&heap, node, g_rand_int_range(rand, 0, 1000));
        assert_top(&heap, nodes);
    }
    for (NrdDueNode *top; (top = nrd_due_heap_top(&heap));) {
        assert_top(&heap, nodes);
        nrd_due_heap_remove(&heap, top);
        g_assert_cmpuint(top->index, ==, 0);
    }
    g_assert_null(soonest(nodes));
    nrd_due_heap_clear(&heap);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fanout/gate", test_gate);
    g_test_add_func("/fanout/heap", test_heap);
    return g_test_run();
}
