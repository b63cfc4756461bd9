/* Work in parts: each part is done once, whoever comes to help and whoever does not. */
#include "engine/base/beside.h"
#include "tests/unit/few_threads.h"
#include "tests/unit/n_threads.h"

#include <glib.h>
#include <stdbool.h>

#define MAX_PARTS 9

typedef struct Work {
    GMutex lock;
    GCond changed;
    unsigned n_calls[MAX_PARTS];
    unsigned n_running, most_running;
    unsigned n_together; /* how many wait for each other before they go on */
    GThread *caller;
    bool only_caller; /* nobody else came */
} Work;

static void do_part(void *user_data, unsigned part)
{
    Work *work = user_data;
    g_mutex_lock(&work->lock);
    work->n_calls[part]++;
    work->n_running++;
    work->most_running = MAX(work->most_running, work->n_running);
    work->only_caller = work->only_caller && g_thread_self() == work->caller;
    g_cond_broadcast(&work->changed);
    while (work->most_running < work->n_together)
        g_cond_wait(&work->changed, &work->lock);
    work->n_running--;
    g_mutex_unlock(&work->lock);
}

static Work run(unsigned n_parts, unsigned n_together)
{
    Work work = { .n_together = n_together, .caller = g_thread_self(), .only_caller = true };
    g_mutex_init(&work.lock);
    g_cond_init(&work.changed);
    nrd_beside_run(do_part, &work, n_parts);
    for (unsigned i = 0; i < MAX_PARTS; i++)
        g_assert_cmpuint(work.n_calls[i], ==, i < n_parts);
    g_assert_cmpuint(work.n_running, ==, 0);
    g_cond_clear(&work.changed);
    g_mutex_clear(&work.lock);
    return work;
}

/* In a process of its own: who has tried in vain does not try again. */
static void test_no_thread(void)
{
    if (g_test_subprocess()) {
        atomic_store(&n_threads_left, 0);
        for (unsigned n_parts = 0; n_parts <= MAX_PARTS; n_parts++)
            g_assert_true(run(n_parts, 0).only_caller);
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_passed();
}

/* As many at a time as there are processors for; on a machine with one, the caller alone. */
static void test_together(void)
{
    g_assert_cmpuint(nrd_beside_n(), ==, MIN(g_get_num_processors(), NRD_BESIDE_MAX));
    g_assert_cmpuint(run(MAX_PARTS, nrd_beside_n()).most_running, ==, nrd_beside_n());
    g_assert_true(run(1, 0).only_caller);
    for (unsigned i = 0; i < 2000; i++)
        (void)run(i % (MAX_PARTS + 1), 0); /* a helper that comes late finds nothing, and touches nothing */
}

static gpointer run_many(gpointer data)
{
    for (unsigned i = 0; i < 500; i++)
        (void)run(i % (MAX_PARTS + 1), 0);
    return NULL;
}

/* Callers that have nothing to do with each other share the helpers, and none waits for a helper that others have. */
static void test_callers(void)
{
    GThread *threads[6];
    guint n_before = n_threads();
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("caller", run_many, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
    g_assert_cmpuint(n_threads(), <, n_before + NRD_BESIDE_MAX);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/base/beside/no-thread", test_no_thread);
    g_test_add_func("/base/beside/together", test_together);
    g_test_add_func("/base/beside/callers", test_callers);
    return g_test_run();
}
