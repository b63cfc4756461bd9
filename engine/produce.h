/* Commits to partitions, for the other files of the engine; and when those happen that nobody waits for. */
#ifndef NRD_ENGINE_PRODUCE_H
#define NRD_ENGINE_PRODUCE_H

#include "engine/engine_private.h"

/* ---- produce.c ---- */

void nrd_produce_init(NrdPartition *partition);
void nrd_produce_clear(NrdPartition *partition);

/* Takes the committer role, waiting for a round under way to end: -EIDRM or -ENODEV when the partition was closed, which
 * keeps the role for ever. */
int nrd_produce_enter(NrdPartition *partition) NRD_MUST_CHECK;

/* Gives it back; what arrived meanwhile is committed. */
void nrd_produce_leave(NrdPartition *partition);

/* The caller has the role and keeps it for ever: from now on nobody waits for it. */
void nrd_produce_shut(NrdPartition *partition);

/* Commits what producers hold now, in the caller's thread; waits for a commit under way. For shutdown. */
void nrd_produce_flush_all(NrdPartition *partition);

/* Producers that have committed nothing since the last call, and hold nothing, give their claims back, which the next commit
 * makes anew. Costs a load where there are none. Memory only. */
void nrd_produce_rest(NrdPartition *partition);

/* Answers who waits for a commit when none can happen any more. The caller has the role and keeps it. */
void nrd_produce_fail_waiters(NrdPartition *partition, int error);

/* Commits the batch (taken over) in one run of offsets, in a round with whatever producers of the partition hold. On
 * failure nothing of it is left, and nothing of it will be tried again. The caller has a pin. Blocks. */
int nrd_produce_commit(NrdPartition *partition, NrdRecordBatch *batch, uint64_t *ret_first) NRD_MUST_CHECK;

/* Makes visible what a crash in the middle of a commit has left above the high watermark. The caller has a pin. Blocks. */
int nrd_produce_expose(NrdPartition *partition) NRD_MUST_CHECK;

/* ---- lingers.c ---- */

#define NRD_MORE_FOLLOWS_MS 2 /* how long a commit that is due waits for the rest of a write that was cut */

NrdLingers *nrd_lingers_new(NrdTimers *timers);
void nrd_lingers_free(NrdLingers *lingers); /* no producer is left; takes NULL */

/* A background append after delay_ms, or when one is arranged that comes earlier. Never blocks. */
void nrd_lingers_arm(NrdTopic *topic, int64_t delay_ms);

#endif
