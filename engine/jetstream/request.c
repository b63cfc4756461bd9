/* Requests, and who waits for their answers. See conn.h and conn_private.h. */
#include "engine/jetstream/conn_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/jetstream/gather.h"

#include <errno.h>
#include <string.h>

#define LOOK_MS 100 /* between looks at whose time is over */

/* ---- who is busy ---- */

void nrd_js_busy_locked(NrdJsConn *conn)
{
    conn->n_busy++;
}

void nrd_js_less_busy(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    if (--conn->n_busy == 0)
        g_cond_broadcast(&conn->idle);
    g_mutex_unlock(&conn->lock);
}

/* ---- answers ---- */

static NrdJsCall *take_call(NrdJsConn *conn, uint64_t token)
{
    NrdJsCall *call = NULL;
    g_mutex_lock(&conn->lock);
    g_hash_table_steal_extended(conn->calls, &token, NULL, (gpointer *)&call);
    if (call)
        atomic_store(&conn->heard_ms, MAX(atomic_load(&conn->heard_ms), call->begun_ms));
    g_mutex_unlock(&conn->lock);
    return call;
}

static void answer(NrdJsConn *conn, NrdJsCall *call, int error, natsMsg *msg)
{
    call->fn(call->user_data, error, msg);
    g_free(call);
    nrd_js_less_busy(conn);
}

int64_t nrd_js_conn_heard_ms(NrdJsConn *conn)
{
    return atomic_load(&conn->heard_ms);
}

/* The reply subject ends with the call's number; of what settles a lease also with its end, and its stream: so much is known of
 * it when nobody waits any more. */
static char *reply_subject(NrdJsConn *conn, uint64_t token, const NrdJsLeaseEnd *end)
{
    return end && end->there_ms > 0 ? g_strdup_printf("%s%" G_GUINT64_FORMAT "-%" G_GINT64_FORMAT "-%s", conn->inbox,
                                                      token, end->there_ms, end->stream)
                                    : g_strdup_printf("%s%" G_GUINT64_FORMAT, conn->inbox, token);
}

void nrd_js_say_late(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    uint64_t n = conn->n_late;
    int64_t late_ms = conn->late_ms;
    g_autofree char *stream = g_steal_pointer(&conn->late_stream);
    conn->n_late = 0;
    conn->late_ms = 0;
    g_mutex_unlock(&conn->lock);
    if (n > 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "%" G_GUINT64_FORMAT " ack%s confirmed after the end of the lease, up to %" G_GINT64_FORMAT
                 " ms (last in the stream %s): somebody else may have had the record%s by then",
                 n, n == 1 ? " was" : "s were", late_ms, stream, nrd_plural(n));
}

/* The servers take an ack whenever it comes. */
static void look_if_late(NrdJsConn *conn, const char *end)
{
    char *stream;
    int64_t late_ms = nrd_clock_mono_ms() - g_ascii_strtoll(end, &stream, 10);
    if (late_ms < 0)
        return;
    nrd_counter_add(NRD_COUNTER_LATE_ACKS, 1);
    g_mutex_lock(&conn->lock);
    conn->n_late++;
    conn->late_ms = MAX(conn->late_ms, late_ms);
    g_free(conn->late_stream);
    conn->late_stream = g_strdup(*stream ? stream + 1 : "");
    nrd_timer_set_earlier(conn->timers, &conn->look, nrd_clock_mono_ms() + LOOK_MS);
    g_mutex_unlock(&conn->lock);
}

void nrd_js_on_reply(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    NrdJsConn *conn = user_data;
    const char *subject = natsMsg_GetSubject(msg);
    char *rest = NULL;
    NrdJsCall *call = NULL;
    if (strlen(subject) > conn->inbox_size)
        call = take_call(conn, g_ascii_strtoull(subject + conn->inbox_size, &rest, 10));
    if (rest && *rest == '-' && !natsMsg_IsNoResponders(msg))
        look_if_late(conn, rest + 1);
    if (!call) { /* nobody waits any more */
        natsMsg_Destroy(msg);
    } else if (natsMsg_IsNoResponders(msg)) {
        natsMsg_Destroy(msg);
        answer(conn, call, -EAGAIN, NULL);
    } else {
        answer(conn, call, 0, msg);
    }
}

static GPtrArray *overdue(NrdJsConn *conn, int64_t now_ms)
{
    GPtrArray *late = g_ptr_array_new();
    GHashTableIter iter;
    gpointer call;
    g_mutex_lock(&conn->lock);
    g_hash_table_iter_init(&iter, conn->calls);
    while (g_hash_table_iter_next(&iter, NULL, &call)) {
        if (now_ms < ((NrdJsCall *)call)->deadline_ms)
            continue;
        g_ptr_array_add(late, call);
        g_hash_table_iter_steal(&iter);
    }
    if (g_hash_table_size(conn->calls) > 0)
        nrd_timer_set_earlier(conn->timers, &conn->look, nrd_clock_mono_ms() + LOOK_MS);
    g_mutex_unlock(&conn->lock);
    return late;
}

void nrd_js_answer_overdue(NrdJsConn *conn, int64_t now_ms)
{
    g_autoptr(GPtrArray) late = overdue(conn, now_ms);
    for (guint i = 0; i < late->len; i++) {
        NrdJsCall *call = late->pdata[i];
        if (call->error == -ETIMEDOUT)
            nrd_counter_add(NRD_COUNTER_SERVERS_SILENT, 1);
        answer(conn, call, call->error, NULL);
    }
}

void nrd_js_on_look(void *user_data)
{
    nrd_js_say_late(user_data);
    nrd_js_answer_overdue(user_data, nrd_clock_mono_ms());
}

/* ---- asking ---- */

/* Whoever asks gets his answer after the call, on another thread. */
static void give_up_locked(NrdJsConn *conn, NrdJsCall *call, int error)
{
    call->deadline_ms = 0;
    call->error = error;
    nrd_timer_set(conn->timers, &conn->look, nrd_clock_mono_ms());
}

void nrd_js_call_failed(NrdJsConn *conn, uint64_t token, int error)
{
    g_mutex_lock(&conn->lock);
    NrdJsCall *call = g_hash_table_lookup(conn->calls, &token);
    if (call)
        give_up_locked(conn, call, error);
    g_mutex_unlock(&conn->lock);
}

static natsMsg *new_message(const char *subject, const char *reply, const char *const *headers, const void *data,
                            size_t size)
{
    natsMsg *msg = NULL;
    natsStatus s = natsMsg_Create(&msg, subject, reply, data, (int)size);
    for (; s == NATS_OK && headers && headers[0]; headers += 2)
        s = natsMsgHeader_Set(msg, headers[0], headers[1]);
    if (s == NATS_OK)
        return msg;
    natsMsg_Destroy(msg);
    return NULL;
}

/* Why it cannot be sent; 0: it can. */
static int why_not_locked(NrdJsConn *conn, const NrdJsCall *call)
{
    if (conn->stopping || (call->waits && conn->hurried))
        return -ENODEV;
    return nrd_js_conn_is_up(conn) ? 0 : -EAGAIN;
}

static void request(NrdJsConn *conn, NrdJsCall *call, const char *subject, const char *const *headers, const void *data,
                    size_t size, const NrdJsLeaseEnd *end)
{
    g_autofree char *reply = reply_subject(conn, call->token, end);
    natsMsg *msg = new_message(subject, reply, headers, data, size);
    g_mutex_lock(&conn->lock);
    nrd_js_busy_locked(conn);
    g_hash_table_insert(conn->calls, &call->token, call);
    int rc = why_not_locked(conn, call);
    if (rc == 0 && !msg)
        rc = -EAGAIN;
    if (rc < 0)
        give_up_locked(conn, call, rc);
    else
        nrd_js_sending_push_locked(conn, &(NrdJsSending){ .is_call = true,
                                                          .token = call->token,
                                                          .not_after_ms = end ? end->here_ms : 0,
                                                          .msg = g_steal_pointer(&msg) });
    if (rc == 0)
        nrd_timer_set_earlier(conn->timers, &conn->look, nrd_clock_mono_ms() + LOOK_MS);
    g_mutex_unlock(&conn->lock);
    natsMsg_Destroy(msg);
}

static NrdJsCall *new_call(NrdJsConn *conn, int64_t timeout_ms, NrdJsReplyFn fn, void *user_data)
{
    NrdJsCall *call = g_new0(NrdJsCall, 1);
    call->token = atomic_fetch_add(&conn->next_token, 1);
    call->begun_ms = nrd_clock_mono_ms();
    call->deadline_ms = call->begun_ms + timeout_ms;
    call->error = -ETIMEDOUT;
    call->fn = fn;
    call->user_data = user_data;
    return call;
}

void nrd_js_request(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
                    int64_t timeout_ms, NrdJsReplyFn fn, void *user_data)
{
    request(conn, new_call(conn, timeout_ms, fn, user_data), subject, headers, data, size, NULL);
}

void nrd_js_request_before(NrdJsConn *conn, const char *subject, const char *text, int64_t timeout_ms,
                           const NrdJsLeaseEnd *end, NrdJsReplyFn fn, void *user_data)
{
    request(conn, new_call(conn, timeout_ms, fn, user_data), subject, NULL, text, strlen(text), end);
}

/* Somebody who waits for his answer. */
typedef struct Waiting {
    NrdJsCountdown countdown;
    int error;
    natsMsg *msg;
} Waiting;

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    Waiting *waiting = user_data;
    waiting->error = error;
    waiting->msg = msg;
    nrd_js_countdown_one(&waiting->countdown);
}

int nrd_js_ask(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
               int64_t timeout_ms, natsMsg **ret_msg)
{
    Waiting waiting = { .error = 0 };
    nrd_js_countdown_init(&waiting.countdown, 1);
    NrdJsCall *call = new_call(conn, timeout_ms, on_answer, &waiting);
    call->waits = true;
    request(conn, call, subject, headers, data, size, NULL);
    nrd_js_countdown_wait(&waiting.countdown);
    if (waiting.error == 0)
        *ret_msg = waiting.msg;
    return waiting.error;
}

static void tell(NrdJsConn *conn, natsMsg *msg, int64_t not_after_ms)
{
    g_mutex_lock(&conn->lock);
    if (msg && nrd_js_conn_is_up(conn))
        nrd_js_sending_push_locked(conn, &(NrdJsSending){ .not_after_ms = not_after_ms, .msg = g_steal_pointer(&msg) });
    g_mutex_unlock(&conn->lock);
    natsMsg_Destroy(msg);
}

void nrd_js_tell(NrdJsConn *conn, const char *subject, const char *reply, const char *text)
{
    tell(conn, new_message(subject, reply, NULL, text, strlen(text)), 0);
}

void nrd_js_tell_headers(NrdJsConn *conn, const char *subject, const char *const *headers)
{
    tell(conn, new_message(subject, NULL, headers, "", 0), 0);
}

void nrd_js_tell_before(NrdJsConn *conn, const char *subject, const char *text, const NrdJsLeaseEnd *end)
{
    g_autofree char *reply =
        end->there_ms > 0 ? reply_subject(conn, atomic_fetch_add(&conn->next_token, 1), end) : NULL;
    tell(conn, new_message(subject, reply, NULL, text, strlen(text)), end->here_ms);
}

void nrd_js_unsubscribe(NrdJsConn *conn, natsSubscription *sub)
{
    if (!sub)
        return;
    g_mutex_lock(&conn->lock);
    nrd_js_sending_push_locked(conn, &(NrdJsSending){ .sub = sub });
    g_mutex_unlock(&conn->lock);
}

/* ---- waits that end ---- */

static void give_up_waits_locked(NrdJsConn *conn, bool all)
{
    GHashTableIter iter;
    gpointer call;
    g_hash_table_iter_init(&iter, conn->calls);
    while (g_hash_table_iter_next(&iter, NULL, &call))
        if (all || ((NrdJsCall *)call)->waits)
            give_up_locked(conn, call, -ENODEV);
    g_cond_broadcast(&conn->hurry);
}

void nrd_js_conn_hurry(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    conn->hurried = true;
    give_up_waits_locked(conn, false);
    g_mutex_unlock(&conn->lock);
}

void nrd_js_conn_stop(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    conn->hurried = conn->stopping = true;
    give_up_waits_locked(conn, true);
    g_mutex_unlock(&conn->lock);
    nrd_js_answer_overdue(conn, nrd_clock_mono_ms());
}

bool nrd_js_pause(NrdJsConn *conn, int64_t ms)
{
    gint64 until_us = g_get_monotonic_time() + ms * G_TIME_SPAN_MILLISECOND;
    g_mutex_lock(&conn->lock);
    while (!conn->hurried && g_cond_wait_until(&conn->hurry, &conn->lock, until_us))
        ;
    bool over = conn->hurried;
    g_mutex_unlock(&conn->lock);
    return !over;
}
