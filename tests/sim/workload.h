/* Short scripts through engine.h, each of which tells a journal what it asks for and what it is promised.
 *
 * A script goes on whatever the disk does: a step that fails is tried again; then the disk is made well (heal), poisoned
 * partitions are reopened, and it has to succeed. Or, in the mode that restarts, the engine is closed on the sick disk and
 * opened on the well one. After each step the engine is at rest (nothing waits to be dispatched or copied), so that runs
 * are nearly the same though the engine has threads.
 *
 * Threads: one script at a time in a process. */
#ifndef NRD_TEST_WORKLOAD_H
#define NRD_TEST_WORKLOAD_H

#include "tests/sim/oracle.h"

typedef enum WorkloadMode {
    WORKLOAD_RETRY,   /* try again in the same process */
    WORKLOAD_RESTART, /* after the second failure: close, heal, open */
} WorkloadMode;

typedef struct WorkloadHooks {
    void (*begin)(void *user_data);              /* everything before is preparation: no faults there */
    void (*heal)(void *user_data);               /* the disk is well from now on */
    bool (*well)(void *user_data);               /* whether it is */
    bool (*failed)(void *user_data);             /* whether it has been otherwise */
    unsigned (*n_syncs_failed)(void *user_data); /* of segments, up to now */
    void (*end)(void *user_data);                /* the script is at its end, and the engine about to be closed */
    void (*tighten)(void *user_data, uint64_t capacity_bytes); /* how much the disk holds, until it is healed */
    void *user_data;
} WorkloadHooks;

struct World;

typedef struct Workload {
    const char *name;
    const char *what; /* for --list */
    void (*run)(struct World *world);
} Workload;

/* By name; the end has no name. */
extern const Workload workloads[];
const Workload *workload_find(const char *name);

/* Runs it on the store that nrd_io shows, until the engine is closed: NULL, or what was violated while it ran (g_free;
 * then the engine is as it is, and the process is to be ended). */
char *workload_run(const Workload *workload, Oracle *oracle, WorkloadMode mode, const WorkloadHooks *hooks);

#endif
