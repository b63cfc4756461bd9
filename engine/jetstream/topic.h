/* A topic, as this daemon knows it. */
#ifndef NRD_ENGINE_JETSTREAM_TOPIC_H
#define NRD_ENGINE_JETSTREAM_TOPIC_H

#include "engine/jetstream/js_private.h"

/* record is taken over; NULL: it is damaged, and fault (taken over) says how. One reference, the caller's. */
NrdTopic *nrd_js_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, uint64_t revision, char *fault);
/* A record of the bucket (taken over), unless a newer one is known. */
void nrd_js_topic_put_record(NrdTopic *topic, NrdTopicRecord *record, uint64_t revision);
/* It is gone: everybody who waits or holds it is told. */
void nrd_js_topic_gone(NrdTopic *topic);
NrdTopicConfig nrd_js_topic_config(NrdTopic *topic);
/* A sentence (g_free) when a setting would change that means nothing here; else NULL. */
char *nrd_js_config_why_not(const NrdTopicConfig *old, const NrdTopicConfig *next);
NrdPlace nrd_js_topic_place(const NrdTopic *topic);
int nrd_js_topic_usable(NrdTopic *topic) NRD_MUST_CHECK; /* -EIDRM, -EIO */

#endif
