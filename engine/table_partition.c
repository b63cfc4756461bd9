/* engine.h to the engine that an object belongs to: partitions. See table.h. */
#include "engine/table.h"

NrdPartition *nrd_topic_partition(NrdTopic *topic, uint32_t number)
{
    return nrd_table_of(topic)->topic_partition(topic, number);
}

int nrd_partition_pin(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_pin(partition);
}

void nrd_partition_unpin(NrdPartition *partition)
{
    nrd_table_of(partition)->partition_unpin(partition);
}

bool nrd_partition_is_open(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_is_open(partition);
}

bool nrd_partition_known(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_known(partition);
}

int nrd_partition_learn(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_learn(partition);
}

void nrd_topic_learn(NrdTopic *topic)
{
    nrd_table_of(topic)->topic_learn(topic);
}

void nrd_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info)
{
    nrd_table_of(partition)->partition_info(partition, ret_info);
}

int nrd_partition_lost_ranges(NrdPartition *partition, GArray **ret_ranges)
{
    return nrd_table_of(partition)->partition_lost_ranges(partition, ret_ranges);
}

uint32_t nrd_partition_number(const NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_number(partition);
}

int nrd_partition_reopen(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_reopen(partition);
}

int nrd_partition_roll(NrdPartition *partition)
{
    return nrd_table_of(partition)->partition_roll(partition);
}

int nrd_partition_trim(NrdPartition *partition, uint64_t offset)
{
    return nrd_table_of(partition)->partition_trim(partition, offset);
}

int nrd_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset)
{
    return nrd_table_of(partition)->partition_seek(partition, to, offset);
}
