/* engine.h: producing to a partition, and to a topic as a whole. */
#ifndef NRD_ENGINE_ENGINE_PRODUCE_H
#define NRD_ENGINE_ENGINE_PRODUCE_H

#include "engine/engine_types.h"

/* ---- producing ---- */

/* A producer is one open handle's buffer of complete records. Records of one producer are committed in the order they
 * were added. want_ranges keeps a line for nrd_producer_read_ranges per commit. -EIDRM, -EROFS, -EIO (fault). */
int nrd_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer) NRD_MUST_CHECK;

/* Whether writing makes sense now: -EIO poisoned, -EIDRM, or the failure of a background commit of this producer (told
 * once; while it goes on failing and the buffer is full, told every time). Never blocks. */
int nrd_producer_check(NrdProducer *producer) NRD_MUST_CHECK;

/* A record that somebody wants to be stored; the bytes are whose the function says. */
typedef struct NrdNewRecord {
    const uint8_t *key; /* may be NULL when key_size is 0: no key */
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdNewRecord;

/* Adds complete records to the buffer; the bytes are copied. The caller has checked max_record_bytes. Memory only; a lock
 * is taken once for all of them. */
void nrd_producer_add_many(NrdProducer *producer, const NrdNewRecord *records, size_t n_records);
void nrd_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload,
                      size_t payload_size);

typedef enum NrdUrgency {
    NRD_URGENCY_LATER, /* linger_ms has been arranged; nothing to do now */
    NRD_URGENCY_NOW,   /* 1 MiB or 1,000 records are buffered: call nrd_partition_flush, after replying */
    NRD_URGENCY_FULL,  /* far more is buffered: reply to the writer only after nrd_producer_sync has called back */
} NrdUrgency;

/* Tells what the buffer needs after a write; arranges the background commit after linger_ms. more_follows: the same program
 * is about to write or sync more, within microseconds (the kernel has cut its write); then a commit that is due waits for it,
 * 2 ms at most. */
NrdUrgency nrd_producer_wrote(NrdProducer *producer, bool more_follows);

/* Commits in the background's name what the producers of the partition hold: runs a commit on this thread unless one is
 * under way already. A failure is kept for nrd_producer_check. May block on the disk. Needs no producer: after the reply
 * to a write its own may be closed at any moment. */
void nrd_partition_flush(NrdPartition *partition);

typedef enum NrdSyncScope {
    NRD_SYNC_OWN,  /* the result is about the producer's own records */
    NRD_SYNC_FILE, /* ... and about those of the others, committed with them */
    NRD_SYNC_BESIDE, /* as OWN, for somebody else than the writer: that a record was dropped is still the writer's to be told */
} NrdSyncScope;

/* Commits, durably, everything this producer holds, together with what the other producers of the partition hold, and
 * calls back. On failure the records stay in the buffer, in order. */
void nrd_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data);

/* A producer is counted: who may use it beside its close holds a reference. After the close a sync of it has nothing to
 * commit. */
NrdProducer *nrd_producer_ref(NrdProducer *producer);
void nrd_producer_unref(NrdProducer *producer);

/* Takes whole "pNNNNN first last\n" lines (the rest of a line comes with the next call) into buf; returns the bytes. Of
 * more than 1 MiB that nobody takes the oldest lines are lost. */
size_t nrd_producer_read_ranges(NrdProducer *producer, char *buf, size_t size);

/* Commits what is left (a failure is logged, and the records are dropped: their writer was told at close) and gives the
 * opener's reference back. Calls back (done may be NULL) when nothing of it is left. May block on the disk. */
void nrd_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data);

/* ---- producing to a topic ---- */

/* The same, for a topic as a whole: a sync calls back when the ingress WAL holds the records durably. They are then
 * committed to the partitions that their keys choose (FNV-1a 32 over the key, modulo the number of partitions; unkeyed
 * records take turns, and pass over a partition that is out of service), visible within milliseconds, tried again until
 * it succeeds, over restarts too; and go to another partition when theirs keeps failing. Each function is what the one of
 * NrdProducer with its name is, but for this:
 * open: -EIDRM, -EROFS, -EIO (the topic is out of service, or the ingress WAL cannot be read).
 * check: also -EIO while the topic is out of service; it may block then, to look whether that has passed.
 * sync: what the WAL's disk says, -EIDRM, -EAGAIN (far too much is waiting to be committed), -ENOSPC (also while the disk
 * has no room for what waits).
 * read_ranges: the lines come when the dispatcher has committed. */
int nrd_topic_producer_open(NrdTopic *topic, bool want_ranges, NrdTopicProducer **ret_producer) NRD_MUST_CHECK;
int nrd_topic_producer_check(NrdTopicProducer *producer) NRD_MUST_CHECK;
void nrd_topic_producer_add_many(NrdTopicProducer *producer, const NrdNewRecord *records, size_t n_records);
void nrd_topic_producer_add(NrdTopicProducer *producer, const void *key, size_t key_size, const void *payload,
                            size_t payload_size);
NrdUrgency nrd_topic_producer_wrote(NrdTopicProducer *producer, bool more_follows); /* NOW: call nrd_topic_flush */
void nrd_topic_flush(NrdTopic *topic);
void nrd_topic_producer_sync(NrdTopicProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data);
NrdTopicProducer *nrd_topic_producer_ref(NrdTopicProducer *producer);
void nrd_topic_producer_unref(NrdTopicProducer *producer);
size_t nrd_topic_producer_read_ranges(NrdTopicProducer *producer, char *buf, size_t size);
void nrd_topic_producer_close(NrdTopicProducer *producer, NrdDoneFn done, void *user_data);

#endif
