/* The steps that scripts are made of. Each returns when it has succeeded, or has been given up (in the mode that restarts),
 * or ends the run with a violation. */
#ifndef NRD_TEST_WORKLOAD_PRIVATE_H
#define NRD_TEST_WORKLOAD_PRIVATE_H

#include "tests/sim/workload.h"

#include <setjmp.h>

#define WORLD_HANDLES 2 /* producers of a partition, or of a topic */

/* Records that are with a producer and not acknowledged. */
typedef struct Pending {
    int ids[ORACLE_MAX_RECORDS];
    int n;
} Pending;

typedef struct Handle {
    NrdProducer *producer;
    NrdTopicProducer *topic_producer;
    Pending pending;
} Handle;

typedef struct Lease {
    uint64_t offset, nonce;
    bool live;
} Lease;

typedef struct PartitionWorld {
    Handle handles[WORLD_HANDLES];
    NrdPartition *pinned;
    GArray *leases; /* of Lease */
} PartitionWorld;

typedef struct World {
    Oracle *oracle;
    WorkloadMode mode;
    const WorkloadHooks *hooks;
    NrdEngine *engine;
    NrdTopic *topics[ORACLE_MAX_TOPICS];
    PartitionWorld partitions[ORACLE_MAX_TOPICS][ORACLE_MAX_PARTITIONS];
    Handle topic_handles[ORACLE_MAX_TOPICS][WORLD_HANDLES];
    unsigned n_steps_failed;
    uint64_t n_poisons;            /* that the engine has counted, as seen */
    bool mixed[ORACLE_MAX_TOPICS]; /* others than its own producers commit to its partitions */
    char *why;
    jmp_buf end;
} World;

/* Ends the run. */
G_GNUC_NORETURN void world_fail(World *world, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* Whether a step that has failed with rc for the *n-th time (counted here) is to be tried again. */
bool world_again(World *world, int *n, int rc, const char *what);

void world_open(World *world);
void world_close(World *world);   /* cleanly */
void world_restart(World *world); /* both */
void world_rest(World *world);    /* waits until nothing is under way */
void world_begin(World *world);
/* From now on the disk has room for so much more, until it is healed. */
void world_tighten(World *world, uint64_t free_bytes);

int world_create(World *world, const char *name, unsigned n_partitions, const char *config);
void world_config(World *world, int topic, const char *text);
void world_delete(World *world, int topic);
void world_attach(World *world, int parent, int child);
void world_detach(World *world, int parent, int child);

/* n records of about size bytes, in one commit; a key for every other one if keyed. */
void world_produce(World *world, int topic, unsigned partition, unsigned handle, unsigned n, size_t size, bool keyed);
/* One sync, and its result; the journal is told nothing. */
int world_sync(NrdProducer *producer);
void world_add(World *world, int topic, unsigned partition, unsigned handle, unsigned n, size_t size, bool keyed);
void world_close_handles(World *world, int topic);
void world_produce_to_topic(World *world, int topic, unsigned handle, unsigned n, size_t size, bool keyed);

void world_roll(World *world, int topic, unsigned partition);
void world_trim(World *world, int topic, unsigned partition, uint64_t offset);
void world_seek(World *world, int topic, unsigned partition, uint64_t offset);
void world_reopen(World *world, int topic, unsigned partition);
uint64_t world_hwm(World *world, int topic, unsigned partition);

/* Until everything below `oldest` was deleted; for a while only, once the disk has failed. */
void world_wait_retention(World *world, int topic, unsigned partition, uint64_t oldest);
/* Everything below the newest n bytes of records may go. */
void world_bound(World *world, int topic, unsigned partition, uint64_t n_bytes);
/* Leases n records, the lowest that are open; acks those of the leases whose number is a multiple of every (from 0); gives
 * the others back. */
void world_take(World *world, int topic, unsigned partition, unsigned n);
void world_ack(World *world, int topic, unsigned partition, unsigned every);
void world_ack_durably(World *world, int topic, unsigned partition, unsigned every);
void world_nack(World *world, int topic, unsigned partition);
void world_extend(World *world, int topic, unsigned partition);
void world_sync_frontier(World *world, int topic, unsigned partition);

#endif
