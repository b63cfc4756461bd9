/* What batch.c does for the workers (dispatcher.c). */
#ifndef NRD_INGRESS_BATCH_PRIVATE_H
#define NRD_INGRESS_BATCH_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/ingress/dispatcher_private.h"

typedef struct NrdIngressBatch {
    NrdLane *lane;
    GPtrArray *parts;   /* of NrdPart */
    GPtrArray *entries; /* bytes that were read for it (g_free) */
    GArray *slices;     /* of NrdIngressSlice */
    NrdIngressTarget target;
    bool verify;       /* one part, which may be there */
    uint64_t expected; /* ... at this offset */
    uint64_t note;     /* what a checkpoint has to know before */
    bool damaged;      /* the only part cannot be read back any more */
    bool was_there;
    bool again; /* it was not: it is named anew, and committed by the next pass */
    uint64_t first;
    GPtrArray *dead; /* of NrdPending: nothing left of them */
    uint32_t moved_to;
    bool tell_move;
    bool tell_no_room, make_room;
} NrdIngressBatch;

/* Takes what may go, or one part that a replay has to look up, and counts it as running; nothing is taken when nothing may go.
 * Initializes *batch, which nrd_ingress_batch_clear ends. The order of the lane is settled. Lock held. */
void nrd_ingress_batch_take_locked(NrdDispatcher *d, NrdLane *lane, NrdIngressBatch *batch);

/* One attempt: reads the parts, sees to the checkpoint that they need, looks up or commits. No lock held; blocks. */
NrdIngressResult nrd_ingress_batch_pass(NrdDispatcher *d, NrdIngressBatch *batch);

/* Gives the parts back to the head of the lane, as they were, since offsets are named by their order; what was looked up,
 * and named nothing else, to its place. Lock held. */
void nrd_ingress_batch_put_back_locked(NrdIngressBatch *batch);

void nrd_ingress_batch_clear(NrdIngressBatch *batch); /* also entries that are dead; no lock held */

static inline NrdPlace nrd_ingress_batch_place(const NrdIngressBatch *batch)
{
    return (NrdPlace){ batch->target.topic, batch->target.partition, NRD_NO_OFFSET };
}

#endif
