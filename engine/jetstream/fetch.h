/* Records of a stream by their sequences, several at once. */
#ifndef NRD_ENGINE_JETSTREAM_FETCH_H
#define NRD_ENGINE_JETSTREAM_FETCH_H

#include "engine/jetstream/gather.h"
#include "engine/jetstream/js_private.h"

/* A record that is asked for. */
typedef struct NrdJsSlot {
    NrdJsCountdown *countdown; /* of who waits; of no use to others */
    natsMsg *answer;           /* ... likewise */
    uint64_t sequence;
    int error;        /* 0; -ENOENT: there is none */
    bool agrees;      /* with error 0: no other record was acknowledged here at that sequence */
    NrdRecord record; /* with error 0 only */
} NrdJsSlot;

/* The records [first, first + n) as the stream's leader has them, into n slots, which need not be initialized. What is not
 * there has the error -ENOENT; any other failure is the result; -EIO also when one is not what was acknowledged here. The caller
 * clears the slots in both cases. Blocks until all servers that were asked have answered, or their time is over; on any thread
 * but the client library's. */
int nrd_js_fetch(NrdPartition *partition, uint64_t first, guint n, NrdJsSlot *slots) NRD_MUST_CHECK;
/* The same of whatever is there: the slots say whether it agrees. */
int nrd_js_fetch_as_it_is(NrdPartition *partition, uint64_t first, guint n, NrdJsSlot *slots) NRD_MUST_CHECK;

/* Asks for one, of the leader (verb "STREAM.MSG.GET") or of any copy ("DIRECT.GET"), and calls fn with the answer, as
 * nrd_js_request does. Does not wait. */
void nrd_js_ask_for_record(NrdPartition *partition, const char *verb, uint64_t sequence, NrdJsReplyFn fn,
                           void *user_data);

/* Frees the records, not the slots. */
void nrd_js_slots_clear(NrdJsSlot *slots, guint n);

/* The key of a message's headers (g_free), by what gets a header. */
void nrd_js_decode_key(const char *header, uint8_t **ret_key, size_t *ret_size);

#endif
