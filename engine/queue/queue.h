/* The delivery state of one partition: which offsets are leased, which are settled, and the frontier.
 *
 * Pure: no I/O, no locks, no clock; the partition guards it and passes the time. An offset below the high watermark is
 * in exactly one state: settled (below the frontier or in the acked-ahead set), leased, or deliverable.
 * Frontier: the lowest offset not settled. Acked-ahead set: offsets above it that are settled already.
 * Source: DESIGN-level contract in docs/delivery.md; the seed's consumer.offset and consumer.ahead. */
#ifndef NRD_QUEUE_QUEUE_H
#define NRD_QUEUE_QUEUE_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct NrdQueue NrdQueue;

typedef struct NrdQueueLimits {
    int64_t visibility_timeout_ms;
    uint32_t max_in_flight;
    uint32_t max_acked_ahead; /* at most NRD_QUEUE_ACKED_AHEAD_MAX */
} NrdQueueLimits;

#define NRD_QUEUE_ACKED_AHEAD_MAX 4096

typedef struct NrdLease {
    uint64_t offset;
    uint64_t nonce; /* random, 63 bits */
} NrdLease;

/* The durable part: what consumer.offset and consumer.ahead hold. */
typedef struct NrdFrontier {
    uint64_t frontier;
    GArray *ahead; /* uint64_t, ascending, all above frontier */
} NrdFrontier;

/* limits->visibility_timeout_ms > 0. A change holds for leases taken or extended from then on. */
NrdQueue *nrd_queue_new(const NrdQueueLimits *limits);
void nrd_queue_free(NrdQueue *queue); /* takes NULL */
void nrd_queue_configure(NrdQueue *queue, const NrdQueueLimits *limits);

/* Sets the recovered state; leases are dropped. Offsets at or above hwm are forgotten (frontier <= hwm). */
void nrd_queue_restore(NrdQueue *queue, const NrdFrontier *state, uint64_t hwm);

/* Copies the durable part into *ret_state (ret_state->ahead is cleared and filled; it is the caller's). */
void nrd_queue_snapshot(const NrdQueue *queue, NrdFrontier *ret_state);

/* Settling in two steps, between which it is made durable. prepare, once or several times, says which of the leases can be
 * settled, in errors (0, or as nrd_queue_ack); these stay leases, and do not lapse, and what else is settled meanwhile
 * leaves them their room. The prepared snapshot is the durable part as it will be, and equals the other one when nothing
 * is prepared. Then settling ends: conclude, for each that was prepared, makes its leases settled, or, not durable, leases
 * as before, with a fresh timeout where theirs is over; then end_prepared. restore and seek drop what is prepared: then
 * conclude puts -ESTALE in the place of 0.
 * A lease that is prepared cannot be acked, nacked or extended by others: -EAGAIN. */
typedef struct NrdSettling {
    const NrdLease *leases;
    size_t n;
    int *errors; /* n */
} NrdSettling;

/* Returns how many are prepared. */
size_t nrd_queue_prepare(NrdQueue *queue, const NrdSettling *settling, int64_t now_mono_ms);
void nrd_queue_snapshot_prepared(const NrdQueue *queue, NrdFrontier *ret_state);
void nrd_queue_conclude(NrdQueue *queue, const NrdSettling *settling, bool durable, int64_t now_mono_ms);
void nrd_queue_end_prepared(NrdQueue *queue, bool durable);

/* Leases the lowest deliverable offset in [oldest, hwm). nonce is a fresh random number (the top bit is ignored).
 * *ret_found is false when nothing can be delivered: nothing there, max_in_flight reached, or the acked-ahead set is
 * full and the offset that blocks the frontier is leased. The set counts as full for an offset too that would not fit
 * into a slot of consumer.ahead. Offsets below oldest count as settled. A lapsed lease holds its offset until
 * nrd_queue_expire has run. */
void nrd_queue_take(NrdQueue *queue, uint64_t oldest, uint64_t hwm, int64_t now_mono_ms, uint64_t nonce,
                    NrdLease *ret_lease, bool *ret_found);

/* Whether nrd_queue_take would find something (it too settles what is below oldest, hence no const). */
bool nrd_queue_deliverable(NrdQueue *queue, uint64_t oldest, uint64_t hwm);

/* Whether what nrd_queue_take would find now can be acked whatever the holders of the other leases do: it is the offset
 * at the frontier, or the acked-ahead set has room for it and for all of them. */
bool nrd_queue_sure(NrdQueue *queue, uint64_t oldest, uint64_t hwm);

/* The run that nrd_queue_take_run would lease: its first offset, and how many, at most max, follow each other from there.
 * 0: nothing can be delivered. sure: only what nrd_queue_sure would say of each, the others being leased. Not const, as
 * nrd_queue_deliverable. Costs O(1) for what was never leased, else O(n log n_ahead). */
uint32_t nrd_queue_peek(NrdQueue *queue, uint64_t oldest, uint64_t hwm, bool sure, uint32_t max, uint64_t *ret_first);

/* Leases the offsets from `first` on, at most n, as nrd_queue_take one after the other: as many of them as are still what
 * a take would find; how many. Their nonces are those given, with the top bit cleared there too. */
uint32_t nrd_queue_take_run(NrdQueue *queue, uint64_t oldest, uint64_t hwm, bool sure, int64_t now_mono_ms,
                            uint64_t first, uint64_t *nonces, uint32_t n);

/* Each acts on a live lease. -ESTALE: no such lease (lapsed, settled, superseded, forged). A lease whose time is over is
 * lapsed even before nrd_queue_expire has run. ack: -EAGAIN when the acked-ahead set is full or
 * the offset would not fit into a slot beside it (the lease stays); never for the offset at the frontier. */
int nrd_queue_ack(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms) NRD_MUST_CHECK;
/* Acks one after the other up to the first that cannot be: returns how many were, and why it stopped in *ret_error (0:
 * there are no more). The frontier is moved once for those that follow each other from it. */
size_t nrd_queue_ack_many(NrdQueue *queue, const NrdLease *leases, size_t n, int64_t now_mono_ms, int *ret_error);
int nrd_queue_nack(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms) NRD_MUST_CHECK;
int nrd_queue_extend(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms) NRD_MUST_CHECK;

/* Whether this very lease is live. */
bool nrd_queue_leased(const NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_mono_ms);

/* The offset behind this live lease and all up to end (exclusive) can never be read: settles them without a reader.
 * When the set cannot hold them all, those that fit are settled and the rest will be met again; the lease itself is
 * given back if even it does not fit. Other leases on what is settled are dropped. Returns how many offsets were
 * settled; 0 for a lease that is not there, or is prepared. From the frontier the cost does not depend on the range. */
uint64_t nrd_queue_skip(NrdQueue *queue, NrdLease lease, uint64_t end);

/* Gives back every lease whose time is over, but those that are prepared to be settled: their timeout starts again.
 * Returns how many were given back. */
uint32_t nrd_queue_expire(NrdQueue *queue, int64_t now_mono_ms);

/* Monotonic time at which the next lease ends, or INT64_MAX. */
int64_t nrd_queue_next_expiry_ms(const NrdQueue *queue);

/* Moves the frontier; drops every lease and the acked-ahead set. */
void nrd_queue_seek(NrdQueue *queue, uint64_t frontier);

uint64_t nrd_queue_frontier(const NrdQueue *queue);
uint32_t nrd_queue_in_flight(const NrdQueue *queue);
uint32_t nrd_queue_acked_ahead(const NrdQueue *queue);

/* How many offsets of [begin, end) are acked ahead. O(log n) for each run of them. */
uint64_t nrd_queue_acked_ahead_in(const NrdQueue *queue, uint64_t begin, uint64_t end);

#endif
