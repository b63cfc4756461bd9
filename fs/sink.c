/* See sink.h. */
#include "fs/sink.h"

int nrd_sink_open(NrdHandle *handle, bool want_ranges, NrdSink *ret_sink)
{
    NrdSink sink = { NULL, NULL };
    int error = handle->partition ? nrd_producer_open(handle->partition, want_ranges, &sink.partition)
                                  : nrd_topic_producer_open(handle->topic, want_ranges, &sink.topic);
    if (error == 0)
        *ret_sink = sink;
    return error;
}

int nrd_sink_check(NrdSink sink)
{
    return sink.partition ? nrd_producer_check(sink.partition) : nrd_topic_producer_check(sink.topic);
}

void nrd_sink_add(NrdSink sink, const NrdNewRecord *records, size_t n_records)
{
    if (sink.partition)
        nrd_producer_add_many(sink.partition, records, n_records);
    else
        nrd_topic_producer_add_many(sink.topic, records, n_records);
}

NrdUrgency nrd_sink_wrote(NrdSink sink, bool more_follows)
{
    return sink.partition ? nrd_producer_wrote(sink.partition, more_follows)
                          : nrd_topic_producer_wrote(sink.topic, more_follows);
}

void nrd_sink_flush(NrdHandle *handle)
{
    if (handle->partition)
        nrd_partition_flush(handle->partition);
    else
        nrd_topic_flush(handle->topic);
}

void nrd_sink_sync(NrdSink sink, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    if (sink.partition)
        nrd_producer_sync(sink.partition, scope, done, user_data);
    else
        nrd_topic_producer_sync(sink.topic, scope, done, user_data);
}

size_t nrd_sink_read_ranges(NrdSink sink, char *buf, size_t size)
{
    return sink.partition ? nrd_producer_read_ranges(sink.partition, buf, size)
                          : nrd_topic_producer_read_ranges(sink.topic, buf, size);
}

NrdSink nrd_sink_ref(NrdSink sink)
{
    if (sink.partition)
        nrd_producer_ref(sink.partition);
    if (sink.topic)
        nrd_topic_producer_ref(sink.topic);
    return sink;
}

void nrd_sink_unref(NrdSink sink)
{
    if (sink.partition)
        nrd_producer_unref(sink.partition);
    if (sink.topic)
        nrd_topic_producer_unref(sink.topic);
}

void nrd_sink_close(NrdSink sink, NrdDoneFn done, void *user_data)
{
    if (sink.partition)
        nrd_producer_close(sink.partition, done, user_data);
    else
        nrd_topic_producer_close(sink.topic, done, user_data);
}
