/* Loops: passes, kicks, and what happens to one that hangs. */
#include "engine/loop.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <glib.h>
#include <stdatomic.h>

#define LIMIT_MS 20000

static atomic_int n_passes, n_hanging, hang, n_told_to_end;

static void pass(NrdLoop *loop, void *user_data)
{
    atomic_fetch_add(&n_passes, 1);
    if (!atomic_load(&hang))
        return;
    atomic_fetch_add(&n_hanging, 1);
    while (atomic_load(&hang))
        g_usleep(1000);
    if (!nrd_loop_beat(loop))
        atomic_fetch_add(&n_told_to_end, 1);
}

static bool reaches(atomic_int *value, int wanted)
{
    for (int64_t end = nrd_clock_mono_ms() + LIMIT_MS; nrd_clock_mono_ms() < end; g_usleep(1000)) {
        if (atomic_load(value) >= wanted)
            return true;
    }
    return false;
}

static void reset(void)
{
    atomic_store(&n_passes, 0);
    atomic_store(&n_hanging, 0);
    atomic_store(&n_told_to_end, 0);
    atomic_store(&hang, 0);
}

static void test_passes(void)
{
    reset();
    NrdTimers *timers = nrd_timers_new();
    NrdLoop *loop = nrd_loop_new(&(NrdLoopOptions){ .name = "test", .period_ms = 10, .pass = pass }, timers);
    g_assert_true(reaches(&n_passes, 3));
    nrd_loop_free(loop);
    int n = atomic_load(&n_passes);
    g_usleep(50000);
    g_assert_cmpint(atomic_load(&n_passes), ==, n);
    nrd_timers_free(timers);
}

static void test_kick(void)
{
    reset();
    NrdTimers *timers = nrd_timers_new();
    NrdLoop *loop = nrd_loop_new(&(NrdLoopOptions){ .name = "test", .period_ms = 3600000, .pass = pass }, timers);
    nrd_loop_kick(loop);
    g_assert_true(reaches(&n_passes, 1));
    nrd_loop_kick(loop);
    g_assert_true(reaches(&n_passes, 2));
    nrd_loop_free(loop);
    nrd_timers_free(timers);
}

/* A hanging pass is replaced, up to the cap; the replaced ones end when they come back, and only one thread makes passes. */
static void test_stuck(void)
{
    reset();
    uint64_t counted = nrd_counter_get(NRD_COUNTER_REAPER_RESTARTS);
    NrdTimers *timers = nrd_timers_new();
    NrdLoop *loop =
        nrd_loop_new(&(NrdLoopOptions){ .name = "test", .period_ms = 5, .stuck_ms = 40, .pass = pass }, timers);
    atomic_store(&hang, 1);
    g_assert_true(reaches(&n_hanging, 1 + NRD_LOOP_MAX_RESTARTS));
    g_usleep(200000);
    g_assert_cmpint(atomic_load(&n_hanging), ==, 1 + NRD_LOOP_MAX_RESTARTS);
    g_assert_cmpuint(nrd_loop_restarts(loop), ==, NRD_LOOP_MAX_RESTARTS);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_REAPER_RESTARTS) - counted, ==, NRD_LOOP_MAX_RESTARTS);
    atomic_store(&hang, 0);
    g_assert_true(reaches(&n_told_to_end, NRD_LOOP_MAX_RESTARTS));
    int n = atomic_load(&n_passes);
    g_assert_true(reaches(&n_passes, n + 3)); /* the last one goes on */
    nrd_loop_free(loop);
    g_assert_cmpint(atomic_load(&n_told_to_end), ==, NRD_LOOP_MAX_RESTARTS);
    nrd_timers_free(timers);
}

static void test_free_waits_for_a_pass(void)
{
    reset();
    NrdTimers *timers = nrd_timers_new();
    NrdLoop *loop = nrd_loop_new(&(NrdLoopOptions){ .name = "test", .period_ms = 1, .pass = pass }, timers);
    atomic_store(&hang, 1);
    g_assert_true(reaches(&n_hanging, 1));
    atomic_store(&hang, 0);
    nrd_loop_free(loop);
    nrd_timers_free(timers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/loop/passes", test_passes);
    g_test_add_func("/loop/kick", test_kick);
    g_test_add_func("/loop/stuck", test_stuck);
    g_test_add_func("/loop/free-waits-for-a-pass", test_free_waits_for_a_pass);
    return g_test_run();
}
