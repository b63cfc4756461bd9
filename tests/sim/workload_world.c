/* See workload_private.h: the engine's life in a script, and what is done when a step fails. */
#include "tests/sim/workload_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define SICK_REST_MS 60
#define REST_MS 20000
#define MAX_TRIES 60
#define TRIES_BEFORE_RESTART 8 /* a topic that is lost until a restart needs one */

void world_fail(World *world, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    world->why = g_strdup_vprintf(format, args);
    va_end(args);
    longjmp(world->end, 1);
}

static void heal(World *world)
{
    if (world->hooks->heal)
        world->hooks->heal(world->hooks->user_data);
}

/* Whether the disk has done anything wrong; heal then. */
static bool has_failed(World *world)
{
    return world->hooks->failed && world->hooks->failed(world->hooks->user_data);
}

static bool is_well(World *world)
{
    return !world->hooks->well || world->hooks->well(world->hooks->user_data);
}

void world_begin(World *world)
{
    if (world->engine)
        world_rest(world);
    if (world->hooks->begin)
        world->hooks->begin(world->hooks->user_data);
}

void world_tighten(World *world, uint64_t free_bytes)
{
    struct statvfs st;
    int fd = -1;
    int rc = nrd_io_open_root("/data", &fd);
    if (rc == 0)
        rc = nrd_io->fstatvfs(fd, &st);
    nrd_io_close(&fd);
    if (rc < 0)
        world_fail(world, "how full the disk is cannot be told: %s", g_strerror(-rc));
    if (world->hooks->tighten)
        world->hooks->tighten(world->hooks->user_data, (st.f_blocks - st.f_bfree) * st.f_frsize + free_bytes);
}

/* ---- poison ---- */

static bool is_poisoned(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    bool poisoned = info.poisoned;
    nrd_partition_info_clear(&info);
    return poisoned;
}

/* I5: appends fail with one errno, reads go on, it was counted once. */
static void check_poison(World *world, int topic, unsigned number)
{
    NrdPartition *partition = nrd_topic_partition(world->topics[topic], number);
    const Handle *handle = &world->partitions[topic][number].handles[0];
    NrdPartitionInfo info;
    NrdRecord record = { 0 };
    if (handle->producer) {
        int rc = nrd_producer_check(handle->producer);
        if (rc != -EIO)
            world_fail(world, "I5: a poisoned partition answers a writer with %d", rc);
    }
    if (handle->producer && handle->pending.n > 0) {
        int rc = world_sync(handle->producer);
        if (rc != -EIO)
            world_fail(world, "I5: a poisoned partition answers a sync with %d", rc);
    }
    nrd_partition_info(partition, &info);
    uint64_t oldest = info.oldest_offset, hwm = info.hwm;
    bool told = info.reason[0] != '\0';
    nrd_partition_info_clear(&info);
    if (!told)
        world_fail(world, "I5: a poisoned partition gives no reason");
    if (oldest >= hwm || !is_well(world))
        return;
    int rc = nrd_partition_record(partition, oldest, &record);
    if (rc < 0)
        world_fail(world, "I5: a poisoned partition does not let read: %s", g_strerror(-rc));
    nrd_record_clear(&record);
}

static void reopen_poisoned(World *world)
{
    for (int i = 0; i < world->oracle->n_topics; i++) {
        uint32_t n = world->topics[i] ? nrd_topic_n_partitions(world->topics[i]) : 0;
        for (unsigned number = 0; number < n; number++) {
            NrdPartition *partition = nrd_topic_partition(world->topics[i], number);
            if (!is_poisoned(partition))
                continue;
            check_poison(world, i, number);
            (void)!nrd_partition_reopen(partition); /* the step that failed is tried again, and tells */
        }
    }
}

/* ---- trying again ---- */

static bool any_lost(World *world)
{
    for (int i = 0; i < world->oracle->n_topics; i++) {
        if (world->topics[i] && nrd_topic_lost(world->topics[i]))
            return true;
    }
    return false;
}

bool world_again(World *world, int *n, int rc, const char *what)
{
    (*n)++;
    world->n_steps_failed++;
    oracle_lock();
    world->oracle->rerouted = true;
    oracle_unlock();
    if (*n > MAX_TRIES)
        world_fail(world, "I4: the disk is well, and %s still fails: %s", what, g_strerror(-rc));
    if (world->engine &&
        ((world->mode == WORKLOAD_RESTART && *n == 2) || (*n == TRIES_BEFORE_RESTART && any_lost(world)))) {
        world_restart(world);
        return false;
    }
    if (*n >= 2)
        heal(world);
    if (world->engine)
        reopen_poisoned(world);
    if (*n > 3)
        g_usleep((gulong)MIN(*n, 20) * 1000);
    return true;
}

/* ---- rest ---- */

static bool rests(World *world)
{
    NrdSummary summary;
    nrd_engine_summary(world->engine, &summary);
    bool rest = summary.ingress_parts == 0 && summary.fan_lag == 0 && summary.fan_lag_delayed == 0;
    nrd_summary_clear(&summary);
    return rest;
}

/* Its use is what makes a topic that is out of service try again. */
static void touch_all(World *world)
{
    for (int i = 0; i < world->oracle->n_topics; i++) {
        uint32_t n = world->topics[i] ? nrd_topic_n_partitions(world->topics[i]) : 0;
        for (unsigned number = 0; number < n; number++) {
            NrdPartition *partition = nrd_topic_partition(world->topics[i], number);
            if (nrd_partition_pin(partition) == 0)
                nrd_partition_unpin(partition);
        }
    }
}

void world_rest(World *world)
{
    int64_t start_ms = nrd_clock_mono_ms();
    for (unsigned n = 0; !rests(world); n++) {
        int64_t waited_ms = nrd_clock_mono_ms() - start_ms;
        g_usleep(200);
        if (waited_ms < SICK_REST_MS)
            continue;
        heal(world);
        if (n % 64 == 0) {
            reopen_poisoned(world);
            touch_all(world);
        }
        if (waited_ms > REST_MS)
            world_fail(world, "I1: acknowledged records never reach their partitions, or the children");
    }
}

/* ---- opening and closing ---- */

static void pin_all(World *world, int topic)
{
    for (unsigned number = 0; number < world->oracle->topics[topic].n_partitions; number++) {
        PartitionWorld *p = &world->partitions[topic][number];
        int n = 0, rc;
        while (!p->pinned) {
            /* looked up each time: an open may put another one in its place */
            NrdPartition *partition = nrd_topic_partition(world->topics[topic], number);
            if (!partition)
                world_fail(world, "I1: partition %u of %s is lost", number, world->oracle->topics[topic].name);
            rc = nrd_partition_pin(partition);
            if (rc == 0)
                p->pinned = partition;
            else if (!world_again(world, &n, rc, "opening a partition"))
                return; /* restarted: all are pinned */
        }
    }
}

/* A record that could not be read takes its topic out of service until the next start. */
static bool lost_by_record(World *world, int i)
{
    NrdTopic *topic = NULL;
    int rc = nrd_topic_find(world->engine, world->oracle->topics[i].name, &topic);
    bool lost = rc == 0 && nrd_topic_lost(topic);
    nrd_topic_unref(topic);
    return lost;
}

static void resolve_topic(World *world, int i)
{
    OracleTopic *t = &world->oracle->topics[i];
    NrdTopic *topic = NULL;
    if (t->state == ORACLE_GONE)
        return;
    int rc = nrd_topic_find(world->engine, t->name, &topic);
    bool ours = rc == 0 && (t->id[0] == '\0' || strcmp(nrd_topic_incarnation(topic), t->id) == 0);
    if (t->state == ORACLE_THERE && !ours)
        world_fail(world, "I1: topic %s is lost at a restart", t->name);
    oracle_lock();
    t->state = ours ? ORACLE_THERE : ORACLE_GONE;
    if (ours)
        g_strlcpy(t->id, nrd_topic_incarnation(topic), sizeof t->id);
    oracle_unlock();
    if (ours)
        world->topics[i] = topic;
    else
        nrd_topic_unref(topic);
}

void world_open(World *world)
{
    NrdEngineOptions options = { .data_path = "/data", .cold_retention_ms = -1 };
    int n = 0;
    for (;;) {
        g_autofree char *why = NULL;
        int rc = nrd_engine_open(&options, &world->engine, &why);
        if (rc == 0)
            break;
        world->engine = NULL;
        (void)!world_again(world, &n, rc, why ? why : "opening the store");
    }
    for (int i = 0; i < world->oracle->n_topics; i++) {
        if (!lost_by_record(world, i))
            continue;
        if (!has_failed(world))
            world_fail(world, "I3: topic %s is out of service", world->oracle->topics[i].name);
        world_restart(world);
        return;
    }
    for (int i = 0; i < world->oracle->n_topics; i++)
        resolve_topic(world, i);
    for (int i = 0; i < world->oracle->n_topics; i++) {
        if (world->topics[i])
            pin_all(world, i);
    }
}

static void abandon(World *world, Pending *pending)
{
    oracle_lock();
    for (int i = 0; i < pending->n; i++)
        world->oracle->records[pending->ids[i]].abandoned = true;
    oracle_unlock();
    pending->n = 0;
}

static void close_handle(World *world, Handle *handle)
{
    if (handle->producer)
        nrd_producer_close(handle->producer, NULL, NULL);
    if (handle->topic_producer)
        nrd_topic_producer_close(handle->topic_producer, NULL, NULL);
    handle->producer = NULL;
    handle->topic_producer = NULL;
    abandon(world, &handle->pending);
}

void world_close_handles(World *world, int topic)
{
    for (unsigned i = 0; i < WORLD_HANDLES; i++)
        close_handle(world, &world->topic_handles[topic][i]);
    for (unsigned number = 0; number < ORACLE_MAX_PARTITIONS; number++) {
        PartitionWorld *p = &world->partitions[topic][number];
        for (unsigned i = 0; i < WORLD_HANDLES; i++)
            close_handle(world, &p->handles[i]);
        if (p->pinned)
            nrd_partition_unpin(p->pinned);
        p->pinned = NULL;
        g_clear_pointer(&p->leases, g_array_unref);
    }
}

/* What is settled in memory is durable after a close that says so, and anything after one that failed. */
static void conclude_settled(World *world, bool durable)
{
    oracle_lock();
    for (int i = 0; i < world->oracle->n_topics; i++) {
        for (unsigned number = 0; number < ORACLE_MAX_PARTITIONS; number++) {
            OraclePartition *p = &world->oracle->topics[i].partitions[number];
            for (unsigned o = 0; o < ORACLE_MAX_OFFSETS; o++) {
                if (p->settled[o] == ORACLE_SETTLED)
                    p->settled[o] = durable && !world->oracle->lied ? ORACLE_DURABLE : ORACLE_EITHER;
            }
        }
    }
    oracle_unlock();
}

static int close_engine(World *world)
{
    for (int i = 0; i < world->oracle->n_topics; i++) {
        if (world->topics[i])
            world_close_handles(world, i);
    }
    nrd_engine_stop(world->engine);
    for (int i = 0; i < world->oracle->n_topics; i++) {
        nrd_topic_unref(world->topics[i]);
        world->topics[i] = NULL;
    }
    int rc = nrd_engine_close(world->engine);
    world->engine = NULL;
    conclude_settled(world, rc == 0);
    if (rc < 0 || !is_well(world)) {
        oracle_lock();
        world->oracle->n_crashes++; /* what could not be written down may be done again */
        oracle_unlock();
    }
    return rc;
}

void world_close(World *world)
{
    int rc = close_engine(world);
    if (rc < 0 && !world->hooks->heal)
        world_fail(world, "I3: the disk is well, and the store cannot be closed: %s", g_strerror(-rc));
    heal(world);
}

void world_restart(World *world)
{
    (void)close_engine(world);
    heal(world);
    world_open(world);
}

char *workload_run(const Workload *workload, Oracle *oracle, WorkloadMode mode, const WorkloadHooks *hooks)
{
    World *world = g_new0(World, 1);
    world->oracle = oracle;
    world->mode = mode;
    world->hooks = hooks;
    world->n_poisons = nrd_counter_get(NRD_COUNTER_FSYNC_POISONED);
    if (setjmp(world->end) == 0) {
        workload->run(world);
        if (world->engine)
            world_rest(world);
        if (hooks->end)
            hooks->end(hooks->user_data);
        if (world->engine)
            world_close(world);
    }
    char *why = world->why;
    g_free(world);
    return why;
}
