/* See loop.h. */
#include "engine/loop.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"
#include "engine/base/diag.h"

#include <glib.h>
#include <pthread.h>

#define STUCK_MS 60000

struct NrdLoop {
    NrdLoopOptions options;
    NrdTimers *timers;
    NrdTimer watch;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    GPtrArray *threads;  /* of Runner*, all that were started */
    uint32_t generation; /* of the thread that counts */
    uint32_t n_restarts;
    bool running; /* a pass is under way */
    bool kicked;
    bool stop;
    bool told; /* past the cap */
    int64_t beat_ms;
};

typedef struct Runner {
    NrdLoop *loop;
    uint32_t generation;
    pthread_t thread;
} Runner;

/* The runner of the calling thread. */
static _Thread_local Runner *self;

static bool counts_locked(const Runner *runner)
{
    return !runner->loop->stop && runner->generation == runner->loop->generation;
}

/* Sleeps until the next pass is due. Returns false when the runner is to end. */
static bool wait_locked(Runner *runner, int64_t due_ms)
{
    NrdLoop *loop = runner->loop;
    while (counts_locked(runner) && !loop->kicked) {
        int64_t left_ms = due_ms - nrd_clock_mono_ms();
        if (left_ms <= 0)
            break;
        struct timespec until = nrd_cond_end(left_ms);
        pthread_cond_timedwait(&loop->changed, &loop->lock, &until);
    }
    loop->kicked = false;
    return counts_locked(runner);
}

static void *run(void *user_data)
{
    Runner *runner = user_data;
    NrdLoop *loop = runner->loop;
    self = runner;
    pthread_mutex_lock(&loop->lock);
    while (wait_locked(runner, nrd_clock_mono_ms() + loop->options.period_ms)) {
        loop->running = true;
        loop->beat_ms = nrd_clock_mono_ms();
        nrd_timer_set(loop->timers, &loop->watch, loop->beat_ms + loop->options.stuck_ms);
        pthread_mutex_unlock(&loop->lock);
        loop->options.pass(loop, loop->options.user_data);
        pthread_mutex_lock(&loop->lock);
        if (!counts_locked(runner))
            break;
        loop->running = false;
        nrd_timer_clear(loop->timers, &loop->watch);
    }
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

static bool start_locked(NrdLoop *loop)
{
    Runner *runner = g_new0(Runner, 1);
    runner->loop = loop;
    runner->generation = loop->generation;
    if (pthread_create(&runner->thread, NULL, run, runner) != 0) {
        g_free(runner);
        return false;
    }
    g_ptr_array_add(loop->threads, runner);
    return true;
}

static void replace_locked(NrdLoop *loop)
{
    if (loop->n_restarts == NRD_LOOP_MAX_RESTARTS) {
        if (!loop->told)
            nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE,
                     "the %s loop is stuck again and is not replaced any more: the disk under it does not answer",
                     loop->options.name);
        loop->told = true;
        return;
    }
    loop->generation++;
    loop->running = false;
    loop->n_restarts++;
    nrd_counter_add(NRD_COUNTER_REAPER_RESTARTS, 1);
    nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "the %s loop has not moved for %" G_GINT64_FORMAT " s: replaced",
             loop->options.name, loop->options.stuck_ms / 1000);
    if (!start_locked(loop)) {
        loop->running = true; /* the watch comes again, and tries again */
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "no thread could be started for the %s loop", loop->options.name);
    }
}

/* On the timer thread, while a pass is under way. */
static void on_watch(void *user_data)
{
    NrdLoop *loop = user_data;
    pthread_mutex_lock(&loop->lock);
    int64_t now_ms = nrd_clock_mono_ms();
    if (loop->running && !loop->stop && now_ms - loop->beat_ms >= loop->options.stuck_ms)
        replace_locked(loop);
    if (loop->running && !loop->stop)
        nrd_timer_set(loop->timers, &loop->watch, MAX(loop->beat_ms, now_ms) + loop->options.stuck_ms);
    pthread_mutex_unlock(&loop->lock);
}

NrdLoop *nrd_loop_new(const NrdLoopOptions *options, NrdTimers *timers)
{
    NrdLoop *loop = g_new0(NrdLoop, 1);
    loop->options = *options;
    if (loop->options.stuck_ms == 0)
        loop->options.stuck_ms = STUCK_MS;
    loop->timers = timers;
    loop->threads = g_ptr_array_new();
    nrd_timer_init(&loop->watch, on_watch, loop, false);
    pthread_mutex_init(&loop->lock, NULL);
    nrd_cond_init(&loop->changed);
    pthread_mutex_lock(&loop->lock);
    bool started = start_locked(loop);
    pthread_mutex_unlock(&loop->lock);
    if (started)
        return loop;
    nrd_loop_free(loop);
    return NULL;
}

void nrd_loop_stop(NrdLoop *loop)
{
    if (!loop)
        return;
    pthread_mutex_lock(&loop->lock);
    loop->stop = true;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
    nrd_timer_drain(loop->timers, &loop->watch); /* nobody starts another thread any more */
    for (guint i = 0; i < loop->threads->len; i++) {
        Runner *runner = loop->threads->pdata[i];
        pthread_join(runner->thread, NULL);
        g_free(runner);
    }
    g_ptr_array_set_size(loop->threads, 0);
    nrd_timer_drain(loop->timers, &loop->watch);
}

void nrd_loop_free(NrdLoop *loop)
{
    if (!loop)
        return;
    nrd_loop_stop(loop);
    g_ptr_array_unref(loop->threads);
    pthread_cond_destroy(&loop->changed);
    pthread_mutex_destroy(&loop->lock);
    g_free(loop);
}

void nrd_loop_kick(NrdLoop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->kicked = true;
    pthread_cond_broadcast(&loop->changed);
    pthread_mutex_unlock(&loop->lock);
}

bool nrd_loop_beat(NrdLoop *loop)
{
    pthread_mutex_lock(&loop->lock);
    bool counts = counts_locked(self);
    if (counts)
        loop->beat_ms = nrd_clock_mono_ms();
    pthread_mutex_unlock(&loop->lock);
    return counts;
}

uint32_t nrd_loop_restarts(NrdLoop *loop)
{
    pthread_mutex_lock(&loop->lock);
    uint32_t n = loop->n_restarts;
    pthread_mutex_unlock(&loop->lock);
    return n;
}
