/* Settling in two steps.
 *
 * While it is on its way to the disk, what will be settled is a set of its own: the settled one and the offsets of the
 * prepared leases. Whatever else is settled meanwhile goes into both and needs room in both. So each end is one step that
 * cannot fail: the prepared set takes the settled one's place, or is dropped. */
#include "engine/queue/queue_private.h"

#include <errno.h>

static int prepare_one(NrdQueue *queue, NrdLease lease, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, lease.offset, lease.nonce, now_mono_ms))
        return -ESTALE;
    if (nrd_queue_is_prepared(queue, lease.offset) ||
        !nrd_settled_can_add(queue->prepared, lease.offset, queue->limits.max_acked_ahead))
        return -EAGAIN;
    nrd_settled_add(queue->prepared, lease.offset);
    return 0;
}

size_t nrd_queue_prepare(NrdQueue *queue, const NrdSettling *settling, int64_t now_mono_ms)
{
    size_t n_prepared = 0;
    if (!queue->prepared && settling->n > 0)
        queue->prepared = nrd_settled_copy(queue->settled);
    for (size_t i = 0; i < settling->n; i++) {
        settling->errors[i] = prepare_one(queue, settling->leases[i], now_mono_ms);
        n_prepared += settling->errors[i] == 0;
    }
    return n_prepared;
}

void nrd_queue_snapshot_prepared(const NrdQueue *queue, NrdFrontier *ret_state)
{
    nrd_settled_get(queue->prepared ? queue->prepared : queue->settled, ret_state);
}

/* Retention may have settled it meanwhile, and dropped the lease. */
static void conclude_one(NrdQueue *queue, NrdLease lease, bool durable, int64_t now_mono_ms)
{
    const NrdLeaseEntry *entry = nrd_lease_table_find(queue->leases, lease.offset);
    if (!entry || entry->nonce != lease.nonce)
        return;
    if (durable)
        nrd_lease_table_remove(queue->leases, lease.offset);
    else if (entry->expiry_ms <= now_mono_ms)
        nrd_lease_table_set_expiry(queue->leases, lease.offset, nrd_queue_expiry(queue, now_mono_ms));
}

void nrd_queue_conclude(NrdQueue *queue, const NrdSettling *settling, bool durable, int64_t now_mono_ms)
{
    for (size_t i = 0; i < settling->n; i++) {
        if (settling->errors[i] < 0)
            continue;
        if (!queue->prepared)
            settling->errors[i] = -ESTALE;
        else
            conclude_one(queue, settling->leases[i], durable, now_mono_ms);
    }
}

void nrd_queue_end_prepared(NrdQueue *queue, bool durable)
{
    NrdSettled *prepared = g_steal_pointer(&queue->prepared);
    if (prepared && durable) {
        nrd_settled_free(queue->settled);
        queue->settled = prepared;
    } else {
        nrd_settled_free(prepared);
    }
}
