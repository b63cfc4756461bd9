/* Acks on their way to the servers, and those who wait until they are there.
 *
 * An ack is memory only for who makes it. It is sent with a request for an answer, again until the answer comes or its lease is
 * over, and waited for by who syncs: up to 25 seconds, then he is told that it failed, and the ack goes on. One that is given
 * up (its lease is over, or void) is told once: to those who wait for it, or else to the next who syncs the partition. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/partition.h"

#include "engine/base/clock.h"

typedef struct SyncWaiter {
    uint64_t number; /* waits for the acks below */
    int64_t deadline_ms;
    int error;
    NrdDoneFn done;
    void *user_data;
} SyncWaiter;

static void on_timer(void *user_data);

void nrd_js_acks_init(NrdJsLeases *leases)
{
    leases->waiters = g_array_new(FALSE, FALSE, sizeof(SyncWaiter));
    g_queue_init(&leases->acks);
    g_cond_init(&leases->answered);
    nrd_timer_init(&leases->timer, on_timer, leases, true);
}

void nrd_js_acks_clear(NrdJsLeases *leases)
{
    nrd_timer_drain(leases->partition->topic->engine->timers, &leases->timer);
    g_assert(g_queue_is_empty(&leases->acks));
    g_array_unref(leases->waiters);
    g_cond_clear(&leases->answered);
}

static void wake_at(NrdJsLeases *leases, int64_t at_ms)
{
    nrd_timer_set_earlier(leases->partition->topic->engine->timers, &leases->timer, at_ms);
}

/* ---- who waits ---- */

/* Those whose acks are all there or given up, and those who have waited long enough. */
static void answer_waiters_locked(NrdJsLeases *leases)
{
    const NrdJsAck *first = leases->acks.head ? leases->acks.head->data : NULL;
    int64_t now_ms = nrd_clock_mono_ms();
    for (guint i = 0; i < leases->waiters->len;) {
        SyncWaiter waiter = g_array_index(leases->waiters, SyncWaiter, i);
        bool waits = first && first->number < waiter.number;
        if (waits && now_ms < waiter.deadline_ms) {
            i++;
            continue;
        }
        nrd_js_done_later(leases->partition->topic->engine->conn, waiter.done, waiter.user_data,
                          waits && waiter.error == 0 ? -EIO : waiter.error);
        g_array_remove_index(leases->waiters, i);
    }
}

/* What was given up is told to this one, who is the next. */
void nrd_js_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data)
{
    NrdJsLeases *leases = partition->leases;
    int64_t deadline_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    g_mutex_lock(&leases->lock);
    SyncWaiter waiter = { leases->n_acks, deadline_ms, -leases->untold_errno, done, user_data };
    leases->untold_errno = 0;
    g_array_append_val(leases->waiters, waiter);
    answer_waiters_locked(leases);
    if (leases->waiters->len > 0)
        wake_at(leases, deadline_ms);
    g_mutex_unlock(&leases->lock);
}

void nrd_js_acks_wait_answered(NrdPartition *partition, int64_t patience_ms)
{
    NrdJsLeases *leases = partition->leases;
    int64_t end_us = g_get_monotonic_time() + patience_ms * 1000;
    bool in_time = true;
    g_mutex_lock(&leases->lock);
    uint64_t n = leases->n_acks;
    while (in_time && leases->acks.head && ((NrdJsAck *)leases->acks.head->data)->number < n)
        in_time = g_cond_wait_until(&leases->answered, &leases->lock, end_us);
    g_mutex_unlock(&leases->lock);
}

static void note_given_up_locked(NrdJsLeases *leases, const NrdJsAck *ack, int error)
{
    bool told = false;
    for (guint i = 0; i < leases->waiters->len; i++) {
        SyncWaiter *waiter = &g_array_index(leases->waiters, SyncWaiter, i);
        if (ack->number >= waiter->number)
            continue;
        told = true;
        if (waiter->error == 0)
            waiter->error = error;
    }
    if (!told)
        leases->untold_errno = -error;
}

/* ---- their end ---- */

static void unref_topic(void *user_data)
{
    nrd_js_topic_unref(user_data);
}

/* What was given up since the last call is said in the log. Not with the lock held, as the log may be slow. */
void nrd_js_acks_tell(NrdJsLeases *leases)
{
    g_mutex_lock(&leases->lock);
    uint64_t n_lost = leases->n_lost, n_void = leases->n_void;
    leases->n_lost = leases->n_void = 0;
    g_mutex_unlock(&leases->lock);
    NrdPlace place = nrd_js_partition_place(leases->partition);
    if (n_lost > 0)
        nrd_diag(NRD_LEVEL_WARNING, place,
                 "%" G_GUINT64_FORMAT
                 " ack%s could not be confirmed before the lease ended: the record%s may come again",
                 n_lost, nrd_plural(n_lost), nrd_plural(n_lost));
    if (n_void > 0)
        nrd_diag(NRD_LEVEL_WARNING, place,
                 "%" G_GUINT64_FORMAT " ack%s under way when all leases became void: the record%s may come again",
                 n_void, n_void == 1 ? " was" : "s were", nrd_plural(n_void));
}

static void finish_locked(NrdJsLeases *leases, NrdJsAck *ack, int error)
{
    NrdTopic *topic = leases->partition->topic;
    if (error < 0) {
        note_given_up_locked(leases, ack, error);
        leases->n_lost += error != -ESTALE;
        leases->n_void += error == -ESTALE;
    }
    g_queue_unlink(&leases->acks, &ack->link);
    g_cond_broadcast(&leases->answered);
    answer_waiters_locked(leases);
    g_free(ack->reply);
    g_free(ack);
    nrd_js_later(topic->engine->conn, unref_topic, topic); /* not here: it waits for timers */
}

void nrd_js_acks_void_locked(NrdJsLeases *leases, int error)
{
    for (GList *l = leases->acks.head; l;) {
        NrdJsAck *ack = l->data;
        l = l->next;
        ack->void_errno = -error;
        if (ack->due)
            finish_locked(leases, ack, error);
    }
}

/* Whether it is to be sent again. -EAGAIN: nobody is there to take it, perhaps because the consumer is another one by now. */
static bool again_locked(NrdJsLeases *leases, NrdJsAck *ack, int error)
{
    bool again = error < 0 && error != -ENODEV && ack->void_errno == 0 &&
                 nrd_clock_mono_ms() + NRD_JS_RETRY_MS < ack->end.here_ms;
    ack->due = again;
    if (again)
        wake_at(leases, nrd_clock_mono_ms() + NRD_JS_RETRY_MS);
    return again;
}

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    NrdJsAck *ack = user_data;
    NrdPartition *partition = ack->partition;
    NrdJsLeases *leases = partition->leases;
    natsMsg_Destroy(msg);
    nrd_js_topic_ref(partition->topic); /* the ack's goes with it */
    g_mutex_lock(&leases->lock);
    if (!again_locked(leases, ack, error))
        finish_locked(leases, ack, error == 0 ? 0 : ack->void_errno > 0 ? -ack->void_errno : -EIO);
    g_mutex_unlock(&leases->lock);
    nrd_js_acks_tell(leases);
    nrd_js_partition_changed(partition);
    if (error == -EAGAIN)
        nrd_js_consumer_suspect(partition);
    nrd_js_later(partition->topic->engine->conn, unref_topic, partition->topic);
}

/* ---- sending ---- */

void nrd_js_ack_send(NrdJsAck *ack)
{
    nrd_js_request_before(ack->partition->topic->engine->conn, ack->reply, "+ACK", NRD_JS_ANSWER_MS, &ack->end,
                          on_answer, ack);
}

/* Those that are due; what this thread comes too late for is given up. */
static GPtrArray *take_due_locked(NrdJsLeases *leases)
{
    GPtrArray *due = g_ptr_array_new();
    for (GList *l = leases->acks.head; l;) {
        NrdJsAck *ack = l->data;
        l = l->next;
        if (!ack->due)
            continue;
        ack->due = false;
        if (nrd_clock_mono_ms() < ack->end.here_ms)
            g_ptr_array_add(due, ack);
        else
            finish_locked(leases, ack, -EIO);
    }
    return due;
}

static void on_timer(void *user_data)
{
    NrdJsLeases *leases = user_data;
    g_mutex_lock(&leases->lock);
    g_autoptr(GPtrArray) due = take_due_locked(leases);
    answer_waiters_locked(leases);
    for (guint i = 0; i < leases->waiters->len; i++)
        wake_at(leases, g_array_index(leases->waiters, SyncWaiter, i).deadline_ms);
    g_mutex_unlock(&leases->lock);
    nrd_js_acks_tell(leases);
    for (guint i = 0; i < due->len; i++)
        nrd_js_ack_send(due->pdata[i]);
}

NrdJsAck *nrd_js_ack_new_locked(NrdJsLeases *leases, NrdJsLease *lease)
{
    NrdJsAck *ack = g_new0(NrdJsAck, 1);
    ack->partition = leases->partition;
    ack->number = leases->n_acks++;
    ack->end = nrd_js_lease_end_locked(leases, lease->start_ms);
    ack->reply = g_steal_pointer(&lease->reply);
    ack->link.data = ack;
    nrd_js_topic_ref(leases->partition->topic);
    g_queue_push_tail_link(&leases->acks, &ack->link);
    return ack;
}
