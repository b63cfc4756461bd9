/* engine.h to the engine that an object belongs to: reading. See table.h. */
#include "engine/table.h"

int nrd_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader)
{
    return nrd_table_of(partition)->reader_open(partition, from, offset, ret_reader);
}

uint64_t nrd_reader_size(NrdReader *reader)
{
    return nrd_table_of(reader)->reader_size(reader);
}

int nrd_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    return nrd_table_of(reader)->reader_read(reader, pos, buf, size, ret_size);
}

void nrd_reader_close(NrdReader *reader)
{
    nrd_table_of(reader)->reader_close(reader);
}

int nrd_reader_open_rendered(NrdPartition *partition, const NrdRendering *rendering, NrdReader **ret_reader)
{
    return nrd_table_of(partition)->reader_open_rendered(partition, rendering, ret_reader);
}

int nrd_reader_measure(NrdReader *reader, uint64_t *ret_size)
{
    return nrd_table_of(reader)->reader_measure(reader, ret_size);
}

bool nrd_reader_waits(NrdReader *reader, uint64_t pos)
{
    return nrd_table_of(reader)->reader_waits(reader, pos);
}

int nrd_partition_rendered_bytes(NrdPartition *partition, const NrdRendering *rendering, uint64_t *ret_bytes)
{
    return nrd_table_of(partition)->partition_rendered_bytes(partition, rendering, ret_bytes);
}

int nrd_partition_record(NrdPartition *partition, uint64_t offset, NrdRecord *ret_record)
{
    return nrd_table_of(partition)->partition_record(partition, offset, ret_record);
}

int nrd_partition_find_time(NrdPartition *partition, int64_t time_ms, uint64_t *ret_offset)
{
    return nrd_table_of(partition)->partition_find_time(partition, time_ms, ret_offset);
}

int nrd_partition_segments(NrdPartition *partition, GArray **ret_views)
{
    return nrd_table_of(partition)->partition_segments(partition, ret_views);
}

int nrd_segment_reader_open(NrdPartition *partition, uint64_t base, NrdSegmentReader **ret_reader)
{
    return nrd_table_of(partition)->segment_reader_open(partition, base, ret_reader);
}

void nrd_segment_reader_view(NrdSegmentReader *reader, NrdSegmentView *ret_view)
{
    nrd_table_of(reader)->segment_reader_view(reader, ret_view);
}

int nrd_segment_reader_read(NrdSegmentReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    return nrd_table_of(reader)->segment_reader_read(reader, pos, buf, size, ret_size);
}

void nrd_segment_reader_close(NrdSegmentReader *reader)
{
    nrd_table_of(reader)->segment_reader_close(reader);
}
