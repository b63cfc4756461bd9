/* Files of a log that others take away, replace and put back while it is open, and what a reopen makes of them. */
#include "engine/log/log_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "tests/unit/log/fixture.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SEGMENT(base) "000000000000000000" #base ".log"
#define INDEX(base) "000000000000000000" #base ".index"

static Fixture f;

/* Segments of ten records at 0, 10, 20, .. and an empty one behind them; none of them has a descriptor. */
static void set_up(unsigned n_segments)
{
    fixture_set_up(&f);
    fixture_open(&f);
    for (unsigned i = 0; i < n_segments; i++) {
        fixture_commit_numbers(&f, i * 10, 10);
        g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    }
    fixture_close(&f);
    fixture_open(&f);
}

static void rename_file(const char *from, const char *to)
{
    g_autofree char *from_path = fixture_file(&f, from);
    g_autofree char *to_path = fixture_file(&f, to);
    g_assert_cmpint(rename(from_path, to_path), ==, 0);
}

static void copy_file(const char *from, const char *to)
{
    GByteArray *bytes = fixture_get(&f, from);
    fixture_put(&f, to, bytes->data, bytes->len);
    g_byte_array_unref(bytes);
}

static void expect_all(uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++) {
        g_autofree char *want = g_strdup_printf("%u", (unsigned)i);
        fixture_expect(&f, i, want);
    }
}

static void expect_lost(uint64_t from, uint64_t end)
{
    uint64_t next = 0;
    for (uint64_t i = from; i < end; i++) {
        g_assert_cmpint(fixture_read(&f, i, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, end);
    }
    NrdLogStats stats = fixture_stats(&f);
    g_assert_cmpuint(stats.damage.n_missing, ==, end - from);
    g_assert_cmpuint(stats.damage.first_missing, ==, from);
    g_assert_cmpuint(stats.damage.missing_end, ==, end);
    g_autoptr(GArray) gaps = nrd_log_gaps(f.log);
    g_assert_cmpuint(gaps->len, ==, 1);
    g_assert_cmpuint(g_array_index(gaps, NrdGap, 0).offset, ==, from);
    g_assert_cmpuint(g_array_index(gaps, NrdGap, 0).end_offset, ==, end);
    g_assert_cmpuint(stats.n_unreadable, ==, 0);
}

static void reopen(void)
{
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
}

static void test_lost_and_back(void)
{
    uint64_t n_corrupt = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
    NrdText *text;
    set_up(4);
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    rename_file(SEGMENT(10), "aside");
    expect_lost(10, 20);
    expect_all(0, 10);
    expect_all(20, 40);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, n_corrupt + 1);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 4);
    GString *all = fixture_text(text, 50);
    g_assert_cmpuint(all->len, ==, 20 + 2 * 30);
    g_assert_cmpuint(all->len - 20, ==, fixture_stats(&f).text_bytes - 20);
    g_string_free(all, TRUE);
    rename_file("aside", SEGMENT(10));
    expect_lost(10, 20); /* it takes a reopen */
    reopen();
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    expect_all(0, 40);
    all = fixture_text(text, 50);
    g_assert_cmpuint(all->len, ==, fixture_stats(&f).text_bytes);
    g_string_free(all, TRUE);
    nrd_text_close(text);
    g_assert_cmpuint(fixture_commit(&f, "40"), ==, 40);
    for (int i = 0; i < 3; i++) {
        fixture_crash(&f);
        fixture_open(&f);
        expect_all(0, 41);
    }
    fixture_tear_down(&f);
}

/* Found by the reopen itself; the log says the same after a start. */
static void test_lost_at_the_reopen(void)
{
    set_up(4);
    expect_all(0, 40);
    fixture_remove(&f, SEGMENT(10));
    fixture_remove(&f, SEGMENT(20));
    for (int i = 0; i < 3; i++) {
        reopen();
        expect_all(0, 10);
        expect_all(30, 40);
        g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 20);
        g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 40);
    }
    fixture_crash(&f);
    fixture_open(&f);
    expect_lost(10, 30);
    g_assert_cmpuint(fixture_commit(&f, "40"), ==, 40);
    fixture_tear_down(&f);
}

/* Without its folder nothing is known of what was in it. */
static void test_the_folder_is_gone(void)
{
    g_autofree char *dir = NULL, *aside = NULL;
    set_up(3);
    dir = g_build_filename(f.path, f.options.dir, NULL);
    aside = g_build_filename(f.path, "aside", NULL);
    g_assert_cmpint(rename(dir, aside), ==, 0);
    g_assert_cmpint(fixture_read(&f, 0, NULL, NULL), ==, -EIO);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    g_assert_cmpuint(fixture_stats(&f).n_unreadable, ==, 1);
    g_assert_cmpint(fixture_stats(&f).unreadable_errno, ==, ENOENT);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    g_assert_cmpint(rename(aside, dir), ==, 0);
    expect_all(0, 30);
    g_assert_cmpuint(fixture_stats(&f).n_unreadable, ==, 0);
    fixture_tear_down(&f);
}

/* A read that fails while the file is there loses nothing. */
static void test_unreadable(void)
{
    uint64_t n_told = nrd_counter_get(NRD_COUNTER_UNREADABLE);
    set_up(3);
    fault_set(FAULT_OPEN, 1, -EACCES, true);
    fault.suffix = ".log";
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(fixture_read(&f, 15, NULL, NULL), ==, -EIO);
    NrdLogStats stats = fixture_stats(&f);
    g_assert_cmpuint(stats.n_unreadable, ==, 1);
    g_assert_cmpuint(stats.unreadable, ==, 10);
    g_assert_cmpint(stats.unreadable_errno, ==, EACCES);
    g_assert_cmpuint(stats.damage.n_missing, ==, 0);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_UNREADABLE), ==, n_told + 1);
    fault_clear();
    expect_all(0, 30);
    g_assert_cmpuint(fixture_stats(&f).n_unreadable, ==, 0);
    /* too few descriptors are no news of the segment */
    fixture_close(&f);
    fixture_open(&f);
    fault_set(FAULT_OPEN, 1, -EMFILE, false);
    fault.suffix = ".log";
    g_assert_cmpint(fixture_read(&f, 15, NULL, NULL), ==, -EIO);
    g_assert_cmpuint(fixture_stats(&f).n_unreadable, ==, 0);
    fault_clear();
    fixture_tear_down(&f);
}

/* Segments that an open did not find come back: before, between and behind the others. */
static void test_back_after_an_open(void)
{
    set_up(5);
    fixture_commit(&f, "50");
    fixture_close(&f);
    rename_file(SEGMENT(00), "a");
    rename_file(SEGMENT(20), "b");
    rename_file(SEGMENT(40), "c");
    rename_file(SEGMENT(50), "d");
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 10);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 40);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 51);
    expect_all(30, 40);
    rename_file("a", SEGMENT(00));
    rename_file("b", SEGMENT(20));
    rename_file("c", SEGMENT(40));
    rename_file("d", SEGMENT(50));
    reopen();
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 0);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 51);
    expect_all(0, 51);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    g_assert_cmpuint(fixture_commit(&f, "51"), ==, 51);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 52);
    fixture_tear_down(&f);
}

/* Nothing is acknowledged into a file without a name, or with another's; its offsets are not given out again. */
static void test_the_active_one_is_taken(bool replaced)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    if (replaced) {
        copy_file(SEGMENT_0, "copy");
        rename_file("copy", SEGMENT_0);
    } else {
        fixture_remove(&f, SEGMENT_0);
    }
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    g_assert_true(fixture_stats(&f).by_others);
    g_autofree char *reason = nrd_log_poison_reason(f.log);
    g_assert_nonnull(strstr(reason, replaced ? "replaced by another file" : "removed or moved away"));
    reopen();
    g_assert_cmpint(fixture_stats(&f).poison_errno, ==, 0);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 10);
    if (replaced)
        expect_all(0, 10);
    else
        expect_lost(0, 10);
    /* a crash before the next commit changes nothing of that */
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 10);
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    if (replaced)
        expect_all(0, 11);
    else
        expect_lost(0, 10);
    fixture_tear_down(&f);
}

static void test_removed(void)
{
    test_the_active_one_is_taken(false);
}

static void test_replaced(void)
{
    test_the_active_one_is_taken(true);
}

/* The folder cannot be looked into for want of descriptors: that the file has no name is known all the same. */
static void test_removed_in_a_shortage(void)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    fixture_remove(&f, SEGMENT_0);
    f.log->named_ms = 0; /* a look at the name is due */
    fault_set(FAULT_OPEN, 1, -EMFILE, true);
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    g_assert_true(fixture_stats(&f).by_others);
    fault_clear();
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 10);
    reopen();
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    fixture_expect(&f, 10, "10");
    fixture_tear_down(&f);
}

/* Moved away, it has a name. A shortage is no failure, and the look at the name is not forgotten for it. */
static void test_moved_in_a_shortage(void)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    rename_file(SEGMENT_0, "aside");
    f.log->named_ms = 0;
    fault_set(FAULT_OPEN, 1, -EMFILE, true);
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    fault_clear();
    g_assert_cmpint(fixture_try_commit(&f, "11", &offset), ==, -EIO);
    g_autofree char *reason = nrd_log_poison_reason(f.log);
    g_assert_nonnull(strstr(reason, "removed or moved away"));
    rename_file("aside", SEGMENT_0);
    reopen();
    expect_all(0, 11); /* what got into it meanwhile is there */
    g_assert_cmpuint(fixture_commit(&f, "11"), ==, 11);
    fixture_tear_down(&f);
}

/* The descriptor was closed for want of room and opened again by name, within a second of the last look at that: nothing is
 * acknowledged into the other file, which stays as it is. */
static void test_replaced_and_opened_anew(void)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    copy_file(SEGMENT_0, "copy");
    rename_file("copy", SEGMENT_0);
    GByteArray *before = fixture_get(&f, SEGMENT_0);
    nrd_segment_drop_fd(nrd_log_active(f.log));
    f.log->named_ms = nrd_clock_wall_ms();
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    g_autofree char *reason = nrd_log_poison_reason(f.log);
    g_assert_nonnull(strstr(reason, "replaced by another file"));
    GByteArray *after = fixture_get(&f, SEGMENT_0);
    g_assert_cmpmem(after->data, after->len, before->data, before->len);
    reopen();
    expect_all(0, 10);
    g_byte_array_unref(before);
    g_byte_array_unref(after);
    fixture_tear_down(&f);
}

/* ---- the folder is moved while it is looked into ---- */

static const NrdIo *under;
static NrdIo moving;
static unsigned n_open, n_stat; /* the calls left before the move, on the folder's name; 0: no move */
static bool empties;            /* the file is out of it before */

static void move_folder(void)
{
    g_autofree char *dir = g_build_filename(f.path, f.options.dir, NULL);
    g_autofree char *aside = g_build_filename(f.path, "aside", NULL);
    g_autofree char *file = fixture_file(&f, SEGMENT(10));
    g_autofree char *file_aside = g_build_filename(f.path, "file", NULL);
    if (empties)
        g_assert_cmpint(rename(file, file_aside), ==, 0);
    g_assert_cmpint(rename(dir, aside), ==, 0);
}

static void move_back(void)
{
    g_autofree char *dir = g_build_filename(f.path, f.options.dir, NULL);
    g_autofree char *aside = g_build_filename(f.path, "aside", NULL);
    g_autofree char *file = fixture_file(&f, SEGMENT(10));
    g_autofree char *file_aside = g_build_filename(f.path, "file", NULL);
    g_assert_cmpint(rename(aside, dir), ==, 0);
    if (empties)
        g_assert_cmpint(rename(file_aside, file), ==, 0);
}

static int move_after_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = under->open(dirfd, path, flags, mode);
    if (strcmp(path, f.options.dir) == 0 && n_open > 0 && --n_open == 0)
        move_folder();
    return fd;
}

static int move_after_stat(int dirfd, const char *name, struct stat *ret_st)
{
    int r = under->fstatat(dirfd, name, ret_st);
    if (strcmp(name, f.options.dir) == 0 && n_stat > 0 && --n_stat == 0)
        move_folder();
    return r;
}

/* The file's own open met the folder on its way, too. Nothing is known, hence nothing lost. */
static void expect_not_lost(void)
{
    fault_set(FAULT_OPEN, 1, -ENOENT, false);
    fault.suffix = ".log";
    g_assert_cmpint(fixture_read(&f, 15, NULL, NULL), ==, -EIO);
    fault_clear();
    if (n_open + n_stat == 0)
        move_back();
    n_stat = 0;
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    expect_all(0, 30);
}

static void test_the_folder_moves(void)
{
    set_up(3);
    under = nrd_io;
    moving = *nrd_io;
    moving.open = move_after_open;
    moving.fstatat = move_after_stat;
    nrd_io = &moving;
    empties = false;
    n_stat = 1;
    expect_not_lost();
    fixture_close(&f);
    fixture_open(&f);
    empties = true;
    n_open = 1;
    expect_not_lost();
    g_assert_cmpuint(n_open, ==, 0);
    nrd_io = under;
    fixture_tear_down(&f);
}

/* All of it: what is left is an empty segment that stands for what is lost. */
static void test_everything_is_taken(void)
{
    uint64_t offset;
    set_up(3);
    fixture_commit_numbers(&f, 30, 3);
    fixture_remove(&f, SEGMENT(00));
    fixture_remove(&f, SEGMENT(10));
    fixture_remove(&f, SEGMENT(20));
    fixture_remove(&f, SEGMENT(30));
    g_assert_cmpint(fixture_try_commit(&f, "33", &offset), ==, -EIO);
    reopen();
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 33);
    g_assert_cmpuint(fixture_commit(&f, "33"), ==, 33);
    fixture_expect(&f, 33, "33");
    fixture_crash(&f);
    fixture_open(&f);
    fixture_expect(&f, 33, "33");
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 34);
    fixture_tear_down(&f);
}

/* The active segment is empty, and taken: the one that stands there then takes the next records, and no other object of the
 * log is on its file, to be removed with it. */
static void test_an_empty_one_is_taken(bool replaced)
{
    uint64_t offset, n;
    set_up(1);
    if (replaced) {
        rename_file(SEGMENT(10), "aside");
        fixture_put(&f, SEGMENT(10), "", 0);
    } else {
        fixture_remove(&f, SEGMENT(10));
    }
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    reopen();
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    g_assert_cmpint(nrd_log_trim(f.log, 10, &n), ==, 0);
    g_assert_cmpuint(n, ==, 1);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    g_assert_true(fixture_exists(&f, SEGMENT(10)));
    expect_all(10, 11);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(10, 11);
    g_assert_cmpuint(fixture_commit(&f, "11"), ==, 11);
    fixture_tear_down(&f);
}

static void test_removed_empty(void)
{
    test_an_empty_one_is_taken(false);
}

static void test_replaced_empty(void)
{
    test_an_empty_one_is_taken(true);
}

/* The same with something in it that is no record: it is not cut, and the way on is told. */
static void test_replaced_by_rubbish(void)
{
    uint64_t offset;
    set_up(1);
    rename_file(SEGMENT(10), "aside");
    fixture_put(&f, SEGMENT(10), "no record", 9);
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
        g_assert_cmpint(fixture_stats(&f).poison_errno, !=, 0);
        g_assert_nonnull(strstr(f.log->why, "what is in it is no record; move it away"));
        expect_all(0, 10);
    }
    GByteArray *now = fixture_get(&f, SEGMENT(10));
    g_assert_cmpuint(now->len, >=, 9);
    g_assert_cmpmem(now->data, 9, "no record", 9);
    g_byte_array_unref(now);
    rename_file(SEGMENT(10), "rubbish");
    reopen();
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 11);
    fixture_tear_down(&f);
}

/* Zeros are what a commit may have written ahead. */
static void test_replaced_by_zeros(void)
{
    uint8_t zeros[5000] = { 0 };
    uint64_t offset;
    set_up(1);
    rename_file(SEGMENT(10), "aside");
    fixture_put(&f, SEGMENT(10), zeros, sizeof zeros);
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    reopen();
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 11);
    fixture_tear_down(&f);
}

/* A longer file is copied over the one that is written to, in place: it is read, and no byte of it is cut. */
static void test_written_over(void)
{
    fixture_set_up(&f);
    fixture_open(&f);
    for (unsigned i = 0; i < 5; i++)
        fixture_commit_numbers(&f, i * 10, 10);
    fixture_close(&f);
    GByteArray *backup = fixture_get(&f, SEGMENT_0);
    fixture_tear_down(&f);

    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    g_autofree char *path = fixture_file(&f, SEGMENT_0);
    FILE *file = fopen(path, "r+b");
    g_assert_nonnull(file);
    g_assert_cmpuint(fwrite(backup->data, 1, backup->len, file), ==, backup->len);
    g_assert_cmpint(fclose(file), ==, 0);
    reopen();
    GByteArray *now = fixture_get(&f, SEGMENT_0);
    g_assert_cmpuint(now->len, >=, backup->len); /* zeros that were written ahead */
    g_assert_cmpmem(now->data, backup->len, backup->data, backup->len);
    expect_all(0, 50);
    g_assert_cmpuint(fixture_commit(&f, "50"), ==, 50);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 51);
    g_byte_array_unref(now);
    g_byte_array_unref(backup);
    fixture_tear_down(&f);
}

/* Damage that was known, and bytes that are right again: in the same file, of the same length. */
static void test_mended_in_place(void)
{
    set_up(3);
    GByteArray *good = fixture_get(&f, SEGMENT(10));
    fixture_flip(&f, SEGMENT(10), good->len - 20);
    g_assert_cmpint(fixture_read(&f, 15, NULL, NULL), ==, -EBADMSG);
    g_assert_cmpuint(fixture_stats(&f).damage.n_frames, ==, 1);
    fixture_flip(&f, SEGMENT(10), good->len - 20);
    reopen();
    expect_all(0, 30);
    g_assert_cmpuint(fixture_stats(&f).damage.n_frames, ==, 0);
    g_byte_array_unref(good);
    fixture_tear_down(&f);
}

/* The same in the segment that is written to. */
static void test_mended_active(void)
{
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    size_t second = nrd_segment_size_bytes(nrd_log_active(f.log));
    fixture_commit_numbers(&f, 10, 10);
    fixture_commit_numbers(&f, 20, 10);
    fixture_flip(&f, SEGMENT_0, 2);
    fixture_flip(&f, SEGMENT_0, second + 2);
    g_assert_cmpint(fixture_read(&f, 5, NULL, NULL), ==, -EBADMSG);
    g_assert_cmpuint(fixture_stats(&f).damage.n_records, ==, 20);
    fixture_flip(&f, SEGMENT_0, second + 2); /* the same place, but less of it */
    g_assert_cmpint(nrd_segment_repair(nrd_log_active(f.log), nrd_segment_version(nrd_log_active(f.log))), ==, 0);
    g_assert_cmpuint(fixture_stats(&f).damage.n_records, ==, 10);
    expect_all(10, 30);
    fixture_flip(&f, SEGMENT_0, 2);
    reopen();
    expect_all(0, 30);
    g_assert_cmpuint(fixture_stats(&f).damage.n_frames, ==, 0);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 1); /* it is added to again */
    g_assert_cmpuint(fixture_commit(&f, "30"), ==, 30);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 31);
    fixture_tear_down(&f);
}

/* Offsets were given out that no record stands for any more, and the segment that would say so cannot be begun: it is not
 * reopened, and so no crash gives them out again. */
static void test_no_room_behind_a_lost_end(bool removed)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    if (removed) {
        fixture_remove(&f, SEGMENT_0);
    } else {
        g_autofree char *path = fixture_file(&f, SEGMENT_0);
        fault_set(FAULT_FDATASYNC, 1, -EIO, false);
        g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
        g_assert_cmpint(truncate(path, 5), ==, 0);
    }
    g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = SEGMENT(10);
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
        g_assert_cmpint(fixture_stats(&f).poison_errno, !=, 0);
        g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    }
    fault_clear();
    reopen();
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 10);
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    expect_all(10, 11);
    fixture_tear_down(&f);
}

/* ... also by one that comes before there is room: hwm says what the segment cannot. And from the first record that follows
 * on it says nothing any more. */
static void test_no_room_and_a_crash(bool noticed, const char *suffix)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    fixture_remove(&f, SEGMENT_0);
    if (noticed)
        g_assert_cmpint(fixture_try_commit(&f, "10", &offset), ==, -EIO);
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = suffix;
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    fixture_crash(&f);
    fault_clear();
    for (int i = 0; i < 2; i++) {
        fixture_open(&f);
        fixture_crash(&f);
    }
    fixture_open(&f);
    g_assert_cmpuint(fixture_commit(&f, "10"), ==, 10);
    g_assert_cmpuint(fixture_commit(&f, "11"), ==, 11);
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(fixture_commit(&f, "12"), ==, 12);
    expect_all(10, 13);
    fixture_tear_down(&f);
}

static void test_no_room_unnoticed(void)
{
    test_no_room_and_a_crash(false, SEGMENT(10));
}

static void test_no_room_noticed(void)
{
    test_no_room_and_a_crash(true, SEGMENT(10));
}

/* The file that stands for the one that was removed cannot be made, either. */
static void test_no_room_at_all(void)
{
    test_no_room_and_a_crash(false, SEGMENT_0);
    test_no_room_and_a_crash(true, SEGMENT_0);
}

static void test_no_room_removed(void)
{
    test_no_room_behind_a_lost_end(true);
}

static void test_no_room_cut(void)
{
    test_no_room_behind_a_lost_end(false);
}

/* ... and what is being copied there meanwhile is not taken for what a failed commit has left. */
static void test_no_room_and_a_copy_that_grows(void)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    size_t half = nrd_segment_size_bytes(nrd_log_active(f.log));
    fixture_commit_numbers(&f, 10, 10);
    size_t size = nrd_segment_size_bytes(nrd_log_active(f.log));
    GByteArray *bytes = fixture_get(&f, SEGMENT_0);
    g_autofree char *path = fixture_file(&f, SEGMENT_0);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "20", &offset), ==, -EIO);
    rename_file(SEGMENT_0, "aside");
    g_assert_true(g_file_set_contents(path, (const char *)bytes->data, (gssize)half, NULL));
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = SEGMENT(20);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    expect_lost(10, 20);
    FILE *file = fopen(path, "ab");
    g_assert_nonnull(file);
    g_assert_cmpuint(fwrite(bytes->data + half, 1, size - half, file), ==, size - half);
    g_assert_cmpint(fclose(file), ==, 0);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    expect_all(0, 20);
    fault_clear();
    reopen();
    g_assert_cmpuint(fixture_commit(&f, "20"), ==, 20);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(0, 21);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* Where the records themselves say it, the next commit begins the segment. */
static void test_no_room_behind_damage(void)
{
    uint64_t offset;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    fixture_commit_numbers(&f, 10, 10);
    fixture_flip(&f, SEGMENT_0, 30);
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = SEGMENT(20);
    reopen();
    expect_all(10, 20);
    g_assert_cmpint(fixture_try_commit(&f, "20", &offset), ==, -ENOSPC);
    fault_clear();
    g_assert_cmpuint(fixture_commit(&f, "20"), ==, 20);
    fixture_crash(&f);
    fixture_open(&f);
    expect_all(10, 21);
    fixture_tear_down(&f);
}

/* Retention has taken segments out whose files a reader still holds: a reopen does not bring them back. */
static void test_detached_stay_out(void)
{
    uint64_t n;
    NrdRaw *raw;
    set_up(3);
    g_assert_cmpint(nrd_raw_open(f.log, 0, &raw), ==, 0);
    g_assert_cmpint(nrd_log_trim(f.log, 20, &n), ==, 0);
    g_assert_cmpuint(n, ==, 2);
    reopen();
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, 20);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 0);
    nrd_raw_close(raw);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    g_assert_false(fixture_exists(&f, SEGMENT(00)));
    reopen();
    expect_all(20, 30);
    fixture_tear_down(&f);
}

/* What stands in the way is told, and nothing has changed. */
static void test_odd_file(void)
{
    g_autofree char *path = NULL;
    set_up(2);
    expect_all(0, 20);
    rename_file(SEGMENT(10), "aside");
    path = fixture_file(&f, SEGMENT(10));
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, -EIO);
    expect_all(0, 10);
    g_assert_cmpuint(fixture_commit(&f, "20"), ==, 20);
    g_assert_cmpint(rmdir(path), ==, 0);
    rename_file("aside", SEGMENT(10));
    reopen();
    expect_all(0, 21);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/presence/lost-and-back", test_lost_and_back);
    g_test_add_func("/log/presence/lost-at-the-reopen", test_lost_at_the_reopen);
    g_test_add_func("/log/presence/folder-gone", test_the_folder_is_gone);
    g_test_add_func("/log/presence/unreadable", test_unreadable);
    g_test_add_func("/log/presence/back-after-an-open", test_back_after_an_open);
    g_test_add_func("/log/presence/removed", test_removed);
    g_test_add_func("/log/presence/replaced", test_replaced);
    g_test_add_func("/log/presence/removed-in-a-shortage", test_removed_in_a_shortage);
    g_test_add_func("/log/presence/moved-in-a-shortage", test_moved_in_a_shortage);
    g_test_add_func("/log/presence/replaced-and-opened-anew", test_replaced_and_opened_anew);
    g_test_add_func("/log/presence/folder-moves", test_the_folder_moves);
    g_test_add_func("/log/presence/removed-empty", test_removed_empty);
    g_test_add_func("/log/presence/replaced-empty", test_replaced_empty);
    g_test_add_func("/log/presence/replaced-by-rubbish", test_replaced_by_rubbish);
    g_test_add_func("/log/presence/replaced-by-zeros", test_replaced_by_zeros);
    g_test_add_func("/log/presence/everything", test_everything_is_taken);
    g_test_add_func("/log/presence/written-over", test_written_over);
    g_test_add_func("/log/presence/mended-in-place", test_mended_in_place);
    g_test_add_func("/log/presence/mended-active", test_mended_active);
    g_test_add_func("/log/presence/no-room-removed", test_no_room_removed);
    g_test_add_func("/log/presence/no-room-cut", test_no_room_cut);
    g_test_add_func("/log/presence/no-room-unnoticed", test_no_room_unnoticed);
    g_test_add_func("/log/presence/no-room-noticed", test_no_room_noticed);
    g_test_add_func("/log/presence/no-room-at-all", test_no_room_at_all);
    g_test_add_func("/log/presence/no-room-growing", test_no_room_and_a_copy_that_grows);
    g_test_add_func("/log/presence/no-room-damage", test_no_room_behind_damage);
    g_test_add_func("/log/presence/detached", test_detached_stay_out);
    g_test_add_func("/log/presence/odd-file", test_odd_file);
    return g_test_run();
}
