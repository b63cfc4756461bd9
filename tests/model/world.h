/* An engine and the broker that it is compared with. A difference ends the process: it says in which step, and what. */
#ifndef NRD_TESTS_MODEL_WORLD_H
#define NRD_TESTS_MODEL_WORLD_H

#include "broker.h"
#include "engine/engine.h"
#include "engine/io/io.h"
#include "steps.h"

#define N_SEEN 24
#define WORLD_NO_RETENTION "retention_ms=0\n"
#define PATIENCE_MS 60000 /* for what other threads do: the machine may be busy */

/* A lease that was seen; it may be gone long since, with its topic. */
typedef struct Seen {
    int topic;
    uint32_t partition;
    uint64_t offset;
    uint64_t nonce;
} Seen;

typedef struct World {
    Broker broker;
    char *path;
    NrdEngine *engine;
    NrdTopic *topics[N_TOPICS]; /* NULL: there is none */
    Seen seen[N_SEEN];
    unsigned n_seen;
    unsigned n_records; /* produced, so that each payload is another one */
    unsigned n_steps;
    unsigned done[N_STEP_KINDS]; /* steps that had something to do */
    /* what else has to have happened for a run to have shown something */
    unsigned n_late;     /* records that a child got after its delay */
    unsigned n_by_bytes; /* segments that went for their size */
    unsigned n_sick;     /* commits that failed since calls did */
    unsigned n_poisoned; /* ... of them those that poisoned their partition */
    unsigned n_sick_topics, n_sick_copies, n_sick_settlings, n_sick_settings; /* what else failed so */
    Step step;                                                                /* the present one */
    int64_t mono_ms; /* what the engine's clocks show at the beginning of each step */
    int64_t wall_ms;
} World;

void world_start(World *w); /* on a new folder; syncs are not done, since nothing dies */
void world_end(World *w);   /* closes everything, compares once more, removes the folder */
void world_do(World *w, const Step *step);

#define WORLD_CHECK(w, condition)                                                                                      \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            world_differs(w, #condition, __FILE__, __LINE__, "%s", "");                                                \
    } while (0)
#define WORLD_SAME(w, engine, broker)                                                                                  \
    do {                                                                                                               \
        int64_t engine_says = (int64_t)(engine), broker_says = (int64_t)(broker);                                      \
        if (engine_says != broker_says)                                                                                \
            world_differs(w, #engine, __FILE__, __LINE__,                                                              \
                          "the engine says %" G_GINT64_FORMAT ", the model %" G_GINT64_FORMAT, engine_says,            \
                          broker_says);                                                                                \
    } while (0)
_Noreturn void world_differs(const World *w, const char *what, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- between the files of this folder ---- */

/* The engine's and the model's; the number is taken modulo the count. */
Partition *world_partition(World *w, int topic, uint32_t number, NrdPartition **ret_partition);
void world_remember(World *w, int topic, uint32_t partition, uint64_t offset, uint64_t nonce);
char *world_payload(World *w); /* g_free */
/* All at once, so that no commit takes a part of them. keys: NULL for none. */
void world_add(NrdProducer *producer, const char *const *keys, const GPtrArray *payloads);
const char *world_topic_name(int topic);
void world_open_topic(World *w, int topic);  /* takes a reference and pins */
void world_close_topic(World *w, int topic); /* gives them back */
void world_restart(World *w);

void do_topic_step(World *w, int topic);
void do_produce_step(World *w, int topic);
void do_consume_step(World *w, int topic);
void do_log_step(World *w, int topic);

/* Everything that info tells of the topic's partitions, and whether they can be read. */
void compare_topic(World *w, int topic);
void compare_partition(World *w, int topic, uint32_t number);
/* Every record, one by one and as text. */
void compare_log(World *w, int topic, uint32_t number);
/* Records that copies or the dispatcher have added to a topic: exactly those expected (char* "key\npayload"), each to the
 * partition of its key, in any order. */
void learn_records(World *w, int topic, GPtrArray *expected);
/* Waits for the copies that are due, in all topics. */
void learn_all_copies(World *w);

/* sick_steps.c */
void produce_on_a_sick_disk(World *w, int topic);
void produce_to_topic_on_a_sick_disk(World *w, int topic);
void copy_to_a_sick_disk(World *w, int child);
void settle_on_a_sick_disk(World *w, int topic);
void configure_on_a_sick_disk(World *w, int topic);

#endif
