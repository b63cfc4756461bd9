/* See conn.h. */
#include "engine/jetstream/conn.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/base/url.h"
#include "engine/jetstream/conn_options.h"
#include "engine/jetstream/gather.h"

#include <errno.h>
#include <string.h>

#define CLOSE_MS 2000
#define LOOK_MS 100 /* between looks at whose time is over */
#define MAX_WORKERS 32

typedef struct Call {
    uint64_t token;
    int64_t deadline_ms; /* monotonic; 0: it could not be sent */
    int error;           /* what is answered then */
    NrdJsReplyFn fn;
    void *user_data;
} Call;

/* What a thread of nrd_js_later is to do. */
typedef struct Job {
    void (*fn)(void *user_data);
    void *user_data;
} Job;

struct NrdJsConn {
    natsConnection *nats;
    natsSubscription *replies;
    NrdTimers *timers;
    NrdTimer look; /* for calls whose time is over */
    GThreadPool *workers;
    gint n_jobs; /* atomic: of the workers, waiting or running */
    void (*reconnected)(void *user_data);
    void *user_data;
    char *inbox;
    size_t inbox_size;
    GMutex lock;
    /* guarded by lock */
    GHashTable *calls; /* of Call, by its token */
    uint64_t next_token;
    bool stopping;
};

/* ---- answers ---- */

static Call *take_call(NrdJsConn *conn, uint64_t token)
{
    Call *call = NULL;
    g_mutex_lock(&conn->lock);
    g_hash_table_steal_extended(conn->calls, &token, NULL, (gpointer *)&call);
    g_mutex_unlock(&conn->lock);
    return call;
}

static void answer(Call *call, int error, natsMsg *msg)
{
    call->fn(call->user_data, error, msg);
    g_free(call);
}

static void on_reply(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    NrdJsConn *conn = user_data;
    guint64 token;
    const char *subject = natsMsg_GetSubject(msg);
    Call *call = NULL;
    if (strlen(subject) > conn->inbox_size &&
        g_ascii_string_to_unsigned(subject + conn->inbox_size, 10, 0, G_MAXUINT64, &token, NULL))
        call = take_call(conn, token);
    if (!call) { /* too late */
        natsMsg_Destroy(msg);
    } else if (natsMsg_IsNoResponders(msg)) {
        natsMsg_Destroy(msg);
        answer(call, -EAGAIN, NULL);
    } else {
        answer(call, 0, msg);
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
        if (now_ms < ((Call *)call)->deadline_ms)
            continue;
        g_ptr_array_add(late, call);
        g_hash_table_iter_steal(&iter);
    }
    if (g_hash_table_size(conn->calls) > 0)
        nrd_timer_set_earlier(conn->timers, &conn->look, nrd_clock_mono_ms() + LOOK_MS);
    g_mutex_unlock(&conn->lock);
    return late;
}

static void answer_overdue(NrdJsConn *conn, int64_t now_ms)
{
    g_autoptr(GPtrArray) late = overdue(conn, now_ms);
    for (guint i = 0; i < late->len; i++)
        answer(late->pdata[i], ((Call *)late->pdata[i])->error, NULL);
}

static void on_look(void *user_data)
{
    answer_overdue(user_data, nrd_clock_mono_ms());
}

/* ---- threads ---- */

static void run_job(gpointer data, gpointer user_data)
{
    NrdJsConn *conn = user_data;
    Job *job = data;
    job->fn(job->user_data);
    g_free(job);
    g_atomic_int_add(&conn->n_jobs, -1);
}

void nrd_js_later(NrdJsConn *conn, void (*fn)(void *user_data), void *user_data)
{
    Job *job = g_new(Job, 1);
    *job = (Job){ fn, user_data };
    g_atomic_int_inc(&conn->n_jobs);
    g_thread_pool_push(conn->workers, job, NULL); /* a thread that cannot be made now: one of the others does it */
}

/* Somebody who is called when something is done. */
typedef struct Done {
    NrdDoneFn done;
    void *user_data;
    int error;
} Done;

static void run_done(void *user_data)
{
    Done *done = user_data;
    done->done(done->user_data, done->error);
    g_free(done);
}

void nrd_js_done_later(NrdJsConn *conn, NrdDoneFn done, void *user_data, int error)
{
    Done job = { done, user_data, error };
    nrd_js_later(conn, run_done, g_memdup2(&job, sizeof job));
}

/* ---- the connection ---- */

static void on_disconnected(natsConnection *nats, void *user_data)
{
    NrdJsConn *conn = user_data;
    g_mutex_lock(&conn->lock);
    bool expected = conn->stopping;
    g_mutex_unlock(&conn->lock);
    if (!expected)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "the connection to the NATS servers is lost; it is tried again until it is there");
}

static void on_reconnected(natsConnection *nats, void *user_data)
{
    NrdJsConn *conn = user_data;
    char url[256] = "";
    (void)natsConnection_GetConnectedUrl(nats, url, sizeof url);
    g_autofree char *shown = nrd_url_without_secrets(url);
    nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "connected to the NATS server %s again", shown);
    nrd_js_later(conn, conn->reconnected, conn->user_data);
}

static void on_error(natsConnection *nats, natsSubscription *sub, natsStatus status, void *user_data)
{
    nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the NATS client reports: %s", natsStatus_GetText(status));
}

static natsStatus set_functions(natsOptions *options, NrdJsConn *conn)
{
    natsStatus s = natsOptions_SetDisconnectedCB(options, on_disconnected, conn);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectedCB(options, on_reconnected, conn);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(options, on_error, conn);
    return s;
}

static natsStatus connect_and_subscribe(NrdJsConn *conn, natsOptions *options)
{
    natsStatus s = set_functions(options, conn);
    if (s == NATS_OK)
        s = natsConnection_Connect(&conn->nats, options);
    if (s != NATS_OK)
        return s;
    char *inbox = nrd_js_new_inbox(conn);
    g_autofree char *all = g_strconcat(inbox, ".*", NULL);
    conn->inbox = g_strconcat(inbox, ".", NULL);
    conn->inbox_size = strlen(conn->inbox);
    g_free(inbox);
    s = natsConnection_Subscribe(&conn->replies, conn->nats, all, on_reply, conn);
    if (s == NATS_OK)
        s = natsSubscription_SetPendingLimits(conn->replies, -1,
                                              -1); /* an answer that is dropped is one that never comes */
    if (s == NATS_OK)
        s = natsConnection_HasHeaderSupport(conn->nats);
    return s;
}

int nrd_js_conn_open(const NrdEngineOptions *how, NrdTimers *timers, void (*reconnected)(void *user_data),
                     void *user_data, NrdJsConn **ret_conn, char **ret_why)
{
    natsOptions *options = NULL;
    int rc = nrd_js_conn_options_new(how, &options, ret_why);
    if (rc < 0)
        return rc;
    NrdJsConn *conn = g_new0(NrdJsConn, 1);
    conn->timers = timers;
    conn->reconnected = reconnected;
    conn->user_data = user_data;
    conn->calls = g_hash_table_new(g_int64_hash, g_int64_equal);
    conn->workers = g_thread_pool_new(run_job, conn, MAX_WORKERS, FALSE, NULL);
    g_mutex_init(&conn->lock);
    nrd_timer_init(&conn->look, on_look, conn, false);
    natsStatus s = connect_and_subscribe(conn, options);
    natsOptions_Destroy(options);
    if (s == NATS_OK) {
        *ret_conn = conn;
        return 0;
    }
    *ret_why = nrd_js_conn_options_why(how, s);
    nrd_js_conn_close(conn);
    return -EIO;
}

void nrd_js_conn_stop(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    GHashTableIter iter;
    gpointer call;
    conn->stopping = true;
    g_hash_table_iter_init(&iter, conn->calls);
    while (g_hash_table_iter_next(&iter, NULL, &call))
        ((Call *)call)->error = -ENODEV;
    g_mutex_unlock(&conn->lock);
    answer_overdue(conn, INT64_MAX);
}

/* Calls and jobs set each other off; there is an end, since nothing new can be sent. */
static void wait_for_jobs(NrdJsConn *conn)
{
    bool busy = true;
    while (busy) {
        answer_overdue(conn, INT64_MAX);
        g_mutex_lock(&conn->lock);
        busy = g_hash_table_size(conn->calls) > 0 || g_atomic_int_get(&conn->n_jobs) > 0;
        g_mutex_unlock(&conn->lock);
        if (busy)
            g_usleep(1000);
    }
}

void nrd_js_conn_close(NrdJsConn *conn)
{
    if (!conn)
        return;
    nrd_js_conn_stop(conn);
    if (conn->nats && !natsConnection_IsReconnecting(conn->nats))
        (void)natsConnection_FlushTimeout(conn->nats, CLOSE_MS); /* leases that were given back */
    natsConnection_Close(conn->nats);
    natsSubscription_Destroy(conn->replies);
    natsConnection_Destroy(conn->nats);
    nats_CloseAndWait(CLOSE_MS); /* the client's threads end; its functions call us no more */
    wait_for_jobs(conn);
    g_thread_pool_free(conn->workers, FALSE, TRUE);
    nrd_timer_drain(conn->timers, &conn->look);
    g_hash_table_unref(conn->calls);
    g_mutex_clear(&conn->lock);
    g_free(conn->inbox);
    g_free(conn);
}

natsConnection *nrd_js_conn_nats(NrdJsConn *conn)
{
    return conn->nats;
}

bool nrd_js_conn_is_up(NrdJsConn *conn)
{
    return natsConnection_Status(conn->nats) == NATS_CONN_STATUS_CONNECTED;
}

int nrd_js_conn_n_servers(NrdJsConn *conn)
{
    char **servers = NULL;
    int n = 0;
    if (natsConnection_GetServers(conn->nats, &servers, &n) != NATS_OK)
        return 1;
    for (int i = 0; i < n; i++)
        free(servers[i]);
    free(servers);
    return n;
}

size_t nrd_js_conn_max_payload(NrdJsConn *conn)
{
    return (size_t)natsConnection_GetMaxPayload(conn->nats);
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

/* ---- requests ---- */

static natsStatus send_message(NrdJsConn *conn, const char *subject, const char *reply, const char *const *headers,
                               const void *data, size_t size)
{
    natsMsg *msg = NULL;
    natsStatus s = natsMsg_Create(&msg, subject, reply, data, (int)size);
    for (; s == NATS_OK && headers && headers[0]; headers += 2)
        s = natsMsgHeader_Set(msg, headers[0], headers[1]);
    if (s == NATS_OK)
        s = natsConnection_PublishMsg(conn->nats, msg);
    natsMsg_Destroy(msg);
    return s;
}

/* Why it cannot be sent; 0: it can. Without a connection nothing is kept by the client for when there is one: by then who
 * asked has asked again. */
static int why_not_locked(NrdJsConn *conn)
{
    return conn->stopping ? -ENODEV : nrd_js_conn_is_up(conn) ? 0 : -EAGAIN;
}

/* The timer's thread answers it: whoever asks gets his answer after the call, on another thread. */
static void give_up_locked(NrdJsConn *conn, Call *call, int error)
{
    call->deadline_ms = 0;
    call->error = error;
    nrd_timer_set(conn->timers, &conn->look, nrd_clock_mono_ms());
}

void nrd_js_request(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data, size_t size,
                    int64_t timeout_ms, NrdJsReplyFn fn, void *user_data)
{
    int64_t now_ms = nrd_clock_mono_ms();
    Call *call = g_new(Call, 1);
    *call = (Call){ .deadline_ms = now_ms + timeout_ms, .error = -ETIMEDOUT, .fn = fn, .user_data = user_data };
    g_mutex_lock(&conn->lock);
    uint64_t token = call->token = conn->next_token++;
    g_hash_table_insert(conn->calls, &call->token, call);
    int rc = why_not_locked(conn);
    if (rc < 0)
        give_up_locked(conn, call, rc);
    g_mutex_unlock(&conn->lock);
    if (rc < 0)
        return;
    nrd_timer_set_earlier(conn->timers, &conn->look, now_ms + LOOK_MS);
    g_autofree char *reply = g_strdup_printf("%s%" G_GUINT64_FORMAT, conn->inbox, token);
    natsStatus s = send_message(conn, subject, reply, headers, data, size);
    if (s == NATS_OK)
        return;
    g_mutex_lock(&conn->lock);
    call = g_hash_table_lookup(conn->calls, &token);
    if (call)
        give_up_locked(conn, call, s == NATS_MAX_PAYLOAD ? -EMSGSIZE : -EAGAIN);
    g_mutex_unlock(&conn->lock);
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
    nrd_js_request(conn, subject, headers, data, size, timeout_ms, on_answer, &waiting);
    nrd_js_countdown_wait(&waiting.countdown);
    if (waiting.error == 0)
        *ret_msg = waiting.msg;
    return waiting.error;
}

void nrd_js_tell(NrdJsConn *conn, const char *subject, const char *reply, const char *text)
{
    if (reply)
        (void)natsConnection_PublishRequestString(conn->nats, subject, reply, text);
    else
        (void)natsConnection_PublishString(conn->nats, subject, text);
}
