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
    g_mutex_unlock(&conn->lock);
    return call;
}

static void answer(NrdJsConn *conn, NrdJsCall *call, int error, natsMsg *msg)
{
    call->fn(call->user_data, error, msg);
    g_free(call);
    nrd_js_less_busy(conn);
}

void nrd_js_on_reply(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    NrdJsConn *conn = user_data;
    guint64 token;
    const char *subject = natsMsg_GetSubject(msg);
    NrdJsCall *call = NULL;
    if (strlen(subject) > conn->inbox_size &&
        g_ascii_string_to_unsigned(subject + conn->inbox_size, 10, 0, G_MAXUINT64, &token, NULL))
        call = take_call(conn, token);
    if (!call) { /* too late */
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
                    size_t size)
{
    g_autofree char *reply = g_strdup_printf("%s%" G_GUINT64_FORMAT, conn->inbox, call->token);
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
                                                          .not_after_ms = call->not_after_ms,
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
    call->deadline_ms = nrd_clock_mono_ms() + timeout_ms;
    call->error = -ETIMEDOUT;
    call->fn = fn;
    call->user_data = user_data;
    return call;
}

void nrd_js_request(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
                    int64_t timeout_ms, NrdJsReplyFn fn, void *user_data)
{
    request(conn, new_call(conn, timeout_ms, fn, user_data), subject, headers, data, size);
}

void nrd_js_request_before(NrdJsConn *conn, const char *subject, const char *text, int64_t timeout_ms,
                           int64_t not_after_ms, NrdJsReplyFn fn, void *user_data)
{
    NrdJsCall *call = new_call(conn, timeout_ms, fn, user_data);
    call->not_after_ms = not_after_ms;
    request(conn, call, subject, NULL, text, strlen(text));
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
    request(conn, call, subject, headers, data, size);
    nrd_js_countdown_wait(&waiting.countdown);
    if (waiting.error == 0)
        *ret_msg = waiting.msg;
    return waiting.error;
}

static void tell(NrdJsConn *conn, const char *subject, const char *reply, const char *text, int64_t not_after_ms)
{
    natsMsg *msg = new_message(subject, reply, NULL, text, strlen(text));
    g_mutex_lock(&conn->lock);
    if (msg && nrd_js_conn_is_up(conn))
        nrd_js_sending_push_locked(conn, &(NrdJsSending){ .not_after_ms = not_after_ms, .msg = g_steal_pointer(&msg) });
    g_mutex_unlock(&conn->lock);
    natsMsg_Destroy(msg);
}

void nrd_js_tell(NrdJsConn *conn, const char *subject, const char *reply, const char *text)
{
    tell(conn, subject, reply, text, 0);
}

void nrd_js_tell_before(NrdJsConn *conn, const char *subject, const char *text, int64_t not_after_ms)
{
    tell(conn, subject, NULL, text, not_after_ms);
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
