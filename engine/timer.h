/* One timer thread for the process, and up to four workers for timed work that waits for the disk.
 *
 * A timer is embedded in its owner. While nothing is due the thread sleeps; with no timer set it sleeps for ever, so an
 * idle partition costs nothing. A callback runs with no lock held and may set or clear any timer, its own too.
 * Threads: set and clear from any; clear does not wait for a running callback, nrd_timer_drain does. */
#ifndef NRD_ENGINE_TIMER_H
#define NRD_ENGINE_TIMER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdTimers NrdTimers;

typedef struct NrdTimer {
    void (*fire)(void *user_data);
    void *user_data;
    /* private to timer.c, guarded by the NrdTimers' lock; narrow, since each partition has six timers */
    int64_t deadline_ms;
    uint32_t heap_index; /* 0: not set */
    uint16_t n_running;
    bool again; /* came due while queued or running: runs once more after that */
    /* the caller's again */
    bool blocking; /* run on a worker: fire may wait for the disk */
} NrdTimer;

/* NULL: the system gave no thread for it, or for the first of its workers. */
NrdTimers *nrd_timers_new(void);

/* Stops the threads after the callbacks that run; pending timers never fire. Takes NULL. */
void nrd_timers_free(NrdTimers *timers);

void nrd_timer_init(NrdTimer *timer, void (*fire)(void *user_data), void *user_data, bool blocking);

/* Sets (or moves) the deadline, in monotonic milliseconds. */
void nrd_timer_set(NrdTimers *timers, NrdTimer *timer, int64_t deadline_ms);

/* Sets it unless it is set to an earlier time already. */
void nrd_timer_set_earlier(NrdTimers *timers, NrdTimer *timer, int64_t deadline_ms);

void nrd_timer_clear(NrdTimers *timers, NrdTimer *timer);

/* Clears it and waits until its callback does not run (not to be called from that callback). */
void nrd_timer_drain(NrdTimers *timers, NrdTimer *timer);

#endif
