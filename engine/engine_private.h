/* The joints of the engine: what its files share.
 *
 * Lock order (a thread takes them only from left to right). Held across a callback of engine.h: the first two while a
 * topic is deleted or the engine is closed, the topic guard also while the partitions of another incarnation are retired,
 * and the committer role when a round answers; so a callback opens, changes, rolls, trims, reopens and deletes nothing.
 *
 *   engine admin > topic guard > committer role > offset lock > queue lock > engine topics, topic lock, timers' lock
 *                                              > produce lock >
 *                                              > read lock > queue lock
 *                              > state lock > queue lock
 *   line lock (of a topic) > state lock; line lock > queue lock
 *
 *   The fan-out's lock (engine/fanout/fanout.h) comes after all of them, and nothing is called with it held.
 *   The ingress's lock (engine/ingress/ingress.h) comes after engine admin and before topics, topic, state and queue lock;
 *   a topic's produce lock comes before topic lock and state lock.
 *
 *   engine admin    mutex; held across the I/O of creating, removing and deleting topics, of attaching and detaching
 *                   children, and while a pass of the fan-out ends
 *   topic guard     mutex; held across the I/O of a change to one topic's record, and of opening and closing its
 *                   partitions: only callers of that topic wait (the seed takes the produce mutex before the guard; here
 *                   nobody opens while he has the role, because who commits has a pin)
 *   line lock       mutex; who waits for records (line.h); memory only
 *   state lock      mutex; whether a partition is open, and its pins; memory only
 *   committer role  the seed's produce lock: one thread at a time commits to, rolls, trims, reopens or closes a
 *                   partition's log; it covers the fdatasync of a commit. Not a mutex, since who arrives meanwhile must
 *                   not wait: `committing`, guarded by the produce lock
 *   offset lock     mutex; held across reads and writes of consumer.offset and consumer.ahead, their fdatasync too, and
 *                   while leases are settled durably: from the write of what will be settled until it is, or is not
 *   read lock       mutex; the consumers' cursor; held across a read of the log, and while a batch copies records
 *   the others      mutexes; memory only, never held across I/O
 *
 * Below all of them: the locks inside log/ and meta/, under which nothing here is called, and the one of the
 * housekeeping's clock. A loop's lock is taken after the guard or the role (a kick) and before the timers' lock. Timers
 * call back with no lock held; who waits for that (nrd_timer_drain) may have the guard and the role: no timer takes the
 * guard, and the linger's, which takes the role, does not wait for it. */
#ifndef NRD_ENGINE_ENGINE_PRIVATE_H
#define NRD_ENGINE_ENGINE_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/engine.h"
#include "engine/line.h"
#include "engine/local.h"
#include "engine/log/log.h"
#include "engine/meta/data_dir.h"
#include "engine/meta/metastore.h"
#include "engine/queue/offset_store.h"
#include "engine/queue/queue.h"
#include "engine/timer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct NrdHousekeeping NrdHousekeeping;
typedef struct NrdFanout NrdFanout;
typedef struct NrdIngress NrdIngress;
typedef struct NrdLingers NrdLingers;
typedef struct NrdSettler NrdSettler;

struct NrdEngine {
    const NrdEngineTable *table; /* first: see table.h */
    NrdDataDir *data_dir;
    NrdEngineOptions options; /* without pointers; defaults filled in */
    NrdHousekeeping *housekeeping;
    int root_fd; /* of data_dir */
    bool read_only;
    NrdTopicConfig defaults;
    NrdMetastore *meta;
    NrdTimers *timers;
    _Atomic(NrdIngress *) ingress; /* NULL: read-only, or its WAL could not be read yet; set once */
    pthread_mutex_t ingress_open;  /* held across an attempt to read it; nothing else is taken inside */
    int64_t ingress_retry_ms;      /* monotonic; guarded by ingress_open */
    int64_t ingress_delay_ms;
    NrdLingers *lingers;
    NrdFanout *fanout;
    atomic_bool started;  /* see nrd_engine_start; set with ingress_open held */
    atomic_bool stopping; /* parked readers were answered -ENODEV; no new ones */
    pthread_mutex_t admin;
    pthread_mutex_t topics_lock;
    GHashTable *topics; /* guarded by topics_lock; name -> NrdTopic*, one reference each */
};

struct NrdTopic {
    const NrdEngineTable *table; /* first: see table.h */
    gint refs;                   /* atomic */
    NrdEngine *engine;
    char *name;
    char id[NRD_INCARNATION_DIGITS + 1];
    atomic_bool deleted;
    bool making; /* being created, nobody else knows it: a fault is why it is not made */
    pthread_mutex_t guard;
    pthread_mutex_t lock;
    pthread_cond_t released; /* with lock: a hold was given back */
    NrdLine line;            /* of those who consume the topic as one queue */
    atomic_uint turn;        /* the partition that the next of them is offered first */
    atomic_uint n_links;     /* to children, that fan.c copies to */
    /* guarded by lock */
    NrdTopicRecord *record; /* NULL when it is damaged */
    char *fault;            /* why the topic is out of service, or NULL */
    bool lost;              /* ... until the restart: its record is damaged, or half removed */
    GPtrArray *partitions;  /* of NrdPartition*, grows only */
    GPtrArray *retired;     /* of NrdPartition*: of an incarnation that is gone; handles may still point at them */
    uint32_t n_holds;
    char *refusal; /* refusal.c: the last one, in words; NULL: none since the start */
    int64_t refused_ms;
    atomic_bool delayed; /* family.c: a fan-out child with a delay; follows the record */

    /* topic_produce.c */
    bool lingering; /* guarded by the lock of NrdLingers */
    GMutex produce_lock;
    /* guarded by produce_lock */
    GQueue producers; /* of NrdTopicProducer*, by their link */
    uint32_t next_turn;
};

/* One call that waits for a commit. */
typedef struct NrdSyncWaiter {
    NrdProducer *producer; /* referenced */
    NrdSyncScope scope;
    NrdDoneFn done;
    void *user_data;
} NrdSyncWaiter;

typedef enum NrdPartitionState {
    NRD_PARTITION_CLOSED,
    NRD_PARTITION_OPEN,
    NRD_PARTITION_CLOSING, /* by who has the topic's guard; nobody has a pin */
    NRD_PARTITION_FAULT,   /* could not be opened; the next pin tries again */
} NrdPartitionState;

/* What is known of a partition while it is closed. */
typedef struct NrdPicture {
    NrdLogStats stats;
    uint64_t frontier;
    uint64_t n_lost; /* nrd_partition_lost_in_lag */
    uint32_t n_acked_ahead;
} NrdPicture;

/* How long a partition is in a rendering, and what it held then. */
typedef struct NrdMeasured {
    const NrdRendering *rendering; /* NULL: not measured */
    uint64_t oldest_offset;
    uint64_t hwm;
    uint64_t text_bytes;
    uint64_t bytes;
} NrdMeasured;

/* There are tens of thousands, most of them closed: its locks are glib's, which take a word each. */
struct NrdPartition {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;             /* who owns it */
    uint32_t number;
    atomic_bool closed; /* for good: deleted, retired or shut down; the log answers -ESHUTDOWN */
    /* Each where it fills a gap: there may be partitions by the million. */
    atomic_bool folder_lost;   /* anew.c: the folder was missing, and nobody has said that it is known */
    atomic_bool warm;          /* produce.c: committed to since the open, the next commit is worth preparing for */
    atomic_bool offsets_claim; /* offsets.c: a file says of offsets that no record has yet that they are settled */
    char *dir;                 /* beneath the data directory */

    /* life.c. The log is there from the open to the close, which waits until nobody has a pin; after a close for good it
     * stays until the partition is freed. */
    _Atomic(NrdLog *) log;
    GMutex state_lock;
    /* guarded by state_lock; the state is changed by who has the topic's guard besides */
    NrdPartitionState state;
    uint32_t n_pins;
    int open_errno;          /* of the last open, negative; 0: it was opened. Guarded by the topic's guard instead */
    _Atomic int64_t used_ms; /* monotonic; when the last pin was given back; a glance needs no lock */
    NrdPicture *picture;     /* NULL: not known */
    NrdMeasured measured;    /* reading.c; it is right for as long as the partition holds the same */
    char *fault_why;         /* with NRD_PARTITION_FAULT: in one sentence */
    char *ahead_why; /* offsets.c: why consumer.ahead, and consumer.offset, cannot be written now; NULL: they can */
    char *level_why;
    /* retention.c */
    _Atomic int64_t left_alone_until_ms; /* monotonic; the cold walk failed on it */
    /* what the configuration says; atomic */
    _Atomic int64_t retention_ms;
    _Atomic int64_t retention_bytes;
    _Atomic int64_t retention_due_ms; /* nothing can expire before; 0: look */

    /* produce.c */
    GMutex produce_lock;
    GCond role_free;       /* with produce_lock: `committing` became false, or `closed` true */
    atomic_uint n_claimed; /* producers; written with produce_lock, a glance needs none */
    /* guarded by produce_lock */
    uint32_t n_entering; /* who waits for the committer role without records */
    bool committing;     /* somebody has it */
    bool flush_wanted;   /* a background commit is due */
    bool linger_armed;
    int64_t linger_due_ms; /* ... for then; monotonic */
    GQueue producers;      /* of NrdProducer*, by their link */
    GArray *sync_waiters;  /* of NrdSyncWaiter */
    NrdTimer linger_timer;

    /* consume.c */
    NrdLine line;
    GMutex queue_lock;
    /* guarded by queue_lock */
    NrdQueue *queue;        /* NULL while the partition is closed */
    int64_t lease_timer_ms; /* what lease_timer is set to, or INT64_MAX */
    NrdTimer lease_timer;
    /* Monotonic; reading failed: until then who consumes the whole topic passes it over. 0: not so. Without a lock. */
    _Atomic int64_t failing_until_ms;
    NrdTimer retry_timer; /* who waits is woken then */
    GMutex read_lock;
    /* guarded by read_lock */
    NrdLogCursor *cursor;
    atomic_bool cursor_holds; /* it has something in memory, perhaps; written with read_lock, a glance needs none */
    bool cursor_used;         /* since the housekeeping looked last */

    /* offsets.c */
    bool tick_armed;      /* guarded by queue_lock */
    uint64_t settled_seq; /* guarded by queue_lock; counts changes of the frontier and the acked-ahead set */
    NrdSettler *settlers; /* guarded by queue_lock; who waits for leases to be settled durably */
    GMutex offset_lock;
    /* guarded by offset_lock */
    NrdOffsetStore *offsets;
    uint64_t ticked_seq; /* settled_seq as of the last tick */
    uint64_t synced_seq; /* ... of the last write-out */
    int ahead_errno;     /* of the last write of consumer.ahead, until a write-out succeeds; to say a failure once */
    int level_errno;     /* the same of consumer.offset */
    NrdTimer tick_timer;
    NrdTimer write_timer;
    NrdTimer level_timer;
};

/* ---- topic.c ---- */

/* A topic for a record (owned from now on), or, record NULL, one that is out of service for the reason `fault` (taken
 * over). One reference, the caller's. */
NrdTopic *nrd_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, char *fault);

/* Claims the topic's folder and lists its partitions, which are opened when they are used; with make_folders theirs are
 * made too. An error is about the topic, which then is out of service. Blocks. */
int nrd_topic_open(NrdTopic *topic, bool make_folders) NRD_MUST_CHECK;

/* Lists partitions up to the number in config; each is opened when it is used. Guard held (or nobody knows the topic). */
void nrd_topic_add_partitions(NrdTopic *topic, const NrdTopicConfig *config);

/* Takes a topic back that has just been made: its partitions are closed and its folder purged. Blocks. */
void nrd_topic_unmake(NrdTopic *topic);

/* Closes all partitions: with commit, what producers hold is committed first. Blocks. Returns the first error. */
int nrd_topic_close(NrdTopic *topic, bool commit) NRD_MUST_CHECK;

/* Wakes every parked reader of the topic to look at what has changed (deleted, stopping). */
void nrd_topic_interrupt(NrdTopic *topic);

/* Folders for partitions to come, up to the number in config. What can fail for want of space or descriptors comes before
 * the record is changed; empty folders harm nobody. Guard held (or nobody knows the topic). Blocks. */
int nrd_topic_make_folders(NrdTopic *topic, const NrdTopicConfig *config) NRD_MUST_CHECK;

/* ---- topic_settings.c ---- */

/* A copy of the record to change; -EROFS, -EIDRM, or -EIO when it is damaged. Topic guard held. */
int nrd_topic_copy_record(NrdTopic *topic, NrdTopicRecord **ret_record) NRD_MUST_CHECK;

/* Puts next (taken over) in the place of the record, durably; on failure the old one stands. Topic guard held. Blocks. */
int nrd_topic_replace_record(NrdTopic *topic, NrdTopicRecord *next) NRD_MUST_CHECK;

/* The same in memory alone: the disk keeps what it has until the next change. Topic guard held. */
void nrd_topic_swap_record(NrdTopic *topic, NrdTopicRecord *next);

/* ---- engine.c ---- */

/* References to all topics, so that they can be worked on without the table's lock (g_ptr_array_unref). */
GPtrArray *nrd_engine_topics(NrdEngine *engine);

/* ---- claim.c ---- */

/* Takes the topic out of service, or says another reason why it is; lost: until the restart. The same again is not told
 * again. Guard held (or nobody knows the topic): who has it may look at the fault without the lock. */
void nrd_topic_set_fault(NrdTopic *topic, const char *why, bool lost);

/* Makes the folder the record's; *ret_fresh: it was made anew. Failures as of nrd_topic_check_marker, with their own
 * errno. Guard held (or nobody knows the topic). Blocks. */
int nrd_topic_claim(NrdTopic *topic, bool *ret_fresh) NRD_MUST_CHECK;

/* Compares the folder's marker with the record once more; a folder that belongs to another incarnation, or is gone,
 * retires the partitions that are open and is replaced by a fresh one. What fails takes the topic out of service until
 * this is called again and succeeds (told once each): -EIO; too few descriptors or too little memory takes nothing out of
 * service. Not for a topic that is lost. Guard held. Blocks. */
int nrd_topic_check_marker(NrdTopic *topic) NRD_MUST_CHECK;

/* The next use of a topic that is out of service: looks whether what was the matter has passed. 0: it is in service;
 * else -EIO, -EIDRM, -EMFILE, -ENFILE, -ENOMEM. Costs a lock when it is in service, else blocks. No lock held but engine
 * admin. */
int nrd_topic_retry(NrdTopic *topic) NRD_MUST_CHECK;

/* ---- life.c: a partition opens and closes ---- */

/* Makes the object; nothing is opened. */
NrdPartition *nrd_partition_new(NrdTopic *topic, uint32_t number);
void nrd_partition_free(NrdPartition *partition); /* closed or never opened */

/* A pin, if the partition is open. Memory only. */
bool nrd_partition_pin_if_open(NrdPartition *partition);

/* Whether its last open has failed, and not for want of descriptors or memory. Memory only. */
bool nrd_partition_is_out(NrdPartition *partition);

/* Gives a pin back that does not count as use: of housekeeping. */
void nrd_partition_unpin_quietly(NrdPartition *partition);

/* As nrd_partition_pin, by who has the topic's guard. */
int nrd_partition_pin_guarded(NrdPartition *partition) NRD_MUST_CHECK;

/* Closes it unless somebody has a pin, a lease is out, or it was used within idle_ms; with wait_guard false also when
 * the topic is busy. Writes frontier and high watermark, as every close. Returns whether it is closed now. Blocks. */
bool nrd_partition_close_idle(NrdPartition *partition, int64_t idle_ms, bool wait_guard);

/* Takes the committer role and keeps it: no commit can happen any more. Answers parked readers, writes the frontier and
 * the high watermark, closes the files. Guard held. Blocks. */
int nrd_partition_close(NrdPartition *partition) NRD_MUST_CHECK;

/* As a close, but writes nothing: the folder is not this incarnation's any more. Guard held. */
void nrd_partition_abandon(NrdPartition *partition);

/* ---- picture.c: what a closed partition is known by ---- */

/* As nrd_partition_learn, by who has the topic's guard. */
int nrd_partition_learn_guarded(NrdPartition *partition) NRD_MUST_CHECK;

/* A copy of the picture of a partition that is closed and known. */
bool nrd_partition_picture(NrdPartition *partition, NrdPicture *ret_picture);

/* The picture of an open one, new (g_free). Nobody has a pin and nobody can get one: nothing changes. */
NrdPicture *nrd_partition_take_picture(NrdPartition *partition);

/* Takes the picture over; NULL: nothing is known any more. */
void nrd_partition_set_picture(NrdPartition *partition, NrdPicture *picture);

/* ---- anew.c, survey.c: its folder ---- */

/* anew.c: the partition's folder is there, durably, and so are the names in it. Where it is missing it is made, after a note of
 * that was left beside it. What the disk says; -ENOENT when the topic's is gone. Guard held. Blocks. */
int nrd_partition_make_folder(NrdPartition *partition) NRD_MUST_CHECK;

/* anew.c: learns whether the folder is missing, or was, without an open. Guard held. Blocks. */
void nrd_partition_look_for_note(NrdPartition *partition);

/* anew.c: it is known to who was told: the note goes. Blocks. */
int nrd_partition_forget_note(NrdPartition *partition) NRD_MUST_CHECK;

/* survey.c: opens a partition that is not known when what lies in its folder looks as if records were lost or hidden, and
 * tells when the folder is missing. What cannot be looked at is left to the first use. Takes the topic's guard. Blocks. */
void nrd_partition_survey(NrdPartition *partition);

/* How many records from the frontier on are known to be lost (gaps: NrdGap of the partition's open log) and not settled: what
 * a consumer has passed over is. Queue lock held. */
uint64_t nrd_partition_lost_in_lag_locked(NrdPartition *partition, const GArray *gaps);

/* ---- partition.c ---- */

void nrd_partition_configure(NrdPartition *partition, const NrdTopicConfig *config);
NrdLogSettings nrd_partition_log_settings(const NrdPartition *partition, const NrdTopicConfig *config);

/* 0; -EIDRM when the topic is deleted, -ENODEV when the engine is stopping and the log closed, -EIO when the partition
 * could not be opened. Never blocks. */
int nrd_partition_usable(NrdPartition *partition) NRD_MUST_CHECK;

/* What a closed partition answers: its topic was deleted, the engine stops, or the topic went out of service. */
static inline int nrd_partition_closed_error(const NrdPartition *partition)
{
    if (atomic_load(&partition->topic->deleted))
        return -EIDRM;
    return atomic_load(&partition->topic->engine->stopping) ? -ENODEV : -EIO;
}

static inline NrdPlace nrd_topic_place(const NrdTopic *topic)
{
    return (NrdPlace){ topic->name, NRD_NO_PARTITION, NRD_NO_OFFSET };
}

static inline NrdPlace nrd_partition_place(const NrdPartition *partition)
{
    return (NrdPlace){ partition->topic->name, partition->number, NRD_NO_OFFSET };
}

/* ---- produce.c ---- */

void nrd_produce_init(NrdPartition *partition);
void nrd_produce_clear(NrdPartition *partition);

/* Takes the committer role, waiting for a round under way to end: -EIDRM or -ENODEV when the partition was closed, which
 * keeps the role for ever. */
int nrd_produce_enter(NrdPartition *partition) NRD_MUST_CHECK;

/* Gives it back; what arrived meanwhile is committed. */
void nrd_produce_leave(NrdPartition *partition);

/* The caller has the role and keeps it for ever: from now on nobody waits for it. */
void nrd_produce_shut(NrdPartition *partition);

/* Commits what producers hold now, in the caller's thread; waits for a commit under way. For shutdown. */
void nrd_produce_flush_all(NrdPartition *partition);

/* Producers that have committed nothing since the last call, and hold nothing, give their claims back, which the next commit
 * makes anew. Costs a load where there are none. Memory only. */
void nrd_produce_rest(NrdPartition *partition);

/* Answers who waits for a commit when none can happen any more. The caller has the role and keeps it. */
void nrd_produce_fail_waiters(NrdPartition *partition, int error);

/* Commits the batch (taken over) in one run of offsets, in a round with whatever producers of the partition hold. On
 * failure nothing of it is left, and nothing of it will be tried again. The caller has a pin. Blocks. */
int nrd_produce_commit(NrdPartition *partition, NrdRecordBatch *batch, uint64_t *ret_first) NRD_MUST_CHECK;

/* Makes visible what a crash in the middle of a commit has left above the high watermark. The caller has a pin. Blocks. */
int nrd_produce_expose(NrdPartition *partition) NRD_MUST_CHECK;

/* ---- lingers.c ---- */

#define NRD_MORE_FOLLOWS_MS 2 /* how long a commit that is due waits for the rest of a write that was cut */

NrdLingers *nrd_lingers_new(NrdTimers *timers);
void nrd_lingers_free(NrdLingers *lingers); /* no producer is left; takes NULL */

/* A background append after delay_ms, or when one is arranged that comes earlier. Never blocks. */
void nrd_lingers_arm(NrdTopic *topic, int64_t delay_ms);

/* ---- dispatch.c ---- */

/* Reads the ingress WAL; every topic is loaded. -EAGAIN: the system gave no thread. */
int nrd_dispatch_open(NrdEngine *engine) NRD_MUST_CHECK;

/* The engine has started: what the WAL has is dispatched, now or when it can be read. Never blocks. */
void nrd_dispatch_start(NrdEngine *engine);

/* The ingress, or NULL. What could not be read at the start is tried again, now and then. Blocks. */
NrdIngress *nrd_dispatch_ingress(NrdEngine *engine);

/* Waits a while for what is left in the WAL; the rest is for the next start. No topic producer is left. Blocks. */
int nrd_dispatch_close(NrdEngine *engine) NRD_MUST_CHECK;

/* Whether a commit is worth trying. Memory only. */
bool nrd_partition_seems_well(NrdPartition *partition);

/* The next partition after `number` that seems well. Memory only. */
bool nrd_topic_well_sibling(NrdTopic *topic, uint32_t number, uint32_t *ret_number);

/* ---- family.c, family_open.c: who is whose child ---- */

/* Brings the records of parents and children in line with each other and starts what they name as links; every topic is
 * loaded, the fan-out is open, nobody uses a topic yet. Nothing is written read-only. Blocks. */
void nrd_family_open(NrdEngine *engine);

/* The topic's record is durably gone: its children have no parent any more, and its parent no such child. Nothing of that
 * makes a deletion fail. Engine admin held, no guard. Blocks. */
void nrd_family_leave(NrdTopic *topic);

/* What being a child or a parent forbids of new settings: -EBUSY, -EINVAL, both told. Guard held. */
int nrd_family_check_config(NrdTopic *topic, const NrdTopicConfig *next) NRD_MUST_CHECK;

/* -EPERM, told: records of a delayed child come from its parent alone. partition: NRD_NO_PARTITION of the whole topic. */
int nrd_family_refuse_producer(NrdTopic *topic, int64_t partition) NRD_MUST_CHECK;

/* ---- fan.c: what the fan-out needs of the engine (engine/fanout); family.c keeps who is whose child ---- */

/* Makes what copies. The ingress is open; then who keeps the records calls nrd_fan_start for every link that a parent's
 * record names, and nrd_fanout_start begins. -EAGAIN: the system gave no thread. */
int nrd_fan_open(NrdEngine *engine) NRD_MUST_CHECK;

/* Ends copying, if it was opened, and forgets every link; what is left goes on at the next start. Before the ingress is
 * closed; partitions are still open. Nobody prepares, starts or stops any more; commits may still be announced. Blocks. */
void nrd_fan_close(NrdEngine *engine);

/* Writes the cursors of a new link, durably, at the high watermarks of this moment; the link is not known yet. What it
 * leaves when it fails, or when the record is never written, has an epoch that no record names: it is ignored, and
 * removed by nrd_fan_forget. Guard of the parent held. Blocks. */
int nrd_fan_prepare(NrdTopic *parent, const NrdChildRecord *child) NRD_MUST_CHECK;

/* Copies from now on. The record names the link. Memory only (but for a read-only engine's: it reads the cursors). */
void nrd_fan_start(NrdTopic *parent, NrdTopic *child, const NrdChildRecord *link, int64_t delay_ms);

/* Copies no more when it returns; the link is forgotten and its cursors are removed. The record does not name the link
 * any more, or its topic is being deleted. No guard held, engine admin may be. Blocks until a pass under way has ended. */
void nrd_fan_stop(NrdTopic *parent, const char *child);

/* Removes cursor files of a link that never started. Failures are told. Blocks. */
void nrd_fan_forget(NrdTopic *parent, const char *child);

/* Records were committed to the partition, or it is new (its cursor is written then, before anything is committed to it).
 * Memory only; costs an atomic load when the topic has no child. */
void nrd_fan_committed(NrdPartition *partition);

/* The partition, a parent's or a child's, may be well again: what waits after a failure is tried now. Memory only. */
void nrd_fan_well(NrdPartition *partition);

/* ---- consume.c ---- */

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

/* ---- offsets.c ---- */

void nrd_offsets_init(NrdPartition *partition);
void nrd_offsets_clear(NrdPartition *partition);

/* Recovers the frontier from disk into the queue; hwm bounds it. Files that are damaged, or that speak of offsets at or above
 * end_offset, the one that the next record gets, are written anew. */
int nrd_offsets_open(NrdPartition *partition, uint64_t hwm, uint64_t end_offset) NRD_MUST_CHECK;

/* Mends such files, should that have failed at the open, before a record gets an offset that they call settled: after a crash
 * nobody would be given it. By the committer. Blocks; free when there is nothing to mend. */
int nrd_offsets_before_commit(NrdPartition *partition) NRD_MUST_CHECK;

/* Why progress of consumers cannot be written now, in one sentence (g_free); NULL: it can, as far as is known. Memory only. */
char *nrd_offsets_why_not(NrdPartition *partition);

/* The frontier on disk of a partition that is not open. Changes nothing. Blocks. */
int nrd_offsets_peek(NrdPartition *partition, uint64_t hwm, uint64_t *ret_frontier,
                     uint32_t *ret_n_acked_ahead) NRD_MUST_CHECK;

/* Notes that something was settled; arranges the tick. Queue lock held. */
void nrd_offsets_touch_locked(NrdPartition *partition);

/* Makes the frontier durable now (consumer.ahead), and with `level` consumer.offset too. Blocks. */
int nrd_offsets_sync(NrdPartition *partition, bool level) NRD_MUST_CHECK;

/* Leases that are to be settled durably; on the stack of who waits for that. */
struct NrdSettler {
    NrdSettling settling; /* guarded by queue_lock until it is done */
    NrdSettler *next;
    bool done; /* both guarded by offset_lock */
    int rc;
};

/* Makes these leases settled and durable in one step, along with all that is settled, and with what others want to settle
 * now: the cost is that of one sync. On failure no lease has changed, and every error is the failure; else errors says of
 * each lease what nrd_queue_prepare and nrd_queue_conclude say. Blocks. */
int nrd_offsets_settle(NrdPartition *partition, const NrdLease *leases, size_t n, int *ret_errors) NRD_MUST_CHECK;

/* The last write, before a close; stops the timers. */
int nrd_offsets_flush(NrdPartition *partition) NRD_MUST_CHECK;
/* Stops the timers and closes the files, writing nothing. */
void nrd_offsets_close(NrdPartition *partition);

/* ---- retention.c ---- */

/* One sweep of an open partition; closed ones are left to the walk. Blocks. */
void nrd_retention_sweep(NrdPartition *partition, int64_t now_ms);

/* What the cold walk does with one partition: if it is closed and holds something that has expired, opens it, sweeps, and
 * closes it again. Blocks. */
void nrd_retention_walk(NrdPartition *partition, int64_t now_ms);

/* Whether the partition, which the caller has pinned, holds what retention would delete. Memory only. */
bool nrd_retention_due(NrdPartition *partition, int64_t now_ms);

/* ---- housekeeping.c: the loops of the process ---- */

/* The data directory is open. Nothing runs yet. */
NrdHousekeeping *nrd_housekeeping_new(NrdEngine *engine);
/* The loops' threads, whose passes do nothing before the engine has started. -EAGAIN: the system did not give one for each;
 * nrd_housekeeping_stop is still to be called. */
int nrd_housekeeping_open(NrdHousekeeping *housekeeping) NRD_MUST_CHECK;

/* The engine has started: the first pass, at once, is the survey of what nobody has used yet. */
void nrd_housekeeping_start(NrdHousekeeping *housekeeping);

/* Waits for the loops. Commits may still be under way: kicks and notes are taken, and do nothing. */
void nrd_housekeeping_stop(NrdHousekeeping *housekeeping);
void nrd_housekeeping_free(NrdHousekeeping *housekeeping); /* nobody uses a topic any more; takes NULL */

/* Sweep now: a bound has changed, or a log has passed it. Never blocks. */
void nrd_housekeeping_kick_retention(NrdHousekeeping *housekeeping);

/* Something was quarantined, or could not be purged: sweep what deleted topics left at the next walk. */
void nrd_housekeeping_note_leftovers(NrdHousekeeping *housekeeping);

#endif
