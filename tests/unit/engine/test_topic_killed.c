/* A process that produces to a topic is killed at any moment, again and again, on the same data: what was acknowledged is
 * there, and everything once. */
#include "engine/engine_private.h"
#include "engine/io/io.h"

#include <glib/gstdio.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_ROUNDS 12
#define N_WRITERS 4
#define READY "ready\n"

static NrdEngine *open_engine(const char *path, NrdTopic **topic)
{
    NrdEngine *engine = NULL;
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = path, .idle_close_ms = 400 }; /* a quarter of it between looks */
    if (nrd_engine_open(&options, &engine, &why) < 0)
        g_error("%s", why);
    if (nrd_topic_find(engine, "t", topic) < 0) {
        const char *text = "partitions=3\nsegment_bytes=65536\n";
        g_assert_cmpint(nrd_topic_create(engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, topic), ==, 0);
        g_assert_cmpint(nrd_topic_config_write(*topic, text, strlen(text)), ==, 0);
    }
    return engine;
}

/* ---- the process that is killed ---- */

typedef struct Writer {
    NrdTopic *topic;
    int round, number, pipe_fd;
    bool reopens;
} Writer;

static void store_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static void wait_for(atomic_int *error)
{
    while (atomic_load(error) == 1)
        g_usleep(50);
    g_assert_cmpint(atomic_load(error), ==, 0);
}

static void *write_for_ever(void *data)
{
    Writer *w = data;
    NrdTopicProducer *producer = NULL;
    for (int i = 0;; i++) {
        atomic_int error = 1;
        char name[64];
        int n = g_snprintf(name, sizeof name, "%d-%d-%d\n", w->round, w->number, i);
        if (!producer)
            g_assert_cmpint(nrd_topic_producer_open(w->topic, true, &producer), ==, 0);
        nrd_topic_producer_add(producer, NULL, 0, name, (size_t)n - 1);
        nrd_topic_producer_sync(producer, NRD_SYNC_OWN, store_error, &error);
        wait_for(&error);
        g_assert_cmpint(write(w->pipe_fd, name, (size_t)n), ==, n);
        if (w->reopens && i % 7 == 0) {
            nrd_topic_producer_close(producer, NULL, NULL);
            producer = NULL;
        }
    }
    return NULL;
}

/* Who has the partitions' own files open meanwhile. */
typedef enum Others {
    OTHERS_NONE,
    OTHERS_OPEN, /* and has written nothing yet */
    OTHERS_REST, /* and has written something some time ago */
} Others;

static void write_once(NrdPartition *partition, NrdProducer *producer, int round)
{
    atomic_int error = 1;
    g_autofree char *name = g_strdup_printf("%d-own-%u", round, partition->number);
    nrd_producer_add(producer, NULL, 0, name, strlen(name));
    nrd_producer_sync(producer, NRD_SYNC_OWN, store_error, &error);
    wait_for(&error);
    while (atomic_load(&partition->n_claimed) > 0)
        g_usleep(1000);
}

static void open_partitions(NrdTopic *topic, int round, Others others)
{
    for (uint32_t i = 0; others != OTHERS_NONE && i < nrd_topic_n_partitions(topic); i++) {
        NrdProducer *producer = NULL;
        NrdPartition *partition = nrd_topic_partition(topic, i);
        g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
        if (others == OTHERS_REST)
            write_once(partition, producer, round);
    }
}

static void produce_until_killed(const char *path, int round, Others others, int pipe_fd)
{
    NrdTopic *topic = NULL;
    Writer writers[N_WRITERS];
    pthread_t thread;
    (void)open_engine(path, &topic);
    open_partitions(topic, round, others);
    g_assert_cmpint(write(pipe_fd, READY, strlen(READY)), ==, strlen(READY));
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (Writer){ topic, round, i, pipe_fd, i % 2 == 0 };
        pthread_create(&thread, NULL, write_for_ever, &writers[i]);
    }
    for (;;)
        pause();
}

/* Adds the names that were acknowledged before the kill. */
static void run_and_kill(const char *path, int round, Others others, GHashTable *acked)
{
    int fds[2];
    g_assert_cmpint(pipe(fds), ==, 0);
    pid_t pid = fork();
    g_assert_cmpint(pid, >=, 0);
    if (pid == 0) {
        close(fds[0]);
        produce_until_killed(path, round, others, fds[1]);
    }
    close(fds[1]);
    char ready[sizeof READY] = "";
    g_assert_cmpint(read(fds[0], ready, strlen(READY)), ==, strlen(READY));
    g_usleep((gulong)g_random_int_range(20000, 120000));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    FILE *file = fdopen(fds[0], "r");
    char line[64];
    while (fgets(line, sizeof line, file)) {
        if (strchr(line, '\n'))
            g_hash_table_add(acked, g_strdup(g_strchomp(line)));
    }
    fclose(file);
}

/* ---- what is left ---- */

static void wait_until_dispatched(NrdEngine *engine)
{
    for (int i = 0; i < 20000; i++, g_usleep(1000)) {
        g_autofree char *metrics = nrd_engine_metrics(engine);
        if (strstr(metrics, "\nnarad_ingress_pending_parts 0\n"))
            return;
    }
    g_assert_not_reached();
}

static void add_records(NrdPartition *partition, GHashTable *seen)
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
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        if (**line && !g_hash_table_add(seen, g_strdup(*line)))
            g_error("%s is there twice", *line);
    }
}

static void assert_exactly_once(const char *path, GHashTable *acked)
{
    NrdTopic *topic = NULL;
    NrdEngine *engine = open_engine(path, &topic);
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer name;
    wait_until_dispatched(engine);
    for (uint32_t i = 0; i < nrd_topic_n_partitions(topic); i++)
        add_records(nrd_topic_partition(topic, i), seen);
    g_hash_table_iter_init(&iter, acked);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        if (!g_hash_table_contains(seen, name))
            g_error("%s was acknowledged and is lost", (char *)name);
    }
    nrd_topic_unref(topic);
    nrd_engine_stop(engine);
    g_assert_cmpint(nrd_engine_close(engine), ==, 0);
}

static void remove_folder(const char *path)
{
    int fd = -1;
    g_autofree char *parent = g_path_get_dirname(path), *name = g_path_get_basename(path);
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
}

/* The check runs in a process of its own: a fork must not meet threads of an engine. */
static void test_killed(gconstpointer others)
{
    g_autofree char *path = g_dir_make_tmp("naradfs-killed-XXXXXX", NULL);
    g_autoptr(GHashTable) acked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (int round = 0; round < N_ROUNDS; round++) {
        int status = 0;
        run_and_kill(path, round, (Others)GPOINTER_TO_INT(others), acked);
        if (round % 3 == 1)
            continue; /* killed again before anybody has looked */
        pid_t pid = fork();
        if (pid == 0) {
            assert_exactly_once(path, acked);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        g_assert_cmpint(status, ==, 0);
    }
    g_test_message("%u records acknowledged", g_hash_table_size(acked));
    g_assert_cmpuint(g_hash_table_size(acked), >, 0);
    remove_folder(path);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    g_test_add_data_func("/engine/topic-killed", GINT_TO_POINTER(OTHERS_NONE), test_killed);
    g_test_add_data_func("/engine/topic-killed-beside-others", GINT_TO_POINTER(OTHERS_OPEN), test_killed);
    g_test_add_data_func("/engine/topic-killed-beside-who-rests", GINT_TO_POINTER(OTHERS_REST), test_killed);
    return g_test_run();
}
