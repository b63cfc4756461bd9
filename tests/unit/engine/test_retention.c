/* Retention as the engine runs it: the sweep of open partitions, the walk over closed ones, bounds that change, failing
 * removals, the clock. */
#include "tests/unit/engine/fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/housekeeping.h"
#include "engine/partition.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <utime.h>

#define LIMIT_MS 20000

static const NrdEngineOptions sweeps = { .retention_check_ms = 50 };
static const NrdEngineOptions walks = { .retention_check_ms = 3600000, .idle_close_ms = 50, .cold_retention_ms = 50 };
static const NrdEngineOptions no_walks = { .retention_check_ms = 3600000,
                                           .idle_close_ms = 50,
                                           .cold_retention_ms = -1 };
static const NrdEngineOptions kicks = { .retention_check_ms = 3600000 };

static void configure(Fixture *f, const char *lines)
{
    g_assert_cmpint(nrd_topic_config_write(f->topic, lines, strlen(lines)), ==, 0);
}

/* A record of 40 KiB, so that two of them fill a segment of the smallest size. */
static void produce_large(NrdPartition *partition, char first)
{
    g_autofree char *payload = g_strnfill(40 * 1024, first);
    produce(partition, payload);
}

static void fill_segments(Fixture *f, int n)
{
    configure(f, "segment_bytes=65536\n");
    for (int i = 0; i < 2 * n; i++)
        produce_large(f->partition, (char)('a' + i % 26));
}

static uint64_t oldest(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    uint64_t offset = info.oldest_offset;
    nrd_partition_info_clear(&info);
    return offset;
}

static bool oldest_reaches(NrdPartition *partition, uint64_t offset)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(5000)) {
        if (oldest(partition) >= offset)
            return true;
    }
    return false;
}

static bool files_reach(Fixture *f, unsigned n)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(5000)) {
        if (count_files(f, ".log") == n)
            return true;
    }
    return false;
}

static int64_t passed_ms;

/* Lets time pass, for the wall clock and for everything that waits. */
static void pass_time(int64_t ms)
{
    passed_ms += ms;
    nrd_clock_shift_mono_ms(ms);
    nrd_clock_shift_wall_ms(ms);
}

/* The next test's new folder must not look as if it had been left alone for hours. */
static void tear_down(Fixture *f, gconstpointer data)
{
    fixture_tear_down(f, data);
    pass_time(-passed_ms);
}

static void test_age(Fixture *f, gconstpointer data)
{
    uint64_t bytes = nrd_counter_get(NRD_COUNTER_DELETED_BYTES);
    uint64_t records = nrd_counter_get(NRD_COUNTER_DELETED_RECORDS);
    fill_segments(f, 3);
    configure(f, "retention_ms=60000\n");
    g_usleep(300 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    pass_time(61000);
    /* everything has expired, the active segment too: it is sealed and goes in the same sweep */
    g_assert_true(oldest_reaches(f->partition, 6));
    g_assert_true(files_reach(f, 1));
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_BYTES) - bytes, >=, 6 * 40 * 1024);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_RECORDS) - records, ==, 6);
    produce(f->partition, "next");
    assert_log(f->partition, "next\n");
    Got got;
    take(f->partition, &got, 0);
    g_assert_cmpuint(got.offset, ==, 6);
}

static void test_bytes(Fixture *f, gconstpointer data)
{
    configure(f, "segment_bytes=65536\n");
    configure(f, "retention_bytes=200000\n");
    for (int i = 0; i < 20; i++)
        produce_large(f->partition, 'x'); /* no sweep is due: each commit that passes the bound asks for one */
    NrdPartitionInfo info = { 0 };
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(5000)) {
        nrd_partition_info_clear(&info);
        nrd_partition_info(f->partition, &info);
        if (info.size_bytes <= 300000)
            break;
    }
    g_assert_cmpuint(info.size_bytes, <=, 300000); /* the bound and less than a segment with its last record */
    g_assert_cmpuint(info.size_bytes, >=, 200000);
    g_assert_cmpuint(info.oldest_offset, >, 0);
    g_assert_cmpuint(info.hwm, ==, 20);
    nrd_partition_info_clear(&info);
}

/* A bound that is changed holds for what is open, at once. */
static void test_live_change(Fixture *f, gconstpointer data)
{
    configure(f, "retention_ms=0\n");
    fill_segments(f, 2);
    pass_time(3600 * 1000);
    g_usleep(200 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    configure(f, "retention_ms=1000\n");
    g_assert_true(oldest_reaches(f->partition, 4));
}

static void test_failing_unlink(Fixture *f, gconstpointer data)
{
    uint64_t failed = nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK);
    configure(f, "retention_ms=60000\n");
    fill_segments(f, 2);
    unsigned n_files = count_files(f, ".log");
    atomic_store(&fail_unlink, 1);
    pass_time(61000);
    g_assert_true(oldest_reaches(f->partition, 4));
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK) < failed + 2 && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK), >=, failed + 2); /* tried again */
    g_assert_cmpuint(count_files(f, ".log"), >=, n_files);
    atomic_store(&fail_unlink, 0);
    g_assert_true(files_reach(f, 1));
}

/* A closed partition is opened for what has expired in it, and closed again. */
static void test_walk(Fixture *f, gconstpointer data)
{
    uint64_t swept = nrd_counter_get(NRD_COUNTER_COLD_SWEPT);
    configure(f, "retention_ms=60000\n");
    fill_segments(f, 2);
    nrd_partition_unpin(f->partition);
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_partition_is_open(f->partition) && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_false(nrd_partition_is_open(f->partition));
    g_usleep(300 * 1000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_COLD_SWEPT), ==, swept); /* nothing was due */
    pass_time(61000);
    g_assert_true(oldest_reaches(f->partition, 4));
    g_assert_true(files_reach(f, 1));
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_counter_get(NRD_COUNTER_COLD_SWEPT) == swept && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_COLD_SWEPT), ==, swept + 1);
    g_assert_false(nrd_partition_is_open(f->partition));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    assert_log(f->partition, "");
}

static void wait_until_closed(Fixture *f)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_partition_is_open(f->partition) && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_false(nrd_partition_is_open(f->partition));
    g_usleep(50 * 1000); /* its files too */
}

static void wait_for_count(NrdCounter counter, uint64_t value)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_counter_get(counter) < value && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_cmpuint(nrd_counter_get(counter), ==, value);
}

/* What fails in a walk is left alone for half an hour; a folder that is gone is not made again. */
static void test_walk_fails(Fixture *f, gconstpointer data)
{
    uint64_t failed = nrd_counter_get(NRD_COUNTER_COLD_FAILED);
    g_autofree char *gone = g_strconcat(f->path, "/topics/t/p00002", NULL);
    g_autofree char *segment = g_strconcat(f->path, "/topics/t/p00000/00000000000000000000.log", NULL);
    g_autofree char *aside = g_strconcat(f->path, "/aside", NULL);
    configure(f, "retention_ms=60000\npartitions=3\n");
    fill_segments(f, 2);
    g_assert_cmpint(g_rmdir(gone), ==, 0); /* never used: there is nothing in it */
    nrd_partition_unpin(f->partition);
    wait_until_closed(f);
    g_assert_cmpint(g_rename(segment, aside), ==, 0);
    g_assert_cmpint(g_mkdir(segment, 0700), ==, 0);
    pass_time(61000);
    wait_for_count(NRD_COUNTER_COLD_FAILED, failed + 1);
    g_usleep(300 * 1000);
    wait_for_count(NRD_COUNTER_COLD_FAILED, failed + 1);
    g_assert_false(g_file_test(gone, G_FILE_TEST_EXISTS));
    g_assert_cmpint(g_rmdir(segment), ==, 0);
    g_assert_cmpint(g_rename(aside, segment), ==, 0);
    pass_time(31 * 60 * 1000);
    g_assert_true(files_reach(f, 1));
    wait_for_count(NRD_COUNTER_COLD_FAILED, failed + 1);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* Files that could not be removed would be part of the log again after a close: it stays open for another try. */
static void test_leftovers_keep_it_open(Fixture *f, gconstpointer data)
{
    configure(f, "retention_ms=60000\n");
    fill_segments(f, 2);
    nrd_partition_unpin(f->partition);
    wait_until_closed(f);
    atomic_store(&fail_unlink, 1);
    pass_time(61000);
    g_assert_true(oldest_reaches(f->partition, 4));
    g_usleep(300 * 1000);
    g_assert_true(nrd_partition_is_open(f->partition));
    atomic_store(&fail_unlink, 0);
    configure(f, "retention_ms=60001\n"); /* asks for a sweep */
    g_assert_true(files_reach(f, 1));
    wait_until_closed(f);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
    assert_log(f->partition, "");
}

/* Records stamped by a clock that was ten years ahead expire by the time of their files, also in a closed partition. */
static void test_walk_over_future_stamps(Fixture *f, gconstpointer data)
{
    const int64_t ten_years_ms = (int64_t)3652 * 24 * 3600 * 1000;
    configure(f, "retention_ms=60000\n");
    nrd_clock_shift_wall_ms(ten_years_ms);
    fill_segments(f, 2);
    nrd_clock_shift_wall_ms(-ten_years_ms);
    fixture_stop(f);
    fixture_start(f);
    nrd_partition_unpin(f->partition);
    wait_until_closed(f);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    pass_time(61000);
    g_assert_true(oldest_reaches(f->partition, 4));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* Without the walk a log stays open while retention has something to delete in it. */
static void test_no_walk_no_close(Fixture *f, gconstpointer data)
{
    fill_segments(f, 2);
    configure(f, "retention_ms=60000\n");
    g_usleep(100 * 1000);
    pass_time(61000);
    nrd_partition_unpin(f->partition);
    g_usleep(500 * 1000);
    g_assert_true(nrd_partition_is_open(f->partition));
    configure(f, "retention_ms=0\n");
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         nrd_partition_is_open(f->partition) && nrd_clock_mono_ms() < end;)
        g_usleep(5000);
    g_assert_false(nrd_partition_is_open(f->partition));
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

/* The clock is set ten years ahead: nothing is deleted for it, until it has stood so for an hour. */
static void test_clock_jumps_ahead(Fixture *f, gconstpointer data)
{
    const int64_t ten_years_ms = (int64_t)3652 * 24 * 3600 * 1000;
    configure(f, "retention_ms=60000\n");
    fill_segments(f, 2);
    nrd_clock_shift_wall_ms(ten_years_ms);
    g_usleep(400 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    nrd_clock_shift_wall_ms(-ten_years_ms);
    g_usleep(200 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    nrd_clock_shift_wall_ms(ten_years_ms);
    g_usleep(200 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    pass_time(30 * 1000);
    g_usleep(200 * 1000);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    pass_time(3600 * 1000);
    g_assert_true(oldest_reaches(f->partition, 4));
    nrd_clock_shift_wall_ms(-ten_years_ms);
}

/* ... also when the daemon starts with it, and starts again: a start is no reason to believe the clock. */
static void test_clock_ahead_at_starts(Fixture *f, gconstpointer data)
{
    g_autofree char *lock = g_strconcat(f->path, "/lock", NULL);
    const int64_t ten_years_s = (int64_t)3652 * 24 * 3600;
    struct stat st;
    configure(f, "retention_ms=60000\n");
    fill_segments(f, 2);
    fixture_stop(f);
    g_assert_cmpint(g_stat(lock, &st), ==, 0);
    struct utimbuf then = { st.st_mtime - ten_years_s, st.st_mtime - ten_years_s }; /* the records are of the future */
    g_assert_cmpint(g_utime(lock, &then), ==, 0);
    for (int i = 0; i < 3; i++) {
        fixture_start(f);
        pass_time(61000);
        g_usleep(200 * 1000);
        g_assert_cmpuint(oldest(f->partition), ==, 0);
        g_assert_cmpint(g_stat(lock, &st), ==, 0);
        g_assert_cmpint(st.st_mtime, <, then.modtime + 3600); /* what a crash would leave */
        fixture_stop(f);
    }
    fixture_start(f);
    pass_time(3600 * 1000);
    g_assert_true(oldest_reaches(f->partition, 4));
}

/* ---- a setting that comes while a sweep works out when it has to look again ---- */

int64_t __real_nrd_log_next_expiry_ms(NrdLog *log, const NrdRetention *retention);
int64_t __wrap_nrd_log_next_expiry_ms(NrdLog *log, const NrdRetention *retention); /* the linker puts it in between */

static void (*meanwhile)(Fixture *f);
static Fixture *meanwhile_on;

int64_t __wrap_nrd_log_next_expiry_ms(NrdLog *log, const NrdRetention *retention)
{
    int64_t next_ms = __real_nrd_log_next_expiry_ms(log, retention);
    void (*now)(Fixture * f) = meanwhile;
    meanwhile = NULL;
    if (now)
        now(meanwhile_on);
    return next_ms;
}

/* What a setting does to a partition; it also asks for a sweep, which is the test's own here. */
static void shorten(Fixture *f)
{
    NrdTopicConfig config = f->topic->record->config;
    config.retention_ms = 60000;
    nrd_partition_configure(f->partition, &config);
}

/* The sweep that the setting before has asked for. */
static void await_own_sweep(Fixture *f)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS;
         atomic_load(&f->partition->retention_due_ms) == 0 && nrd_clock_mono_ms() < end; g_usleep(1000))
        ;
    g_assert_cmpint(atomic_load(&f->partition->retention_due_ms), >, 0);
}

static void test_setting_during_a_sweep(Fixture *f, gconstpointer data)
{
    int64_t now_ms = nrd_clock_wall_ms();
    fill_segments(f, 2);
    configure(f, "retention_ms=36000000\n");
    await_own_sweep(f);
    atomic_store(&f->partition->retention_due_ms, 0);
    meanwhile_on = f;
    meanwhile = shorten;
    nrd_retention_sweep(f->partition, now_ms + 120000);
    g_assert_null(meanwhile);
    g_assert_cmpuint(oldest(f->partition), ==, 0);
    nrd_retention_sweep(f->partition, now_ms + 120000);
    g_assert_cmpuint(oldest(f->partition), ==, 4);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, options, test) g_test_add("/retention/" name, Fixture, &options, fixture_set_up, test, tear_down)
    ADD("age", sweeps, test_age);
    ADD("bytes", kicks, test_bytes);
    ADD("live-change", kicks, test_live_change);
    ADD("setting-during-a-sweep", kicks, test_setting_during_a_sweep);
    ADD("failing-unlink", sweeps, test_failing_unlink);
    ADD("walk", walks, test_walk);
    ADD("walk-fails", walks, test_walk_fails);
    ADD("walk-over-future-stamps", walks, test_walk_over_future_stamps);
    ADD("leftovers-keep-it-open", walks, test_leftovers_keep_it_open);
    ADD("no-walk-no-close", no_walks, test_no_walk_no_close);
    ADD("clock-jumps-ahead", sweeps, test_clock_jumps_ahead);
    ADD("clock-ahead-at-starts", sweeps, test_clock_ahead_at_starts);
    return g_test_run();
}
