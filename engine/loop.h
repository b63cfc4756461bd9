/* A loop of the housekeeping: a thread that makes a pass every so often, and whoever replaces it when it is stuck.
 *
 * A pass says that it is alive (nrd_loop_beat) before each piece of its work. A loop that has not done so for a minute,
 * because the disk hangs under it, is replaced by another thread; the old one ends as soon as it comes back. Past
 * NRD_LOOP_MAX_RESTARTS replacements only the log says so (seed: Retention, "supervised").
 * Threads: any may kick; beat is for the pass. */
#ifndef NRD_ENGINE_LOOP_H
#define NRD_ENGINE_LOOP_H

#include "engine/timer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdLoop NrdLoop;

#define NRD_LOOP_MAX_RESTARTS 3

typedef struct NrdLoopOptions {
    const char *name; /* for messages; static */
    int64_t period_ms;
    int64_t stuck_ms; /* without a beat; 0: one minute */
    void (*pass)(NrdLoop *loop, void *user_data);
    void *user_data;
} NrdLoopOptions;

/* Starts the thread; the first pass comes after one period. timers (borrowed) watch over it. NULL: the system gave no
 * thread. */
NrdLoop *nrd_loop_new(const NrdLoopOptions *options, NrdTimers *timers);

/* Stops it and waits for its threads, also the stuck ones; kicks do nothing any more. Takes NULL. */
void nrd_loop_stop(NrdLoop *loop);

void nrd_loop_free(NrdLoop *loop); /* stops it first; takes NULL */

/* One pass as soon as possible. Never blocks. */
void nrd_loop_kick(NrdLoop *loop);

/* The pass is alive. False: it is to end at once, since the loop stops or was replaced. */
bool nrd_loop_beat(NrdLoop *loop);

uint32_t nrd_loop_restarts(NrdLoop *loop);

#endif
