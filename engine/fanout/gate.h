/* When a record may be copied to a delayed child: not before its commit time plus the delay, by the wall clock as it is now.
 * Commit times never decrease along a partition, so the first record that is not copied yet speaks for all behind it. Pure. */
#ifndef NRD_FANOUT_GATE_H
#define NRD_FANOUT_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Unix milliseconds; never (INT64_MAX) rather than wrapped around. delay_ms is not negative. */
static inline int64_t nrd_gate_due_ms(int64_t commit_ms, int64_t delay_ms)
{
    return commit_ms > INT64_MAX - delay_ms ? INT64_MAX : commit_ms + delay_ms;
}

/* Without a delay the clock is not asked: it may be behind the commit time. */
static inline bool nrd_gate_open(int64_t commit_ms, int64_t delay_ms, int64_t wall_ms)
{
    return delay_ms == 0 || nrd_gate_due_ms(commit_ms, delay_ms) <= wall_ms;
}

#endif
