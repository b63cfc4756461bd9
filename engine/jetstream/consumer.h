/* The consumer that a partition has on the servers. */
#ifndef NRD_ENGINE_JETSTREAM_CONSUMER_H
#define NRD_ENGINE_JETSTREAM_CONSUMER_H

#include "engine/jetstream/js_private.h"

int nrd_js_partition_need_consumer(NrdPartition *partition) NRD_MUST_CHECK; /* blocks the first time */
/* As nrd_js_consumer_info, of the one that is meant now. Blocks. */
int nrd_js_consumer_look(NrdPartition *partition, int64_t patience_ms, NrdJsConsumerInfo *ret_info,
                         char **ret_why) NRD_MUST_CHECK;
/* It is looked for, and set to the settings, by its next use. */
void nrd_js_consumer_doubt(NrdPartition *partition);
/* Consumers whose shorter timeout all mounts know of by now are set to it by their next use. */
void nrd_js_consumers_lower(NrdEngine *engine);
/* Nobody answers for it: that is looked into on another thread. */
void nrd_js_consumer_suspect(NrdPartition *partition);
/* Another one in its place, which begins at that sequence, for all mounts; all leases are void. Blocks. */
int nrd_js_consumer_replace(NrdPartition *partition, uint64_t start_seq) NRD_MUST_CHECK;

#endif
