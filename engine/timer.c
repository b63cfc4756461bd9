/* A binary heap of deadlines under one lock, one thread that sleeps until the earliest, and a pool of workers for
 * callbacks that wait for the disk. A timer is queued at most once at a time on the workers: coming due again while it is
 * queued or runs is remembered (`again`). */
#include "engine/timer.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"
#include "engine/base/pool.h"

#include <glib.h>
#include <pthread.h>

#define N_WORKERS 4

struct NrdTimers {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an earlier deadline, or stop */
    pthread_cond_t idle;    /* a callback has ended */
    pthread_t thread;
    NrdPool *workers;
    /* guarded by lock */
    GPtrArray *heap; /* of NrdTimer*, 1-based: slot 0 is unused */
    bool stop;
};

static NrdTimer *at(NrdTimers *timers, size_t i)
{
    return g_ptr_array_index(timers->heap, i);
}

static void put(NrdTimers *timers, size_t i, NrdTimer *timer)
{
    timers->heap->pdata[i] = timer;
    timer->heap_index = i;
}

static void sift_up_locked(NrdTimers *timers, size_t i)
{
    NrdTimer *timer = at(timers, i);
    for (; i > 1 && at(timers, i / 2)->deadline_ms > timer->deadline_ms; i /= 2)
        put(timers, i, at(timers, i / 2));
    put(timers, i, timer);
}

static void sift_down_locked(NrdTimers *timers, size_t i)
{
    NrdTimer *timer = at(timers, i);
    size_t last = timers->heap->len - 1;
    for (size_t child = 2 * i; child <= last; child = 2 * i) {
        if (child < last && at(timers, child + 1)->deadline_ms < at(timers, child)->deadline_ms)
            child++;
        if (at(timers, child)->deadline_ms >= timer->deadline_ms)
            break;
        put(timers, i, at(timers, child));
        i = child;
    }
    put(timers, i, timer);
}

static void remove_locked(NrdTimers *timers, NrdTimer *timer)
{
    size_t i = timer->heap_index;
    if (i == 0)
        return;
    NrdTimer *last = g_ptr_array_remove_index(timers->heap, timers->heap->len - 1);
    timer->heap_index = 0;
    if (last == timer)
        return;
    put(timers, i, last);
    sift_up_locked(timers, i);
    sift_down_locked(timers, last->heap_index);
}

static void insert_locked(NrdTimers *timers, NrdTimer *timer, int64_t deadline_ms)
{
    timer->deadline_ms = deadline_ms;
    g_ptr_array_add(timers->heap, timer);
    sift_up_locked(timers, timers->heap->len - 1);
    if (timer->heap_index == 1)
        pthread_cond_signal(&timers->changed);
}

/* Runs the callback until it is not due again. Entered and left with the lock held. */
static void run_locked(NrdTimers *timers, NrdTimer *timer)
{
    do {
        timer->again = false;
        pthread_mutex_unlock(&timers->lock);
        timer->fire(timer->user_data);
        pthread_mutex_lock(&timers->lock);
    } while (timer->again && !timers->stop);
    timer->n_running--;
    pthread_cond_broadcast(&timers->idle);
}

static void work(void *data, void *user_data)
{
    NrdTimers *timers = user_data;
    pthread_mutex_lock(&timers->lock);
    run_locked(timers, data);
    pthread_mutex_unlock(&timers->lock);
}

static void start_locked(NrdTimers *timers, NrdTimer *timer)
{
    if (timer->n_running > 0) {
        timer->again = true;
        return;
    }
    timer->n_running++;
    if (!timer->blocking) {
        run_locked(timers, timer);
        return;
    }
    nrd_pool_push(timers->workers, timer);
}

static void wait_until_locked(NrdTimers *timers, int64_t deadline_ms)
{
    struct timespec until = nrd_cond_end(deadline_ms - nrd_clock_mono_ms());
    pthread_cond_timedwait(&timers->changed, &timers->lock, &until);
}

static void *timer_main(void *user_data)
{
    NrdTimers *timers = user_data;
    pthread_mutex_lock(&timers->lock);
    while (!timers->stop) {
        if (timers->heap->len == 1) {
            pthread_cond_wait(&timers->changed, &timers->lock);
            continue;
        }
        NrdTimer *first = at(timers, 1);
        if (first->deadline_ms > nrd_clock_mono_ms()) {
            wait_until_locked(timers, first->deadline_ms);
            continue;
        }
        remove_locked(timers, first);
        start_locked(timers, first);
    }
    pthread_mutex_unlock(&timers->lock);
    return NULL;
}

/* Its thread has ended, or was never there. */
static void timers_free(NrdTimers *timers)
{
    nrd_pool_free(timers->workers);
    g_ptr_array_free(timers->heap, TRUE);
    pthread_cond_destroy(&timers->changed);
    pthread_cond_destroy(&timers->idle);
    pthread_mutex_destroy(&timers->lock);
    g_free(timers);
}

NrdTimers *nrd_timers_new(void)
{
    NrdTimers *timers = g_new0(NrdTimers, 1);
    pthread_mutex_init(&timers->lock, NULL);
    nrd_cond_init(&timers->changed);
    nrd_cond_init(&timers->idle);
    timers->heap = g_ptr_array_new();
    g_ptr_array_add(timers->heap, NULL);
    timers->workers = nrd_pool_new("naradfs-timed", N_WORKERS, work, timers);
    if (timers->workers && pthread_create(&timers->thread, NULL, timer_main, timers) == 0)
        return timers;
    timers_free(timers);
    return NULL;
}

void nrd_timers_free(NrdTimers *timers)
{
    if (!timers)
        return;
    pthread_mutex_lock(&timers->lock);
    timers->stop = true;
    pthread_cond_signal(&timers->changed);
    pthread_mutex_unlock(&timers->lock);
    pthread_join(timers->thread, NULL);
    timers_free(timers);
}

void nrd_timer_init(NrdTimer *timer, void (*fire)(void *user_data), void *user_data, bool blocking)
{
    *timer = (NrdTimer){ .fire = fire, .user_data = user_data, .blocking = blocking };
}

void nrd_timer_set(NrdTimers *timers, NrdTimer *timer, int64_t deadline_ms)
{
    pthread_mutex_lock(&timers->lock);
    remove_locked(timers, timer);
    insert_locked(timers, timer, deadline_ms);
    pthread_mutex_unlock(&timers->lock);
}

void nrd_timer_set_earlier(NrdTimers *timers, NrdTimer *timer, int64_t deadline_ms)
{
    pthread_mutex_lock(&timers->lock);
    if (timer->heap_index == 0 || timer->deadline_ms > deadline_ms) {
        remove_locked(timers, timer);
        insert_locked(timers, timer, deadline_ms);
    }
    pthread_mutex_unlock(&timers->lock);
}

void nrd_timer_clear(NrdTimers *timers, NrdTimer *timer)
{
    pthread_mutex_lock(&timers->lock);
    remove_locked(timers, timer);
    timer->again = false;
    pthread_mutex_unlock(&timers->lock);
}

void nrd_timer_drain(NrdTimers *timers, NrdTimer *timer)
{
    pthread_mutex_lock(&timers->lock);
    do {
        remove_locked(timers, timer);
        timer->again = false;
        if (timer->n_running > 0)
            pthread_cond_wait(&timers->idle, &timers->lock);
    } while (timer->n_running > 0 || timer->heap_index != 0);
    pthread_mutex_unlock(&timers->lock);
}
