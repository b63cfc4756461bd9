/* The cache of decoded frames: its bound, its order, what must leave it at once; and cursors that read through it. */
#include "fixture.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/log/segments/segment_private.h"
#include "engine/log/state/state.h"

#include <errno.h>
#include <string.h>

#define LIMIT ((size_t)64 << 20)

static NrdSegmentHome home;

static void put(NrdSegment *segment, uint64_t pos, size_t size)
{
    NrdFrameData *frame = nrd_frame_data_new(size);
    frame->pos = pos;
    frame->offset = pos / 10;
    frame->n_records = 1;
    memset(frame->payload, (int)(pos & 0xFF), size);
    nrd_frame_cache_put(segment, nrd_segment_version(segment), frame);
    nrd_frame_data_unref(frame);
}

static bool has(NrdSegment *segment, uint64_t pos)
{
    NrdFrameData *frame = nrd_frame_cache_get(segment, pos);
    if (frame != NULL)
        g_assert_cmpuint(frame->pos, ==, pos);
    nrd_frame_data_unref(frame);
    return frame != NULL;
}

static void test_bound(void)
{
    NrdSegment *a = nrd_segment_new(&home, 0, 0), *b = nrd_segment_new(&home, 100, 0);
    nrd_frame_cache_set_limit(100000);
    for (uint64_t i = 0; i < 200; i++) {
        put(i % 2 ? a : b, i, 1000);
        g_assert_cmpuint(nrd_frame_cache_size(), <=, 100000);
        g_assert_true(has(b, 0)); /* the latest used stays */
    }
    g_assert_cmpuint(nrd_frame_cache_size(), >, 90000);
    g_assert_false(has(a, 1)); /* the oldest went */
    g_assert_true(has(a, 199));
    NrdFrameData *held = nrd_frame_cache_get(a, 199);
    nrd_frame_cache_set_limit(0);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
    put(a, 1, 10);
    g_assert_false(has(a, 1));
    g_assert_cmpuint(held->payload[999], ==, 199); /* outside the bound, but there */
    nrd_frame_data_unref(held);
    nrd_frame_cache_set_limit(LIMIT);
    put(a, 1, NRD_FRAME_CACHE_MAX_FRAME_BYTES + 1);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
    put(a, 1, NRD_FRAME_CACHE_MAX_FRAME_BYTES);
    put(a, 1, NRD_FRAME_CACHE_MAX_FRAME_BYTES); /* twice is once */
    g_assert_cmpuint(nrd_frame_cache_size(), <, 2 * NRD_FRAME_CACHE_MAX_FRAME_BYTES);
    nrd_segment_unref(a);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0); /* a segment takes its frames along */
    nrd_segment_unref(b);
}

static void test_versions(void)
{
    NrdSegment *a = nrd_segment_new(&home, 0, 0), *b = nrd_segment_new(&home, 100, 0);
    uint64_t pos, offset;
    put(a, 1, 10);
    put(a, 2, 10);
    put(b, 1, 10);
    nrd_frame_cache_note(a, 7, 1, 5);
    g_assert_true(nrd_frame_cache_find(a, 7, &pos, &offset));
    g_assert_cmpuint(pos, ==, 1);
    g_assert_cmpuint(offset, ==, 5);
    g_assert_false(nrd_frame_cache_find(a, 8, &pos, &offset));
    g_assert_false(nrd_frame_cache_find(b, 7, &pos, &offset));
    NrdFrameData *stale = nrd_frame_data_new(10);
    uint64_t version = nrd_segment_version(a);
    nrd_segment_set_index(a, nrd_index_new(0), 0); /* the index was rebuilt */
    stale->pos = 3;
    nrd_frame_cache_put(a, version, stale);
    g_assert_false(has(a, 3));
    g_assert_false(has(a, 1));
    g_assert_false(has(a, 2));
    g_assert_true(has(b, 1));
    g_assert_false(nrd_frame_cache_find(a, 7, &pos, &offset));
    put(a, 1, 10);
    nrd_frame_cache_note(a, 7, 1, 5);
    nrd_frame_cache_drop(a);
    g_assert_false(has(a, 1));
    g_assert_false(nrd_frame_cache_find(a, 7, &pos, &offset));
    nrd_frame_data_unref(stale);
    nrd_segment_unref(a);
    nrd_segment_unref(b);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
}

static void read_one(NrdLogCursor *cursor, uint64_t offset, const char *payload)
{
    NrdRecordView view;
    uint64_t next;
    g_assert_cmpint(nrd_log_cursor_read(cursor, offset, &view, &next), ==, 0);
    g_assert_cmpmem(view.payload, view.payload_size, payload, strlen(payload));
}

/* A consumer at the tail costs the disk nothing; nobody there costs the cache nothing. */
static void test_tail(void)
{
    Fixture f;
    NrdRecordView view;
    uint64_t next;
    fixture_set_up(&f);
    f.options.settings.codec = NRD_CODEC_ZSTD;
    fixture_open(&f);
    fixture_commit(&f, "unseen");
    fixture_commit(&f, "unseen");
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    g_assert_cmpint(nrd_log_cursor_read(cursor, 2, &view, &next), ==, -ENOENT);
    uint64_t hits = nrd_counter_get(NRD_COUNTER_CACHE_HITS), misses = nrd_counter_get(NRD_COUNTER_CACHE_MISSES);
    for (unsigned i = 0; i < 50; i++) {
        char first[16], second[16];
        g_snprintf(first, sizeof first, "%u", i * 2);
        g_snprintf(second, sizeof second, "%u", i * 2 + 1);
        fixture_commit_numbers(&f, i * 2, 2);
        fault_clear();
        read_one(cursor, 2 + i * 2, first);
        read_one(cursor, 3 + i * 2, second);
        if (i % 3 == 0)
            g_assert_cmpint(nrd_log_cursor_read(cursor, 4 + i * 2, &view, &next), ==, -ENOENT);
        if (i % 7 == 0)
            nrd_log_cursor_reset(cursor);
        g_assert_cmpuint(fault.counts[FAULT_PREAD], ==, 0);
        g_assert_cmpuint(fault.counts[FAULT_OPEN], ==, 0);
    }
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CACHE_HITS) - hits, ==, 50);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CACHE_MISSES) - misses, ==, 0);
    fixture_commit(&f, "seen by nobody yet");
    size_t size = nrd_frame_cache_size();
    fixture_commit(&f, "and nobody looked");
    g_assert_cmpuint(nrd_frame_cache_size(), ==, size);
    read_one(cursor, 103, "and nobody looked"); /* from the disk */
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CACHE_MISSES) - misses, ==, 1);
    fault_clear();
    read_one(cursor, 102, "seen by nobody yet");
    read_one(cursor, 103, "and nobody looked");
    g_assert_cmpuint(fault.counts[FAULT_PREAD], ==, 0);
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
}

/* What a failed commit, a reopen or retention takes away is not served from memory. */
static void test_leaves(void)
{
    Fixture f;
    uint64_t offset, n;
    NrdRecordView view;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    fixture_expect(&f, 0, "a");
    size_t size = nrd_frame_cache_size();
    g_assert_cmpuint(size, >, 0);
    fault_set(FAULT_PREAD, 1, 0, false);
    g_assert_cmpint(fixture_try_commit(&f, "lost", &offset), ==, -EIO);
    fault_clear();
    g_assert_cmpuint(nrd_frame_cache_size(), ==, size);
    fixture_expect(&f, 0, "a");
    fixture_commit(&f, "b");
    fixture_expect(&f, 1, "b");
    fixture_flip(&f, SEGMENT_0, 42 + 30); /* the cache has it as it was */
    fixture_expect(&f, 1, "b");
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
    g_assert_cmpint(fixture_read(&f, 1, NULL, &n), ==, -EBADMSG);
    fixture_expect(&f, 0, "a");
    g_assert_cmpuint(fixture_commit(&f, "c"), ==, 2); /* in the next segment */
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    read_one(cursor, 0, "a");
    g_assert_cmpint(nrd_log_trim(f.log, 2, &n), ==, 0);
    g_assert_cmpint(nrd_log_cursor_read(cursor, 0, &view, &n), ==, -ENOENT);
    nrd_log_cursor_free(cursor);
    fixture_expect(&f, 2, "c");
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    fixture_tear_down(&f);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
}

/* Damage found by one reader is a gap for the next, though the cache held the frame before. */
static void test_repair(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit(&f, "a");
    fixture_commit(&f, "b");
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    fixture_commit(&f, "c");
    fixture_expect(&f, 0, "a");
    fixture_expect(&f, 1, "b");
    fixture_flip(&f, SEGMENT_0, 30);
    fixture_expect(&f, 0, "a");
    NrdSegmentList *list = nrd_log_segments(f.log);
    g_assert_cmpint(nrd_segment_repair(list->items[0], nrd_segment_version(list->items[0])), ==, 0);
    nrd_segment_list_unref(list);
    g_assert_cmpint(fixture_read(&f, 0, NULL, NULL), ==, -EBADMSG);
    fixture_expect(&f, 1, "b");
    fixture_tear_down(&f);
}

/* Frames too long for the cache are read in place; any order gives the same records. */
static void test_any_order(void)
{
    static const size_t limits[] = { 0, 20000, LIMIT };
    for (size_t k = 0; k < G_N_ELEMENTS(limits); k++) {
        Fixture f;
        GPtrArray *payloads = g_ptr_array_new_with_free_func(g_free);
        GRand *rand = g_rand_new_with_seed(17);
        fixture_set_up(&f);
        nrd_frame_cache_set_limit(limits[k]);
        f.options.settings.segment_bytes = 3 << 20;
        fixture_open(&f);
        NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
        for (unsigned i = 0; i < 120; i++) {
            char *payload = g_strnfill(i % 20 == 3 ? 1300000 : (gsize)g_rand_int_range(rand, 1, 3000), 'a' + i % 26);
            NrdRecordBatch *batch = fixture_batch(NULL, payload, strlen(payload));
            uint64_t first;
            nrd_record_batch_add(batch, NULL, 0, "x", 1);
            g_assert_cmpint(nrd_log_commit(f.log, &batch, 1, &first), ==, 0);
            nrd_record_batch_free(batch);
            g_ptr_array_add(payloads, payload);
            g_ptr_array_add(payloads, g_strdup("x"));
            for (int j = 0; j < 5; j++) {
                guint at = (guint)g_rand_int_range(rand, 0, (gint32)payloads->len);
                for (; at < payloads->len && j < 4; at += (guint)g_rand_int_range(rand, 1, 3))
                    read_one(cursor, at, payloads->pdata[at]);
                if (j == 3 && i % 9 == 0)
                    nrd_log_cursor_reset(cursor);
            }
            g_assert_cmpuint(nrd_frame_cache_size(), <=, limits[k]);
        }
        nrd_log_cursor_free(cursor);
        g_rand_free(rand);
        g_ptr_array_unref(payloads);
        fixture_tear_down(&f);
    }
    nrd_frame_cache_set_limit(LIMIT);
}

typedef struct Race {
    NrdLog *log;
    gint stop;
} Race;

static gpointer read_all(gpointer data)
{
    Race *race = data;
    NrdLogCursor *cursor = nrd_log_cursor_new(race->log);
    for (uint64_t at = 0; !g_atomic_int_get(&race->stop) || at < nrd_log_hwm(race->log);) {
        NrdRecordView view;
        uint64_t next;
        char want[24];
        at = MAX(at, nrd_log_oldest(race->log));
        int r = at < nrd_log_hwm(race->log) ? nrd_log_cursor_read(cursor, at, &view, &next) : -ENOENT;
        if (r == -ENOENT) {
            g_usleep(50);
            continue;
        }
        g_assert_cmpint(r, ==, 0);
        int size = g_snprintf(want, sizeof want, "%u", (unsigned)at);
        g_assert_cmpmem(view.payload, view.payload_size, want, (size_t)size);
        at++;
    }
    nrd_log_cursor_free(cursor);
    return NULL;
}

/* Consumers at the tail beside a committer that rolls, trims and reopens, in a cache that is much too small. */
static void test_race(void)
{
    Fixture f;
    GThread *threads[3];
    uint64_t n;
    fixture_set_up(&f);
    nrd_io = &nrd_io_real; /* the fault table counts without locks */
    nrd_frame_cache_set_limit(3000);
    f.options.settings.segment_bytes = 3000;
    f.options.settings.prealloc_bytes = 65536;
    fixture_open(&f);
    Race race = { .log = f.log };
    for (int i = 0; i < 3; i++)
        threads[i] = g_thread_new("reader", read_all, &race);
    for (unsigned i = 0; i < 300; i++) {
        fixture_commit_numbers(&f, i * 10, 10);
        if (i % 40 == 39) {
            g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) - 200, &n), ==, 0);
            g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
        }
        if (i % 70 == 0)
            g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    }
    g_atomic_int_set(&race.stop, 1);
    for (int i = 0; i < 3; i++)
        g_thread_join(threads[i]);
    fixture_tear_down(&f);
    g_assert_cmpuint(nrd_frame_cache_size(), ==, 0);
    nrd_frame_cache_set_limit(LIMIT);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/frame-cache/bound", test_bound);
    g_test_add_func("/log/frame-cache/versions", test_versions);
    g_test_add_func("/log/frame-cache/tail", test_tail);
    g_test_add_func("/log/frame-cache/leaves", test_leaves);
    g_test_add_func("/log/frame-cache/repair", test_repair);
    g_test_add_func("/log/frame-cache/any-order", test_any_order);
    g_test_add_func("/log/frame-cache/race", test_race);
    return g_test_run();
}
