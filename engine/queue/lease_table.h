/* The live leases of one partition, found by offset and in the order in which they end.
 *
 * Leases lie close together: between the lowest and the highest one are only offsets that are settled ahead of the
 * frontier or were given back, and of both there are few (queue.c). So the table is an array over that window, in pages.
 *
 * Invariants: an offset has at most one lease; each lease stands in one list, in which nothing ends before what stands
 * in front of it.
 * Memory: 32 bytes for a lease, in pages of 32 that are there while one of their leases is; a pointer for each page of
 * the window, at most quadrupled by growth. So 36 bytes for each of many leases in a row, and at most 1,100 for a lonely one.
 * Pure: no I/O, no locks, no clock. One caller at a time. */
#ifndef NRD_QUEUE_LEASE_TABLE_H
#define NRD_QUEUE_LEASE_TABLE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdLeaseTable NrdLeaseTable;

/* Valid until the next change of the table. */
typedef struct NrdLeaseEntry {
    uint64_t nonce;
    int64_t expiry_ms; /* monotonic; the lease is over at this very time */
    /* private: offsets of its neighbours in the list, or NRD_LEASE_NONE */
    uint64_t previous;
    uint64_t next;
} NrdLeaseEntry;

#define NRD_LEASE_NONE UINT64_MAX

NrdLeaseTable *nrd_lease_table_new(void);
void nrd_lease_table_free(NrdLeaseTable *table); /* takes NULL */

uint32_t nrd_lease_table_count(const NrdLeaseTable *table);

/* The lease of this offset, or NULL. O(1). */
const NrdLeaseEntry *nrd_lease_table_find(const NrdLeaseTable *table, uint64_t offset);

/* The lease of this offset and *ret_n - 1 of those that follow it without a gap, one behind the other; NULL and 0 when it
 * has none. Call again for what is behind them. O(1). */
const NrdLeaseEntry *nrd_lease_table_find_run(const NrdLeaseTable *table, uint64_t offset, uint32_t *ret_n);

/* The offset of the lease that ends first, or NRD_LEASE_NONE when there is none. */
uint64_t nrd_lease_table_soonest(const NrdLeaseTable *table);

/* The offset has no lease yet. O(1) amortised while leases end in the order in which they are added, or in a few such
 * orders; else O(n). */
void nrd_lease_table_add(NrdLeaseTable *table, uint64_t offset, uint64_t nonce, int64_t expiry_ms);

/* Likewise n offsets from first on, which end together. */
void nrd_lease_table_add_run(NrdLeaseTable *table, uint64_t first, const uint64_t *nonces, uint32_t n,
                             int64_t expiry_ms);

/* Both: the offset has a lease. The cost is that of an addition. */
void nrd_lease_table_set_expiry(NrdLeaseTable *table, uint64_t offset, int64_t expiry_ms);
void nrd_lease_table_remove(NrdLeaseTable *table, uint64_t offset);

/* Likewise n offsets from first on, each of which has a lease. */
void nrd_lease_table_remove_run(NrdLeaseTable *table, uint64_t first, uint32_t n);

/* Removes every lease in [begin, end); costs the pages of the window in that range, whatever the range. */
void nrd_lease_table_remove_range(NrdLeaseTable *table, uint64_t begin, uint64_t end);

void nrd_lease_table_clear(NrdLeaseTable *table);

/* Bytes allocated, for the test that holds the bound above. */
size_t nrd_lease_table_size_bytes(const NrdLeaseTable *table);

#endif
