/* The live leases of one partition, found by offset and in the order in which they end.
 *
 * Invariants: an offset has at most one lease; the heap holds every lease once, the soonest end first.
 * Memory: 32 bytes for a lease, 4 in the heap and 4 to 8 in the table, at most doubled by growth: under 96 bytes all in.
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
    uint64_t offset;
    uint64_t nonce;
    int64_t expiry_ms; /* monotonic; the lease is over at this very time */
    uint32_t heap_index;
} NrdLeaseEntry;

NrdLeaseTable *nrd_lease_table_new(void);
void nrd_lease_table_free(NrdLeaseTable *table); /* takes NULL */

uint32_t nrd_lease_table_count(const NrdLeaseTable *table);

/* The lease of this offset, or NULL. */
const NrdLeaseEntry *nrd_lease_table_find(const NrdLeaseTable *table, uint64_t offset);

/* The lease that ends first, or NULL when there is none. */
const NrdLeaseEntry *nrd_lease_table_soonest(const NrdLeaseTable *table);

/* The offset has no lease yet. O(log n) amortised. */
void nrd_lease_table_add(NrdLeaseTable *table, uint64_t offset, uint64_t nonce, int64_t expiry_ms);

/* Both: the offset has a lease. O(log n). */
void nrd_lease_table_set_expiry(NrdLeaseTable *table, uint64_t offset, int64_t expiry_ms);
void nrd_lease_table_remove(NrdLeaseTable *table, uint64_t offset);

/* Removes every lease in [begin, end); costs the smaller of the range and the number of leases. */
void nrd_lease_table_remove_range(NrdLeaseTable *table, uint64_t begin, uint64_t end);

void nrd_lease_table_clear(NrdLeaseTable *table);

/* Bytes allocated, for the test that holds the bound above. */
size_t nrd_lease_table_size_bytes(const NrdLeaseTable *table);

#endif
