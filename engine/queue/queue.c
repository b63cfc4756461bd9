/* Joins what is settled, the leases and what came back.
 *
 * Invariants, between calls:
 *   every lease and every offset in `returned` is below `next`; no lease is on a settled offset;
 *   an offset below `next` that is neither settled nor leased is in `returned`, once;
 *   every offset from `next` on is deliverable unless it is settled.
 * `returned` may hold settled offsets too (retention or a skip passed over them); they are dropped when they come up. */
#include "engine/queue/queue.h"

#include "engine/queue/lease_table.h"
#include "engine/queue/offset_heap.h"
#include "engine/queue/settled.h"

#include <errno.h>

#define NONCE_MASK UINT64_C(0x7fffffffffffffff)

struct NrdQueue {
    NrdQueueLimits limits;
    NrdSettled *settled;
    NrdLeaseTable *leases;
    NrdOffsetHeap *returned;
    uint64_t next; /* the lowest offset that was never leased since restore or seek */
};

NrdQueue *nrd_queue_new(const NrdQueueLimits *limits)
{
    NrdQueue *queue = g_new0(NrdQueue, 1);
    queue->settled = nrd_settled_new();
    queue->leases = nrd_lease_table_new();
    queue->returned = nrd_offset_heap_new();
    nrd_queue_configure(queue, limits);
    return queue;
}

void nrd_queue_free(NrdQueue *queue)
{
    if (!queue)
        return;
    nrd_settled_free(queue->settled);
    nrd_lease_table_free(queue->leases);
    nrd_offset_heap_free(queue->returned);
    g_free(queue);
}

void nrd_queue_configure(NrdQueue *queue, const NrdQueueLimits *limits)
{
    g_assert(limits->visibility_timeout_ms > 0 && limits->max_acked_ahead <= NRD_QUEUE_ACKED_AHEAD_MAX);
    queue->limits = *limits;
}

static void drop_leases(NrdQueue *queue)
{
    nrd_lease_table_clear(queue->leases);
    nrd_offset_heap_clear(queue->returned);
    queue->next = nrd_settled_frontier(queue->settled);
}

void nrd_queue_restore(NrdQueue *queue, const NrdFrontier *state, uint64_t hwm)
{
    nrd_settled_set(queue->settled, state, hwm);
    drop_leases(queue);
}

void nrd_queue_snapshot(const NrdQueue *queue, NrdFrontier *ret_state)
{
    nrd_settled_get(queue->settled, ret_state);
}

void nrd_queue_seek(NrdQueue *queue, uint64_t frontier)
{
    const NrdFrontier state = { .frontier = frontier, .ahead = NULL };
    nrd_queue_restore(queue, &state, frontier);
}

uint64_t nrd_queue_frontier(const NrdQueue *queue)
{
    return nrd_settled_frontier(queue->settled);
}

uint32_t nrd_queue_in_flight(const NrdQueue *queue)
{
    return nrd_lease_table_count(queue->leases);
}

uint32_t nrd_queue_acked_ahead(const NrdQueue *queue)
{
    return nrd_settled_n_ahead(queue->settled);
}

/* Settles everything below `below`; leases on what that settles are dropped. Returns how many offsets it settled.
 * The cost is bounded by the number of leases, not by the range. */
static uint64_t advance(NrdQueue *queue, uint64_t below)
{
    uint64_t before = nrd_settled_frontier(queue->settled);
    uint64_t n_settled = nrd_settled_advance(queue->settled, below);
    uint64_t after = nrd_settled_frontier(queue->settled);
    nrd_lease_table_remove_range(queue->leases, before, after);
    queue->next = MAX(queue->next, after);
    return n_settled;
}

/* The lowest offset that is neither settled nor leased: what came back is always below what was never leased. */
static uint64_t lowest_free(NrdQueue *queue, bool *ret_returned)
{
    uint64_t offset = 0;
    while (nrd_offset_heap_peek(queue->returned, &offset)) {
        if (!nrd_settled_contains(queue->settled, offset)) {
            *ret_returned = true;
            return offset;
        }
        nrd_offset_heap_pop(queue->returned);
    }
    queue->next = nrd_settled_next_unsettled(queue->settled, queue->next);
    *ret_returned = false;
    return queue->next;
}

/* Finds what a take would lease. An offset whose ack would have no room is not handed out, or its reader could do
 * nothing but wait: with the set full only the offset at the frontier, whose ack makes room, is served. */
static bool find_deliverable(NrdQueue *queue, uint64_t oldest, uint64_t hwm, uint64_t *ret_offset, bool *ret_returned)
{
    (void)advance(queue, MIN(oldest, hwm));
    if (nrd_lease_table_count(queue->leases) >= queue->limits.max_in_flight)
        return false;
    bool returned = false;
    uint64_t offset = lowest_free(queue, &returned);
    if (offset >= hwm || !nrd_settled_can_add(queue->settled, offset, queue->limits.max_acked_ahead))
        return false;
    *ret_offset = offset;
    *ret_returned = returned;
    return true;
}

bool nrd_queue_deliverable(NrdQueue *queue, uint64_t oldest, uint64_t hwm)
{
    uint64_t offset = 0;
    bool returned = false;
    return find_deliverable(queue, oldest, hwm, &offset, &returned);
}

bool nrd_queue_sure(NrdQueue *queue, uint64_t oldest, uint64_t hwm)
{
    uint64_t offset = 0;
    bool returned = false;
    if (!find_deliverable(queue, oldest, hwm, &offset, &returned))
        return false;
    return offset == nrd_settled_frontier(queue->settled) ||
           nrd_settled_n_ahead(queue->settled) + nrd_lease_table_count(queue->leases) < queue->limits.max_acked_ahead;
}

static int64_t expiry(const NrdQueue *queue, int64_t now_mono_ms)
{
    int64_t expiry_ms;
    return __builtin_add_overflow(now_mono_ms, queue->limits.visibility_timeout_ms, &expiry_ms) ? INT64_MAX : expiry_ms;
}

void nrd_queue_take(NrdQueue *queue, uint64_t oldest, uint64_t hwm, int64_t now_mono_ms, uint64_t nonce,
                    NrdLease *ret_lease, bool *ret_found)
{
    uint64_t offset = 0;
    bool returned = false;
    *ret_found = find_deliverable(queue, oldest, hwm, &offset, &returned);
    if (!*ret_found)
        return;
    if (returned)
        nrd_offset_heap_pop(queue->returned);
    else
        queue->next = offset + 1;
    nonce &= NONCE_MASK;
    nrd_lease_table_add(queue->leases, offset, nonce, expiry(queue, now_mono_ms));
    *ret_lease = (NrdLease){ .offset = offset, .nonce = nonce };
}

/* The whole nonce counts, and so does the time, whether or not expire has run. */
bool nrd_queue_leased(const NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    const NrdLeaseEntry *entry = nrd_lease_table_find(queue->leases, offset);
    return entry && entry->nonce == nonce && now_mono_ms < entry->expiry_ms;
}

int nrd_queue_ack(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, offset, nonce, now_mono_ms))
        return -ESTALE;
    if (!nrd_settled_can_add(queue->settled, offset, queue->limits.max_acked_ahead))
        return -EAGAIN;
    nrd_lease_table_remove(queue->leases, offset);
    nrd_settled_add(queue->settled, offset);
    return 0;
}

static void give_back(NrdQueue *queue, uint64_t offset)
{
    nrd_lease_table_remove(queue->leases, offset);
    nrd_offset_heap_push(queue->returned, offset);
}

int nrd_queue_nack(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, offset, nonce, now_mono_ms))
        return -ESTALE;
    give_back(queue, offset);
    return 0;
}

int nrd_queue_extend(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, offset, nonce, now_mono_ms))
        return -ESTALE;
    nrd_lease_table_set_expiry(queue->leases, offset, expiry(queue, now_mono_ms));
    return 0;
}

/* Settles offsets of [begin, end), all above the frontier, until the set has no room; at most as many as it holds. */
static uint64_t skip_ahead(NrdQueue *queue, uint64_t begin, uint64_t end)
{
    uint64_t n_settled = 0;
    for (uint64_t offset = begin; offset < end; offset = nrd_settled_next_unsettled(queue->settled, offset)) {
        if (!nrd_settled_can_add(queue->settled, offset, queue->limits.max_acked_ahead))
            break;
        if (nrd_lease_table_find(queue->leases, offset))
            nrd_lease_table_remove(queue->leases, offset);
        nrd_settled_add(queue->settled, offset);
        n_settled++;
    }
    return n_settled;
}

uint64_t nrd_queue_skip(NrdQueue *queue, NrdLease lease, uint64_t end)
{
    const NrdLeaseEntry *entry = nrd_lease_table_find(queue->leases, lease.offset);
    if (!entry || entry->nonce != lease.nonce)
        return 0; /* superseded: whoever holds the offset now meets the damage too */
    end = MAX(end, lease.offset + 1);
    if (lease.offset == nrd_settled_frontier(queue->settled))
        return advance(queue, end);
    uint64_t n_settled = skip_ahead(queue, lease.offset, end);
    if (n_settled == 0)
        give_back(queue, lease.offset);
    return n_settled;
}

uint32_t nrd_queue_expire(NrdQueue *queue, int64_t now_mono_ms)
{
    uint32_t n_expired = 0;
    const NrdLeaseEntry *entry;
    while ((entry = nrd_lease_table_soonest(queue->leases)) && entry->expiry_ms <= now_mono_ms) {
        give_back(queue, entry->offset);
        n_expired++;
    }
    return n_expired;
}

int64_t nrd_queue_next_expiry_ms(const NrdQueue *queue)
{
    const NrdLeaseEntry *entry = nrd_lease_table_soonest(queue->leases);
    return entry ? entry->expiry_ms : INT64_MAX;
}
