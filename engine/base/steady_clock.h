/* A wall clock for decisions that cannot be taken back: it does not follow a step forward before the step has stood for
 * an hour. Retention deletes by it, so that a clock that is set ten years ahead for a while empties no topic.
 * Pure: the times are arguments. One user at a time. */
#ifndef NRD_BASE_STEADY_CLOCK_H
#define NRD_BASE_STEADY_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define NRD_STEADY_STEP_MS ((int64_t)10 * 60 * 1000)  /* a difference up to this is drift, and followed */
#define NRD_STEADY_GRACE_MS ((int64_t)60 * 60 * 1000) /* so long a step has to stand */

typedef struct NrdSteadyClock {
    int64_t base_ms;    /* wall time at monotonic 0, as believed */
    int64_t highest_ms; /* the highest base_ms that was believed: back to it is no step forward */
    int64_t doubted_ms; /* monotonic time at which the step was seen first; 0: none is doubted */
} NrdSteadyClock;

/* wall_ms: Unix milliseconds now; mono_ms: monotonic ones, above 0. last_known_ms: when the wall clock was last known to be
 * right (the last run), or 0: then wall_ms is believed. */
void nrd_steady_clock_start(NrdSteadyClock *clock, int64_t wall_ms, int64_t mono_ms, int64_t last_known_ms);

/* The time to decide by, never later than wall_ms. *ret_stepped is true when a step is seen for the first time. */
int64_t nrd_steady_clock_now(NrdSteadyClock *clock, int64_t wall_ms, int64_t mono_ms, bool *ret_stepped);

#endif
