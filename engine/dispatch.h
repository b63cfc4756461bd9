/* The ingress, for the other files of the engine: what it needs of topics and partitions. Behind it: engine/ingress. */
#ifndef NRD_ENGINE_DISPATCH_H
#define NRD_ENGINE_DISPATCH_H

#include "engine/engine_private.h"

/* Reads the ingress WAL; every topic is loaded. -EAGAIN: the system gave no thread. */
int nrd_dispatch_open(NrdEngine *engine) NRD_MUST_CHECK;

/* The engine has started: what the WAL has is dispatched, now or when it can be read. Never blocks. */
void nrd_dispatch_start(NrdEngine *engine);

/* The ingress, or NULL. What could not be read at the start is tried again, now and then. Blocks. */
NrdIngress *nrd_dispatch_ingress(NrdEngine *engine);

/* Waits a while for what is left in the WAL; the rest is for the next start. No topic producer is left. Blocks. */
int nrd_dispatch_close(NrdEngine *engine) NRD_MUST_CHECK;

/* Whether a commit is worth trying. Memory only. */
bool nrd_partition_seems_well(NrdPartition *partition);

/* The next partition after `number` that seems well. Memory only. */
bool nrd_topic_well_sibling(NrdTopic *topic, uint32_t number, uint32_t *ret_number);

#endif
