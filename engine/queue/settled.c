/* The set is an ascending array whose front is taken away by moving `head`. An addition in the middle moves at most
 * 4,096 numbers of 8 bytes (a microsecond), which a tree would not beat at that size.
 *
 * Whether the set fits into a slot is kept, not computed: gaps_bytes is the length of its gaps encoding. */
#include "engine/queue/settled.h"

#include "engine/queue/ahead.h"

#include <glib.h>

#define KEEP_ELEMENTS 64 /* an emptied array larger than that is given back: there are thousands of partitions */

struct NrdSettled {
    uint64_t frontier;
    GArray *ahead; /* uint64_t; [head, len) is the set */
    guint head;
    size_t gaps_bytes; /* sum of nrd_ahead_gap_size over the set */
};

NrdSettled *nrd_settled_new(void)
{
    NrdSettled *settled = g_new0(NrdSettled, 1);
    settled->ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    return settled;
}

NrdSettled *nrd_settled_copy(const NrdSettled *settled)
{
    NrdSettled *copy = nrd_settled_new();
    guint n = nrd_settled_n_ahead(settled);
    copy->frontier = settled->frontier;
    copy->gaps_bytes = settled->gaps_bytes;
    if (n > 0)
        g_array_append_vals(copy->ahead, &g_array_index(settled->ahead, uint64_t, settled->head), n);
    return copy;
}

void nrd_settled_free(NrdSettled *settled)
{
    if (!settled)
        return;
    g_array_unref(settled->ahead);
    g_free(settled);
}

uint64_t nrd_settled_frontier(const NrdSettled *settled)
{
    return settled->frontier;
}

uint32_t nrd_settled_n_ahead(const NrdSettled *settled)
{
    return settled->ahead->len - settled->head;
}

static uint64_t at(const NrdSettled *settled, guint i)
{
    return g_array_index(settled->ahead, uint64_t, i);
}

/* Index of the first element that is not below offset (the array's length when there is none). */
static guint lower_bound(const NrdSettled *settled, uint64_t offset)
{
    guint low = settled->head, high = settled->ahead->len;
    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (at(settled, middle) < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const NrdSettled *settled, guint i, uint64_t offset)
{
    return i < settled->ahead->len && at(settled, i) == offset;
}

bool nrd_settled_contains(const NrdSettled *settled, uint64_t offset)
{
    return offset < settled->frontier || is_at(settled, lower_bound(settled, offset), offset);
}

uint64_t nrd_settled_next_unsettled(const NrdSettled *settled, uint64_t offset)
{
    if (offset <= settled->frontier)
        return settled->frontier;
    for (guint i = lower_bound(settled, offset); is_at(settled, i, offset); i++)
        offset++;
    return offset;
}

uint64_t nrd_settled_next_settled(const NrdSettled *settled, uint64_t offset, uint64_t limit)
{
    guint i = lower_bound(settled, offset);
    return i < settled->ahead->len ? MIN(at(settled, i), limit) : limit;
}

/* The settled offset before element i, as the gaps encoding counts. */
static uint64_t before(const NrdSettled *settled, guint i)
{
    return i > settled->head ? at(settled, i - 1) : settled->frontier;
}

/* gaps_bytes as it will be once offset stands at index i. */
static size_t gaps_bytes_with(const NrdSettled *settled, guint i, uint64_t offset)
{
    uint64_t previous = before(settled, i);
    size_t bytes = settled->gaps_bytes + nrd_ahead_gap_size(previous, offset);
    if (i < settled->ahead->len)
        bytes += nrd_ahead_gap_size(offset, at(settled, i)) - nrd_ahead_gap_size(previous, at(settled, i));
    return bytes;
}

bool nrd_settled_can_add(const NrdSettled *settled, uint64_t offset, uint32_t max_ahead)
{
    if (offset == settled->frontier)
        return true;
    uint32_t n_ahead = nrd_settled_n_ahead(settled);
    if (n_ahead >= max_ahead || n_ahead >= NRD_QUEUE_ACKED_AHEAD_MAX || offset >= NRD_AHEAD_FRONTIER_MAX)
        return false;
    uint64_t last = n_ahead > 0 ? MAX(offset, at(settled, settled->ahead->len - 1)) : offset;
    return last - settled->frontier <= NRD_AHEAD_WINDOW ||
           gaps_bytes_with(settled, lower_bound(settled, offset), offset) <= NRD_AHEAD_BODY_SIZE;
}

/* Gives the space in front of head back once it is half of the array, so that each element moves once on average. */
static void compact(NrdSettled *settled)
{
    guint n = nrd_settled_n_ahead(settled);
    if (n == 0 && settled->ahead->len > KEEP_ELEMENTS) {
        g_array_unref(settled->ahead);
        settled->ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
        settled->head = 0;
    } else if (settled->head > 0 && settled->head >= n) {
        g_array_remove_range(settled->ahead, 0, settled->head);
        settled->head = 0;
    }
}

uint64_t nrd_settled_advance(NrdSettled *settled, uint64_t below)
{
    if (below <= settled->frontier)
        return 0;
    uint64_t n_settled = below - settled->frontier;
    uint64_t frontier = below;
    while (nrd_settled_n_ahead(settled) > 0 && at(settled, settled->head) <= frontier) {
        uint64_t first = at(settled, settled->head);
        settled->gaps_bytes -= nrd_ahead_gap_size(before(settled, settled->head), first);
        if (first == frontier)
            frontier++;
        else
            n_settled--;           /* it was settled before */
        settled->frontier = first; /* what the gap of the next element counts from, until the end of the loop */
        settled->head++;
    }
    if (nrd_settled_n_ahead(settled) > 0) {
        uint64_t first = at(settled, settled->head);
        settled->gaps_bytes -= nrd_ahead_gap_size(settled->frontier, first);
        settled->gaps_bytes += nrd_ahead_gap_size(frontier, first);
    }
    settled->frontier = frontier;
    compact(settled);
    return n_settled;
}

void nrd_settled_add(NrdSettled *settled, uint64_t offset)
{
    g_assert(offset >= settled->frontier);
    if (offset == settled->frontier) {
        (void)nrd_settled_advance(settled, offset + 1);
        return;
    }
    guint i = lower_bound(settled, offset);
    g_assert(!is_at(settled, i, offset));
    settled->gaps_bytes = gaps_bytes_with(settled, i, offset);
    g_array_insert_val(settled->ahead, i, offset);
}

void nrd_settled_set(NrdSettled *settled, const NrdFrontier *state, uint64_t hwm)
{
    g_array_set_size(settled->ahead, 0);
    settled->head = 0;
    settled->gaps_bytes = 0;
    settled->frontier = MIN(state->frontier, hwm);
    for (guint i = 0; state->ahead && i < state->ahead->len; i++) {
        uint64_t offset = g_array_index(state->ahead, uint64_t, i);
        if (offset < hwm && !nrd_settled_contains(settled, offset) &&
            nrd_settled_can_add(settled, offset, NRD_QUEUE_ACKED_AHEAD_MAX))
            nrd_settled_add(settled, offset);
    }
    compact(settled);
}

void nrd_settled_get(const NrdSettled *settled, NrdFrontier *ret_state)
{
    g_array_set_size(ret_state->ahead, 0);
    ret_state->frontier = settled->frontier;
    guint n = nrd_settled_n_ahead(settled);
    if (n > 0)
        g_array_append_vals(ret_state->ahead, &g_array_index(settled->ahead, uint64_t, settled->head), n);
}
