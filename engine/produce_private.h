/* What producer.c and produce.c share: the producer, and how a round is asked for; and what topic_produce.c has of it. */
#ifndef NRD_ENGINE_PRODUCE_PRIVATE_H
#define NRD_ENGINE_PRODUCE_PRIVATE_H

#include "engine/engine_private.h"

/* What a handle holds without a sync, before it is committed in the background, or by who writes. */
#define NRD_PRODUCE_NOW_BYTES (1 * NRD_MIB)
#define NRD_PRODUCE_NOW_RECORDS 1000
#define NRD_PRODUCE_FULL_BYTES (4 * NRD_MIB)

/* How many rounds a thread commits before it hands the rest over: it has its own work to answer. */
#define NRD_ROUNDS_OF_A_PRODUCER 64
#define NRD_ROUNDS_OF_A_WORKER 4
#define NRD_ROUNDS_OF_A_VERB 1

struct NrdProducer {
    const NrdEngineTable *table; /* first: see table.h */
    NrdPartition *partition;     /* holds a reference to its topic */
    bool want_ranges;
    bool once;   /* of nrd_produce_commit: records that failed are not kept; who calls it has made the claim, if any */
    gint n_refs; /* atomic */
    /* guarded by the partition's produce lock */
    GList link;
    bool claimed;   /* the ingress knows of it: no round takes its records before */
    bool committed; /* something, since nrd_produce_rest looked last */
    bool closed;
    NrdRecordBatch *pending;
    NrdRecordBatch *in_flight; /* what the round under way commits, or NULL */
    NrdRecordBatch *spare;     /* empty */
    int untold_errno;          /* failure of a background commit that nobody was told yet */
    int failing_errno;         /* result of the last commit */
    uint64_t first;            /* offset that the last commit gave its first record */
    GString *ranges;
};

/* Whoever commits beside the dispatcher says so first (engine/ingress/ingress.h): makes the claims of all producers that hold
 * records and have made none. Not earlier than that: until then the dispatcher knows which offsets it gets; and the wait for
 * it, or for the disk, is a commit's and no open's. Returns the failure of one, which asks for the commit; or, for NULL, of
 * any. The others' programs hear of theirs later. No lock held; blocks. */
int nrd_produce_claim(NrdPartition *partition, const NrdProducer *one) NRD_MUST_CHECK;

/* The caller has the role: commits until nobody wants anything, or it has done its share, or somebody waits for the role;
 * then gives it up. What is left over is for who waits, or for a worker. Produce lock held, and released. */
void nrd_produce_run_and_unlock(NrdPartition *partition, unsigned max_rounds);

/* A background commit is due in delay_ms, or earlier when it was due then. Produce lock held. */
void nrd_produce_arm_linger_locked(NrdPartition *partition, int64_t delay_ms);

/* Commits what all producers hold, in max_rounds at most, or leaves word to who has the role. May block on the disk. */
void nrd_produce_flush(NrdPartition *partition, unsigned max_rounds);

#endif
