/* What fanout.c (links), fanout_info.c (who asks), workers.c (who works when), pass.c and copy.c (the work) share. */
#ifndef NRD_FANOUT_FANOUT_PRIVATE_H
#define NRD_FANOUT_FANOUT_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/fanout/cursor_store.h"
#include "engine/fanout/due_heap.h"
#include "engine/fanout/fanout.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct NrdLink NrdLink;

typedef enum NrdCursorState {
    NRD_CURSOR_IDLE,
    NRD_CURSOR_READY,   /* in its link's line */
    NRD_CURSOR_RUNNING, /* a worker has it */
    NRD_CURSOR_LINGER,  /* in `soon`: a commit came just now */
    NRD_CURSOR_RETRY,   /* in `soon`: after a failure */
    NRD_CURSOR_DELAYED, /* in `delayed`: its next record is not due */
} NrdCursorState;

/* A record of the batch that is not committed yet. */
typedef struct NrdPlanned {
    uint64_t offset;
    uint32_t partition; /* of the child */
    uint32_t n_failed;  /* passes in a row */
} NrdPlanned;

typedef struct NrdFanCursor {
    NrdLink *link;
    uint32_t partition; /* of the parent */
    /* guarded by the lock */
    NrdCursorState state;
    GList ready_link;
    NrdDueNode node; /* in `soon` or `delayed` */
    NrdDueNode tidy; /* in `soon` */
    bool again;      /* notified while it ran */
    bool kicked;     /* ... that something is well again */
    NrdFanoutRow shown;
    bool shown_known; /* shown.cursor is the cursor */

    /* of the worker that has it */
    NrdCursorStore store;
    bool loaded;
    bool reloaded; /* in this pass */
    uintptr_t identity;
    uint64_t offset;    /* everything below is copied, or lost for ever */
    uint64_t plan_to;   /* where the cursor goes when the plan is done */
    GArray *plan;       /* of NrdPlanned, ascending */
    void *source;       /* or NULL */
    int64_t due_ms;     /* of the record at `offset`; 0: not known */
    int64_t tidy_at_ms; /* monotonic; 0: nothing to tidy */
    bool used;          /* since the last tidying */
    bool keeps_file;    /* counted in NrdFanout.n_files */
    bool behind;        /* the file does not hold `offset`: a write or a sync failed */
    int told_errno;     /* of the file, told and not over yet */
    uint32_t n_failed;  /* passes in a row */
    int error;          /* of the last of them */
    int64_t retry_ms;   /* monotonic; not before. A kick changes it while nobody has the cursor */
    uint8_t claimed[NRD_FANOUT_MAX_PARTITIONS / 8];
} NrdFanCursor;

struct NrdLink {
    NrdFanout *fanout;
    void *parent, *child;
    char *parent_name, *child_name;
    NrdCursorOwner owner;
    int64_t attached_ms, delay_ms;
    atomic_bool stopping;
    atomic_uint turn;
    atomic_uint_fast64_t n_copied, n_dropped;
    /* guarded by the lock */
    GPtrArray *cursors; /* of NrdFanCursor*, by partition; grows only */
    GQueue ready;       /* of NrdFanCursor */
    GList ready_link;   /* in NrdFanout.ready */
    bool in_line;
    unsigned n_running;
};

struct NrdFanout {
    NrdFanoutOptions options;
    atomic_uint n_files; /* of cursors, kept open until they are tidied */
    pthread_mutex_t lock;
    pthread_cond_t work;   /* for an idle worker */
    pthread_cond_t time;   /* for the one that keeps the time: something is due earlier than it knows */
    pthread_cond_t change; /* a pass has ended */
    /* guarded by lock */
    GHashTable *parents;  /* topic -> GPtrArray of NrdLink*, oldest first */
    GHashTable *prepared; /* "parent/child" -> Prepared*, until the link starts (fanout.c) */
    GQueue ready;         /* of NrdLink: has cursors that are ready, and fewer than two workers */
    NrdDueHeap soon;      /* monotonic milliseconds */
    NrdDueHeap delayed;   /* Unix milliseconds */
    GArray *workers;      /* of pthread_t */
    unsigned n_idle;      /* of them, without the one that keeps the time */
    bool timekeeper;
    int64_t until_ms; /* monotonic; when that one wakes; 0: never */
    bool started;
    bool stopping;
};

/* ---- pass.c ---- */

typedef enum NrdOutcome {
    NRD_OUTCOME_IDLE,    /* everything is copied */
    NRD_OUTCOME_MORE,    /* another pass at once */
    NRD_OUTCOME_DELAYED, /* until due_ms */
    NRD_OUTCOME_FAILED,  /* until retry_ms */
} NrdOutcome;

/* What came of a pass, for the others to see. */
typedef struct NrdPassResult {
    NrdOutcome outcome;
    uint64_t hwm;
    int error;
} NrdPassResult;

/* One pass of a cursor that is RUNNING: tidies when that is due, then copies a batch when there is one. No lock held. */
NrdPassResult nrd_cursor_pass(NrdFanCursor *cursor);

/* Reads the file of a cursor; nothing is written. For frozen links. */
void nrd_cursor_peek(NrdFanCursor *cursor);

NrdFanCursor *nrd_fan_cursor_new(NrdLink *link, uint32_t partition);

/* Gives back what it keeps: the source, claims, the file. */
void nrd_cursor_rest(NrdFanCursor *cursor);
/* The last write before the fan-out ends. */
void nrd_cursor_flush(NrdFanCursor *cursor);
void nrd_cursor_free(NrdFanCursor *cursor);

/* Kept until it rests. */
int nrd_cursor_claim(NrdFanCursor *cursor, uint32_t partition) NRD_MUST_CHECK;
int nrd_cursor_open_source(NrdFanCursor *cursor) NRD_MUST_CHECK;

/* Whether the partition still has the files that the cursor is about. Memory only. */
bool nrd_cursor_same_files(const NrdFanCursor *cursor);

/* Behind a batch, not synced. A failure is told, and made good later. */
void nrd_cursor_write_file(NrdFanCursor *cursor);

static inline const NrdFanoutOps *nrd_cursor_ops(const NrdFanCursor *cursor)
{
    return &cursor->link->fanout->options.ops;
}

static inline NrdPlace nrd_cursor_place(const NrdFanCursor *cursor)
{
    return (NrdPlace){ cursor->link->parent_name, cursor->partition, (int64_t)cursor->offset };
}

static inline bool nrd_goes_away(int error)
{
    return error == -EIDRM || error == -ENODEV || error == -ESHUTDOWN;
}

/* ---- fanout.c; the lock is held ---- */

#define NRD_NOT_PREPARED UINT64_MAX /* where a cursor is that is not known yet */

/* The link of that child, or NULL; newest: of those that end beside each other the last that began. */
NrdLink *nrd_link_find_locked(NrdFanout *f, const void *parent, const char *child, bool newest);

/* ---- copy.c ---- */

/* The batch under way, or a new one, from the cursor on and below hwm; due_ms tells whether the delay ended it. */
int nrd_cursor_copy(NrdFanCursor *cursor, uint64_t hwm) NRD_MUST_CHECK;

/* ---- workers.c; the lock is held ---- */

void nrd_cursor_set_state(NrdFanCursor *cursor, NrdCursorState state, int64_t at_ms);

/* Takes it out of every queue. */
void nrd_cursor_detach(NrdFanCursor *cursor);

/* False: there are as many as may be, or the system gives no further thread. */
bool nrd_workers_add(NrdFanout *fanout);

void nrd_workers_join(NrdFanout *fanout); /* not held; stopping is set */

#endif
