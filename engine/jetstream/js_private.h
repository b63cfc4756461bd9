/* What the files of this folder share: the objects behind engine.h, and how they are locked.
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
 *   now.c           readers that never wait           round.c         ... and the answers that they wait for
 *   hand.c          records that have come
 *   consume.c       watches, and consuming
 *   settle.c        settling                          lease.c         leases
 *   returned.c      what was given back               acks.c          acks on their way
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

/* ---- bucket.c ---- */

/* Makes it, unless it is there. Blocks. */
int nrd_js_bucket_ensure(NrdEngine *engine, char **ret_why) NRD_MUST_CHECK;
/* Looks whether the bucket is the one that was here, and whole. -EIO: it is not; that is told, also in *ret_why (g_free;
 * ret_why may be NULL), and by all that use the bucket until the next look. Servers that do not answer are no news (0). Admin
 * held. Blocks. */
int nrd_js_bucket_look_admin_held(NrdEngine *engine, int64_t patience_ms, char **ret_why) NRD_MUST_CHECK;
char *nrd_js_bucket_fault(NrdEngine *engine); /* g_free; NULL: none */
/* By the last look, as nobody waits for an answer that does not come: -EIO, and *ret_why as above. */
int nrd_js_bucket_usable(NrdEngine *engine, char **ret_why) NRD_MUST_CHECK;

/* ---- store.c ---- */

/* A value of the bucket. */
typedef struct NrdJsEntry {
    char *name; /* of the topic */
    uint64_t revision;
    bool removed;
    GBytes *text; /* of the record */
} NrdJsEntry;

void nrd_js_entry_clear(NrdJsEntry *entry);
/* The first from `sequence` on; -ENOENT there is none. Blocks. */
int nrd_js_store_next(NrdEngine *engine, uint64_t sequence, NrdJsEntry *ret_entry, char **ret_why) NRD_MUST_CHECK;
/* The last one of that name; -ENOENT there is none. Blocks. */
int nrd_js_store_get(NrdEngine *engine, const char *name, NrdJsEntry *ret_entry, char **ret_why) NRD_MUST_CHECK;
/* Whether it is a record of that incarnation. Pure. */
bool nrd_js_entry_has_id(const NrdJsEntry *entry, const char *id);
/* -EBUSY: the record is not at that revision (0: there is none, or it was removed). *ret_open (NULL: who asks looks for himself):
 * whether a failure leaves open if it was written. Blocks. */
int nrd_js_store_put(NrdEngine *engine, const NrdTopicRecord *record, uint64_t revision, uint64_t *ret_revision,
                     bool *ret_open, char **ret_why) NRD_MUST_CHECK;
int nrd_js_store_remove(NrdEngine *engine, const char *name, uint64_t revision, bool *ret_open,
                        char **ret_why) NRD_MUST_CHECK;
/* Writes the record as it is, at a revision of its own: a change or removal that others have begun, or that is still on its
 * way, comes too late. Not there: the topic has no record of that incarnation. Blocks. */
int nrd_js_store_touch(NrdEngine *engine, const char *name, const char *id, bool *ret_there) NRD_MUST_CHECK;
/* The revision that a new record of that name follows: 0, or that of a removal; -EEXIST there is a record. Blocks. */
int nrd_js_store_vacancy(NrdEngine *engine, const char *name, uint64_t *ret_revision, char **ret_why) NRD_MUST_CHECK;

/* ---- topic.c ---- */

/* record is taken over; NULL: it is damaged, and fault (taken over) says how. One reference, the caller's. */
NrdTopic *nrd_js_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, uint64_t revision, char *fault);
/* A record of the bucket (taken over), unless a newer one is known. */
void nrd_js_topic_put_record(NrdTopic *topic, NrdTopicRecord *record, uint64_t revision);
/* It is gone: everybody who waits or holds it is told. */
void nrd_js_topic_gone(NrdTopic *topic);
NrdTopicConfig nrd_js_topic_config(NrdTopic *topic);
/* A sentence (g_free) when a setting would change that means nothing here; else NULL. */
char *nrd_js_config_why_not(const NrdTopicConfig *old, const NrdTopicConfig *next);
NrdPlace nrd_js_topic_place(const NrdTopic *topic);
int nrd_js_topic_usable(NrdTopic *topic) NRD_MUST_CHECK; /* -EIDRM, -EIO */

/* ---- streams.c: those of a topic, many at once. Each blocks, and stops at the first failure, which it tells ---- */

/* Streams for partitions [from, config.partitions). One that is there already is set to the record; then the topic's record in
 * the bucket has another revision, and -EBUSY: a removal has closed it. *ret_why (g_free): why not. */
int nrd_js_topic_make_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from,
                              char **ret_why) NRD_MUST_CHECK;
/* The one of that partition. */
int nrd_js_topic_make_stream(NrdEngine *engine, const NrdTopicRecord *record, uint32_t number) NRD_MUST_CHECK;
/* Sets those of partitions [0, end) to the record's retention. *ret_why (g_free): why not. */
int nrd_js_topic_update_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t end,
                                char **ret_why) NRD_MUST_CHECK;
/* Those that are there. A failure is the caller's to tell; *ret_why (g_free) may be NULL. */
int nrd_js_topic_delete_streams(NrdEngine *engine, const NrdTopicRecord *record, char **ret_why) NRD_MUST_CHECK;

/* Streams without a record take none any more, for that remover: -ENOTEMPTY there is one, also one that came at the last
 * moment; -EBUSY another remover has closed them. Then, and when it fails, they are to be opened again. lasts: of each
 * partition, the last sequence that it had when it was seen to be empty. */
int nrd_js_topic_close_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover,
                               const uint64_t *lasts) NRD_MUST_CHECK;
/* Those that the remover has closed, and no others. Only behind nrd_js_store_touch: a removal that is under way must fail. */
int nrd_js_topic_open_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover) NRD_MUST_CHECK;

/* What a look has seen of that. One that stays closed for the same remover, as that one has died over it, is opened after two
 * minutes, on another thread. */
void nrd_js_stream_seen(NrdPartition *partition, const NrdJsStreamInfo *info);
/* Looks on another thread: a record of it was not taken. */
void nrd_js_stream_look_later(NrdPartition *partition);
/* The same, unless one does: nobody was there to take it. */
void nrd_js_stream_suspect(NrdPartition *partition);

/* ---- partition.c ---- */

NrdPartition *nrd_js_partition_new(NrdTopic *topic, uint32_t number);
void nrd_js_partition_free(NrdPartition *partition);
NrdPlace nrd_js_partition_place(const NrdPartition *partition);
int nrd_js_partition_usable(NrdPartition *partition) NRD_MUST_CHECK; /* -EIDRM, -EIO poisoned */
/* What is told when something about its stream has given rc: -EIDRM when it failed and the topic was removed meanwhile; -EIO for
 * -ENOENT, a stream that is gone otherwise; else rc. */
int nrd_js_partition_why(const NrdPartition *partition, int rc);
/* Whether records may be produced to it: -EIO when only synced ones will do and its stream syncs none. May block, as looking. */
int nrd_js_partition_check_durable(NrdPartition *partition) NRD_MUST_CHECK;
/* A record of that sequence is there; published: this daemon's was acknowledged just now. */
void nrd_js_partition_grew(NrdPartition *partition, uint64_t sequence, bool published);
/* A record of this daemon's was sent and not answered: its leader may be behind (see nrd_js_nudge), and is helped on, with more
 * each time. However many records that is said of, once in a while. Does not wait. */
void nrd_js_partition_nudge(NrdPartition *partition);
/* Nothing is taken from it and nothing served any more, which is said. Not under the lock of an outbox. */
void nrd_js_partition_end_service(NrdPartition *partition, const char *why);
/* Whether there was something by the last look that the servers would give out. */
bool nrd_js_partition_has_deliverable(NrdPartition *partition);
/* Something is deliverable again: who does not wait asks twice, as of what was published just now. */
void nrd_js_partition_has_more(NrdPartition *partition);
/* Whether its consumer may not know yet of what this daemon has published: it follows another server's copy. */
bool nrd_js_partition_may_lag(NrdPartition *partition);
/* This daemon has taken or settled something: who asks how things are has the servers asked. */
void nrd_js_partition_changed(NrdPartition *partition);
/* The end of what is known to be committed, as a sequence; asked for anew when `fresh`. */
int nrd_js_partition_last(NrdPartition *partition, bool fresh, uint64_t *ret_first, uint64_t *ret_last) NRD_MUST_CHECK;
/* What came of a commit: whether that is a failure to be told of, which the one before was not. */
bool nrd_js_partition_committed(NrdPartition *partition, int error);

/* ---- partition_look.c ---- */

/* Asks the servers. -ENOENT: the stream is gone. Blocks. */
int nrd_js_partition_look(NrdPartition *partition, int64_t patience_ms) NRD_MUST_CHECK;
/* Whether the last look was not answered. */
bool nrd_js_partition_is_silent(NrdPartition *partition);
/* Every second or so, with a connection: those that gave no answer are looked at again, on other threads, as nobody may read
 * who would. Does not wait. */
void nrd_js_silent_watch(NrdEngine *engine);
/* Whether the servers have said for a while that there is no such stream. */
bool nrd_js_partition_is_gone(NrdPartition *partition);

/* ---- rewound.c ---- */

/* The last sequence that was known to be there, and the reopening since which. */
typedef struct NrdJsEnd {
    uint64_t sequence; /* 0: none is known */
    uint32_t n_reopened;
} NrdJsEnd;

NrdJsEnd nrd_js_partition_end(NrdPartition *partition);
/* A record of this daemon's is acknowledged: sent_after is the end when it was first sent; duplicate: it was there already;
 * hash: of its id (acked.h). What that proves of the stream ends the partition's service, on another thread. */
void nrd_js_partition_published(NrdPartition *partition, uint64_t sequence, uint32_t hash, bool duplicate,
                                NrdJsEnd sent_after);

/* ---- consumer.c ---- */

int nrd_js_partition_need_consumer(NrdPartition *partition) NRD_MUST_CHECK; /* blocks the first time */
/* As nrd_js_consumer_info, of the one that is meant now. Blocks. */
int nrd_js_consumer_look(NrdPartition *partition, int64_t patience_ms, NrdJsConsumerInfo *ret_info,
                         char **ret_why) NRD_MUST_CHECK;
/* It is looked for, and set to the settings, by its next use. */
void nrd_js_consumer_doubt(NrdPartition *partition);
/* Consumers whose shorter timeout all mounts know of by now are set to it by their next use. */
void nrd_js_consumers_lower(NrdEngine *engine);
/* Nobody answers for it: that is looked into on another thread. */
void nrd_js_consumer_suspect(NrdPartition *partition);
/* Another one in its place, which begins at that sequence, for all mounts; all leases are void. Blocks. */
int nrd_js_consumer_replace(NrdPartition *partition, uint64_t start_seq) NRD_MUST_CHECK;

/* ---- outbox.c ---- */

typedef struct NrdJsOutbox NrdJsOutbox;
void nrd_js_outboxes_fail(GPtrArray *outboxes, int error); /* references; each answers who waits */
NrdJsOutbox *nrd_js_outbox_ref(NrdJsOutbox *outbox);

/* ---- pull.c ---- */

NrdJsPulls *nrd_js_pulls_new(NrdEngine *engine);
/* Nobody takes any more, also of what is given back from now on. */
void nrd_js_pulls_end(NrdJsPulls *pulls);
/* ... and nothing is set off by time. The connection is still there. */
void nrd_js_pulls_stop(NrdJsPulls *pulls);
void nrd_js_pulls_free(NrdJsPulls *pulls);
/* Answers who waits on this topic (NULL: on any) with error. */
void nrd_js_pulls_interrupt(NrdJsPulls *pulls, NrdTopic *topic, int error);
void nrd_js_pulls_reconnected(NrdJsPulls *pulls);
/* What this daemon was delivered of the partition, and nobody has taken, is void. Who waits there is answered with error;
 * 0: asks again. */
void nrd_js_pulls_forget(NrdJsPulls *pulls, NrdPartition *partition, int error);

/* ---- lease.c ---- */

NrdJsLeases *nrd_js_leases_new(NrdPartition *partition);
void nrd_js_leases_free(NrdJsLeases *leases);
/* A lease for a delivery: its nonce. reply is the subject that settles it, and what it says; came_ms (monotonic): the servers'
 * time for it began at that or later. */
uint64_t nrd_js_lease_add(NrdPartition *partition, const NrdJsAckSubject *delivered, const char *reply,
                          int64_t came_ms);
void nrd_js_leases_void(NrdPartition *partition); /* all are */
/* Deliveries are of that consumer from now on. true: that is another one, and all leases are void. */
bool nrd_js_leases_adopt(NrdPartition *partition, uint64_t generation);
uint64_t nrd_js_leases_generation(NrdPartition *partition); /* 0: not known yet, or the one without a number */
/* What the consumer on the servers is known to give for a delivery; and that it may be as little as that. */
void nrd_js_leases_know_wait(NrdPartition *partition, int64_t wait_ms);
void nrd_js_leases_limit_wait(NrdPartition *partition, int64_t wait_ms);
int64_t nrd_js_leases_wait_ms(NrdPartition *partition);
bool nrd_js_delivery_lives(NrdPartition *partition, int64_t came_ms); /* nobody else can have been given it since */
NrdJsLeaseEnd nrd_js_delivery_end(NrdPartition *partition, int64_t came_ms); /* its lease's, should it get one */
/* The subject that settles a live lease (g_free), and its end; or NULL. */
char *nrd_js_lease_subject(NrdPartition *partition, uint64_t offset, uint64_t nonce, NrdJsLeaseEnd *ret_end);
/* How many there are; those that have lapsed on the servers are none. */
guint nrd_js_leases_n_live(NrdPartition *partition);
/* Forgets a lease that nobody was given; its delivery is still the caller's. */
void nrd_js_lease_drop(NrdPartition *partition, uint64_t nonce);

/* ---- returned.c ---- */

/* Of what the servers call pending nobody holds what this daemon has given back or let lapse: that is deliverable. */
uint64_t nrd_js_leases_n_returned(NrdPartition *partition, uint64_t frontier);
void nrd_js_leases_note_returned(NrdPartition *partition, uint64_t offset);
/* All leases, to the servers: of a daemon that stops, as nobody can settle them any more. */
void nrd_js_leases_give_back(NrdPartition *partition);

/* ---- give_back.c ---- */

/* Gives a delivery back, if that can be sent before its end. Does not wait. */
void nrd_js_give_back(NrdPartition *partition, const char *reply, const NrdJsLeaseEnd *end);
/* Waits until what was given back is on its way, for a second at most. Blocks. */
void nrd_js_give_back_wait(NrdPartition *partition);

/* ---- acks.c ---- */

/* Until the servers have answered all acks that were sent by now, or the time is over: then what they tell knows of them. */
void nrd_js_acks_wait_answered(NrdPartition *partition, int64_t patience_ms);

/* ---- hand.c ---- */

uint64_t nrd_js_hand_count(NrdPartition *partition); /* records that this daemon has, and nobody has been given */

/* ---- settle.c ---- */

/* Begins its time anew, once the servers have confirmed that. Does not wait. */
void nrd_js_lease_extend_later(NrdPartition *partition, uint64_t offset, uint64_t nonce);

/* ---- fetch.c ---- */

/* The key of a message's headers (g_free), by what gets a header. */
void nrd_js_decode_key(const char *header, uint8_t **ret_key, size_t *ret_size);

#endif
