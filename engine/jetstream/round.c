/* A pull whose answers, one or many, a thread waits for. See pull_private.h.
 *
 * Who gives up leaves the inbox where it is, for as long as the servers may still answer: a record that comes then is one that
 * has come to nobody, as of a parked pull. Each message is either the thread's, or comes after it has left. */
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

struct NrdJsRound {
    gint n_refs;             /* atomic: the thread's, and the subscription's */
    NrdPartition *partition; /* a reference to its topic */
    int64_t asked_ms;        /* monotonic: no answer was sent before */
    natsSubscription *inbox; /* the thread's, until it leaves */
    GMutex lock;
    /* guarded by lock */
    GQueue msgs;
    bool left; /* nobody waits */
    GCond came;
};

static void unref_round(void *user_data)
{
    NrdJsRound *round = user_data;
    if (!g_atomic_int_dec_and_test(&round->n_refs))
        return;
    g_queue_clear_full(&round->msgs, (GDestroyNotify)natsMsg_Destroy);
    g_mutex_clear(&round->lock);
    g_cond_clear(&round->came);
    nrd_js_topic_unref(round->partition->topic);
    g_free(round);
}

static NrdJsConn *conn_of(const NrdJsRound *round)
{
    return round->partition->topic->engine->conn;
}

static void on_message(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    NrdJsRound *round = user_data;
    g_mutex_lock(&round->lock);
    bool late = round->left;
    if (!late)
        g_queue_push_tail(&round->msgs, msg);
    g_cond_signal(&round->came);
    g_mutex_unlock(&round->lock);
    if (late && nrd_js_is_record(msg)) /* long after it was asked for, so the servers may have sent it just now */
        nrd_js_record_came(round->partition, msg, MAX(round->asked_ms, nrd_js_conn_heard_ms(conn_of(round))));
    else if (late)
        natsMsg_Destroy(msg);
}

int nrd_js_round_ask(NrdPartition *partition, guint n, int expires_ms, NrdJsRound **ret_round)
{
    NrdJsConn *conn = partition->topic->engine->conn;
    if (!nrd_js_conn_is_up(conn))
        return -EIO;
    NrdJsRound *round = g_new0(NrdJsRound, 1);
    round->n_refs = 2;
    round->partition = partition;
    nrd_js_topic_ref(partition->topic);
    g_mutex_init(&round->lock);
    g_cond_init(&round->came);
    g_queue_init(&round->msgs);
    g_autofree char *inbox = nrd_js_new_inbox(conn);
    g_autofree char *expires = expires_ms > 0 ? g_strdup_printf(",\"expires\":%d000000", expires_ms) : g_strdup("");
    g_autofree char *json = g_strdup_printf("{\"batch\":%u,\"no_wait\":true%s}", n, expires);
    natsStatus s = natsConnection_Subscribe(&round->inbox, nrd_js_conn_nats(conn), inbox, on_message, round);
    if (s != NATS_OK || natsSubscription_SetOnCompleteCB(round->inbox, unref_round, round) != NATS_OK)
        unref_round(round); /* the subscription's: there is none, or it is closed, as SetOnComplete fails of no other */
    round->asked_ms = nrd_clock_mono_ms();
    if (s != NATS_OK) {
        unref_round(round);
        return -EIO;
    }
    nrd_js_ask_consumer(partition, inbox, json);
    *ret_round = round;
    return 0;
}

int64_t nrd_js_round_asked_ms(const NrdJsRound *round)
{
    return round->asked_ms;
}

natsMsg *nrd_js_round_next(NrdJsRound *round, int64_t wait_ms)
{
    gint64 until_us = g_get_monotonic_time() + wait_ms * G_TIME_SPAN_MILLISECOND;
    g_mutex_lock(&round->lock);
    while (g_queue_is_empty(&round->msgs) && g_cond_wait_until(&round->came, &round->lock, until_us))
        ;
    natsMsg *msg = g_queue_pop_head(&round->msgs);
    g_mutex_unlock(&round->lock);
    return msg;
}

/* What has come and was not taken is late, too. */
void nrd_js_round_leave(NrdJsRound *round, bool answered)
{
    NrdJsPulls *pulls = round->partition->topic->engine->pulls;
    natsMsg *msg;
    g_mutex_lock(&round->lock);
    round->left = true;
    GQueue msgs = round->msgs;
    g_queue_init(&round->msgs);
    g_mutex_unlock(&round->lock);
    while ((msg = g_queue_pop_head(&msgs)))
        if (nrd_js_is_record(msg))
            nrd_js_record_came(round->partition, msg, round->asked_ms);
        else
            natsMsg_Destroy(msg);
    if (answered)
        nrd_js_unsubscribe(pulls->engine->conn, round->inbox);
    else
        nrd_js_asked_keep(pulls, round->partition, round->inbox);
    unref_round(round);
}
