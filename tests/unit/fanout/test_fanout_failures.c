/* The fan-out when something fails: commits of the child, reads of the parent, the files of cursors, the disk. */
#include "world.h"

#include "engine/base/diag.h"
#include "engine/fanout/cursor_store.h"
#include "engine/io/io.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* The part that was committed is not committed again when the other one is. */
static void test_part_fails(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[1].fail_commits = 2;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    put_rec(f, 0, "0", "c", 1);
    put_rec(f, 0, "1", "d", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 1, "b d");
    assert_becomes(f->child, 0, "a c");
    put(f, 0, "0", "e");
    assert_becomes(f->child, 0, "a c e");
    wait_cursor(f, f->child, 0, 5);
}

static void test_moves_after_three(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[1].fail_commits = 3;
    put_rec(f, 0, "1", "a", 1);
    put_rec(f, 0, "0", "b", 1);
    put_rec(f, 0, "1", "c", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "b a c");
    put(f, 0, "1", "d"); /* home again */
    assert_becomes(f->child, 1, "d");
    assert_becomes(f->child, 0, "b a c");
}

/* Records that move to a partition whose own part is committed in the same pass are not taken for committed. */
static void test_moves_beside_a_commit(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[0].poisons = true;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    add_link(f, f->child, 0, 0); /* after both: one pass sees them */
    assert_becomes(f->child, 1, "b a");
    wait_cursor(f, f->child, 0, 2);
}

static void test_poisoned(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 3;
    f->child->parts[1].poisoned = true;
    add_link(f, f->child, 0, 0);
    put(f, 0, "1", "a");
    put(f, 0, "1", "b");
    assert_becomes(f->child, 2, "a b");
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(g_array_index(info.rows, NrdFanoutRow, 0).n_failed, ==, 0);
    g_array_unref(info.rows);
    pthread_mutex_lock(&world);
    f->child->parts[1].poisoned = false;
    pthread_mutex_unlock(&world);
    put(f, 0, "1", "c");
    assert_becomes(f->child, 1, "c");
}

/* Nowhere to go: tried again until it is well, told in the row, at once when somebody says that it may be. */
static void test_waits_for_the_child(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->parts[0].fail_commits = -1;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    WAIT_FOR(f, f->child, 0, row, row->n_failed >= 4 && row->error == -ENOSPC && row->cursor == 0);
    pthread_mutex_lock(&world);
    f->child->parts[0].fail_commits = 0;
    pthread_mutex_unlock(&world);
    nrd_fanout_kick(f->fanout, f->child);
    assert_becomes(f->child, 0, "a");
    WAIT_FOR(f, f->child, 0, row, row->n_failed == 0 && row->error == 0);
}

/* A child whose commits do not return holds up nobody but itself, with all its cursors. */
static void test_hanging_child(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = MAX_PARTS;
    f->child->parts[0].hang = true;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        put_rec(f, i, NULL, "x", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging < 2)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    Topic *other = topic_new("other", 1);
    add_link(f, other, 0, 0);
    wait_hwm(other, 0, MAX_PARTS);
    pthread_mutex_lock(&world);
    g_assert_cmpint(n_hanging, ==, 2);
    f->child->parts[0].hang = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&world);
    wait_hwm(f->child, 0, MAX_PARTS);
    stop(f);
    topic_free(other);
}

static void test_read_fails(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->parts[0].fail_reads = 3;
    put_rec(f, 0, NULL, "a", 1);
    put_rec(f, 0, NULL, "b", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a b");
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 0); /* an error of the disk is no loss */
    g_array_unref(info.rows);
}

static void test_lost_records(Fixture *f, gconstpointer data)
{
    (void)data;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_DROPPED);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 0), ==, 0);
    for (char c = 'a'; c <= 'h'; c++)
        put_rec(f, 0, NULL, (char[]){ c, '\0' }, 1);
    f->parent->parts[0].oldest = 3;                                 /* retention was faster */
    ((Rec *)f->parent->parts[0].records->pdata[5])->damaged = true; /* f */
    ((Rec *)f->parent->parts[0].records->pdata[7])->damaged = true; /* h, the last one */
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "d e g");
    wait_cursor(f, f->child, 0, 8);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 5);
    g_assert_cmpuint(info.n_copied, ==, 3);
    g_array_unref(info.rows);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_DROPPED) - before, ==, 5);
}

/* While a batch waits to be tried again its records may be lost too. */
static void test_lost_while_it_waits(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[0].poisoned = f->child->parts[1].poisoned = true;
    add_link(f, f->child, 0, 0);
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    put_rec(f, 0, "0", "c", 1);
    notify(f, 0);
    WAIT_FOR(f, f->child, 0, row, row->n_failed > 0);
    pthread_mutex_lock(&world);
    f->parent->parts[0].oldest = 1;
    f->child->parts[0].poisoned = f->child->parts[1].poisoned = false;
    pthread_mutex_unlock(&world);
    nrd_fanout_kick(f->fanout, f->child);
    assert_becomes(f->child, 0, "c");
    assert_becomes(f->child, 1, "b");
    wait_cursor(f, f->child, 0, 3);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 1);
    g_array_unref(info.rows);
}

/* The log has lost its end: what comes there next has offsets that the cursor says are copied. */
static void test_above_the_end(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 2), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    put(f, 0, NULL, "c");
    assert_becomes(f->child, 0, "a b c");
    wait_cursor(f, f->child, 0, 3);
    pthread_mutex_lock(&world);
    g_ptr_array_set_size(f->parent->parts[0].records, 1);
    f->parent->parts[0].hwm = 1;
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "x");
    assert_becomes(f->child, 0, "a b c a x");
    WAIT_FOR(f, f->child, 0, row, row->cursor == 2 && row->hwm == 2);
    stop(f);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "y");
    assert_becomes(f->child, 0, "a b c a x y");
}

/* The partition's folder was another incarnation's: what was known of the old files means nothing for the new ones. */
static void test_other_files(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    wait_cursor(f, f->child, 0, 2);
    g_assert_cmpint(nrd_cursor_file_remove(f->root_fd, "topics/parent/p00000/fanout-child.offset"), ==, 0);
    pthread_mutex_lock(&world);
    f->parent->parts[0].generation++;
    f->parent->parts[0].hwm = 0;
    g_ptr_array_set_size(f->parent->parts[0].records, 0);
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "n");
    assert_becomes(f->child, 0, "a b n");
    WAIT_FOR(f, f->child, 0, row, row->cursor == 1 && row->hwm == 1);
}

static atomic_bool disk_full;

static ssize_t fills_up(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return atomic_load(&disk_full) ? -ENOSPC : nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

/* What could not be written of the old files' cursor is not written beside the new files, neither by the next pass nor at
 * a stop: it would say that records are copied which nobody has read. */
static void other_files_while_behind(Fixture *f, bool stops)
{
    NrdIo io = nrd_io_real;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR);
    io.pwritev = fills_up;
    atomic_store(&disk_full, true);
    stop(f);
    nrd_io = &io;
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    wait_cursor(f, f->child, 0, 1);
    put(f, 0, NULL, "b");
    wait_cursor(f, f->child, 0, 2);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR), >, before);
    pthread_mutex_lock(&world);
    f->parent->parts[0].generation++;
    f->parent->parts[0].hwm = 0;
    g_ptr_array_set_size(f->parent->parts[0].records, 0);
    pthread_mutex_unlock(&world);
    for (int i = 0; i < 3; i++)
        put_rec(f, 0, NULL, "n", 1);
    atomic_store(&disk_full, false);
    if (stops) {
        stop(f);
        start(f);
        add_link(f, f->child, 0, 0);
    }
    assert_becomes(f->child, 0, "a b n n n");
    stop(f);
    nrd_io = &nrd_io_real;
}

static void test_other_files_at_a_stop(Fixture *f, gconstpointer data)
{
    (void)data;
    other_files_while_behind(f, true);
}

static void test_other_files_when_tidied(Fixture *f, gconstpointer data)
{
    (void)data;
    other_files_while_behind(f, false);
}

static ssize_t no_space(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    (void)fd, (void)iov, (void)n_iov, (void)pos;
    return -ENOSPC;
}

/* A cursor that cannot be written stops nothing, and is written when it can be. */
static void test_full_disk(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdIo io = nrd_io_real;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR);
    stop(f);
    io.pwritev = no_space;
    nrd_io = &io;
    start(f);
    add_link(f, f->child, 0, 0);
    for (int i = 0; i < 5; i++) {
        put(f, 0, NULL, "x");
        wait_hwm(f->child, 0, (uint64_t)i + 1);
    }
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR), >, before);
    stop(f);
    nrd_io = &nrd_io_real;
    start(f);
    add_link(f, f->child, 0, 0); /* nothing was written: all of it once more */
    assert_becomes(f->child, 0, "x x x x x x x x x x");
    stop(f);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "y");
    assert_becomes(f->child, 0, "x x x x x x x x x x y");
}

#define ADD(name, test) g_test_add("/fanout/" name, Fixture, NULL, set_up, test, tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("part-fails", test_part_fails);
    ADD("moves-after-three", test_moves_after_three);
    ADD("moves-beside-a-commit", test_moves_beside_a_commit);
    ADD("poisoned", test_poisoned);
    ADD("waits-for-the-child", test_waits_for_the_child);
    ADD("hanging-child", test_hanging_child);
    ADD("read-fails", test_read_fails);
    ADD("lost-records", test_lost_records);
    ADD("lost-while-it-waits", test_lost_while_it_waits);
    ADD("above-the-end", test_above_the_end);
    ADD("other-files", test_other_files);
    ADD("other-files-at-a-stop", test_other_files_at_a_stop);
    ADD("other-files-when-tidied", test_other_files_when_tidied);
    ADD("full-disk", test_full_disk);
    return g_test_run();
}
