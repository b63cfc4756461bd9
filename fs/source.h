/* What a consuming file takes from: its partition, or, in a topic's folder, every partition of the topic in turn. The
 * functions are those of engine.h for the one or the other. */
#ifndef NRD_FS_SOURCE_H
#define NRD_FS_SOURCE_H

#include "fs/fs_private.h"

void nrd_source_take(NrdHandle *handle, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver, void *user_data);
void nrd_source_take_sure(NrdHandle *handle, NrdDeliverFn deliver, void *user_data);
int nrd_source_take_batch(NrdHandle *handle, NrdBatch *batch) NRD_MUST_CHECK;
bool nrd_source_cancel(NrdHandle *handle, NrdWaiter *waiter);
bool nrd_source_readable(NrdHandle *handle);

/* -EINVAL when the receipt is of a partition that the file does not speak for. */
int nrd_source_settle(NrdHandle *handle, NrdVerb verb, uint32_t partition, uint64_t offset,
                      uint64_t nonce) NRD_MUST_CHECK;
size_t nrd_source_settle_many(NrdHandle *handle, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error);
int nrd_source_settle_durably(NrdHandle *handle, const NrdHold *holds, size_t n, int *ret_errors) NRD_MUST_CHECK;
void nrd_source_sync(NrdHandle *handle, NrdDoneFn done, void *user_data);

/* partition is NULL for a topic's. */
void nrd_source_watch_set(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data),
                          void *user_data);
bool nrd_source_watch_clear(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch);

#endif
