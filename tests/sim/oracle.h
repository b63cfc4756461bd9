/* What has been promised, kept outside the engine, and whether a store keeps it.
 *
 * A journal is written by a workload as things happen: before something is asked for, that it may be; after it was
 * acknowledged, that it is. It can be copied at any moment, as of a crash. oracle_check opens the store again and again
 * and compares: the invariants are those of docs/reliability.md, and a violation begins with its number.
 *
 * Every record's bytes follow from its number and the journal's seed, so a record that is found tells which one it claims
 * to be, and each of its bytes is known.
 *
 * Threads: a journal has one writer; oracle_copy may run on any thread beside it. */
#ifndef NRD_TEST_ORACLE_H
#define NRD_TEST_ORACLE_H

#include "engine/engine.h"

#include <pthread.h>

#define ORACLE_MAX_TOPICS 8
#define ORACLE_MAX_PARTITIONS 4
#define ORACLE_MAX_RECORDS 600
#define ORACLE_MAX_OFFSETS 400 /* of a partition */
#define ORACLE_TOPIC_LEVEL (-1)
#define ORACLE_UNKNOWN (-1)

/* ---- records ---- */

typedef struct OracleRecord {
    int8_t topic;         /* number in the journal */
    int8_t partition;     /* it was produced to, or ORACLE_TOPIC_LEVEL */
    uint8_t key;          /* 0: none */
    uint8_t n_partitions; /* of the topic then */
    bool acked;
    bool unsure;      /* acknowledged after a sync had lied: it may be lost */
    bool quarantined; /* it lies in a folder of another topic: never served */
    bool abandoned;   /* its producer is gone: nobody submits it again */
    int8_t at;        /* partition and offset that its producer was told, or ORACLE_UNKNOWN */
    int64_t offset;
    uint32_t size;
} OracleRecord;

/* The bytes of record number id (g_free); about one in eight holds a whole valid frame, or bytes that look like its
 * beginning. */
uint8_t *oracle_payload(uint32_t seed, int id, size_t size);
/* Its key, "" for 0. */
const char *oracle_key(uint8_t key);

/* ---- topics ---- */

typedef enum OracleTopicState {
    ORACLE_CREATING, /* it may be there */
    ORACLE_THERE,
    ORACLE_DELETING, /* it may be there, whole */
    ORACLE_GONE,
} OracleTopicState;

typedef enum OracleSettled {
    ORACLE_OPEN,      /* it has to come again */
    ORACLE_REOPENING, /* asked to come again, and not durably so yet */
    ORACLE_EITHER,    /* asked for, and not answered */
    ORACLE_SETTLED,   /* in memory */
    ORACLE_DURABLE,   /* must not come again */
} OracleSettled;

typedef struct OraclePartition {
    uint64_t gone_below; /* offsets below may be deleted: a trim or retention */
    uint64_t trimmed;    /* offsets below are deleted for good: a trim has said so */
    uint64_t next;       /* the offset after the last one that was told */
    uint64_t floor;      /* what is told from now on is not below */
    uint64_t hwm;        /* the highest that was seen */
    uint8_t told[ORACLE_MAX_OFFSETS];
    uint8_t settled[ORACLE_MAX_OFFSETS];
} OraclePartition;

typedef struct OracleTopic {
    char name[64];
    char id[20]; /* "" until it is known */
    OracleTopicState state;
    bool unsure;          /* made or changed after a sync had lied */
    uint8_t n_partitions; /* at least */
    int8_t parent;        /* ORACLE_UNKNOWN: none */
    bool attached;        /* durably: what the parent gets from now on has to come */
    int first_id, end_id; /* records of the parent that have to be copied: from first_id, below end_id */
    int maybe_first_id;   /* those from here on may be */
    OraclePartition partitions[ORACLE_MAX_PARTITIONS];
} OracleTopic;

typedef struct Oracle {
    uint32_t seed;
    int n_records, n_topics;
    bool lied;        /* a sync has lied */
    bool layout_lied; /* ... about what makes a folder a data directory: it may be refused */
    bool rerouted;    /* commits may have failed: records of a topic may be in any of its partitions */
    bool twice;       /* records of a topic may come twice after a crash (a partition's own producer was open) */
    bool quarantine;  /* folders were swapped by hand: names without their records are expected */
    bool unordered;   /* names were lost by a power cut in no order */
    int n_crashes;
    OracleRecord records[ORACLE_MAX_RECORDS];
    OracleTopic topics[ORACLE_MAX_TOPICS];
} Oracle;

/* ---- writing it ---- */

Oracle *oracle_new(uint32_t seed);
void oracle_free(Oracle *oracle);
/* A copy as of now (oracle_free). */
Oracle *oracle_copy(const Oracle *oracle);
/* Every writer holds it; short. */
void oracle_lock(void);
void oracle_unlock(void);

/* Each returns the number of what is new. */
int oracle_add_topic(Oracle *oracle, const char *name, unsigned n_partitions);
int oracle_submit(Oracle *oracle, int topic, int partition, uint8_t key, size_t size);
/* The producer of record id was told where it stands: NULL, or a sentence (g_free) when that offset was given out before, or
 * the record was told another one. */
char *oracle_told(Oracle *oracle, int id, unsigned partition, uint64_t offset);
void oracle_acked(Oracle *oracle, int id);

/* ---- checking ---- */

/* What the store as nrd_io shows it has done to the promises: NULL, or the first violation as a sentence (g_free). Opens
 * it four times, and appends to it. */
char *oracle_check(const Oracle *oracle);

/* The same for one open. Unless appended is NULL each partition gets a record. looked is called before that and appended after
 * it, with what the store has promised by then; what was visible counts as promised. */
typedef void (*OracleMoreFn)(void *user_data, const Oracle *more);
char *oracle_check_once(const Oracle *oracle, OracleMoreFn looked, OracleMoreFn appended, void *user_data);

#endif
