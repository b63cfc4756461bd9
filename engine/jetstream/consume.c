/* Watches, and what engine.h has of consuming. See pull_private.h. */
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

/* ---- watching ---- */

/* The lock is held on entry and exit, not between: a watch is out of the list, hence its owner's, before it is called. */
void nrd_js_watchers_fire_locked(NrdJsPulls *pulls, NrdJsWatchers *watchers)
{
    GQueue fired = watchers->watches;
    g_queue_init(&watchers->watches);
    while (!g_queue_is_empty(&fired)) {
        NrdWatch *watch = fired.head->data;
        void (*notify)(void *) = watch->notify;
        void *user_data = watch->user_data;
        g_queue_unlink(&fired, &watch->link);
        watch->set = false;
        nrd_js_answer_later(pulls->engine->conn, notify, user_data);
    }
}

void nrd_js_watchers_tidy_locked(NrdJsPulls *pulls, NrdJsWatchers *watchers)
{
    if (g_queue_is_empty(&watchers->watches) && !watchers->scout)
        g_hash_table_remove(pulls->watchers, watchers->source);
}

static NrdJsWatchers *watchers_locked(NrdJsPulls *pulls, void *source)
{
    NrdJsWatchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    if (watchers)
        return watchers;
    watchers = g_new0(NrdJsWatchers, 1);
    watchers->source = source;
    g_queue_init(&watchers->watches);
    g_hash_table_insert(pulls->watchers, source, watchers);
    return watchers;
}

static void watch_set(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data),
                      void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    void *source = partition ? (void *)partition : (void *)topic;
    uint64_t number = 0;
    bool scout = false;
    int rc = nrd_js_pull_why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    NrdJsWatchers *watchers = watchers_locked(pulls, source);
    watch->notify = notify;
    watch->user_data = user_data;
    if (!watch->set) {
        watch->set = true;
        watch->link = (GList){ .data = watch };
        g_queue_push_tail_link(&watchers->watches, &watch->link);
    }
    if (rc < 0 || nrd_js_hand_has_locked(pulls, source)) {
        nrd_js_watchers_fire_locked(pulls, watchers);
    } else if (!watchers->scout) {
        watchers->scout = nrd_js_take_begin_locked(pulls, topic, partition, NULL, -1);
        watchers->scout->watchers = watchers;
        number = watchers->scout->number;
        scout = true;
    }
    nrd_js_watchers_tidy_locked(pulls, watchers);
    g_mutex_unlock(&pulls->lock);
    if (scout)
        nrd_js_take_start_later(pulls, number);
}

/* The last one takes the scout along. */
static bool watch_clear(NrdTopic *topic, void *source, NrdWatch *watch)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    NrdJsTake *scout = NULL;
    g_mutex_lock(&pulls->lock);
    NrdJsWatchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    bool was_set = watch->set;
    if (was_set) {
        g_queue_unlink(&watchers->watches, &watch->link);
        watch->set = false;
    }
    if (watchers && g_queue_is_empty(&watchers->watches))
        scout = watchers->scout;
    if (scout)
        nrd_js_take_leave_locked(pulls, scout);
    else if (watchers)
        nrd_js_watchers_tidy_locked(pulls, watchers);
    g_mutex_unlock(&pulls->lock);
    if (scout)
        nrd_js_take_free(scout);
    return was_set;
}

static bool readable(NrdTopic *topic, NrdPartition *partition)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    if (nrd_js_pull_why_not(topic->engine, topic, partition) < 0)
        return true;
    g_mutex_lock(&pulls->lock);
    bool there = nrd_js_hand_has_locked(pulls, partition ? (void *)partition : (void *)topic);
    g_mutex_unlock(&pulls->lock);
    return there;
}

/* ---- engine.h: of a partition ---- */

void nrd_js_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                           void *user_data)
{
    nrd_js_pull_take(partition->topic, partition, waiter, wait_ms, deliver, user_data);
}

void nrd_js_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    nrd_js_now_one(partition->topic, partition, deliver, user_data);
}

int nrd_js_partition_take_batch(NrdPartition *partition, NrdBatch *batch)
{
    batch->full = false;
    return nrd_js_now_batch(partition, batch);
}

bool nrd_js_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter)
{
    return nrd_js_pull_cancel(partition->topic->engine->pulls, waiter);
}

bool nrd_js_partition_readable(NrdPartition *partition)
{
    return readable(partition->topic, partition);
}

void nrd_js_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    watch_set(partition->topic, partition, watch, notify, user_data);
}

bool nrd_js_watch_clear(NrdPartition *partition, NrdWatch *watch)
{
    return watch_clear(partition->topic, partition, watch);
}

/* ---- of a topic ---- */

struct NrdTopicConsumer {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;             /* referenced */
};

int nrd_js_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer)
{
    int rc = nrd_js_pull_why_not(topic->engine, topic, NULL);
    if (rc < 0)
        return rc;
    NrdTopicConsumer *consumer = g_new(NrdTopicConsumer, 1);
    *consumer = (NrdTopicConsumer){ &nrd_js_table, nrd_js_topic_ref(topic) };
    *ret_consumer = consumer;
    return 0;
}

void nrd_js_topic_consumer_close(NrdTopicConsumer *consumer)
{
    nrd_js_topic_unref(consumer->topic);
    g_free(consumer);
}

void nrd_js_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                       void *user_data)
{
    nrd_js_pull_take(consumer->topic, NULL, waiter, wait_ms, deliver, user_data);
}

void nrd_js_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data)
{
    nrd_js_now_one(consumer->topic, NULL, deliver, user_data);
}

int nrd_js_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch)
{
    batch->full = false;
    return nrd_js_now_topic_batch(consumer->topic, batch);
}

bool nrd_js_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter)
{
    return nrd_js_pull_cancel(topic->engine->pulls, waiter);
}

bool nrd_js_topic_readable(NrdTopic *topic)
{
    return readable(topic, NULL);
}

void nrd_js_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    watch_set(topic, NULL, watch, notify, user_data);
}

bool nrd_js_topic_watch_clear(NrdTopic *topic, NrdWatch *watch)
{
    return watch_clear(topic, topic, watch);
}
