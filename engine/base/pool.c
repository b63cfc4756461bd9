/* See pool.h. The lock is taken last of all: no other one is taken, and nobody called, while it is held. */
#include "engine/base/pool.h"

#include "engine/base/cond.h"
#include "engine/base/threads.h"

#include <glib.h>
#include <pthread.h>
#include <stdbool.h>

#define IDLE_MS 5000

struct NrdPool {
    const char *name;
    unsigned max_threads;
    NrdPoolFn fn;
    void *user_data;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t left; /* a thread has ended */
    /* guarded by lock */
    GQueue items;
    unsigned n_threads; /* without those that have ended */
    unsigned n_idle;
    GArray *ended; /* of pthread_t, to be joined: they take the lock no more */
    bool stop;
};

/* Until there may be work. False: there was none for long. The last thread waits without an end, so that an idle pool has
 * no timer. */
static bool wait_locked(NrdPool *pool)
{
    int rc = 0;
    pool->n_idle++;
    if (pool->n_threads == 1) {
        pthread_cond_wait(&pool->work, &pool->lock);
    } else {
        struct timespec until = nrd_cond_end(IDLE_MS);
        rc = pthread_cond_timedwait(&pool->work, &pool->lock, &until);
    }
    pool->n_idle--;
    return rc == 0;
}

static void *run(void *data)
{
    NrdPool *pool = data;
    pthread_t self = pthread_self();
    bool wanted = true;
    pthread_setname_np(self, pool->name); /* for who looks with top or a debugger */
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        void *item = g_queue_pop_head(&pool->items);
        if (item) {
            pthread_mutex_unlock(&pool->lock);
            pool->fn(item, pool->user_data);
            pthread_mutex_lock(&pool->lock);
        } else if (pool->stop || (!wanted && pool->n_threads > 1)) {
            break;
        } else {
            wanted = wait_locked(pool);
        }
    }
    pool->n_threads--;
    g_array_append_val(pool->ended, self);
    pthread_cond_signal(&pool->left);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void join_ended_locked(NrdPool *pool)
{
    for (guint i = 0; i < pool->ended->len; i++)
        pthread_join(g_array_index(pool->ended, pthread_t, i), NULL);
    g_array_set_size(pool->ended, 0);
}

static bool add_thread_locked(NrdPool *pool)
{
    pthread_t thread;
    join_ended_locked(pool);
    if (pthread_create(&thread, NULL, run, pool) != 0) {
        nrd_threads_note_refused();
        return false;
    }
    pool->n_threads++;
    return true;
}

static void destroy(NrdPool *pool)
{
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->left);
    pthread_mutex_destroy(&pool->lock);
    g_array_unref(pool->ended);
    g_free(pool);
}

NrdPool *nrd_pool_new(const char *name, unsigned max_threads, NrdPoolFn fn, void *user_data)
{
    NrdPool *pool = g_new0(NrdPool, 1);
    *pool = (NrdPool){ .name = name, .max_threads = max_threads, .fn = fn, .user_data = user_data };
    nrd_cond_init(&pool->work);
    nrd_cond_init(&pool->left);
    pthread_mutex_init(&pool->lock, NULL);
    g_queue_init(&pool->items);
    pool->ended = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    pthread_mutex_lock(&pool->lock);
    bool started = add_thread_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    if (started)
        return pool;
    destroy(pool);
    return NULL;
}

void nrd_pool_free(NrdPool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    while (pool->n_threads > 0)
        pthread_cond_wait(&pool->left, &pool->lock);
    join_ended_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    destroy(pool);
}

/* Without another thread, one of those that are there comes to it. */
void nrd_pool_push(NrdPool *pool, void *item)
{
    pthread_mutex_lock(&pool->lock);
    g_queue_push_tail(&pool->items, item);
    if (pool->items.length > pool->n_idle && pool->n_threads < pool->max_threads && nrd_threads_may_begin())
        (void)add_thread_locked(pool);
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

char *nrd_pool_why_none(const char *what, unsigned n_threads)
{
    g_autofree char *takes = n_threads > 0 ? g_strdup_printf(" (a start takes %u, over NATS servers %u)", n_threads,
                                                             NRD_START_THREADS_OVER_SERVERS)
                                           : g_strdup("");
    return g_strdup_printf(
        "no thread could be started for %s: the system gives this user or this service no further one%s; "
        "raise RLIMIT_NPROC (ulimit -u), or TasksMax= of the unit, and start again",
        what, takes);
}
