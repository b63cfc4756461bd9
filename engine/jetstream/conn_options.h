/* How the servers are connected to: what the client library is told before it connects, and why it could not, for a person.
 * Threads: any. */
#ifndef NRD_ENGINE_JETSTREAM_CONN_OPTIONS_H
#define NRD_ENGINE_JETSTREAM_CONN_OPTIONS_H

#include "engine/base/macros.h"
#include "engine/engine.h"

#include <nats/nats.h>

/* All but the functions that are called by the connection. The caller destroys *ret_options. On failure *ret_why (g_free) is a
 * sentence. */
int nrd_js_conn_options_new(const NrdEngineOptions *how, natsOptions **ret_options, char **ret_why) NRD_MUST_CHECK;

/* A sentence about a connection that failed (g_free). It has no secrets. last: what the library said last on the thread where it
 * did, of the status `of` (nats_GetLastError), or NULL. */
char *nrd_js_conn_options_why(const NrdEngineOptions *how, natsStatus status, const char *last, natsStatus of);

#endif
