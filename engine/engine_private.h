/* The joints of the engine: its objects, and how they are locked. What its files do for each other is in topic.h, partition.h,
 * produce.h, consume.h, offsets.h, dispatch.h, fan.h and housekeeping.h.
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

/* References to all topics, so that they can be worked on without the table's lock (g_ptr_array_unref). */
GPtrArray *nrd_engine_topics(NrdEngine *engine);

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

#endif
