/* What queue.c and prepared.c share of a partition's delivery state. */
#ifndef NRD_QUEUE_QUEUE_PRIVATE_H
#define NRD_QUEUE_QUEUE_PRIVATE_H

#include "engine/queue/lease_table.h"
#include "engine/queue/offset_heap.h"
#include "engine/queue/queue.h"
#include "engine/queue/settled.h"

struct NrdQueue {
    NrdQueueLimits limits;
    NrdSettled *settled;
    NrdSettled *prepared; /* NULL, or what will be settled: all of `settled`, and what is being made durable */
    NrdLeaseTable *leases;
    NrdOffsetHeap *returned;
    uint64_t next; /* the lowest offset that was never leased since restore or seek */
};

/* Whether this offset, which is leased, is being settled. */
static inline bool nrd_queue_is_prepared(const NrdQueue *queue, uint64_t offset)
{
    return queue->prepared && nrd_settled_contains(queue->prepared, offset);
}

/* When a lease ends that is taken or extended now. */
static inline int64_t nrd_queue_expiry(const NrdQueue *queue, int64_t now_mono_ms)
{
    int64_t expiry_ms;
    return __builtin_add_overflow(now_mono_ms, queue->limits.visibility_timeout_ms, &expiry_ms) ? INT64_MAX : expiry_ms;
}

#endif
