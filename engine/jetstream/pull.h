/* Those who wait for records, and records that wait for somebody. */
#ifndef NRD_ENGINE_JETSTREAM_PULL_H
#define NRD_ENGINE_JETSTREAM_PULL_H

#include "engine/jetstream/js_private.h"

/* ---- pull.c ---- */

NrdJsPulls *nrd_js_pulls_new(NrdEngine *engine);
/* Nobody takes any more, also of what is given back from now on. */
void nrd_js_pulls_end(NrdJsPulls *pulls);
/* ... and nothing is set off by time. The connection is still there. */
void nrd_js_pulls_stop(NrdJsPulls *pulls);
void nrd_js_pulls_free(NrdJsPulls *pulls);
/* Answers who waits on this topic (NULL: on any) with error. */
void nrd_js_pulls_interrupt(NrdJsPulls *pulls, NrdTopic *topic, int error);
void nrd_js_pulls_reconnected(NrdJsPulls *pulls);
/* What this daemon was delivered of the partition, and nobody has taken, is void. Who waits there is answered with error;
 * 0: asks again. */
void nrd_js_pulls_forget(NrdJsPulls *pulls, NrdPartition *partition, int error);

/* ---- hand.c ---- */

uint64_t nrd_js_hand_count(NrdPartition *partition); /* records that this daemon has, and nobody has been given */

#endif
