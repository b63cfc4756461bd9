/* Diagnostics: one line per event, with the place it happened at, and process-wide counters.
 * Lines go to standard error (with a syslog level prefix when the journal reads it) or, once the daemon is in the
 * background, to syslog. Any thread; may block on the log's reader. */
#ifndef NRD_BASE_DIAG_H
#define NRD_BASE_DIAG_H

#include <stddef.h>
#include <stdint.h>

typedef enum NrdLevel {
    NRD_LEVEL_ERROR = 3, /* the numbers are those of syslog(3) */
    NRD_LEVEL_WARNING = 4,
    NRD_LEVEL_NOTICE = 5,
    NRD_LEVEL_INFO = 6,
    NRD_LEVEL_DEBUG = 7,
} NrdLevel;

/* Where something happened. NRD_NO_PARTITION and NRD_NO_OFFSET leave that part out of the line; topic may be NULL. */
typedef struct NrdPlace {
    const char *topic;
    int64_t partition;
    int64_t offset;
} NrdPlace;

#define NRD_NO_PARTITION ((int64_t)-1)
#define NRD_NO_OFFSET ((int64_t)-1)
#define NRD_NOWHERE ((NrdPlace){ NULL, NRD_NO_PARTITION, NRD_NO_OFFSET })

/* Lines above this level (less urgent) are dropped; the default is NRD_LEVEL_INFO. */
void nrd_diag_set_level(NrdLevel level);

/* Parses "error", "warning", "notice", "info" or "debug"; -EINVAL otherwise. */
int nrd_diag_parse_level(const char *text, NrdLevel *ret_level) __attribute__((warn_unused_result));

/* From now on write to syslog(3) under ident instead of standard error. */
void nrd_diag_use_syslog(const char *ident);

/* Writes one line: "<what> topic=T partition=P offset=O". The text says what happened, to what, and what to do. */
void nrd_diag(NrdLevel level, NrdPlace place, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What somebody wrote, for a line of the log: in quotes, cut after NRD_QUOTE_MAX bytes, with ? for whatever is not printable
 * ASCII, and for quotes. g_free. */
#define NRD_QUOTE_MAX 80
char *nrd_quote(const char *text, size_t size);

/* "" for one, else "s". */
static inline const char *nrd_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Process-wide counters, each with the name of its metric. */
typedef enum NrdCounter {
    NRD_COUNTER_FSYNC_POISONED, /* errors_total{component="storage",kind="fsync_poisoned"} */
    NRD_COUNTER_COMMIT_FAILED,  /* errors_total{component="storage",kind="commit"} */
    NRD_COUNTER_TAKEN_AWAY,     /* errors_total{component="storage",kind="taken_away"}: an active segment was removed */
    NRD_COUNTER_UNREADABLE, /* errors_total{component="storage",kind="unreadable"}: segments that could not be read */
    NRD_COUNTER_CORRUPT_FRAMES,  /* frames passed over by recovery or by a read */
    NRD_COUNTER_CORRUPT_SKIPPED, /* narad_consumer_corrupt_skipped_total */
    NRD_COUNTER_TORN_TAILS,      /* tails truncated at open */
    NRD_COUNTER_COMMITS,
    NRD_COUNTER_RECORDS,
    NRD_COUNTER_PRODUCED, /* of them, those that are no copies */
    NRD_COUNTER_LEASES_EXPIRED,
    NRD_COUNTER_RETENTION_UNLINK, /* errors_total{component="storage",kind="retention_unlink"} */
    NRD_COUNTER_QUARANTINED,
    NRD_COUNTER_RECLAIMED,
    /* what was deleted, and why: three of each, in the order of NrdDeleteReason (age, bytes, trim) */
    NRD_COUNTER_DELETED_BYTES,
    NRD_COUNTER_DELETED_RECORDS = NRD_COUNTER_DELETED_BYTES + 3,
    NRD_COUNTER_DELETED_SEGMENTS = NRD_COUNTER_DELETED_RECORDS + 3,
    NRD_COUNTER_REAPER_RESTARTS = NRD_COUNTER_DELETED_SEGMENTS + 3, /* narad_reaper_restarts */
    NRD_COUNTER_COLD_SWEPT,                                         /* narad_cold_retention_swept_total */
    NRD_COUNTER_COLD_FAILED,                                        /* narad_cold_retention_panics_total */
    NRD_COUNTER_OPENED,                                             /* partitions opened */
    NRD_COUNTER_OPEN_FAILED,                                        /* errors_total{component="storage",kind="open"} */
    NRD_COUNTER_IDLE_CLOSED,                                        /* partitions closed because nobody used them */
    NRD_COUNTER_ROLLED,                                             /* segments sealed */
    NRD_COUNTER_INDEX_REBUILT,                                      /* side indexes made again from their segments */
    NRD_COUNTER_CACHE_HITS,                                         /* frames found in memory */
    NRD_COUNTER_CACHE_MISSES,                                       /* frames read and decoded */
    NRD_COUNTER_PREALLOC_FAILED,     /* errors_total{component="storage",kind="preallocation"} */
    NRD_COUNTER_INGRESS_ENTRIES,     /* entries acknowledged by the ingress WAL */
    NRD_COUNTER_INGRESS_SYNCS,       /* its fdatasyncs */
    NRD_COUNTER_INGRESS_FAILED,      /* errors_total{component="ingress",kind="append"} */
    NRD_COUNTER_INGRESS_SYNC_FAILED, /* errors_total{component="ingress",kind="fsync"} */
    NRD_COUNTER_INGRESS_CHECKPOINT,  /* errors_total{component="ingress",kind="checkpoint"} */
    NRD_COUNTER_INGRESS_UNLINK,      /* errors_total{component="ingress",kind="unlink"} */
    NRD_COUNTER_INGRESS_COMMIT,      /* errors_total{component="ingress",kind="commit"}: passes that failed */
    NRD_COUNTER_INGRESS_DAMAGED,     /* runs of bytes passed over by recovery */
    NRD_COUNTER_INGRESS_REPLAYED,    /* parts taken over from an earlier run */
    NRD_COUNTER_INGRESS_RECOGNIZED,  /* ... of which were found in their partition already */
    NRD_COUNTER_INGRESS_DISPATCHED,  /* records committed to their partition */
    NRD_COUNTER_INGRESS_REROUTED,    /* records that went to a sibling */
    NRD_COUNTER_INGRESS_DISCARDED,   /* records whose topic is gone */
    NRD_COUNTER_INGRESS_LOST,        /* records that could not be read back: damaged on disk */
    NRD_COUNTER_FANOUT_COPIED,       /* records copied to children */
    NRD_COUNTER_FANOUT_DROPPED,      /* narad_fanout_child_dropped_messages: they can never be copied */
    NRD_COUNTER_FANOUT_FAILED,       /* errors_total{component="fanout",kind="pass"} */
    NRD_COUNTER_FANOUT_CURSOR,       /* errors_total{component="fanout",kind="cursor"} */
    NRD_COUNTER_SETTLED,             /* records settled by consumers */
    NRD_COUNTER_LATE_ACKS,           /* narad_late_acks_total: confirmed by servers after the end of their lease */
    NRD_COUNTER_ACKED_MISSING,       /* narad_acknowledged_missing_total: what servers have acknowledged and have not */
    NRD_COUNTER_SERVER_LOSSES,       /* connections to the NATS servers that were lost */
    NRD_COUNTER_SERVER_RECONNECTS,   /* ... that were made again */
    NRD_COUNTER_SERVERS_SILENT,      /* requests to them that were not answered in their time */
    NRD_COUNTER_PUBLISH_RETRIES,     /* records that were sent to them once more */
    NRD_COUNTER_REROUTED,            /* ... that went to another partition, as their own takes nothing */
    NRD_N_COUNTERS,
} NrdCounter;

void nrd_counter_add(NrdCounter counter, uint64_t n);
uint64_t nrd_counter_get(NrdCounter counter);

#endif
