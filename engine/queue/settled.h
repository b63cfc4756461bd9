/* Which offsets are settled: all below the frontier, and the acked-ahead set above it.
 *
 * Invariants: the frontier itself is not settled; the set is ascending, above the frontier, and always fits into a slot
 * of consumer.ahead (ahead.h). Moving the frontier up only makes it shorter, so only an addition can fail.
 * Pure: no I/O, no locks. One caller at a time. */
#ifndef NRD_QUEUE_SETTLED_H
#define NRD_QUEUE_SETTLED_H

#include "engine/queue/queue.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdSettled NrdSettled;

NrdSettled *nrd_settled_new(void); /* frontier 0, nothing ahead */
NrdSettled *nrd_settled_copy(const NrdSettled *settled);
void nrd_settled_free(NrdSettled *settled); /* takes NULL */

uint64_t nrd_settled_frontier(const NrdSettled *settled);
uint32_t nrd_settled_n_ahead(const NrdSettled *settled);

/* O(log n). */
bool nrd_settled_contains(const NrdSettled *settled, uint64_t offset);

/* The lowest offset from `offset` on that is not settled. Costs the length of the run that it passes. */
uint64_t nrd_settled_next_unsettled(const NrdSettled *settled, uint64_t offset);

/* The lowest settled offset from `offset` on, which is above the frontier or at it; at most limit. O(log n). */
uint64_t nrd_settled_next_settled(const NrdSettled *settled, uint64_t offset, uint64_t limit);

/* Whether offset, which is not settled, is the frontier or could be added to the set, of which there may be max. */
bool nrd_settled_can_add(const NrdSettled *settled, uint64_t offset, uint32_t max_ahead);

/* Settles offset, which is not settled and can be added. */
void nrd_settled_add(NrdSettled *settled, uint64_t offset);

/* Settles everything below `below`, and moves the frontier over what is contiguous; returns how many offsets that
 * settled. O(log n), amortised over the offsets that leave the set. */
uint64_t nrd_settled_advance(NrdSettled *settled, uint64_t below);

/* Sets the frontier and the set. Entries that are not ascending, below the frontier, at or above hwm, or too many are
 * left out (a record left out is delivered again). */
void nrd_settled_set(NrdSettled *settled, const NrdFrontier *state, uint64_t hwm);

/* Copies into *ret_state, whose ahead is cleared first. */
void nrd_settled_get(const NrdSettled *settled, NrdFrontier *ret_state);

#endif
