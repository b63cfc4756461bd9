/* A binary heap in one array that doubles as it grows. An emptied heap gives a burst's memory back. */
#include "engine/queue/offset_heap.h"

#include <glib.h>

#define MIN_CAPACITY 16
#define KEEP_CAPACITY 1024

struct NrdOffsetHeap {
    uint64_t *offsets; /* [0, n): no parent is above its children */
    uint32_t n;
    uint32_t capacity;
};

NrdOffsetHeap *nrd_offset_heap_new(void)
{
    return g_new0(NrdOffsetHeap, 1);
}

void nrd_offset_heap_free(NrdOffsetHeap *heap)
{
    if (!heap)
        return;
    g_free(heap->offsets);
    g_free(heap);
}

static void grow(NrdOffsetHeap *heap)
{
    g_assert(heap->capacity <= UINT32_MAX / 4);
    heap->capacity = heap->capacity ? 2 * heap->capacity : MIN_CAPACITY;
    heap->offsets = g_renew(uint64_t, heap->offsets, heap->capacity);
}

void nrd_offset_heap_push(NrdOffsetHeap *heap, uint64_t offset)
{
    if (heap->n == heap->capacity)
        grow(heap);
    uint32_t h = heap->n++;
    while (h > 0 && offset < heap->offsets[(h - 1) / 2]) {
        heap->offsets[h] = heap->offsets[(h - 1) / 2];
        h = (h - 1) / 2;
    }
    heap->offsets[h] = offset;
}

bool nrd_offset_heap_peek(const NrdOffsetHeap *heap, uint64_t *ret_offset)
{
    if (heap->n == 0)
        return false;
    *ret_offset = heap->offsets[0];
    return true;
}

void nrd_offset_heap_pop(NrdOffsetHeap *heap)
{
    g_assert(heap->n > 0);
    uint64_t offset = heap->offsets[--heap->n];
    uint32_t h = 0;
    for (uint32_t child = 1; child < heap->n; child = 2 * h + 1) {
        if (child + 1 < heap->n && heap->offsets[child + 1] < heap->offsets[child])
            child++;
        if (heap->offsets[child] >= offset)
            break;
        heap->offsets[h] = heap->offsets[child];
        h = child;
    }
    heap->offsets[h] = offset;
    if (heap->n == 0)
        nrd_offset_heap_clear(heap);
}

void nrd_offset_heap_clear(NrdOffsetHeap *heap)
{
    if (heap->capacity > KEEP_CAPACITY) {
        g_clear_pointer(&heap->offsets, g_free);
        heap->capacity = 0;
    }
    heap->n = 0;
}
