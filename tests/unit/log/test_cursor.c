/* Cursors: many records at a time, and what follows them read ahead. */
#include "engine/log/reading/cursor_private.h"
#include "model.h"

#include <errno.h>

#define FRAME_RECORDS 30000 /* frames longer than what is read at a time anyway */

/* The numbers from first on. */
typedef struct Taken {
    uint64_t next;
    uint64_t end; /* the first one that has no room */
} Taken;

static bool take(void *user_data, const NrdRecordView *view)
{
    Taken *taken = user_data;
    char want[24];
    int n = g_snprintf(want, sizeof want, "%" G_GUINT64_FORMAT, taken->next);
    g_assert_cmpuint(view->offset, ==, taken->next);
    g_assert_cmpmem(view->payload, view->payload_size, want, (size_t)n);
    if (taken->next == taken->end)
        return false;
    taken->next++;
    return true;
}

/* Reads n from offset on, with room up to end; returns the error. */
static int read_run(NrdLogCursor *cursor, uint64_t offset, uint32_t n, uint64_t end, uint64_t *ret_end)
{
    Taken taken = { offset, end };
    uint64_t next;
    int rc;
    uint32_t n_taken = nrd_log_cursor_read_run(cursor, offset, n, take, &taken, &next, &rc);
    g_assert_cmpuint(offset + n_taken, ==, taken.next);
    *ret_end = rc == -EBADMSG ? next : taken.next;
    return rc;
}

static void set_up(Fixture *f, unsigned n_frames, unsigned n_records)
{
    fixture_set_up(f);
    fixture_open(f);
    settings(f, (uint64_t)64 * NRD_MIB, NRD_CODEC_NONE);
    for (unsigned i = 0; i < n_frames; i++)
        fixture_commit_numbers(f, i * n_records, n_records);
}

/* Whatever the cuts, within frames and across them; when one without room is asked for again, and when the one before it is. */
static void test_run(void)
{
    Fixture f;
    g_autoptr(GRand) rand = g_rand_new_with_seed(3);
    set_up(&f, 50, 20);
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    for (int i = 0; i < 2000; i++) {
        uint64_t at = (uint64_t)g_rand_int_range(rand, 0, 1000), end;
        for (int j = 0; j < 5 && at < 1000; j++) {
            uint32_t n = (uint32_t)g_rand_int_range(rand, 1, 60);
            n = MIN(n, (uint32_t)(1000 - at));
            uint64_t room = g_rand_boolean(rand) ? at + (uint64_t)g_rand_int_range(rand, 0, 60) : UINT64_MAX;
            g_assert_cmpint(read_run(cursor, at, n, room, &end), ==, 0);
            g_assert_cmpuint(end, ==, MIN(at + n, room));
            at = end > 0 && g_rand_boolean(rand) ? end - 1 : end;
        }
    }
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
}

/* What cannot be read ends a run; what lies before it is given. */
static void test_ends(void)
{
    Fixture f;
    uint64_t end;
    set_up(&f, 3, 20);
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    g_assert_cmpint(read_run(cursor, 50, 20, UINT64_MAX, &end), ==, -ENOENT); /* the high watermark */
    g_assert_cmpuint(end, ==, 60);
    g_assert_cmpint(read_run(cursor, 60, 1, UINT64_MAX, &end), ==, -ENOENT);
    nrd_log_cursor_free(cursor);
    fixture_close(&f);
    g_autoptr(GByteArray) bytes = fixture_get(&f, SEGMENT_0);
    fixture_flip(&f, SEGMENT_0, bytes->len / 2); /* in the second frame */
    fixture_open(&f);
    cursor = nrd_log_cursor_new(f.log);
    Taken taken = { 10, UINT64_MAX };
    uint64_t next;
    int rc;
    g_assert_cmpuint(nrd_log_cursor_read_run(cursor, 10, 50, take, &taken, &next, &rc), ==, 10);
    g_assert_cmpint(rc, ==, -EBADMSG);
    g_assert_cmpuint(next, ==, 40);
    g_assert_cmpint(read_run(cursor, 40, 20, UINT64_MAX, &end), ==, 0);
    g_assert_cmpuint(end, ==, 60);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpint(read_run(cursor, 40, 20, UINT64_MAX, &end), ==, -ESHUTDOWN);
    g_assert_cmpuint(end, ==, 40);
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
}

/* A backlog's next frame lies ready when it is wanted, and nothing is kept at the tail, at rest, or without the cursor. */
static void test_ahead(void)
{
    Fixture f;
    uint64_t end;
    nrd_frame_cache_set_limit(0); /* the disk alone */
    set_up(&f, 6, FRAME_RECORDS);
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    g_assert_cmpint(read_run(cursor, 0, FRAME_RECORDS, UINT64_MAX, &end), ==, 0);
    g_assert_cmpint(read_run(cursor, end, 1, UINT64_MAX, &end), ==, 0); /* in order: now it asks for the third */
    g_assert_true(nrd_frame_ahead_settle(cursor->frames));
    fault_set(FAULT_PREAD, 1, -EIO, true);
    g_assert_cmpint(read_run(cursor, end, FRAME_RECORDS, UINT64_MAX, &end), ==, 0);
    g_assert_cmpuint(end, >, 2 * FRAME_RECORDS);
    nrd_frame_ahead_settle(cursor->frames);
    fault_clear();
    nrd_log_cursor_rest(cursor);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 0);
    g_assert_cmpint(read_run(cursor, end, 6 * FRAME_RECORDS - (uint32_t)end, UINT64_MAX, &end), ==, 0);
    nrd_log_cursor_rest(cursor); /* as who reads does at the tail */
    nrd_frame_ahead_settle(cursor->frames);
    nrd_log_cursor_rest(cursor);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 0);
    g_assert_cmpint(read_run(cursor, 0, 2 * FRAME_RECORDS, UINT64_MAX, &end), ==, 0);
    nrd_frame_ahead_settle(cursor->frames);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 1);
    nrd_log_cursor_reset(cursor);
    g_assert_null(cursor->frames);
    g_assert_cmpint(read_run(cursor, 0, 2 * FRAME_RECORDS, UINT64_MAX, &end), ==, 0);
    nrd_log_cursor_free(cursor); /* whatever it is doing */
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 0);
    nrd_frame_cache_set_limit(64 << 20);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/cursor/run", test_run);
    g_test_add_func("/log/cursor/ends", test_ends);
    g_test_add_func("/log/cursor/ahead", test_ahead);
    return g_test_run();
}
