/* What the files of this folder share: the objects behind engine.h, and how they are locked. What those files do for each other
 * is in topic.h, streams.h, partition.h, consumer.h, store.h, outbox.h, pull.h, lease.h and fetch.h.
 *
 *   conn.c          the connection, its state         conn_options.c  how to connect
 *   connect.c       ... calls that may not return     jobs.c          threads for what answers set off
 *   send.c          the thread that sends             request.c       who waits for answers
 *   gather.c        several answers as one            each.c          several requests at once
 *   answers.c       what the servers' answers say     api.c           JetStream's requests
 *   names.c         what things are called            engine.c        start, end, the topics' table
 *   bucket.c        where records of topics are       store.c         ... and those
 *   settings.c      changing one
 *   admin.c         creating and removing topics      topic.c         one topic
 *   streams.c       streams of a topic                partition.c     what is known of one
 *                                                   partition_look.c ... as servers say it
 *   verbs.c         verbs of its ctl                  consumer.c      the consumer on the servers
 *   outbox.c        records on their way              outbox_run.c    ... as they are sent
 *   outbox_look.c   ... whether they are stored       outbox_say.c    ... what is said of them
 *   outbox_place.c  ... where they go                 rewound.c       streams that have lost records
 *   kept.c          ... or others than they should    acked.c         what was acknowledged
 *   kept_watch.c    ... when that is compared         kept_compare.c  ... and how
 *   copies.c        copies that differ
 *   producer.c      producing                         pull.c          those who wait for records
 *   ask.c           what is asked for them            asked.c         pulls at the servers
 *   came.c          what comes of it
 *   now.c           readers that never wait           round.c         ... and the answers that they wait for
 *   hand.c          records that have come
 *   consume.c       watches, and consuming
 *   settle.c        settling                          lease.c         leases
 *   returned.c      what was given back               give_back.c     ... when that is safe
 *   acks.c          acks on their way
 *   fetch.c         records by offset and time        reading.c       the log as text
 *   glance.c        the engine at a glance            table.c         the table, what is not there
 *
 * Locks, in the order they may be taken, none of them held across an answer that is waited for but the first three, nor
 * across a call to who called us. What is to be sent is only queued under them (send.c):
 *
 *   guard       of a topic: changing its record
 *   admin       creating and removing topics, and following what others do to them
 *   making      of a partition: its consumer, when there is none
 *   outbox lock, pulls lock, lease lock, topic lock, partition lock, topics lock, conn.c's
 */
#ifndef NRD_ENGINE_JETSTREAM_JS_PRIVATE_H
#define NRD_ENGINE_JETSTREAM_JS_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/jetstream/acked.h"
#include "engine/jetstream/api.h"
#include "engine/jetstream/conn.h"
#include "engine/jetstream/each.h"
#include "engine/jetstream/jetstream.h"
#include "engine/jetstream/names.h"
#include "engine/meta/topic_record.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

extern const NrdEngineTable nrd_js_table;

#define NRD_JS_DECLARE(name) typeof(nrd_##name) nrd_js_##name;
NRD_ENGINE_FUNCTIONS(NRD_JS_DECLARE)
#undef NRD_JS_DECLARE
void nrd_js_topic_keep_refusal(NrdTopic *topic, char *text);
bool nrd_js_topic_get_config(NrdTopic *topic, NrdTopicConfig *ret_config);

/* What stands in the place of fan-out, which is not built here (docs/scale-out.md says why). */
#define NRD_JS_NO_FANOUT                                                                                               \
    "fan-out is not built for JetStream; a program that consumes one topic, produces to the other and settles after "  \
    "its fsync copies as well"

#define NRD_JS_BUCKET_IS_GONE                                                                                          \
    "the bucket of topics (" NRD_JS_KV_STREAM ") is gone from the servers: restore it there; until then no topic can " \
    "be made, changed or removed"

typedef struct NrdJsPulls NrdJsPulls;
typedef struct NrdJsLeases NrdJsLeases;

struct NrdEngine {
    const NrdEngineTable *table; /* first: see table.h */
    NrdJsConn *conn;
    NrdTimers *timers;
    bool read_only;
    int replicas;
    bool fsync_asserted;
    bool require_fsync;
    const char *durability; /* of what it makes */
    NrdTopicConfig defaults;
    NrdJsPulls *pulls;
    atomic_bool stopping;
    NrdTimer follow_timer; /* for what other daemons do to topics */
    NrdTimer stop_timer;
    _Atomic int64_t silent_until_ms; /* monotonic: a look was not answered, and others are not waited for as long */
    _Atomic int64_t progress_ms; /* monotonic: of the last record that was acknowledged, or the beginning of the stop */
    _Atomic uint64_t outbox_bytes; /* that records take until they are acknowledged */
    atomic_uint n_comparing;       /* partitions whose copies are compared now: see kept_watch.c */
    atomic_bool lowers;            /* some consumer is to be set to a shorter timeout, later */
    atomic_bool looks_again;       /* a thread does, at partitions that gave no answer */
    GMutex admin;
    uint64_t followed;       /* guarded by admin: the bucket's last sequence that was looked at */
    GPtrArray *orphans;      /* guarded by admin: see admin.c */
    char bucket_created[40]; /* guarded by admin: as of NrdJsStreamInfo; empty: not known yet */
    int64_t bucket_back_ms;  /* guarded by admin: monotonic: since it has gone back; 0: it has not, -1: for good */
    GMutex topics_lock;
    char *bucket_fault; /* guarded by topics_lock: why no topic can be made, changed or removed, or NULL */
    GHashTable *topics; /* guarded by topics_lock: name -> NrdTopic*, one reference each */
};

struct NrdTopic {
    const NrdEngineTable *table; /* first: see table.h */
    gint refs;                   /* atomic */
    NrdEngine *engine;
    char *name;
    char id[NRD_INCARNATION_DIGITS + 1];
    atomic_bool deleted;
    GMutex guard;
    GMutex lock;
    /* guarded by lock */
    NrdTopicRecord *record; /* NULL when it is damaged */
    uint64_t revision;      /* of the record in its bucket */
    int64_t timeout_ms;     /* monotonic: since when its visibility timeout is known */
    bool lowers;            /* a consumer is to be set to that, later */
    char *fault;            /* why it is out of service, or NULL */
    GPtrArray *partitions;  /* of NrdPartition*, grows only */
    GPtrArray *outboxes;    /* open producers of the topic as a whole, not referenced */
    uint32_t n_holds;
    char *refusal;
    int64_t refused_ms;
    atomic_uint turn; /* the partition that the next of its consumers is offered first */
};

struct NrdPartition {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;
    uint32_t number;
    char *stream;
    char *subject;
    NrdJsLeases *leases;
    atomic_bool has_consumer;       /* it was made, as far as this daemon knows, as the settings say */
    atomic_uint n_doubts;           /* of that */
    atomic_bool looks_for_consumer; /* a thread does */
    atomic_bool looks_for_stream;   /* ... for that */
    atomic_bool compares;           /* ... what was acknowledged with what is there */
    GMutex making;                  /* a consumer in the place of none */
    GMutex lock;
    /* guarded by lock */
    bool known;
    int64_t known_ms; /* monotonic */
    NrdJsStreamInfo info;
    NrdJsConsumerInfo consumer;
    bool no_consumer;
    bool floor_known;                     /* consumer.floor_seq is of a consumer that there is, or was, */
    char floor_created[40];               /* ... of the stream that was made then */
    uint64_t published_seq;               /* the highest that this daemon has published */
    uint32_t n_reopened;                  /* what was known before the last is no evidence */
    int64_t grew_ms;                      /* monotonic: of the last record that this daemon published */
    int64_t nudged_ms;                    /* monotonic: see nrd_js_partition_nudge */
    unsigned n_nudges;                    /* since the last record that this daemon published */
    int64_t closed_ms;                    /* since when its stream has been seen to take no records; 0: it does */
    char closed_by[NRD_JS_REMOVER_BYTES]; /* for that removal */
    int64_t suspect_ms;                   /* since when it does not look like what was known; 0: it does */
    int64_t gone_ms;                      /* since when the servers say that there is no such stream; 0: there is */
    char *reason;                         /* why nothing is known now, or NULL */
    NrdJsAcked *acked;                    /* where what was published lately is; NULL: nothing was */
    char compared[NRD_JS_SERVER_BYTES];   /* the leader whose copy was compared with that, and has it; "": none */
    char *apart;                          /* that copies of its stream differ, or NULL: none was seen that does */
    bool doubted;                         /* the leader is to be compared with that */
    uint32_t rounds_left;                 /* of comparing them */
    int64_t round_ms;                     /* monotonic: of the last */
    int64_t watched_ms;                   /* monotonic: of the last look at who leads */
    char *poison;                         /* why it takes and serves nothing until a person has looked, or NULL */
    int commit_errno;
    GPtrArray *outboxes; /* open producers, not referenced */
};

/* ---- engine.c ---- */

/* Looks for what was done to topics by others, this daemon's other threads included; or by this one just now. Blocks. On
 * failure *ret_why (g_free) says more, unless it is NULL. */
int nrd_js_follow_admin_held(NrdEngine *engine, char **ret_why) NRD_MUST_CHECK;
GPtrArray *nrd_js_topics(NrdEngine *engine); /* references; g_ptr_array_unref */
void nrd_js_each_partition(NrdEngine *engine,
                           void (*fn)(NrdPartition *partition)); /* of all topics, one after another */
/* What an acknowledgement of such a stream is worth: see nrd_engine_durability. */
const char *nrd_js_durability_of(const NrdEngine *engine, int replicas, bool in_memory);

/* ---- admin.c ---- */

/* Tries again to delete streams that this daemon has left over. Admin held. Blocks. */
void nrd_js_orphans_sweep_admin_held(NrdEngine *engine);
/* Streams of an incarnation that no topic has: deleted now, or later. Blocks. */
void nrd_js_streams_abandon_admin_held(NrdEngine *engine, const NrdTopicRecord *record);
void nrd_js_orphans_free(NrdEngine *engine); /* says what stays */

#endif
