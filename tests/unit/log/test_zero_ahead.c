/* Zeros written ahead of the active segment's tail: when they are there, when they go, and that they never matter. */
#include "fixture.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/state/state.h"
#include "engine/log/zero_ahead.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK 65536

static void set_up(Fixture *f)
{
    fixture_set_up(f);
    f->options.settings.prealloc_bytes = CHUNK;
}

static uint64_t file_size(Fixture *f, const char *name)
{
    char *path = fixture_file(f, name);
    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    g_free(path);
    return (uint64_t)st.st_size;
}

/* One chunk at a time; overwritten, not appended to, until the tail reaches its end. */
static void test_chunks(void)
{
    Fixture f;
    set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    uint64_t size = file_size(&f, SEGMENT_0), grown = 0;
    g_assert_cmpuint(size, >=, CHUNK);
    g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, 42);
    while (fixture_stats(&f).size_bytes < 3 * CHUNK) {
        char *payload = g_strnfill(1000, 'p');
        fixture_commit(&f, payload);
        g_free(payload);
        uint64_t now = file_size(&f, SEGMENT_0);
        g_assert_cmpuint(now, >=, fixture_stats(&f).size_bytes);
        grown += now != size;
        size = now;
    }
    g_assert_cmpuint(grown, <=, 3);
    uint64_t torn = nrd_counter_get(NRD_COUNTER_TORN_TAILS);
    uint64_t frames = fixture_stats(&f).size_bytes, hwm = nrd_log_hwm(f.log);
    GByteArray *file = fixture_get(&f, SEGMENT_0);
    fixture_close(&f);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, frames); /* a close cuts */
    fixture_put(&f, SEGMENT_0, file->data, file->len);      /* a crash would not have */
    fixture_put(&f, "hwm", "", 0);
    g_byte_array_unref(file);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, hwm);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, frames);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==, torn); /* no damage */
    fixture_tear_down(&f);
}

static void test_no_chunk_for_large(void)
{
    Fixture f;
    char *payload = g_strnfill(CHUNK / 2, 'p');
    set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, payload);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, fixture_stats(&f).size_bytes);
    for (int i = 0; i < 40; i++)
        nrd_zero_ahead_enter(); /* many partitions commit at once */
    fixture_commit(&f, "small");
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, fixture_stats(&f).size_bytes);
    for (int i = 0; i < 40; i++)
        nrd_zero_ahead_leave();
    fixture_commit(&f, "small");
    g_assert_cmpuint(file_size(&f, SEGMENT_0), >, fixture_stats(&f).size_bytes);
    g_free(payload);
    fixture_tear_down(&f);
}

/* Never behind the segment's own limit; a seal cuts, and the side index fits what is left. */
static void test_seal(void)
{
    Fixture f;
    set_up(&f);
    f.options.settings.segment_bytes = 10000;
    fixture_open(&f);
    fixture_commit(&f, "a");
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, 10000);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, 42);
    g_assert_cmpuint(fixture_commit(&f, "b"), ==, 1);
    g_assert_cmpuint(file_size(&f, "00000000000000000001.log"), ==, 10000);
    uint64_t rebuilt = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, rebuilt);
    fixture_expect(&f, 0, "a");
    fixture_expect(&f, 1, "b");
    fixture_tear_down(&f);
}

/* What cannot be cut stays, and is the end. */
static void test_cut_fails(void)
{
    Fixture f;
    set_up(&f);
    f.options.settings.segment_bytes = 10000;
    fixture_open(&f);
    fixture_commit(&f, "a");
    fault_set(FAULT_FTRUNCATE, 1, -EIO, false);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    g_assert_cmpuint(fault.n_fired, ==, 1);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, 10000);
    fixture_commit(&f, "b");
    fault_set(FAULT_FTRUNCATE, 1, -EIO, false);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    fault_clear();
    nrd_log_free(f.log);
    f.log = NULL;
    g_assert_cmpuint(file_size(&f, "00000000000000000001.log"), ==, 10000);
    for (int i = 0; i < 3; i++) {
        f.options.read_only = i == 0; /* which hides them */
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
        g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 2);
        g_assert_cmpuint(fixture_stats(&f).text_bytes, ==, 4);
        fixture_expect(&f, 0, "a");
        fixture_expect(&f, 1, "b");
        fixture_close(&f);
        g_assert_cmpuint(file_size(&f, "00000000000000000001.log"), ==, i == 0 ? 10000 : 42);
    }
    fixture_tear_down(&f);
}

/* Zeros that cannot be written, in whole or in part, fail no commit: counted once until they can be again. */
static void test_write_fails(void)
{
    static const int errors[] = { -ENOSPC, -EDQUOT, -EFBIG, -EOPNOTSUPP };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        Fixture f;
        char *payload = g_strnfill(CHUNK / 8, 'p');
        uint64_t count = nrd_counter_get(NRD_COUNTER_PREALLOC_FAILED);
        set_up(&f);
        f.options.settings.segment_bytes = 10 * CHUNK;
        fixture_open(&f);
        fault_set(FAULT_PWRITEV, 2, errors[i], false); /* the zeros behind the frame */
        g_assert_cmpuint(fixture_commit(&f, "a"), ==, 0);
        g_assert_cmpuint(fault.n_fired, ==, 1);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_PREALLOC_FAILED), ==, count + 1);
        uint64_t n = 1;
        for (; fixture_stats(&f).size_bytes < CHUNK / 2; n++)
            g_assert_cmpuint(fixture_commit(&f, payload), ==, n);
        for (int tries = 0; tries < 2; tries++) { /* a failure that stays is told once */
            uint64_t end = fixture_stats(&f).size_bytes + CHUNK + CHUNK / 4;
            unsigned n_fired = 0;
            for (; fixture_stats(&f).size_bytes < end; n++) {
                fault_set(FAULT_PWRITEV, 2, errors[i], false);
                g_assert_cmpuint(fixture_commit(&f, payload), ==, n);
                n_fired += fault.n_fired;
            }
            g_assert_cmpuint(n_fired, >=, 1);
            g_assert_cmpuint(n_fired, <=, 2); /* not tried with each commit */
        }
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_PREALLOC_FAILED), ==, count + 1);
        fault_clear();
        fixture_crash(&f);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, n);
        g_free(payload);
        fixture_tear_down(&f);
    }
}

/* A failed commit takes the zeros with it; the next one writes them anew. */
static void test_discard(void)
{
    Fixture f;
    uint64_t offset;
    set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    fault_set(FAULT_PREAD, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
    fault_clear();
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, 42);
    g_assert_cmpuint(fixture_commit(&f, "b"), ==, 1);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), >=, CHUNK);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
    fault_clear();
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_assert_cmpuint(file_size(&f, SEGMENT_0), ==, 84);
    g_assert_cmpuint(fixture_commit(&f, "c"), ==, 2);
    fixture_expect(&f, 2, "c");
    fixture_tear_down(&f);
}

/* Sectors of a torn commit over zeros reach the disk in any order: whatever lies there, nobody was promised it. */
static void test_torn_over_zeros(void)
{
    Fixture f;
    char *payload = g_strnfill(3000, 'q');
    set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    fixture_commit(&f, "b");
    fixture_commit(&f, payload);
    GByteArray *file = fixture_get(&f, SEGMENT_0);
    uint64_t end = fixture_stats(&f).size_bytes;
    fixture_crash(&f);
    for (unsigned kept = 0; kept < 1u << 6; kept++) {
        GByteArray *torn = g_byte_array_new();
        g_byte_array_append(torn, file->data, file->len);
        for (unsigned sector = 0; sector < 6; sector++) {
            size_t from = MAX((size_t)sector * 512, 84), to = MIN((size_t)(sector + 1) * 512, end);
            if (!(kept & 1u << sector))
                memset(torn->data + from, 0, to - from);
        }
        fixture_put(&f, SEGMENT_0, torn->data, torn->len);
        for (int i = 0; i < 2; i++) {
            fixture_open(&f);
            g_assert_cmpuint(nrd_log_hwm(f.log), ==, kept == (1u << 6) - 1 ? 3 : 2);
            fixture_expect(&f, 1, "b");
            fixture_crash(&f);
        }
        g_byte_array_unref(torn);
    }
    g_byte_array_unref(file);
    g_free(payload);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/zero-ahead/chunks", test_chunks);
    g_test_add_func("/log/zero-ahead/large", test_no_chunk_for_large);
    g_test_add_func("/log/zero-ahead/seal", test_seal);
    g_test_add_func("/log/zero-ahead/cut-fails", test_cut_fails);
    g_test_add_func("/log/zero-ahead/write-fails", test_write_fails);
    g_test_add_func("/log/zero-ahead/discard", test_discard);
    g_test_add_func("/log/zero-ahead/torn", test_torn_over_zeros);
    return g_test_run();
}
