/* engine.h: consuming a partition, and a topic as one queue; leases, and what settles them. */
#ifndef NRD_ENGINE_ENGINE_CONSUME_H
#define NRD_ENGINE_ENGINE_CONSUME_H

#include "engine/engine_types.h"

/* ---- consuming ---- */

/* A record under lease; the bytes are valid during the callback. */
typedef struct NrdDelivery {
    uint32_t partition;
    uint64_t offset;
    uint64_t nonce;
    int64_t timestamp_ms; /* commit time, Unix milliseconds */
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdDelivery;

/* delivery is NULL when error is not 0. */
typedef void (*NrdDeliverFn)(void *user_data, int error, const NrdDelivery *delivery);

/* A place in the line of waiting readers, embedded in its owner; zero it (or nrd_waiter_init) before each take. It may
 * be freed in the callback or after a cancel that returned true. */
typedef struct NrdWaiter {
    /* private to line.c, guarded by the line's lock */
    NrdDeliverFn deliver;
    void *user_data;
    GList link;
    int64_t deadline_ms; /* monotonic; 0: does not wait, INT64_MAX: for ever */
    bool sure;
    int state;
} NrdWaiter;

void nrd_waiter_init(NrdWaiter *waiter);

/* Leases the lowest deliverable record and hands it over. When there is none: wait_ms 0: -EAGAIN at once; else it waits,
 * up to wait_ms (-ETIMEDOUT) or for ever (-1). Other errors: -EIDRM, -ENODEV, -EIO. Records that can never be read are
 * skipped, counted and logged. A record found at once is handed over before the function returns. */
void nrd_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                        void *user_data);

/* As a take that does not wait, for a reader that settles by itself what it is given: leases only a record whose ack
 * will find room whatever the holders of other leases do, so that such readers side by side end with everything
 * settled. */
void nrd_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data);

/* A lease as its holder keeps it. */
typedef struct NrdHold {
    uint32_t partition;
    uint32_t note; /* the holder's own; a batch leaves the size there that its copy function told */
    uint64_t offset;
    uint64_t nonce;
} NrdHold;

/* Many records at a time. copy is called for one after the other, with a lock held: it copies what it needs and calls
 * nothing of the engine; it returns the bytes that the copy takes, at most UINT32_MAX, or 0 when there is no room for
 * it (that record is not leased, and the batch ends). A copy whose lease somebody else was faster to take is taken back:
 * uncopy drops the last so many bytes. */
typedef struct NrdBatch {
    size_t (*copy)(void *user_data, const NrdDelivery *delivery);
    void (*uncopy)(void *user_data, size_t size);
    void *user_data;
    bool sure;     /* as nrd_partition_take_sure */
    GArray *holds; /* of NrdHold: leases are added, one for each copy that stands, in its order */
    bool full;     /* copy had no room; false before */
    bool withheld; /* of a topic: a partition that cannot be read or opened now was passed over, and may have records */
} NrdBatch;

/* Leases records that are there now, the lowest first, while there is room. The errors are those of a take, but for
 * -EAGAIN: finding nothing is none; records may have been leased before one. */
int nrd_partition_take_batch(NrdPartition *partition, NrdBatch *batch) NRD_MUST_CHECK;

/* Gives up waiting. true: the callback will never be called and the caller owns the waiter again. false: it has been,
 * is being or will be called; before nrd_partition_take has been entered (another thread is about to) that call is made
 * by nrd_partition_take, with -EINTR. Holds no lock on return; may be called from any callback. */
bool nrd_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter);

/* LOOK changes nothing: 0 when the lease is live. */
typedef enum NrdVerb { NRD_VERB_ACK, NRD_VERB_NACK, NRD_VERB_EXTEND, NRD_VERB_LOOK } NrdVerb;

/* Acts on a live lease: -ESTALE, -EAGAIN (acked-ahead set full), -EIDRM. Memory only. Who waits may be woken (and
 * served) by this call. */
int nrd_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce) NRD_MUST_CHECK;

/* Settles one after the other up to the first that cannot be: how many took effect, and why it stopped in *ret_error (0:
 * all did; -EINVAL: of another partition). */
size_t nrd_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error);

/* Settles these leases, which are all of this partition, and makes that durable, with all that is settled: none of them is
 * settled before it is durable. Returns 0, and in errors (n) what became of each: 0, or as nrd_partition_settle says of an
 * ack. On failure, -ENOSPC and -EIO of the disk among others, no lease has changed, none has lapsed meanwhile, and the
 * failure stands in every error: the caller may try again, or give them back. A power cut before the next successful
 * write may find them settled all the same: the disk may have kept what it called a failure. Blocks: one sync. */
int nrd_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n,
                                 int *ret_errors) NRD_MUST_CHECK;

/* Makes all that is settled durable. May do the work on this thread. */
void nrd_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data);

/* Readability for poll: whether a take would find a record now, or fail at once, and a one-shot watch that calls notify (once,
 * on any thread, no lock held) when that may have become so, or the topic went away. set replaces; clear waits for nothing and
 * returns whether the watch was set: then notify was not and will not be called, else it was or is running. */
typedef struct NrdWatch {
    /* private to line.c */
    GList link;
    void (*notify)(void *user_data);
    void *user_data;
    bool set;
} NrdWatch;

bool nrd_partition_readable(NrdPartition *partition);
void nrd_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data);
bool nrd_watch_clear(NrdPartition *partition, NrdWatch *watch);

/* ---- consuming a topic: any of its partitions, in turn ---- */

/* A consumer of the topic keeps its partitions open. One that cannot be opened is left out, and said so in the log, until
 * it can be: each take looks. Blocks.
 * -EIDRM, -ENODEV, -EIO (out of service). */
typedef struct NrdTopicConsumer NrdTopicConsumer;
int nrd_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer) NRD_MUST_CHECK;
void nrd_topic_consumer_close(NrdTopicConsumer *consumer); /* takes NULL; its leases stay */

/* As their namesakes for one partition; the delivery says which one it is. Leases go round the partitions, so that a full
 * one starves none. Each partition hands out in its own order. One that cannot be read is passed over, for a second or until it
 * can be, while others are well, and so is one that cannot be opened; -EIO when none is well. */
void nrd_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                    void *user_data);
void nrd_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data);
int nrd_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch) NRD_MUST_CHECK;
bool nrd_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter);
bool nrd_topic_readable(NrdTopic *topic);
void nrd_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data);
bool nrd_topic_watch_clear(NrdTopic *topic, NrdWatch *watch);

/* As nrd_partition_settle; -EINVAL when the topic has no such partition. */
int nrd_topic_settle(NrdTopic *topic, uint32_t partition, NrdVerb verb, uint64_t offset, uint64_t nonce) NRD_MUST_CHECK;
size_t nrd_topic_settle_many(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error);

/* As nrd_partition_settle_durably; holds are in order of partition. First the partitions without any are synced, then the
 * others settled one after the other, up to the first that fails: what those before it had is settled, the leases of the
 * rest are as they were; errors says which. */
int nrd_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors) NRD_MUST_CHECK;

/* Makes all that is settled in any partition durable; the first failure. Blocks. */
void nrd_topic_sync_frontiers(NrdTopic *topic, NrdDoneFn done, void *user_data);

/* Receipts as text "partition:offset:nonce". */
#define NRD_RECEIPT_MAX 53
size_t nrd_receipt_write(uint32_t partition, uint64_t offset, uint64_t nonce, char buf[NRD_RECEIPT_MAX]);
int nrd_receipt_read(const char *text, size_t size, uint32_t *ret_partition, uint64_t *ret_offset,
                     uint64_t *ret_nonce) NRD_MUST_CHECK;
/* The lines at the front of text that are a receipt and a newline and nothing else: how many, at most max; holds has them,
 * with the size of the line, its newline included, as their note. */
size_t nrd_receipt_read_lines(const char *text, size_t size, NrdHold *holds, size_t max);

#endif
