/* The loops of the process: retention of open partitions (once a minute), the walk over closed ones (every five minutes),
 * and rest, which closes partitions that nobody uses (after half an hour) and gives back what idle ones keep in memory and
 * what producers that write nothing keep the dispatcher from, and to the system what is free.
 * Each is one thread whatever the number of partitions; an idle partition has no timer. loop.h watches over them.
 * Source: the contract, "Housekeeping"; the seed, Retention, Opening and closing logs. */
#include "engine/housekeeping.h"
#include "engine/consume.h"
#include "engine/partition.h"
#include "engine/produce.h"
#include "engine/topic.h"

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/base/steady_clock.h"
#include "engine/loop.h"
#include "engine/meta/incarnation.h"

#include <errno.h>

#define RETENTION_CHECK_MS ((int64_t)60 * 1000)
#define COLD_WALK_MS ((int64_t)5 * 60 * 1000)
#define IDLE_CLOSE_MS ((int64_t)30 * 60 * 1000)
#define REST_MS ((int64_t)60 * 1000)
#define REST_MIN_MS 100

struct NrdHousekeeping {
    NrdEngine *engine;
    NrdLoop *retention;
    NrdLoop *walk; /* NULL: no walks */
    NrdLoop *rest;
    bool surveyed; /* the rest loop's, as the next */
    uint64_t last_work;
    atomic_bool leftovers; /* something may wait for the sweep of what deleted topics left */
    pthread_mutex_t clock_lock;
    NrdSteadyClock clock; /* guarded by clock_lock */
};

static int64_t steady_now(NrdHousekeeping *housekeeping)
{
    bool stepped;
    pthread_mutex_lock(&housekeeping->clock_lock);
    int64_t wall_ms = nrd_clock_wall_ms();
    int64_t now_ms = nrd_steady_clock_now(&housekeeping->clock, wall_ms, nrd_clock_mono_ms(), &stepped);
    pthread_mutex_unlock(&housekeeping->clock_lock);
    if (stepped)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "the clock is %" G_GINT64_FORMAT " s ahead of the time that has passed (a step, or a long stop): "
                 "retention follows when it has stood for an hour",
                 (wall_ms - now_ms) / 1000);
    return now_ms;
}

/* Calls each on every partition until the loop is to end. */
static void for_each_partition(NrdHousekeeping *housekeeping, NrdLoop *loop, void (*each)(NrdPartition *, int64_t),
                               int64_t argument)
{
    g_autoptr(GPtrArray) topics = nrd_engine_topics(housekeeping->engine);
    for (guint i = 0; i < topics->len; i++) {
        NrdTopic *topic = topics->pdata[i];
        uint32_t n = nrd_topic_n_partitions(topic);
        for (uint32_t number = 0; number < n; number++) {
            if (!nrd_loop_beat(loop))
                return;
            each(nrd_topic_partition(topic, number), argument);
        }
    }
}

static bool has_started(const NrdHousekeeping *housekeeping)
{
    return atomic_load(&housekeeping->engine->started);
}

static void retention_pass(NrdLoop *loop, void *user_data)
{
    if (!has_started(user_data))
        return;
    for_each_partition(user_data, loop, nrd_retention_sweep, steady_now(user_data));
}

static void sweep_leftovers(NrdHousekeeping *housekeeping)
{
    NrdEngine *engine = housekeeping->engine;
    if (!atomic_exchange(&housekeeping->leftovers, false))
        return;
    pthread_mutex_lock(&engine->admin); /* no topic comes or goes meanwhile */
    int rc = nrd_incarnation_sweep(engine->root_fd, engine->meta);
    pthread_mutex_unlock(&engine->admin);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "looking for what deleted topics left behind failed: %s",
                 g_strerror(-rc));
}

static void walk_pass(NrdLoop *loop, void *user_data)
{
    if (!has_started(user_data))
        return;
    sweep_leftovers(user_data);
    for_each_partition(user_data, loop, nrd_retention_walk, steady_now(user_data));
}

/* Without the walk a log is closed only when retention has nothing left to delete in it. */
static bool kept_for_retention(NrdPartition *partition)
{
    NrdEngine *engine = partition->topic->engine;
    bool due = false;
    if (engine->options.cold_retention_ms >= 0)
        return false;
    if (nrd_partition_pin_if_open(partition)) {
        bool bounded = atomic_load(&partition->retention_ms) > 0 || atomic_load(&partition->retention_bytes) > 0;
        due = bounded && nrd_retention_due(partition, nrd_clock_wall_ms());
        nrd_partition_unpin_quietly(partition);
    }
    return due;
}

static void rest_partition(NrdPartition *partition, int64_t idle_ms)
{
    bool holds = atomic_load(&partition->cursor_holds);
    bool idle = nrd_clock_mono_ms() - atomic_load(&partition->used_ms) >= idle_ms;
    nrd_produce_rest(partition);
    if ((!holds && !idle) || !nrd_partition_pin_if_open(partition))
        return;
    nrd_consume_rest(partition);
    nrd_partition_unpin_quietly(partition);
    if (idle && !kept_for_retention(partition) && nrd_partition_close_idle(partition, idle_ms, false))
        nrd_counter_add(NRD_COUNTER_IDLE_CLOSED, 1);
}

/* A topic may be well again though nobody uses it. */
static void retry_topics(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        (void)!nrd_topic_retry(topics->pdata[i]);
}

static void survey_partition(NrdPartition *partition, int64_t unused)
{
    (void)unused;
    nrd_partition_survey(partition);
}

/* Whether anything was committed or settled since the last time. */
static bool has_worked(NrdHousekeeping *housekeeping)
{
    uint64_t work = nrd_counter_get(NRD_COUNTER_COMMITS) + nrd_counter_get(NRD_COUNTER_SETTLED);
    bool worked = work != housekeeping->last_work;
    housekeeping->last_work = work;
    return worked;
}

static void rest_pass(NrdLoop *loop, void *user_data)
{
    NrdHousekeeping *housekeeping = user_data;
    if (!has_started(housekeeping))
        return;
    if (!housekeeping->surveyed) {
        /* Behind the start, which costs O(topics): so `status` says of itself what names and headers tell. */
        housekeeping->surveyed = true;
        for_each_partition(housekeeping, loop, survey_partition, 0);
        return;
    }
    if (!housekeeping->engine->read_only)
        (void)!nrd_metastore_mend(housekeeping->engine->meta, false); /* it has said so */
    retry_topics(housekeeping->engine);
    for_each_partition(housekeeping, loop, rest_partition, housekeeping->engine->options.idle_close_ms);
    nrd_memory_trim(!has_worked(housekeeping));
}

static void fill_in_defaults(NrdEngineOptions *options)
{
    if (options->idle_close_ms == 0)
        options->idle_close_ms = IDLE_CLOSE_MS;
    if (options->retention_check_ms == 0)
        options->retention_check_ms = RETENTION_CHECK_MS;
    if (options->cold_retention_ms == 0)
        options->cold_retention_ms = COLD_WALK_MS;
}

static NrdLoop *start(NrdHousekeeping *housekeeping, const char *name, int64_t period_ms,
                      void (*pass)(NrdLoop *, void *))
{
    NrdLoopOptions options = { .name = name, .period_ms = period_ms, .pass = pass, .user_data = housekeeping };
    return nrd_loop_new(&options, housekeeping->engine->timers);
}

NrdHousekeeping *nrd_housekeeping_new(NrdEngine *engine)
{
    NrdHousekeeping *housekeeping = g_new0(NrdHousekeeping, 1);
    housekeeping->engine = engine;
    pthread_mutex_init(&housekeeping->clock_lock, NULL);
    nrd_steady_clock_start(&housekeeping->clock, nrd_clock_wall_ms(), nrd_clock_mono_ms(),
                           nrd_data_dir_last_used_ms(engine->data_dir));
    /* Taking the lock has given it the present time. If that is in doubt the next run has to doubt it as well. */
    if (!engine->read_only && steady_now(housekeeping) < nrd_clock_wall_ms() - NRD_STEADY_STEP_MS)
        nrd_data_dir_note_time(engine->data_dir, steady_now(housekeeping));
    return housekeeping;
}

int nrd_housekeeping_open(NrdHousekeeping *housekeeping)
{
    NrdEngine *engine = housekeeping->engine;
    NrdEngineOptions *options = &engine->options;
    fill_in_defaults(options);
    housekeeping->surveyed = options->cold_retention_ms < 0;
    if (!engine->read_only) {
        housekeeping->retention = start(housekeeping, "retention", options->retention_check_ms, retention_pass);
        if (options->cold_retention_ms > 0)
            housekeeping->walk = start(housekeeping, "cold retention", options->cold_retention_ms, walk_pass);
    }
    housekeeping->rest =
        start(housekeeping, "rest", CLAMP(options->idle_close_ms / 4, REST_MIN_MS, REST_MS), rest_pass);
    bool all = housekeeping->rest && (engine->read_only || housekeeping->retention) &&
               (engine->read_only || options->cold_retention_ms <= 0 || housekeeping->walk);
    return all ? 0 : -EAGAIN;
}

void nrd_housekeeping_start(NrdHousekeeping *housekeeping)
{
    if (housekeeping->engine->options.cold_retention_ms > 0)
        nrd_loop_kick(housekeeping->rest);
}

void nrd_housekeeping_stop(NrdHousekeeping *housekeeping)
{
    nrd_loop_stop(housekeeping->retention);
    nrd_loop_stop(housekeeping->walk);
    nrd_loop_stop(housekeeping->rest);
    if (!housekeeping->engine->read_only)
        nrd_data_dir_note_time(housekeeping->engine->data_dir, steady_now(housekeeping));
}

void nrd_housekeeping_free(NrdHousekeeping *housekeeping)
{
    if (!housekeeping)
        return;
    nrd_loop_free(housekeeping->retention);
    nrd_loop_free(housekeeping->walk);
    nrd_loop_free(housekeeping->rest);
    pthread_mutex_destroy(&housekeeping->clock_lock);
    g_free(housekeeping);
}

void nrd_housekeeping_kick_retention(NrdHousekeeping *housekeeping)
{
    if (housekeeping && housekeeping->retention)
        nrd_loop_kick(housekeeping->retention);
}

void nrd_housekeeping_note_leftovers(NrdHousekeeping *housekeeping)
{
    if (housekeeping)
        atomic_store(&housekeeping->leftovers, true);
}
