/* See due_heap.h. */
#include "engine/fanout/due_heap.h"

void nrd_due_heap_init(NrdDueHeap *heap)
{
    heap->nodes = g_ptr_array_new();
    g_ptr_array_add(heap->nodes, NULL);
}

void nrd_due_heap_clear(NrdDueHeap *heap)
{
    g_clear_pointer(&heap->nodes, g_ptr_array_unref);
}

static NrdDueNode *at(const NrdDueHeap *heap, size_t index)
{
    return heap->nodes->pdata[index];
}

static void put(NrdDueHeap *heap, NrdDueNode *node, size_t index)
{
    heap->nodes->pdata[index] = node;
    node->index = index;
}

static void rise(NrdDueHeap *heap, NrdDueNode *node)
{
    size_t i = node->index;
    for (; i > 1 && node->at_ms < at(heap, i / 2)->at_ms; i /= 2)
        put(heap, at(heap, i / 2), i);
    put(heap, node, i);
}

static void sink(NrdDueHeap *heap, NrdDueNode *node)
{
    size_t i = node->index, n = heap->nodes->len;
    for (size_t child; (child = 2 * i) < n; i = child) {
        if (child + 1 < n && at(heap, child + 1)->at_ms < at(heap, child)->at_ms)
            child++;
        if (node->at_ms <= at(heap, child)->at_ms)
            break;
        put(heap, at(heap, child), i);
    }
    put(heap, node, i);
}

void nrd_due_heap_set(NrdDueHeap *heap, NrdDueNode *node, int64_t at_ms)
{
    node->at_ms = at_ms;
    if (node->index == 0) {
        g_ptr_array_add(heap->nodes, node);
        node->index = heap->nodes->len - 1;
    }
    rise(heap, node);
    sink(heap, node);
}

void nrd_due_heap_remove(NrdDueHeap *heap, NrdDueNode *node)
{
    if (node->index == 0)
        return;
    g_assert(at(heap, node->index) == node);
    size_t index = node->index;
    NrdDueNode *last = at(heap, heap->nodes->len - 1);
    g_ptr_array_set_size(heap->nodes, (gint)heap->nodes->len - 1);
    node->index = 0;
    if (last == node)
        return;
    put(heap, last, index);
    rise(heap, last);
    sink(heap, last);
}
