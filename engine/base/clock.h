/* The clocks of the process, replaceable by tests. Pure code never calls these:
 * it gets the time as an argument. Safe from every thread; never blocks. */
#ifndef NRD_BASE_CLOCK_H
#define NRD_BASE_CLOCK_H

#include <stdint.h>

/* Wall-clock time in Unix milliseconds (CLOCK_REALTIME); may step backwards. */
int64_t nrd_clock_wall_ms(void);

/* Monotonic milliseconds (CLOCK_BOOTTIME: it also counts a suspended machine). For deadlines. */
int64_t nrd_clock_mono_ms(void);

/* Tests only: adds delta_ms to what nrd_clock_wall_ms (and nrd_clock_mono_ms) return. */
void nrd_clock_shift_wall_ms(int64_t delta_ms);
void nrd_clock_shift_mono_ms(int64_t delta_ms);

#endif
