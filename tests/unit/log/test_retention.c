/* Retention: what expires and when, that detaching is memory only, and how files go. */
#include "fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define HOUR_MS ((int64_t)3600 * 1000)
#define DAY_MS (24 * HOUR_MS)
#define YEAR_MS (365 * DAY_MS)

#define N_NAMES 3 /* that a removal tries for each segment, whether they are there or not */

/* n sealed segments of one record each, made an hour apart, and the active one, holding one record too. The clock is
 * left n hours ahead. */
static void fill(Fixture *f, unsigned n)
{
    fixture_set_up(f);
    fixture_open(f);
    for (unsigned i = 0; i < n; i++) {
        fixture_commit_numbers(f, i, 1);
        g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
        nrd_clock_shift_wall_ms(HOUR_MS);
    }
    fixture_commit_numbers(f, n, 1);
}

static void unshift(unsigned n)
{
    nrd_clock_shift_wall_ms(-(int64_t)n * HOUR_MS);
}

static unsigned n_files(Fixture *f, const char *suffix)
{
    GPtrArray *names = NULL;
    unsigned n = 0;
    g_assert_cmpint(nrd_io_list_dir(f->root_fd, "p", &names), ==, 0);
    for (guint i = 0; i < names->len; i++)
        n += g_str_has_suffix(names->pdata[i], suffix);
    g_ptr_array_unref(names);
    return n;
}

static NrdRetention by_age(int64_t max_age_ms)
{
    return (NrdRetention){ .max_age_ms = max_age_ms, .now_ms = nrd_clock_wall_ms() };
}

static uint64_t expire(Fixture *f, NrdRetention retention)
{
    uint64_t n = 99, left = 99;
    bool has = nrd_log_has_expired(f->log, &retention);
    g_assert_cmpint(nrd_log_expire(f->log, &retention, &n), ==, 0);
    g_assert_cmpint(has, ==, n > 0);
    g_assert_false(nrd_log_has_expired(f->log, &retention));
    g_assert_cmpint(nrd_log_remove_detached(f->log, &left), ==, 0);
    g_assert_cmpuint(left, ==, 0);
    return n;
}

static void test_by_age(void)
{
    Fixture f;
    fill(&f, 5);
    g_assert_cmpuint(expire(&f, (NrdRetention){ .now_ms = nrd_clock_wall_ms() + YEAR_MS }), ==, 0); /* no bound */
    g_assert_cmpuint(expire(&f, by_age(10 * HOUR_MS)), ==, 0);
    uint64_t bytes = nrd_counter_get(NRD_COUNTER_DELETED_BYTES), records = nrd_counter_get(NRD_COUNTER_DELETED_RECORDS);
    uint64_t segments = nrd_counter_get(NRD_COUNTER_DELETED_SEGMENTS);
    g_assert_cmpuint(expire(&f, by_age(3 * HOUR_MS + HOUR_MS / 2)), ==, 2);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_BYTES) - bytes, ==, 2 * (27 + 15));
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_RECORDS) - records, ==, 2);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_SEGMENTS) - segments, ==, 2);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 2);
    g_assert_cmpint(fixture_read(&f, 1, NULL, NULL), ==, -ENOENT);
    fixture_expect(&f, 2, "2");
    g_assert_cmpuint(n_files(&f, ".log"), ==, 4);
    g_assert_cmpuint(n_files(&f, ".index"), ==, 3);
    for (int i = 0; i < 2; i++) {
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_oldest(f.log), ==, 2);
        g_assert_cmpuint(expire(&f, by_age(3 * HOUR_MS + HOUR_MS / 2)), ==, 0);
    }
    unshift(5);
    fixture_tear_down(&f);
}

static void test_by_bytes(void)
{
    Fixture f;
    NrdRetention bound = { .max_bytes = 3 * 42 };
    fill(&f, 5);
    uint64_t segments = nrd_counter_get(NRD_COUNTER_DELETED_SEGMENTS + NRD_DELETE_BYTES);
    g_assert_cmpuint(expire(&f, bound), ==, 3);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_DELETED_SEGMENTS + NRD_DELETE_BYTES) - segments, ==, 3);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 3);
    bound.max_bytes = 1;
    g_assert_cmpuint(expire(&f, bound), ==, 2); /* never the active one */
    fixture_expect(&f, 5, "5");
    unshift(5);
    fixture_tear_down(&f);
}

/* Everything is too old: the active segment is sealed and goes as well, and offsets go on. */
static void test_active_goes(void)
{
    Fixture f;
    fill(&f, 2);
    nrd_clock_shift_wall_ms(10 * HOUR_MS);
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 3);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 3);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 3);
    g_assert_cmpuint(n_files(&f, ".log"), ==, 1);
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 0); /* an empty one never rolls */
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 3);
    g_assert_cmpuint(fixture_commit(&f, "new"), ==, 3);
    nrd_clock_shift_wall_ms(-10 * HOUR_MS);
    unshift(2);
    fixture_tear_down(&f);
}

/* The roll fails: the sealed ones go, the active one stays, and the next sweep gets it. */
static void test_active_roll_fails(void)
{
    Fixture f;
    uint64_t n = 99;
    fill(&f, 2);
    nrd_clock_shift_wall_ms(10 * HOUR_MS);
    NrdRetention bound = by_age(5 * HOUR_MS);
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = "03.log";
    g_assert_cmpint(nrd_log_expire(f.log, &bound, &n), ==, 0);
    g_assert_cmpuint(n, ==, 2);
    g_assert_cmpint(nrd_log_expire(f.log, &bound, &n), ==, -ENOSPC);
    g_assert_cmpuint(n, ==, 2);
    fixture_expect(&f, 2, "2");
    fault_clear();
    g_assert_cmpuint(expire(&f, bound), ==, 1);
    nrd_clock_shift_wall_ms(-10 * HOUR_MS);
    unshift(2);
    fixture_tear_down(&f);
}

/* Records above the high watermark, and poison, keep the active segment. */
static void test_active_stays(void)
{
    Fixture f;
    uint64_t offset;
    uint8_t hwm[8] = { 0 };
    fill(&f, 2);
    nrd_clock_shift_wall_ms(10 * HOUR_MS);
    fixture_crash(&f);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    fixture_open(&f); /* the boundary is the active segment's base: its record is hidden */
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 2);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 2);
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 0);
    fixture_commit(&f, "exposes");
    fixture_expect(&f, 2, "2");
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    fixture_commit(&f, "active");
    nrd_clock_shift_wall_ms(10 * HOUR_MS);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
    fault_clear();
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 1); /* a poisoned log loses sealed ones */
    fixture_expect(&f, 4, "active");
    g_assert_cmpuint(expire(&f, by_age(5 * HOUR_MS)), ==, 0);
    nrd_clock_shift_wall_ms(-20 * HOUR_MS);
    unshift(2);
    fixture_tear_down(&f);
}

static void set_mtime(Fixture *f, const char *name, int64_t ms)
{
    char *path = fixture_file(f, name);
    struct timespec times[2] = { { .tv_sec = ms / 1000 }, { .tv_sec = ms / 1000 } };
    g_assert_cmpint(utimensat(AT_FDCWD, path, times, 0), ==, 0);
    g_free(path);
}

/* Commit times ten years ahead, of a clock that was wrong: the file's own time counts. */
/* In the process that saw the wrong clock: what was written after it went back tells how old the others are at least. */
static void test_future_bounded(void)
{
    Fixture f;
    fixture_set_up(&f);
    nrd_clock_shift_wall_ms(10 * YEAR_MS);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 1);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    nrd_clock_shift_wall_ms(-10 * YEAR_MS);
    fixture_commit_numbers(&f, 1, 1);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    g_assert_cmpuint(expire(&f, by_age(DAY_MS)), ==, 0);
    nrd_clock_shift_wall_ms(2 * DAY_MS);
    g_assert_cmpuint(expire(&f, by_age(DAY_MS)), ==, 2);
    nrd_clock_shift_wall_ms(-2 * DAY_MS);
    fixture_tear_down(&f);
}

static void test_future_stamps(void)
{
    Fixture f;
    int64_t now = nrd_clock_wall_ms();
    fixture_set_up(&f);
    nrd_clock_shift_wall_ms(10 * YEAR_MS);
    fixture_open(&f);
    for (unsigned i = 0; i < 2; i++) {
        fixture_commit_numbers(&f, i, 1);
        g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    }
    nrd_clock_shift_wall_ms(-10 * YEAR_MS);
    g_assert_cmpuint(expire(&f, by_age(HOUR_MS)), ==, 0); /* written in the future, as far as anybody knows */
    fixture_commit_numbers(&f, 2, 1);                     /* the floor stamps it ten years ahead, but it is of now */
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    fixture_close(&f);
    set_mtime(&f, "00000000000000000000.log", now - 2 * DAY_MS);
    set_mtime(&f, "00000000000000000001.log", now - 2 * DAY_MS);
    fixture_open(&f);
    g_assert_cmpuint(expire(&f, by_age(DAY_MS)), ==, 2);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 2);
    nrd_clock_shift_wall_ms(2 * DAY_MS);
    g_assert_cmpuint(expire(&f, by_age(DAY_MS)), ==, 1);
    nrd_clock_shift_wall_ms(-2 * DAY_MS);
    fixture_tear_down(&f);
}

/* A segment without a record that can be read has its file's time. */
static void test_unreadable(void)
{
    Fixture f;
    int64_t now = nrd_clock_wall_ms();
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, "rubbish", 7);
    fixture_put(&f, "00000000000000000003.log", "", 0);
    set_mtime(&f, SEGMENT_0, now - HOUR_MS);
    fixture_open(&f);
    g_assert_cmpuint(expire(&f, by_age(2 * HOUR_MS)), ==, 0);
    g_assert_cmpuint(expire(&f, by_age(HOUR_MS / 2)), ==, 1);
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    fixture_tear_down(&f);
}

/* A clock that goes back expires nothing. */
static void test_clock_back(void)
{
    Fixture f;
    fill(&f, 3);
    nrd_clock_shift_wall_ms(-10 * YEAR_MS);
    g_assert_cmpuint(expire(&f, by_age(1)), ==, 0);
    nrd_clock_shift_wall_ms(10 * YEAR_MS);
    unshift(3);
    fixture_tear_down(&f);
}

static Fixture *committing;
static NrdIo table;
static const NrdIo *under;
static unsigned n_committed;

static int unlink_and_commit(int dirfd, const char *name, bool is_dir)
{
    fixture_commit_numbers(committing, 1000 + n_committed, 1);
    n_committed++;
    return under->unlink(dirfd, name, is_dir);
}

/* Nothing that a commit needs is held while files are removed. */
static void test_commit_between_unlinks(void)
{
    Fixture f;
    uint64_t n = 0;
    fill(&f, 5);
    g_assert_cmpint(nrd_log_trim(f.log, 5, &n), ==, 0);
    g_assert_cmpuint(n, ==, 5);
    under = nrd_io;
    table = *nrd_io;
    table.unlink = unlink_and_commit;
    committing = &f;
    n_committed = 0;
    nrd_io = &table;
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    nrd_io = under;
    g_assert_cmpuint(n, ==, 0);
    g_assert_cmpuint(n_committed, ==, 5 * N_NAMES);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 21);
    fixture_expect(&f, 20, "1014");
    unshift(5);
    fixture_tear_down(&f);
}

/* A segment that is held keeps its files, and those behind it keep theirs. */
static void test_held(void)
{
    Fixture f;
    uint64_t n = 0;
    fill(&f, 5);
    NrdSegmentList *list = nrd_log_segments(f.log);
    NrdSegment *held = list->items[2];
    nrd_segment_hold(held);
    g_assert_cmpint(nrd_log_trim(f.log, 5, &n), ==, 0);
    nrd_segment_list_unref(list);
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
        g_assert_cmpuint(n, ==, 3);
        g_assert_cmpuint(n_files(&f, ".log"), ==, 4);
    }
    nrd_segment_release(held);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    g_assert_cmpuint(n_files(&f, ".log"), ==, 1);
    unshift(5);
    fixture_tear_down(&f);
}

/* Every call of a removal fails, once and for good: counted each time, retried, a suffix at every moment. */
static void test_removal_fails(void)
{
    static const struct {
        FaultCall call;
        const char *suffix;
    } cases[] = { { FAULT_UNLINK, ".log" }, { FAULT_UNLINK, ".index" }, { FAULT_FSYNC, NULL }, { FAULT_OPEN, "p" } };
    for (size_t i = 0; i < 4 * G_N_ELEMENTS(cases); i++) {
        Fixture f;
        uint64_t n = 77, gone;
        fill(&f, 5);
        g_assert_cmpint(nrd_log_trim(f.log, 4, &gone), ==, 0);
        uint64_t count = nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK);
        unsigned nth = cases[i / 4].call == FAULT_UNLINK ? 2 : 1;
        fault_set(cases[i / 4].call, nth, i % 2 ? -EIO : -EPERM, i % 4 < 2);
        fault.suffix = cases[i / 4].suffix;
        int error = fault.error;
        g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, error);
        g_assert_cmpuint(n, ==, 77);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK), ==, count + 1);
        if (i % 4 < 2)
            g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, error);
        g_assert_cmpuint(fault.n_fired, ==, i % 4 < 2 ? 2 : 1);
        if (cases[i / 4].call == FAULT_UNLINK) {
            g_assert_false(fixture_exists(&f, SEGMENT_0));
            g_assert_true(fixture_exists(&f, "00000000000000000001.log"));
        }
        fault_clear();
        g_assert_cmpuint(fixture_commit(&f, "goes on"), ==, 6);
        g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
        g_assert_cmpuint(n, ==, 0);
        g_assert_cmpuint(n_files(&f, ".log"), ==, 2);
        g_assert_cmpuint(n_files(&f, ".index"), ==, 1);
        unshift(5);
        fixture_tear_down(&f);
    }
}

/* The segment of record 0 was removed by others. Passed by a trim that is forgotten, and what told of it is removed, as
 * durably as a segment is. */
static void test_witness_is_removed_durably(void)
{
    Fixture f;
    uint64_t n;
    fill(&f, 2);
    fixture_close(&f);
    fixture_remove(&f, SEGMENT_0);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 1);
    g_assert_cmpint(nrd_log_trim(f.log, 1, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    fault_set(FAULT_FSYNC, 1, -EIO, false);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, -EIO);
    g_assert_false(fixture_exists(&f, "00000000000000000000.index"));
    fault_clear();
    fault_set(FAULT_NONE, 0, 0, false);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(fault.counts[FAULT_FSYNC], ==, 1);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    unshift(2);
    fixture_tear_down(&f);
}

/* A crash after each number of removals: the next open serves a suffix, and expires it again. */
static void test_crash_between(void)
{
    for (unsigned n_done = 0; n_done < 4 * N_NAMES; n_done++) {
        Fixture f;
        uint64_t n;
        fill(&f, 4);
        NrdRetention bound = by_age(HOUR_MS / 2);
        g_assert_cmpint(nrd_log_expire(f.log, &bound, &n), ==, 0);
        g_assert_cmpuint(n, ==, 4);
        fault_set(FAULT_UNLINK, n_done + 1, -EIO, true);
        g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, -EIO);
        g_assert_cmpint(nrd_log_close(f.log), ==, 0); /* which removes no more either */
        nrd_log_free(f.log);
        f.log = NULL;
        fault_clear();
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_oldest(f.log), ==, n_done / N_NAMES);
        for (uint64_t k = n_done / N_NAMES; k < 5; k++) {
            char want[8];
            g_snprintf(want, sizeof want, "%u", (unsigned)k);
            fixture_expect(&f, k, want);
        }
        g_assert_cmpuint(expire(&f, bound), ==, 4 - n_done / N_NAMES);
        fixture_expect(&f, 4, "4");
        unshift(4);
        fixture_tear_down(&f);
    }
}

/* Closing removes a few, and a closed log removes none: its folder's name may be another topic's by then. */
static void test_close(void)
{
    Fixture f;
    uint64_t n = 5;
    NrdRetention bound = { .max_bytes = 1 };
    fill(&f, 30);
    g_assert_cmpint(nrd_log_trim(f.log, 30, &n), ==, 0);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpuint(n_files(&f, ".log"), ==, 31 - 16);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, -ESHUTDOWN);
    g_assert_cmpint(nrd_log_trim(f.log, 30, &n), ==, -ESHUTDOWN);
    g_assert_cmpint(nrd_log_expire(f.log, &bound, &n), ==, -ESHUTDOWN);
    g_assert_false(nrd_log_has_expired(f.log, &bound));
    g_assert_cmpuint(n_files(&f, ".log"), ==, 31 - 16);
    fixture_close(&f);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 16); /* what stayed is back */
    fixture_expect(&f, 16, "16");
    fixture_close(&f);
    f.options.read_only = true;
    fixture_open(&f);
    g_assert_cmpint(nrd_log_expire(f.log, &bound, &n), ==, -EROFS);
    g_assert_cmpint(nrd_log_trim(f.log, 30, &n), ==, -EROFS);
    g_assert_false(nrd_log_has_expired(f.log, &bound));
    unshift(30);
    fixture_tear_down(&f);
}

/* A thousand segments: detaching does no I/O and holds the lock for microseconds. */
static void test_thousand(void)
{
    Fixture f;
    uint64_t n = 0;
    fill(&f, 1000);
    fault_clear();
    gint64 start = g_get_monotonic_time();
    g_assert_cmpint(nrd_log_trim(f.log, 1000, &n), ==, 0);
    gint64 micros = g_get_monotonic_time() - start;
    g_assert_cmpuint(n, ==, 1000);
    for (int i = 0; i < FAULT_N; i++)
        g_assert_cmpuint(fault.counts[i], ==, 0);
    g_test_message("detached 1000 segments in %" G_GINT64_FORMAT " us, lock and counting together", micros);
    g_assert_cmpint(micros, <, 1000000); /* generous: a sanitizer's time, on a machine with other work */
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n_files(&f, ".log"), ==, 1);
    unshift(1000);
    fixture_tear_down(&f);
}

static void test_roll_age(void)
{
    Fixture f;
    fixture_set_up(&f);
    f.options.settings.roll_age_ms = HOUR_MS;
    fixture_open(&f);
    uint64_t rolled = nrd_counter_get(NRD_COUNTER_ROLLED);
    fixture_commit(&f, "a");
    nrd_clock_shift_wall_ms(HOUR_MS / 2);
    fixture_commit(&f, "b");
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 1);
    nrd_clock_shift_wall_ms(HOUR_MS * 3 / 4);
    fixture_close(&f);
    fixture_open(&f); /* also across a restart */
    g_assert_cmpuint(fixture_commit(&f, "c"), ==, 2);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_ROLLED) - rolled, ==, 1);
    g_assert_true(fixture_exists(&f, "00000000000000000002.log"));
    fixture_commit(&f, "d");
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    f.options.settings.roll_age_ms = 0;
    nrd_log_configure(f.log, &f.options.settings);
    nrd_clock_shift_wall_ms(YEAR_MS);
    fixture_commit(&f, "e");
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    nrd_clock_shift_wall_ms(-YEAR_MS - HOUR_MS * 5 / 4);
    fixture_commit(&f, "f"); /* the clock went back: no roll, and the stamp stays */
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    fixture_tear_down(&f);
}

/* A roll by age waits while records stand above the high watermark. */
static void test_roll_age_hidden(void)
{
    Fixture f;
    uint8_t hwm[8] = { 0, 0, 0, 0, 0, 0, 0, 1 };
    fixture_set_up(&f);
    f.options.settings.roll_age_ms = HOUR_MS;
    fixture_open(&f);
    fixture_commit(&f, "a");
    fixture_commit(&f, "b");
    fixture_crash(&f);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    nrd_clock_shift_wall_ms(2 * HOUR_MS);
    fixture_open(&f);
    g_assert_cmpuint(fixture_commit(&f, "c"), ==, 2);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 1);
    g_assert_cmpuint(fixture_commit(&f, "d"), ==, 3);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    nrd_clock_shift_wall_ms(-2 * HOUR_MS);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/retention/age", test_by_age);
    g_test_add_func("/log/retention/bytes", test_by_bytes);
    g_test_add_func("/log/retention/active", test_active_goes);
    g_test_add_func("/log/retention/active-roll-fails", test_active_roll_fails);
    g_test_add_func("/log/retention/active-stays", test_active_stays);
    g_test_add_func("/log/retention/future", test_future_stamps);
    g_test_add_func("/log/retention/future-bounded", test_future_bounded);
    g_test_add_func("/log/retention/unreadable", test_unreadable);
    g_test_add_func("/log/retention/clock-back", test_clock_back);
    g_test_add_func("/log/retention/commit-between", test_commit_between_unlinks);
    g_test_add_func("/log/retention/held", test_held);
    g_test_add_func("/log/retention/fails", test_removal_fails);
    g_test_add_func("/log/retention/witness", test_witness_is_removed_durably);
    g_test_add_func("/log/retention/crash", test_crash_between);
    g_test_add_func("/log/retention/close", test_close);
    g_test_add_func("/log/retention/thousand", test_thousand);
    g_test_add_func("/log/retention/roll-age", test_roll_age);
    g_test_add_func("/log/retention/roll-age-hidden", test_roll_age_hidden);
    return g_test_run();
}
