/* The thread that sends. See conn_private.h. */
#include "engine/jetstream/conn_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <errno.h>

#define RENEW_MS 2000 /* between tries at another connection */

static void free_sending(NrdJsSending *sending)
{
    natsMsg_Destroy(sending->msg);
    natsSubscription_Destroy(sending->sub);
    g_free(sending);
}

void nrd_js_sending_push_locked(NrdJsConn *conn, const NrdJsSending *sending)
{
    NrdJsSending *copy = g_memdup2(sending, sizeof *sending);
    copy->n_losses = conn->n_losses;
    copy->link = (GList){ .data = copy };
    g_queue_push_tail_link(&conn->queue, &copy->link);
    if (conn->sender_waits)
        g_cond_signal(&conn->work);
}

/* Whether anybody still wants it. */
static bool is_wanted_locked(NrdJsConn *conn, const NrdJsSending *sending)
{
    if (sending->sub)
        return true;
    return sending->is_call ? g_hash_table_contains(conn->calls, &sending->token) : sending->n_losses == conn->n_losses;
}

/* The sender may have waited for a socket since it was queued. */
static bool is_late(const NrdJsSending *sending)
{
    return sending->not_after_ms > 0 && nrd_clock_mono_ms() >= sending->not_after_ms;
}

/* May block, for as long as the library waits for a socket or for its own lock. */
static void send_now(NrdJsConn *conn, const NrdJsSending *sending)
{
    natsConnection *nats = atomic_load(&conn->nats);
    if (!sending->msg)
        return;
    if (is_late(sending)) {
        if (sending->is_call)
            nrd_js_call_failed(conn, sending->token, -ESTALE);
        return;
    }
    /* Without a connection the library would keep it for when there is one: by then who asked has asked again. */
    natsStatus s = atomic_load(&conn->up) && natsConnection_Status(nats) == NATS_CONN_STATUS_CONNECTED
                       ? natsConnection_PublishMsg(nats, sending->msg)
                       : NATS_CONNECTION_DISCONNECTED;
    if (s != NATS_OK && sending->is_call)
        nrd_js_call_failed(conn, sending->token, s == NATS_MAX_PAYLOAD ? -EMSGSIZE : -EAGAIN);
}

/* ---- the thread ---- */

/* Tries to make a connection in the place of one that the library has given up. Lock held on entry and exit. */
static void renew_locked(NrdJsConn *conn)
{
    conn->given_up = false; /* the new one may be given up at once, too */
    g_mutex_unlock(&conn->lock);
    natsStatus s = nrd_js_conn_renew(conn);
    g_mutex_lock(&conn->lock);
    if (s != NATS_OK)
        conn->given_up = true;
}

/* Until there is something to send, or until that time. */
static void wait_locked(NrdJsConn *conn, gint64 until_us)
{
    conn->sender_waits = true;
    if (until_us == G_MAXINT64)
        g_cond_wait(&conn->work, &conn->lock);
    else
        (void)g_cond_wait_until(&conn->work, &conn->lock, until_us);
    conn->sender_waits = false;
}

static void send_locked(NrdJsConn *conn, NrdJsSending *sending)
{
    bool wanted = is_wanted_locked(conn, sending);
    g_mutex_unlock(&conn->lock);
    if (wanted)
        send_now(conn, sending);
    free_sending(sending);
    g_mutex_lock(&conn->lock);
}

static gpointer run(gpointer data)
{
    NrdJsConn *conn = data;
    gint64 renew_us = 0; /* the next try */
    g_mutex_lock(&conn->lock);
    for (;;) {
        GList *link = g_queue_pop_head_link(&conn->queue);
        if (link) {
            send_locked(conn, link->data);
        } else if (conn->sender_ends) {
            break;
        } else if (!conn->given_up) {
            wait_locked(conn, G_MAXINT64);
        } else if (g_get_monotonic_time() < renew_us) {
            wait_locked(conn, renew_us);
        } else {
            renew_locked(conn);
            renew_us = g_get_monotonic_time() + RENEW_MS * G_TIME_SPAN_MILLISECOND;
        }
    }
    g_mutex_unlock(&conn->lock);
    return NULL;
}

bool nrd_js_sender_start(NrdJsConn *conn)
{
    conn->sender = g_thread_try_new("naradfs-send", run, conn, NULL);
    return conn->sender != NULL;
}

void nrd_js_sender_stop(NrdJsConn *conn)
{
    if (!conn->sender)
        return;
    g_mutex_lock(&conn->lock);
    conn->sender_ends = true;
    g_cond_signal(&conn->work);
    g_mutex_unlock(&conn->lock);
    g_thread_join(conn->sender);
}
