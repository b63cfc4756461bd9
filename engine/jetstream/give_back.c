/* Records that go back to the servers. Each time their consumer is asked how it is first, and what is given back meanwhile waits
 * for the next time: by that word the servers have put away the pulls whose inbox is gone (of this mount when it ends, of another
 * one that was killed). 2.9.10 does so by nothing else before their time: a record that comes back while none but such
 * wait is taken for them, thrown away until its lease would have ended, and the stream's last record is delivered twice.
 *
 * Without an answer they go back all the same, as long as their leases last. */
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/partition.h"

#define LOOK_MS 1000
#define WAIT_MS 1000

typedef struct Return {
    char *reply;
    NrdJsLeaseEnd end;
} Return;

static void clear_return(gpointer data)
{
    g_free(((Return *)data)->reply);
}

static GArray *new_returns(void)
{
    GArray *returns = g_array_new(FALSE, FALSE, sizeof(Return));
    g_array_set_clear_func(returns, clear_return);
    return returns;
}

void nrd_js_give_back_init(NrdJsLeases *leases)
{
    leases->to_return = new_returns();
    g_cond_init(&leases->all_returned);
}

void nrd_js_give_back_clear(NrdJsLeases *leases)
{
    g_assert(leases->to_return->len == 0 && !leases->returning);
    g_array_unref(leases->to_return);
    g_cond_clear(&leases->all_returned);
}

static void unref_topic(void *user_data)
{
    nrd_js_topic_unref(user_data);
}

static void send_all(NrdPartition *partition, const GArray *returns)
{
    for (guint i = 0; i < returns->len; i++) {
        const Return *one = &g_array_index(returns, Return, i);
        nrd_js_tell_before(partition->topic->engine->conn, one->reply, "-NAK", &one->end); /* else it comes by time */
    }
    nrd_js_partition_has_more(partition);
}

/* Those that have come since the last time are next. NULL: there are none. */
static GArray *next_locked(NrdJsLeases *leases)
{
    leases->returning = leases->to_return->len > 0;
    if (!leases->returning) {
        g_cond_broadcast(&leases->all_returned);
        return NULL;
    }
    GArray *returns = leases->to_return;
    leases->to_return = new_returns();
    return returns;
}

/* Some of a partition on their way. */
typedef struct Returning {
    NrdPartition *partition; /* a reference to its topic */
    GArray *returns;
} Returning;

static void look(Returning *returning);

static void on_look(void *user_data, int error, natsMsg *msg)
{
    Returning *returning = user_data;
    NrdJsLeases *leases = returning->partition->leases;
    NrdTopic *topic = returning->partition->topic;
    natsMsg_Destroy(msg);
    send_all(returning->partition, returning->returns);
    g_array_unref(returning->returns);
    g_mutex_lock(&leases->lock);
    returning->returns = next_locked(leases);
    g_mutex_unlock(&leases->lock);
    if (returning->returns) {
        look(returning);
        return;
    }
    g_free(returning);
    nrd_js_later(topic->engine->conn, unref_topic, topic); /* not here: it waits for timers */
}

static void look(Returning *returning)
{
    NrdPartition *partition = returning->partition;
    g_autofree char *consumer = nrd_js_consumer_name(nrd_js_leases_generation(partition));
    g_autofree char *subject = g_strdup_printf("$JS.API.CONSUMER.INFO.%s.%s", partition->stream, consumer);
    nrd_js_request(partition->topic->engine->conn, subject, NULL, "", 0, LOOK_MS, on_look, returning);
}

void nrd_js_give_back(NrdPartition *partition, const char *reply, const NrdJsLeaseEnd *end)
{
    NrdJsLeases *leases = partition->leases;
    Return one = { g_strdup(reply), *end };
    g_mutex_lock(&leases->lock);
    g_array_append_val(leases->to_return, one);
    GArray *returns = leases->returning ? NULL : next_locked(leases);
    g_mutex_unlock(&leases->lock);
    if (!returns)
        return;
    Returning *returning = g_new(Returning, 1);
    *returning = (Returning){ partition, returns };
    nrd_js_topic_ref(partition->topic);
    look(returning);
}

void nrd_js_give_back_wait(NrdPartition *partition)
{
    NrdJsLeases *leases = partition->leases;
    gint64 until_us = g_get_monotonic_time() + WAIT_MS * G_TIME_SPAN_MILLISECOND;
    bool in_time = true;
    g_mutex_lock(&leases->lock);
    while (leases->returning && in_time)
        in_time = g_cond_wait_until(&leases->all_returned, &leases->lock, until_us);
    g_mutex_unlock(&leases->lock);
}
