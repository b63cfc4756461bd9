/* JetStream's requests that change or describe streams and consumers, and that get one message: subjects, JSON, errors.
 *
 * All of them block, up to NRD_JS_PATIENCE_MS while nobody answers (a leader is being elected, which takes up to 15 s), and
 * try again until then; not for functions of conn.h's answers. Errors: -ENOENT no such stream, consumer or message; -EEXIST
 * there is another one of that name; -EBUSY the expected last sequence is another one; -ENOSPC the servers have no room;
 * -EIO no answer came, or one that means nothing else here; -ENODEV the connection is being closed. -EIO and -ENOSPC leave
 * a sentence in *ret_why (g_free; ret_why may be NULL); what is in there before is freed. */
#ifndef NRD_ENGINE_JETSTREAM_API_H
#define NRD_ENGINE_JETSTREAM_API_H

#include "engine/jetstream/answers.h"
#include "engine/jetstream/conn.h"

#define NRD_JS_PATIENCE_MS 25000
#define NRD_JS_DUPLICATES_MS INT64_C(120000) /* so long servers know an id, in streams of a mount */
#define NRD_JS_GLANCE_MS 4000                /* of who only looks, and is better told that there is no answer */

/* What a stream is made with, beside its name and its subject. */
typedef struct NrdJsStreamConfig {
    int replicas;
    bool in_memory;     /* only of one that others made so */
    int64_t max_age_ms; /* 0: no limit */
    int64_t max_bytes;  /* 0: no limit */
    const char *description;
} NrdJsStreamConfig;

typedef struct NrdJsConsumerConfig {
    int64_t ack_wait_ms;
    int64_t max_ack_pending;
    uint64_t start_seq; /* 0: from the first */
} NrdJsConsumerConfig;

/* Whether there is any. -EIO: the servers have no JetStream for this mount, and *ret_why (NULL before) says what to do; -ENODEV.
 * 0 also when they are silent, which may pass. Blocks for a few seconds. */
int nrd_js_check_jetstream(NrdJsConn *conn, char **ret_why) NRD_MUST_CHECK;

int nrd_js_stream_create(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why) NRD_MUST_CHECK;
/* A stream keeps the number and the kind of copies that it has: this mount may know fewer servers than who made it. Blocks. */
int nrd_js_stream_keep_copies(NrdJsConn *conn, const char *stream, NrdJsStreamConfig *config,
                              char **ret_why) NRD_MUST_CHECK;
/* With the copies that it has, whatever config says of them. */
int nrd_js_stream_update(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why) NRD_MUST_CHECK;
int nrd_js_stream_delete(NrdJsConn *conn, const char *stream, char **ret_why) NRD_MUST_CHECK;
int nrd_js_stream_info(NrdJsConn *conn, const char *stream, int64_t patience_ms, NrdJsStreamInfo *ret_info,
                       char **ret_why) NRD_MUST_CHECK;

/* The bucket of topic records: as other clients make a key-value bucket with one value for each key. */
int nrd_js_bucket_create(NrdJsConn *conn, int replicas, char **ret_why) NRD_MUST_CHECK;

/* Makes the durable consumer of that name, or sets one with the same start to that. */
int nrd_js_consumer_create(NrdJsConn *conn, const char *stream, const char *consumer, const NrdJsConsumerConfig *config,
                           char **ret_why) NRD_MUST_CHECK;
int nrd_js_consumer_delete(NrdJsConn *conn, const char *stream, const char *consumer, char **ret_why) NRD_MUST_CHECK;
int nrd_js_consumer_info(NrdJsConn *conn, const char *stream, const char *consumer, int64_t patience_ms,
                         NrdJsConsumerInfo *ret_info, char **ret_why) NRD_MUST_CHECK;

/* The names of all consumers of a stream, whoever's; *ret_names are char*, the caller's (g_ptr_array_unref). */
int nrd_js_consumer_names(NrdJsConn *conn, const char *stream, int64_t patience_ms, GPtrArray **ret_names,
                          char **ret_why) NRD_MUST_CHECK;

/* The first message from sequence on, of this subject (which may have wildcards) or, subject NULL, the one of that sequence.
 * From the stream's leader, hence the newest. */
int nrd_js_message_get(NrdJsConn *conn, const char *stream, uint64_t sequence, const char *subject,
                       NrdJsMessage *ret_message, char **ret_why) NRD_MUST_CHECK;

typedef struct NrdJsPut {
    uint64_t last_seq; /* of the whole stream, behind which it is to be stored */
    bool first;        /* nothing of its subject is there */
    bool tombstone;
} NrdJsPut;

/* Publishes and waits: the sequence. -EBUSY when the stream ends elsewhere, or has something of its subject: then it was not
 * stored, and will not be. Another failure leaves open whether it was when *ret_open, which is set then. */
int nrd_js_put(NrdJsConn *conn, const char *subject, const void *data, size_t size, const NrdJsPut *how,
               uint64_t *ret_sequence, bool *ret_open, char **ret_why) NRD_MUST_CHECK;

/* A server that leads a stream again, after others have, may take it to end where it ended for him (2.9: "high message lag").
 * Until as many messages have come as the others had meanwhile, refused ones included, it loses each of them, without an answer.
 * This sends n that are lost or refused, so that what is sent behind them is stored. Does not wait. */
void nrd_js_nudge(NrdJsConn *conn, const char *subject, unsigned n);

/* The last sequence of the whole stream that takes the subject, behind all that reached its leader before: by publishing what
 * is stored only at a sequence that no stream has. Nothing is stored. *n_nudges: how often that was helped on, 0 before the
 * first of several tries; each time it is by more. */
int nrd_js_probe_last(NrdJsConn *conn, const char *subject, int64_t patience_ms, unsigned *n_nudges, uint64_t *ret_last,
                      char **ret_why) NRD_MUST_CHECK;

#endif
