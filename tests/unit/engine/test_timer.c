/* Timers: order, moving, clearing, running once at a time, and that drain leaves nothing running. */
#include "engine/timer.h"

#include "engine/base/clock.h"

#include <glib.h>
#include <stdatomic.h>

typedef struct Shot {
    NrdTimer timer;
    NrdTimers *timers;
    GAsyncQueue *fired;
    int number;
    atomic_int n_running;
    atomic_int n_fired;
} Shot;

static void fire(void *user_data)
{
    Shot *shot = user_data;
    g_assert_cmpint(atomic_fetch_add(&shot->n_running, 1), ==, 0); /* never twice at once */
    atomic_fetch_add(&shot->n_fired, 1);
    g_async_queue_push(shot->fired, GINT_TO_POINTER(shot->number));
    atomic_fetch_sub(&shot->n_running, 1);
}

static void shot_init(Shot *shot, NrdTimers *timers, GAsyncQueue *fired, int number, bool blocking)
{
    *shot = (Shot){ .timers = timers, .fired = fired, .number = number };
    nrd_timer_init(&shot->timer, fire, shot, blocking);
}

static void test_order(void)
{
    NrdTimers *timers = nrd_timers_new();
    GAsyncQueue *fired = g_async_queue_new();
    Shot shots[50];
    int64_t now = nrd_clock_mono_ms();
    for (int i = 0; i < 50; i++) {
        int number = (i * 37) % 50 + 1;
        shot_init(&shots[i], timers, fired, number, false);
        /* far apart in the past and the future of one moment, so that the order is that of the deadlines */
        nrd_timer_set(timers, &shots[i].timer, now + 200 + number);
    }
    for (int number = 1; number <= 50; number++)
        g_assert_cmpint(GPOINTER_TO_INT(g_async_queue_pop(fired)), ==, number);
    nrd_timers_free(timers);
    g_async_queue_unref(fired);
}

static void test_move_and_clear(void)
{
    NrdTimers *timers = nrd_timers_new();
    GAsyncQueue *fired = g_async_queue_new();
    Shot moved, cleared, earlier, last;
    int64_t now = nrd_clock_mono_ms();
    shot_init(&moved, timers, fired, 1, false);
    shot_init(&cleared, timers, fired, 2, false);
    shot_init(&earlier, timers, fired, 3, false);
    shot_init(&last, timers, fired, 4, false);
    nrd_timer_set(timers, &moved.timer, now + 3600000);
    nrd_timer_set(timers, &cleared.timer, now + 20);
    nrd_timer_set(timers, &earlier.timer, now + 30);
    nrd_timer_set_earlier(timers, &earlier.timer, now + 3600000); /* stays where it is */
    nrd_timer_clear(timers, &cleared.timer);
    nrd_timer_set(timers, &moved.timer, now + 10);
    nrd_timer_set(timers, &last.timer, now + 60);
    g_assert_cmpint(GPOINTER_TO_INT(g_async_queue_pop(fired)), ==, 1);
    g_assert_cmpint(GPOINTER_TO_INT(g_async_queue_pop(fired)), ==, 3);
    g_assert_cmpint(GPOINTER_TO_INT(g_async_queue_pop(fired)), ==, 4);
    g_assert_null(g_async_queue_try_pop(fired));
    nrd_timers_free(timers);
    g_async_queue_unref(fired);
}

static void rearm(void *user_data)
{
    Shot *shot = user_data;
    if (atomic_fetch_add(&shot->n_fired, 1) < 99)
        nrd_timer_set(shot->timers, &shot->timer, nrd_clock_mono_ms());
    else
        g_async_queue_push(shot->fired, GINT_TO_POINTER(1));
}

static void test_rearm(gconstpointer blocking)
{
    NrdTimers *timers = nrd_timers_new();
    GAsyncQueue *fired = g_async_queue_new();
    Shot shot;
    shot_init(&shot, timers, fired, 1, false);
    nrd_timer_init(&shot.timer, rearm, &shot, GPOINTER_TO_INT(blocking));
    nrd_timer_set(timers, &shot.timer, 0);
    g_async_queue_pop(fired);
    g_assert_cmpint(atomic_load(&shot.n_fired), ==, 100);
    nrd_timers_free(timers);
    g_async_queue_unref(fired);
}

static void test_drain(void)
{
    NrdTimers *timers = nrd_timers_new();
    GAsyncQueue *fired = g_async_queue_new();
    for (int i = 0; i < 2000; i++) {
        Shot shot;
        shot_init(&shot, timers, fired, 1, i % 2 == 0);
        nrd_timer_set(timers, &shot.timer, 0);
        if (i % 3 == 0)
            g_thread_yield();
        nrd_timer_drain(timers, &shot.timer);
        memset(&shot, 0xee, sizeof shot); /* a late callback would trip over this */
    }
    nrd_timers_free(timers);
    g_async_queue_unref(fired);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/timer/order", test_order);
    g_test_add_func("/timer/move-and-clear", test_move_and_clear);
    g_test_add_data_func("/timer/rearm", GINT_TO_POINTER(0), test_rearm);
    g_test_add_data_func("/timer/rearm-blocking", GINT_TO_POINTER(1), test_rearm);
    g_test_add_func("/timer/drain", test_drain);
    return g_test_run();
}
