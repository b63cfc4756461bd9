/* Fan-out over real logs: what is committed to a parent's partitions stands in the child, over restarts and crashes, around
 * poisoned partitions, and no earlier than the child's delay says. Links are made as the keeper of the records makes them. */
#include "tests/unit/engine/fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/fan.h"
#include "engine/io/io.h"
#include "engine/partition.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

#define WAIT_MS 20000

static NrdChildRecord record_of(NrdTopic *child)
{
    NrdChildRecord record = { .name = child->name, .epoch = 4711, .attached_ms = nrd_clock_wall_ms() };
    g_strlcpy(record.id, child->id, sizeof record.id);
    return record;
}

static void prepare(NrdTopic *parent, const NrdChildRecord *record)
{
    pthread_mutex_lock(&parent->guard);
    g_assert_cmpint(nrd_fan_prepare(parent, record), ==, 0);
    pthread_mutex_unlock(&parent->guard);
}

static NrdTopic *make_child(Fixture *f, const char *name)
{
    NrdTopic *child = NULL;
    if (nrd_topic_find(f->engine, name, &child) < 0)
        g_assert_cmpint(nrd_topic_create(f->engine, name, &(NrdAttr){ 0, 0, 0755 }, 022, &child), ==, 0);
    return child;
}

static NrdChildRecord attach(Fixture *f, NrdTopic *child, int64_t delay_ms)
{
    NrdChildRecord record = record_of(child);
    prepare(f->topic, &record);
    nrd_fan_start(f->topic, child, &record, delay_ms);
    return record;
}

static void config(NrdTopic *topic, const char *text)
{
    g_assert_cmpint(nrd_topic_config_write(topic, text, strlen(text)), ==, 0);
}

static void produce_keyed(NrdPartition *partition, const char *key, const char *payload)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    nrd_producer_add(producer, key, strlen(key), payload, strlen(payload));
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
}

static void produce_many(NrdPartition *partition, unsigned n, size_t size)
{
    NrdProducer *producer = NULL;
    g_autofree char *payload = g_malloc(size);
    memset(payload, 'x', size);
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    for (unsigned i = 0; i < n; i++)
        nrd_producer_add(producer, NULL, 0, payload, size);
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
}

/* The log as it is now; it may be growing. */
static char *log_of(NrdPartition *partition)
{
    NrdReader *reader = NULL;
    size_t n = 0;
    char *text = g_malloc0(65536);
    g_assert_cmpint(nrd_reader_open(partition, NRD_FROM_START, 0, &reader), ==, 0);
    g_assert_cmpint(nrd_reader_read(reader, 0, text, 65535, &n), ==, 0);
    nrd_reader_close(reader);
    return text;
}

static void assert_becomes(NrdTopic *topic, uint32_t number, const char *expected)
{
    g_autofree char *text = NULL;
    for (int ms = 0; ms < WAIT_MS; ms += 2) {
        g_free(text);
        text = log_of(nrd_topic_partition(topic, number));
        if (strcmp(text, expected) == 0)
            return;
        g_usleep(2000);
    }
    g_assert_cmpstr(text, ==, expected);
}

static uint64_t hwm_of(NrdTopic *topic, uint32_t number)
{
    NrdPartitionInfo info;
    nrd_partition_info(nrd_topic_partition(topic, number), &info);
    uint64_t hwm = info.hwm;
    nrd_partition_info_clear(&info);
    return hwm;
}

static void wait_hwm(NrdTopic *topic, uint32_t number, uint64_t hwm)
{
    for (int ms = 0; hwm_of(topic, number) < hwm && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpuint(hwm_of(topic, number), ==, hwm);
}

static uint64_t lag_of(Fixture *f, NrdTopic *child)
{
    NrdChildInfo info;
    g_assert_cmpint(nrd_topic_child_info(f->topic, child->name, &info), ==, 0);
    uint64_t lag = info.lag;
    nrd_child_info_clear(&info);
    return lag;
}

static void wait_copied(Fixture *f, NrdTopic *child)
{
    for (int ms = 0; lag_of(f, child) > 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpuint(lag_of(f, child), ==, 0);
}

/* ---- copying ---- */

/* A key's partition in the child; unkeyed ones take turns. Nothing from before the attach. */
static void test_copies(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    config(child, "partitions=3");
    produce(f->partition, "old");
    attach(f, child, 0);
    g_assert_cmpuint(lag_of(f, child), ==, 0);
    uint32_t home = nrd_key_partition("k", 1, 3);
    produce_keyed(f->partition, "k", "a");
    produce_keyed(f->partition, "k", "b");
    produce_keyed(f->partition, "k", "c");
    assert_becomes(child, home, "a\nb\nc\n");
    for (int i = 0; i < 3; i++)
        produce(f->partition, "u");
    wait_copied(f, child);
    for (uint32_t i = 0; i < 3; i++)
        assert_becomes(child, i, i == home ? "a\nb\nc\nu\n" : "u\n");
    NrdRecord record;
    g_assert_cmpint(nrd_partition_record(nrd_topic_partition(child, home), 0, &record), ==, 0);
    g_assert_cmpmem(record.key, record.key_size, "k", 1);
    nrd_record_clear(&record);
    NrdChildInfo info;
    g_assert_cmpint(nrd_topic_child_info(f->topic, "c", &info), ==, 0);
    g_assert_cmpuint(info.n_copied, ==, 6);
    g_assert_cmpuint(info.rows->len, ==, 1);
    g_assert_cmpuint(g_array_index(info.rows, NrdChildRow, 0).cursor, ==, 7);
    nrd_child_info_clear(&info);
    g_assert_cmpint(nrd_topic_child_info(f->topic, "nobody", &info), ==, -ENOENT);
    nrd_topic_unref(child);
}

static void test_many_records(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    attach(f, child, 0);
    produce_many(f->partition, 4097, 10);
    wait_hwm(child, 0, 4097);
    wait_copied(f, child);
    produce_many(f->partition, 9, NRD_MIB);
    wait_hwm(child, 0, 4106);
    NrdRecord record;
    g_assert_cmpint(nrd_partition_record(nrd_topic_partition(child, 0), 4105, &record), ==, 0);
    g_assert_cmpuint(record.payload_size, ==, NRD_MIB);
    nrd_record_clear(&record);
    nrd_topic_unref(child);
}

/* A batch of the dispatcher's, a child with a child's own producer, and a topic producer beside the copies. */
static void test_beside_the_dispatcher(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    NrdTopicProducer *producer = NULL, *own = NULL;
    attach(f, child, 0);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &producer), ==, 0);
    g_assert_cmpint(nrd_topic_producer_open(child, false, &own), ==, 0);
    for (int i = 0; i < 50; i++) {
        nrd_topic_producer_add(producer, NULL, 0, "p", 1);
        nrd_topic_producer_add(own, NULL, 0, "o", 1);
        if (nrd_topic_producer_wrote(producer, false) == NRD_URGENCY_NOW || i % 10 == 9)
            nrd_topic_flush(f->topic);
        if (nrd_topic_producer_wrote(own, false) == NRD_URGENCY_NOW || i % 10 == 9)
            nrd_topic_flush(child);
    }
    nrd_topic_producer_close(producer, NULL, NULL);
    nrd_topic_producer_close(own, NULL, NULL);
    wait_hwm(child, 0, 100);
    nrd_topic_unref(child);
}

static void test_growth(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    attach(f, child, 0);
    produce(f->partition, "a");
    assert_becomes(child, 0, "a\n");
    config(f->topic, "partitions=3");
    config(child, "partitions=2");
    g_autofree char *path = g_strconcat(f->path, "/topics/t/p00002/fanout-c.offset", NULL);
    for (int ms = 0; !g_file_test(path, G_FILE_TEST_EXISTS) && ms < WAIT_MS; ms++)
        g_usleep(1000); /* there before anything is committed */
    g_assert_true(g_file_test(path, G_FILE_TEST_EXISTS));
    uint32_t home = nrd_key_partition("q", 1, 2);
    produce_keyed(nrd_topic_partition(f->topic, 2), "q", "b");
    assert_becomes(child, home, home == 0 ? "a\nb\n" : "b\n");
    wait_copied(f, child);
    nrd_topic_unref(child);
}

/* ---- restarts ---- */

static void cursor_path(Fixture *f, char **ret_path)
{
    *ret_path = g_strconcat(f->path, "/topics/t/p00000/fanout-c.offset", NULL);
}

static NrdTopic *restart(Fixture *f, NrdTopic *child, const NrdChildRecord *record)
{
    g_autofree char *name = g_strdup(record->name);
    nrd_topic_unref(child);
    fixture_stop(f);
    fixture_start(f);
    child = make_child(f, name);
    NrdChildRecord again = *record;
    again.name = name;
    nrd_fan_start(f->topic, child, &again, 0);
    return child;
}

static void test_restart(Fixture *f, gconstpointer data)
{
    (void)data;
    char name[] = "c";
    NrdTopic *child = make_child(f, name);
    NrdChildRecord record = attach(f, child, 0);
    record.name = name;
    produce(f->partition, "a");
    assert_becomes(child, 0, "a\n");
    child = restart(f, child, &record);
    produce(f->partition, "b");
    assert_becomes(child, 0, "a\nb\n");
    child = restart(f, child, &record);
    wait_copied(f, child);
    assert_becomes(child, 0, "a\nb\n");
    nrd_topic_unref(child);
}

/* A crash after the commit and before the cursor: the batch comes twice, and nothing is lost. */
static void test_crash(Fixture *f, gconstpointer data)
{
    (void)data;
    char name[] = "c", *before = NULL;
    gsize size;
    g_autofree char *path = NULL;
    cursor_path(f, &path);
    NrdTopic *child = make_child(f, name);
    NrdChildRecord record = attach(f, child, 0);
    record.name = name;
    produce(f->partition, "a");
    assert_becomes(child, 0, "a\n");
    wait_copied(f, child);
    g_assert_true(g_file_get_contents(path, &before, &size, NULL));
    produce(f->partition, "b");
    assert_becomes(child, 0, "a\nb\n");
    nrd_topic_unref(child);
    fixture_stop(f);
    g_assert_true(g_file_set_contents(path, before, (gssize)size, NULL));
    fixture_start(f);
    child = make_child(f, name);
    nrd_fan_start(f->topic, child, &record, 0);
    produce(f->partition, "c");
    assert_becomes(child, 0, "a\nb\nb\nc\n");
    wait_copied(f, child);
    /* and without any cursor: everything since the attach */
    nrd_topic_unref(child);
    fixture_stop(f);
    g_assert_cmpint(g_unlink(path), ==, 0);
    fixture_start(f);
    child = make_child(f, name);
    nrd_fan_start(f->topic, child, &record, 0);
    assert_becomes(child, 0, "a\nb\nb\nc\na\nb\nc\n");
    g_free(before);
    nrd_topic_unref(child);
}

/* An idle link keeps neither side open, and a partition that closed with nothing left is not opened to see it. */
static void test_idle_close(Fixture *f, gconstpointer data)
{
    (void)data;
    char name[] = "c";
    NrdTopic *child = make_child(f, name);
    NrdChildRecord record = attach(f, child, 0);
    record.name = name;
    produce(f->partition, "a");
    wait_copied(f, child);
    nrd_partition_unpin(f->partition);
    NrdPartition *copy = nrd_topic_partition(child, 0);
    for (int ms = 0; !nrd_partition_close_idle(f->partition, 0, true) && ms < WAIT_MS; ms++)
        g_usleep(1000);
    for (int ms = 0; !nrd_partition_close_idle(copy, 0, true) && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpuint(lag_of(f, child), ==, 0);
    g_usleep(1200000); /* the tidying after the last copy opens nothing */
    g_assert_false(nrd_partition_is_open(f->partition));
    g_assert_false(nrd_partition_is_open(copy));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    child = restart(f, child, &record);
    copy = nrd_topic_partition(child, 0);
    g_usleep(300000);
    g_assert_false(nrd_partition_is_open(copy));
    produce(f->partition, "b");
    assert_becomes(child, 0, "a\nb\n");
    nrd_topic_unref(child);
}

/* ---- trouble ---- */

static void poison(NrdPartition *partition)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "x", 1);
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    g_assert_cmpint(nrd_log_check(atomic_load(&partition->log)), ==, -EIO);
    nrd_producer_close(producer, NULL, NULL);
}

static void test_poisoned(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    config(child, "partitions=2");
    attach(f, child, 0);
    uint32_t home = nrd_key_partition("k", 1, 2);
    NrdPartition *sick = nrd_topic_partition(child, home);
    g_assert_cmpint(nrd_partition_pin(sick), ==, 0);
    g_usleep(100000); /* the cursor's own file is at rest: the sync that fails is the log's */
    poison(sick);
    produce_keyed(f->partition, "k", "a");
    assert_becomes(child, 1 - home, "a\n");
    g_assert_cmpint(nrd_partition_reopen(sick), ==, 0);
    produce_keyed(f->partition, "k", "b");
    assert_becomes(child, home, "b\n");
    assert_becomes(child, 1 - home, "a\n");
    nrd_partition_unpin(sick);
    nrd_topic_unref(child);
}

/* With no sibling the copies wait, and go on when the partition is reopened. */
static void test_poisoned_alone(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    NrdPartition *sick = nrd_topic_partition(child, 0);
    attach(f, child, 0);
    g_assert_cmpint(nrd_partition_pin(sick), ==, 0);
    g_usleep(100000);
    poison(sick);
    produce(f->partition, "a");
    for (int ms = 0; ms < WAIT_MS; ms++) {
        NrdChildInfo info;
        g_assert_cmpint(nrd_topic_child_info(f->topic, "c", &info), ==, 0);
        uint32_t n_failed = g_array_index(info.rows, NrdChildRow, 0).n_failed;
        nrd_child_info_clear(&info);
        if (n_failed > 3)
            break;
        g_usleep(1000);
    }
    g_assert_cmpuint(lag_of(f, child), ==, 1);
    g_assert_cmpint(nrd_partition_reopen(sick), ==, 0);
    assert_becomes(child, 0, "a\n");
    nrd_partition_unpin(sick);
    nrd_topic_unref(child);
}

/* What the parent's retention takes before it is due is counted, and the rest is copied. */
static void test_retention(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    attach(f, child, 3600000);
    produce(f->partition, "a");
    produce(f->partition, "b");
    g_assert_cmpint(nrd_partition_roll(f->partition), ==, 0);
    produce(f->partition, "c");
    g_assert_cmpint(nrd_partition_trim(f->partition, 2), ==, 0);
    nrd_clock_shift_wall_ms(3600001);
    assert_becomes(child, 0, "c\n");
    nrd_clock_shift_wall_ms(-3600001);
    NrdChildInfo info;
    g_assert_cmpint(nrd_topic_child_info(f->topic, "c", &info), ==, 0);
    g_assert_cmpuint(info.n_dropped, ==, 2);
    nrd_child_info_clear(&info);
    nrd_topic_unref(child);
}

static void test_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdTopic *child = make_child(f, "c");
    attach(f, child, 400);
    for (uint64_t i = 0; i < 3; i++) {
        NrdRecord from, to;
        produce(f->partition, "x");
        wait_hwm(child, 0, i + 1);
        g_assert_cmpint(nrd_partition_record(f->partition, i, &from), ==, 0);
        g_assert_cmpint(nrd_partition_record(nrd_topic_partition(child, 0), i, &to), ==, 0);
        g_assert_cmpint(to.timestamp_ms, >=, from.timestamp_ms + 400);
        nrd_record_clear(&from);
        nrd_record_clear(&to);
    }
    nrd_topic_unref(child);
}

static void *produce_on(void *data)
{
    Fixture *f = data;
    for (int i = 0; i < 200; i++)
        produce(f->partition, "x");
    return NULL;
}

/* A stop under load; then the same child again, from then on. */
static void test_stop(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    g_autofree char *path = NULL;
    cursor_path(f, &path);
    NrdTopic *child = make_child(f, "c");
    attach(f, child, 0);
    pthread_create(&thread, NULL, produce_on, f);
    for (int ms = 0; hwm_of(child, 0) == 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    nrd_fan_stop(f->topic, "c");
    uint64_t hwm = hwm_of(child, 0);
    pthread_join(thread, NULL);
    g_assert_cmpuint(hwm_of(child, 0), ==, hwm);
    g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
    nrd_fan_stop(f->topic, "c"); /* nothing there: no harm */
    attach(f, child, 0);
    produce(f->partition, "last");
    wait_hwm(child, 0, hwm + 1);
    nrd_topic_unref(child);
}

/* The child, then the parent, is deleted under the copies. */
static void test_deleted(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    NrdTopic *child = make_child(f, "c"), *other = make_child(f, "o");
    attach(f, child, 0);
    attach(f, other, 0);
    pthread_create(&thread, NULL, produce_on, f);
    for (int ms = 0; hwm_of(child, 0) == 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpint(nrd_topic_delete(child, nrd_topic_incarnation(child)), ==, 0);
    nrd_fan_stop(f->topic, "c");
    nrd_topic_unref(child);
    pthread_join(thread, NULL);
    wait_hwm(other, 0, 200);
    NrdTopic *parent = make_child(f, "parent2");
    NrdChildRecord record = record_of(other);
    prepare(parent, &record);
    nrd_fan_start(parent, other, &record, 0);
    produce(nrd_topic_partition(parent, 0), "y");
    wait_hwm(other, 0, 201);
    g_assert_cmpint(nrd_topic_delete(parent, nrd_topic_incarnation(parent)), ==, 0);
    nrd_fan_stop(parent, "o");
    nrd_topic_unref(parent);
    nrd_topic_unref(other);
}

/* The engine closes while copies are under way; what is left is copied by the next start. */
static void test_close_under_load(Fixture *f, gconstpointer data)
{
    (void)data;
    char name[] = "c";
    NrdTopic *child = make_child(f, name);
    NrdChildRecord record = attach(f, child, 0);
    record.name = name;
    for (int i = 0; i < 20; i++)
        produce_many(f->partition, 1000, 100);
    child = restart(f, child, &record);
    wait_copied(f, child);
    g_assert_cmpint(nrd_partition_learn(nrd_topic_partition(child, 0)), ==, 0); /* all may have been copied before */
    wait_hwm(child, 0, 20000);                                                  /* a clean stop repeats nothing */
    nrd_topic_unref(child);
}

#define ADD(name, test) g_test_add("/fan/" name, Fixture, NULL, fixture_set_up, test, fixture_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("copies", test_copies);
    ADD("many-records", test_many_records);
    ADD("beside-the-dispatcher", test_beside_the_dispatcher);
    ADD("growth", test_growth);
    ADD("restart", test_restart);
    ADD("crash", test_crash);
    ADD("idle-close", test_idle_close);
    ADD("poisoned", test_poisoned);
    ADD("poisoned-alone", test_poisoned_alone);
    ADD("retention", test_retention);
    ADD("delay", test_delay);
    ADD("stop", test_stop);
    ADD("deleted", test_deleted);
    ADD("close-under-load", test_close_under_load);
    return g_test_run();
}
