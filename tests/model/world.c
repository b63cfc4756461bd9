/* See world.h: start, restart and end, and which file does which step. */
#include "world.h"
#include "disk.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static NrdIo table;

static int no_sync(int fd)
{
    return 0;
}

/* The kernel does not know of the time that has passed in the model; a file's time is what retention goes by where it has not
 * read the records. */
static void stamp(int fd)
{
    (void)!nrd_io_real.set_mtime(fd, nrd_clock_wall_ms());
}

static int stamped_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = nrd_io_real.open(dirfd, path, flags, mode);
    if (fd >= 0 && (flags & O_EXCL) != 0)
        stamp(fd);
    return fd;
}

static ssize_t stamped_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    ssize_t n = nrd_io_real.pwritev(fd, iov, n_iov, pos);
    stamp(fd);
    return n;
}

static int stamped_ftruncate(int fd, int64_t size_bytes)
{
    int rc = nrd_io_real.ftruncate(fd, size_bytes);
    stamp(fd);
    return rc;
}

void world_differs(const World *w, const char *what, const char *file, int line, const char *format, ...)
{
    g_autofree char *step = step_text(&w->step);
    va_list args;
    va_start(args, format);
    fprintf(stderr, "step %u (%s): %s: ", w->n_steps, step, what);
    vfprintf(stderr, format, args); /* NOLINT */
    fprintf(stderr, " (%s:%d)\n", file, line);
    va_end(args);
    g_autofree char *name = g_path_get_basename(w->path);
    g_autofree char *parent = g_path_get_dirname(w->path);
    int fd = -1;
    if (nrd_io_open_root(parent, &fd) == 0)
        (void)!nrd_io_remove_tree(fd, name);
    _Exit(1);
}

const char *world_topic_name(int topic)
{
    static const char *const names[N_TOPICS] = { "ant", "bee", "cat" };
    return names[topic];
}

char *world_payload(World *w)
{
    unsigned n = w->n_records++;
    if (n % 6 == 0) { /* so that there is something to retention by bytes; no codec makes it small */
        GString *large = g_string_new(NULL);
        for (uint32_t x = n + 1; large->len < 30000; x = x * 1664525 + 1013904223)
            g_string_append_printf(large, "%08x", x);
        return g_string_free(large, FALSE);
    }
    return g_strdup_printf("record %u%.*s", n, (int)(n * 7 % 40), " and some more of it to make it longer still");
}

void world_remember(World *w, int topic, uint32_t partition, uint64_t offset, uint64_t nonce)
{
    w->seen[w->n_seen++ % N_SEEN] = (Seen){ topic, partition, offset, nonce };
}

Partition *world_partition(World *w, int topic, uint32_t number, NrdPartition **ret_partition)
{
    GPtrArray *partitions = w->broker.topics[topic].partitions;
    number %= partitions->len;
    *ret_partition = nrd_topic_partition(w->topics[topic], number);
    WORLD_CHECK(w, *ret_partition != NULL);
    return partitions->pdata[number];
}

void world_open_topic(World *w, int topic)
{
    WORLD_SAME(w, nrd_topic_find(w->engine, world_topic_name(topic), &w->topics[topic]), 0);
    for (uint32_t i = 0; i < w->broker.topics[topic].partitions->len; i++)
        WORLD_SAME(w, nrd_partition_pin(nrd_topic_partition(w->topics[topic], i)), 0);
}

void world_close_topic(World *w, int topic)
{
    for (uint32_t i = 0; i < w->broker.topics[topic].partitions->len; i++)
        nrd_partition_unpin(nrd_topic_partition(w->topics[topic], i));
    g_clear_pointer(&w->topics[topic], nrd_topic_unref);
}

static void open_engine(World *w)
{
    NrdEngineOptions options = { .data_path = w->path,
                                 .retention_check_ms = G_MAXINT32, /* nothing expires but by the model's own steps */
                                 .cold_retention_ms = -1 };
    g_autofree char *why = NULL;
    int rc = nrd_engine_open(&options, &w->engine, &why);
    if (rc < 0)
        world_differs(w, "nrd_engine_open", __FILE__, __LINE__, "%s", why);
}

static void close_engine(World *w)
{
    nrd_engine_stop(w->engine);
    for (int i = 0; i < N_TOPICS; i++)
        if (w->topics[i])
            world_close_topic(w, i);
    WORLD_SAME(w, nrd_engine_close(w->engine), 0);
}

void world_restart(World *w)
{
    close_engine(w);
    open_engine(w);
    for (int i = 0; i < N_TOPICS; i++) {
        if (!w->broker.topics[i].exists)
            continue;
        world_open_topic(w, i);
        for (guint k = 0; k < w->broker.topics[i].partitions->len; k++)
            partition_drop_leases(w->broker.topics[i].partitions->pdata[k]);
    }
}

void world_start(World *w)
{
    *w = (World){ .path = g_dir_make_tmp("naradfs-model-XXXXXX", NULL) };
    g_assert_nonnull(w->path);
    for (int i = 0; i < N_TOPICS; i++)
        w->broker.topics[i].parent = NO_TOPIC;
    table = nrd_io_real;
    table.fsync = table.fdatasync = table.drop_cache = no_sync;
    table.open = stamped_open;
    table.pwritev = stamped_pwritev;
    table.ftruncate = stamped_ftruncate;
    disk_start(&table);
    nrd_io = &table;
    nrd_diag_set_level((NrdLevel)0);
    w->mono_ms = nrd_clock_mono_ms();
    w->wall_ms = nrd_clock_wall_ms();
    open_engine(w);
}

void world_end(World *w)
{
    for (int i = 0; i < N_TOPICS; i++) {
        if (!w->broker.topics[i].exists)
            continue;
        compare_topic(w, i);
        for (uint32_t k = 0; k < w->broker.topics[i].partitions->len; k++)
            compare_log(w, i, k);
    }
    close_engine(w);
    g_autofree char *name = g_path_get_basename(w->path);
    g_autofree char *parent = g_path_get_dirname(w->path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    for (int i = 0; i < N_TOPICS; i++)
        topic_clear(&w->broker.topics[i]);
    g_free(w->path);
    nrd_io = &nrd_io_real;
}

/* A step on a topic that is not there: there is none in the engine either. */
static void check_missing(World *w, int topic)
{
    NrdTopic *found = NULL;
    WORLD_SAME(w, nrd_topic_find(w->engine, world_topic_name(topic), &found), -ENOENT);
}

/* The model's time passes in the steps of wait alone. What the steps take is taken back from the engine's clocks: else, on a
 * slow machine, its leases end (30 s after they began) and the model's do not. */
static void hold_clock(World *w)
{
    nrd_clock_shift_mono_ms(w->mono_ms - nrd_clock_mono_ms());
    nrd_clock_shift_wall_ms(w->wall_ms - nrd_clock_wall_ms());
}

void world_do(World *w, const Step *step)
{
    int topic = (int)(step->topic % N_TOPICS);
    hold_clock(w);
    w->step = *step;
    w->n_steps++;
    if (step->kind == STEP_CREATE || step->kind == STEP_RESTART || step->kind == STEP_WAIT)
        do_topic_step(w, topic);
    else if (!w->broker.topics[topic].exists)
        check_missing(w, topic);
    else if (step->kind <= STEP_CONFIG)
        do_topic_step(w, topic);
    else if (step->kind <= STEP_COPY_SICK)
        do_produce_step(w, topic);
    else if (step->kind <= STEP_SYNC)
        do_consume_step(w, topic);
    else
        do_log_step(w, topic);
    for (int i = 0; i < N_TOPICS; i++)
        if (w->broker.topics[i].exists)
            compare_topic(w, i);
}
