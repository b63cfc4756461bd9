/* The engine as the file system layer uses it, on a real folder, without a mount: commits and their failures, leases,
 * waiting, deletion, restart. */
#include "engine/engine.h"

#include "engine/io/io.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct Fixture {
    char *path;
    NrdEngine *engine;
    NrdTopic *topic;
    NrdPartition *partition;
} Fixture;

static NrdIo io;
static atomic_int fail_fdatasync, fail_pwritev, fail_fsync;

static int maybe_fdatasync(int fd)
{
    return atomic_exchange(&fail_fdatasync, 0) ? -EIO : nrd_io_real.fdatasync(fd);
}

static int maybe_fsync(int fd)
{
    return atomic_load(&fail_fsync) ? -EIO : nrd_io_real.fsync(fd);
}

static ssize_t maybe_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return atomic_load(&fail_pwritev) ? -ENOSPC : nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

static void start(Fixture *f)
{
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = f->path };
    int rc = nrd_engine_open(&options, &f->engine, &why);
    if (rc < 0)
        g_error("%s", why);
    rc = nrd_topic_find(f->engine, "t", &f->topic);
    if (rc == -ENOENT)
        rc = nrd_topic_create(f->engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &f->topic);
    g_assert_cmpint(rc, ==, 0);
    f->partition = nrd_topic_partition(f->topic, 0);
    g_assert_nonnull(f->partition);
}

static void stop(Fixture *f)
{
    nrd_engine_stop(f->engine);
    nrd_topic_unref(f->topic);
    g_assert_cmpint(nrd_engine_close(f->engine), ==, 0);
}

static void set_up(Fixture *f, gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    f->path = g_dir_make_tmp("naradfs-engine-XXXXXX", &error);
    g_assert_no_error(error);
    io = nrd_io_real;
    io.fdatasync = maybe_fdatasync;
    io.pwritev = maybe_pwritev;
    io.fsync = maybe_fsync;
    nrd_io = &io;
    start(f);
}

static void tear_down(Fixture *f, gconstpointer data)
{
    stop(f);
    nrd_io = &nrd_io_real;
    g_autofree char *parent = g_path_get_dirname(f->path);
    g_autofree char *name = g_path_get_basename(f->path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(f->path);
}

static void store_error(void *user_data, int error)
{
    *(int *)user_data = error;
}

static int sync_now(NrdProducer *producer)
{
    int error = 1;
    nrd_producer_sync(producer, NRD_SYNC_OWN, store_error, &error);
    g_assert_cmpint(error, !=, 1); /* alone, the commit runs on this thread */
    return error;
}

static void produce(Fixture *f, const char *payload)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, payload, strlen(payload));
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
}

typedef struct Got {
    NrdWaiter waiter;
    int error;
    int n_calls;
    uint64_t offset, nonce;
    char payload[64];
} Got;

static void on_delivery(void *user_data, int error, const NrdDelivery *delivery)
{
    Got *got = user_data;
    got->n_calls++;
    got->error = error;
    if (error != 0)
        return;
    got->offset = delivery->offset;
    got->nonce = delivery->nonce;
    g_strlcpy(got->payload, "", sizeof got->payload);
    memcpy(got->payload, delivery->payload, delivery->payload_size);
    got->payload[delivery->payload_size] = '\0';
}

static void take(Fixture *f, Got *got, int64_t wait_ms)
{
    *got = (Got){ .error = 1 };
    nrd_waiter_init(&got->waiter);
    nrd_partition_take(f->partition, &got->waiter, wait_ms, on_delivery, got);
}

static char *read_log(Fixture *f)
{
    NrdReader *reader = NULL;
    g_assert_cmpint(nrd_reader_open(f->partition, NRD_FROM_START, 0, &reader), ==, 0);
    size_t size = nrd_reader_size(reader), n = 0;
    char *text = g_malloc0(size + 1);
    g_assert_cmpint(nrd_reader_read(reader, 0, text, size + 1, &n), ==, 0);
    g_assert_cmpuint(n, ==, size);
    nrd_reader_close(reader);
    return text;
}

static void assert_log(Fixture *f, const char *expected)
{
    g_autofree char *text = read_log(f);
    g_assert_cmpstr(text, ==, expected);
}

static void test_round_trip(Fixture *f, gconstpointer data)
{
    Got a, b, none;
    produce(f, "one");
    produce(f, "two");
    assert_log(f, "one\ntwo\n");
    take(f, &a, 0);
    take(f, &b, 0);
    take(f, &none, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    g_assert_cmpstr(b.payload, ==, "two");
    g_assert_cmpint(none.error, ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, b.offset, b.nonce), ==, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, b.offset, b.nonce), ==, -ESTALE);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, a.offset, b.nonce), ==, -ESTALE);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_NACK, a.offset, a.nonce), ==, 0);
    take(f, &a, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    /* out of order and open: after a restart "two" stays settled, "one" comes back */
    stop(f);
    start(f);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, a.offset, a.nonce), ==, -ESTALE);
    take(f, &a, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    take(f, &none, 0);
    g_assert_cmpint(none.error, ==, -EAGAIN);
}

static void test_failed_commit_keeps_batch(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    char ranges[100] = "";
    produce(f, "before");
    g_assert_cmpint(nrd_producer_open(f->partition, true, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "a", 1);
    atomic_store(&fail_pwritev, 1);
    g_assert_cmpint(sync_now(producer), ==, -ENOSPC);
    nrd_producer_add(producer, NULL, 0, "b", 1);
    g_assert_cmpint(sync_now(producer), ==, -ENOSPC);
    assert_log(f, "before\n");
    atomic_store(&fail_pwritev, 0);
    g_assert_cmpint(sync_now(producer), ==, 0);
    assert_log(f, "before\na\nb\n");
    g_assert_cmpuint(nrd_producer_read_ranges(producer, ranges, sizeof ranges), ==, strlen("p00000 1 2\n"));
    g_assert_cmpstr(ranges, ==, "p00000 1 2\n");
    nrd_producer_close(producer, NULL, NULL);
}

static void test_poison_and_reopen(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdPartitionInfo info;
    Got got;
    produce(f, "before");
    g_assert_cmpint(nrd_producer_open(f->partition, true, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "x", 1);
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    g_assert_cmpint(nrd_producer_check(producer), ==, -EIO);
    g_assert_cmpint(sync_now(producer), ==, -EIO); /* the disk is well again, the log is not */
    nrd_partition_info(f->partition, &info);
    g_assert_true(info.poisoned);
    g_assert_cmpuint(strlen(info.reason), >, 0);
    g_assert_cmpuint(info.hwm, ==, 1);
    nrd_partition_info_clear(&info);
    take(f, &got, 0);
    g_assert_cmpstr(got.payload, ==, "before"); /* reads go on */
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    g_assert_cmpint(nrd_producer_check(producer), ==, 0);
    g_assert_cmpint(sync_now(producer), ==, 0);
    assert_log(f, "before\nx\n");
    nrd_producer_close(producer, NULL, NULL);
    stop(f);
    start(f);
    assert_log(f, "before\nx\n");
}

static void test_waiting(Fixture *f, gconstpointer data)
{
    Got first, second, cancelled, early = { .error = 1 };
    take(f, &first, -1);
    take(f, &second, -1);
    take(f, &cancelled, -1);
    g_assert_cmpint(first.n_calls + second.n_calls + cancelled.n_calls, ==, 0);
    produce(f, "one");
    g_assert_cmpint(first.n_calls, ==, 1);
    g_assert_cmpstr(first.payload, ==, "one");
    g_assert_cmpint(second.n_calls, ==, 0); /* one record, one reader */
    g_assert_true(nrd_waiter_cancel(f->partition, &cancelled.waiter));
    g_assert_false(nrd_waiter_cancel(f->partition, &cancelled.waiter));
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_NACK, first.offset, first.nonce), ==, 0);
    g_assert_cmpint(second.n_calls, ==, 1); /* the one that was given back wakes the next in line */
    g_assert_cmpstr(second.payload, ==, "one");
    nrd_waiter_init(&early.waiter);
    g_assert_false(nrd_waiter_cancel(f->partition, &early.waiter));
    nrd_partition_take(f->partition, &early.waiter, -1, on_delivery, &early);
    g_assert_cmpint(early.error, ==, -EINTR);
    take(f, &first, -1);
    nrd_engine_stop(f->engine);
    g_assert_cmpint(first.error, ==, -ENODEV);
    g_assert_cmpint(cancelled.n_calls, ==, 0);
}

static void count(void *user_data)
{
    (*(int *)user_data)++;
}

static void test_watch(Fixture *f, gconstpointer data)
{
    NrdWatch watch = { 0 };
    int n = 0;
    g_assert_false(nrd_partition_readable(f->partition));
    nrd_watch_set(f->partition, &watch, count, &n);
    produce(f, "one");
    g_assert_cmpint(n, ==, 1);
    g_assert_true(nrd_partition_readable(f->partition));
    produce(f, "two");
    g_assert_cmpint(n, ==, 1); /* one shot */
    nrd_watch_set(f->partition, &watch, count, &n);
    g_assert_true(nrd_watch_clear(f->partition, &watch));
    g_assert_false(nrd_watch_clear(f->partition, &watch));
    produce(f, "three");
    g_assert_cmpint(n, ==, 1);
}

static void test_delete(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdReader *reader = NULL;
    NrdTopic *again = NULL;
    Got parked;
    char buf[10];
    size_t n;
    produce(f, "one");
    take(f, &parked, -1);
    take(f, &parked, -1);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "x", 1);
    g_assert_cmpint(nrd_reader_open(f->partition, NRD_FROM_START, 0, &reader), ==, 0);
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -ENOTEMPTY);
    g_assert_cmpint(nrd_topic_delete(f->topic, "0123456789abcdef"), ==, -EINVAL);
    g_assert_cmpint(nrd_topic_delete(f->topic, nrd_topic_incarnation(f->topic)), ==, 0);
    g_assert_cmpint(parked.error, ==, -EIDRM);
    g_assert_cmpint(sync_now(producer), ==, -EIDRM);
    g_assert_cmpint(nrd_producer_check(producer), ==, -EIDRM);
    g_assert_cmpint(nrd_reader_read(reader, 0, buf, sizeof buf, &n), ==, -EIDRM);
    g_assert_cmpint(nrd_topic_find(f->engine, "t", &again), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_create(f->engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &again), ==, 0);
    g_assert_cmpint(sync_now(producer), ==, -EIDRM);
    nrd_producer_close(producer, NULL, NULL);
    nrd_reader_close(reader);
    nrd_topic_unref(f->topic);
    f->topic = again;
    f->partition = nrd_topic_partition(again, 0);
    assert_log(f, "");
}

static void test_remove(Fixture *f, gconstpointer data)
{
    NrdTopic *again = NULL;
    g_assert_cmpint(nrd_topic_hold(f->topic), ==, 0);
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -EBUSY);
    nrd_topic_release(f->topic);
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, 0);
    g_assert_cmpint(nrd_topic_hold(f->topic), ==, -EIDRM);
    g_assert_cmpint(nrd_topic_find(f->engine, "t", &again), ==, -ENOENT);
}

/* The record is unlinked, and neither that nor its return can be made durable: nothing may be acknowledged any more. */
static void test_half_removed(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    atomic_store(&fail_fsync, 1);
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -EIO);
    atomic_store(&fail_fsync, 0);
    nrd_producer_add(producer, NULL, 0, "x", 1);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    g_autofree char *fault = nrd_topic_fault(f->topic);
    g_assert_nonnull(fault);
    nrd_producer_close(producer, NULL, NULL);
}

/* One whose folders cannot be made is not there afterwards, and its name can be used. */
static void test_failed_create(Fixture *f, gconstpointer data)
{
    NrdTopic *topic = NULL;
    atomic_store(&fail_fsync, 1);
    g_assert_cmpint(nrd_topic_create(f->engine, "u", &(NrdAttr){ 0, 0, 0755 }, 022, &topic), ==, -EIO);
    atomic_store(&fail_fsync, 0);
    g_assert_cmpint(nrd_topic_find(f->engine, "u", &topic), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_create(f->engine, "u", &(NrdAttr){ 0, 0, 0755 }, 022, &topic), ==, 0);
    nrd_topic_unref(topic);
}

#define N_WRITERS 6
#define N_EACH 300

typedef struct Writer {
    Fixture *f;
    int number;
    pthread_t thread;
} Writer;

typedef struct Done {
    GMutex lock;
    GCond cond;
    bool called;
    int error;
} Done;

static void on_done(void *user_data, int error)
{
    Done *done = user_data;
    g_mutex_lock(&done->lock);
    done->called = true;
    done->error = error;
    g_cond_signal(&done->cond);
    g_mutex_unlock(&done->lock);
}

static void *write_many(void *user_data)
{
    Writer *writer = user_data;
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(writer->f->partition, false, &producer), ==, 0);
    for (int i = 0; i < N_EACH; i++) {
        char text[32];
        int n = g_snprintf(text, sizeof text, "%d %d", writer->number, i);
        Done done = { .called = false };
        g_mutex_init(&done.lock);
        g_cond_init(&done.cond);
        nrd_producer_add(producer, NULL, 0, text, (size_t)n);
        nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &done);
        g_mutex_lock(&done.lock);
        while (!done.called)
            g_cond_wait(&done.cond, &done.lock);
        g_mutex_unlock(&done.lock);
        g_assert_cmpint(done.error, ==, 0);
        g_cond_clear(&done.cond);
        g_mutex_clear(&done.lock);
    }
    nrd_producer_close(producer, NULL, NULL);
    return NULL;
}

/* Every record once, each writer's own in order. */
static void test_many_writers(Fixture *f, gconstpointer data)
{
    Writer writers[N_WRITERS];
    int next[N_WRITERS] = { 0 };
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (Writer){ .f = f, .number = i };
        pthread_create(&writers[i].thread, NULL, write_many, &writers[i]);
    }
    for (int i = 0; i < N_WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    g_autofree char *text = read_log(f);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    g_assert_cmpuint(g_strv_length(lines), ==, N_WRITERS * N_EACH + 1);
    for (int i = 0; i < N_WRITERS * N_EACH; i++) {
        int number = -1, count_of = -1;
        g_assert_cmpint(sscanf(lines[i], "%d %d", &number, &count_of), ==, 2);
        g_assert_cmpint(count_of, ==, next[number]++);
    }
}

static void test_settings(Fixture *f, gconstpointer data)
{
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=3\nlinger_ms=7\n", 25), ==, 0);
    g_assert_cmpuint(nrd_topic_n_partitions(f->topic), ==, 3);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, -EINVAL);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=9\nnonsense=1\n", 23), ==, -EINVAL);
    stop(f);
    start(f);
    g_autofree char *linger = nrd_topic_config_value(f->topic, "linger_ms");
    g_assert_cmpstr(linger, ==, "7");
    g_assert_cmpuint(nrd_topic_n_partitions(f->topic), ==, 3);
}

static void test_seek_survives(Fixture *f, gconstpointer data)
{
    Got got;
    produce(f, "one");
    produce(f, "two");
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_END, 0), ==, 0);
    take(f, &got, 0);
    g_assert_cmpint(got.error, ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_OFFSET, 3), ==, -EINVAL);
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_OFFSET, 1), ==, 0); /* back */
    stop(f);
    start(f);
    take(f, &got, 0);
    g_assert_cmpstr(got.payload, ==, "two");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/engine/" name, Fixture, NULL, set_up, test, tear_down)
    ADD("round-trip", test_round_trip);
    ADD("failed-commit-keeps-batch", test_failed_commit_keeps_batch);
    ADD("poison-and-reopen", test_poison_and_reopen);
    ADD("waiting", test_waiting);
    ADD("watch", test_watch);
    ADD("delete", test_delete);
    ADD("remove", test_remove);
    ADD("half-removed", test_half_removed);
    ADD("failed-create", test_failed_create);
    ADD("many-writers", test_many_writers);
    ADD("settings", test_settings);
    ADD("seek-survives", test_seek_survives);
    return g_test_run();
}
