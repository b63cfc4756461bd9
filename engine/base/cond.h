/* Conditions that are waited for until a time: by the monotonic clock, which nobody sets, also under a step of the wall clock.
 * (Not nrd_clock_mono_ms's, which pthread cannot wait by: a time of that is turned into what is left until it.) */
#ifndef NRD_ENGINE_BASE_COND_H
#define NRD_ENGINE_BASE_COND_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

void nrd_cond_init(pthread_cond_t *cond);

/* For pthread_cond_timedwait on such a condition: so long from now; from 0 down: now. */
struct timespec nrd_cond_end(int64_t after_ms);

#endif
