/* The connection's life, and its state. See conn.h and conn_private.h. */
#include "engine/jetstream/conn_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/base/pool.h"
#include "engine/base/threads.h"
#include "engine/base/url.h"
#include "engine/jetstream/conn_options.h"

#include <errno.h>
#include <string.h>

#define CLOSE_MS 2000

/* ---- its state ---- */

/* true: it was another one, and nobody ends the connection. */
static bool set_up(NrdJsConn *conn, bool up)
{
    g_mutex_lock(&conn->lock);
    bool news = atomic_exchange(&conn->up, up) != up;
    if (news)
        conn->since_ms = nrd_clock_wall_ms();
    if (news && !up)
        conn->n_losses++;
    if (up)
        g_clear_pointer(&conn->refusal, g_free);
    bool expected = conn->stopping;
    g_mutex_unlock(&conn->lock);
    return news && !expected;
}

/* Not one that was given up, nor one that is being made: that is told of by who makes it. */
static bool is_ours(NrdJsConn *conn, natsConnection *nats)
{
    return nats == atomic_load(&conn->nats);
}

static void on_disconnected(natsConnection *nats, void *user_data)
{
    if (!is_ours(user_data, nats) || !set_up(user_data, false))
        return;
    nrd_counter_add(NRD_COUNTER_SERVER_LOSSES, 1);
    nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
             "the connection to the NATS servers is lost; it is tried again until it is there");
}

static void note_limits(NrdJsConn *conn, natsConnection *nats)
{
    atomic_store(&conn->max_payload, (size_t)MAX(natsConnection_GetMaxPayload(nats), 0));
}

static void tell_connected(NrdJsConn *conn, natsConnection *nats)
{
    char url[256] = "";
    (void)natsConnection_GetConnectedUrl(nats, url, sizeof url);
    g_autofree char *shown = nrd_url_without_secrets(url);
    nrd_counter_add(NRD_COUNTER_SERVER_RECONNECTS, 1);
    nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "connected to the NATS server %s again", shown);
    nrd_js_later(conn, conn->reconnected, conn->user_data);
}

static void on_reconnected(natsConnection *nats, void *user_data)
{
    if (!is_ours(user_data, nats))
        return;
    note_limits(user_data, nats);
    (void)set_up(user_data, true);
    tell_connected(user_data, nats);
}

/* true: it is what they have said before. */
static bool note_refusal(NrdJsConn *conn, const char *text)
{
    g_mutex_lock(&conn->lock);
    bool same = conn->refusal && strcmp(conn->refusal, text) == 0;
    g_free(conn->refusal);
    conn->refusal = g_strdup(text);
    g_mutex_unlock(&conn->lock);
    return same;
}

static void on_error(natsConnection *nats, natsSubscription *sub, natsStatus status, void *user_data)
{
    const char *text = natsStatus_GetText(status);
    bool refused = status == NATS_CONNECTION_AUTH_FAILED;
    if (!is_ours(user_data, nats))
        return;
    if (!refused || !note_refusal(user_data, text))
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the NATS client reports: %s", text);
}

/* refusal NULL: no server has said anything, and it had no thread to try with. */
static void tell_given_up(const char *refusal)
{
    if (refusal)
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE,
                 "the NATS servers take this mount no more: %s; it is tried again until they do: look at the user, the "
                 "password or the token of url=, and at what the servers log",
                 refusal);
    else
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "the connection to the NATS servers is lost, and the system may give too few threads (RLIMIT_NPROC, "
                 "TasksMax=); it is tried again until it is there");
}

/* The library gives up when a server refuses it twice, or for want of a thread. Its connection stays what it is, since others may be using it. */
static void on_closed(natsConnection *nats, void *user_data)
{
    NrdJsConn *conn = user_data;
    if (!is_ours(conn, nats))
        return;
    bool lost = set_up(conn, false);
    g_mutex_lock(&conn->lock);
    bool ours = !conn->stopping;
    conn->given_up |= ours;
    if (ours)
        g_cond_signal(&conn->work);
    g_autofree char *refusal = g_strdup(conn->refusal);
    g_mutex_unlock(&conn->lock);
    if (lost)
        nrd_counter_add(NRD_COUNTER_SERVER_LOSSES, 1);
    if (ours && !refusal)
        nrd_threads_note_refused(); /* so nobody else takes the place of those that are kept */
    if (ours)
        tell_given_up(refusal);
}

void nrd_js_conn_health(NrdJsConn *conn, NrdJsHealth *ret_health)
{
    g_mutex_lock(&conn->lock);
    *ret_health = (NrdJsHealth){ atomic_load(&conn->up), conn->since_ms, g_strdup(conn->refusal) };
    g_mutex_unlock(&conn->lock);
}

/* ---- making it ---- */

static natsStatus set_functions(natsOptions *options, NrdJsConn *conn)
{
    natsStatus s = natsOptions_SetDisconnectedCB(options, on_disconnected, conn);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectedCB(options, on_reconnected, conn);
    if (s == NATS_OK)
        s = natsOptions_SetClosedCB(options, on_closed, conn);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(options, on_error, conn);
    return s;
}

static natsStatus subscribe(NrdJsConn *conn, natsConnection *nats, natsSubscription **ret_replies)
{
    g_autofree char *all = g_strconcat(conn->inbox, "*", NULL);
    natsStatus s = natsConnection_Subscribe(ret_replies, nats, all, nrd_js_on_reply, conn);
    if (s == NATS_OK)
        s = natsSubscription_SetPendingLimits(*ret_replies, -1,
                                              -1); /* an answer that is dropped is one that never comes */
    return s == NATS_OK ? natsConnection_HasHeaderSupport(nats) : s;
}

/* From now on its callbacks are listened to; what was called before shows in its state. */
static natsStatus take_into_use(NrdJsConn *conn, natsConnection *nats)
{
    atomic_store(&conn->nats, nats);
    note_limits(conn, nats);
    bool up = true;
    (void)set_up(conn, up);
    while ((natsConnection_Status(nats) == NATS_CONN_STATUS_CONNECTED) != up) { /* a callback may be as quick */
        up = !up;
        (void)set_up(conn, up);
    }
    return natsConnection_IsClosed(nats) ? NATS_CONNECTION_CLOSED : NATS_OK;
}

/* What there is of it on a failure is kept for the close, too. */
static natsStatus connect_and_subscribe(NrdJsConn *conn, NrdJsFailure *ret_failure)
{
    natsConnection *nats = NULL;
    natsSubscription *replies = NULL;
    natsStatus s = nrd_js_connect(conn, &nats, ret_failure);
    if (s == NATS_OK && (s = subscribe(conn, nats, &replies)) != NATS_OK) {
        g_free(ret_failure->last);
        ret_failure->last = g_strdup(nats_GetLastError(&ret_failure->of));
    }
    if (replies)
        g_ptr_array_add(conn->replies, replies);
    if (nats)
        g_ptr_array_add(conn->natses, nats);
    return s == NATS_OK ? take_into_use(conn, nats) : s;
}

static void tell_not_connected(NrdJsConn *conn, natsStatus s, const NrdJsFailure *failure)
{
    const char *text = nrd_js_failed_for_threads(s, failure)
                           ? "the system gives this user or this service no further thread (RLIMIT_NPROC, TasksMax=)"
                           : natsStatus_GetText(s);
    if (!note_refusal(conn, text))
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the NATS servers cannot be connected to: %s", text);
}

/* Those that are kept for it make room for its threads, and are taken again when they can be. */
natsStatus nrd_js_conn_renew(NrdJsConn *conn)
{
    NrdJsFailure failure;
    nrd_threads_hold();
    nrd_js_reserve_give(conn->reserve);
    natsStatus s = connect_and_subscribe(conn, &failure);
    if (s == NATS_OK)
        tell_connected(conn, atomic_load(&conn->nats));
    else
        tell_not_connected(conn, s, &failure);
    g_free(failure.last);
    (void)!nrd_js_reserve_take(conn->reserve);
    nrd_threads_release();
    return s;
}

static char *inbox_prefix(NrdJsConn *conn)
{
    g_autofree char *inbox = nrd_js_new_inbox(conn);
    return g_strconcat(inbox, ".", NULL);
}

static NrdJsConn *conn_new(natsOptions *options, NrdTimers *timers)
{
    NrdJsConn *conn = g_new0(NrdJsConn, 1);
    conn->timers = timers;
    conn->options = options;
    conn->reserve = nrd_js_reserve_new();
    conn->calls = g_hash_table_new(g_int64_hash, g_int64_equal);
    conn->natses = g_ptr_array_new_with_free_func((GDestroyNotify)natsConnection_Destroy);
    conn->replies = g_ptr_array_new_with_free_func((GDestroyNotify)natsSubscription_Destroy);
    g_queue_init(&conn->queue);
    g_mutex_init(&conn->lock);
    g_cond_init(&conn->idle);
    g_cond_init(&conn->hurry);
    g_cond_init(&conn->work);
    nrd_timer_init(&conn->look, nrd_js_on_look, conn, false);
    return conn;
}

static int close_for_want_of_threads(NrdJsConn *conn, char **ret_why)
{
    *ret_why = nrd_pool_why_none("the connection to the NATS servers", NRD_START_THREADS);
    nrd_js_conn_close(conn);
    return -EAGAIN;
}

int nrd_js_conn_open(const NrdEngineOptions *how, NrdTimers *timers, void (*reconnected)(void *user_data),
                     void *user_data, NrdJsConn **ret_conn, char **ret_why)
{
    natsOptions *options = NULL;
    int rc = nrd_js_conn_options_new(how, &options, ret_why);
    if (rc < 0)
        return rc;
    NrdJsConn *conn = conn_new(options, timers);
    conn->reconnected = reconnected;
    conn->user_data = user_data;
    conn->is_told_to_end = how->is_told_to_end;
    conn->inbox = inbox_prefix(conn);
    conn->inbox_size = strlen(conn->inbox);
    NrdJsFailure failure = { .of = NATS_OK };
    if (!nrd_js_jobs_start(conn))
        return close_for_want_of_threads(conn, ret_why);
    natsStatus s = set_functions(options, conn);
    if (s == NATS_OK)
        s = connect_and_subscribe(conn, &failure);
    if (s == NATS_OK) {
        g_free(failure.last);
        if (!nrd_js_reserve_take(conn->reserve) || !nrd_js_sender_start(conn))
            return close_for_want_of_threads(conn, ret_why);
        *ret_conn = conn;
        return 0;
    }
    if (nrd_js_failed_for_threads(s, &failure)) {
        g_free(failure.last);
        return close_for_want_of_threads(conn, ret_why);
    }
    *ret_why = nrd_js_is_told_to_end(conn) ? g_strdup("told to end before a NATS server had answered")
                                           : nrd_js_conn_options_why(how, s, failure.last, failure.of);
    g_free(failure.last);
    nrd_js_conn_close(conn);
    return -EIO;
}

/* ---- ending it ---- */

/* Calls and jobs set each other off; there is an end, since nothing new can be sent. */
static void wait_until_idle(NrdJsConn *conn)
{
    nrd_js_answer_overdue(conn, INT64_MAX);
    g_mutex_lock(&conn->lock);
    while (conn->n_busy > 0)
        g_cond_wait(&conn->idle, &conn->lock);
    g_mutex_unlock(&conn->lock);
}

/* The library's own threads end, and call nobody any more: true. Its objects go last of all, when no job uses them. */
static bool close_natses(NrdJsConn *conn)
{
    natsConnection *nats = atomic_load(&conn->nats);
    if (nats && atomic_load(&conn->up))
        (void)natsConnection_FlushTimeout(nats, CLOSE_MS); /* leases that were given back */
    for (guint i = 0; i < conn->natses->len; i++)
        nrd_js_close_one(conn, conn->natses->pdata[i]);
    if (conn->stuck)
        return false;
    g_ptr_array_set_size(conn->replies, 0);
    g_ptr_array_set_size(conn->natses, 0);
    return nats_CloseAndWait(CLOSE_MS) == NATS_OK;
}

static void conn_free(NrdJsConn *conn)
{
    nrd_js_jobs_stop(conn);
    nrd_timer_drain(conn->timers, &conn->look);
    g_hash_table_unref(conn->calls);
    g_ptr_array_unref(conn->natses);
    g_ptr_array_unref(conn->replies);
    g_mutex_clear(&conn->lock);
    g_cond_clear(&conn->idle);
    g_cond_clear(&conn->hurry);
    g_cond_clear(&conn->work);
    g_free(conn->refusal);
    g_free(conn->late_stream);
    g_free(conn->inbox);
    natsOptions_Destroy(conn->options);
    g_free(conn);
}

/* Jobs first: they use the connection. Then what they have left to be sent. The library may call back until it has ended. */
void nrd_js_conn_close(NrdJsConn *conn)
{
    if (!conn)
        return;
    nrd_js_conn_stop(conn);
    wait_until_idle(conn);
    nrd_js_sender_stop(conn);
    nrd_js_reserve_free(conn->reserve); /* in whose place connections are closed */
    bool ended = close_natses(conn);
    wait_until_idle(conn);
    nrd_js_say_late(conn);
    if (ended)
        conn_free(conn);
    else
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the NATS client's threads do not end; they go with the process");
}

natsConnection *nrd_js_conn_nats(NrdJsConn *conn)
{
    return atomic_load(&conn->nats);
}

bool nrd_js_conn_is_up(NrdJsConn *conn)
{
    return atomic_load(&conn->up);
}

int nrd_js_conn_n_servers(NrdJsConn *conn)
{
    char **servers = NULL;
    int n = 0;
    if (natsConnection_GetServers(atomic_load(&conn->nats), &servers, &n) != NATS_OK)
        return 1;
    for (int i = 0; i < n; i++)
        free(servers[i]);
    free(servers);
    return n;
}

size_t nrd_js_conn_max_payload(NrdJsConn *conn)
{
    return atomic_load(&conn->max_payload);
}

char *nrd_js_new_inbox(NrdJsConn *conn)
{
    natsInbox *inbox = NULL;
    natsStatus s = natsInbox_Create(&inbox);
    g_assert(s == NATS_OK); /* it only fails for want of memory */
    char *copy = g_strdup(inbox);
    natsInbox_Destroy(inbox);
    return copy;
}
