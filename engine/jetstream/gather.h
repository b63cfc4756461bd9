/* Several answers as one: for a thread that waits for all of them, and for somebody who is called when the last has come. */
#ifndef NRD_ENGINE_JETSTREAM_GATHER_H
#define NRD_ENGINE_JETSTREAM_GATHER_H

#include "engine/engine.h"

#include <glib.h>

/* ---- a thread that waits ---- */

/* On its stack. Others count down, each once for what it was counted; they touch it no more after that. */
typedef struct NrdJsCountdown {
    GMutex lock;
    GCond zero;
    size_t n; /* guarded by lock */
} NrdJsCountdown;

void nrd_js_countdown_init(NrdJsCountdown *countdown, size_t n);
void nrd_js_countdown_one(NrdJsCountdown *countdown);
void nrd_js_countdown_wait(NrdJsCountdown *countdown); /* until it is 0; then it is cleared. Blocks */

/* ---- somebody who is called ---- */

typedef struct NrdJsGather NrdJsGather;

/* done is called with the first error of the n parts, or 0, by the last of them. */
NrdJsGather *nrd_js_gather_new(size_t n, NrdDoneFn done, void *user_data);
void nrd_js_gather_one(void *gather, int error); /* an NrdDoneFn: a part is done */

#endif
