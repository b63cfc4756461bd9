/* The scripts. What comes before world_begin is preparation; what follows is where the disk fails and where crashes come. */
#include "tests/sim/workload_private.h"

#include "engine/base/clock.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

#define SMALL 60
#define LARGE 30000 /* three of them fill a segment */
#define CONFIG "segment_bytes=65536\nlinger_ms=60000\n"

static void run_commit(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 2, CONFIG);
    world_begin(w);
    world_produce(w, t, 0, 0, 3, SMALL, true);
    world_produce(w, t, 1, 0, 1, SMALL, false);
    world_add(w, t, 0, 1, 2, SMALL, false);
    world_produce(w, t, 0, 0, 9, SMALL * 10, true);
    world_produce(w, t, 1, 0, 2, SMALL, true);
    world_config(w, t, "codec=zstd\n");
    world_produce(w, t, 0, 0, 4, SMALL * 20, false);
    world_produce(w, t, 0, 1, 1, SMALL, false);
}

static void run_roll(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_begin(w);
    world_produce(w, t, 0, 0, 2, LARGE, false);
    world_produce(w, t, 0, 0, 1, LARGE, true); /* full: a segment more */
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_roll(w, t, 0);
    world_produce(w, t, 0, 0, 3, LARGE, false);
    world_produce(w, t, 0, 0, 2, SMALL, false);
    world_roll(w, t, 0);
}

static void run_hwm(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 5, SMALL, false);
    world_close(w);
    world_begin(w);
    world_open(w);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_restart(w);
    world_produce(w, t, 0, 0, 1, SMALL, false);
    world_produce(w, t, 0, 0, 3, SMALL, false);
}

static void run_ack(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 20, SMALL, true);
    world_begin(w);
    world_take(w, t, 0, 6);
    world_ack(w, t, 0, 2);
    world_sync_frontier(w, t, 0);
    world_take(w, t, 0, 3);
    world_extend(w, t, 0);
    world_ack_durably(w, t, 0, 3);
    world_nack(w, t, 0);
    world_restart(w);
    world_take(w, t, 0, 4);
    world_ack(w, t, 0, 1);
    world_sync_frontier(w, t, 0);
    world_take(w, t, 0, 5);
    world_ack_durably(w, t, 0, 2);
    world_ack(w, t, 0, 1);
    world_sync_frontier(w, t, 0);
}

static void run_seek(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 10, SMALL, true);
    world_take(w, t, 0, 6);
    world_ack_durably(w, t, 0, 1);
    world_begin(w);
    world_seek(w, t, 0, 2);
    world_take(w, t, 0, 1);
    world_seek(w, t, 0, 9);
    world_restart(w);
    world_seek(w, t, 0, 4);
    world_take(w, t, 0, 2);
    world_ack_durably(w, t, 0, 2);
}

static void run_create(World *w)
{
    world_begin(w);
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 2, SMALL, false);
    int u = world_create(w, "u", 2, CONFIG);
    world_produce(w, u, 1, 0, 2, SMALL, true);
    world_config(w, u, "partitions=4\n");
    world_produce(w, u, 3, 0, 2, SMALL, true);
    world_restart(w);
    world_produce(w, u, 3, 0, 1, SMALL, true);
}

static void run_recreate(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    int u = world_create(w, "u", 1, CONFIG);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_produce(w, u, 0, 0, 1, SMALL, false);
    world_begin(w);
    world_delete(w, t);
    t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_restart(w);
    world_delete(w, t);
    t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 1, SMALL, false);
}

/* Two topics whose folders were swapped by hand: neither may serve the other's records, and nothing is deleted. */
static void swap_folders(World *w, int t, int u)
{
    int root_fd = -1;
    Oracle *oracle = w->oracle;
    int rc = nrd_io_open_root("/data", &root_fd);
    if (rc == 0)
        rc = nrd_io_rename(root_fd, "topics/t", "topics/x", false);
    if (rc == 0)
        rc = nrd_io_rename(root_fd, "topics/u", "topics/t", false);
    if (rc == 0)
        rc = nrd_io_rename(root_fd, "topics/x", "topics/u", false);
    nrd_io_close(&root_fd);
    if (rc < 0)
        world_fail(w, "the folders could not be swapped: %s", g_strerror(-rc));
    oracle_lock();
    oracle->quarantine = true;
    for (int id = 0; id < oracle->n_records; id++)
        oracle->records[id].acked = oracle->records[id].unsure = false;
    for (int id = 0; id < oracle->n_records; id++)
        oracle->records[id].quarantined = true;
    memset(oracle->topics[t].partitions, 0, sizeof oracle->topics[t].partitions);
    memset(oracle->topics[u].partitions, 0, sizeof oracle->topics[u].partitions);
    oracle_unlock();
}

static void run_quarantine(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    int u = world_create(w, "u", 1, CONFIG);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_produce(w, u, 0, 0, 2, SMALL, false);
    world_close(w);
    swap_folders(w, t, u);
    world_begin(w);
    world_open(w);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_produce(w, u, 0, 0, 1, SMALL, true);
}

static void run_trim(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_begin(w);
    world_roll(w, t, 0);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_roll(w, t, 0);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_trim(w, t, 0, 4);
    world_take(w, t, 0, 2);
    world_ack_durably(w, t, 0, 1);
    world_trim(w, t, 0, 6);
    world_restart(w);
    world_produce(w, t, 0, 0, 2, SMALL, false);
}

static void run_retention(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    for (int i = 0; i < 3; i++)
        world_produce(w, t, 0, 0, 3, LARGE, false);
    world_begin(w);
    world_bound(w, t, 0, 63000);
    world_config(w, t, "retention_bytes=65536\n");
    world_wait_retention(w, t, 0, 6);
    world_restart(w);
    nrd_clock_shift_wall_ms(60000);
    nrd_clock_shift_mono_ms(60000);
    world_bound(w, t, 0, 0);
    world_config(w, t, "retention_bytes=0\nretention_ms=30000\n");
    world_wait_retention(w, t, 0, 9);
    world_config(w, t, "retention_ms=0\n");
    world_produce(w, t, 0, 0, 2, SMALL, false);
}

static void run_close(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 2, CONFIG);
    w->mixed[t] = w->oracle->twice = true;
    world_produce(w, t, 0, 0, 6, SMALL, false);
    world_take(w, t, 0, 4);
    world_ack(w, t, 0, 2);
    world_produce_to_topic(w, t, 0, 2, SMALL, true);
    world_begin(w);
    world_close(w);
    world_open(w);
    world_take(w, t, 0, 2);
    world_ack(w, t, 0, 1);
    world_close(w);
}

static void run_ingress(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 3, CONFIG);
    world_begin(w);
    world_produce_to_topic(w, t, 0, 6, SMALL, true);
    world_produce_to_topic(w, t, 1, 1, SMALL, false);
    world_restart(w);
    world_produce_to_topic(w, t, 0, 4, SMALL * 4, true);
    world_produce_to_topic(w, t, 0, 3, SMALL, false);
}

/* A disk that is nearly full: what is committed and still lies in the ingress WAL gives its room back, in holes. */
static void run_full(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    for (int i = 0; i < 5; i++)
        world_produce_to_topic(w, t, 0, 2, LARGE, true);
    world_rest(w);
    world_tighten(w, NRD_MIB + SMALL);
    world_begin(w);
    world_produce_to_topic(w, t, 0, 1, LARGE, false);
    world_produce_to_topic(w, t, 0, 2, SMALL, true);
    world_rest(w);
    world_restart(w);
    world_produce_to_topic(w, t, 0, 1, SMALL, false);
}

/* Producers of the partitions beside those of the topic. */
static void run_both(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 2, CONFIG);
    w->mixed[t] = w->oracle->twice = true;
    world_produce(w, t, 0, 0, 2, SMALL, false);
    world_begin(w);
    world_produce_to_topic(w, t, 0, 4, SMALL, true);
    world_produce(w, t, 0, 0, 2, SMALL, false);
    world_produce_to_topic(w, t, 0, 3, SMALL, true);
    world_restart(w);
    world_produce(w, t, 1, 0, 1, SMALL, false);
    world_produce_to_topic(w, t, 1, 2, SMALL, false);
}

static void run_fanout(World *w)
{
    world_open(w);
    int parent = world_create(w, "parent", 2, CONFIG);
    int child = world_create(w, "child", 2, CONFIG);
    world_produce(w, parent, 0, 0, 2, SMALL, true);
    world_begin(w);
    world_attach(w, parent, child);
    world_produce(w, parent, 0, 0, 3, SMALL, true);
    world_rest(w);
    world_produce(w, parent, 1, 0, 2, SMALL, false);
    world_rest(w);
    world_restart(w);
    world_produce(w, parent, 0, 0, 2, SMALL, true);
    world_rest(w);
    world_detach(w, parent, child);
    world_produce(w, parent, 0, 0, 1, SMALL, true);
}

/* With a delay: what is not due stays away, and comes when the clock has come. */
static void run_delay(World *w)
{
    world_open(w);
    int parent = world_create(w, "parent", 1, CONFIG);
    int child = world_create(w, "child", 1, CONFIG "fanout_delay_ms=60000\n");
    world_begin(w);
    world_attach(w, parent, child);
    world_produce(w, parent, 0, 0, 3, SMALL, true);
    if (world_hwm(w, child, 0) > 0)
        world_fail(w, "I2: a record was copied before it was due");
    nrd_clock_shift_wall_ms(61000);
    nrd_clock_shift_mono_ms(61000);
    world_rest(w);
    world_restart(w);
}

/* Consumers in segments that an earlier run has sealed: their side indexes are mapped, or made again. */
static void run_sealed(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    for (int i = 0; i < 3; i++) {
        world_produce(w, t, 0, 0, 3, SMALL, true);
        world_roll(w, t, 0);
    }
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_restart(w);
    world_begin(w);
    world_take(w, t, 0, 2);
    world_ack(w, t, 0, 1);
    world_take(w, t, 0, 3);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_ack_durably(w, t, 0, 2);
    world_restart(w);
    world_take(w, t, 0, 4);
    world_trim(w, t, 0, 3);
    world_ack_durably(w, t, 0, 1);
}

static void run_reopen(World *w)
{
    world_open(w);
    int t = world_create(w, "t", 1, CONFIG);
    world_produce(w, t, 0, 0, 3, SMALL, false);
    world_begin(w);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_reopen(w, t, 0);
    world_produce(w, t, 0, 0, 2, SMALL, false);
    world_roll(w, t, 0);
    world_reopen(w, t, 0);
    world_produce(w, t, 0, 0, 2, SMALL, true);
    world_take(w, t, 0, 3);
    world_ack_durably(w, t, 0, 1);
    world_reopen(w, t, 0);
    world_produce(w, t, 0, 0, 1, SMALL, false);
}

const Workload workloads[] = {
    { "commit", "producers of two partitions, group commit, zstd", run_commit },
    { "roll", "segments that are full, and rolled by hand", run_roll },
    { "hwm", "commits after clean stops: the high watermark's file", run_hwm },
    { "ack", "settling in and out of order, frontier, leases", run_ack },
    { "seek", "the frontier moved forwards and back", run_seek },
    { "create", "a new store, new topics, more partitions", run_create },
    { "recreate", "topics deleted and made again under their names", run_recreate },
    { "quarantine", "folders that belong to another topic", run_quarantine },
    { "trim", "segments deleted by hand, under consumers", run_trim },
    { "retention", "segments deleted by bytes and by age", run_retention },
    { "close", "clean stops", run_close },
    { "ingress", "topics produced to as a whole", run_ingress },
    { "full", "a disk that is nearly full: holes in the ingress WAL", run_full },
    { "both", "the same beside the partitions' own producers", run_both },
    { "fanout", "a child attached, fed and detached", run_fanout },
    { "delay", "a child with a delay", run_delay },
    { "sealed", "consumers in segments that an earlier run has sealed", run_sealed },
    { "reopen", "partitions reopened", run_reopen },
    { NULL, NULL, NULL },
};

const Workload *workload_find(const char *name)
{
    for (const Workload *workload = workloads; workload->name; workload++) {
        if (strcmp(workload->name, name) == 0)
            return workload;
    }
    return NULL;
}
