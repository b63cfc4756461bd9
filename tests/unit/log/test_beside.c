/* What happens beside a read, in the middle of it: retention, an abandon, a reopen, a file that goes. The middle is a file
 * system call of the read. */
#include "fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/log/state/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* What is done right before the next open of a file whose name ends so, the next read, or the next close; once. */
static struct {
    const char *open_suffix;
    bool at_pread;
    bool at_close;
    void (*act)(void);
    unsigned n_done;
} middle;
static Fixture f;
static NrdIo hooked;
static const NrdIo *below;

static void act(void)
{
    middle.open_suffix = NULL;
    middle.at_pread = false;
    middle.at_close = false;
    middle.n_done++;
    middle.act();
}

static int hooked_open(int dirfd, const char *path, int flags, mode_t mode)
{
    if (middle.open_suffix != NULL && g_str_has_suffix(path, middle.open_suffix))
        act();
    return below->open(dirfd, path, flags, mode);
}

static ssize_t hooked_pread(int fd, void *buf, size_t size, int64_t pos)
{
    if (middle.at_pread)
        act();
    return below->pread(fd, buf, size, pos);
}

static int hooked_close(int fd)
{
    if (middle.at_close)
        act();
    return below->close(fd);
}

/* Segments of two records each, [0, 2) and [2, 4), and the active one from 4 on with one. */
static void set_up(void)
{
    fixture_set_up(&f);
    below = nrd_io;
    hooked = *below;
    hooked.open = hooked_open;
    hooked.pread = hooked_pread;
    hooked.close = hooked_close;
    nrd_io = &hooked;
    memset(&middle, 0, sizeof middle);
    fixture_open(&f);
    for (unsigned i = 0; i < 4; i++) {
        fixture_commit_numbers(&f, i, 1);
        if (i % 2 == 1)
            g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    }
    fixture_commit_numbers(&f, 4, 1);
}

/* Closes every descriptor of the log, and forgets what is in memory: the next read opens a file and reads it. */
static void cool(void)
{
    NrdSegmentList *list = nrd_log_segments(f.log);
    for (guint i = 0; i < list->n; i++) {
        nrd_segment_drop_fd(list->items[i]);
        nrd_frame_cache_drop(list->items[i]);
    }
    nrd_segment_list_unref(list);
}

static int read_next(NrdLogCursor *cursor, uint64_t offset)
{
    NrdRecordView view;
    uint64_t next;
    int r = nrd_log_cursor_read(cursor, offset, &view, &next);
    if (r == 0)
        g_assert_cmpint(view.payload[0], ==, '0' + (int)offset);
    return r;
}

/* A cursor that has read record 0 and rests: the next read opens a file and reads it. */
static NrdLogCursor *resting_cursor(void)
{
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    g_assert_cmpint(read_next(cursor, 0), ==, 0);
    cool();
    nrd_log_cursor_rest(cursor);
    return cursor;
}

static void trim_and_remove(void)
{
    uint64_t n;
    g_assert_cmpint(nrd_log_trim(f.log, 4, &n), ==, 0);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
}

/* A cursor that goes on to the next frame while retention takes its segment keeps the file until it has read. */
static void test_next_frame(void)
{
    uint64_t n_left;
    set_up();
    NrdLogCursor *cursor = resting_cursor();
    middle.act = trim_and_remove;
    middle.open_suffix = SEGMENT_0;
    g_assert_cmpint(read_next(cursor, 1), ==, 0);
    g_assert_cmpuint(middle.n_done, ==, 1);
    g_assert_true(fixture_exists(&f, SEGMENT_0));
    g_assert_cmpint(read_next(cursor, 2), ==, -ENOENT);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    g_assert_cmpuint(n_left, ==, 0);
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
}

static void abandon(void)
{
    nrd_log_abandon(f.log);
}

/* A log that is abandoned meanwhile answers only that: what is read under its name may be another's. */
static void test_abandoned(void)
{
    set_up();
    NrdLogCursor *cursor = resting_cursor();
    middle.act = abandon;
    middle.open_suffix = SEGMENT_0;
    g_assert_cmpint(read_next(cursor, 1), ==, -ESHUTDOWN);
    g_assert_cmpuint(middle.n_done, ==, 1);
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
}

/* Nor does it write a side file into a folder that may be another's. */
static void test_abandoned_rebuild(void)
{
    set_up();
    NrdSegmentList *list = nrd_log_segments(f.log);
    fixture_remove(&f, "00000000000000000000.index");
    middle.act = abandon;
    middle.at_pread = true;
    g_assert_cmpint(nrd_segment_repair(list->items[0], nrd_segment_version(list->items[0])), ==, 0);
    g_assert_cmpuint(middle.n_done, ==, 1);
    g_assert_false(fixture_exists(&f, "00000000000000000000.index"));
    nrd_segment_list_unref(list);
    fixture_tear_down(&f);
}

/* Records of a segment whose file somebody took away are lost: not taken by retention. */
static void test_file_gone(void)
{
    set_up();
    cool();
    fixture_remove(&f, SEGMENT_0);
    g_assert_cmpint(fixture_read(&f, 0, NULL, NULL), ==, -EBADMSG);
    g_assert_cmpint(fixture_read(&f, 1, NULL, NULL), ==, -EBADMSG);
    fixture_expect(&f, 2, "2");
    fixture_tear_down(&f);
}

static void go_idle_and_remove(void)
{
    uint64_t n_left;
    nrd_clock_shift_mono_ms(60 * 1000);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    g_assert_cmpuint(n_left, ==, 2);
}

/* A text that goes back just as it is taken for idle keeps the segment that it reads. */
static void test_idle_text(void)
{
    char buf[16];
    size_t n;
    uint64_t n_left;
    NrdText *text;
    set_up();
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    g_assert_cmpint(nrd_text_read(text, 0, buf, sizeof buf, &n), ==, 0);
    g_assert_cmpuint(n, ==, 10);
    cool();
    g_assert_cmpint(nrd_log_trim(f.log, 4, &n_left), ==, 0);
    middle.act = go_idle_and_remove;
    middle.open_suffix = SEGMENT_0;
    g_assert_cmpint(nrd_text_read(text, 0, buf, 2, &n), ==, 0);
    g_assert_cmpuint(middle.n_done, ==, 1);
    g_assert_cmpmem(buf, n, "0\n", 2);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    g_assert_cmpuint(n_left, ==, 0);
    g_assert_cmpint(nrd_text_read(text, 0, buf, 2, &n), ==, -ENOENT);
    nrd_text_close(text);
    nrd_clock_shift_mono_ms(-60 * 1000);
    fixture_tear_down(&f);
}

static void commit_one(void)
{
    fixture_commit_numbers(&f, 5, 1);
}

/* While the active segment is pinned: lets go of its descriptor at the unpin, which is the middle then. */
static void commit_at_unpin(void)
{
    nrd_segment_drop_fd(nrd_log_active(f.log));
    middle.act = commit_one;
    middle.at_close = true;
}

/* A text that is opened at the end while a record is committed has that record, and nothing before it. */
static void test_text_at_end(void)
{
    char buf[16];
    size_t n;
    NrdText *text;
    set_up();
    cool();
    middle.act = commit_at_unpin;
    middle.open_suffix = "4.log";
    g_assert_cmpint(nrd_text_open_from(f.log, 5, &text), ==, 0);
    g_assert_cmpuint(middle.n_done, ==, 2);
    g_assert_cmpint(nrd_text_read(text, 0, buf, sizeof buf, &n), ==, 0);
    g_assert_cmpmem(buf, n, "5\n", 2);
    nrd_text_close(text);
    fixture_tear_down(&f);
}

/* Descriptors of this process on files of segments, removed ones too. */
static unsigned n_open_segments(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++) {
        char link[32], target[256];
        g_snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, target, sizeof target - 1);
        target[MAX(size, 0)] = '\0';
        n += strstr(target, "/p/0000") != NULL; /* not what the output may go to */
    }
    return n;
}

/* A cursor that rests in a segment keeps neither the disk's space nor a descriptor once the file is removed. */
static void test_space_comes_back(void)
{
    set_up();
    NrdLogCursor *cursor = nrd_log_cursor_new(f.log);
    cool();
    g_assert_cmpint(read_next(cursor, 0), ==, 0);
    g_assert_cmpuint(n_open_segments(), ==, 1);
    trim_and_remove();
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    g_assert_cmpuint(n_open_segments(), ==, 0);
    nrd_log_cursor_free(cursor);
    fixture_tear_down(&f);
}

/* A closed log has no descriptor, not even of segments that a reader kept from being removed. */
static void test_close_closes(void)
{
    uint64_t n;
    NrdRaw *raw;
    set_up();
    g_assert_cmpint(nrd_raw_open(f.log, 0, &raw), ==, 0);
    g_assert_cmpint(nrd_raw_read(raw, 0, &(char){ 0 }, 1, &(size_t){ 0 }), ==, 0);
    g_assert_cmpint(nrd_log_trim(f.log, 4, &n), ==, 0);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpuint(n_open_segments(), ==, 0);
    nrd_raw_close(raw);
    fixture_tear_down(&f);
}

static void reopen(void)
{
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
}

/* A reopen while a scan is among hidden records takes nothing of them away, and nothing is taken for damage. */
static void test_reopen_under_scan(void)
{
    uint8_t hwm[8] = { 0, 0, 0, 0, 0, 0, 0, 5 };
    set_up();
    fixture_commit_numbers(&f, 5, 1);
    fixture_crash(&f);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 5);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 6);
    NrdSegment *active = nrd_log_active(f.log);
    uint64_t n_corrupt = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
    middle.act = reopen;
    middle.at_pread = true;
    g_assert_cmpint(nrd_segment_repair(active, nrd_segment_version(active)), ==, 0);
    g_assert_cmpuint(middle.n_done, ==, 1);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 6);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, n_corrupt);
    fixture_expect(&f, 4, "4");
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/beside/next-frame", test_next_frame);
    g_test_add_func("/log/beside/abandoned", test_abandoned);
    g_test_add_func("/log/beside/abandoned-rebuild", test_abandoned_rebuild);
    g_test_add_func("/log/beside/file-gone", test_file_gone);
    g_test_add_func("/log/beside/idle-text", test_idle_text);
    g_test_add_func("/log/beside/text-at-end", test_text_at_end);
    g_test_add_func("/log/beside/space-comes-back", test_space_comes_back);
    g_test_add_func("/log/beside/close-closes", test_close_closes);
    g_test_add_func("/log/beside/reopen-under-scan", test_reopen_under_scan);
    return g_test_run();
}
