/* Partitions that are lists in memory, and WAL, checkpoint and dispatcher over them: what the tests of the ingress share. */
#ifndef NRD_TESTS_INGRESS_STORE_H
#define NRD_TESTS_INGRESS_STORE_H

#include "fixture.h"

#include "engine/ingress/ingress.h"

#include <pthread.h>

#define N_PARTITIONS 4
#define WAIT_MS 20000
#define DAY_MS ((int64_t)24 * 3600 * 1000)

/* A topic that lives in memory: what it holds is what a disk would. */
typedef struct Store {
    pthread_mutex_t lock;
    GPtrArray *records[N_PARTITIONS]; /* of char* */
    /* set by the test while commits are under way */
    atomic_int fail[N_PARTITIONS]; /* passes that will fail; -1: all */
    atomic_bool poisoned[N_PARTITIONS];
    atomic_bool out[N_PARTITIONS]; /* of service: what is there waits, and goes to no sibling */
    atomic_bool gone, away, cold, full;
    atomic_bool warmed[N_PARTITIONS];
    atomic_bool readable;           /* partitions that fail can be looked into, as poisoned ones always can */
    atomic_bool shut[N_PARTITIONS]; /* ... but for those that cannot be opened */
    atomic_int slow_us;
    atomic_bool hangs;   /* commits of incarnation ID_A do not return */
    atomic_bool lingers; /* ... when they have been made */
    atomic_uint n_commits;
    GPtrArray *log; /* of char*: the records of all partitions as they were committed */
} Store;

void store_init(Store *s);

void store_clear(Store *s);

NrdIngressResult commit(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slices, size_t n_slices,
                        uint64_t *ret_first);

NrdIngressResult present(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slice, uint64_t offset,
                         bool *ret_present);

bool sibling(void *user_data, const NrdIngressTarget *target, uint32_t *ret_partition);

bool next_offset(void *user_data, const NrdIngressTarget *target, uint64_t *ret_offset);

void warm(void *user_data, const NrdIngressTarget *target);

NrdIngress *start_with(Fixture *f, Store *s, uint64_t memory_bytes, uint64_t segment_bytes);

NrdIngress *start(Fixture *f, Store *s);

/* Appends the draft (taken over) for the incarnation `id`, and waits for the answer, which is returned; sink may be NULL. */
int put_draft_of(NrdIngress *ingress, NrdEntryDraft *draft, const char *id, const NrdIngressSink *sink);

/* The same for ID_A. */
int put_draft(NrdIngress *ingress, NrdEntryDraft *draft, const NrdIngressSink *sink);

/* An entry of one record, for ID_A. */
int put(NrdIngress *ingress, uint32_t partition, const char *payload);

/* Nothing of ID_A is left; fails after WAIT_MS, as the other waits do. */
void wait_until_dispatched(NrdIngress *ingress);

/* The records of the partition in their order, a space between. */
void assert_store(Store *s, uint32_t partition, const char *expected);

/* How often the record is there, in all partitions. */
unsigned count(Store *s, const char *record);

/* So many more commits have failed. */
void wait_for_failures(uint64_t n);

/* Its place among the records of all partitions, as they were committed; it must be there. */
int at_in_log(Store *s, const char *record);

/* More parts have gone to a sibling than `before`, as the counter said. */
void wait_rerouted(uint64_t before);

/* What most tests begin with. */
typedef struct Rig {
    Fixture f, crashed; /* the second: for what a power cut leaves of the first */
    Store s;
} Rig;

void rig_set_up(Rig *rig, gconstpointer data);
void rig_tear_down(Rig *rig, gconstpointer data);

#endif
