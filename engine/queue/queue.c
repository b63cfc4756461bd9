/* Joins what is settled, the leases and what came back.
 *
 * Invariants, between calls:
 *   every lease and every offset in `returned` is below `next`; no lease is on a settled offset;
 *   an offset below `next` that is neither settled nor leased is in `returned`, once;
 *   every offset from `next` on is deliverable unless it is settled.
 *   what is prepared (prepared.c) is all that is settled and some of what is leased, and fits where the settled set does.
 * `returned` may hold settled offsets too (retention or a skip passed over them); they are dropped when they come up. */
#include "engine/queue/queue_private.h"

#include <errno.h>

#define NONCE_MASK UINT64_C(0x7fffffffffffffff)

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
    nrd_settled_free(queue->prepared);
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
    nrd_queue_end_prepared(queue, false);
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

uint64_t nrd_queue_acked_ahead_in(const NrdQueue *queue, uint64_t begin, uint64_t end)
{
    uint64_t n = 0;
    begin = MAX(begin, nrd_settled_frontier(queue->settled));
    while (begin < end) {
        uint64_t from = nrd_settled_next_settled(queue->settled, begin, end);
        if (from >= end)
            break;
        begin = nrd_settled_next_unsettled(queue->settled, from);
        n += MIN(begin, end) - from;
    }
    return n;
}

/* Settles everything below `below`; leases on what that settles are dropped. Returns how many offsets it settled.
 * The cost is bounded by the number of leases, not by the range. */
static uint64_t advance(NrdQueue *queue, uint64_t below)
{
    uint64_t before = nrd_settled_frontier(queue->settled);
    uint64_t n_settled = nrd_settled_advance(queue->settled, below);
    uint64_t after = nrd_settled_frontier(queue->settled);
    if (queue->prepared)
        (void)nrd_settled_advance(queue->prepared, below);
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

/* How many leases there may be besides those there are. */
static uint32_t slots_left(const NrdQueue *queue)
{
    uint32_t n = nrd_lease_table_count(queue->leases);
    return n < queue->limits.max_in_flight ? queue->limits.max_in_flight - n : 0;
}

/* How many more offsets can be leased such that each can be acked whatever becomes of the others. The one at the frontier
 * always can be. */
static uint32_t sure_left(const NrdQueue *queue, uint64_t first)
{
    uint32_t n = nrd_settled_n_ahead(queue->settled) + nrd_lease_table_count(queue->leases);
    uint32_t left = n < queue->limits.max_acked_ahead ? queue->limits.max_acked_ahead - n : 0;
    return left == 0 && first == nrd_settled_frontier(queue->settled) ? 1 : left;
}

/* The end of the free offsets from `first` on, which is free; at most limit. Below `next` each is looked at, above it only
 * settled ones can be in the way. */
static uint64_t end_of_free(const NrdQueue *queue, uint64_t first, uint64_t limit)
{
    uint64_t end = first;
    while (end < MIN(queue->next, limit) && !nrd_lease_table_find(queue->leases, end) &&
           !nrd_settled_contains(queue->settled, end))
        end++;
    return end < queue->next || end >= limit ? end : nrd_settled_next_settled(queue->settled, end, limit);
}

/* Also when what is prepared becomes settled. */
static bool has_room(const NrdQueue *queue, uint64_t offset)
{
    uint32_t max_ahead = queue->limits.max_acked_ahead;
    return nrd_settled_can_add(queue->settled, offset, max_ahead) &&
           (!queue->prepared || nrd_settled_contains(queue->prepared, offset) ||
            nrd_settled_can_add(queue->prepared, offset, max_ahead));
}

/* Settles offset, which is not settled and for which there is room. */
static void add(NrdQueue *queue, uint64_t offset)
{
    nrd_settled_add(queue->settled, offset);
    if (queue->prepared && !nrd_settled_contains(queue->prepared, offset))
        nrd_settled_add(queue->prepared, offset);
}

/* An offset whose ack would have no room is not handed out, or its reader could do nothing but wait: with the set full
 * only the offset at the frontier, whose ack makes room, is served. Of a run the second and the last offset answer for
 * those in between. */
uint32_t nrd_queue_peek(NrdQueue *queue, uint64_t oldest, uint64_t hwm, bool sure, uint32_t max, uint64_t *ret_first)
{
    (void)advance(queue, MIN(oldest, hwm));
    bool returned;
    uint64_t first = lowest_free(queue, &returned);
    uint32_t n = MIN(max, slots_left(queue));
    if (sure)
        n = MIN(n, sure_left(queue, first));
    if (n == 0 || first >= hwm || !has_room(queue, first))
        return 0;
    *ret_first = first;
    if (n > 1)
        n = (uint32_t)(end_of_free(queue, first, MIN(hwm, first + n)) - first);
    return n > 1 && has_room(queue, first + 1) && has_room(queue, first + n - 1) ? n : 1;
}

bool nrd_queue_deliverable(NrdQueue *queue, uint64_t oldest, uint64_t hwm)
{
    uint64_t first;
    return nrd_queue_peek(queue, oldest, hwm, false, 1, &first) > 0;
}

bool nrd_queue_sure(NrdQueue *queue, uint64_t oldest, uint64_t hwm)
{
    uint64_t first;
    return nrd_queue_peek(queue, oldest, hwm, true, 1, &first) > 0;
}

/* The lowest free offset is not free any more. */
static void pass_lowest_free(NrdQueue *queue)
{
    bool returned;
    uint64_t offset = lowest_free(queue, &returned);
    if (returned)
        nrd_offset_heap_pop(queue->returned);
    else
        queue->next = offset + 1;
}

uint32_t nrd_queue_take_run(NrdQueue *queue, uint64_t oldest, uint64_t hwm, bool sure, int64_t now_mono_ms,
                            uint64_t first, uint64_t *nonces, uint32_t n)
{
    uint64_t now_first;
    uint32_t n_free = nrd_queue_peek(queue, oldest, hwm, sure, n, &now_first);
    if (n_free == 0 || now_first != first)
        return 0;
    for (uint32_t i = 0; i < n_free; i++) {
        if (first + i < queue->next)
            pass_lowest_free(queue);
        else
            queue->next = first + i + 1;
        nonces[i] &= NONCE_MASK;
    }
    nrd_lease_table_add_run(queue->leases, first, nonces, n_free, nrd_queue_expiry(queue, now_mono_ms));
    return n_free;
}

void nrd_queue_take(NrdQueue *queue, uint64_t oldest, uint64_t hwm, int64_t now_mono_ms, uint64_t nonce,
                    NrdLease *ret_lease, bool *ret_found)
{
    uint64_t first;
    *ret_found = nrd_queue_peek(queue, oldest, hwm, false, 1, &first) > 0 &&
                 nrd_queue_take_run(queue, oldest, hwm, false, now_mono_ms, first, &nonce, 1) > 0;
    if (*ret_found)
        *ret_lease = (NrdLease){ .offset = first, .nonce = nonce };
}

/* The whole nonce counts, and so does the time, whether or not expire has run. */
static inline bool is_live(const NrdLeaseEntry *entry, uint64_t nonce, int64_t now_mono_ms)
{
    return entry->nonce == nonce && now_mono_ms < entry->expiry_ms;
}

bool nrd_queue_leased(const NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    const NrdLeaseEntry *entry = nrd_lease_table_find(queue->leases, offset);
    return entry && is_live(entry, nonce, now_mono_ms);
}

int nrd_queue_ack(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, offset, nonce, now_mono_ms))
        return -ESTALE;
    if (nrd_queue_is_prepared(queue, offset) || !has_room(queue, offset))
        return -EAGAIN;
    nrd_lease_table_remove(queue->leases, offset);
    add(queue, offset);
    return 0;
}

/* How many leases at the front of the list are live and follow each other from offset on. */
static size_t n_live_from(const NrdQueue *queue, uint64_t offset, const NrdLease *leases, size_t n, int64_t now_mono_ms)
{
    size_t i = 0;
    while (i < n) {
        uint32_t n_beside;
        const NrdLeaseEntry *entries = nrd_lease_table_find_run(queue->leases, offset + i, &n_beside);
        size_t end = MIN(n, i + n_beside);
        for (; i < end; i++, entries++) {
            if (leases[i].offset != offset + i || !is_live(entries, leases[i].nonce, now_mono_ms))
                return i;
        }
        if (n_beside == 0)
            return i;
    }
    return i;
}

/* Acks the leases at the front of the list that follow each other from the frontier on; how many. The frontier moves
 * once. */
static size_t ack_from_frontier(NrdQueue *queue, const NrdLease *leases, size_t n, int64_t now_mono_ms)
{
    uint64_t frontier = nrd_settled_frontier(queue->settled);
    size_t n_acked = n_live_from(queue, frontier, leases, n, now_mono_ms);
    for (size_t i = 0; queue->prepared && i < n_acked; i++) {
        if (nrd_queue_is_prepared(queue, frontier + i))
            n_acked = i;
    }
    if (n_acked == 0)
        return 0;
    nrd_lease_table_remove_run(queue->leases, frontier, (uint32_t)n_acked);
    (void)nrd_settled_advance(queue->settled, frontier + n_acked);
    if (queue->prepared)
        (void)nrd_settled_advance(queue->prepared, frontier + n_acked);
    return n_acked;
}

size_t nrd_queue_ack_many(NrdQueue *queue, const NrdLease *leases, size_t n, int64_t now_mono_ms, int *ret_error)
{
    size_t i = 0;
    int error = 0;
    while (i < n && error == 0) {
        size_t n_run = ack_from_frontier(queue, leases + i, n - i, now_mono_ms);
        if (n_run == 0)
            error = nrd_queue_ack(queue, leases[i].offset, leases[i].nonce, now_mono_ms);
        i += n_run > 0 ? n_run : error == 0;
    }
    *ret_error = error;
    return i;
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
    if (nrd_queue_is_prepared(queue, offset))
        return -EAGAIN;
    give_back(queue, offset);
    return 0;
}

int nrd_queue_extend(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms)
{
    if (!nrd_queue_leased(queue, offset, nonce, now_mono_ms))
        return -ESTALE;
    if (nrd_queue_is_prepared(queue, offset))
        return -EAGAIN;
    nrd_lease_table_set_expiry(queue->leases, offset, nrd_queue_expiry(queue, now_mono_ms));
    return 0;
}

/* Settles offsets of [begin, end), all above the frontier, until the set has no room; at most as many as it holds. */
static uint64_t skip_ahead(NrdQueue *queue, uint64_t begin, uint64_t end)
{
    uint64_t n_settled = 0;
    for (uint64_t offset = begin; offset < end; offset = nrd_settled_next_unsettled(queue->settled, offset)) {
        if (!has_room(queue, offset))
            break;
        if (nrd_lease_table_find(queue->leases, offset))
            nrd_lease_table_remove(queue->leases, offset);
        add(queue, offset);
        n_settled++;
    }
    return n_settled;
}

uint64_t nrd_queue_skip(NrdQueue *queue, NrdLease lease, uint64_t end)
{
    const NrdLeaseEntry *entry = nrd_lease_table_find(queue->leases, lease.offset);
    if (!entry || entry->nonce != lease.nonce || nrd_queue_is_prepared(queue, lease.offset))
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
    while (nrd_queue_next_expiry_ms(queue) <= now_mono_ms) {
        uint64_t offset = nrd_lease_table_soonest(queue->leases);
        int64_t again_ms = nrd_queue_expiry(queue, now_mono_ms);
        if (offset == NRD_LEASE_NONE)
            break; /* the time is INT64_MAX */
        if (nrd_queue_is_prepared(queue, offset) && again_ms > now_mono_ms) {
            nrd_lease_table_set_expiry(queue->leases, offset, again_ms);
        } else {
            give_back(queue, offset);
            n_expired++;
        }
    }
    return n_expired;
}

int64_t nrd_queue_next_expiry_ms(const NrdQueue *queue)
{
    uint64_t offset = nrd_lease_table_soonest(queue->leases);
    return offset == NRD_LEASE_NONE ? INT64_MAX : nrd_lease_table_find(queue->leases, offset)->expiry_ms;
}
