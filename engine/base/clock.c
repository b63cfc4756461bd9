#include "engine/base/clock.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t wall_shift_ms;
static _Atomic int64_t mono_shift_ms;

static int64_t read_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t); /* cannot fail for these two clocks (clock_gettime(2)) */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t nrd_clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME) + atomic_load_explicit(&wall_shift_ms, memory_order_relaxed);
}

int64_t nrd_clock_mono_ms(void)
{
    return read_ms(CLOCK_BOOTTIME) + atomic_load_explicit(&mono_shift_ms, memory_order_relaxed);
}

void nrd_clock_shift_wall_ms(int64_t delta_ms)
{
    atomic_fetch_add(&wall_shift_ms, delta_ms);
}

void nrd_clock_shift_mono_ms(int64_t delta_ms)
{
    atomic_fetch_add(&mono_shift_ms, delta_ms);
}
