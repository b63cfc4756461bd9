/* A process that copies to a child is killed at any moment, again and again, on the same data: everything that the parent
 * has is in the child, each key in its order; what comes twice comes from the kills, and a clean stop repeats nothing. */
#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/fan.h"
#include "engine/io/io.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_ROUNDS 10
#define N_WRITERS 4
#define N_PARTITIONS 2

typedef struct World {
    NrdEngine *engine;
    NrdTopic *parent, *child;
} World;

static NrdTopic *open_topic(NrdEngine *engine, const char *name)
{
    NrdTopic *topic = NULL;
    if (nrd_topic_find(engine, name, &topic) < 0) {
        const char *text = "partitions=2\nsegment_bytes=65536\n";
        g_assert_cmpint(nrd_topic_create(engine, name, &(NrdAttr){ 0, 0, 0755 }, 022, &topic), ==, 0);
        g_assert_cmpint(nrd_topic_config_write(topic, text, strlen(text)), ==, 0);
    }
    return topic;
}

/* The link is made by the first one who opens; its epoch is the test's. */
static World open_world(const char *path, bool first)
{
    World w = { 0 };
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = path };
    char name[] = "c";
    if (nrd_engine_open(&options, &w.engine, &why) < 0)
        g_error("%s", why);
    w.parent = open_topic(w.engine, "t");
    w.child = open_topic(w.engine, name);
    NrdChildRecord link = { .name = name, .epoch = 1, .attached_ms = INT64_MAX }; /* a cursor that is lost is noticed */
    g_strlcpy(link.id, w.child->id, sizeof link.id);
    pthread_mutex_lock(&w.parent->guard);
    if (first)
        g_assert_cmpint(nrd_fan_prepare(w.parent, &link), ==, 0);
    pthread_mutex_unlock(&w.parent->guard);
    nrd_fan_start(w.parent, w.child, &link, 0);
    return w;
}

static void close_world(World *w)
{
    nrd_topic_unref(w->parent);
    nrd_topic_unref(w->child);
    nrd_engine_stop(w->engine);
    g_assert_cmpint(nrd_engine_close(w->engine), ==, 0);
}

/* ---- the process that is killed ---- */

typedef struct Writer {
    NrdPartition *partition;
    int round, number, pipe_fd;
} Writer;

static void ignore(void *user_data, int error)
{
    (void)user_data;
    g_assert_cmpint(error, ==, 0);
}

/* A writer's number is its key. */
static void *write_for_ever(void *data)
{
    Writer *w = data;
    NrdProducer *producer = NULL;
    g_autofree char *key = g_strdup_printf("%d", w->number);
    g_assert_cmpint(nrd_producer_open(w->partition, false, &producer), ==, 0);
    for (int i = 0;; i++) {
        g_autofree char *payload = g_strdup_printf("%d %d %d", w->number, w->round, i);
        nrd_producer_add(producer, key, strlen(key), payload, strlen(payload));
        nrd_producer_sync(producer, NRD_SYNC_OWN, ignore, NULL);
        if (i == 0)
            g_assert_cmpint(write(w->pipe_fd, "x", 1), ==, 1);
        g_usleep(1000); /* enough to have something under way at any moment */
    }
    return NULL;
}

static void produce_until_killed(const char *path, int round, int pipe_fd)
{
    static Writer writers[N_WRITERS];
    pthread_t thread;
    World w = open_world(path, false);
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (Writer){ nrd_topic_partition(w.parent, (uint32_t)i % N_PARTITIONS), round, i, pipe_fd };
        pthread_create(&thread, NULL, write_for_ever, &writers[i]);
    }
    for (;;)
        pause();
}

/* Not before everybody writes. */
static void run_and_kill(const char *path, int round)
{
    int fds[2];
    char byte;
    g_assert_cmpint(pipe(fds), ==, 0);
    pid_t pid = fork();
    g_assert_cmpint(pid, >=, 0);
    if (pid == 0)
        produce_until_killed(path, round, fds[1]);
    close(fds[1]);
    for (int i = 0; i < N_WRITERS; i++)
        g_assert_cmpint(read(fds[0], &byte, 1), ==, 1);
    g_usleep((gulong)g_random_int_range(5000, 150000));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fds[0]);
}

/* ---- what is left ---- */

static char **lines_of(NrdPartition *partition)
{
    NrdReader *reader = NULL;
    size_t n = 0;
    g_assert_cmpint(nrd_reader_open(partition, NRD_FROM_START, 0, &reader), ==, 0);
    size_t size = nrd_reader_size(reader);
    g_autofree char *text = g_malloc0(size + 1);
    for (size_t pos = 0; pos < size; pos += n) {
        g_assert_cmpint(nrd_reader_read(reader, pos, text + pos, size - pos, &n), ==, 0);
        g_assert_cmpuint(n, >, 0);
    }
    nrd_reader_close(reader);
    return g_strsplit(text, "\n", -1);
}

static uint64_t lag_of(const World *w, NrdChildInfo *ret_info)
{
    g_assert_cmpint(nrd_topic_child_info(w->parent, "c", ret_info), ==, 0);
    uint64_t lag = ret_info->lag;
    nrd_child_info_clear(ret_info);
    return lag;
}

static void wait_copied(const World *w)
{
    NrdChildInfo info;
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        g_assert_cmpint(nrd_partition_learn(nrd_topic_partition(w->parent, i)), ==, 0);
    for (int ms = 0; lag_of(w, &info) > 0 && ms < 20000; ms++)
        g_usleep(1000);
    g_assert_cmpuint(lag_of(w, &info), ==, 0);
}

/* Adds the lines; what is new of a writer is later than all that was there of it before. Returns how many came again. */
static unsigned add_lines(NrdPartition *partition, GHashTable *seen)
{
    g_auto(GStrv) lines = lines_of(partition);
    long latest[N_WRITERS] = { 0 };
    unsigned n_again = 0;
    for (char **line = lines; *line && **line; line++) {
        char *end;
        long writer = strtol(*line, &end, 10), round = strtol(end, &end, 10), i = strtol(end, &end, 10);
        long place = round * 10000000 + i + 1;
        if (!g_hash_table_add(seen, g_strdup(*line))) {
            n_again++;
            continue;
        }
        g_assert_cmpint(place, >, latest[writer]);
        latest[writer] = place;
    }
    return n_again;
}

static void check(const char *path)
{
    World w = open_world(path, false);
    g_autoptr(GHashTable) sent = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) copied = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer line;
    unsigned n_again = 0, n_again_later = 0;
    wait_copied(&w);
    for (uint32_t i = 0; i < N_PARTITIONS; i++) {
        g_assert_cmpuint(add_lines(nrd_topic_partition(w.parent, i), sent), ==, 0);
        n_again += add_lines(nrd_topic_partition(w.child, i), copied);
    }
    g_hash_table_iter_init(&iter, sent);
    while (g_hash_table_iter_next(&iter, &line, NULL)) {
        if (!g_hash_table_contains(copied, line))
            g_error("%s was committed and is not copied", (char *)line);
    }
    g_assert_cmpuint(g_hash_table_size(copied), ==, g_hash_table_size(sent));
    close_world(&w);
    w = open_world(path, false); /* a clean stop: nothing comes again */
    wait_copied(&w);
    g_usleep(100000);
    g_hash_table_remove_all(copied);
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        n_again_later += add_lines(nrd_topic_partition(w.child, i), copied);
    g_assert_cmpuint(n_again_later, ==, n_again);
    close_world(&w);
}

static void remove_folder(const char *path)
{
    int fd = -1;
    g_autofree char *parent = g_path_get_dirname(path), *name = g_path_get_basename(path);
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
}

static void attach(const char *path)
{
    World w = open_world(path, true);
    close_world(&w);
}

/* In a process of its own: a fork must not meet threads of an engine. */
static void run(void (*job)(const char *path), const char *path)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        job(path);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    g_assert_cmpint(status, ==, 0);
}

static void test_killed(void)
{
    g_autofree char *path = g_dir_make_tmp("naradfs-killed-XXXXXX", NULL);
    run(attach, path);
    for (int round = 0; round < N_ROUNDS; round++) {
        run_and_kill(path, round);
        if (round % 3 != 1) /* else killed again before anybody has looked */
            run(check, path);
    }
    remove_folder(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    g_test_add_func("/fan/killed", test_killed);
    return g_test_run();
}
