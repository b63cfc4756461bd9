/* How what producers at topic level hold becomes durable: it goes to the ingress WAL, which acknowledges it; the dispatcher
 * commits it.
 *
 * A producer has one entry at a time on its way to the WAL, so that its records never overtake each other; what gathers
 * meanwhile goes with the next. An entry that failed stays the first in its line and is tried again as it is: one copy
 * lands. Many producers' entries share the syncs of the WAL. */
#include "engine/topic_produce_private.h"

#include "engine/produce.h"

#include "engine/base/ranges.h"

#include <errno.h>

#define RETRY_MS 1000

static void on_committed(void *user_data, uint32_t partition, uint64_t first, uint64_t last)
{
    NrdTopicProducer *producer = user_data;
    g_mutex_lock(&producer->topic->produce_lock);
    nrd_ranges_add(producer->ranges, partition, first, last);
    g_mutex_unlock(&producer->topic->produce_lock);
}

static void on_release(void *user_data)
{
    nrd_topic_producer_unref(user_data);
}

void nrd_topic_produce_close_pending_locked(NrdTopicProducer *producer)
{
    if (producer->pending->n_records == 0)
        return;
    g_queue_push_tail(&producer->drafts, producer->pending);
    producer->pending = nrd_entry_draft_new();
    producer->n_closed++;
}

static void on_appended(void *user_data, int error);

/* Sends the first entry on its way, unless one is. The lock is given up. */
static void send_and_unlock(NrdTopicProducer *producer)
{
    NrdTopic *topic = producer->topic;
    const NrdEntryDraft *draft = producer->in_flight ? NULL : g_queue_peek_head(&producer->drafts);
    if (!draft) {
        g_mutex_unlock(&topic->produce_lock);
        return;
    }
    producer->in_flight = true;
    nrd_topic_producer_ref(producer);
    g_mutex_unlock(&topic->produce_lock);
    if (nrd_topic_deleted(topic)) {
        on_appended(producer, -EIDRM);
        return;
    }
    NrdIngressSink sink = { NULL, NULL, NULL };
    if (producer->want_ranges)
        sink = (NrdIngressSink){ on_committed, on_release, nrd_topic_producer_ref(producer) };
    /* Nobody else touches a draft that is on its way. */
    nrd_ingress_append(topic->engine->ingress, draft, topic->name, topic->id, &sink, on_appended, producer);
}

/* Moves the waiters that can be answered to `answered`: with an error all of them, since nothing overtakes. */
static void take_answered_locked(NrdTopicProducer *producer, int error, GArray *answered)
{
    for (guint i = 0; i < producer->waiters->len;) {
        NrdTopicWaiter waiter = g_array_index(producer->waiters, NrdTopicWaiter, i);
        if (error == 0 && waiter.until > producer->n_durable) {
            i++;
            continue;
        }
        g_array_append_val(answered, waiter);
        g_array_remove_index(producer->waiters, i);
    }
}

static void note_result_locked(NrdTopicProducer *producer, int error)
{
    producer->in_flight = false;
    producer->failing_errno = error;
    producer->untold_errno = error < 0 && producer->waiters->len == 0 ? error : 0;
    if (error < 0)
        return;
    nrd_entry_draft_free(g_queue_pop_head(&producer->drafts));
    producer->n_durable++;
}

static void on_appended(void *user_data, int error)
{
    NrdTopicProducer *producer = user_data;
    g_autoptr(GArray) answered = g_array_new(FALSE, FALSE, sizeof(NrdTopicWaiter));
    g_mutex_lock(&producer->topic->produce_lock);
    note_result_locked(producer, error);
    take_answered_locked(producer, error, answered);
    if (error == 0)
        send_and_unlock(producer);
    else
        g_mutex_unlock(&producer->topic->produce_lock);
    if (error < 0 && error != -EIDRM)
        nrd_lingers_arm(producer->topic, RETRY_MS);
    for (guint i = 0; i < answered->len; i++) {
        const NrdTopicWaiter *waiter = &g_array_index(answered, NrdTopicWaiter, i);
        waiter->done(waiter->user_data, error);
    }
    nrd_topic_producer_unref(producer);
}

void nrd_topic_produce_sync_own(NrdTopicProducer *producer, NrdDoneFn done, void *user_data)
{
    g_mutex_lock(&producer->topic->produce_lock);
    nrd_topic_produce_close_pending_locked(producer);
    NrdTopicWaiter waiter = { producer->n_closed, done, user_data };
    if (producer->n_durable == producer->n_closed) {
        g_mutex_unlock(&producer->topic->produce_lock);
        done(user_data, nrd_topic_deleted(producer->topic) ? -EIDRM : 0);
        return;
    }
    g_array_append_val(producer->waiters, waiter);
    send_and_unlock(producer);
}

/* ---- together with the others ---- */

typedef struct Group {
    gint n_left; /* atomic */
    gint error;  /* atomic; the first */
    NrdDoneFn done;
    void *user_data;
} Group;

static void on_one_done(void *user_data, int error)
{
    Group *group = user_data;
    if (error < 0)
        (void)g_atomic_int_compare_and_exchange(&group->error, 0, error);
    if (!g_atomic_int_dec_and_test(&group->n_left))
        return;
    group->done(group->user_data, g_atomic_int_get(&group->error));
    g_free(group);
}

static void unref_producer(gpointer producer)
{
    nrd_topic_producer_unref(producer);
}

/* References to all producers of the topic but one. */
static GPtrArray *others(NrdTopic *topic, const NrdTopicProducer *but)
{
    GPtrArray *producers = g_ptr_array_new_with_free_func(unref_producer);
    g_mutex_lock(&topic->produce_lock);
    for (GList *l = topic->producers.head; l; l = l->next) {
        if (l->data != but)
            g_ptr_array_add(producers, nrd_topic_producer_ref(l->data));
    }
    g_mutex_unlock(&topic->produce_lock);
    return producers;
}

void nrd_local_topic_producer_sync(NrdTopicProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    if (scope != NRD_SYNC_FILE) {
        nrd_topic_produce_sync_own(producer, done, user_data);
        return;
    }
    g_autoptr(GPtrArray) rest = others(producer->topic, producer);
    nrd_topic_producer_ref(producer);
    Group *group = g_new0(Group, 1);
    *group = (Group){ (gint)rest->len + 1, 0, done, user_data };
    for (guint i = 0; i < rest->len; i++)
        nrd_topic_produce_sync_own(rest->pdata[i], on_one_done, group);
    nrd_topic_produce_sync_own(producer, on_one_done, group);
    nrd_topic_producer_unref(producer);
}

void nrd_local_topic_flush(NrdTopic *topic)
{
    g_autoptr(GPtrArray) producers = others(topic, NULL);
    for (guint i = 0; i < producers->len; i++) {
        g_mutex_lock(&topic->produce_lock);
        nrd_topic_produce_close_pending_locked(producers->pdata[i]);
        send_and_unlock(producers->pdata[i]);
    }
}
