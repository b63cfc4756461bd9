/* The same for many, several at a time: requests that would take the sum of their times one after the other. */
#ifndef NRD_ENGINE_JETSTREAM_EACH_H
#define NRD_ENGINE_JETSTREAM_EACH_H

#include "engine/jetstream/conn.h"

/* Does something to one of them: 0, or a negative errno. Blocks; on any thread. */
typedef int (*NrdJsEachFn)(void *user_data, uint32_t number);

/* Calls fn for each number of [from, end), up to 16 at once, on this thread and on those of nrd_js_later; when one fails,
 * none is begun any more. Returns the first failure when all that were begun have ended. It may be called on a thread of
 * nrd_js_later: what no other thread has time for this one does. */
int nrd_js_each(NrdJsConn *conn, uint32_t from, uint32_t end, NrdJsEachFn fn, void *user_data) NRD_MUST_CHECK;

#endif
