/* A min-heap of offsets: those that leases gave back and that are to be delivered before new ones. Pure.
 * An offset may stay in it after it was settled otherwise; who takes it out looks. */
#ifndef NRD_QUEUE_OFFSET_HEAP_H
#define NRD_QUEUE_OFFSET_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdOffsetHeap NrdOffsetHeap;

NrdOffsetHeap *nrd_offset_heap_new(void);
void nrd_offset_heap_free(NrdOffsetHeap *heap); /* takes NULL */

/* O(log n) amortised. */
void nrd_offset_heap_push(NrdOffsetHeap *heap, uint64_t offset);

/* The lowest offset; false when there is none. */
bool nrd_offset_heap_peek(const NrdOffsetHeap *heap, uint64_t *ret_offset);

/* Removes the lowest offset; there is one. O(log n). */
void nrd_offset_heap_pop(NrdOffsetHeap *heap);

void nrd_offset_heap_clear(NrdOffsetHeap *heap);

#endif
