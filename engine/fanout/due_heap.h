/* What is to happen at a time, soonest first: a binary heap of nodes that their owners embed. Pure; no locks. */
#ifndef NRD_FANOUT_DUE_HEAP_H
#define NRD_FANOUT_DUE_HEAP_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdDueNode {
    int64_t at_ms;
    size_t index; /* in the heap, from 1; 0: in none */
    void *owner;
} NrdDueNode;

typedef struct NrdDueHeap {
    GPtrArray *nodes; /* of NrdDueNode*; the first entry is unused */
} NrdDueHeap;

void nrd_due_heap_init(NrdDueHeap *heap);
void nrd_due_heap_clear(NrdDueHeap *heap);
void nrd_due_heap_set(NrdDueHeap *heap, NrdDueNode *node, int64_t at_ms); /* adds or moves it */
void nrd_due_heap_remove(NrdDueHeap *heap, NrdDueNode *node);             /* in this heap or in none */

static inline NrdDueNode *nrd_due_heap_top(const NrdDueHeap *heap)
{
    return heap->nodes->len > 1 ? heap->nodes->pdata[1] : NULL;
}

#endif
