/* Partitions open when they are used and close when they are not: pins, leases, pictures, markers, failures. */
#include "tests/unit/engine/fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IDLE_MS 50
#define LIMIT_MS 20000

static const NrdEngineOptions quick = { .idle_close_ms = IDLE_MS };
static const NrdEngineOptions walking = { .cold_retention_ms = 50 };

/* Waits for the rest loop; true when the partition is closed in time. */
static bool closes(NrdPartition *partition)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(5000)) {
        if (!nrd_partition_is_open(partition))
            return true;
    }
    return false;
}

/* Gives the loop several chances. A close that fails counts as closed while it is tried; nothing else here opens it. */
static bool stays_open(NrdPartition *partition)
{
    g_usleep(600 * 1000);
    for (int64_t end = nrd_clock_mono_ms() + 1000; nrd_clock_mono_ms() < end; g_usleep(1000)) {
        if (nrd_partition_is_open(partition))
            return true;
    }
    return false;
}

static uint64_t hwm_on_disk(Fixture *f)
{
    g_autofree char *path = g_strconcat(f->path, "/topics/t/p00000/hwm", NULL);
    g_autofree char *bytes = NULL;
    gsize size = 0;
    uint64_t value = 0;
    if (!g_file_get_contents(path, &bytes, &size, NULL) || size != 8)
        return UINT64_MAX;
    for (int i = 0; i < 8; i++)
        value = value << 8 | (uint8_t)bytes[i];
    return value;
}

/* A partition that closes counts as closed before its files are. */
static bool hwm_becomes(Fixture *f, uint64_t hwm)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(2000)) {
        if (hwm_on_disk(f) == hwm)
            return true;
    }
    return false;
}

static void assert_info(NrdPartition *partition, uint64_t hwm, uint64_t frontier, bool open)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    g_assert_cmpuint(info.hwm, ==, hwm);
    g_assert_cmpuint(info.next_offset, ==, hwm);
    g_assert_cmpuint(info.frontier, ==, frontier);
    g_assert_cmpint(info.open, ==, open);
    g_assert_false(info.fault);
    nrd_partition_info_clear(&info);
}

/* ---- closing ---- */

static void test_closes_when_idle(Fixture *f, gconstpointer data)
{
    Got got;
    produce(f->partition, "one");
    produce(f->partition, "two");
    take(f->partition, &got, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, got.offset, got.nonce), ==, 0);
    g_assert_cmpuint(hwm_on_disk(f), ==, UINT64_MAX); /* emptied by the first commit */
    nrd_partition_unpin(f->partition);
    g_assert_true(closes(f->partition));
    g_assert_true(hwm_becomes(f, 2));
    g_assert_true(nrd_partition_known(f->partition));
    assert_info(f->partition, 2, 1, false);
    /* the next use opens it, and nothing has changed */
    assert_log(f->partition, "one\ntwo\n");
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    assert_info(f->partition, 2, 1, true);
    take(f->partition, &got, 0);
    g_assert_cmpstr(got.payload, ==, "two");
    produce(f->partition, "three");
    assert_log(f->partition, "one\ntwo\nthree\n");
}

static void test_pins_keep_it_open(Fixture *f, gconstpointer data)
{
    NrdReader *reader = NULL;
    NrdProducer *producer = NULL;
    produce(f->partition, "one");
    g_assert_true(stays_open(f->partition)); /* the fixture's pin */
    g_assert_cmpint(nrd_reader_open(f->partition, NRD_FROM_START, 0, &reader), ==, 0);
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    nrd_partition_unpin(f->partition);
    g_assert_true(stays_open(f->partition));
    nrd_reader_close(reader);
    g_assert_true(stays_open(f->partition));
    nrd_producer_close(producer, NULL, NULL);
    g_assert_true(closes(f->partition));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* A lease is in memory only: its holder's receipt must stay good. */
static void test_leases_keep_it_open(Fixture *f, gconstpointer data)
{
    Got got;
    produce(f->partition, "one");
    take(f->partition, &got, 0);
    nrd_partition_unpin(f->partition);
    g_assert_true(stays_open(f->partition));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, got.offset, got.nonce), ==, 0);
    nrd_partition_unpin(f->partition);
    g_assert_true(closes(f->partition));
    assert_info(f->partition, 1, 1, false);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

static void test_poison_keeps_it_open(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    produce(f->partition, "one");
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "lost", 4);
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    nrd_producer_close(producer, NULL, NULL);
    nrd_partition_unpin(f->partition);
    g_assert_true(stays_open(f->partition));
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    g_assert_true(closes(f->partition));
    g_assert_true(hwm_becomes(f, 1));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    assert_log(f->partition, "one\n");
}

/* A frontier that cannot be written keeps the partition open: progress is not dropped. */
static void test_failing_disk_keeps_it_open(Fixture *f, gconstpointer data)
{
    Got got;
    produce(f->partition, "one");
    take(f->partition, &got, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, got.offset, got.nonce), ==, 0);
    atomic_store(&fail_pwritev, 1);
    nrd_partition_unpin(f->partition);
    g_assert_true(stays_open(f->partition));
    atomic_store(&fail_pwritev, 0);
    g_assert_true(closes(f->partition));
    assert_info(f->partition, 1, 1, false);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* Closes and opens beside producers and readers: every acknowledged record is there, in order, once. */
typedef struct Traffic {
    NrdPartition *partition;
    int n;
} Traffic;

static void *produce_slowly(void *user_data)
{
    Traffic *traffic = user_data;
    for (int i = 0; i < traffic->n; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        produce(traffic->partition, text);
        g_usleep(i % 10 == 0 ? 130 * 1000 : 1000); /* now and then long enough to be closed in */
    }
    return NULL;
}

static void *look_all_the_time(void *user_data)
{
    Traffic *traffic = user_data;
    uint64_t seen = 0;
    while (seen < (uint64_t)traffic->n) {
        NrdPartitionInfo info;
        nrd_partition_info(traffic->partition, &info);
        g_assert_cmpuint(info.hwm, >=, seen); /* a closed or closing partition never tells an older boundary */
        seen = info.hwm;
        nrd_partition_info_clear(&info);
        g_usleep(200);
    }
    return NULL;
}

static void test_closing_beside_traffic(Fixture *f, gconstpointer data)
{
    Traffic traffic = { f->partition, 60 };
    pthread_t producer, looker;
    GString *expected = g_string_new(NULL);
    nrd_partition_unpin(f->partition);
    pthread_create(&producer, NULL, produce_slowly, &traffic);
    pthread_create(&looker, NULL, look_all_the_time, &traffic);
    pthread_join(producer, NULL);
    pthread_join(looker, NULL);
    for (int i = 0; i < traffic.n; i++)
        g_string_append_printf(expected, "%d\n", i);
    assert_log(f->partition, expected->str);
    g_string_free(expected, TRUE);
    g_assert_true(closes(f->partition));
    g_assert_true(hwm_becomes(f, 60));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* ---- opening ---- */

static void test_start_opens_nothing(Fixture *f, gconstpointer data)
{
    Got got;
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=3\n", 13), ==, 0);
    produce(f->partition, "one");
    produce(nrd_topic_partition(f->topic, 2), "other");
    take(f->partition, &got, 0);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, got.offset, got.nonce), ==, 0);
    fixture_stop(f);
    fixture_start(f);
    NrdPartition *other = nrd_topic_partition(f->topic, 2);
    g_assert_false(nrd_partition_is_open(other));
    g_assert_false(nrd_partition_known(other));
    g_assert_cmpint(nrd_partition_learn(other), ==, 0);
    g_assert_true(nrd_partition_known(other));
    g_assert_false(nrd_partition_is_open(other)); /* a clean close left enough to know it by */
    assert_info(other, 1, 0, false);
    NrdPartitionInfo info;
    nrd_partition_info(other, &info);
    g_assert_cmpuint(info.text_bytes, ==, strlen("other\n"));
    nrd_partition_info_clear(&info);
    assert_log(other, "other\n");
}

/* After a crash only an open can tell. */
static void test_learn_after_a_crash(Fixture *f, gconstpointer data)
{
    g_autofree char *hwm = g_strconcat(f->path, "/topics/t/p00001/hwm", NULL);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    g_assert_true(g_file_set_contents(hwm, "", 0, NULL)); /* as a crash leaves it */
    fixture_start(f);
    NrdPartition *partition = nrd_topic_partition(f->topic, 1);
    g_assert_cmpint(nrd_partition_learn(partition), ==, 0);
    assert_info(partition, 1, 0, true);
    assert_log(partition, "one\n");
}

/* A partition that nobody can look at now is not taken as empty: its topic is not removed. */
static void test_remove_does_not_guess(Fixture *f, gconstpointer data)
{
    g_autofree char *hwm = g_strconcat(f->path, "/topics/t/p00001/hwm", NULL);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    g_assert_true(g_file_set_contents(hwm, "", 0, NULL)); /* as a crash leaves it */
    fixture_start(f);
    NrdPartition *partition = nrd_topic_partition(f->topic, 1);
    atomic_store(&fail_open, EMFILE);
    g_assert_cmpint(nrd_partition_learn(partition), ==, -EMFILE);
    g_assert_false(nrd_partition_known(partition));
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -EMFILE);
    atomic_store(&fail_open, 0);
    g_assert_false(nrd_topic_deleted(f->topic));
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -ENOTEMPTY);
    assert_log(partition, "one\n");
}

/* ... nor one whose topic has gone out of service. */
static void test_remove_out_of_service(Fixture *f, gconstpointer data)
{
    g_autofree char *marker = g_strconcat(f->path, "/topics/t/incarnation", NULL);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    fixture_start(f);
    g_assert_true(g_file_set_contents(marker, "rubbish", -1, NULL));
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -EIO);
    g_assert_false(nrd_topic_deleted(f->topic));
}

static void test_fault_until_tried_again(Fixture *f, gconstpointer data)
{
    g_autofree char *segment = g_strconcat(f->path, "/topics/t/p00001/00000000000000000000.log", NULL);
    g_autofree char *aside = g_strconcat(f->path, "/aside", NULL);
    NrdProducer *producer = NULL;
    NrdPartitionInfo info;
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    g_assert_cmpint(g_rename(segment, aside), ==, 0);
    g_assert_cmpint(g_mkdir(segment, 0700), ==, 0);
    fixture_start(f);
    NrdPartition *partition = nrd_topic_partition(f->topic, 1);
    g_assert_cmpint(nrd_partition_learn(partition), ==, 0);
    g_assert_true(nrd_partition_known(partition));
    nrd_partition_info(partition, &info);
    g_assert_true(info.fault);
    g_assert_cmpstr(info.reason, !=, "");
    nrd_partition_info_clear(&info);
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, -EIO);
    g_assert_cmpint(nrd_partition_reopen(partition), ==, -EIO);
    produce(f->partition, "the other one goes on");
    g_assert_cmpint(g_rmdir(segment), ==, 0);
    g_assert_cmpint(g_rename(aside, segment), ==, 0);
    nrd_partition_info(partition, &info);
    g_assert_true(info.fault); /* nobody has tried */
    nrd_partition_info_clear(&info);
    g_assert_cmpint(nrd_partition_reopen(partition), ==, 0);
    assert_log(partition, "one\n");
}

/* ---- markers ---- */

static void write_marker(Fixture *f, const char *id)
{
    g_autofree char *path = g_strconcat(f->path, "/topics/t/incarnation", NULL);
    g_assert_true(g_file_set_contents(path, id, -1, NULL));
}

/* The folder under an open topic is replaced by another incarnation's: what is in memory is dropped, the folder is set
 * aside, nothing is written into it, and the topic goes on with an empty one. */
static void test_foreign_marker_under_an_open_log(Fixture *f, gconstpointer data)
{
    Got got;
    NrdReader *reader = NULL;
    size_t n;
    char byte;
    g_autofree char *stale = g_strconcat(f->path, "/topics/t.stale-0123456789abcdef", NULL);
    g_autofree char *stale_hwm = g_strconcat(stale, "/p00000/hwm", NULL);
    g_autofree char *hwm = NULL;
    gsize hwm_size = 0;
    produce(f->partition, "old");
    take(f->partition, &got, 0);
    g_assert_cmpint(nrd_reader_open(f->partition, NRD_FROM_START, 0, &reader), ==, 0);
    write_marker(f, "0123456789abcdef");
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=7\n", 12), ==, 0); /* the record changes */
    g_assert_true(g_file_test(stale, G_FILE_TEST_IS_DIR));
    (void)g_file_get_contents(stale_hwm, &hwm, &hwm_size, NULL);
    g_assert_cmpuint(hwm_size, ==, 0); /* no close has written it: there is none, or it is empty */
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, got.offset, got.nonce), ==, -EIO);
    g_assert_cmpint(nrd_reader_read(reader, 0, &byte, 1, &n), ==, -EIO);
    nrd_reader_close(reader);
    NrdPartition *fresh = nrd_topic_partition(f->topic, 0);
    g_assert_true(fresh != f->partition);
    produce(fresh, "new");
    assert_log(fresh, "new\n");
    take(f->partition, &got, 0);
    g_assert_cmpint(got.error, ==, -EIO);
    g_assert_true(nrd_partition_readable(f->partition)); /* who polls learns it, too */
}

/* ... and found by a reopen: nothing of it is served, nothing is made in it, and what is refused stays refused. */
static void test_foreign_marker_at_a_reopen(Fixture *f, gconstpointer data)
{
    g_autofree char *stale = g_strconcat(f->path, "/topics/t.stale-0123456789abcdef", NULL);
    g_autofree char *path = g_strconcat(f->path, "/topics/t/incarnation", NULL);
    g_autofree char *mine = NULL;
    NrdProducer *producer = NULL;
    NrdPartitionInfo info;
    g_assert_true(g_file_get_contents(path, &mine, NULL, NULL));
    produce(f->partition, "one");
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, "two", 3);
    atomic_store(&fail_fdatasync, 1);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    write_marker(f, "0123456789abcdef");
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, -EIO);
    nrd_partition_info(f->partition, &info);
    g_assert_true(info.poisoned);
    nrd_partition_info_clear(&info);
    g_assert_cmpint(sync_now(producer), ==, -EIO);
    g_assert_false(g_file_test(stale, G_FILE_TEST_EXISTS));
    write_marker(f, mine);
    g_assert_cmpint(nrd_partition_reopen(f->partition), ==, 0);
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
    assert_log(f->partition, "one\ntwo\n");
}

/* ---- folders that are gone ---- */

static bool is_anew(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    bool anew = info.anew;
    nrd_partition_info_clear(&info);
    return anew;
}

/* The reopen that finds it is not the one that says that it is known. */
static void test_a_reopen_finds_the_folder_gone(Fixture *f, gconstpointer data)
{
    g_autofree char *dir = g_strconcat(f->path, "/topics/t/p00001", NULL);
    g_autofree char *aside = g_strconcat(f->path, "/aside", NULL);
    g_autofree char *note = g_strconcat(f->path, "/topics/t/p00001.lost", NULL);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(nrd_topic_partition(f->topic, 1), "one");
    fixture_stop(f);
    fixture_start(f);
    NrdPartition *partition = nrd_topic_partition(f->topic, 1);
    g_assert_cmpint(nrd_partition_learn(partition), ==, 0); /* from what the stop has left */
    g_assert_false(nrd_partition_is_open(partition));
    g_assert_cmpint(g_rename(dir, aside), ==, 0);
    g_assert_cmpint(nrd_partition_reopen(partition), ==, 0);
    g_assert_true(is_anew(partition));
    g_assert_true(g_file_test(note, G_FILE_TEST_EXISTS));
    g_assert_cmpint(nrd_partition_reopen(partition), ==, 0);
    g_assert_false(is_anew(partition));
    g_assert_false(g_file_test(note, G_FILE_TEST_EXISTS));
}

/* ... and found by the next open of another partition. */
static void test_foreign_marker_at_a_lazy_open(Fixture *f, gconstpointer data)
{
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    produce(f->partition, "old");
    write_marker(f, "0123456789abcdef");
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(nrd_topic_partition(f->topic, 1), false, &producer), ==, -EIO);
    produce(nrd_topic_partition(f->topic, 1), "new"); /* the fresh one */
    produce(nrd_topic_partition(f->topic, 0), "new too");
    assert_log(nrd_topic_partition(f->topic, 0), "new too\n");
}

/* What was set aside belongs to no record: the next walk reclaims it. */
static void test_quarantine_is_swept(Fixture *f, gconstpointer data)
{
    g_autofree char *stale = g_strconcat(f->path, "/topics/t.stale-0123456789abcdef", NULL);
    uint64_t reclaimed = nrd_counter_get(NRD_COUNTER_RECLAIMED);
    produce(f->partition, "old");
    write_marker(f, "0123456789abcdef");
    g_assert_cmpint(nrd_topic_config_write(f->topic, "linger_ms=7\n", 12), ==, 0);
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_counter_get(NRD_COUNTER_RECLAIMED) == reclaimed && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_RECLAIMED), ==, reclaimed + 1);
    g_assert_false(g_file_test(stale, G_FILE_TEST_EXISTS));
}

static void test_damaged_marker_takes_the_topic_out(Fixture *f, gconstpointer data)
{
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    NrdProducer *producer = NULL;
    write_marker(f, "rubbish");
    g_assert_cmpint(nrd_producer_open(nrd_topic_partition(f->topic, 1), false, &producer), ==, -EIO);
    g_autofree char *fault = nrd_topic_fault(f->topic);
    g_assert_nonnull(fault);
    g_assert_nonnull(strstr(fault, "incarnation"));
}

/* An error of the disk that passes takes the topic out of service until its next use, and no longer. */
static void test_disk_error_at_the_marker_passes(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    NrdTopicProducer *topic_producer = NULL;
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    NrdPartition *other = nrd_topic_partition(f->topic, 1);
    produce(f->partition, "makes its segment");
    atomic_store(&fail_open, EIO);
    g_assert_cmpint(nrd_partition_pin(other), ==, -EIO);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &topic_producer), ==, -EIO);
    g_autofree char *fault = nrd_topic_fault(f->topic);
    g_assert_nonnull(fault);
    g_assert_false(nrd_topic_lost(f->topic));
    produce(f->partition, "what is open goes on");
    atomic_store(&fail_open, 0);
    g_assert_cmpint(nrd_producer_open(other, false, &producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
    g_assert_null(nrd_topic_fault(f->topic));
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &topic_producer), ==, 0);
    nrd_topic_producer_close(topic_producer, NULL, NULL);
}

/* What was opened before it goes on when it has passed. */
static void test_open_producer_after_a_disk_error(Fixture *f, gconstpointer data)
{
    NrdTopicProducer *producer = NULL;
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    g_assert_cmpint(nrd_topic_producer_open(f->topic, false, &producer), ==, 0);
    atomic_store(&fail_open, EIO);
    g_assert_cmpint(nrd_partition_pin(nrd_topic_partition(f->topic, 1)), ==, -EIO);
    g_assert_cmpint(nrd_topic_producer_check(producer), ==, -EIO);
    atomic_store(&fail_open, 0);
    g_assert_cmpint(nrd_topic_producer_check(producer), ==, 0);
    nrd_topic_producer_close(producer, NULL, NULL);
}

/* Too few descriptors say nothing about the topic. */
static void test_shortage_is_no_fault(Fixture *f, gconstpointer data)
{
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=2\n", 13), ==, 0);
    NrdPartition *other = nrd_topic_partition(f->topic, 1);
    const int errors[] = { EMFILE, ENFILE, ENOMEM };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        atomic_store(&fail_open, errors[i]);
        g_assert_cmpint(nrd_partition_pin(other), ==, -errors[i]);
        g_assert_null(nrd_topic_fault(f->topic));
    }
    atomic_store(&fail_open, 0);
    produce(other, "one");
}

/* A topic that was out of service from the start has its partitions when it is well again, also those that it got
 * meanwhile; nobody has to start the daemon again. */
static void test_mended_after_the_start(Fixture *f, gconstpointer data)
{
    g_autofree char *id = g_strdup(nrd_topic_incarnation(f->topic));
    g_autofree char *why = NULL;
    produce(f->partition, "one");
    fixture_stop(f);
    write_marker(f, "rubbish");
    g_assert_cmpint(nrd_engine_open(&f->options, &f->engine, &why), ==, 0);
    g_assert_cmpint(nrd_topic_find(f->engine, "t", &f->topic), ==, 0);
    g_autofree char *fault = nrd_topic_fault(f->topic);
    g_assert_nonnull(strstr(fault, id)); /* what to write into the marker */
    g_assert_false(nrd_topic_lost(f->topic));
    g_assert_cmpuint(nrd_topic_n_partitions(f->topic), ==, 1);
    f->partition = nrd_topic_partition(f->topic, 0);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, -EIO);
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=3\n", 13), ==, 0);
    g_assert_cmpint(nrd_topic_remove(f->topic), ==, -EIO);
    write_marker(f, id);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    g_assert_null(nrd_topic_fault(f->topic));
    assert_log(f->partition, "one\n");
    g_assert_cmpuint(nrd_topic_n_partitions(f->topic), ==, 3);
    produce(nrd_topic_partition(f->topic, 2), "two");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/life/" name, Fixture, &quick, fixture_set_up, test, fixture_tear_down)
    ADD("closes-when-idle", test_closes_when_idle);
    ADD("pins-keep-it-open", test_pins_keep_it_open);
    ADD("leases-keep-it-open", test_leases_keep_it_open);
    ADD("poison-keeps-it-open", test_poison_keeps_it_open);
    ADD("failing-disk-keeps-it-open", test_failing_disk_keeps_it_open);
    ADD("closing-beside-traffic", test_closing_beside_traffic);
    ADD("start-opens-nothing", test_start_opens_nothing);
    ADD("learn-after-a-crash", test_learn_after_a_crash);
    ADD("remove-does-not-guess", test_remove_does_not_guess);
    ADD("remove-out-of-service", test_remove_out_of_service);
    ADD("fault-until-tried-again", test_fault_until_tried_again);
    ADD("foreign-marker-under-an-open-log", test_foreign_marker_under_an_open_log);
    ADD("foreign-marker-at-a-lazy-open", test_foreign_marker_at_a_lazy_open);
    ADD("foreign-marker-at-a-reopen", test_foreign_marker_at_a_reopen);
    ADD("reopen-finds-the-folder-gone", test_a_reopen_finds_the_folder_gone);
    g_test_add("/life/quarantine-is-swept", Fixture, &walking, fixture_set_up, test_quarantine_is_swept,
               fixture_tear_down);
    ADD("damaged-marker-takes-the-topic-out", test_damaged_marker_takes_the_topic_out);
    /* Without a loop that tries by itself. */
    g_test_add("/life/disk-error-at-the-marker-passes", Fixture, NULL, fixture_set_up,
               test_disk_error_at_the_marker_passes, fixture_tear_down);
    g_test_add("/life/open-producer-after-a-disk-error", Fixture, NULL, fixture_set_up,
               test_open_producer_after_a_disk_error, fixture_tear_down);
    g_test_add("/life/shortage-is-no-fault", Fixture, NULL, fixture_set_up, test_shortage_is_no_fault,
               fixture_tear_down);
    g_test_add("/life/mended-after-the-start", Fixture, NULL, fixture_set_up, test_mended_after_the_start,
               fixture_tear_down);
    return g_test_run();
}
