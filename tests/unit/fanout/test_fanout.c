/* What is copied to children, where it starts, and when it is due. */
#include "world.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <pthread.h>

static void test_copies(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 3;
    add_link(f, f->child, 0, 0);
    put(f, 0, "1k", "a");
    put(f, 0, "2k", "b");
    put(f, 0, "1k", "c");
    assert_becomes(f->child, 1, "a c");
    assert_becomes(f->child, 2, "b");
    for (int i = 0; i < 6; i++)
        put(f, 0, NULL, "u");
    assert_becomes(f->child, 0, "u u");
    assert_becomes(f->child, 1, "a c u u");
    assert_becomes(f->child, 2, "b u u");
    wait_cursor(f, f->child, 0, 9);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.lag, ==, 0);
    g_assert_cmpuint(info.n_copied, ==, 9);
    g_assert_cmpuint(info.n_dropped, ==, 0);
    g_array_unref(info.rows);
}

static void test_batch_records(Fixture *f, gconstpointer data)
{
    (void)data;
    for (unsigned i = 0; i < NRD_FANOUT_BATCH_RECORDS + 1; i++)
        put_rec(f, 0, NULL, "x", 1);
    add_link(f, f->child, 0, 0);
    wait_hwm(f->child, 0, NRD_FANOUT_BATCH_RECORDS + 1);
    g_assert_cmpuint(f->child->parts[0].commits->len, ==, 2);
    g_assert_cmpuint(g_array_index(f->child->parts[0].commits, uint32_t, 0), ==, NRD_FANOUT_BATCH_RECORDS);
}

static void test_batch_bytes(Fixture *f, gconstpointer data)
{
    (void)data;
    size_t half = NRD_FANOUT_BATCH_BYTES / 2;
    put_rec(f, 0, NULL, "a", half);
    put_rec(f, 0, NULL, "b", half);
    put_rec(f, 0, NULL, "c", 1);
    put_rec(f, 0, NULL, "d", 2 * NRD_FANOUT_BATCH_BYTES); /* alone, since it has to go */
    put_rec(f, 0, NULL, "e", 1);
    add_link(f, f->child, 0, 0);
    wait_hwm(f->child, 0, 5);
    static const uint32_t expected[] = { 2, 1, 1, 1 };
    g_assert_cmpmem(f->child->parts[0].commits->data, f->child->parts[0].commits->len * sizeof(uint32_t), expected,
                    sizeof expected);
}

/* Several children, and several partitions on both sides. */
static void test_many(Fixture *f, gconstpointer data)
{
    (void)data;
    Topic *children[5];
    f->parent->n_parts = 4;
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++) {
        static const char *const names[] = { "c0", "c1", "c2", "c3", "c4" };
        children[i] = topic_new(names[i], 1);
        add_link(f, children[i], 0, 0);
    }
    for (unsigned i = 0; i < 400; i++)
        put(f, i % 4, NULL, "x");
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        wait_hwm(children[i], 0, 400);
    stop(f);
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        topic_free(children[i]);
}

static void test_prepared(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = 2;
    put_rec(f, 0, NULL, "old", 3);
    put_rec(f, 1, NULL, "old", 3);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 1), ==, 0);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 1, "child", &owner, 1), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a");
    put(f, 1, NULL, "b");
    assert_becomes(f->child, 0, "a b");
}

static void damage_cursor(Fixture *f)
{
    g_assert_cmpint(nrd_io_replace_file(f->root_fd, "topics/parent/p00000/fanout-child.offset", "xyz", 3), ==, 0);
}

/* Without a cursor that is whole and of this attachment: from the first record committed since the attach. */
static void test_cursor_lost(Fixture *f, gconstpointer data)
{
    (void)data;
    put_rec(f, 0, NULL, "old", 3);
    ((Rec *)f->parent->parts[0].records->pdata[0])->commit_ms = 999;
    put_rec(f, 0, NULL, "a", 1);
    ((Rec *)f->parent->parts[0].records->pdata[1])->commit_ms = 1000;
    add_link(f, f->child, 1000, 0);
    assert_becomes(f->child, 0, "a");
    stop(f);
    start(f);
    add_link(f, f->child, 1000, 0);
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    stop(f);
    damage_cursor(f);
    start(f);
    add_link(f, f->child, 1000, 0);
    assert_becomes(f->child, 0, "a b a b");
}

/* A crash: the file is what it was before the last batch. */
static void test_crash(Fixture *f, gconstpointer data)
{
    (void)data;
    static const char path[] = "topics/parent/p00000/fanout-child.offset";
    g_autoptr(GBytes) bytes = NULL;
    gsize size;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    wait_cursor(f, f->child, 0, 1);
    g_assert_cmpint(nrd_io_read_file(f->root_fd, path, 65536, &bytes), ==, 0);
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    stop(f);
    const void *data_before = g_bytes_get_data(bytes, &size);
    g_assert_cmpint(nrd_io_replace_file(f->root_fd, path, data_before, size), ==, 0);
    start(f);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a b b");
}

static void test_growth(Fixture *f, gconstpointer data)
{
    (void)data;
    struct stat st;
    add_link(f, f->child, INT64_MAX, 0); /* were it asked for, nothing would have been committed since */
    wait_cursor(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    f->parent->n_parts = 3;
    f->child->n_parts = 2;
    pthread_mutex_unlock(&world);
    for (uint32_t i = 1; i < 3; i++)
        nrd_fanout_notify(f->fanout, f->parent, i, 0);
    /* its cursor is there before anything is committed */
    for (int ms = 0; ms < WAIT_MS; ms++) {
        if (nrd_io_stat(f->root_fd, "topics/parent/p00002/fanout-child.offset", &st) == 0)
            break;
        g_usleep(1000);
    }
    put(f, 2, "1", "a");
    assert_becomes(f->child, 1, "a");
}

#define HOUR_MS ((int64_t)60 * 60 * 1000)

static void test_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, HOUR_MS);
    put(f, 0, NULL, "a");
    put(f, 0, NULL, "b");
    int64_t due_ms = ((Rec *)f->parent->parts[0].records->pdata[0])->commit_ms + HOUR_MS;
    WAIT_FOR(f, f->child, 0, row, row->due_ms == due_ms);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_clock_shift_wall_ms(HOUR_MS - 60000); /* a minute to go */
    put(f, 0, NULL, "c");
    g_usleep(1300000); /* it has looked at the clock again */
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_clock_shift_wall_ms(61000);
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(nrd_clock_wall_ms(), >=, due_ms);
    nrd_clock_shift_wall_ms(-2 * HOUR_MS); /* back: c waits */
    g_usleep(1300000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 2);
    nrd_clock_shift_wall_ms(3 * HOUR_MS);
    assert_becomes(f->child, 0, "a b c");
    nrd_clock_shift_wall_ms(-2 * HOUR_MS - 1000);
}

/* By itself, with nobody touching the clock. */
static void test_short_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 300);
    for (int i = 0; i < 5; i++) {
        put(f, 0, NULL, "x");
        wait_hwm(f->child, 0, (uint64_t)i + 1);
        int64_t committed_ms = ((Rec *)f->parent->parts[0].records->pdata[i])->commit_ms;
        g_assert_cmpint(((Rec *)f->child->parts[0].records->pdata[i])->commit_ms, >=, committed_ms + 300);
    }
}

/* Nothing is looked at while nothing is due; and nothing is open. */
static void test_idle_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = MAX_PARTS;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        put_rec(f, i, NULL, "x", 1);
    add_link(f, f->child, 0, HOUR_MS);
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        WAIT_FOR(f, f->child, i, row, row->due_ms > 0);
    g_usleep(2500000); /* the files were written; that is synced and put away */
    pthread_mutex_lock(&world);
    int before = n_looks;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        g_assert_cmpint(f->parent->parts[i].n_open, ==, 0);
    pthread_mutex_unlock(&world);
    g_usleep(2500000);
    pthread_mutex_lock(&world);
    g_assert_cmpint(n_looks, ==, before);
    pthread_mutex_unlock(&world);
    nrd_clock_shift_wall_ms(HOUR_MS); /* with nothing else to wake it */
    wait_hwm(f->child, 0, MAX_PARTS);
    nrd_clock_shift_wall_ms(-HOUR_MS);
}

#define ADD(name, test) g_test_add("/fanout/" name, Fixture, NULL, set_up, test, tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("copies", test_copies);
    ADD("batch-records", test_batch_records);
    ADD("batch-bytes", test_batch_bytes);
    ADD("many", test_many);
    ADD("prepared", test_prepared);
    ADD("cursor-lost", test_cursor_lost);
    ADD("crash", test_crash);
    ADD("growth", test_growth);
    ADD("delay", test_delay);
    ADD("short-delay", test_short_delay);
    ADD("idle-delay", test_idle_delay);
    return g_test_run();
}
