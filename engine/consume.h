/* Consuming, for the other files of the engine: the queue of a partition, and who waits for records. */
#ifndef NRD_ENGINE_CONSUME_H
#define NRD_ENGINE_CONSUME_H

#include "engine/engine_private.h"

/* ---- consume.c, consume_batch.c ---- */

void nrd_consume_init(NrdPartition *partition);
void nrd_consume_clear(NrdPartition *partition);
/* The queue is there from open to close; the caller opens or closes the partition. */
void nrd_consume_open(NrdPartition *partition, const NrdTopicConfig *config);
void nrd_consume_close(NrdPartition *partition);
/* Gives back what the consumers' cursor keeps in memory if nobody has read since the last call. Needs a pin. */
void nrd_consume_rest(NrdPartition *partition);
/* A higher cap frees slots: nrd_consume_wake afterwards, with no lock held. */
void nrd_consume_configure(NrdPartition *partition, const NrdTopicConfig *config);

/* A lease on the lowest deliverable record of an open partition; sure: as in nrd_partition_take_sure. Memory only. */
bool nrd_consume_lease(NrdPartition *partition, bool sure, NrdLease *ret_lease);

/* Sees to it that the lease that ends first is noticed. Queue lock held. */
void nrd_consume_arm_locked(NrdPartition *partition);

/* The cursor of the consumers, made when there is none; after its use the end of what was read (0: nothing). Read lock
 * held. */
NrdLogCursor *nrd_consume_cursor_locked(NrdPartition *partition);
void nrd_consume_cursor_done_locked(NrdPartition *partition, uint64_t end_offset);

/* Settles what can never be read, from a lease on up to next_offset; counted and logged. */
void nrd_consume_skip(NrdPartition *partition, NrdLease lease, uint64_t next_offset);

/* Why nothing can be taken from the partition any more, or 0. */
int nrd_consume_error(NrdPartition *partition) NRD_MUST_CHECK;

/* nrd_partition_take_batch, of at most max records; how many were leased. An open partition. */
int nrd_consume_batch(NrdPartition *partition, NrdBatch *batch, uint32_t max, uint32_t *ret_n) NRD_MUST_CHECK;

/* Whether there is one to be had; false for a closed partition. Memory only. */
bool nrd_consume_deliverable(NrdPartition *partition);

/* Reads the leased record and calls back, with it or with a failure (the lease is given back then). False: nobody was called;
 * it can never be read, and was passed over, or reading has failed while the line it was leased from has other partitions that
 * are well. No lock held. */
bool nrd_consume_serve(NrdPartition *partition, const NrdLine *line, NrdDeliverFn deliver, void *user_data,
                       NrdLease lease);

/* Reading has failed: those who take from every partition leave this one alone for a second, and are woken then. */
void nrd_consume_note_failing(NrdPartition *partition);
bool nrd_consume_is_failing(NrdPartition *partition); /* costs a load when it is not */

/* Hands out what has become deliverable to who waits: for the partition, then for the topic. No lock held. */
void nrd_consume_wake(NrdPartition *partition);

/* Answers every parked reader with error and fires every watch. */
void nrd_consume_interrupt(NrdPartition *partition, int error);

/* ---- topic_consume.c ---- */

void nrd_topic_line_init(NrdTopic *topic);

#endif
