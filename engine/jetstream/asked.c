/* The pulls that the servers were asked for, and how many are parked at each partition. See pull_private.h.
 *
 * An inbox ends with the first message that comes to it, here and at the server that this mount is connected to. So a pull is
 * ended by a message of our own to its inbox: a record that this server had sent before comes before it, and is given back,
 * and none comes behind it. The servers take a pull whose inbox is gone for none. What this mount gives back is told on the
 * same way behind that message, so it goes to none of these pulls. Whoever just unsubscribed would throw away what has come and
 * was not looked at yet. What cannot be seen is a record on its way between two servers in that moment. */
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

/* How long the servers keep a pull: less than NRD_JS_RENEW_MS, after which nobody counts upon it. */
#define PULL_MS 5000
#define PING_MS 2000 /* for the answer to what is asked only for its time */
#define END_MS 1000  /* for the message that ends a pull to come back */
#define YOUNG_MIN_MS 20
#define YOUNG_MAX_MS 2000

static const char park_json[] = "{\"batch\":1,\"expires\":" G_STRINGIFY(PULL_MS) "000000}";
static const char now_json[] = "{\"batch\":1,\"no_wait\":true}";

/* ---- asking ---- */

/* Which pull an inbox is of. */
typedef struct Inbox {
    NrdJsPulls *pulls;
    uint64_t number;
} Inbox;

static void free_inbox(void *user_data)
{
    g_free(user_data);
}

static void on_inbox(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    const Inbox *inbox = user_data;
    nrd_js_asked_answered(inbox->pulls, inbox->number, msg);
}

static char *reply_of(const NrdJsPulls *pulls, uint64_t number)
{
    return g_strdup_printf("%s%" G_GUINT64_FORMAT, pulls->inbox, number);
}

/* A record comes under the subject that it was stored with: only the subscription tells which pull it is for. NULL: there is no
 * connection. */
static natsSubscription *subscribe(NrdJsPulls *pulls, uint64_t number, const char *reply)
{
    natsSubscription *sub = NULL;
    if (!nrd_js_conn_is_up(pulls->engine->conn))
        return NULL;
    Inbox *inbox = g_new(Inbox, 1);
    *inbox = (Inbox){ pulls, number };
    if (natsConnection_Subscribe(&sub, nrd_js_conn_nats(pulls->engine->conn), reply, on_inbox, inbox) == NATS_OK)
        (void)natsSubscription_SetOnCompleteCB(sub, free_inbox, inbox); /* it fails of a closed one only */
    else
        g_free(inbox);
    if (sub)
        (void)natsSubscription_AutoUnsubscribe(sub, 1); /* likewise */
    return sub;
}

/* What a thread that may block is to ask. */
typedef struct Sending {
    NrdJsPulls *pulls;
    uint64_t number;
    NrdPartition *partition; /* a reference to its topic */
    const char *json;
} Sending;

/* Asks, and keeps the inbox, at once: what ends the pull is sent behind it. false: it has gone meanwhile. */
static bool ask_with(const Sending *sending, const char *reply, natsSubscription *sub)
{
    g_mutex_lock(&sending->pulls->lock);
    NrdJsAsked *asked = g_hash_table_lookup(sending->pulls->asked, &sending->number);
    if (asked) {
        asked->inbox = sub;
        nrd_js_ask_consumer(sending->partition, reply, sending->json);
    }
    g_mutex_unlock(&sending->pulls->lock);
    return asked != NULL;
}

static void send_fn(void *user_data)
{
    Sending *sending = user_data;
    NrdTopic *topic = sending->partition->topic;
    g_autofree char *reply = reply_of(sending->pulls, sending->number);
    natsSubscription *sub = subscribe(sending->pulls, sending->number, reply);
    if (sub && !ask_with(sending, reply, sub))
        nrd_js_unsubscribe(topic->engine->conn, sub);
    nrd_js_topic_unref(topic);
    g_free(sending);
}

/* ---- since when a record can have been on its way ---- */

/* What comes behind the answer to a request was sent later than that was made. A mount asks something each second (engine.c);
 * where that would be much of a lease, a parked pull has its consumer's leader asked more often. */
static int64_t young_ms(NrdPartition *partition)
{
    return CLAMP(nrd_js_leases_wait_ms(partition) / 10, YOUNG_MIN_MS, YOUNG_MAX_MS);
}

int64_t nrd_js_asked_sent_ms(NrdJsPulls *pulls, const NrdJsAsked *asked)
{
    return MAX(asked->asked_ms, nrd_js_conn_heard_ms(pulls->engine->conn));
}

static void on_pong(void *user_data, int error, natsMsg *msg)
{
    natsMsg_Destroy(msg);
}

static void ping(NrdPartition *partition)
{
    g_autofree char *consumer = nrd_js_consumer_name(nrd_js_leases_generation(partition));
    g_autofree char *subject = g_strdup_printf("$JS.API.CONSUMER.INFO.%s.%s", partition->stream, consumer);
    nrd_js_request(partition->topic->engine->conn, subject, NULL, "", 0, PING_MS, on_pong, NULL);
}

int64_t nrd_js_asked_ping_locked(NrdJsPulls *pulls, int64_t now_ms)
{
    NrdPartition *partition = NULL; /* the one with the shortest lease */
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, pulls->asked);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const NrdJsAsked *asked = data;
        if (!asked->asker && !asked->lost && (!partition || young_ms(asked->partition) < young_ms(partition)))
            partition = asked->partition;
    }
    if (!partition)
        return INT64_MAX;
    int64_t last_ms = MAX(pulls->pinged_ms, nrd_js_conn_heard_ms(pulls->engine->conn));
    if (now_ms < last_ms + young_ms(partition))
        return last_ms + young_ms(partition);
    pulls->pinged_ms = now_ms;
    ping(partition);
    return now_ms + young_ms(partition);
}

/* ---- asking and parking ---- */

/* Another thread subscribes, which may block, and asks. */
static uint64_t ask_locked(NrdJsPulls *pulls, NrdPartition *partition, uint64_t asker, const char *json)
{
    NrdJsAsked *asked = g_new0(NrdJsAsked, 1);
    asked->number = pulls->next_number++;
    asked->partition = partition;
    asked->asker = asker;
    asked->asked_ms = nrd_clock_mono_ms();
    asked->until_ms = asked->asked_ms + NRD_JS_RENEW_MS;
    nrd_js_topic_ref(partition->topic);
    g_hash_table_insert(pulls->asked, &asked->number, asked);
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, asked->until_ms);
    if (!asker)
        nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, asked->asked_ms + young_ms(partition));
    Sending sending = { pulls, asked->number, partition, json };
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(pulls->engine->conn, send_fn, g_memdup2(&sending, sizeof sending));
    return asked->number;
}

void nrd_js_asked_keep(NrdJsPulls *pulls, NrdPartition *partition, natsSubscription *inbox)
{
    NrdJsAsked *asked = g_new0(NrdJsAsked, 1);
    asked->partition = partition;
    asked->inbox = inbox;
    asked->of_round = true;
    asked->lost = true;
    asked->until_ms = nrd_clock_mono_ms() + NRD_JS_RENEW_MS;
    nrd_js_topic_ref(partition->topic);
    g_mutex_lock(&pulls->lock);
    asked->number = pulls->next_number++;
    g_hash_table_insert(pulls->asked, &asked->number, asked);
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, asked->until_ms);
    g_mutex_unlock(&pulls->lock);
}

void nrd_js_asked_now_locked(NrdJsPulls *pulls, NrdPartition *partition, NrdJsTake *take)
{
    take->asked = ask_locked(pulls, partition, take->number, now_json);
}

static guint n_waiting_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    GHashTableIter iter;
    gpointer take;
    guint n = 0;
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &take))
        n += nrd_js_take_wants(take, partition) && nrd_js_take_is_parked(take);
    return n;
}

static guint n_parked_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    GHashTableIter iter;
    gpointer data;
    guint n = 0;
    g_hash_table_iter_init(&iter, pulls->asked);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const NrdJsAsked *asked = data;
        n += asked->partition == partition && !asked->asker && !asked->lost;
    }
    return n;
}

void nrd_js_asked_fill_locked(NrdJsPulls *pulls, NrdPartition *partition)
{
    guint n_waiting = nrd_js_partition_usable(partition) == 0 ? n_waiting_locked(pulls, partition) : 0;
    for (guint n = n_waiting > 0 ? n_parked_locked(pulls, partition) : 0; n < n_waiting; n++)
        (void)ask_locked(pulls, partition, 0, park_json);
}

/* ---- what becomes of them ---- */

void nrd_js_asked_lose_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, pulls->asked);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        NrdJsAsked *asked = data;
        asked->lost |= !partition || asked->partition == partition;
    }
}

static void look_if_none_locked(NrdJsPulls *pulls)
{
    if (g_hash_table_size(pulls->asked) == 0 && pulls->n_answering == 0)
        g_cond_broadcast(&pulls->none_asked);
}

NrdJsAsked *nrd_js_asked_steal(NrdJsPulls *pulls, uint64_t number)
{
    g_mutex_lock(&pulls->lock);
    NrdJsAsked *asked = g_hash_table_lookup(pulls->asked, &number);
    if (asked)
        g_hash_table_remove(pulls->asked, &number);
    pulls->n_answering += asked != NULL;
    g_mutex_unlock(&pulls->lock);
    return asked;
}

void nrd_js_asked_done(NrdJsPulls *pulls, NrdJsAsked *asked)
{
    if (!asked)
        return;
    nrd_js_asked_free(asked);
    g_mutex_lock(&pulls->lock);
    pulls->n_answering--;
    look_if_none_locked(pulls);
    g_mutex_unlock(&pulls->lock);
}

static GPtrArray *until_locked(NrdJsPulls *pulls, int64_t until_ms)
{
    GPtrArray *found = g_ptr_array_new();
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, pulls->asked);
    while (g_hash_table_iter_next(&iter, NULL, &data))
        if (((NrdJsAsked *)data)->until_ms <= until_ms)
            g_ptr_array_add(found, data);
    return found;
}

/* Its end comes to its inbox. false: it has none, or one that does not end with a message, or has been told before. */
static bool cancel_locked(NrdJsPulls *pulls, NrdJsAsked *asked, int64_t now_ms)
{
    if (!asked->inbox || asked->of_round || asked->cancelled)
        return false;
    g_autofree char *reply = reply_of(pulls, asked->number);
    asked->lost = asked->cancelled = true;
    asked->until_ms = now_ms + END_MS;
    nrd_js_tell(pulls->engine->conn, reply, NULL, "");
    return true;
}

/* Those that `found` has are cancelled, or else leave the table and stay in `found`. */
static void cancel_each_locked(NrdJsPulls *pulls, GPtrArray *found, int64_t now_ms)
{
    for (guint i = found->len; i > 0; i--) {
        NrdJsAsked *asked = found->pdata[i - 1];
        if (cancel_locked(pulls, asked, now_ms))
            (void)g_ptr_array_remove_index_fast(found, i - 1);
        else
            g_hash_table_remove(pulls->asked, &asked->number);
    }
    look_if_none_locked(pulls);
}

GPtrArray *nrd_js_asked_overdue_locked(NrdJsPulls *pulls, int64_t now_ms)
{
    GPtrArray *overdue = until_locked(pulls, now_ms);
    g_autoptr(GPtrArray) partitions = g_ptr_array_new();
    for (guint i = 0; i < overdue->len; i++)
        g_ptr_array_add(partitions, ((NrdJsAsked *)overdue->pdata[i])->partition);
    cancel_each_locked(pulls, overdue, now_ms);
    for (guint i = 0; i < partitions->len; i++)
        nrd_js_asked_fill_locked(pulls, partitions->pdata[i]);
    return overdue;
}

int64_t nrd_js_asked_next_ms_locked(NrdJsPulls *pulls)
{
    GHashTableIter iter;
    gpointer data;
    int64_t next_ms = INT64_MAX;
    g_hash_table_iter_init(&iter, pulls->asked);
    while (g_hash_table_iter_next(&iter, NULL, &data))
        next_ms = MIN(next_ms, ((NrdJsAsked *)data)->until_ms);
    return next_ms;
}

void nrd_js_asked_free(NrdJsAsked *asked)
{
    NrdTopic *topic = asked->partition->topic;
    nrd_js_unsubscribe(topic->engine->conn, asked->inbox);
    g_free(asked);
    nrd_js_topic_unref(topic);
}

/* ---- the end of all of them ---- */

static void free_each(const GPtrArray *all)
{
    for (guint i = 0; i < all->len; i++)
        nrd_js_asked_free(all->pdata[i]);
}

/* Those that have been told stay, as their end is not there yet. */
static GPtrArray *not_cancelled_locked(NrdJsPulls *pulls)
{
    GPtrArray *all = until_locked(pulls, INT64_MAX);
    for (guint i = all->len; i > 0; i--)
        if (((NrdJsAsked *)all->pdata[i - 1])->cancelled)
            (void)g_ptr_array_remove_index_fast(all, i - 1);
    return all;
}

void nrd_js_asked_cancel_all(NrdJsPulls *pulls)
{
    g_mutex_lock(&pulls->lock);
    g_autoptr(GPtrArray) rest = not_cancelled_locked(pulls);
    cancel_each_locked(pulls, rest, nrd_clock_mono_ms());
    g_mutex_unlock(&pulls->lock);
    free_each(rest);
}

/* Without a connection nothing comes. */
void nrd_js_asked_wait_ended(NrdJsPulls *pulls)
{
    gint64 until_us = g_get_monotonic_time() + END_MS * G_TIME_SPAN_MILLISECOND;
    bool in_time = true;
    g_mutex_lock(&pulls->lock);
    while (in_time && (g_hash_table_size(pulls->asked) > 0 || pulls->n_answering > 0) &&
           nrd_js_conn_is_up(pulls->engine->conn))
        in_time = g_cond_wait_until(&pulls->none_asked, &pulls->lock, until_us);
    g_mutex_unlock(&pulls->lock);
}

void nrd_js_asked_free_all(NrdJsPulls *pulls)
{
    g_mutex_lock(&pulls->lock);
    g_autoptr(GPtrArray) all = until_locked(pulls, INT64_MAX);
    g_hash_table_remove_all(pulls->asked);
    g_mutex_unlock(&pulls->lock);
    free_each(all);
}
