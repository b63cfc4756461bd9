/* The streams of a topic, many at once. Each of these blocks, and stops at the first failure, which it tells. */
#ifndef NRD_ENGINE_JETSTREAM_STREAMS_H
#define NRD_ENGINE_JETSTREAM_STREAMS_H

#include "engine/jetstream/js_private.h"

/* Streams for partitions [from, config.partitions). One that is there already is set to the record; then the topic's record in
 * the bucket has another revision, and -EBUSY: a removal has closed it. *ret_why (g_free): why not. */
int nrd_js_topic_make_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from,
                              char **ret_why) NRD_MUST_CHECK;
/* The one of that partition. */
int nrd_js_topic_make_stream(NrdEngine *engine, const NrdTopicRecord *record, uint32_t number) NRD_MUST_CHECK;
/* Sets those of partitions [0, end) to the record's retention. *ret_why (g_free): why not. */
int nrd_js_topic_update_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t end,
                                char **ret_why) NRD_MUST_CHECK;
/* Those that are there. A failure is the caller's to tell; *ret_why (g_free) may be NULL. */
int nrd_js_topic_delete_streams(NrdEngine *engine, const NrdTopicRecord *record, char **ret_why) NRD_MUST_CHECK;

/* Streams without a record take none any more, for that remover: -ENOTEMPTY there is one, also one that came at the last
 * moment; -EBUSY another remover has closed them. Then, and when it fails, they are to be opened again. lasts: of each
 * partition, the last sequence that it had when it was seen to be empty. */
int nrd_js_topic_close_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover,
                               const uint64_t *lasts) NRD_MUST_CHECK;
/* Those that the remover has closed, and no others. Only behind nrd_js_store_touch: a removal that is under way must fail. */
int nrd_js_topic_open_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover) NRD_MUST_CHECK;

/* What a look has seen of that. One that stays closed for the same remover, as that one has died over it, is opened after two
 * minutes, on another thread. */
void nrd_js_stream_seen(NrdPartition *partition, const NrdJsStreamInfo *info);
/* Looks on another thread: a record of it was not taken. */
void nrd_js_stream_look_later(NrdPartition *partition);
/* The same, unless one does: nobody was there to take it. */
void nrd_js_stream_suspect(NrdPartition *partition);

#endif
