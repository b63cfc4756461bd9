/* Pools: everything that is pushed is done, with as many threads as the system gives, and none is begun without one. */
#include "engine/base/pool.h"
#include "tests/unit/few_threads.h"

#include <glib.h>
#include <stdbool.h>

typedef struct Work {
    GMutex lock;
    GCond changed;
    NrdPool *pool;
    GArray *done; /* of int, in the order in which they ended */
    int n_running, most_running;
    int n_together; /* how many wait for each other before they go on */
    bool again;     /* the first item pushes another one */
} Work;

static void do_item(void *item, void *user_data)
{
    Work *work = user_data;
    int number = GPOINTER_TO_INT(item);
    g_mutex_lock(&work->lock);
    work->n_running++;
    work->most_running = MAX(work->most_running, work->n_running);
    g_cond_broadcast(&work->changed);
    while (work->most_running < work->n_together)
        g_cond_wait(&work->changed, &work->lock);
    work->n_running--;
    g_array_append_val(work->done, number);
    g_cond_broadcast(&work->changed);
    bool again = work->again;
    work->again = false;
    g_mutex_unlock(&work->lock);
    if (again)
        nrd_pool_push(work->pool, GINT_TO_POINTER(1000));
}

static void start(Work *work, unsigned max_threads, int n_given)
{
    *work = (Work){ .n_together = 0 };
    g_mutex_init(&work->lock);
    g_cond_init(&work->changed);
    work->done = g_array_new(FALSE, FALSE, sizeof(int));
    atomic_store(&n_threads_left, n_given);
    work->pool = nrd_pool_new("test", max_threads, do_item, work);
}

static void end(Work *work)
{
    nrd_pool_free(work->pool);
    atomic_store(&n_threads_left, -1);
    g_array_unref(work->done);
    g_cond_clear(&work->changed);
    g_mutex_clear(&work->lock);
}

static void test_no_thread(void)
{
    Work work;
    start(&work, 4, 0);
    g_assert_null(work.pool);
    end(&work);
    g_autofree char *why = nrd_pool_why_none("the tests", 42);
    g_assert_nonnull(strstr(why, "for the tests"));
    g_assert_nonnull(strstr(why, "takes 42"));
    g_assert_nonnull(strstr(why, "RLIMIT_NPROC"));
    g_autofree char *without = nrd_pool_why_none("the tests", 0);
    g_assert_null(strstr(without, "takes"));
}

/* The one that was there from the start does it all, in order; also what is pushed from itself, and at the end. */
static void test_one_thread(void)
{
    Work work;
    start(&work, 4, 1);
    work.again = true;
    for (int i = 1; i <= 100; i++)
        nrd_pool_push(work.pool, GINT_TO_POINTER(i));
    g_mutex_lock(&work.lock);
    while (work.done->len < 101)
        g_cond_wait(&work.changed, &work.lock);
    g_mutex_unlock(&work.lock);
    for (int i = 1; i <= 100; i++)
        nrd_pool_push(work.pool, GINT_TO_POINTER(i));
    g_clear_pointer(&work.pool, nrd_pool_free);
    g_assert_cmpuint(work.done->len, ==, 201);
    g_assert_cmpint(work.most_running, ==, 1);
    for (int i = 1; i <= 100; i++)
        g_assert_cmpint(g_array_index(work.done, int, 101 + i - 1), ==, i);
    end(&work);
}

/* As many as may be work at once, when there is so much to do; never more. */
static void test_as_many_as_may_be(void)
{
    Work work;
    start(&work, 3, -1);
    work.n_together = 3;
    for (int i = 1; i <= 50; i++)
        nrd_pool_push(work.pool, GINT_TO_POINTER(i));
    g_clear_pointer(&work.pool, nrd_pool_free);
    g_assert_cmpuint(work.done->len, ==, 50);
    g_assert_cmpint(work.most_running, ==, 3);
    end(&work);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/base/pool/no-thread", test_no_thread);
    g_test_add_func("/base/pool/one-thread", test_one_thread);
    g_test_add_func("/base/pool/as-many-as-may-be", test_as_many_as_may_be);
    return g_test_run();
}
