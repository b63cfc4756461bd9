/* The copies that the servers have of a stream, beside each other. */
#ifndef NRD_ENGINE_JETSTREAM_COPIES_H
#define NRD_ENGINE_JETSTREAM_COPIES_H

#include "engine/jetstream/js_private.h"

/* Asks whichever servers answer for the sequences [first, first + n), of all of which an id is known. *ret_another: the first at
 * which a copy has another record, or 0; each such is held (acked.h) from now on. Fails as a request does, when one had no answer
 * and no other record was seen; -EAGAIN: a copy has no record at one that is held, and the leader has. Blocks. */
int nrd_js_copies_compare(NrdPartition *partition, uint64_t first, guint n, uint64_t *ret_another) NRD_MUST_CHECK;

/* A copy has another record there: that is told, until nrd_js_copies_same, which lets go of all that is held. */
void nrd_js_copies_apart(NrdPartition *partition, uint64_t sequence);
void nrd_js_copies_same(NrdPartition *partition);

/* Whether what a consumer was sent is the record of that sequence. If not it is told, and its lease is left to lapse: it comes
 * again, from another copy when that one was made anew. */
bool nrd_js_copies_may_deliver(NrdPartition *partition, uint64_t sequence, natsMsg *msg);

#endif
