/* Where a producing file's records go: to its partition, or, in a topic's folder, to the topic, which chooses one. The
 * functions are those of engine.h for the one or the other. */
#ifndef NRD_FS_SINK_H
#define NRD_FS_SINK_H

#include "fs/fs_private.h"

/* A producer of either kind; zeroed: none. Passed by value: it is a reference, not the thing. */
typedef struct NrdSink {
    NrdProducer *partition;
    NrdTopicProducer *topic;
} NrdSink;

static inline bool nrd_sink_is_open(NrdSink sink)
{
    return sink.partition || sink.topic;
}

int nrd_sink_open(NrdHandle *handle, bool want_ranges, NrdSink *ret_sink) NRD_MUST_CHECK;
int nrd_sink_check(NrdSink sink) NRD_MUST_CHECK;
void nrd_sink_add(NrdSink sink, const NrdNewRecord *records, size_t n_records);
NrdUrgency nrd_sink_wrote(NrdSink sink, bool more_follows);
void nrd_sink_flush(NrdHandle *handle);
void nrd_sink_sync(NrdSink sink, NrdSyncScope scope, NrdDoneFn done, void *user_data);
size_t nrd_sink_read_ranges(NrdSink sink, char *buf, size_t size);
NrdSink nrd_sink_ref(NrdSink sink);
void nrd_sink_unref(NrdSink sink);
void nrd_sink_close(NrdSink sink, NrdDoneFn done, void *user_data);

#endif
