/* naradfs's engine: all that the file system layer sees of it.
 *
 * An engine has topics; a topic has partitions; a partition takes records from producers, keeps them in a log, and hands
 * them to consumers under leases. Knows nothing of FUSE.
 *
 * Errors: negative errno, in the meaning of the contract: -EIO poisoned or read failure, -ENOSPC/-EDQUOT disk,
 * -EMSGSIZE record too long, -EINVAL malformed, -ESTALE receipt lapsed, -EAGAIN nothing now or acked-ahead set full,
 * -EBADMSG damaged frame, -ENOENT outside the retained range, -EIDRM topic deleted, -EBUSY/-ENOTEMPTY removal,
 * -EROFS read-only, -ENODEV the engine is stopping. Each is logged once, by whoever decides it.
 *
 * Asynchrony: what waits for records takes a callback and never blocks the caller. What waits for the disk takes a
 * callback too; it may do the work on the calling thread (a lone producer's commit does) and call back before it
 * returns, or be answered by the thread of a commit already under way. A callback is called exactly once, on any thread,
 * with no lock held that producing, consuming or reading takes; it may call those, but not what creates, changes or
 * deletes topics (a deletion answers everybody it concerns while it runs).
 *
 * Ownership: a topic is counted; its partitions live as long as it does. Threads: everything from any thread, unless a
 * comment says otherwise. */
#ifndef NRD_ENGINE_ENGINE_H
#define NRD_ENGINE_ENGINE_H

#include "engine/base/macros.h"
#include "engine/base/rendering.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>

typedef struct NrdEngine NrdEngine;
typedef struct NrdTopic NrdTopic;
typedef struct NrdPartition NrdPartition;
typedef struct NrdProducer NrdProducer;
typedef struct NrdTopicProducer NrdTopicProducer;
typedef struct NrdReader NrdReader;

/* Called once with 0 or a negative errno. */
typedef void (*NrdDoneFn)(void *user_data, int error);

/* ---- the engine ---- */

typedef struct NrdEngineOptions {
    const char *data_path;
    bool read_only;
    bool held; /* nothing is dispatched, copied or deleted before nrd_engine_start: who opens it may yet give up */
    const char *topic_defaults; /* `key=value` lines for new topics, or NULL */
    int64_t idle_close_ms;      /* a partition that nobody uses for so long is closed; 0: 30 minutes */
    int64_t retention_check_ms; /* between sweeps of open partitions; 0: one minute */
    int64_t cold_retention_ms;  /* between walks over closed ones; 0: 5 minutes, -1: no walks */
    uint64_t cache_bytes;       /* bound of decoded frames kept in memory, for the process; 0: 64 MiB */
    const char *engine; /* which one: NULL or "local"; or "jetstream", if it was built; then data_path is NULL, and: */
    const char *url;    /* its servers, with commas */
    int replicas;       /* copies of each record; 0: as many as there are servers, up to 3 */
    /* Of the servers too, each may be NULL. Names of files are absolute. */
    const char *tls_ca;   /* file: who vouches for them */
    const char *tls_cert; /* file: shown to them; and its key's */
    const char *tls_key;
    const char *tls_host; /* the name that their certificates are for, instead of those in the url */
    const char *creds;    /* file: a user's JWT and seed */
    const char *nkey;     /* a user's public key; and the file with its seed */
    const char *nkey_seed;
    bool fsync_asserted; /* somebody has said that the servers sync before they acknowledge */
    bool require_fsync;  /* to be refused unless what is acknowledged is synced */
    /* Whether who opens it was told to end, and waits for no server any more; NULL: never. Any thread, also while it is open. */
    bool (*is_told_to_end)(void);
} NrdEngineOptions;

/* Opens the data directory, claims the folder of every topic, sweeps what deleted topics left, starts the timers.
 * Partitions are opened when they are used. Blocks; costs O(topics). On failure *ret_why (g_free) is a sentence for a
 * person. Call it after the process has daemonized: it starts threads. */
int nrd_engine_open(const NrdEngineOptions *options, NrdEngine **ret_engine, char **ret_why) NRD_MUST_CHECK;

/* Once, of an engine that was opened `held` (else its opening does it): from now on it acts by itself. Never blocks. */
void nrd_engine_start(NrdEngine *engine);

/* Answers every parked reader with -ENODEV, and every later take; whoever waits for other machines gets it soon. Commits go on
 * (to other machines: while they answer). Does not block. It may be called more than once. */
void nrd_engine_stop(NrdEngine *engine);

/* Commits what producers still hold, writes every frontier and high watermark, closes the files. All producers, readers
 * and topic references have been given back. Blocks. Returns the first error (everything is closed all the same). */
int nrd_engine_close(NrdEngine *engine) NRD_MUST_CHECK;

/* The disk under the data directory. */
int nrd_engine_statvfs(NrdEngine *engine, struct statvfs *ret_st) NRD_MUST_CHECK;

bool nrd_engine_read_only(const NrdEngine *engine);

/* What an acknowledgement is worth in partitions that are made by this engine, in a word (static): "fsync": the disk was
 * synced, and what it has read back; "quorum", "server": most of the servers that keep copies, or the one that does, have it;
 * then "+fsync": ... and synced; "+memory": ... in memory, and no disk ever has it. */
const char *nrd_engine_durability(NrdEngine *engine);

/* Something that is not well, and which a person can do something about. */
typedef struct NrdTrouble {
    char *topic;
    int64_t partition; /* NRD_NO_PARTITION (-1): the whole topic */
    bool lost;         /* a topic that stays out of service until the restart */
    bool poisoned;     /* a partition: `reopen` clears it; else it could not be opened */
    bool passes;       /* ... or it passes by itself */
    bool failing;      /* a partition whose last commit failed; the next one may succeed */
    bool by_others;    /* ... or is out of service for what others have done to its files */
    bool damaged;      /* a partition that is served, but for records that are lost */
    bool missing;      /* ... because a segment's file is gone */
    bool anew;         /* a partition that is served, but its folder was missing */
    bool unreadable;   /* a partition that is served, but for segments that cannot be read now */
    bool hidden;       /* a partition that is served, but for records that hwm hides */
    bool unsaved;      /* a partition that is served, but progress of its consumers cannot be written now */
    bool apart;        /* a partition that is served, but servers have copies of it that differ */
    char *reason;      /* in one sentence */
} NrdTrouble;

#define NRD_MAX_TROUBLES 50

/* The engine at a glance. Of partitions that are closed it tells what was true at their close. */
typedef struct NrdSummary {
    uint64_t n_topics, n_topics_out;          /* all, and those out of service */
    uint64_t n_partitions, n_open, n_unknown; /* unknown: not used since the start; they are in none of the sums */
    uint64_t n_poisoned, n_faulty;
    uint64_t n_damaged, n_lost; /* partitions with lost records that are known, and these records */
    uint64_t n_unreadable;      /* partitions with segments that cannot be read now */
    uint64_t n_anew;            /* partitions whose folder was missing */
    uint64_t n_hiding;          /* partitions with whole records that are not served */
    uint64_t n_unsaved;         /* partitions whose consumers' progress cannot be written now */
    uint64_t n_apart;           /* partitions of which servers have copies that differ */
    uint64_t n_failing;         /* partitions that are well but for their last commit, as on a full disk */
    uint64_t n_otherwise;       /* partitions whose durability is another than the engine's */
    uint64_t size_bytes;        /* of segments */
    uint64_t lag;               /* records readable and not settled */
    uint64_t in_flight;
    bool ingress;      /* topics can be produced to as a whole */
    int ingress_error; /* the last write of the ingress WAL failed: -ENOSPC, -EDQUOT, -EIO; the next one may not */
    uint64_t ingress_parts, ingress_stuck,
        ingress_bytes;                        /* waiting to be dispatched; partitions that wait after a failure; WAL */
    uint64_t n_refused;                       /* topics that take no records as a whole: nrd_topic_produce_error */
    uint64_t n_parents, n_children;           /* of the fan-out */
    uint64_t fan_lag, fan_lag_delayed;        /* records not copied yet, to children without a delay and with one */
    uint64_t n_fan_failing;                   /* partitions of parents, once a child, whose last pass failed */
    uint64_t n_produced, n_copied, n_settled; /* records, since the start of the process; copies are not produced */
    bool has_servers;                         /* the records are on other machines; only then: */
    bool connected;                           /* ... one of which answers */
    int64_t connection_ms;                    /* since when that is so; Unix milliseconds */
    char *connection_refused;                 /* what they say to who connects, in a few words; NULL: nothing */
    char *topics_fault;                       /* why no topic can be made, changed or removed; NULL: they can */
    GPtrArray *troubles;                      /* of NrdTrouble*, by topic and partition, NRD_MAX_TROUBLES at most */
} NrdSummary;

/* Costs O(partitions), opens and reads none: memory only, but for a look at the room on the disk for each topic whose
 * records were refused. The caller gives it to nrd_summary_clear. */
void nrd_engine_summary(NrdEngine *engine, NrdSummary *ret_summary);
void nrd_summary_clear(NrdSummary *summary);

/* ---- topics ---- */

/* Owner, group and permission bits (07777) of a topic's folder or of a file below it. */
typedef struct NrdAttr {
    uint32_t uid;
    uint32_t gid;
    uint32_t mode;
} NrdAttr;

/* Names of all topics, sorted (char*; g_ptr_array_unref). Never waits for the disk. */
GPtrArray *nrd_engine_topic_names(NrdEngine *engine);

/* Finds a topic; the caller gives *ret_topic back with nrd_topic_unref. -ENOENT. Never waits for the disk. A topic that
 * is out of service (damaged record, its folder cannot be claimed) is found; nrd_topic_fault says why. */
int nrd_topic_find(NrdEngine *engine, const char *name, NrdTopic **ret_topic) NRD_MUST_CHECK;

/* Creates a topic durably, with the engine's defaults: -EINVAL/-ENAMETOOLONG bad name, -EEXIST, -EROFS, disk errors.
 * umask is what files below take their defaults from. *ret_topic as in find. Blocks. */
int nrd_topic_create(NrdEngine *engine, const char *name, const NrdAttr *attr, uint32_t umask,
                     NrdTopic **ret_topic) NRD_MUST_CHECK;

/* Removes a topic that retains no record and has no open handle: -ENOTEMPTY, -EBUSY (handles that are being released
 * are waited for, 200 ms at most). Blocks. */
int nrd_topic_remove(NrdTopic *topic) NRD_MUST_CHECK;

/* Deletes a topic with its records: -EINVAL when id is not its incarnation. Parked readers and open handles get -EIDRM.
 * Blocks. */
int nrd_topic_delete(NrdTopic *topic, const char *id) NRD_MUST_CHECK;

NrdTopic *nrd_topic_ref(NrdTopic *topic);
void nrd_topic_unref(NrdTopic *topic); /* takes NULL */

/* Counts open handles on files of the topic, which is what nrd_topic_remove respects. -EIDRM when deleted. */
int nrd_topic_hold(NrdTopic *topic) NRD_MUST_CHECK;
void nrd_topic_release(NrdTopic *topic);

const char *nrd_topic_name(const NrdTopic *topic);
const char *nrd_topic_incarnation(const NrdTopic *topic); /* "" when its record is damaged */
bool nrd_topic_deleted(NrdTopic *topic);
/* Why it is out of service, or NULL; g_free. Each use of one that is not lost tries again, and may end it. Memory only. */
char *nrd_topic_fault(NrdTopic *topic);
/* Why records for the topic as a whole were refused, and would be now: -ENOSPC (no room on the disk), -EAGAIN (too much
 * waits in the ingress WAL), -EIO (it could not be written); 0: they are taken. Asks the file system how much is free. */
int nrd_topic_produce_error(NrdTopic *topic);
bool nrd_topic_lost(NrdTopic *topic);             /* out of service until the restart. Memory only */
uint32_t nrd_topic_n_partitions(NrdTopic *topic); /* 0 when its record is damaged */
int64_t nrd_topic_created_ms(NrdTopic *topic);    /* for times of folders; 0 when unknown */

/* Owner, group and mode. path is relative to the topic: "" its folder, "config", "p00000", "p00000/produce",
 * "p00000/.streams/consume"; is_dir and base_mode (0666, 0444 or 0777) tell the default. Never waits for the disk. */
void nrd_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr);

/* Persists those of the three that `what` names; the others stay. Blocks. */
enum { NRD_ATTR_UID = 1, NRD_ATTR_GID = 2, NRD_ATTR_MODE = 4 };
int nrd_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what,
                       const NrdAttr *attr) NRD_MUST_CHECK;

/* Settings. Keys in order, NULL-terminated, static. */
const char *const *nrd_config_keys(void);
char *nrd_topic_config_value(NrdTopic *topic, const char *key); /* g_free; NULL: no such key */
char *nrd_topic_config_lines(NrdTopic *topic);                  /* every `key=value`; g_free */
/* Sets the keys named in `key=value` lines, all or nothing, durably, in force at once: -EINVAL, -EBUSY, -EIDRM, disk. Blocks. */
int nrd_topic_config_write(NrdTopic *topic, const char *text, size_t size) NRD_MUST_CHECK;
/* Logs a refusal, and keeps it for `status`. partition may be NRD_NO_PARTITION. Any thread; memory only. */
void nrd_topic_refuse(NrdTopic *topic, int64_t partition, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* The last one since the start, in words (g_free), and when it was; NULL: there was none. Memory only. */
char *nrd_topic_refusal(NrdTopic *topic, int64_t *ret_ms);

/* One number of the settings, as a value in force; never blocks. */
int64_t nrd_topic_max_record_bytes(NrdTopic *topic);
int64_t nrd_topic_max_key_bytes(NrdTopic *topic);   /* what the engine has room for; INT64_MAX: any key */
int64_t nrd_topic_consume_wait_ms(NrdTopic *topic); /* -1: for ever */

/* ---- fan-out: a child gets a copy of every record that its parent commits ---- */

/* Attaches the topic of that name as a child, durably: from now on what is committed to any partition of parent is copied
 * to it (keyed records to the partition that their key chooses there, unkeyed ones in turn), no earlier than the child's
 * fanout_delay_ms after its commit. Nothing from before is copied, also when it was a child once. At least once: a crash
 * may repeat the last batch. The child's max_record_bytes does not bound copies.
 * -ENOENT no such topic; -EEXIST attached already; -EBUSY it has another parent; -EINVAL parent itself, a chain (one that
 * has a parent gets no children, one that has children gets no parent), or the parent's retention_ms is not 0 and below
 * the child's delay plus an hour; -EMLINK it would be the 109th; -EIDRM, -EIO out of service, -EROFS, disk. Blocks. */
int nrd_topic_attach(NrdTopic *parent, const char *child) NRD_MUST_CHECK;

/* Detaches it durably; returns when nothing more is copied. -ENOENT no child of that name; -EIDRM, -EIO, -EROFS, disk.
 * Blocks. */
int nrd_topic_detach(NrdTopic *parent, const char *child) NRD_MUST_CHECK;

/* Names of the children, sorted (char*; g_ptr_array_unref), and of the parent (g_free) or NULL. Memory only. */
GPtrArray *nrd_topic_children(NrdTopic *topic);
char *nrd_topic_parent(NrdTopic *topic);

/* Whether it is a child with a delay: producing to it is -EPERM. Memory only. */
bool nrd_topic_is_delayed(NrdTopic *topic);

#define NRD_MAX_CHILDREN 108

/* How far copying has come in one partition of the parent. */
typedef struct NrdChildRow {
    uint32_t partition; /* of the parent */
    uint64_t cursor;    /* the next offset to copy */
    uint64_t hwm;       /* of the parent's partition; what is not copied yet is below it */
    int64_t due_ms; /* of a delayed child: when the record at cursor may be copied, Unix milliseconds; 0: not known */
    uint32_t n_failed; /* passes in a row that failed; 0: well */
    int error;         /* of the last failed pass, negative; 0 */
} NrdChildRow;

typedef struct NrdChildInfo {
    int64_t delay_ms;
    int64_t attached_ms; /* Unix milliseconds */
    uint64_t lag;        /* records not copied yet, due or not, over all rows */
    uint64_t n_copied;   /* since the daemon's start or the attach */
    uint64_t n_dropped;  /* not copied for ever: the parent's retention was faster, or damage. Likewise */
    GArray *rows;        /* of NrdChildRow, by partition */
} NrdChildInfo;

/* -ENOENT no child of that name. Memory only. The caller gives it to nrd_child_info_clear. */
int nrd_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info) NRD_MUST_CHECK;
void nrd_child_info_clear(NrdChildInfo *info);

/* ---- partitions ---- */

/* The partition, alive as long as the topic; NULL when there is none of that number. */
NrdPartition *nrd_topic_partition(NrdTopic *topic, uint32_t number);

/* A partition is closed until it is used, and again when nobody has used it for a while. Who uses it pins it: an open
 * handle does as long as it lives. pin opens (which recovers: it may read a whole segment) and blocks; while a topic's
 * partition is being opened or closed only callers of that topic wait. Errors: -EIDRM, -ENODEV, -EIO (it cannot be
 * opened; the next pin tries again), -EMFILE, -ENOMEM. unpin never blocks. Producers and readers below pin for themselves;
 * taking and settling need the caller's pin, until every callback has come. */
int nrd_partition_pin(NrdPartition *partition) NRD_MUST_CHECK;
void nrd_partition_unpin(NrdPartition *partition);

/* Whether a pin would be had (or refused) without waiting for the disk. Never blocks. */
bool nrd_partition_is_open(NrdPartition *partition);

/* Whether nrd_partition_info can answer. learn sees to it: it reads what a clean close left or opens the partition. A
 * partition that cannot be opened is known by that, as a fault. Errors, after which it is still not known, and what info
 * tells means nothing: -EIO the topic is out of service, -EIDRM, -ENODEV, -EMFILE, -ENFILE, -ENOMEM. Blocks. */
bool nrd_partition_known(NrdPartition *partition);
int nrd_partition_learn(NrdPartition *partition) NRD_MUST_CHECK;
void nrd_topic_learn(NrdTopic *topic); /* all its partitions; those that fail stay unknown. Blocks */

typedef struct NrdPartitionInfo {
    uint64_t oldest_offset;
    uint64_t hwm; /* exclusive */
    uint64_t next_offset;
    uint64_t frontier;
    uint64_t lag; /* hwm - frontier, less what is acked ahead and what is known to be lost */
    uint64_t in_flight;
    uint64_t acked_ahead;
    uint64_t segments;
    uint64_t size_bytes;
    uint64_t text_bytes; /* size of `log` for who opens it now */
    int64_t last_commit_ms;
    int64_t
        oldest_ms;  /* commit time of the oldest record, about; 0: there is none, or only a look at the disk can tell */
    bool poisoned;  /* a sync failed, or: */
    bool by_others; /* ... others have taken or replaced a file that is written to. `reopen` clears either */
    bool passes;    /* ... or servers give no answer: that passes by itself */
    const char *durability; /* as nrd_engine_durability, of this partition; NULL: not known, or the engine's */
    char *reason;           /* poison or fault in one sentence, "" when well; g_free */
    char *unsaved;          /* why progress of consumers cannot be written now, in one sentence; NULL: it can; g_free */
    char *apart;            /* that servers have copies that differ, in one sentence; NULL: none is known; g_free */
    uint64_t n_damaged;  /* frames known to be damaged, since the partition was opened; what they held is passed over */
    uint64_t n_lost;     /* records in them */
    uint64_t first_lost; /* the offset of the first; only with n_damaged above 0 */
    uint64_t n_holes;    /* places where a segment is gone or emptied, likewise */
    uint64_t n_missing;  /* records in them */
    uint64_t first_missing, last_missing; /* only with n_holes above 0 */
    uint64_t n_hidden;                    /* whole records from hwm on that are not served before the next commit */
    uint64_t n_unreadable;                /* segments whose last read failed: those who read there get EIO */
    uint64_t unreadable;                  /* the first record's offset, and the name, of the first of them */
    int unreadable_errno;                 /* why, positive; both only with n_unreadable above 0 */
    int commit_errno;                     /* positive; the last commit failed, the next may succeed. 0: well */
    bool anew;                            /* its folder was missing, and nobody has said by `reopen` that it is known */
    bool fault;                           /* could not be opened: every operation is -EIO */
    bool open;                            /* its files are open */
} NrdPartitionInfo;

/* Never waits for the disk: of a closed partition it tells what was true at its close. All zero while it is not known. */
void nrd_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info);
void nrd_partition_info_clear(NrdPartitionInfo *info);

/* The known damage in words (g_free); NULL: there is none. Pure. */
char *nrd_partition_info_damage(const NrdPartitionInfo *info);
/* The same of a folder that was missing; not to be freed. */
const char *nrd_partition_info_anew(const NrdPartitionInfo *info);
/* The same of segments that cannot be read. */
char *nrd_partition_info_unreadable(const NrdPartitionInfo *info);
/* The same of records that are hidden. */
char *nrd_partition_info_hidden(const NrdPartitionInfo *info);

/* A run of offsets that are lost: [offset, end_offset). */
typedef struct NrdLostRange {
    uint64_t offset;
    uint64_t end_offset;
} NrdLostRange;

/* The offsets known to be lost (NrdLostRange, ascending; g_array_unref). Opens a closed partition and may block for
 * that: -EIDRM, -EIO (fault), disk errors. Reads no record. */
int nrd_partition_lost_ranges(NrdPartition *partition, GArray **ret_ranges) NRD_MUST_CHECK;

uint32_t nrd_partition_number(const NrdPartition *partition);

/* The verbs of a partition's ctl. Each blocks; -EIDRM, -EROFS, disk errors. */
int nrd_partition_reopen(NrdPartition *partition) NRD_MUST_CHECK;
int nrd_partition_roll(NrdPartition *partition) NRD_MUST_CHECK;
int nrd_partition_trim(NrdPartition *partition, uint64_t offset) NRD_MUST_CHECK; /* -EINVAL above the high watermark */
typedef enum NrdSeek { NRD_SEEK_OFFSET, NRD_SEEK_START, NRD_SEEK_END } NrdSeek;
int nrd_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset) NRD_MUST_CHECK; /* -EINVAL above the hwm */

/* ---- producing ---- */

/* A producer is one open handle's buffer of complete records. Records of one producer are committed in the order they
 * were added. want_ranges keeps a line for nrd_producer_read_ranges per commit. -EIDRM, -EROFS, -EIO (fault). */
int nrd_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer) NRD_MUST_CHECK;

/* Whether writing makes sense now: -EIO poisoned, -EIDRM, or the failure of a background commit of this producer (told
 * once; while it goes on failing and the buffer is full, told every time). Never blocks. */
int nrd_producer_check(NrdProducer *producer) NRD_MUST_CHECK;

/* A record that somebody wants to be stored; the bytes are whose the function says. */
typedef struct NrdNewRecord {
    const uint8_t *key; /* may be NULL when key_size is 0: no key */
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdNewRecord;

/* Adds complete records to the buffer; the bytes are copied. The caller has checked max_record_bytes. Memory only; a lock
 * is taken once for all of them. */
void nrd_producer_add_many(NrdProducer *producer, const NrdNewRecord *records, size_t n_records);
void nrd_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload,
                      size_t payload_size);

typedef enum NrdUrgency {
    NRD_URGENCY_LATER, /* linger_ms has been arranged; nothing to do now */
    NRD_URGENCY_NOW,   /* 1 MiB or 1,000 records are buffered: call nrd_partition_flush, after replying */
    NRD_URGENCY_FULL,  /* far more is buffered: reply to the writer only after nrd_producer_sync has called back */
} NrdUrgency;

/* Tells what the buffer needs after a write; arranges the background commit after linger_ms. more_follows: the same program
 * is about to write or sync more, within microseconds (the kernel has cut its write); then a commit that is due waits for it,
 * 2 ms at most. */
NrdUrgency nrd_producer_wrote(NrdProducer *producer, bool more_follows);

/* Commits in the background's name what the producers of the partition hold: runs a commit on this thread unless one is
 * under way already. A failure is kept for nrd_producer_check. May block on the disk. Needs no producer: after the reply
 * to a write its own may be closed at any moment. */
void nrd_partition_flush(NrdPartition *partition);

typedef enum NrdSyncScope {
    NRD_SYNC_OWN,  /* the result is about the producer's own records */
    NRD_SYNC_FILE, /* ... and about those of the others, committed with them */
    NRD_SYNC_BESIDE, /* as OWN, for somebody else than the writer: that a record was dropped is still the writer's to be told */
} NrdSyncScope;

/* Commits, durably, everything this producer holds, together with what the other producers of the partition hold, and
 * calls back. On failure the records stay in the buffer, in order. */
void nrd_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data);

/* A producer is counted: who may use it beside its close holds a reference. After the close a sync of it has nothing to
 * commit. */
NrdProducer *nrd_producer_ref(NrdProducer *producer);
void nrd_producer_unref(NrdProducer *producer);

/* Takes whole "pNNNNN first last\n" lines (the rest of a line comes with the next call) into buf; returns the bytes. Of
 * more than 1 MiB that nobody takes the oldest lines are lost. */
size_t nrd_producer_read_ranges(NrdProducer *producer, char *buf, size_t size);

/* Commits what is left (a failure is logged, and the records are dropped: their writer was told at close) and gives the
 * opener's reference back. Calls back (done may be NULL) when nothing of it is left. May block on the disk. */
void nrd_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data);

/* ---- producing to a topic ---- */

/* The same, for a topic as a whole: a sync calls back when the ingress WAL holds the records durably. They are then
 * committed to the partitions that their keys choose (FNV-1a 32 over the key, modulo the number of partitions; unkeyed
 * records take turns, and pass over a partition that is out of service), visible within milliseconds, tried again until
 * it succeeds, over restarts too; and go to another partition when theirs keeps failing. Each function is what the one of
 * NrdProducer with its name is, but for this:
 * open: -EIDRM, -EROFS, -EIO (the topic is out of service, or the ingress WAL cannot be read).
 * check: also -EIO while the topic is out of service; it may block then, to look whether that has passed.
 * sync: what the WAL's disk says, -EIDRM, -EAGAIN (far too much is waiting to be committed), -ENOSPC (also while the disk
 * has no room for what waits).
 * read_ranges: the lines come when the dispatcher has committed. */
int nrd_topic_producer_open(NrdTopic *topic, bool want_ranges, NrdTopicProducer **ret_producer) NRD_MUST_CHECK;
int nrd_topic_producer_check(NrdTopicProducer *producer) NRD_MUST_CHECK;
void nrd_topic_producer_add_many(NrdTopicProducer *producer, const NrdNewRecord *records, size_t n_records);
void nrd_topic_producer_add(NrdTopicProducer *producer, const void *key, size_t key_size, const void *payload,
                            size_t payload_size);
NrdUrgency nrd_topic_producer_wrote(NrdTopicProducer *producer, bool more_follows); /* NOW: call nrd_topic_flush */
void nrd_topic_flush(NrdTopic *topic);
void nrd_topic_producer_sync(NrdTopicProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data);
NrdTopicProducer *nrd_topic_producer_ref(NrdTopicProducer *producer);
void nrd_topic_producer_unref(NrdTopicProducer *producer);
size_t nrd_topic_producer_read_ranges(NrdTopicProducer *producer, char *buf, size_t size);
void nrd_topic_producer_close(NrdTopicProducer *producer, NrdDoneFn done, void *user_data);

/* ---- consuming ---- */

/* A record under lease; the bytes are valid during the callback. */
typedef struct NrdDelivery {
    uint32_t partition;
    uint64_t offset;
    uint64_t nonce;
    int64_t timestamp_ms; /* commit time, Unix milliseconds */
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdDelivery;

/* delivery is NULL when error is not 0. */
typedef void (*NrdDeliverFn)(void *user_data, int error, const NrdDelivery *delivery);

/* A place in the line of waiting readers, embedded in its owner; zero it (or nrd_waiter_init) before each take. It may
 * be freed in the callback or after a cancel that returned true. */
typedef struct NrdWaiter {
    /* private to line.c, guarded by the line's lock */
    NrdDeliverFn deliver;
    void *user_data;
    GList link;
    int64_t deadline_ms; /* monotonic; 0: does not wait, INT64_MAX: for ever */
    bool sure;
    int state;
} NrdWaiter;

void nrd_waiter_init(NrdWaiter *waiter);

/* Leases the lowest deliverable record and hands it over. When there is none: wait_ms 0: -EAGAIN at once; else it waits,
 * up to wait_ms (-ETIMEDOUT) or for ever (-1). Other errors: -EIDRM, -ENODEV, -EIO. Records that can never be read are
 * skipped, counted and logged. A record found at once is handed over before the function returns. */
void nrd_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                        void *user_data);

/* As a take that does not wait, for a reader that settles by itself what it is given: leases only a record whose ack
 * will find room whatever the holders of other leases do, so that such readers side by side end with everything
 * settled. */
void nrd_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data);

/* A lease as its holder keeps it. */
typedef struct NrdHold {
    uint32_t partition;
    uint32_t note; /* the holder's own; a batch leaves the size there that its copy function told */
    uint64_t offset;
    uint64_t nonce;
} NrdHold;

/* Many records at a time. copy is called for one after the other, with a lock held: it copies what it needs and calls
 * nothing of the engine; it returns the bytes that the copy takes, at most UINT32_MAX, or 0 when there is no room for
 * it (that record is not leased, and the batch ends). A copy whose lease somebody else was faster to take is taken back:
 * uncopy drops the last so many bytes. */
typedef struct NrdBatch {
    size_t (*copy)(void *user_data, const NrdDelivery *delivery);
    void (*uncopy)(void *user_data, size_t size);
    void *user_data;
    bool sure;     /* as nrd_partition_take_sure */
    GArray *holds; /* of NrdHold: leases are added, one for each copy that stands, in its order */
    bool full;     /* copy had no room; false before */
    bool withheld; /* of a topic: a partition that cannot be read or opened now was passed over, and may have records */
} NrdBatch;

/* Leases records that are there now, the lowest first, while there is room. The errors are those of a take, but for
 * -EAGAIN: finding nothing is none; records may have been leased before one. */
int nrd_partition_take_batch(NrdPartition *partition, NrdBatch *batch) NRD_MUST_CHECK;

/* Gives up waiting. true: the callback will never be called and the caller owns the waiter again. false: it has been,
 * is being or will be called; before nrd_partition_take has been entered (another thread is about to) that call is made
 * by nrd_partition_take, with -EINTR. Holds no lock on return; may be called from any callback. */
bool nrd_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter);

/* LOOK changes nothing: 0 when the lease is live. */
typedef enum NrdVerb { NRD_VERB_ACK, NRD_VERB_NACK, NRD_VERB_EXTEND, NRD_VERB_LOOK } NrdVerb;

/* Acts on a live lease: -ESTALE, -EAGAIN (acked-ahead set full), -EIDRM. Memory only. Who waits may be woken (and
 * served) by this call. */
int nrd_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce) NRD_MUST_CHECK;

/* Settles one after the other up to the first that cannot be: how many took effect, and why it stopped in *ret_error (0:
 * all did; -EINVAL: of another partition). */
size_t nrd_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error);

/* Settles these leases, which are all of this partition, and makes that durable, with all that is settled: none of them is
 * settled before it is durable. Returns 0, and in errors (n) what became of each: 0, or as nrd_partition_settle says of an
 * ack. On failure, -ENOSPC and -EIO of the disk among others, no lease has changed, none has lapsed meanwhile, and the
 * failure stands in every error: the caller may try again, or give them back. A power cut before the next successful
 * write may find them settled all the same: the disk may have kept what it called a failure. Blocks: one sync. */
int nrd_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n,
                                 int *ret_errors) NRD_MUST_CHECK;

/* Makes all that is settled durable. May do the work on this thread. */
void nrd_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data);

/* Readability for poll: whether a take would find a record now, or fail at once, and a one-shot watch that calls notify (once,
 * on any thread, no lock held) when that may have become so, or the topic went away. set replaces; clear waits for nothing and
 * returns whether the watch was set: then notify was not and will not be called, else it was or is running. */
typedef struct NrdWatch {
    /* private to line.c */
    GList link;
    void (*notify)(void *user_data);
    void *user_data;
    bool set;
} NrdWatch;

bool nrd_partition_readable(NrdPartition *partition);
void nrd_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data);
bool nrd_watch_clear(NrdPartition *partition, NrdWatch *watch);

/* ---- consuming a topic: any of its partitions, in turn ---- */

/* A consumer of the topic keeps its partitions open. One that cannot be opened is left out, and said so in the log, until
 * it can be: each take looks. Blocks.
 * -EIDRM, -ENODEV, -EIO (out of service). */
typedef struct NrdTopicConsumer NrdTopicConsumer;
int nrd_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer) NRD_MUST_CHECK;
void nrd_topic_consumer_close(NrdTopicConsumer *consumer); /* takes NULL; its leases stay */

/* As their namesakes for one partition; the delivery says which one it is. Leases go round the partitions, so that a full
 * one starves none. Each partition hands out in its own order. One that cannot be read is passed over, for a second or until it
 * can be, while others are well, and so is one that cannot be opened; -EIO when none is well. */
void nrd_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                    void *user_data);
void nrd_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data);
int nrd_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch) NRD_MUST_CHECK;
bool nrd_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter);
bool nrd_topic_readable(NrdTopic *topic);
void nrd_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data);
bool nrd_topic_watch_clear(NrdTopic *topic, NrdWatch *watch);

/* As nrd_partition_settle; -EINVAL when the topic has no such partition. */
int nrd_topic_settle(NrdTopic *topic, uint32_t partition, NrdVerb verb, uint64_t offset, uint64_t nonce) NRD_MUST_CHECK;
size_t nrd_topic_settle_many(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error);

/* As nrd_partition_settle_durably; holds are in order of partition. First the partitions without any are synced, then the
 * others settled one after the other, up to the first that fails: what those before it had is settled, the leases of the
 * rest are as they were; errors says which. */
int nrd_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors) NRD_MUST_CHECK;

/* Makes all that is settled in any partition durable; the first failure. Blocks. */
void nrd_topic_sync_frontiers(NrdTopic *topic, NrdDoneFn done, void *user_data);

/* Receipts as text "partition:offset:nonce". */
#define NRD_RECEIPT_MAX 53
size_t nrd_receipt_write(uint32_t partition, uint64_t offset, uint64_t nonce, char buf[NRD_RECEIPT_MAX]);
int nrd_receipt_read(const char *text, size_t size, uint32_t *ret_partition, uint64_t *ret_offset,
                     uint64_t *ret_nonce) NRD_MUST_CHECK;
/* The lines at the front of text that are a receipt and a newline and nothing else: how many, at most max; holds has them,
 * with the size of the line, its newline included, as their note. */
size_t nrd_receipt_read_lines(const char *text, size_t size, NrdHold *holds, size_t max);

/* ---- reading ---- */

typedef enum NrdFrom { NRD_FROM_START, NRD_FROM_END, NRD_FROM_OFFSET } NrdFrom;

/* The log as text: payloads, one line each, from the oldest record at the time of the open, from the high watermark of
 * that time, or from `offset` on (-ENOENT outside [oldest, high watermark]). See NrdText in log/log.h. It pins the
 * partition. -EIDRM, -EIO. May open the partition. */
int nrd_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader) NRD_MUST_CHECK;
uint64_t nrd_reader_size(NrdReader *reader); /* never blocks on the disk */
int nrd_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size) NRD_MUST_CHECK;
void nrd_reader_close(NrdReader *reader);

/* The log from the oldest record on, in a rendering; then as above, but for the size: it is measured, which may take a
 * read of every record that was not measured before. See NrdRendered in log/reading/reading.h. */
int nrd_reader_open_rendered(NrdPartition *partition, const NrdRendering *rendering,
                             NrdReader **ret_reader) NRD_MUST_CHECK;

/* Bytes readable now, of a rendered reader. Blocks. -EIDRM, -ENODEV, -EIO. */
int nrd_reader_measure(NrdReader *reader, uint64_t *ret_size) NRD_MUST_CHECK;

/* Whether a read of a rendered reader at pos would measure whole segments first. Memory only. */
bool nrd_reader_waits(NrdReader *reader, uint64_t pos);

/* What a rendered reader opened now would have. Remembered for as long as nothing changes: a partition that is closed is
 * opened only when it is not known, and closed again. Blocks. */
int nrd_partition_rendered_bytes(NrdPartition *partition, const NrdRendering *rendering,
                                 uint64_t *ret_bytes) NRD_MUST_CHECK;

/* A record of one's own, copied. */
typedef struct NrdRecord {
    uint64_t offset;
    int64_t timestamp_ms; /* commit time, Unix milliseconds */
    uint8_t *key;
    size_t key_size; /* 0: no key */
    uint8_t *payload;
    size_t payload_size;
} NrdRecord;

/* Reads the committed record at offset: -ENOENT outside [oldest, high watermark), -EBADMSG damaged, -EIO, -EIDRM. Blocks;
 * may open the partition. The caller gives *ret_record to nrd_record_clear. */
int nrd_partition_record(NrdPartition *partition, uint64_t offset, NrdRecord *ret_record) NRD_MUST_CHECK;
void nrd_record_clear(NrdRecord *record);

/* The first offset committed at or after time_ms (Unix milliseconds), the high watermark when there is none yet. Blocks;
 * may open the partition. */
int nrd_partition_find_time(NrdPartition *partition, int64_t time_ms, uint64_t *ret_offset) NRD_MUST_CHECK;

/* A segment file as it may be shown: the bytes up to its last committed frame. */
typedef struct NrdSegmentView {
    uint64_t base;
    uint64_t size_bytes;
    int64_t last_ms; /* commit time of its newest record, 0 when it has none */
    bool sealed;     /* it never changes again */
} NrdSegmentView;

/* The retained segments, oldest first (NrdSegmentView; g_array_unref). Blocks; may open the partition. */
int nrd_partition_segments(NrdPartition *partition, GArray **ret_views) NRD_MUST_CHECK;

typedef struct NrdSegmentReader NrdSegmentReader;

/* Opens the segment whose first offset is base: -ENOENT. Pins the partition; what retention deletes meanwhile stays
 * readable. May open the partition. */
int nrd_segment_reader_open(NrdPartition *partition, uint64_t base, NrdSegmentReader **ret_reader) NRD_MUST_CHECK;
void nrd_segment_reader_view(NrdSegmentReader *reader, NrdSegmentView *ret_view); /* never blocks on the disk */
int nrd_segment_reader_read(NrdSegmentReader *reader, uint64_t pos, void *buf, size_t size,
                            size_t *ret_size) NRD_MUST_CHECK;
void nrd_segment_reader_close(NrdSegmentReader *reader);

/* ---- watching the engine ---- */

/* Counters and gauges as Prometheus text (g_free). Never blocks on the disk. */
char *nrd_engine_metrics(NrdEngine *engine);

#endif
