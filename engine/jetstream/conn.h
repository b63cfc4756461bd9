/* The connection to the servers: requests with one answer, and threads for what their answers set off.
 *
 * A request is sent with a reply subject of its own below one inbox, which is subscribed once. Its function is called exactly
 * once: with the answer, or with an error after its time. The client's own thread calls it, so it neither blocks nor calls
 * anybody outside this folder: it hands that to nrd_js_later. Who waits for an answer (nrd_js_ask) must not be such a
 * function.
 *
 * What is to be sent goes to a thread that sends, in the order in which it was asked for: nobody else waits for a socket. So
 * a request may be made with a lock held.
 *
 * The connection is made again for ever when it is lost, also when the servers refuse it. What was under way then is answered
 * or not: nobody knows, and each request runs into its time.
 * Threads: any. Locks: one of its own, taken last; memory only. */
#ifndef NRD_ENGINE_JETSTREAM_CONN_H
#define NRD_ENGINE_JETSTREAM_CONN_H

#include "engine/base/macros.h"
#include "engine/engine.h"
#include "engine/timer.h"

#include <glib.h>
#include <nats/nats.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdJsConn NrdJsConn;

/* msg is the function's own (natsMsg_Destroy), NULL with an error: -ETIMEDOUT no answer came, -EAGAIN nobody is there to
 * answer or it could not be sent, -EMSGSIZE it is too large for the servers, -ENODEV the connection is being closed. */
typedef void (*NrdJsReplyFn)(void *user_data, int error, natsMsg *msg);

/* Connects to one of the servers. On failure *ret_why (g_free) is a sentence. reconnected is called,
 * on a thread of nrd_js_later, after each loss that has passed. Blocks, up to a few seconds for each server and a minute in
 * all; how->is_told_to_end ends that, and is called while there is a connection, too. */
int nrd_js_conn_open(const NrdEngineOptions *how, NrdTimers *timers, void (*reconnected)(void *user_data),
                     void *user_data, NrdJsConn **ret_conn, char **ret_why) NRD_MUST_CHECK;

/* The daemon is about to end: whose thread waits for an answer, or would, is answered -ENODEV, and a pause ends. Requests
 * without a thread that waits go on. */
void nrd_js_conn_hurry(NrdJsConn *conn);

/* From now on nobody waits: who asks is answered -ENODEV, and so is who has asked. */
void nrd_js_conn_stop(NrdJsConn *conn);

/* Stops it first; waits for what nrd_js_later has, and for what is to be sent. Takes NULL. */
void nrd_js_conn_close(NrdJsConn *conn);

/* To be called every second or so, by one thread: a server that falls silent in the middle of a handshake is left. */
void nrd_js_conn_watch(NrdJsConn *conn);

/* For subscriptions, while the connection is up. Whoever uses it may wait, for seconds, while a server hangs. */
natsConnection *nrd_js_conn_nats(NrdJsConn *conn);
bool nrd_js_conn_is_up(NrdJsConn *conn); /* as far as is known; waits for nothing */

typedef struct NrdJsHealth {
    bool up;
    int64_t since_ms; /* wall clock: of that */
    char *refusal;    /* what the servers say to who connects; NULL: nothing. g_free */
} NrdJsHealth;
void nrd_js_conn_health(NrdJsConn *conn, NrdJsHealth *ret_health);

int nrd_js_conn_n_servers(NrdJsConn *conn);      /* named, or told of by the others */
size_t nrd_js_conn_max_payload(NrdJsConn *conn); /* of a message, with its headers */

/* A subject that nobody else uses (g_free). */
char *nrd_js_new_inbox(NrdJsConn *conn);

/* Sends, and calls fn with the answer. headers: name, value, ..., NULL; or NULL. Does not wait. */
void nrd_js_request(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
                    int64_t timeout_ms, NrdJsReplyFn fn, void *user_data);

/* When a lease ends (monotonic). What settles it is not sent after that, as it would settle the next one's. It may still have
 * been on its way then, for a server that hung: the servers' word that comes later than they may have given the record to
 * somebody else is counted and told, also when nobody waits for it any more. */
typedef struct NrdJsLeaseEnd {
    const char *stream; /* for the log; not copied */
    int64_t here_ms;
    int64_t there_ms; /* at the earliest; 0: not known, and nothing is counted */
} NrdJsLeaseEnd;

/* A request that is answered -ESTALE, and not sent, when it could not be before the end. */
void nrd_js_request_before(NrdJsConn *conn, const char *subject, const char *text, int64_t timeout_ms,
                           const NrdJsLeaseEnd *end, NrdJsReplyFn fn, void *user_data);

/* When the last of the requests was made that have been answered (monotonic). What comes on the connection after that answer was
 * sent by the servers later than that, even if this process was stopped meanwhile. */
int64_t nrd_js_conn_heard_ms(NrdJsConn *conn);

/* The same as nrd_js_request, and waits. Errors as of NrdJsReplyFn. The caller destroys *ret_msg. */
int nrd_js_ask(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
               int64_t timeout_ms, natsMsg **ret_msg) NRD_MUST_CHECK;

/* A message without an answer; a failure is told by what does not come of it, as is a loss of the connection before it was
 * sent. Does not wait. */
void nrd_js_tell(NrdJsConn *conn, const char *subject, const char *reply, const char *text);
/* The same, of a message that is its headers (as of nrd_js_request). */
void nrd_js_tell_headers(NrdJsConn *conn, const char *subject, const char *const *headers);
/* As nrd_js_request_before; nobody is called. */
void nrd_js_tell_before(NrdJsConn *conn, const char *subject, const char *text, const NrdJsLeaseEnd *end);

/* Gives a subscription up, after what was told before; takes NULL. Does not wait. */
void nrd_js_unsubscribe(NrdJsConn *conn, natsSubscription *sub);

/* Sleeps. false: the daemon is about to end, and no answer is to be waited for any more. */
bool nrd_js_pause(NrdJsConn *conn, int64_t ms);

/* Calls fn on a thread that may block. */
void nrd_js_later(NrdJsConn *conn, void (*fn)(void *user_data), void *user_data);
/* The same for what calls who called us, and waits for no server: it never stands behind jobs that do. */
void nrd_js_answer_later(NrdJsConn *conn, void (*fn)(void *user_data), void *user_data);
void nrd_js_done_later(NrdJsConn *conn, NrdDoneFn done, void *user_data, int error);

#endif
