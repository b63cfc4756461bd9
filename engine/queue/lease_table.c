/* A dense array of leases, an open-addressing table of indexes into it, and a binary heap of indexes into it.
 *
 * Dense: the last lease moves into the hole of a removed one, so that a walk over all leases is a walk over an array.
 * The table is at most half full, probes linearly, and removes by shifting back: no tombstones, so that a queue that
 * leases and settles for months never degrades. Growth doubles; an emptied table gives a burst's memory back. */
#include "engine/queue/lease_table.h"

#define MIN_CAPACITY 16
#define KEEP_CAPACITY 1024 /* an emptied table of at most this size keeps its memory */
#define EMPTY UINT32_MAX

_Static_assert(sizeof(NrdLeaseEntry) == 32, "the bound on memory in the header counts on it");

struct NrdLeaseTable {
    NrdLeaseEntry *entries; /* [0, n) are live; capacity is a power of two or 0 */
    uint32_t *heap;         /* indexes of entries; heap[0] ends first */
    uint32_t *buckets;      /* 2 * capacity indexes of entries, or EMPTY */
    uint32_t n;
    uint32_t capacity;
};

NrdLeaseTable *nrd_lease_table_new(void)
{
    return g_new0(NrdLeaseTable, 1);
}

void nrd_lease_table_free(NrdLeaseTable *table)
{
    if (!table)
        return;
    g_free(table->entries);
    g_free(table->heap);
    g_free(table->buckets);
    g_free(table);
}

uint32_t nrd_lease_table_count(const NrdLeaseTable *table)
{
    return table->n;
}

size_t nrd_lease_table_size_bytes(const NrdLeaseTable *table)
{
    return sizeof *table +
           table->capacity * (sizeof *table->entries + sizeof *table->heap + 2 * sizeof *table->buckets);
}

/* ---- the table by offset ---- */

static uint32_t bucket_mask(const NrdLeaseTable *table)
{
    return 2 * table->capacity - 1;
}

/* Neighbouring offsets are the rule; the multiplication (Knuth 6.4, the golden ratio) spreads them evenly. */
static uint32_t home_bucket(const NrdLeaseTable *table, uint64_t offset)
{
    return (uint32_t)((offset * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & bucket_mask(table);
}

/* The bucket that holds offset, or the empty one at which the search ends. */
static uint32_t find_bucket(const NrdLeaseTable *table, uint64_t offset)
{
    uint32_t b = home_bucket(table, offset);
    while (table->buckets[b] != EMPTY && table->entries[table->buckets[b]].offset != offset)
        b = (b + 1) & bucket_mask(table);
    return b;
}

static void empty_bucket(NrdLeaseTable *table, uint32_t hole)
{
    uint32_t mask = bucket_mask(table);
    for (uint32_t b = (hole + 1) & mask; table->buckets[b] != EMPTY; b = (b + 1) & mask) {
        uint32_t home = home_bucket(table, table->entries[table->buckets[b]].offset);
        /* It may move into the hole unless its home lies between the two (cyclically, the hole excluded). */
        if (((b - home) & mask) >= ((b - hole) & mask)) {
            table->buckets[hole] = table->buckets[b];
            hole = b;
        }
    }
    table->buckets[hole] = EMPTY;
}

static void grow(NrdLeaseTable *table)
{
    g_assert(table->capacity <= UINT32_MAX / 8);
    uint32_t capacity = table->capacity ? 2 * table->capacity : MIN_CAPACITY;
    table->entries = g_renew(NrdLeaseEntry, table->entries, capacity);
    table->heap = g_renew(uint32_t, table->heap, capacity);
    g_free(table->buckets);
    table->buckets = g_new(uint32_t, 2 * (size_t)capacity);
    table->capacity = capacity;
    for (size_t b = 0; b < 2 * (size_t)capacity; b++)
        table->buckets[b] = EMPTY;
    for (uint32_t i = 0; i < table->n; i++)
        table->buckets[find_bucket(table, table->entries[i].offset)] = i;
}

/* ---- the heap by expiry ---- */

static bool ends_before(const NrdLeaseTable *table, uint32_t a, uint32_t b)
{
    const NrdLeaseEntry *x = &table->entries[a], *y = &table->entries[b];
    return x->expiry_ms != y->expiry_ms ? x->expiry_ms < y->expiry_ms : x->offset < y->offset;
}

static void heap_put(NrdLeaseTable *table, uint32_t h, uint32_t entry)
{
    table->heap[h] = entry;
    table->entries[entry].heap_index = h;
}

static void heap_up(NrdLeaseTable *table, uint32_t h)
{
    uint32_t entry = table->heap[h];
    while (h > 0 && ends_before(table, entry, table->heap[(h - 1) / 2])) {
        heap_put(table, h, table->heap[(h - 1) / 2]);
        h = (h - 1) / 2;
    }
    heap_put(table, h, entry);
}

static void heap_down(NrdLeaseTable *table, uint32_t h, uint32_t n)
{
    uint32_t entry = table->heap[h];
    for (uint32_t child = 2 * h + 1; child < n; child = 2 * h + 1) {
        if (child + 1 < n && ends_before(table, table->heap[child + 1], table->heap[child]))
            child++;
        if (!ends_before(table, table->heap[child], entry))
            break;
        heap_put(table, h, table->heap[child]);
        h = child;
    }
    heap_put(table, h, entry);
}

/* ---- the table's interface ---- */

const NrdLeaseEntry *nrd_lease_table_find(const NrdLeaseTable *table, uint64_t offset)
{
    if (table->n == 0)
        return NULL;
    uint32_t i = table->buckets[find_bucket(table, offset)];
    return i == EMPTY ? NULL : &table->entries[i];
}

const NrdLeaseEntry *nrd_lease_table_soonest(const NrdLeaseTable *table)
{
    return table->n == 0 ? NULL : &table->entries[table->heap[0]];
}

void nrd_lease_table_add(NrdLeaseTable *table, uint64_t offset, uint64_t nonce, int64_t expiry_ms)
{
    if (table->n == table->capacity)
        grow(table);
    uint32_t b = find_bucket(table, offset);
    g_assert(table->buckets[b] == EMPTY);
    uint32_t i = table->n++;
    table->entries[i] = (NrdLeaseEntry){ .offset = offset, .nonce = nonce, .expiry_ms = expiry_ms, .heap_index = i };
    table->buckets[b] = i;
    table->heap[i] = i;
    heap_up(table, i);
}

void nrd_lease_table_set_expiry(NrdLeaseTable *table, uint64_t offset, int64_t expiry_ms)
{
    g_assert(table->n > 0);
    uint32_t i = table->buckets[find_bucket(table, offset)];
    g_assert(i != EMPTY);
    table->entries[i].expiry_ms = expiry_ms;
    heap_up(table, table->entries[i].heap_index);
    heap_down(table, table->entries[i].heap_index, table->n);
}

static void heap_remove(NrdLeaseTable *table, uint32_t h)
{
    uint32_t last = table->n - 1;
    if (h == last)
        return;
    heap_put(table, h, table->heap[last]);
    heap_up(table, h);
    heap_down(table, h, last);
}

/* The last lease moves to the place of the removed lease i. */
static void fill_hole(NrdLeaseTable *table, uint32_t i, uint32_t last)
{
    if (i == last)
        return;
    uint32_t b = find_bucket(table, table->entries[last].offset);
    table->entries[i] = table->entries[last];
    table->buckets[b] = i;
    table->heap[table->entries[i].heap_index] = i;
}

void nrd_lease_table_remove(NrdLeaseTable *table, uint64_t offset)
{
    g_assert(table->n > 0);
    uint32_t b = find_bucket(table, offset);
    uint32_t i = table->buckets[b];
    g_assert(i != EMPTY);
    heap_remove(table, table->entries[i].heap_index);
    empty_bucket(table, b);
    fill_hole(table, i, table->n - 1);
    table->n--;
    if (table->n == 0)
        nrd_lease_table_clear(table);
}

void nrd_lease_table_remove_range(NrdLeaseTable *table, uint64_t begin, uint64_t end)
{
    if (begin >= end || table->n == 0)
        return;
    if (end - begin < table->n) {
        for (uint64_t offset = begin; offset < end; offset++) {
            if (nrd_lease_table_find(table, offset))
                nrd_lease_table_remove(table, offset);
        }
        return;
    }
    /* From the end: a removal fills its hole with a lease that was looked at already. */
    for (uint32_t i = table->n; i-- > 0;) {
        uint64_t offset = table->entries[i].offset;
        if (offset >= begin && offset < end)
            nrd_lease_table_remove(table, offset);
    }
}

void nrd_lease_table_clear(NrdLeaseTable *table)
{
    if (table->capacity > KEEP_CAPACITY) {
        g_clear_pointer(&table->entries, g_free);
        g_clear_pointer(&table->heap, g_free);
        g_clear_pointer(&table->buckets, g_free);
        table->capacity = 0;
    } else if (table->n > 0) {
        for (size_t b = 0; b < 2 * (size_t)table->capacity; b++)
            table->buckets[b] = EMPTY;
    }
    table->n = 0;
}
