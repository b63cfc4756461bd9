/* The joints of the engine: what engine.c, topic.c, partition.c, produce.c and consume.c share.
 *
 * Lock order (a thread takes them only from left to right; none is held across a callback of engine.h, but for the
 * first two while a topic is deleted or the engine is closed):
 *
 *   engine admin > topic guard > committer role > offset lock > queue lock > engine topics, topic lock, timers' lock
 *                                              > produce lock >
 *                                              > read lock >
 *
 *   engine admin    mutex; held across the I/O of creating, removing and deleting topics
 *   topic guard     mutex; held across the I/O of a change to one topic's record or partitions
 *   committer role  the seed's produce lock: one thread at a time commits to, rolls, trims, reopens or closes a
 *                   partition's log; it covers the fdatasync of a commit. Not a mutex, since who arrives meanwhile must
 *                   not wait: `committing`, guarded by the produce lock
 *   offset lock     mutex; held across reads and writes of consumer.offset and consumer.ahead, their fdatasync too
 *   read lock       mutex; the consumers' cursor; held across a read of the log
 *   the others      mutexes; memory only, never held across I/O */
#ifndef NRD_ENGINE_ENGINE_PRIVATE_H
#define NRD_ENGINE_ENGINE_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/engine.h"
#include "engine/log/log.h"
#include "engine/meta/data_dir.h"
#include "engine/meta/metastore.h"
#include "engine/queue/offset_store.h"
#include "engine/queue/queue.h"
#include "engine/timer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

struct NrdEngine {
    NrdDataDir *data_dir;
    int root_fd; /* of data_dir */
    bool read_only;
    NrdTopicConfig defaults;
    NrdMetastore *meta;
    NrdTimers *timers;
    atomic_bool stopping; /* parked readers were answered -ENODEV; no new ones */
    pthread_mutex_t admin;
    pthread_mutex_t topics_lock;
    GHashTable *topics; /* guarded by topics_lock; name -> NrdTopic*, one reference each */
};

struct NrdTopic {
    gint refs; /* atomic */
    NrdEngine *engine;
    char *name;
    char id[NRD_INCARNATION_DIGITS + 1];
    atomic_bool deleted;
    pthread_mutex_t guard;
    pthread_mutex_t lock;
    pthread_cond_t released; /* with lock: a hold was given back */
    /* guarded by lock */
    NrdTopicRecord *record; /* NULL when it is damaged */
    char *fault;            /* why the topic is out of service, or NULL */
    GPtrArray *partitions;  /* of NrdPartition*, grows only */
    uint32_t n_holds;
};

/* One call that waits for a commit. */
typedef struct NrdSyncWaiter {
    NrdProducer *producer; /* referenced */
    NrdSyncScope scope;
    NrdDoneFn done;
    void *user_data;
} NrdSyncWaiter;

struct NrdPartition {
    NrdTopic *topic; /* who owns it */
    uint32_t number;
    char *dir;             /* beneath the data directory */
    _Atomic(NrdLog *) log; /* NULL while the partition could not be opened; set once */
    atomic_bool closed;    /* deleted or shut down: the log answers -ESHUTDOWN */
    int open_errno;        /* of the last open, negative; 0: it is open */

    /* produce.c */
    pthread_mutex_t produce_lock;
    pthread_cond_t role_free; /* with produce_lock: `committing` became false, or `closed` true */
    /* guarded by produce_lock */
    bool committing;     /* somebody has the committer role */
    uint32_t n_entering; /* who waits for it without records */
    bool flush_wanted;   /* a background commit is due */
    bool linger_armed;
    GQueue producers;     /* of NrdProducer*, by their link */
    GArray *sync_waiters; /* of NrdSyncWaiter */
    NrdTimer linger_timer;

    /* consume.c */
    atomic_int n_waiting; /* parked waiters and watches: a wake-up that finds 0 takes no lock */
    pthread_mutex_t queue_lock;
    /* guarded by queue_lock */
    NrdQueue *queue;
    GQueue waiters; /* of NrdWaiter*, by their link, first come first served */
    GQueue watches; /* of NrdWatch* */
    bool waking;    /* a thread hands records out */
    bool wake_again;
    int64_t lease_timer_ms; /* what lease_timer is set to, or INT64_MAX */
    NrdTimer lease_timer;
    NrdTimer wait_timer;
    pthread_mutex_t read_lock;
    NrdLogCursor *cursor; /* guarded by read_lock */

    /* offsets.c */
    uint64_t settled_seq; /* guarded by queue_lock; counts changes of the frontier and the acked-ahead set */
    bool tick_armed;      /* guarded by queue_lock */
    pthread_mutex_t offset_lock;
    /* guarded by offset_lock */
    NrdOffsetStore *offsets;
    uint64_t ticked_seq; /* settled_seq as of the last tick */
    uint64_t synced_seq; /* ... of the last write-out */
    int offset_errno;    /* of the last tick or write-out; to say the same failure once */
    NrdTimer tick_timer;
    NrdTimer write_timer;
    NrdTimer level_timer;
};

/* ---- topic.c ---- */

/* A topic for a record (owned from now on), or, record NULL, one that is out of service for the reason `fault` (taken
 * over). One reference, the caller's. */
NrdTopic *nrd_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, char *fault);

/* Claims the topic's folder and opens its partitions. A partition that cannot be opened is out of service, alone; an
 * error is about the topic, which then is out of service. Blocks. */
int nrd_topic_open(NrdTopic *topic) NRD_MUST_CHECK;

/* The first partition that could not be opened: its error, or 0. */
int nrd_topic_open_error(NrdTopic *topic);

/* Takes a topic back that has just been made: its partitions are closed and its folder purged. Blocks. */
void nrd_topic_unmake(NrdTopic *topic);

/* Closes all partitions: with commit, what producers hold is committed first. Blocks. Returns the first error. */
int nrd_topic_close(NrdTopic *topic, bool commit) NRD_MUST_CHECK;

/* Wakes every parked reader of the topic to look at what has changed (deleted, stopping). */
void nrd_topic_interrupt(NrdTopic *topic);

/* ---- partition.c ---- */

/* Makes the object; nothing is opened. */
NrdPartition *nrd_partition_new(NrdTopic *topic, uint32_t number);
void nrd_partition_free(NrdPartition *partition); /* closed or never opened */

/* Opens the log and recovers the consumer state. The caller has the committer role, or nobody else knows the partition
 * yet. Blocks. */
int nrd_partition_open(NrdPartition *partition, const NrdTopicConfig *config) NRD_MUST_CHECK;

/* Takes the committer role and keeps it: no commit can happen any more. Answers parked readers, writes the frontier and
 * the high watermark, closes the files. Blocks. */
int nrd_partition_close(NrdPartition *partition) NRD_MUST_CHECK;

void nrd_partition_configure(NrdPartition *partition, const NrdTopicConfig *config);

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

/* Answers who waits for a commit when none can happen any more. The caller has the role and keeps it. */
void nrd_produce_fail_waiters(NrdPartition *partition, int error);

/* ---- consume.c ---- */

void nrd_consume_init(NrdPartition *partition, const NrdTopicConfig *config);
void nrd_consume_clear(NrdPartition *partition);
/* A higher cap frees slots: nrd_consume_wake afterwards, with no lock held. */
void nrd_consume_configure(NrdPartition *partition, const NrdTopicConfig *config);

/* Hands out what has become deliverable to who waits. No lock held. */
void nrd_consume_wake(NrdPartition *partition);

/* Answers every parked reader with error and fires every watch. */
void nrd_consume_interrupt(NrdPartition *partition, int error);

/* ---- offsets.c ---- */

void nrd_offsets_init(NrdPartition *partition);
void nrd_offsets_clear(NrdPartition *partition);

/* Recovers the frontier from disk into the queue; hwm bounds it. */
int nrd_offsets_open(NrdPartition *partition, uint64_t hwm) NRD_MUST_CHECK;

/* Notes that something was settled; arranges the tick. Queue lock held. */
void nrd_offsets_touch_locked(NrdPartition *partition);

/* Makes the frontier durable now (consumer.ahead), and with `level` consumer.offset too. Blocks. */
int nrd_offsets_sync(NrdPartition *partition, bool level) NRD_MUST_CHECK;

/* The last write, at close; stops the timers. */
int nrd_offsets_close(NrdPartition *partition) NRD_MUST_CHECK;

#endif
