/* See steady_clock.h. */
#include "engine/base/steady_clock.h"

void nrd_steady_clock_start(NrdSteadyClock *clock, int64_t wall_ms, int64_t mono_ms, int64_t last_known_ms)
{
    /* Time that passed while nothing ran cannot be told from a step: it is believed an hour later, which only delays. */
    bool believed = last_known_ms == 0 || wall_ms - last_known_ms <= NRD_STEADY_STEP_MS;
    int64_t base_ms = (believed ? wall_ms : last_known_ms) - mono_ms;
    *clock = (NrdSteadyClock){ .base_ms = base_ms, .highest_ms = base_ms };
}

int64_t nrd_steady_clock_now(NrdSteadyClock *clock, int64_t wall_ms, int64_t mono_ms, bool *ret_stepped)
{
    int64_t believed_ms = clock->base_ms + mono_ms;
    bool ahead = wall_ms - mono_ms - clock->highest_ms > NRD_STEADY_STEP_MS; /* also of where it had been already */
    *ret_stepped = false;
    if (ahead && wall_ms - believed_ms > NRD_STEADY_STEP_MS) {
        if (clock->doubted_ms == 0) {
            clock->doubted_ms = mono_ms;
            *ret_stepped = true;
        }
        if (mono_ms - clock->doubted_ms < NRD_STEADY_GRACE_MS)
            return believed_ms;
    }
    clock->base_ms = wall_ms - mono_ms;
    if (clock->base_ms > clock->highest_ms)
        clock->highest_ms = clock->base_ms;
    clock->doubted_ms = 0;
    return wall_ms;
}
