/* Producers, of a partition and of a topic as a whole: engine.h over outbox.h, and what concerns several open files. */
#include "engine/jetstream/gather.h"
#include "engine/jetstream/outbox.h"
#include "engine/jetstream/partition.h"

/* References to the outboxes beside this one (NULL: all) of a partition or of a topic as a whole. */
static GPtrArray *siblings(GPtrArray *list, GMutex *lock, const NrdJsOutbox *but)
{
    GPtrArray *found = g_ptr_array_new();
    g_mutex_lock(lock);
    for (guint i = 0; i < list->len; i++)
        if (list->pdata[i] != but)
            g_ptr_array_add(found, nrd_js_outbox_ref(list->pdata[i]));
    g_mutex_unlock(lock);
    return found;
}

static void flush_all(GPtrArray *list, GMutex *lock)
{
    g_autoptr(GPtrArray) all = siblings(list, lock, NULL);
    for (guint i = 0; i < all->len; i++) {
        nrd_js_outbox_flush(all->pdata[i]);
        nrd_js_outbox_unref(all->pdata[i]);
    }
}

static void sync_outbox(NrdJsOutbox *outbox, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    GMutex *lock;
    GPtrArray *list = nrd_js_outbox_list(outbox, &lock);
    if (scope != NRD_SYNC_FILE) {
        nrd_js_outbox_sync(outbox, scope == NRD_SYNC_OWN, done, user_data);
        return;
    }
    g_autoptr(GPtrArray) others = siblings(list, lock, outbox);
    NrdJsGather *gather = nrd_js_gather_new((size_t)others->len + 1, done, user_data);
    for (guint i = 0; i < others->len; i++) {
        nrd_js_outbox_sync(others->pdata[i], false, nrd_js_gather_one, gather);
        nrd_js_outbox_unref(others->pdata[i]);
    }
    nrd_js_outbox_sync(outbox, true, nrd_js_gather_one, gather);
}

/* ---- engine.h ---- */

static NrdJsOutbox *of(void *producer)
{
    return producer;
}

int nrd_js_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer)
{
    NrdJsOutbox *outbox;
    int rc = nrd_js_partition_check_durable(partition);
    if (rc == 0)
        rc = nrd_js_outbox_open(partition->topic, partition, want_ranges, &outbox);
    if (rc == 0)
        *ret_producer = (NrdProducer *)outbox;
    return rc;
}

int nrd_js_topic_producer_open(NrdTopic *topic, bool want_ranges, NrdTopicProducer **ret_producer)
{
    NrdJsOutbox *outbox;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < nrd_js_topic_n_partitions(topic); i++) {
        NrdPartition *partition = nrd_js_topic_partition(topic, i);
        if (nrd_js_partition_usable(partition) != -EIO) /* to a poisoned one nothing goes */
            rc = nrd_js_partition_check_durable(partition);
    }
    if (rc == 0)
        rc = nrd_js_outbox_open(topic, NULL, want_ranges, &outbox);
    if (rc == 0)
        *ret_producer = (NrdTopicProducer *)outbox;
    return rc;
}

int nrd_js_producer_check(NrdProducer *producer)
{
    return nrd_js_outbox_check(of(producer));
}

int nrd_js_topic_producer_check(NrdTopicProducer *producer)
{
    return nrd_js_outbox_check(of(producer));
}

void nrd_js_producer_add_many(NrdProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    nrd_js_outbox_add(of(producer), records, n_records);
}

void nrd_js_topic_producer_add_many(NrdTopicProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    nrd_js_outbox_add(of(producer), records, n_records);
}

void nrd_js_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload,
                         size_t payload_size)
{
    nrd_js_outbox_add(of(producer), &(NrdNewRecord){ key, key_size, payload, payload_size }, 1);
}

void nrd_js_topic_producer_add(NrdTopicProducer *producer, const void *key, size_t key_size, const void *payload,
                               size_t payload_size)
{
    nrd_js_outbox_add(of(producer), &(NrdNewRecord){ key, key_size, payload, payload_size }, 1);
}

NrdUrgency nrd_js_producer_wrote(NrdProducer *producer, bool more_follows)
{
    return nrd_js_outbox_wrote(of(producer));
}

NrdUrgency nrd_js_topic_producer_wrote(NrdTopicProducer *producer, bool more_follows)
{
    return nrd_js_outbox_wrote(of(producer));
}

void nrd_js_partition_flush(NrdPartition *partition)
{
    flush_all(partition->outboxes, &partition->lock);
}

void nrd_js_topic_flush(NrdTopic *topic)
{
    flush_all(topic->outboxes, &topic->lock);
}

void nrd_js_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    sync_outbox(of(producer), scope, done, user_data);
}

void nrd_js_topic_producer_sync(NrdTopicProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    sync_outbox(of(producer), scope, done, user_data);
}

NrdProducer *nrd_js_producer_ref(NrdProducer *producer)
{
    nrd_js_outbox_ref(of(producer));
    return producer;
}

NrdTopicProducer *nrd_js_topic_producer_ref(NrdTopicProducer *producer)
{
    nrd_js_outbox_ref(of(producer));
    return producer;
}

void nrd_js_producer_unref(NrdProducer *producer)
{
    nrd_js_outbox_unref(of(producer));
}

void nrd_js_topic_producer_unref(NrdTopicProducer *producer)
{
    nrd_js_outbox_unref(of(producer));
}

size_t nrd_js_producer_read_ranges(NrdProducer *producer, char *buf, size_t size)
{
    return nrd_js_outbox_read_ranges(of(producer), buf, size);
}

size_t nrd_js_topic_producer_read_ranges(NrdTopicProducer *producer, char *buf, size_t size)
{
    return nrd_js_outbox_read_ranges(of(producer), buf, size);
}

void nrd_js_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data)
{
    nrd_js_outbox_close(of(producer), done, user_data);
}

void nrd_js_topic_producer_close(NrdTopicProducer *producer, NrdDoneFn done, void *user_data)
{
    nrd_js_outbox_close(of(producer), done, user_data);
}
