/* What the tests of the engine share: an engine over a real folder, with one topic `t` whose first partition is pinned,
 * and a file system table that fails when told to. */
#ifndef NRD_TEST_ENGINE_FIXTURE_H
#define NRD_TEST_ENGINE_FIXTURE_H

#include "engine/engine.h"

#include <glib.h>
#include <stdatomic.h>

typedef struct Fixture {
    char *path;
    NrdEngineOptions options; /* data_path is filled in */
    NrdEngine *engine;
    NrdTopic *topic;
    NrdPartition *partition;
} Fixture;

/* The next fdatasync fails; opens (with this errno), writes (ENOSPC), fsyncs and unlinks (EPERM) fail while these are set;
 * calls that were made. */
extern atomic_int fail_fdatasync, fail_open, fail_pwritev, fail_fsync, fail_unlink;
extern atomic_int n_fdatasync, n_pread, n_unlink;
extern atomic_int renames_left; /* so many succeed, then they fail (ENOSPC); INT_MAX: all do */

void fixture_set_up(Fixture *f, gconstpointer data);
void fixture_tear_down(Fixture *f, gconstpointer data);

/* The engine's own start and stop, as of a daemon; for restarts inside a test. */
void fixture_start(Fixture *f);
void fixture_stop(Fixture *f);

/* Commits alone: the result of the sync. */
int sync_now(NrdProducer *producer);
void produce(NrdPartition *partition, const char *payload);

typedef struct Got {
    NrdWaiter waiter;
    int error; /* 1: not called back yet */
    int n_calls;
    uint64_t offset, nonce;
    char payload[64];
} Got;

void on_delivery(void *user_data, int error, const NrdDelivery *delivery);
void take(NrdPartition *partition, Got *got, int64_t wait_ms);

char *read_log(NrdPartition *partition); /* g_free */
void assert_log(NrdPartition *partition, const char *expected);

/* Files of the partition's folder whose names end so. */
unsigned count_files(Fixture *f, const char *suffix);

#endif
