/* Commits: what lands, what a failure leaves, poison and how it is cleared. */
#include "fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/log/segments/frame_cache.h"

#include <errno.h>
#include <string.h>

static void test_round_trip(void)
{
    Fixture f;
    NrdRecordView view;
    uint64_t next, first[3];

    fixture_set_up(&f);
    fixture_open(&f);
    NrdRecordBatch *batches[3] = { fixture_batch(NULL, "one", 3), fixture_batch("key", "two\nlines", 9),
                                   fixture_batch("k", "", 0) };
    nrd_record_batch_add(batches[1], "k2", 2, "\0\xff", 2);
    g_assert_cmpint(nrd_log_commit(f.log, batches, 3, first), ==, 0);
    g_assert_cmpuint(first[0], ==, 0);
    g_assert_cmpuint(first[1], ==, 1);
    g_assert_cmpuint(first[2], ==, 3);
    for (int i = 0; i < 3; i++)
        nrd_record_batch_free(batches[i]);
    for (int round = 0; round < 2; round++) {
        NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
        g_assert_cmpint(nrd_log_cursor_read(cursor, 2, &view, &next), ==, 0);
        g_assert_cmpmem(view.key, view.key_size, "k2", 2);
        g_assert_cmpmem(view.payload, view.payload_size, "\0\xff", 2);
        g_assert_cmpint(view.commit_ms, >, 0);
        g_assert_cmpint(nrd_log_cursor_read(cursor, 1, &view, &next), ==, 0);
        g_assert_cmpmem(view.payload, view.payload_size, "two\nlines", 9);
        g_assert_cmpint(nrd_log_cursor_read(cursor, 3, &view, &next), ==, 0);
        g_assert_cmpuint(view.payload_size, ==, 0);
        g_assert_cmpint(nrd_log_cursor_read(cursor, 4, &view, &next), ==, -ENOENT);
        g_assert_cmpint(nrd_log_cursor_read(cursor, UINT64_MAX, &view, &next), ==, -ENOENT);
        nrd_log_cursor_free(cursor);
        fixture_close(&f);
        fixture_open(&f);
    }
    NrdLogStats stats = fixture_stats(&f);
    g_assert_cmpuint(stats.hwm, ==, 4);
    g_assert_cmpuint(stats.text_bytes, ==, 4 + 10 + 3 + 1);
    fixture_tear_down(&f);
}

static int64_t stamp_of(Fixture *f, uint64_t offset)
{
    NrdLogCursor *cursor = nrd_log_cursor_new(f->log);
    NrdRecordView view;
    uint64_t next;
    g_assert_cmpint(nrd_log_cursor_read(cursor, offset, &view, &next), ==, 0);
    nrd_log_cursor_free(cursor);
    return view.commit_ms;
}

/* Commit times never decrease along the log, whatever the clock does, also across rolls, crashes and restarts. */
static void test_commit_times(void)
{
    static const int64_t hour = 3600000, year = 365 * 24 * (int64_t)3600000;
    const int64_t steps[] = { 0, -hour, 0, hour, -10 * year, 10 * year, 10 * year, -hour, -10 * year, 5 };
    Fixture f;
    int64_t shift = 0, newest = 0;
    fixture_set_up(&f);
    fixture_open(&f);
    for (size_t i = 0; i < 4 * G_N_ELEMENTS(steps); i++) {
        nrd_clock_shift_wall_ms(steps[i % G_N_ELEMENTS(steps)]);
        shift += steps[i % G_N_ELEMENTS(steps)];
        if (i % 4 == 1)
            g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
        if (i % 4 == 2)
            fixture_close(&f);
        if (i % 4 == 3)
            fixture_crash(&f);
        if (f.log == NULL)
            fixture_open(&f);
        g_assert_cmpint(fixture_stats(&f).last_commit_ms, ==, newest);
        int64_t now = nrd_clock_wall_ms();
        uint64_t offset = fixture_commit(&f, "x");
        int64_t stamp = stamp_of(&f, offset);
        g_assert_cmpint(stamp, >=, newest);
        if (now >= newest)
            g_assert_cmpint(stamp, <=, nrd_clock_wall_ms()); /* no further than the clock */
        else
            g_assert_cmpint(stamp, ==, newest);
        newest = stamp;
    }
    nrd_clock_shift_wall_ms(-shift);
    fixture_tear_down(&f);
}

/* The floor is the newest of all records, also when the active segment is empty or its last frame is damaged. */
static void test_commit_floor(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    nrd_clock_shift_wall_ms(3600000);
    fixture_commit(&f, "a");
    int64_t newest = fixture_stats(&f).last_commit_ms;
    nrd_clock_shift_wall_ms(-3600000);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    for (int i = 0; i < 3; i++) {
        fixture_crash(&f);
        if (i == 1)
            fixture_remove(&f, "00000000000000000000.index");
        fixture_open(&f);
        g_assert_cmpint(fixture_stats(&f).last_commit_ms, ==, newest);
    }
    g_assert_cmpint(stamp_of(&f, fixture_commit(&f, "b")), ==, newest);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_assert_cmpint(stamp_of(&f, fixture_commit(&f, "c")), ==, newest);
    fixture_tear_down(&f);
}

/* Commits with the clock at this distance from the time of the newest record. */
static void commit_with_clock_back(Fixture *f, int64_t back_ms)
{
    nrd_clock_shift_wall_ms(fixture_stats(f).last_commit_ms - back_ms - nrd_clock_wall_ms());
    fixture_commit(f, "x");
}

static void behind_the_newest(void)
{
    Fixture f;
    g_unsetenv("JOURNAL_STREAM");
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "0");
    commit_with_clock_back(&f, 50000); /* clocks are set a little all the time */
    commit_with_clock_back(&f, 3600000);
    commit_with_clock_back(&f, 7200000);
    fixture_close(&f);
    fixture_open(&f);
    commit_with_clock_back(&f, 7200000);
    commit_with_clock_back(&f, 7200000);
    fixture_tear_down(&f);
}

/* That the clock was ahead once is told when the first record gets a time that has not come, once for each open. */
static void test_late_clock(void)
{
    if (g_test_subprocess()) {
        behind_the_newest();
        return;
    }
    g_test_trap_subprocess(NULL, 0, 0);
    g_test_trap_assert_passed();
#define BEHIND                                                                                                         \
    "??? s behind the newest record's commit time: records get that time until it has come, "                          \
    "and are as much later due for a child with a delay topic="
    g_test_trap_assert_stderr("naradfs: warning: the clock is 3" BEHIND "t partition=00000 offset=2\n"
                              "naradfs: warning: the clock is 7" BEHIND "t partition=00000 offset=4\n");
#undef BEHIND
}

static void test_empty_commit(void)
{
    Fixture f;
    uint64_t first = 77;
    NrdRecordBatch *batch = nrd_record_batch_new();
    fixture_set_up(&f);
    fixture_open(&f);
    g_assert_cmpint(nrd_log_commit(f.log, &batch, 1, &first), ==, 0);
    g_assert_cmpuint(first, ==, 0);
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    fixture_close(&f);
    g_assert_false(fixture_exists(&f, "hwm"));
    nrd_record_batch_free(batch);
    fixture_tear_down(&f);
}

/* The seed's bytes: one frame for one commit. */
static void test_file_bytes(void)
{
    Fixture f;
    static const char *const payloads[] = { "hello", "world", NULL };
    fixture_set_up(&f);
    GByteArray *want = g_byte_array_new();
    fixture_append_frame(want, 0, payloads);
    fixture_put(&f, SEGMENT_0, want->data, want->len);
    fixture_open(&f);
    fixture_expect(&f, 0, "hello");
    fixture_expect(&f, 1, "world");
    fixture_commit(&f, "x");
    GByteArray *got = fixture_get(&f, SEGMENT_0);
    g_assert_cmpuint(got->len, >=, fixture_stats(&f).size_bytes); /* zeros may follow */
    g_byte_array_set_size(got, (guint)fixture_stats(&f).size_bytes);
    g_assert_cmpuint(got->len, ==, want->len + 27 + 15);
    g_assert_cmpmem(got->data, want->len, want->data, want->len);
    const uint8_t *frame = got->data + want->len;
    g_assert_cmphex(frame[0] << 8 | frame[1], ==, 0xCAFE);
    g_assert_cmpuint(nrd_get_be64(frame + 7), ==, 2);
    g_byte_array_unref(got);
    g_byte_array_unref(want);
    fixture_tear_down(&f);
}

static size_t hwm_size(Fixture *f)
{
    GByteArray *bytes = fixture_get(f, "hwm");
    size_t n = bytes->len;
    g_byte_array_unref(bytes);
    return n;
}

static void test_hwm_file(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    g_assert_false(fixture_exists(&f, "hwm"));
    fixture_close(&f);
    GByteArray *bytes = fixture_get(&f, "hwm");
    g_assert_cmpuint(bytes->len, ==, 8);
    g_assert_cmpuint(nrd_get_be64(bytes->data), ==, 1);
    g_byte_array_unref(bytes);
    fixture_open(&f);
    g_assert_cmpuint(hwm_size(&f), ==, 8); /* opening writes nothing */
    fixture_commit(&f, "b");
    g_assert_cmpuint(hwm_size(&f), ==, 0);
    fixture_put(&f, "hwm", "123", 3);
    fixture_commit(&f, "c"); /* only the first advance touches it */
    g_assert_cmpuint(hwm_size(&f), ==, 3);
    fixture_close(&f);
    g_assert_cmpuint(hwm_size(&f), ==, 8);
    fixture_tear_down(&f);
}

/* Every failing call of a commit, once: nothing is left, and a retry lands one copy at the same offset. */
static void test_failures_leave_nothing(void)
{
    static const struct {
        FaultCall call;
        unsigned nth;
        int error;
        int expect;
    } cases[] = {
        { FAULT_PWRITEV, 1, -ENOSPC, -ENOSPC }, { FAULT_PWRITEV, 1, -EIO, -EIO },
        { FAULT_PWRITEV, 1, -EDQUOT, -EDQUOT }, { FAULT_PWRITEV, 1, -EFBIG, -EFBIG },
        { FAULT_PREAD, 1, -EIO, -EIO },         { FAULT_PREAD, 1, 0, -EIO },
        { FAULT_FTRUNCATE, 1, -EIO, -EIO }, /* of the hwm file */
        { FAULT_FSYNC, 1, -EIO, -EIO },     /* of the hwm file */
        { FAULT_OPEN, 1, -EMFILE, -EIO },   /* of the hwm file */
        { FAULT_PREAD, 2, -EIO, -EIO },     /* of the hwm file, after its sync */
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        uint64_t offset = 99;
        fixture_set_up(&f);
        fixture_open(&f);
        fixture_commit(&f, "before");
        fixture_close(&f);
        fixture_open(&f);
        GByteArray *was = fixture_get(&f, SEGMENT_0);
        fault_set(cases[i].call, cases[i].nth, cases[i].error, false);
        fault.suffix = cases[i].call == FAULT_OPEN ? "hwm" : NULL;
        g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, cases[i].expect);
        g_assert_cmpuint(fault.n_fired, ==, 1);
        fault_clear();
        g_assert_cmpuint(offset, ==, 99);
        GByteArray *is = fixture_get(&f, SEGMENT_0);
        g_assert_cmpmem(is->data, is->len, was->data, was->len);
        g_assert_cmpint(nrd_log_check(f.log), ==, 0);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 1);
        g_assert_cmpuint(fixture_commit(&f, "retry"), ==, 1);
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
        fixture_expect(&f, 1, "retry");
        g_byte_array_unref(was);
        g_byte_array_unref(is);
        fixture_tear_down(&f);
    }
}

/* The bit that flips on the way back lies in the payload: only the CRC can tell. */
static void test_read_back_payload(void)
{
    Fixture f;
    uint64_t offset;
    char *payload = g_strnfill(700000, 'p');
    fixture_set_up(&f);
    fixture_open(&f);
    for (unsigned nth = 1; nth <= 3; nth++) {
        fault_set(FAULT_PREAD, nth, 0, false);
        g_assert_cmpint(fixture_try_commit(&f, payload, &offset), ==, -EIO);
        g_assert_cmpuint(fault.n_fired, ==, 1);
        g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, 0);
    }
    fault_clear();
    g_assert_cmpuint(fixture_commit(&f, payload), ==, 0);
    g_free(payload);
    fixture_tear_down(&f);
}

static void test_short_write_goes_on(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    fault_set(FAULT_PWRITEV, 1, 0, false);
    fixture_commit(&f, "whole");
    g_assert_cmpuint(fault.n_fired, ==, 1);
    fixture_expect(&f, 0, "whole");
    fixture_tear_down(&f);
}

static void test_disk_full_and_back(void)
{
    Fixture f;
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    fault_set(FAULT_PWRITEV, 1, -ENOSPC, true);
    for (int i = 0; i < 5; i++)
        g_assert_cmpint(fixture_try_commit(&f, "b", &offset), ==, -ENOSPC);
    fault_clear();
    g_assert_cmpuint(fixture_commit(&f, "b"), ==, 1);
    fixture_tear_down(&f);
}

static void test_poison(void)
{
    static const int errors[] = { -EIO, -ENOSPC, -EDQUOT, -EINTR };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        Fixture f;
        uint64_t offset;
        fixture_set_up(&f);
        fixture_open(&f);
        fixture_commit(&f, "kept");
        uint64_t count = nrd_counter_get(NRD_COUNTER_FSYNC_POISONED);
        fault_set(FAULT_FDATASYNC, 1, errors[i], false);
        g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
        g_assert_cmpuint(fault.n_fired, ==, 1);
        fault_clear();
        for (int k = 0; k < 3; k++)
            g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FSYNC_POISONED), ==, count + 1);
        g_assert_cmpint(nrd_log_check(f.log), ==, -EIO);
        g_assert_cmpint(fixture_stats(&f).poison_errno, ==, -errors[i]);
        char *reason = nrd_log_poison_reason(f.log);
        g_assert_nonnull(reason);
        g_free(reason);
        fixture_expect(&f, 0, "kept"); /* reads go on */
        g_assert_cmpint(fixture_read(&f, 1, NULL, NULL), ==, -ENOENT);
        g_assert_cmpint(nrd_log_roll(f.log), ==, -EIO);
        g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
        g_assert_cmpint(nrd_log_check(f.log), ==, 0);
        g_assert_null(nrd_log_poison_reason(f.log));
        g_assert_cmpuint(fixture_commit(&f, "again"), ==, 1);
        fixture_expect(&f, 1, "again");
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
        fixture_tear_down(&f);
    }
}

/* The sync fails for good, and so does the first reopen: the log stays poisoned until the disk is well. */
static void test_reopen_fails_first(void)
{
    Fixture f;
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "kept");
    NrdLogStats was = fixture_stats(&f);
    fault_set(FAULT_FDATASYNC, 1, -EIO, true);
    g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    g_assert_cmpint(nrd_log_check(f.log), ==, -EIO);
    fault_clear();
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, was.size_bytes);
    g_assert_cmpuint(fixture_commit(&f, "again"), ==, 1);
    fixture_tear_down(&f);
}

/* A write fails, and its tail cannot be cut: poison; the tail is not served, and reopen cuts it. */
static void test_failed_cut_poisons(void)
{
    static const FaultCall seconds[] = { FAULT_FTRUNCATE, FAULT_FDATASYNC };
    for (size_t i = 0; i < G_N_ELEMENTS(seconds); i++) {
        Fixture f;
        uint64_t offset;
        fixture_set_up(&f);
        fixture_open(&f);
        fixture_commit(&f, "kept");
        fault_set(FAULT_PWRITEV, 1, -ENOSPC, true);
        fault.also = seconds[i];
        g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -ENOSPC);
        fault_clear();
        g_assert_cmpint(nrd_log_check(f.log), ==, -EIO);
        g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
        g_assert_cmpint(fixture_read(&f, 1, NULL, NULL), ==, -ENOENT);
        g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
        g_assert_cmpuint(fixture_commit(&f, "again"), ==, 1);
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
        fixture_expect(&f, 1, "again");
        fixture_tear_down(&f);
    }
}

static void test_reopen_finds_damage(void)
{
    Fixture f;
    uint64_t next;
    fixture_set_up(&f);
    fixture_open(&f);
    for (int i = 0; i < 4; i++)
        fixture_commit_numbers(&f, (unsigned)i * 10, 10);
    fixture_flip(&f, SEGMENT_0, fixture_stats(&f).size_bytes - 10); /* the last frame */
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 40); /* never below what was acknowledged */
    g_assert_cmpint(fixture_read(&f, 35, NULL, &next), ==, -EBADMSG);
    g_assert_cmpuint(next, ==, 40);
    fixture_expect(&f, 29, "29");
    g_assert_cmpuint(fixture_commit(&f, "new"), ==, 40);
    fixture_expect(&f, 40, "new");
    g_assert_true(fixture_exists(&f, "00000000000000000040.log"));
    for (int i = 0; i < 3; i++) {
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 41);
        g_assert_cmpint(fixture_read(&f, 30, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, 40);
        fixture_expect(&f, 40, "new");
    }
    fixture_tear_down(&f);
}

static void test_closed_and_read_only(void)
{
    Fixture f;
    uint64_t offset;
    NrdRecordView view;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    NrdText *text;
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpint(nrd_log_cursor_read(cursor, 0, &view, &offset), ==, -ESHUTDOWN);
    char buf[4];
    size_t n;
    g_assert_cmpint(nrd_text_read(text, 0, buf, sizeof buf, &n), ==, -ESHUTDOWN);
    g_assert_cmpint(fixture_try_commit(&f, "b", &offset), ==, -ESHUTDOWN);
    nrd_text_close(text);
    nrd_log_cursor_free(cursor);
    fixture_close(&f);
    f.options.read_only = true;
    fixture_open(&f);
    g_assert_cmpint(fixture_try_commit(&f, "b", &offset), ==, -EROFS);
    g_assert_cmpint(nrd_log_roll(f.log), ==, -EROFS);
    fixture_expect(&f, 0, "a");
    fixture_tear_down(&f);
}

static void test_zstd_and_large(void)
{
    Fixture f;
    fixture_set_up(&f);
    f.options.settings.codec = NRD_CODEC_ZSTD;
    f.options.settings.segment_bytes = 64 << 20;
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 5000);
    g_assert_cmpuint(fixture_stats(&f).size_bytes, <, 50000);
    NrdLogSettings plain = f.options.settings;
    plain.codec = NRD_CODEC_NONE;
    nrd_log_configure(f.log, &plain);
    size_t big = 6 << 20;
    char *payload = g_malloc(big);
    memset(payload, 'x', big);
    NrdRecordBatch *batches[2] = { nrd_record_batch_new(), nrd_record_batch_new() };
    uint64_t first[2];
    for (int i = 0; i < 4; i++)
        nrd_record_batch_add(batches[i / 2], NULL, 0, payload, big - (size_t)i);
    fault_clear();
    g_assert_cmpint(nrd_log_commit(f.log, batches, 2, first), ==, 0); /* two frames */
    g_assert_cmpuint(fault.counts[FAULT_FDATASYNC], ==, 1);
    g_assert_cmpuint(first[1], ==, 5002);
    for (int i = 0; i < 2; i++)
        nrd_record_batch_free(batches[i]);
    for (int round = 0; round < 2; round++) {
        fixture_expect(&f, 4999, "4999");
        for (uint64_t i = 0; i < 4; i++) {
            char *got = NULL;
            g_assert_cmpint(fixture_read(&f, 5000 + i, &got, NULL), ==, 0);
            g_assert_cmpuint(strlen(got), ==, big - i);
            g_free(got);
        }
        fixture_crash(&f);
        fixture_open(&f);
    }
    g_free(payload);
    fixture_tear_down(&f);
}

/* Reading in order costs one disk read per frame at most. */
static void test_sequential_reads(void)
{
    Fixture f;
    NrdRecordView view;
    uint64_t next;
    fixture_set_up(&f);
    fixture_open(&f);
    for (unsigned i = 0; i < 50; i++)
        fixture_commit_numbers(&f, i * 20, 20);
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    fault_clear();
    for (uint64_t i = 0; i < 1000; i++) {
        char want[8];
        int n = g_snprintf(want, sizeof want, "%u", (unsigned)i);
        g_assert_cmpint(nrd_log_cursor_read(cursor, i, &view, &next), ==, 0);
        g_assert_cmpmem(view.payload, view.payload_size, want, (size_t)n);
    }
    g_assert_cmpuint(fault.counts[FAULT_PREAD], <=, 51);
    nrd_frame_cache_set_limit(0); /* the disk alone from here on */
    fault_set(FAULT_PREAD, 1, -EIO, true);
    nrd_log_cursor_reset(cursor);
    g_assert_cmpint(nrd_log_cursor_read(cursor, 500, &view, &next), ==, -EIO); /* no gap */
    fault_set(FAULT_PREAD, 1, 0, false); /* a flipped bit, once: read again, no gap */
    uint64_t corrupt = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
    nrd_log_cursor_reset(cursor);
    g_assert_cmpint(nrd_log_cursor_read(cursor, 500, &view, &next), ==, 0);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, corrupt);
    nrd_log_cursor_free(cursor);
    nrd_frame_cache_set_limit(64 << 20);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    fixture_really_sync = true;
    g_test_add_func("/log/commit/round-trip", test_round_trip);
    g_test_add_func("/log/commit/times", test_commit_times);
    g_test_add_func("/log/commit/floor", test_commit_floor);
    g_test_add_func("/log/commit/late-clock", test_late_clock);
    g_test_add_func("/log/commit/empty", test_empty_commit);
    g_test_add_func("/log/commit/file-bytes", test_file_bytes);
    g_test_add_func("/log/commit/hwm-file", test_hwm_file);
    g_test_add_func("/log/commit/failures", test_failures_leave_nothing);
    g_test_add_func("/log/commit/read-back", test_read_back_payload);
    g_test_add_func("/log/commit/short-write", test_short_write_goes_on);
    g_test_add_func("/log/commit/disk-full", test_disk_full_and_back);
    g_test_add_func("/log/commit/poison", test_poison);
    g_test_add_func("/log/commit/reopen-fails", test_reopen_fails_first);
    g_test_add_func("/log/commit/failed-cut", test_failed_cut_poisons);
    g_test_add_func("/log/commit/reopen-damage", test_reopen_finds_damage);
    g_test_add_func("/log/commit/closed", test_closed_and_read_only);
    g_test_add_func("/log/commit/zstd-large", test_zstd_and_large);
    g_test_add_func("/log/commit/sequential", test_sequential_reads);
    return g_test_run();
}
