/* Whether another thread may be begun, by who can do without: see engine/jetstream/reserve.c, which ends some so that others get
 * their place. Threads: any. */
#ifndef NRD_ENGINE_BASE_THREADS_H
#define NRD_ENGINE_BASE_THREADS_H

#include <stdbool.h>

/* The system has refused one. */
void nrd_threads_note_refused(void);

/* Between the two nobody else is to take the place of threads that have ended, if the system has ever refused one: else there are
 * enough. They nest. */
void nrd_threads_hold(void);
void nrd_threads_release(void);
bool nrd_threads_may_begin(void);

#endif
