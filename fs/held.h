/* The leases that a consuming file holds, found by record. Pure: the caller guards it.
 *
 * 24 bytes for each, at most doubled by growth; up to 16 more once they have come or gone out of order. */
#ifndef NRD_FS_HELD_H
#define NRD_FS_HELD_H

#include "engine/engine.h"

typedef struct NrdHeld NrdHeld;

NrdHeld *nrd_held_new(void);
void nrd_held_free(NrdHeld *held); /* takes NULL */

guint nrd_held_count(const NrdHeld *held);

/* Adds a lease, in the place of another one on the same record. O(1) amortised, and so is removing. */
void nrd_held_put(NrdHeld *held, NrdHold hold);

/* Likewise for each of them; quicker when they are in order and behind all that are there. */
void nrd_held_put_all(NrdHeld *held, const NrdHold *holds, guint n);

/* The lease on a record, or NULL; valid until the next change. O(log n). */
NrdHold *nrd_held_find(const NrdHeld *held, uint32_t partition, uint64_t offset);

/* How many there are with this offset, of any partition, and one of them. O(n). */
guint nrd_held_find_offset(const NrdHeld *held, uint64_t offset, NrdHold *ret_hold);

void nrd_held_remove(NrdHeld *held, uint32_t partition, uint64_t offset); /* one that is not there too */

/* All of them, by partition and offset (NrdHold; g_array_unref); take empties the set. */
GArray *nrd_held_list(const NrdHeld *held);
GArray *nrd_held_take(NrdHeld *held);

#endif
