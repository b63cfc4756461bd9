/* The fan-out at rest, when it stops, and without threads. */
#include "world.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "tests/unit/few_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static int count_claims(Fixture *f)
{
    pthread_mutex_lock(&world);
    int n = f->child->parts[0].n_claims;
    pthread_mutex_unlock(&world);
    return n;
}

/* A claim is made once for many batches, and given back when nothing has been copied for a while. */
static void test_rest(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(count_claims(f), ==, 1);
    for (int ms = 0; count_claims(f) > 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpint(count_claims(f), ==, 0);
    g_assert_cmpint(f->parent->parts[0].n_open, ==, 0);
    put(f, 0, NULL, "c");
    assert_becomes(f->child, 0, "a b c");
}

static void *produce_on(void *data)
{
    Fixture *f = data;
    for (int i = 0; i < 3000; i++)
        put(f, (uint32_t)i % 4, NULL, "x");
    return NULL;
}

static void test_stop(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    struct stat st;
    f->parent->n_parts = 4;
    add_link(f, f->child, 0, 0);
    pthread_create(&thread, NULL, produce_on, f);
    for (int ms = 0; hwm_of(f->child, 0) == 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_true(nrd_fanout_stop(f->fanout, f->parent, "child"));
    uint64_t hwm = hwm_of(f->child, 0);
    g_assert_cmpint(f->child->n_refs, ==, 0);
    pthread_join(thread, NULL);
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, hwm);
    g_assert_cmpint(nrd_io_stat(f->root_fd, "topics/parent/p00000/fanout-child.offset", &st), ==, -ENOENT);
    g_assert_false(nrd_fanout_stop(f->fanout, f->parent, "child"));
    NrdFanoutInfo info;
    g_assert_false(nrd_fanout_info(f->fanout, f->parent, "child", &info));
}

/* It waits for the pass under way, which begins no further part. */
static void *let_go(void *data)
{
    Fixture *f = data;
    g_usleep(200000);
    pthread_mutex_lock(&world);
    f->child->parts[0].hang = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&world);
    return NULL;
}

static void test_stop_in_a_pass(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    f->child->n_parts = 2;
    f->child->parts[0].hang = true;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging == 0)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    pthread_create(&thread, NULL, let_go, f);
    g_assert_true(nrd_fanout_stop(f->fanout, f->parent, "child"));
    pthread_join(thread, NULL);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 1);
    g_assert_cmpuint(hwm_of(f->child, 1), ==, 0);
}

/* What is committed while a pass runs is not forgotten. */
static void test_notified_in_a_pass(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    f->child->parts[0].hang = true;
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging == 0)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "b");
    pthread_create(&thread, NULL, let_go, f);
    assert_becomes(f->child, 0, "a b");
    pthread_join(thread, NULL);
}

static void test_forget(Fixture *f, gconstpointer data)
{
    (void)data;
    static const char path[] = "topics/parent/p00000/fanout-child.offset";
    struct stat st;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 5), ==, 0);
    g_assert_cmpint(nrd_io_stat(f->root_fd, path, &st), ==, 0);
    nrd_fanout_forget(f->fanout, f->parent, "parent", 1, "child");
    g_assert_cmpint(nrd_io_stat(f->root_fd, path, &st), ==, -ENOENT);
    nrd_fanout_forget(f->fanout, f->parent, "parent", 1, "child");
}

static atomic_int n_files, max_files;

static int counted_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = nrd_io_real.open(dirfd, path, flags, mode);
    int n = fd >= 0 ? atomic_fetch_add(&n_files, 1) + 1 : 0;
    for (int max = atomic_load(&max_files); n > max && !atomic_compare_exchange_weak(&max_files, &max, n);)
        ;
    return fd;
}

static int counted_close(int fd)
{
    atomic_fetch_sub(&n_files, 1);
    return nrd_io_real.close(fd);
}

/* However many cursors copy, they keep 256 files open. */
static void test_many_files(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdIo io = nrd_io_real;
    Topic *children[50];
    char names[G_N_ELEMENTS(children)][8];
    io.open = counted_open;
    io.close = counted_close;
    stop(f);
    nrd_io = &io;
    start(f);
    f->parent->n_parts = MAX_PARTS;
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++) {
        g_snprintf(names[i], sizeof names[i], "c%u", i);
        children[i] = topic_new(names[i], 1);
        add_link(f, children[i], 0, 0);
    }
    for (uint64_t round = 1; round < 3; round++) { /* a first write replaces the file, and keeps none */
        for (uint32_t i = 0; i < MAX_PARTS; i++)
            put(f, i, NULL, "x");
        for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
            wait_hwm(children[i], 0, round * MAX_PARTS);
    }
    stop(f);
    nrd_io = &nrd_io_real;
    g_assert_cmpint(atomic_load(&max_files), <, 256 + 16);
    g_assert_cmpint(atomic_load(&n_files), ==, 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        topic_free(children[i]);
}

/* Without a thread there is no fan-out. With the one that it begins with everything is copied, also what waits for its time. */
static void test_few_threads(Fixture *f, gconstpointer data)
{
    (void)data;
    stop(f);
    atomic_store(&n_threads_left, 0);
    g_assert_null(nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops }));
    atomic_store(&n_threads_left, 1);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(atomic_load(&n_threads_left), ==, 0);
    atomic_store(&n_threads_left, -1);
}

/* Who opens it may yet give up: until the start nothing is copied. */
static void test_held(Fixture *f, gconstpointer data)
{
    (void)data;
    stop(f);
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops });
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_fanout_start(f->fanout);
    assert_becomes(f->child, 0, "a");
}

/* Read-only: the rows are there, and nothing moves. */
static void test_frozen(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 1), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    put_rec(f, 0, NULL, "b", 1);
    stop(f);
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops, .frozen = true });
    add_link(f, f->child, 5, 7);
    notify(f, 0);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.lag, ==, 1);
    g_assert_cmpint(info.attached_ms, ==, 5);
    g_assert_cmpint(info.delay_ms, ==, 7);
    g_array_unref(info.rows);
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
}

#define ADD(name, test) g_test_add("/fanout/" name, Fixture, NULL, set_up, test, tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("few-threads", test_few_threads);
    ADD("held", test_held);
    ADD("rest", test_rest);
    ADD("stop", test_stop);
    ADD("stop-in-a-pass", test_stop_in_a_pass);
    ADD("notified-in-a-pass", test_notified_in_a_pass);
    ADD("forget", test_forget);
    ADD("many-files", test_many_files);
    ADD("frozen", test_frozen);
    return g_test_run();
}
