/* What lanes.c (who has what to get), parts.c (how parts come and end), names.c (the offsets that they will get), order.c
 * (what may go), batch.c (what a worker does at once) and dispatcher.c (the workers) share.
 *
 * Order. A part is not committed, in whatever partition, before all earlier parts that name the same partition are: but
 * for those that go with it, before it in the same commit. Records with one key name one partition (for one number of
 * partitions), so they are committed in the order of the WAL, wherever parts are sent: within each partition they stand in
 * that order. A part that waits for one in another lane lets those of other partitions pass. The earliest part of a
 * partition waits for nothing, so nothing waits in a circle.
 *
 * With one exception. What a replay has to look up in a partition that fails does not go to a sibling, since it may be
 * committed where it is; and it does not hold up what is behind it. It stands aside: what is behind it may be committed
 * before it. Once it was looked up, and was not there, it may go to a sibling like any other part. */
#ifndef NRD_INGRESS_DISPATCHER_PRIVATE_H
#define NRD_INGRESS_DISPATCHER_PRIVATE_H

#include "engine/ingress/dispatcher.h"

typedef enum NrdLaneState {
    NRD_LANE_IDLE,    /* nothing to get */
    NRD_LANE_READY,   /* in the line for a worker */
    NRD_LANE_RUNNING, /* a worker has it */
    NRD_LANE_WAITING, /* after a failure, until retry_ms */
} NrdLaneState;

typedef struct NrdLane {
    char *topic; /* of the latest who needed it; the id is what counts */
    char id[NRD_ENTRY_ID_DIGITS + 1];
    uint32_t partition;
    NrdLaneState state;
    GList link; /* in the line, or among those that wait */
    GQueue parts;
    uint32_t n_running;   /* parts that the worker has taken off `parts` */
    uint32_t n_ready;     /* as many at the head of `parts` may go: as of the last nrd_order_settle */
    GQueue order;         /* of NrdPart: all that name this partition and are not done, in whatever lane; by sequence */
    uint64_t order_bytes; /* of them */
    bool no_room;         /* the last pass failed because the disk is full: one part at a time */
    bool may_verify;      /* some of `parts` may have `verify` */
    bool verifying;       /* ... one of them to be looked up */
    uint32_t n_stamped;   /* parts of entries that are being written */
    uint64_t n_stamped_records;
    uint32_t n_claims; /* granted, or on the way to it */
    uint32_t n_granted;
    uint32_t n_holders; /* claims that take its names back: no worker begins with it meanwhile */
    uint32_t n_failed;  /* passes, since the last that did not */
    int64_t retry_ms;   /* monotonic */
    /* Nobody but this lane commits to the partition, and its next part will get the offset `expected`. */
    bool exact;
    uint64_t expected;
} NrdLane;

typedef struct NrdPart {
    GList link;       /* in its lane */
    GList all_link;   /* in NrdDispatcher.all */
    GList order_link; /* in its home's */
    NrdLane *home;    /* of `partition` */
    bool goes;        /* see order.c */
    bool aside;       /* nothing waits for it any more */
    bool taken;       /* off its lane's `parts`: a worker has it */
    NrdPending *entry;
    uint32_t index;     /* in the entry's table */
    uint32_t partition; /* by the entry: with the sequence, what the part is known by */
    uint32_t n_records;
    size_t size;
    uint64_t expected; /* in the lane where it is, or NRD_ENTRY_OFFSET_UNKNOWN */
    bool verify;       /* replayed: it may have been committed, at `expected` */
    uint32_t to;       /* the lane where it is: `partition`, or a sibling */
    uint64_t note;     /* not committed before a checkpoint has this: where it goes was not in its entry */
    int64_t moved_ms;
    uint32_t n_moves; /* since its last rest: see lanes.c */
} NrdPart;

struct NrdDispatcher {
    NrdDispatcherOptions options;
    pthread_mutex_t lock;
    pthread_cond_t work;   /* something for a worker */
    pthread_cond_t change; /* parts were finished */
    /* guarded by lock */
    GHashTable *lanes; /* by id and partition; owns */
    GQueue
        incoming; /* of NrdPending: durable, its parts still count as being written; a worker that wakes takes it in */
    GQueue ready; /* of NrdLane */
    GQueue waiting;     /* of NrdLane */
    GQueue running;     /* of NrdLane */
    GQueue all;         /* of NrdPart: everything that is not done */
    uint64_t n_strayed; /* ... and is not in the lane of the partition that it names */
    uint64_t memory_bytes;
    uint64_t pending_bytes; /* of entries in the WAL that are not done */
    unsigned n_no_room;     /* lanes */
    uint64_t top;           /* every entry below was added */
    uint64_t trust;         /* entries below do not name offsets truly any more */
    uint64_t notes, noted;  /* made, and those that a stored checkpoint has */
    int64_t checkpoint_at;  /* monotonic; 0: none is due */
    bool checkpointing;
    bool wal_due;
    bool started;
    bool stopping;
    unsigned n_idle;
    int64_t told_ms; /* when the log last said that records are moved; monotonic */
    GArray *workers; /* of pthread_t */
};

/* ---- lanes.c; the lock is held ---- */

NrdLane *nrd_lane_find(NrdDispatcher *d, const char *id, uint32_t partition); /* or NULL */
NrdLane *nrd_lane_get(NrdDispatcher *d, const char *topic, const char *id, uint32_t partition);
void nrd_lane_put(NrdDispatcher *d, NrdLane *lane); /* frees it when nobody needs it */
void nrd_lane_set_state(NrdDispatcher *d, NrdLane *lane, NrdLaneState state);
void nrd_lane_wake(NrdDispatcher *d, NrdLane *lane); /* ready, if it was idle */

static inline uint32_t nrd_lane_n_parts(const NrdLane *lane)
{
    return lane->parts.length + lane->n_running;
}

/* Before the next part of its home that stands in the lane: of those that name one partition the earlier ones come first in
 * every lane, at all times. Where there is none, before *front (NULL: last); *front is the part then, if it was inserted
 * there. Several are inserted the last one first. */
void nrd_lane_insert(NrdLane *lane, NrdPart *part, GList **front);

/* All parts of the lane that may move now go to the lane of partition `to`; whether any did. */
bool nrd_lane_move(NrdDispatcher *d, NrdLane *lane, uint32_t to, int64_t now_ms);

/* ---- parts.c; the lock is held ---- */

/* The entries that were added and that no worker has taken in yet. */
void nrd_dispatcher_take_in_locked(NrdDispatcher *d);

/* The part is done with. The entry is returned when it was its last part, to be freed without the lock. */
NrdPending *nrd_part_finish(NrdDispatcher *d, NrdLane *lane, NrdPart *part);

/* ---- names.c; the lock is held ---- */

/* Before a worker takes parts of it: finds out again what offsets they will get, if that was lost. */
void nrd_lane_name(NrdDispatcher *d, NrdLane *lane);

/* The first of those that were being written is added to the lane: where it goes. When its entry does not tell, or not truly
 * any more, since something came between while it was written, its place in the lane does: a checkpoint has to know. */
void nrd_name_added(NrdDispatcher *d, NrdLane *lane, NrdPart *part);

/* ---- order.c; the lock is held ---- */

void nrd_order_join(NrdDispatcher *d, NrdPart *part, NrdLane *home); /* behind all that are there */
void nrd_order_leave(NrdDispatcher *d, NrdPart *part);               /* done: what waited for it is ready */
void nrd_order_place(NrdDispatcher *d, NrdPart *part, uint32_t to);  /* it is in another lane now */
void nrd_order_step_aside(NrdDispatcher *d, NrdPart *part);          /* what waited for it is ready */

/* Before a worker takes parts of the lane and names offsets: those that may go come first, and n_ready says how many. When
 * the order is changed by that, no name holds, and a checkpoint has to say so before anything of it is committed. */
void nrd_order_settle(NrdDispatcher *d, NrdLane *lane);

/* ---- dispatcher.c ---- */

/* False: there are as many as may be, or the system gives no further thread. Lock held. */
bool nrd_dispatcher_add_worker_locked(NrdDispatcher *d);

/* One more job: wakes a worker, or starts one. Lock held. */
void nrd_dispatcher_signal_locked(NrdDispatcher *d);

#endif
