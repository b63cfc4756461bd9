/* See source.h. */
#include "fs/source.h"

#include <errno.h>

void nrd_source_take(NrdHandle *handle, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver, void *user_data)
{
    if (handle->partition)
        nrd_partition_take(handle->partition, waiter, wait_ms, deliver, user_data);
    else
        nrd_topic_take(handle->consumer, waiter, wait_ms, deliver, user_data);
}

void nrd_source_take_sure(NrdHandle *handle, NrdDeliverFn deliver, void *user_data)
{
    if (handle->partition)
        nrd_partition_take_sure(handle->partition, deliver, user_data);
    else
        nrd_topic_take_sure(handle->consumer, deliver, user_data);
}

int nrd_source_take_batch(NrdHandle *handle, NrdBatch *batch)
{
    if (handle->partition)
        return nrd_partition_take_batch(handle->partition, batch);
    return nrd_topic_take_batch(handle->consumer, batch);
}

bool nrd_source_cancel(NrdHandle *handle, NrdWaiter *waiter)
{
    if (handle->partition)
        return nrd_waiter_cancel(handle->partition, waiter);
    return nrd_topic_take_cancel(handle->topic, waiter);
}

bool nrd_source_readable(NrdHandle *handle)
{
    return handle->partition ? nrd_partition_readable(handle->partition) : nrd_topic_readable(handle->topic);
}

int nrd_source_settle(NrdHandle *handle, NrdVerb verb, uint32_t partition, uint64_t offset, uint64_t nonce)
{
    if (!handle->partition)
        return nrd_topic_settle(handle->topic, partition, verb, offset, nonce);
    if (partition != nrd_partition_number(handle->partition))
        return -EINVAL;
    return nrd_partition_settle(handle->partition, verb, offset, nonce);
}

size_t nrd_source_settle_many(NrdHandle *handle, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    if (handle->partition)
        return nrd_partition_settle_many(handle->partition, verb, holds, n, ret_error);
    return nrd_topic_settle_many(handle->topic, verb, holds, n, ret_error);
}

int nrd_source_settle_durably(NrdHandle *handle, const NrdHold *holds, size_t n, int *ret_errors)
{
    if (handle->partition)
        return nrd_partition_settle_durably(handle->partition, holds, n, ret_errors);
    return nrd_topic_settle_durably(handle->topic, holds, n, ret_errors);
}

void nrd_source_sync(NrdHandle *handle, NrdDoneFn done, void *user_data)
{
    if (handle->partition)
        nrd_partition_sync_frontier(handle->partition, done, user_data);
    else
        nrd_topic_sync_frontiers(handle->topic, done, user_data);
}

void nrd_source_watch_set(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data),
                          void *user_data)
{
    if (partition)
        nrd_watch_set(partition, watch, notify, user_data);
    else
        nrd_topic_watch_set(topic, watch, notify, user_data);
}

bool nrd_source_watch_clear(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch)
{
    return partition ? nrd_watch_clear(partition, watch) : nrd_topic_watch_clear(topic, watch);
}
