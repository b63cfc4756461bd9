/* engine.h to the engine that an object belongs to: consuming. See table.h. */
#include "engine/table.h"

void nrd_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                        void *user_data)
{
    nrd_table_of(partition)->partition_take(partition, waiter, wait_ms, deliver, user_data);
}

void nrd_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    nrd_table_of(partition)->partition_take_sure(partition, deliver, user_data);
}

int nrd_partition_take_batch(NrdPartition *partition, NrdBatch *batch)
{
    return nrd_table_of(partition)->partition_take_batch(partition, batch);
}

bool nrd_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter)
{
    return nrd_table_of(partition)->waiter_cancel(partition, waiter);
}

int nrd_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    return nrd_table_of(partition)->partition_settle(partition, verb, offset, nonce);
}

size_t nrd_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    return nrd_table_of(partition)->partition_settle_many(partition, verb, holds, n, ret_error);
}

int nrd_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_errors)
{
    return nrd_table_of(partition)->partition_settle_durably(partition, holds, n, ret_errors);
}

void nrd_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data)
{
    nrd_table_of(partition)->partition_sync_frontier(partition, done, user_data);
}

bool nrd_partition_readable(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_readable(partition);
}

void nrd_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    nrd_table_of(partition)->watch_set(partition, watch, notify, user_data);
}

bool nrd_watch_clear(NrdPartition *partition, NrdWatch *watch)
{
    return nrd_table_of(partition)->watch_clear(partition, watch);
}

int nrd_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer)
{
    return nrd_table_of(topic)->topic_consumer_open(topic, ret_consumer);
}

void nrd_topic_consumer_close(NrdTopicConsumer *consumer)
{
    if (consumer)
        nrd_table_of(consumer)->topic_consumer_close(consumer);
}

void nrd_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                    void *user_data)
{
    nrd_table_of(consumer)->topic_take(consumer, waiter, wait_ms, deliver, user_data);
}

void nrd_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data)
{
    nrd_table_of(consumer)->topic_take_sure(consumer, deliver, user_data);
}

int nrd_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch)
{
    return nrd_table_of(consumer)->topic_take_batch(consumer, batch);
}

bool nrd_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter)
{
    return nrd_table_of(topic)->topic_take_cancel(topic, waiter);
}

bool nrd_topic_readable(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_readable(topic);
}

void nrd_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    nrd_table_of(topic)->topic_watch_set(topic, watch, notify, user_data);
}

bool nrd_topic_watch_clear(NrdTopic *topic, NrdWatch *watch)
{
    return nrd_table_of(topic)->topic_watch_clear(topic, watch);
}

int nrd_topic_settle(NrdTopic *topic, uint32_t partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    return nrd_table_of(topic)->topic_settle(topic, partition, verb, offset, nonce);
}

size_t nrd_topic_settle_many(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    return nrd_table_of(topic)->topic_settle_many(topic, verb, holds, n, ret_error);
}

int nrd_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors)
{
    return nrd_table_of(topic)->topic_settle_durably(topic, holds, n, ret_errors);
}

void nrd_topic_sync_frontiers(NrdTopic *topic, NrdDoneFn done, void *user_data)
{
    nrd_table_of(topic)->topic_sync_frontiers(topic, done, user_data);
}
