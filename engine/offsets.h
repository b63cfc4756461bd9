/* Frontiers on disk, for the other files of the engine. */
#ifndef NRD_ENGINE_OFFSETS_H
#define NRD_ENGINE_OFFSETS_H

#include "engine/engine_private.h"

void nrd_offsets_init(NrdPartition *partition);
void nrd_offsets_clear(NrdPartition *partition);

/* Recovers the frontier from disk into the queue; hwm bounds it. Files that are damaged, or that speak of offsets at or above
 * end_offset, the one that the next record gets, are written anew. */
int nrd_offsets_open(NrdPartition *partition, uint64_t hwm, uint64_t end_offset) NRD_MUST_CHECK;

/* Mends such files, should that have failed at the open, before a record gets an offset that they call settled: after a crash
 * nobody would be given it. By the committer. Blocks; free when there is nothing to mend. */
int nrd_offsets_before_commit(NrdPartition *partition) NRD_MUST_CHECK;

/* Why progress of consumers cannot be written now, in one sentence (g_free); NULL: it can, as far as is known. Memory only. */
char *nrd_offsets_why_not(NrdPartition *partition);

/* The frontier on disk of a partition that is not open. Changes nothing. Blocks. */
int nrd_offsets_peek(NrdPartition *partition, uint64_t hwm, uint64_t *ret_frontier,
                     uint32_t *ret_n_acked_ahead) NRD_MUST_CHECK;

/* Notes that something was settled; arranges the tick. Queue lock held. */
void nrd_offsets_touch_locked(NrdPartition *partition);

/* Makes the frontier durable now (consumer.ahead), and with `level` consumer.offset too. Blocks. */
int nrd_offsets_sync(NrdPartition *partition, bool level) NRD_MUST_CHECK;

/* Leases that are to be settled durably; on the stack of who waits for that. */
struct NrdSettler {
    NrdSettling settling; /* guarded by queue_lock until it is done */
    NrdSettler *next;
    bool done; /* both guarded by offset_lock */
    int rc;
};

/* Makes these leases settled and durable in one step, along with all that is settled, and with what others want to settle
 * now: the cost is that of one sync. On failure no lease has changed, and every error is the failure; else errors says of
 * each lease what nrd_queue_prepare and nrd_queue_conclude say. Blocks. */
int nrd_offsets_settle(NrdPartition *partition, const NrdLease *leases, size_t n, int *ret_errors) NRD_MUST_CHECK;

/* The last write, before a close; stops the timers. */
int nrd_offsets_flush(NrdPartition *partition) NRD_MUST_CHECK;
/* Stops the timers and closes the files, writing nothing. */
void nrd_offsets_close(NrdPartition *partition);

#endif
