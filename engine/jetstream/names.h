/* What things are called on the servers. Pure.
 *
 * A partition is a stream of its own. Its name has the topic's name, for people, and the topic's incarnation, so that a
 * topic that is deleted and made again never meets the records of the one before. Names of streams have no dot, of which
 * those of topics may have any number: '=' stands for it, which no topic's name has, so that two topics never share one. */
#ifndef NRD_ENGINE_JETSTREAM_NAMES_H
#define NRD_ENGINE_JETSTREAM_NAMES_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_JS_BUCKET "narad"   /* the key-value bucket with the records of topics */
#define NRD_JS_CONSUMER "narad" /* what the durable consumer of each partition's stream begins with: see below */
#define NRD_JS_ID_HEADER "Nats-Msg-Id"
#define NRD_JS_KEY_HEADER "Narad-Key" /* of a keyed record: its key, in base64 */
#define NRD_JS_KV_STREAM "KV_" NRD_JS_BUCKET
#define NRD_JS_KV_SUBJECT "$KV." NRD_JS_BUCKET "."

char *nrd_js_encode_topic(const char *topic); /* g_free */
char *nrd_js_decode_topic(const char *text);  /* g_free */

/* narad_<topic>_<incarnation>_p<5 digits>, at most 230 bytes, of the 255 that a server takes (g_free); and the subject that
 * is published to. */
char *nrd_js_stream_name(const char *topic, const char *id, uint32_t partition);
char *nrd_js_subject(const char *topic, const char *id, uint32_t partition);

/* narad_<generation>: a consumer that replaces another one has a higher generation, so that what settled the deliveries of the
 * one before settles none of its own. Generation 0 is `narad`, without a number (g_free). false: it is no consumer of ours. */
char *nrd_js_consumer_name(uint64_t generation);
bool nrd_js_parse_consumer(const char *name, uint64_t *ret_generation);

/* What a stream takes while its topic is being removed, in the place of that subject: nothing that anybody writes (g_free).
 * remover: NRD_JS_REMOVER_BYTES at most with its NUL, of letters, digits and '-'; each removal has its own. */
#define NRD_JS_REMOVER_BYTES 40
char *nrd_js_closed_subject(const char *subject, const char *remover);
/* Whether it is one of those, and whose (not g_free; "": nobody's name is there). */
bool nrd_js_parse_closed(const char *subject, const char **ret_remover);

/* The record behind a delivery, from the subject that settles it: `$JS.ACK.`, then the partition (the end of its stream's
 * name), the consumer, the stream's sequence, the time of its publication in nanoseconds, and how often it was delivered, among
 * others; both forms, with and without domain and account. -EINVAL. */
typedef struct NrdJsAckSubject {
    uint32_t partition;
    uint64_t generation; /* of the consumer */
    uint64_t sequence;
    int64_t time_ns;
    uint64_t n_delivered;
    uint64_t n_pending; /* what the consumer had not delivered yet then, but for what comes again */
} NrdJsAckSubject;
int nrd_js_parse_ack(const char *subject, NrdJsAckSubject *ret_parts) NRD_MUST_CHECK;

/* Milliseconds of a time as the servers write it (RFC 3339 with up to nine digits after the point), cut off; 0: none. */
int64_t nrd_js_parse_time_ms(const char *text);

#endif
