/* naradfs's engine: all that the file system layer sees of it. This file has the engine as a whole; those that it includes have
 * topics, partitions, producing, consuming and reading.
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

#include "engine/engine_consume.h"
#include "engine/engine_partition.h"
#include "engine/engine_produce.h"
#include "engine/engine_read.h"
#include "engine/engine_topic.h"
#include "engine/engine_types.h"

#include <sys/statvfs.h>

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

/* ---- watching the engine ---- */

/* Counters and gauges as Prometheus text (g_free). Never blocks on the disk. */
char *nrd_engine_metrics(NrdEngine *engine);

#endif
