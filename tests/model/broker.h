/* A broker that keeps everything in plain arrays and works every answer out by walking over them: what the engine is
 * compared with. No I/O, no locks, one thread. */
#ifndef NRD_TESTS_MODEL_BROKER_H
#define NRD_TESTS_MODEL_BROKER_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define N_TOPICS 3
#define NO_TOPIC (-1)

typedef enum State { FREE, LEASED, SETTLED } State;

typedef struct Record {
    char *key; /* "" for none */
    char *payload;
    int64_t written_ms;
    State state;
    uint64_t nonce;
    int64_t expiry_ms;
} Record;

typedef struct Partition {
    GPtrArray *records; /* Record*; the index is the offset */
    GArray *bases;      /* uint64_t: first offsets of the segments; the first one is the oldest offset retained */
} Partition;

typedef struct Topic {
    bool exists;
    char id[17];
    GPtrArray *partitions; /* Partition* */
    int parent;            /* or NO_TOPIC */
    int64_t delay_ms;      /* its own, as a child */
    GArray *copied;        /* uint64_t: of each of the parent's partitions the offset that is copied next */
    int64_t visibility_timeout_ms;
    int64_t max_in_flight;
    int64_t max_acked_ahead;
} Topic;

typedef struct Broker {
    Topic topics[N_TOPICS];
    int64_t now_ms;
} Broker;

void topic_init(Topic *topic, const char *id);
void topic_clear(Topic *topic);
void topic_grow(Topic *topic, unsigned n_partitions);
bool topic_is_empty(const Topic *topic); /* retains no record */
bool broker_has_children(const Broker *broker, int parent);
bool broker_is_delayed(const Broker *broker, int topic);
/* The greatest delay of its children. */
int64_t broker_max_delay_ms(const Broker *broker, int parent);
void broker_attach(Broker *broker, int child, int parent);
/* Takes what is due of the parent's records that the child has not got, to be copied now: adds "key\npayload" to due. What
 * the parent retains no longer never comes. */
void broker_take_due(Broker *broker, int child, GPtrArray *due);

void partition_append(Partition *p, const char *key, const char *payload, int64_t now_ms);
uint64_t partition_hwm(const Partition *p);
uint64_t partition_oldest(const Partition *p);
uint64_t partition_frontier(const Partition *p);
/* Offsets from the frontier on. */
unsigned partition_count(const Partition *p, State state);
Record *partition_at(const Partition *p, uint64_t offset);

/* The offset that the next take gets; false: none. */
bool partition_next(const Topic *topic, const Partition *p, uint64_t *ret_offset);
void partition_lease(const Topic *topic, Partition *p, uint64_t offset, uint64_t nonce, int64_t now_ms);
bool partition_live(const Partition *p, uint64_t offset, uint64_t nonce);
/* 0, -ESTALE or -EAGAIN, as an ack answers; changes nothing. */
int partition_ack_error(const Topic *topic, const Partition *p, uint64_t offset, uint64_t nonce);

void partition_seek(Partition *p, uint64_t frontier); /* drops leases */
void partition_drop_leases(Partition *p);
void partition_expire(Partition *p, int64_t now_ms);
void partition_roll(Partition *p);
void partition_trim(Partition *p, uint64_t offset);
/* Whole segments go whose last record is older than that; the newest one is closed for it. */
void partition_expire_records(Partition *p, int64_t max_age_ms, int64_t now_ms);
/* Whole segments go that lie beyond the newest max_bytes; sizes (uint64_t) are those of the segments' files. */
void partition_expire_bytes(Partition *p, const GArray *sizes, uint64_t max_bytes);

/* FNV-1a 32 over the key, modulo n. */
unsigned key_partition(const char *key, unsigned n);

#endif
