/* Producers at topic level: the handles that records are added to, and closed with. How what they hold becomes durable is in
 * topic_produce_sync.c. */
#include "engine/topic_produce_private.h"

#include "engine/dispatch.h"
#include "engine/fan.h"
#include "engine/produce.h"
#include "engine/topic.h"

#include "engine/base/ranges.h"

#include <errno.h>

#define DRAFT_BYTES (8 * NRD_MIB) /* an entry is closed when it has as much */

/* ---- opening ---- */

int nrd_local_topic_producer_open(NrdTopic *topic, bool want_ranges, NrdTopicProducer **ret_producer)
{
    if (topic->engine->read_only)
        return -EROFS;
    if (nrd_topic_deleted(topic))
        return -EIDRM;
    if (nrd_topic_is_delayed(topic))
        return nrd_family_refuse_producer(topic, NRD_NO_PARTITION);
    int rc = nrd_topic_retry(topic);
    if (rc < 0)
        return rc;
    if (nrd_topic_n_partitions(topic) == 0 || !nrd_dispatch_ingress(topic->engine))
        return -EIO;
    NrdTopicProducer *producer = g_new0(NrdTopicProducer, 1);
    producer->table = &nrd_local_table;
    producer->topic = nrd_topic_ref(topic);
    producer->want_ranges = want_ranges;
    producer->n_refs = 1;
    producer->link.data = producer;
    producer->pending = nrd_entry_draft_new();
    producer->waiters = g_array_new(FALSE, FALSE, sizeof(NrdTopicWaiter));
    producer->ranges = want_ranges ? g_string_new(NULL) : NULL;
    g_queue_init(&producer->drafts);
    g_mutex_lock(&topic->produce_lock);
    producer->turn = topic->next_turn++; /* writers of one record each take turns too */
    g_queue_push_tail_link(&topic->producers, &producer->link);
    g_mutex_unlock(&topic->produce_lock);
    *ret_producer = producer;
    return 0;
}

NrdTopicProducer *nrd_local_topic_producer_ref(NrdTopicProducer *producer)
{
    g_atomic_int_inc(&producer->n_refs);
    return producer;
}

static void free_draft(gpointer draft)
{
    nrd_entry_draft_free(draft);
}

void nrd_local_topic_producer_unref(NrdTopicProducer *producer)
{
    if (!g_atomic_int_dec_and_test(&producer->n_refs))
        return;
    g_assert(producer->waiters->len == 0);
    g_queue_clear_full(&producer->drafts, free_draft);
    nrd_entry_draft_free(producer->pending);
    g_array_unref(producer->waiters);
    if (producer->ranges)
        g_string_free(producer->ranges, TRUE);
    nrd_topic_unref(producer->topic);
    g_free(producer);
}

/* ---- adding ---- */

uint32_t nrd_key_partition(const void *key, size_t key_size, uint32_t n_partitions)
{
    const uint8_t *bytes = key;
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < key_size; i++)
        hash = (hash ^ bytes[i]) * 16777619U;
    return hash % n_partitions;
}

/* A key names its partition, well or not: who sends its records around a failing one keeps them in order by that (the
 * dispatcher). Records without one avoid it. */
static uint32_t route(NrdTopicProducer *producer, const void *key, size_t key_size)
{
    NrdTopic *topic = producer->topic;
    uint32_t n = MAX(nrd_topic_n_partitions(topic), 1);
    if (key_size > 0)
        return nrd_key_partition(key, key_size, n);
    uint32_t number = producer->turn++ % n;
    NrdPartition *partition = nrd_topic_partition(topic, number);
    if (n > 1 && partition && !nrd_partition_seems_well(partition))
        (void)nrd_topic_well_sibling(topic, number, &number);
    return number;
}

static void add_locked(NrdTopicProducer *producer, const NrdNewRecord *record)
{
    uint32_t number = route(producer, record->key, record->key_size);
    if (producer->pending->n_bytes >= DRAFT_BYTES)
        nrd_topic_produce_close_pending_locked(producer);
    nrd_entry_draft_add(producer->pending, number, record->key, record->key_size, record->payload,
                        record->payload_size);
}

void nrd_local_topic_producer_add_many(NrdTopicProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    g_mutex_lock(&producer->topic->produce_lock);
    for (size_t i = 0; i < n_records; i++)
        add_locked(producer, &records[i]);
    g_mutex_unlock(&producer->topic->produce_lock);
}

void nrd_local_topic_producer_add(NrdTopicProducer *producer, const void *key, size_t key_size, const void *payload,
                                  size_t payload_size)
{
    nrd_topic_producer_add_many(producer, &(NrdNewRecord){ key, key_size, payload, payload_size }, 1);
}

static size_t held_bytes(const NrdTopicProducer *producer)
{
    size_t n_bytes = producer->pending->n_bytes;
    for (GList *l = producer->drafts.head; l; l = l->next)
        n_bytes += ((const NrdEntryDraft *)l->data)->n_bytes;
    return n_bytes;
}

static int64_t linger_ms(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->config.linger_ms : 0;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}

NrdUrgency nrd_local_topic_producer_wrote(NrdTopicProducer *producer, bool more_follows)
{
    g_mutex_lock(&producer->topic->produce_lock);
    size_t n_bytes = held_bytes(producer);
    uint32_t n_records = producer->pending->n_records;
    g_mutex_unlock(&producer->topic->produce_lock);
    if (n_bytes >= NRD_PRODUCE_FULL_BYTES)
        return NRD_URGENCY_FULL;
    if (!more_follows && (n_bytes >= NRD_PRODUCE_NOW_BYTES || n_records >= NRD_PRODUCE_NOW_RECORDS))
        return NRD_URGENCY_NOW;
    int64_t delay_ms = linger_ms(producer->topic);
    if (n_records > 0)
        nrd_lingers_arm(producer->topic, more_follows ? MIN(delay_ms, NRD_MORE_FOLLOWS_MS) : delay_ms);
    return NRD_URGENCY_LATER;
}

int nrd_local_topic_producer_check(NrdTopicProducer *producer)
{
    NrdTopic *topic = producer->topic;
    if (nrd_topic_deleted(topic))
        return -EIDRM;
    if (nrd_topic_is_delayed(topic)) /* it was opened before the topic became one */
        return nrd_family_refuse_producer(topic, NRD_NO_PARTITION);
    int out_errno = nrd_topic_retry(topic);
    g_mutex_lock(&topic->produce_lock);
    int rc = out_errno < 0 ? out_errno : producer->untold_errno;
    if (rc == 0 && held_bytes(producer) >= NRD_PRODUCE_NOW_BYTES)
        rc = producer->failing_errno;
    producer->untold_errno = 0;
    g_mutex_unlock(&topic->produce_lock);
    return rc;
}

/* ---- ranges ---- */

size_t nrd_local_topic_producer_read_ranges(NrdTopicProducer *producer, char *buf, size_t size)
{
    if (!producer->ranges)
        return 0;
    g_mutex_lock(&producer->topic->produce_lock);
    size_t n = nrd_ranges_take(producer->ranges, buf, size);
    g_mutex_unlock(&producer->topic->produce_lock);
    return n;
}

/* ---- closing ---- */

typedef struct Closing {
    NrdTopicProducer *producer;
    NrdDoneFn done;
    void *user_data;
} Closing;

static uint64_t held_records(const NrdTopicProducer *producer)
{
    uint64_t n = producer->pending->n_records;
    for (GList *l = producer->drafts.head; l; l = l->next)
        n += ((const NrdEntryDraft *)l->data)->n_records;
    return n;
}

/* Its close has said that they failed: who still has a reference, to flush or to sync the whole file, must not send them.
 * What somebody has sent again already has an answer coming. */
static void drop_drafts_locked(NrdTopicProducer *producer)
{
    if (producer->in_flight)
        return;
    g_queue_clear_full(&producer->drafts, free_draft);
    producer->n_durable = producer->n_closed;
}

static void on_closed(void *user_data, int error)
{
    Closing *closing = user_data;
    NrdTopicProducer *producer = closing->producer;
    NrdTopic *topic = producer->topic;
    g_mutex_lock(&topic->produce_lock);
    uint64_t n_dropped = held_records(producer);
    drop_drafts_locked(producer);
    g_queue_unlink(&topic->producers, &producer->link);
    g_mutex_unlock(&topic->produce_lock);
    if (error < 0 && n_dropped > 0)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ topic->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "the last append of a closed producer failed: %s; %" G_GUINT64_FORMAT
                 " records dropped, as its close reported",
                 g_strerror(-error), n_dropped);
    if (closing->done)
        closing->done(closing->user_data, error);
    nrd_topic_producer_unref(producer);
    g_free(closing);
}

void nrd_local_topic_producer_close(NrdTopicProducer *producer, NrdDoneFn done, void *user_data)
{
    Closing *closing = g_new(Closing, 1);
    *closing = (Closing){ producer, done, user_data };
    nrd_topic_produce_sync_own(producer, on_closed, closing);
}
