/* What JetStream's answers say: JSON, of which nothing is believed that was not looked at. Pure.
 *
 * Each function reads one answer, `size` bytes which need not end with a NUL. Errors: -ENOENT no such stream, consumer or message;
 * -EEXIST there is another one of that name; -EBUSY the expected last sequence is another one; -ENOSPC the servers have no
 * room; -EAGAIN it may pass; -EIO something else, or what means nothing here. With each a sentence is left in *ret_why (g_free;
 * ret_why may be NULL); what is in there before is freed. Outputs are untouched then. */
#ifndef NRD_ENGINE_JETSTREAM_ANSWERS_H
#define NRD_ENGINE_JETSTREAM_ANSWERS_H

#include "engine/base/macros.h"
#include "engine/jetstream/names.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_JS_SERVER_BYTES 64

typedef struct NrdJsStreamInfo {
    char created[40];   /* as the server writes it: another one is another stream */
    uint64_t first_seq; /* 0: none yet */
    uint64_t last_seq;
    uint64_t messages;
    uint64_t bytes;
    int64_t first_ms; /* 0: there is none */
    int64_t last_ms;
    int64_t duplicates_ms;                /* how long ids are remembered */
    int replicas;                         /* copies of each record */
    bool in_memory;                       /* no disk has them */
    bool closed;                          /* it takes no records: see streams.c */
    char closed_by[NRD_JS_REMOVER_BYTES]; /* the removal that has done that */
    bool lags;                            /* the server of a copy is away, or hangs */
    char leader[NRD_JS_SERVER_BYTES]; /* the server whose copy counts, or as much of its name as fits; "": not known */
} NrdJsStreamInfo;

typedef struct NrdJsConsumerInfo {
    uint64_t floor_seq; /* all up to it is acknowledged */
    uint64_t pending;   /* not delivered yet */
    uint64_t ack_pending;
    uint64_t start_seq; /* what it was made with; 0: from the first */
    int64_t created_ms; /* by the servers' clock */
    int64_t ack_wait_ms;
    int64_t max_ack_pending;
} NrdJsConsumerInfo;

/* A message as its stream keeps it. */
typedef struct NrdJsMessage {
    uint64_t sequence;
    int64_t time_ms;
    char *subject;
    GHashTable *headers; /* char* -> char*, or NULL */
    GBytes *data;
} NrdJsMessage;

void nrd_js_message_clear(NrdJsMessage *message);

/* ret_value is of the type that the function's name says. */
typedef int NrdJsReadFn(const char *data, size_t size, void *ret_value, char **ret_why);
NrdJsReadFn nrd_js_read_success;   /* no value: NULL */
NrdJsReadFn nrd_js_read_stream;    /* NrdJsStreamInfo */
NrdJsReadFn nrd_js_read_consumer;  /* NrdJsConsumerInfo */
NrdJsReadFn nrd_js_read_names;     /* GPtrArray, to which the names of consumers (char *, its own) are added */
NrdJsReadFn nrd_js_read_message;   /* NrdJsMessage; the caller clears it */
NrdJsReadFn nrd_js_read_published; /* uint64_t: the sequence, above 0 */
/* uint64_t: where the stream ends, of what was refused for being stored only at another sequence; all else fails */
NrdJsReadFn nrd_js_read_wrong_last;

/* Whether it is the refusal of servers that have no JetStream, or none for this account: -EIO to the functions above. */
bool nrd_js_says_not_enabled(const char *data, size_t size);

/* The answer to a publish, as nrd_js_read_published. *ret_duplicate: a message
 * of that id was there already. */
int nrd_js_parse_ack_reply(const char *data, size_t size, uint64_t *ret_sequence, bool *ret_duplicate,
                           char **ret_why) NRD_MUST_CHECK;

#endif
