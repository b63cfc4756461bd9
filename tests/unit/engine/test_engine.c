/* The engine as the file system layer uses it, on a real folder, without a mount: commits and their failures, leases,
 * waiting, deletion, restart. */
#include "tests/unit/engine/fixture.h"

#include "engine/io/io.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void test_round_trip(Fixture *f, gconstpointer data)
{
    Got a, b, none;
    produce(f->partition, "one");
    produce(f->partition, "two");
    assert_log(f->partition, "one\ntwo\n");
    take(f->partition, &a, 0);
    take(f->partition, &b, 0);
    take(f->partition, &none, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    g_assert_cmpstr(b.payload, ==, "two");
    g_assert_cmpint(none.error, ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, b.offset, b.nonce), ==, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, b.offset, b.nonce), ==, -ESTALE);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, a.offset, b.nonce), ==, -ESTALE);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_NACK, a.offset, a.nonce), ==, 0);
    take(f->partition, &a, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    /* out of order and open: after a restart "two" stays settled, "one" comes back */
    fixture_stop(f);
    fixture_start(f);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, a.offset, a.nonce), ==, -ESTALE);
    take(f->partition, &a, 0);
    g_assert_cmpstr(a.payload, ==, "one");
    take(f->partition, &none, 0);
    g_assert_cmpint(none.error, ==, -EAGAIN);
}

static void test_failed_commit_keeps_batch(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    char ranges[100] = "";
    produce(f->partition, "before");
    g_assert_cmpint(nrd_producer_open(f->partition, true, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "a", 1);
    atomic_store(&fail_pwritev, 1);
    g_assert_cmpint(sync_now(producer), ==, -ENOSPC);
    nrd_producer_add(producer, NULL, 0, "b", 1);
    g_assert_cmpint(sync_now(producer), ==, -ENOSPC);
    assert_log(f->partition, "before\n");
    atomic_store(&fail_pwritev, 0);
    g_assert_cmpint(sync_now(producer), ==, 0);
    assert_log(f->partition, "before\na\nb\n");
    g_assert_cmpuint(nrd_producer_read_ranges(producer, ranges, sizeof ranges), ==, strlen("p00000 1 2\n"));
    g_assert_cmpstr(ranges, ==, "p00000 1 2\n");
    nrd_producer_close(producer, NULL, NULL);
}

static void test_poison_and_reopen(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdPartitionInfo info;
    Got got;
    produce(f->partition, "before");
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
    take(f->partition, &got, 0);
    g_assert_cmpstr(got.payload, ==, "before"); /* reads go on */
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    g_assert_cmpint(nrd_producer_check(producer), ==, 0);
    g_assert_cmpint(sync_now(producer), ==, 0);
    assert_log(f->partition, "before\nx\n");
    nrd_producer_close(producer, NULL, NULL);
    fixture_stop(f);
    fixture_start(f);
    assert_log(f->partition, "before\nx\n");
}

static void test_waiting(Fixture *f, gconstpointer data)
{
    Got first, second, cancelled, early = { .error = 1 };
    take(f->partition, &first, -1);
    take(f->partition, &second, -1);
    take(f->partition, &cancelled, -1);
    g_assert_cmpint(first.n_calls + second.n_calls + cancelled.n_calls, ==, 0);
    produce(f->partition, "one");
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
    take(f->partition, &first, -1);
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
    produce(f->partition, "one");
    g_assert_cmpint(n, ==, 1);
    g_assert_true(nrd_partition_readable(f->partition));
    produce(f->partition, "two");
    g_assert_cmpint(n, ==, 1); /* one shot */
    nrd_watch_set(f->partition, &watch, count, &n);
    g_assert_true(nrd_watch_clear(f->partition, &watch));
    g_assert_false(nrd_watch_clear(f->partition, &watch));
    produce(f->partition, "three");
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
    produce(f->partition, "one");
    take(f->partition, &parked, -1);
    take(f->partition, &parked, -1);
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
    nrd_partition_unpin(f->partition);
    nrd_topic_unref(f->topic);
    f->topic = again;
    f->partition = nrd_topic_partition(again, 0);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    assert_log(f->partition, "");
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
    g_autofree char *text = read_log(f->partition);
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
    fixture_stop(f);
    fixture_start(f);
    g_autofree char *linger = nrd_topic_config_value(f->topic, "linger_ms");
    g_assert_cmpstr(linger, ==, "7");
    g_assert_cmpuint(nrd_topic_n_partitions(f->topic), ==, 3);
}

static void test_seek_survives(Fixture *f, gconstpointer data)
{
    Got got;
    produce(f->partition, "one");
    produce(f->partition, "two");
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_END, 0), ==, 0);
    take(f->partition, &got, 0);
    g_assert_cmpint(got.error, ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_OFFSET, 3), ==, -EINVAL);
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_OFFSET, 1), ==, 0); /* back */
    fixture_stop(f);
    fixture_start(f);
    take(f->partition, &got, 0);
    g_assert_cmpstr(got.payload, ==, "two");
}

/* A linger that was made shorter counts for what is written from then on. */
static void test_linger_made_shorter(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdPartitionInfo info = { 0 };
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=60000\n", 16), ==, 0);
    nrd_producer_add(producer, NULL, 0, "one", 3);
    g_assert_cmpint(nrd_producer_wrote(producer, false), ==, NRD_URGENCY_LATER);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=10\n", 13), ==, 0);
    nrd_producer_add(producer, NULL, 0, "two", 3);
    g_assert_cmpint(nrd_producer_wrote(producer, false), ==, NRD_URGENCY_LATER);
    for (int i = 0; info.hwm < 2 && i < 10000; i++) {
        g_usleep(1000);
        nrd_partition_info(f->partition, &info);
        nrd_partition_info_clear(&info);
    }
    g_assert_cmpuint(info.hwm, ==, 2);
    nrd_producer_close(producer, NULL, NULL);
}

/* The rest of a write that was cut goes with it; when none comes it is not waited for. */
static void test_more_follows(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdTopicProducer *whole = NULL;
    NrdPartitionInfo info = { 0 };
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=60000\n", 16), ==, 0);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &whole), ==, 0);
    for (int i = 0; i < 1000; i++) {
        nrd_producer_add(producer, NULL, 0, "one", 3);
        nrd_topic_producer_add(whole, NULL, 0, "two", 3);
    }
    g_assert_cmpint(nrd_producer_wrote(producer, true), ==, NRD_URGENCY_LATER);
    g_assert_cmpint(nrd_topic_producer_wrote(whole, true), ==, NRD_URGENCY_LATER);
    for (int i = 0; info.hwm < 2000 && i < 10000; i++) {
        g_usleep(1000);
        nrd_partition_info(f->partition, &info);
        nrd_partition_info_clear(&info);
    }
    g_assert_cmpuint(info.hwm, ==, 2000);
    nrd_producer_add(producer, NULL, 0, "one", 3);
    g_assert_cmpint(nrd_producer_wrote(producer, false), ==, NRD_URGENCY_LATER);
    for (int i = 0; i < 1000; i++)
        nrd_producer_add(producer, NULL, 0, "one", 3);
    g_assert_cmpint(nrd_producer_wrote(producer, false), ==, NRD_URGENCY_NOW);
    nrd_producer_close(producer, NULL, NULL);
    nrd_topic_producer_close(whole, NULL, NULL);
}

/* A partition that could not be opened when the consumer came, for what passes by itself, is served when it can be. */
static void test_topic_consumer_pins_later(Fixture *f, gconstpointer data)
{
    NrdTopicConsumer *consumer = NULL;
    Got got = { .error = 1 };
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    fixture_start(f); /* the second one is closed */
    atomic_store(&fail_open, EMFILE);
    g_assert_cmpint(nrd_topic_consumer_open(f->topic, &consumer), ==, 0);
    atomic_store(&fail_open, 0);
    nrd_waiter_init(&got.waiter);
    nrd_topic_take(consumer, &got.waiter, 0, on_delivery, &got);
    g_assert_cmpint(got.error, ==, 0);
    g_assert_cmpstr(got.payload, ==, "one");
    g_assert_cmpint(nrd_topic_settle(f->topic, 1, NRD_VERB_ACK, got.offset, got.nonce), ==, 0);
    nrd_topic_consumer_close(consumer);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/engine/" name, Fixture, NULL, fixture_set_up, test, fixture_tear_down)
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
    ADD("linger-made-shorter", test_linger_made_shorter);
    ADD("more-follows", test_more_follows);
    ADD("topic-consumer-pins-later", test_topic_consumer_pins_later);
    return g_test_run();
}
