/* Links, passes and workers over topics that are arrays in memory, for tests of what is copied, when, how often, and what happens
 * when something fails. The cursors are real files. */
#ifndef NRD_TESTS_FANOUT_WORLD_H
#define NRD_TESTS_FANOUT_WORLD_H

#include "engine/fanout/fanout.h"

#include <pthread.h>
#include <stdatomic.h>

#define WAIT_MS 20000
#define MAX_PARTS 8

typedef struct Rec {
    char *key; /* or NULL */
    char *payload;
    size_t payload_size;
    int64_t commit_ms;
    bool damaged;
} Rec;

typedef struct Part {
    GPtrArray *records; /* of Rec; the index is the offset */
    uint64_t oldest;
    uint64_t hwm;
    int generation;
    int fail_commits; /* so many fail; -1: all */
    int fail_reads;
    bool poisoned;
    bool poisons; /* the next commit does */
    bool hang;    /* commits do not return */
    int n_claims;
    int n_open;
    GArray *commits; /* of uint32_t: records in each commit */
} Part;

typedef struct Topic {
    const char *name;
    uint32_t n_parts;
    Part parts[MAX_PARTS];
    int n_refs;
} Topic;

extern pthread_mutex_t world;
extern pthread_cond_t moved;
extern int n_looks; /* at bounds, by passes */
extern int n_hanging;

Topic *topic_new(const char *name, uint32_t n_parts);

void topic_free(Topic *topic);

extern const NrdFanoutOps ops;

typedef struct Fixture {
    char *path;
    int root_fd;
    NrdFanout *fanout;
    Topic *parent;
    Topic *child;
} Fixture;

void start(Fixture *f);

void stop(Fixture *f);

void set_up(Fixture *f, gconstpointer data);

void tear_down(Fixture *f, gconstpointer data);

extern const NrdCursorOwner owner;

/* From the fixture's parent to the child. */
void add_link(Fixture *f, Topic *child, int64_t attached_ms, int64_t delay_ms);

/* A record of the parent, of `size` bytes: payload, and zeros behind it. Nobody is told: notify, or put, which does both. */
void put_rec(Fixture *f, uint32_t partition, const char *key, const char *payload, size_t size);

void notify(Fixture *f, uint32_t partition);

void put(Fixture *f, uint32_t partition, const char *key, const char *payload);

/* Waits until the partition holds that, its records with a space between; fails after WAIT_MS, as the other waits do. */
void assert_becomes(Topic *topic, uint32_t partition, const char *expected);

uint64_t hwm_of(Topic *topic, uint32_t partition);

/* Waits until there are so many records, and no more. */
void wait_hwm(Topic *topic, uint32_t partition, uint64_t hwm);

NrdFanoutInfo info_of(Fixture *f, const Topic *child);

/* The row of a partition once it says what is waited for. */
#define WAIT_FOR(f, child, number, row, condition)                                                                     \
    do {                                                                                                               \
        bool there = false;                                                                                            \
        for (int ms = 0; !there && ms < WAIT_MS; ms++) {                                                               \
            NrdFanoutInfo info = info_of(f, child);                                                                    \
            const NrdFanoutRow *row = &g_array_index(info.rows, NrdFanoutRow, number);                                 \
            there = condition;                                                                                         \
            g_array_unref(info.rows);                                                                                  \
            if (!there)                                                                                                \
                g_usleep(1000);                                                                                        \
        }                                                                                                              \
        g_assert_true(there);                                                                                          \
    } while (0)

void wait_cursor(Fixture *f, const Topic *child, uint32_t number, uint64_t offset);

#endif
