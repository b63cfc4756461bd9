/* engine.h to the engine that an object belongs to: producing. See table.h. */
#include "engine/table.h"

int nrd_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer)
{
    return nrd_table_of(partition)->producer_open(partition, want_ranges, ret_producer);
}

int nrd_producer_check(NrdProducer *producer)
{
    return nrd_table_of(producer)->producer_check(producer);
}

void nrd_producer_add_many(NrdProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    nrd_table_of(producer)->producer_add_many(producer, records, n_records);
}

void nrd_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload, size_t payload_size)
{
    nrd_table_of(producer)->producer_add(producer, key, key_size, payload, payload_size);
}

NrdUrgency nrd_producer_wrote(NrdProducer *producer, bool more_follows)
{
    return nrd_table_of(producer)->producer_wrote(producer, more_follows);
}

void nrd_partition_flush(NrdPartition *partition)
{
    nrd_table_of(partition)->partition_flush(partition);
}

void nrd_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    nrd_table_of(producer)->producer_sync(producer, scope, done, user_data);
}

NrdProducer *nrd_producer_ref(NrdProducer *producer)
{
    return nrd_table_of(producer)->producer_ref(producer);
}

void nrd_producer_unref(NrdProducer *producer)
{
    nrd_table_of(producer)->producer_unref(producer);
}

size_t nrd_producer_read_ranges(NrdProducer *producer, char *buf, size_t size)
{
    return nrd_table_of(producer)->producer_read_ranges(producer, buf, size);
}

void nrd_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data)
{
    nrd_table_of(producer)->producer_close(producer, done, user_data);
}

int nrd_topic_producer_open(NrdTopic *topic, bool want_ranges, NrdTopicProducer **ret_producer)
{
    return nrd_table_of(topic)->topic_producer_open(topic, want_ranges, ret_producer);
}

int nrd_topic_producer_check(NrdTopicProducer *producer)
{
    return nrd_table_of(producer)->topic_producer_check(producer);
}

void nrd_topic_producer_add_many(NrdTopicProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    nrd_table_of(producer)->topic_producer_add_many(producer, records, n_records);
}

void nrd_topic_producer_add(NrdTopicProducer *producer, const void *key, size_t key_size, const void *payload,
                            size_t payload_size)
{
    nrd_table_of(producer)->topic_producer_add(producer, key, key_size, payload, payload_size);
}

NrdUrgency nrd_topic_producer_wrote(NrdTopicProducer *producer, bool more_follows)
{
    return nrd_table_of(producer)->topic_producer_wrote(producer, more_follows);
}

void nrd_topic_flush(NrdTopic *topic)
{
    nrd_table_of(topic)->topic_flush(topic);
}

void nrd_topic_producer_sync(NrdTopicProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    nrd_table_of(producer)->topic_producer_sync(producer, scope, done, user_data);
}

NrdTopicProducer *nrd_topic_producer_ref(NrdTopicProducer *producer)
{
    return nrd_table_of(producer)->topic_producer_ref(producer);
}

void nrd_topic_producer_unref(NrdTopicProducer *producer)
{
    nrd_table_of(producer)->topic_producer_unref(producer);
}

size_t nrd_topic_producer_read_ranges(NrdTopicProducer *producer, char *buf, size_t size)
{
    return nrd_table_of(producer)->topic_producer_read_ranges(producer, buf, size);
}

void nrd_topic_producer_close(NrdTopicProducer *producer, NrdDoneFn done, void *user_data)
{
    nrd_table_of(producer)->topic_producer_close(producer, done, user_data);
}
