/* See beside.h.
 *
 * Work is offered to a pool as often as others could help with it, and belongs to whoever still knows of it: a thread that
 * comes when everything was begun finds nothing left, when the caller may long have returned. */
#include "engine/base/beside.h"

#include "engine/base/pool.h"

#include <glib.h>

typedef struct Work {
    NrdBesideFn fn;
    void *user_data;
    unsigned n_parts;
    gint n_refs;
    gint next; /* the part that nobody has begun; n_parts and above: none is left */
    GMutex lock;
    GCond done;
    unsigned n_left; /* guarded by lock: parts that are not done */
} Work;

static void unref(Work *work)
{
    if (!g_atomic_int_dec_and_test(&work->n_refs))
        return;
    g_mutex_clear(&work->lock);
    g_cond_clear(&work->done);
    g_free(work);
}

static void do_what_is_left(Work *work)
{
    for (;;) {
        gint part = g_atomic_int_add(&work->next, 1);
        if (part >= (gint)work->n_parts)
            return;
        work->fn(work->user_data, (unsigned)part);
        g_mutex_lock(&work->lock);
        if (--work->n_left == 0)
            g_cond_signal(&work->done);
        g_mutex_unlock(&work->lock);
    }
}

static void help(void *item, void *user_data)
{
    do_what_is_left(item);
    unref(item);
}

unsigned nrd_beside_n(void)
{
    static gsize n; /* the question opens a file of the kernel's */
    if (g_once_init_enter(&n)) {
        unsigned n_processors = g_get_num_processors();
        g_once_init_leave(&n, MIN(n_processors, NRD_BESIDE_MAX));
    }
    return (unsigned)n;
}

/* The threads that help, from the first piece of work on that has parts for them; NULL: there are none. */
static NrdPool *helpers(void)
{
    static gsize tried;
    static NrdPool *pool;
    if (g_once_init_enter(&tried)) {
        if (nrd_beside_n() > 1)
            pool = nrd_pool_new("naradfs-beside", nrd_beside_n() - 1, help, NULL);
        g_once_init_leave(&tried, 1);
    }
    return pool;
}

void nrd_beside_run(NrdBesideFn fn, void *user_data, unsigned n_parts)
{
    unsigned n_helpers = MIN(n_parts, nrd_beside_n()) - (n_parts > 0);
    NrdPool *pool = n_helpers > 0 ? helpers() : NULL;
    Work *work = g_new0(Work, 1);
    *work = (Work){ .fn = fn, .user_data = user_data, .n_parts = n_parts, .n_refs = 1, .n_left = n_parts };
    g_mutex_init(&work->lock);
    g_cond_init(&work->done);
    for (unsigned i = 0; pool && i < n_helpers; i++) {
        g_atomic_int_inc(&work->n_refs);
        nrd_pool_push(pool, work);
    }
    do_what_is_left(work);
    g_mutex_lock(&work->lock);
    while (work->n_left > 0)
        g_cond_wait(&work->done, &work->lock);
    g_mutex_unlock(&work->lock);
    unref(work);
}
