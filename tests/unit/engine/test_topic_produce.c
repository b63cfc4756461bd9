/* Producing to a topic as a whole: through the WAL, over restarts, around poisoned partitions, and never into another
 * topic of the same name. */
#include "tests/unit/engine/fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/engine_private.h"
#include "engine/ingress/ingress.h"
#include "engine/io/io.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

#define WAIT_MS 20000

static void store_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static int wait_for(atomic_int *error)
{
    for (int i = 0; atomic_load(error) == 1 && i < WAIT_MS * 2; i++)
        g_usleep(500);
    g_assert_cmpint(atomic_load(error), !=, 1);
    return atomic_load(error);
}

static int sync_topic(NrdTopicProducer *producer, NrdSyncScope scope)
{
    atomic_int error = 1;
    nrd_topic_producer_sync(producer, scope, store_error, &error);
    return wait_for(&error);
}

static int close_topic(NrdTopicProducer *producer)
{
    atomic_int error = 1;
    nrd_topic_producer_close(producer, store_error, &error);
    return wait_for(&error);
}

static NrdTopicProducer *open_topic(NrdTopic *topic, bool want_ranges)
{
    NrdTopicProducer *producer = NULL;
    g_assert_cmpint(nrd_topic_producer_open(topic, want_ranges, &producer), ==, 0);
    return producer;
}

static void add(NrdTopicProducer *producer, const char *key, const char *payload)
{
    nrd_topic_producer_add(producer, key, key ? strlen(key) : 0, payload, strlen(payload));
}

static void set_partitions(Fixture *f, int n)
{
    g_autofree char *text = g_strdup_printf("partitions=%d\n", n);
    g_assert_cmpint(nrd_topic_config_write(f->topic, text, strlen(text)), ==, 0);
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

/* The log of each partition, "|" between. */
static char *all_logs(NrdTopic *topic)
{
    GString *text = g_string_new(NULL);
    for (uint32_t i = 0; i < nrd_topic_n_partitions(topic); i++) {
        g_autofree char *log = log_of(nrd_topic_partition(topic, i));
        g_string_append_printf(text, "%s%s", i > 0 ? "|" : "", log);
    }
    return g_string_free(text, FALSE);
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void wait_for_lines(NrdTopic *topic, unsigned n)
{
    for (int i = 0; i < WAIT_MS; i++) {
        g_autofree char *text = all_logs(topic);
        if (count_lines(text) == n)
            return;
        g_assert_cmpuint(count_lines(text), <, n);
        g_usleep(1000);
    }
    g_assert_not_reached();
}

static void assert_logs(NrdTopic *topic, const char *expected)
{
    g_autofree char *text = all_logs(topic);
    g_assert_cmpstr(text, ==, expected);
}

static unsigned count_wal(Fixture *f)
{
    g_autofree char *path = g_build_filename(f->path, "ingress", NULL);
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;
    unsigned n = 0;
    while ((name = g_dir_read_name(dir)))
        n += g_str_has_suffix(name, ".wal");
    g_dir_close(dir);
    return n;
}

/* ---- */

static void test_through_the_wal(Fixture *f, gconstpointer data)
{
    char buf[200] = "";
    set_partitions(f, 2);
    NrdTopicProducer *producer = open_topic(f->topic, true);
    add(producer, NULL, "one");
    add(producer, NULL, "two");
    add(producer, NULL, "three");
    g_assert_cmpint(nrd_topic_producer_wrote(producer, false), ==, NRD_URGENCY_LATER);
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    wait_for_lines(f->topic, 3);
    assert_logs(f->topic, "one\nthree\n|two\n");
    size_t n = 0;
    for (int i = 0; n < 22 && i < WAIT_MS; i++, g_usleep(1000))
        n += nrd_topic_producer_read_ranges(producer, buf + n, sizeof buf - 1 - n);
    g_assert_nonnull(strstr(buf, "p00000 0 1\n"));
    g_assert_nonnull(strstr(buf, "p00001 0 0\n"));
    g_assert_cmpint(close_topic(producer), ==, 0);
}

static void test_keys_choose(Fixture *f, gconstpointer data)
{
    /* FNV-1a 32: "a" e40c292c, "b" e70c2de5, "foobar" bf9cf968 */
    set_partitions(f, 16);
    NrdTopicProducer *producer = open_topic(f->topic, false);
    for (int i = 0; i < 3; i++) {
        add(producer, "a", "a");
        add(producer, "b", "b");
        add(producer, "foobar", "f");
    }
    g_assert_cmpint(close_topic(producer), ==, 0);
    wait_for_lines(f->topic, 9);
    assert_log(nrd_topic_partition(f->topic, 0xc), "a\na\na\n");
    assert_log(nrd_topic_partition(f->topic, 0x5), "b\nb\nb\n");
    assert_log(nrd_topic_partition(f->topic, 0x8), "f\nf\nf\n");
}

static void test_one_sync_for_many_partitions(Fixture *f, gconstpointer data)
{
    set_partitions(f, 16);
    NrdTopicProducer *producer = open_topic(f->topic, false);
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_SYNCS);
    for (int i = 0; i < 160; i++)
        add(producer, NULL, "x");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_SYNCS), ==, before + 1);
    g_assert_cmpint(close_topic(producer), ==, 0);
    wait_for_lines(f->topic, 160);
}

static void test_scope_file(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *one = open_topic(f->topic, false), *two = open_topic(f->topic, false);
    add(one, NULL, "one");
    add(two, NULL, "two");
    g_assert_cmpint(sync_topic(one, NRD_SYNC_FILE), ==, 0);
    wait_for_lines(f->topic, 2);
    g_assert_cmpint(close_topic(one), ==, 0);
    g_assert_cmpint(close_topic(two), ==, 0);
}

static void test_linger(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    add(producer, NULL, "one");
    g_assert_cmpint(nrd_topic_producer_wrote(producer, false), ==, NRD_URGENCY_LATER);
    wait_for_lines(f->topic, 1);
    g_assert_cmpint(close_topic(producer), ==, 0);
}

/* A linger that was made shorter counts for what is written from then on, whoever waits for the old one. */
static void test_linger_made_shorter(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *one = open_topic(f->topic, false), *two = open_topic(f->topic, false);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=60000\n", 16), ==, 0);
    add(one, NULL, "one");
    g_assert_cmpint(nrd_topic_producer_wrote(one, false), ==, NRD_URGENCY_LATER);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=10\n", 13), ==, 0);
    add(two, NULL, "two");
    g_assert_cmpint(nrd_topic_producer_wrote(two, false), ==, NRD_URGENCY_LATER);
    wait_for_lines(f->topic, 2);
    g_assert_cmpint(close_topic(one), ==, 0);
    g_assert_cmpint(close_topic(two), ==, 0);
}

/* What a close has reported as failed does not come back through somebody who found the producer just before. */
static void test_closed_with_a_failure(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    NrdTopicProducer *found = nrd_topic_producer_ref(producer);
    add(producer, NULL, "dropped");
    atomic_store(&fail_pwritev, 1);
    g_assert_cmpint(close_topic(producer), ==, -ENOSPC);
    atomic_store(&fail_pwritev, 0);
    g_assert_cmpint(sync_topic(found, NRD_SYNC_OWN), ==, 0);
    nrd_topic_producer_unref(found);
    NrdTopicProducer *next = open_topic(f->topic, false);
    add(next, NULL, "next");
    g_assert_cmpint(close_topic(next), ==, 0);
    wait_for_lines(f->topic, 1);
    assert_logs(f->topic, "next\n");
}

/* A failed append stays in the producer, and one copy lands. */
static void test_append_fails(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    add(producer, NULL, "one");
    atomic_store(&fail_pwritev, 1);
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, -ENOSPC);
    add(producer, NULL, "two");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, -ENOSPC);
    g_assert_cmpint(nrd_topic_producer_check(producer), ==, 0); /* it was told */
    atomic_store(&fail_pwritev, 0);
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    wait_for_lines(f->topic, 2);
    g_assert_cmpint(close_topic(producer), ==, 0);
    assert_logs(f->topic, "one\ntwo\n");
}

/* A failed sync of the WAL: the round goes to another segment, and counts once, over a restart too. */
static void test_sync_of_the_wal_fails(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_SYNC_FAILED);
    add(producer, NULL, "one");
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_SYNC_FAILED), ==, before + 1);
    wait_for_lines(f->topic, 1);
    g_assert_cmpint(close_topic(producer), ==, 0);
    fixture_stop(f);
    fixture_start(f);
    assert_logs(f->topic, "one\n");
}

/* Acknowledged just before a stop: dispatched by it or by the next start, once, and nothing is left in the WAL. */
static void test_kept_over_a_restart(Fixture *f, gconstpointer data)
{
    atomic_int error = 1;
    NrdTopicProducer *producer = open_topic(f->topic, false);
    produce(f->partition, "before");
    add(producer, NULL, "one");
    add(producer, NULL, "two");
    nrd_topic_producer_close(producer, store_error, &error);
    g_assert_cmpint(wait_for(&error), ==, 0);
    fixture_stop(f);
    fixture_start(f);
    wait_for_lines(f->topic, 3);
    assert_logs(f->topic, "before\none\ntwo\n");
    g_assert_cmpuint(count_wal(f), ==, 0);
}

static void poison(Fixture *f)
{
    NrdProducer *direct = NULL;
    NrdPartitionInfo info;
    g_assert_cmpint(nrd_producer_open(f->partition, false, &direct), ==, 0);
    nrd_producer_add(direct, NULL, 0, "never", 5);
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_now(direct), ==, -EIO);
    atomic_store(&fail_fdatasync, 0);
    nrd_partition_info(f->partition, &info);
    g_assert_true(info.poisoned);
    nrd_partition_info_clear(&info);
    nrd_producer_close(direct, NULL, NULL);
}

/* Through the siblings, whatever the key; and back when it is well. */
static void test_poisoned_partition(Fixture *f, gconstpointer data)
{
    set_partitions(f, 2);
    NrdTopicProducer *producer = open_topic(f->topic, false);
    poison(f);
    for (int i = 0; i < 4; i++)
        add(producer, NULL, "x");
    add(producer, "a", "keyed"); /* partition 0 */
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    wait_for_lines(f->topic, 5);
    assert_log(f->partition, "");
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    add(producer, "a", "keyed");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    wait_for_lines(f->topic, 6);
    assert_log(f->partition, "keyed\n");
    g_assert_cmpint(close_topic(producer), ==, 0);
}

/* With one partition there is nowhere to go: it waits for the reopen. */
static void test_poisoned_alone(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    poison(f);
    add(producer, NULL, "one");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    g_usleep(100000);
    assert_log(f->partition, "");
    /* records that are on their way are records: the topic is not empty */
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -ENOTEMPTY);
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    wait_for_lines(f->topic, 1);
    g_assert_cmpint(close_topic(producer), ==, 0);
}

/* Deleted with records in the WAL, and made again: nothing of the old one in the new one, after a restart neither. */
static void test_deleted_and_made_again(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    poison(f);
    add(producer, NULL, "old");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    nrd_partition_unpin(f->partition);
    g_assert_cmpint(nrd_topic_delete(f->topic, nrd_topic_incarnation(f->topic)), ==, 0);
    add(producer, NULL, "older");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, -EIDRM);
    g_assert_cmpint(nrd_topic_producer_check(producer), ==, -EIDRM);
    g_assert_cmpint(close_topic(producer), ==, -EIDRM);
    nrd_topic_unref(f->topic);
    g_assert_cmpint(nrd_topic_create(f->engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &f->topic), ==, 0);
    f->partition = nrd_topic_partition(f->topic, 0);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    producer = open_topic(f->topic, false);
    add(producer, NULL, "new");
    g_assert_cmpint(close_topic(producer), ==, 0);
    wait_for_lines(f->topic, 1);
    fixture_stop(f);
    fixture_start(f);
    g_usleep(50000);
    assert_logs(f->topic, "new\n");
}

static void test_removed_when_empty(Fixture *f, gconstpointer data)
{
    NrdTopic *other = NULL;
    g_assert_cmpint(nrd_topic_create(f->engine, "other", &(NrdAttr){ 0, 0, 0755 }, 022, &other), ==, 0);
    g_assert_cmpint(close_topic(open_topic(other, false)), ==, 0);
    g_assert_cmpint(nrd_topic_remove(other), ==, 0);
    NrdTopicProducer *producer = NULL;
    g_assert_cmpint(nrd_topic_producer_open(other, false, &producer), ==, -EIDRM);
    nrd_topic_unref(other);
}

/* Direct producers beside: everybody's records are there once. */
static void test_beside_direct_producers(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    for (int i = 0; i < 50; i++) {
        add(producer, NULL, "t");
        g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
        produce(f->partition, "d");
    }
    g_assert_cmpint(close_topic(producer), ==, 0);
    wait_for_lines(f->topic, 100);
}

/* ---- crashes: the data folder as it is, opened again ---- */

static void copy_folder(const char *from, const char *to)
{
    GDir *dir = g_dir_open(from, 0, NULL);
    const char *name;
    g_assert_nonnull(dir);
    (void)g_mkdir(to, 0700);
    while ((name = g_dir_read_name(dir))) {
        g_autofree char *source = g_build_filename(from, name, NULL), *target = g_build_filename(to, name, NULL);
        g_autofree char *bytes = NULL;
        gsize size = 0;
        if (g_file_test(source, G_FILE_TEST_IS_DIR))
            copy_folder(source, target);
        else if (g_file_get_contents(source, &bytes, &size, NULL))
            g_assert_true(g_file_set_contents(target, bytes, (gssize)size, NULL));
    }
    g_dir_close(dir);
}

static void open_copy(const char *path, NrdEngine **engine, NrdTopic **topic)
{
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = path };
    if (nrd_engine_open(&options, engine, &why) < 0)
        g_error("%s", why);
    g_assert_cmpint(nrd_topic_find(*engine, "t", topic), ==, 0);
}

static void close_copy(const char *path, NrdEngine *engine, NrdTopic *topic)
{
    int fd = -1;
    nrd_topic_unref(topic);
    nrd_engine_stop(engine);
    g_assert_cmpint(nrd_engine_close(engine), ==, 0);
    g_autofree char *parent = g_path_get_dirname(path), *name = g_path_get_basename(path);
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
}

/* The folder copied while nothing runs, but before the checkpoint knows: WAL and partition both hold the records. */
static void test_committed_before_the_crash(Fixture *f, gconstpointer data)
{
    NrdEngine *engine = NULL;
    NrdTopic *topic = NULL;
    g_autofree char *copy = g_strconcat(f->path, ".crashed", NULL);
    g_autofree char *ingress = g_build_filename(f->path, "ingress", NULL), *kept = g_strconcat(copy, "/ingress", NULL);
    NrdTopicProducer *producer = open_topic(f->topic, false);
    add(producer, NULL, "tick");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    (void)g_mkdir(copy, 0700);
    copy_folder(ingress, kept); /* the WAL as of now */
    wait_for_lines(f->topic, 1);
    g_assert_cmpint(close_topic(producer), ==, 0);
    g_autofree char *checkpoint = g_strconcat(kept, "/checkpoint", NULL);
    g_autofree char *aside = g_strconcat(copy, ".ingress", NULL);
    g_assert_cmpint(g_rename(kept, aside), ==, 0);
    copy_folder(f->path, copy);
    (void)g_unlink(checkpoint);
    copy_folder(aside, kept);
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED);
    open_copy(copy, &engine, &topic);
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED) == before && i < WAIT_MS; i++)
        g_usleep(1000);
    assert_logs(topic, "tick\n");
    close_copy(copy, engine, topic);
    int fd = -1;
    g_autofree char *parent = g_path_get_dirname(aside), *name = g_path_get_basename(aside);
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
}

static void test_read_only(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = NULL;
    fixture_stop(f);
    f->options.read_only = true;
    fixture_start(f);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &producer), ==, -EROFS);
    g_autofree char *metrics = nrd_engine_metrics(f->engine);
    g_assert_nonnull(strstr(metrics, "\nnarad_ingress_available 0\n"));
    fixture_stop(f);
    f->options.read_only = false;
    fixture_start(f);
    g_autofree char *again = nrd_engine_metrics(f->engine);
    g_assert_nonnull(strstr(again, "\nnarad_ingress_available 1\n"));
}

/* A WAL that cannot be read stops nothing else, and is not touched. */
static void test_unreadable_wal(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = NULL;
    g_autofree char *path =
        g_build_filename(f->path, "ingress", "00000000000000000001.00000001.0123456789abcdef.wal", NULL);
    fixture_stop(f);
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    fixture_start(f);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &producer), ==, -EIO);
    produce(f->partition, "direct");
    fixture_stop(f);
    g_assert_cmpint(g_rmdir(path), ==, 0);
    fixture_start(f);
    g_assert_cmpint(close_topic(open_topic(f->topic, false)), ==, 0);
    assert_logs(f->topic, "direct\n");
}

/* What kept it from being read is gone: the next who asks gets it, beside somebody who produces directly since before. */
static void test_readable_again(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = NULL;
    NrdProducer *direct = NULL;
    g_autofree char *path =
        g_build_filename(f->path, "ingress", "00000000000000000001.00000001.0123456789abcdef.wal", NULL);
    fixture_stop(f);
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    fixture_start(f);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &producer), ==, -EIO);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &direct), ==, 0);
    g_assert_cmpint(g_rmdir(path), ==, 0);
    for (int i = 0; nrd_topic_producer_open(f->topic, false, &producer) < 0 && i < 15000; i++)
        g_usleep(1000);
    g_assert_nonnull(producer);
    nrd_topic_producer_add(producer, NULL, 0, "late", 4);
    g_assert_cmpint(close_topic(producer), ==, 0);
    nrd_producer_close(direct, NULL, NULL);
    while (nrd_ingress_holds(f->topic->engine->ingress, f->topic->id))
        g_usleep(1000);
    assert_logs(f->topic, "late\n");
    fixture_stop(f);
    fixture_start(f);
    assert_logs(f->topic, "late\n");
}

/* ---- a disk that hangs ---- */

static atomic_bool segments_hang, others_hang, others_fail, is_open;
static atomic_int n_hanging;
static NrdIo hanging_io;

static bool is_segment(int fd)
{
    g_autofree char *link = g_strdup_printf("/proc/self/fd/%d", fd);
    g_autofree char *path = g_file_read_link(link, NULL);
    return path && g_str_has_suffix(path, ".log");
}

static int hanging_sync(int fd)
{
    bool segment = is_segment(fd);
    if (!segment && atomic_load(&others_fail))
        return -EIO;
    atomic_fetch_add(&n_hanging, 1);
    while (atomic_load(segment ? &segments_hang : &others_hang))
        g_usleep(500);
    atomic_fetch_sub(&n_hanging, 1);
    return nrd_io_real.fsync(fd);
}

/* A record is acknowledged, and its way into the partition hangs. */
static NrdTopicProducer *hang_in_the_partition(Fixture *f)
{
    NrdTopicProducer *producer = open_topic(f->topic, false);
    add(producer, NULL, "a");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    wait_for_lines(f->topic, 1);
    hanging_io = *nrd_io;
    hanging_io.fdatasync = hanging_io.fsync = hanging_sync;
    nrd_io = &hanging_io;
    atomic_store(&segments_hang, true);
    add(producer, NULL, "b");
    g_assert_cmpint(sync_topic(producer, NRD_SYNC_OWN), ==, 0);
    for (int i = 0; atomic_load(&n_hanging) == 0 && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpint(atomic_load(&n_hanging), >, 0);
    return producer;
}

static void *open_it(void *partition)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    atomic_store(&is_open, true);
    return producer;
}

/* Who opens the partition's own produce does not wait for what hangs; his sync does. */
static void test_open_while_the_disk_hangs(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t opener;
    void *opened = NULL;
    atomic_int error = 1;
    NrdTopicProducer *producer = hang_in_the_partition(f);
    atomic_store(&others_hang, true);
    atomic_store(&is_open, false);
    g_assert_cmpint(pthread_create(&opener, NULL, open_it, f->partition), ==, 0);
    for (int i = 0; !atomic_load(&is_open) && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_true(atomic_load(&is_open));
    pthread_join(opener, &opened);
    atomic_store(&others_hang, false);
    atomic_store(&segments_hang, false);
    nrd_producer_add(opened, NULL, 0, "c", 1);
    nrd_producer_sync(opened, NRD_SYNC_OWN, store_error, &error);
    g_assert_cmpint(wait_for(&error), ==, 0);
    assert_logs(f->topic, "a\nb\nc\n");
    nrd_producer_close(opened, NULL, NULL);
    g_assert_cmpint(close_topic(producer), ==, 0);
}

static void *flush_it(void *partition)
{
    nrd_partition_flush(partition);
    return NULL;
}

/* What is written while a flush waits for its claim is committed by itself all the same. */
static void test_written_beside_a_claim(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t flusher;
    NrdProducer *first = NULL, *second = NULL;
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=3000\n", 15), ==, 0);
    NrdTopicProducer *producer = hang_in_the_partition(f);
    atomic_store(&others_hang, true);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &first), ==, 0);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &second), ==, 0);
    nrd_producer_add(first, NULL, 0, "c", 1);
    g_assert_cmpint(nrd_producer_wrote(first, false), ==, NRD_URGENCY_LATER);
    int n_before = atomic_load(&n_hanging);
    g_assert_cmpint(pthread_create(&flusher, NULL, flush_it, f->partition), ==, 0);
    for (int i = 0; atomic_load(&n_hanging) == n_before && i < WAIT_MS; i++) /* in the checkpoint */
        g_usleep(1000);
    nrd_producer_add(second, NULL, 0, "d", 1);
    g_assert_cmpint(nrd_producer_wrote(second, false), ==, NRD_URGENCY_LATER);
    atomic_store(&others_hang, false);
    atomic_store(&segments_hang, false);
    pthread_join(flusher, NULL);
    wait_for_lines(f->topic, 4);
    nrd_producer_close(first, NULL, NULL);
    nrd_producer_close(second, NULL, NULL);
    g_assert_cmpint(close_topic(producer), ==, 0);
}

/* The offsets that the dispatcher counts on cannot be taken back: nothing is committed beside it, and the records stay for
 * another sync. */
static void test_claim_that_fails(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdProducer *own = NULL;
    atomic_int error = 1;
    NrdTopicProducer *producer = hang_in_the_partition(f);
    atomic_store(&others_fail, true);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &own), ==, 0);
    nrd_producer_add(own, NULL, 0, "c", 1);
    nrd_producer_sync(own, NRD_SYNC_OWN, store_error, &error);
    g_assert_cmpint(wait_for(&error), ==, -EIO);
    atomic_store(&others_fail, false);
    atomic_store(&segments_hang, false);
    error = 1;
    nrd_producer_sync(own, NRD_SYNC_OWN, store_error, &error);
    g_assert_cmpint(wait_for(&error), ==, 0);
    assert_logs(f->topic, "a\nb\nc\n");
    nrd_producer_close(own, NULL, NULL);
    g_assert_cmpint(close_topic(producer), ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function)                                                                                            \
    g_test_add("/engine/topic-produce/" name, Fixture, NULL, fixture_set_up, function, fixture_tear_down)
    ADD("through-the-wal", test_through_the_wal);
    ADD("keys-choose", test_keys_choose);
    ADD("one-sync", test_one_sync_for_many_partitions);
    ADD("scope-file", test_scope_file);
    ADD("linger", test_linger);
    ADD("open-while-the-disk-hangs", test_open_while_the_disk_hangs);
    ADD("written-beside-a-claim", test_written_beside_a_claim);
    ADD("claim-that-fails", test_claim_that_fails);
    ADD("linger-made-shorter", test_linger_made_shorter);
    ADD("closed-with-a-failure", test_closed_with_a_failure);
    ADD("append-fails", test_append_fails);
    ADD("sync-of-the-wal-fails", test_sync_of_the_wal_fails);
    ADD("kept-over-a-restart", test_kept_over_a_restart);
    ADD("poisoned-partition", test_poisoned_partition);
    ADD("poisoned-alone", test_poisoned_alone);
    ADD("deleted-and-made-again", test_deleted_and_made_again);
    ADD("removed-when-empty", test_removed_when_empty);
    ADD("beside-direct-producers", test_beside_direct_producers);
    ADD("committed-before-the-crash", test_committed_before_the_crash);
    ADD("read-only", test_read_only);
    ADD("unreadable-wal", test_unreadable_wal);
    ADD("readable-again", test_readable_again);
    return g_test_run();
}
