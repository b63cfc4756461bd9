/* Producers: the handles that records are added to, synced by and closed with; and the commit of one batch for the
 * dispatcher. How they are committed is in produce.c. */
#include "engine/produce_private.h"

#include "engine/fan.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/ranges.h"
#include "engine/ingress/ingress.h"

#include <errno.h>

static int claim(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    return topic->engine->ingress ? nrd_ingress_claim(topic->engine->ingress, topic->id, partition->number) : 0;
}

static void unclaim(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    if (topic->engine->ingress)
        nrd_ingress_unclaim(topic->engine->ingress, topic->id, partition->number);
}

/* Who holds records and has made no claim; NULL: nobody. One whose last attempt failed only if it is the one, or for NULL: it
 * keeps nobody else waiting. Produce lock held. */
static GPtrArray *unclaimed_locked(NrdPartition *partition, const NrdProducer *one)
{
    GPtrArray *found = NULL;
    if (atomic_load(&partition->n_claimed) == partition->producers.length)
        return NULL; /* most often: a look at each of many would be one a record */
    for (GList *l = partition->producers.head; l && !atomic_load(&partition->closed); l = l->next) {
        NrdProducer *producer = l->data;
        bool in_turn = !one || producer == one || producer->failing_errno == 0;
        if (producer->claimed || producer->once || producer->pending->n_records == 0 || !in_turn)
            continue;
        if (!found)
            found = g_ptr_array_new();
        g_ptr_array_add(found, nrd_producer_ref(producer));
    }
    return found;
}

/* Somebody else may have made the claim meanwhile, or closed it. */
static int claim_for(NrdProducer *producer, bool asked)
{
    NrdPartition *partition = producer->partition;
    int rc = claim(partition);
    g_mutex_lock(&partition->produce_lock);
    bool surplus = rc == 0 && (producer->claimed || producer->closed);
    if (rc == 0 && !surplus) {
        producer->claimed = true;
        atomic_fetch_add(&partition->n_claimed, 1);
    }
    if (rc < 0 && !producer->claimed) {
        producer->failing_errno = rc;
        producer->untold_errno = asked ? producer->untold_errno : rc;
    }
    g_mutex_unlock(&partition->produce_lock);
    if (surplus)
        unclaim(partition);
    return rc;
}

int nrd_produce_claim(NrdPartition *partition, const NrdProducer *one)
{
    int rc = 0;
    g_mutex_lock(&partition->produce_lock);
    GPtrArray *found = unclaimed_locked(partition, one);
    g_mutex_unlock(&partition->produce_lock);
    for (guint i = 0; found && i < found->len; i++) {
        NrdProducer *producer = found->pdata[i];
        int claim_rc = claim_for(producer, producer == one);
        if (claim_rc < 0 && (!one || producer == one))
            rc = claim_rc;
        nrd_producer_unref(producer);
    }
    if (found)
        g_ptr_array_unref(found);
    return rc;
}

void nrd_produce_rest(NrdPartition *partition)
{
    unsigned n_given_back = 0;
    if (atomic_load(&partition->n_claimed) == 0)
        return;
    g_mutex_lock(&partition->produce_lock);
    for (GList *l = partition->producers.head; l; l = l->next) {
        NrdProducer *producer = l->data;
        bool rests = !producer->committed && producer->pending->n_records == 0 && !producer->in_flight;
        producer->committed = false;
        n_given_back += producer->claimed && rests;
        producer->claimed &= !rests;
    }
    atomic_fetch_sub(&partition->n_claimed, n_given_back);
    g_mutex_unlock(&partition->produce_lock);
    for (; n_given_back > 0; n_given_back--)
        unclaim(partition);
}

int nrd_local_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer)
{
    if (partition->topic->engine->read_only)
        return -EROFS;
    if (nrd_topic_is_delayed(partition->topic))
        return nrd_family_refuse_producer(partition->topic, partition->number);
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    NrdProducer *producer = g_new0(NrdProducer, 1);
    producer->table = &nrd_local_table;
    producer->partition = partition;
    producer->want_ranges = want_ranges;
    producer->n_refs = 1;
    producer->link.data = producer;
    producer->pending = nrd_record_batch_new();
    producer->ranges = want_ranges ? g_string_new(NULL) : NULL;
    nrd_topic_ref(partition->topic);
    g_mutex_lock(&partition->produce_lock);
    g_queue_push_tail_link(&partition->producers, &producer->link);
    g_mutex_unlock(&partition->produce_lock);
    *ret_producer = producer;
    return 0;
}

int nrd_local_producer_check(NrdProducer *producer)
{
    NrdPartition *partition = producer->partition;
    int rc = nrd_partition_usable(partition);
    if (rc < 0)
        return rc;
    if (nrd_topic_is_delayed(partition->topic)) /* it was opened before the topic became one */
        return nrd_family_refuse_producer(partition->topic, partition->number);
    rc = nrd_log_check(atomic_load(&partition->log));
    g_mutex_lock(&partition->produce_lock);
    if (rc == 0)
        rc = producer->untold_errno;
    if (rc == 0 && producer->pending->bytes->len >= NRD_PRODUCE_NOW_BYTES)
        rc = producer->failing_errno;
    producer->untold_errno = 0;
    g_mutex_unlock(&partition->produce_lock);
    return rc;
}

void nrd_local_producer_add_many(NrdProducer *producer, const NrdNewRecord *records, size_t n_records)
{
    g_mutex_lock(&producer->partition->produce_lock);
    for (size_t i = 0; i < n_records; i++)
        nrd_record_batch_add(producer->pending, records[i].key, records[i].key_size, records[i].payload,
                             records[i].payload_size);
    g_mutex_unlock(&producer->partition->produce_lock);
}

void nrd_local_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload,
                            size_t payload_size)
{
    nrd_producer_add_many(producer, &(NrdNewRecord){ key, key_size, payload, payload_size }, 1);
}

static int64_t linger_ms(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record->config.linger_ms;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}

NrdUrgency nrd_local_producer_wrote(NrdProducer *producer, bool more_follows)
{
    NrdPartition *partition = producer->partition;
    NrdUrgency urgency = NRD_URGENCY_LATER;
    g_mutex_lock(&partition->produce_lock);
    const NrdRecordBatch *pending = producer->pending;
    if (pending->bytes->len >= NRD_PRODUCE_FULL_BYTES)
        urgency = NRD_URGENCY_FULL;
    else if (pending->bytes->len >= NRD_PRODUCE_NOW_BYTES || pending->n_records >= NRD_PRODUCE_NOW_RECORDS)
        urgency = more_follows ? NRD_URGENCY_LATER : NRD_URGENCY_NOW;
    if (urgency == NRD_URGENCY_LATER && pending->n_records > 0)
        nrd_produce_arm_linger_locked(partition, more_follows ? MIN(linger_ms(partition), NRD_MORE_FOLLOWS_MS)
                                                              : linger_ms(partition));
    g_mutex_unlock(&partition->produce_lock);
    return urgency;
}

void nrd_local_partition_flush(NrdPartition *partition)
{
    nrd_timer_clear(partition->topic->engine->timers, &partition->linger_timer);
    nrd_produce_flush(partition, NRD_ROUNDS_OF_A_PRODUCER);
}

void nrd_local_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    NrdPartition *partition = producer->partition;
    NrdSyncWaiter waiter = { producer, scope, done, user_data };
    int rc = nrd_produce_claim(partition, producer);
    g_mutex_lock(&partition->produce_lock);
    /* A round that has this producer's records answers, whatever has become of the topic: only then are they its own
     * again. Once closed nobody would come for the waiter. */
    if (rc == 0)
        rc = nrd_partition_usable(partition);
    if (rc < 0 && !producer->in_flight) {
        g_mutex_unlock(&partition->produce_lock);
        done(user_data, rc);
        return;
    }
    nrd_producer_ref(producer);
    g_array_append_val(partition->sync_waiters, waiter);
    if (partition->committing) {
        g_mutex_unlock(&partition->produce_lock);
        return;
    }
    partition->committing = true;
    nrd_produce_run_and_unlock(partition, NRD_ROUNDS_OF_A_PRODUCER);
}

size_t nrd_local_producer_read_ranges(NrdProducer *producer, char *buf, size_t size)
{
    if (!producer->ranges)
        return 0;
    g_mutex_lock(&producer->partition->produce_lock);
    size_t n = nrd_ranges_take(producer->ranges, buf, size);
    g_mutex_unlock(&producer->partition->produce_lock);
    return n;
}

/* ---- closing ---- */

typedef struct Closing {
    NrdProducer *producer;
    NrdDoneFn done;
    void *user_data;
} Closing;

NrdProducer *nrd_local_producer_ref(NrdProducer *producer)
{
    g_atomic_int_inc(&producer->n_refs);
    return producer;
}

void nrd_local_producer_unref(NrdProducer *producer)
{
    if (!g_atomic_int_dec_and_test(&producer->n_refs))
        return;
    NrdPartition *partition = producer->partition;
    nrd_record_batch_free(producer->pending);
    nrd_record_batch_free(producer->spare);
    if (producer->ranges)
        g_string_free(producer->ranges, TRUE);
    g_free(producer);
    nrd_topic_unref(partition->topic);
}

static void on_closed(void *user_data, int error)
{
    Closing *closing = user_data;
    NrdProducer *producer = closing->producer;
    g_mutex_lock(&producer->partition->produce_lock);
    uint32_t n_dropped = producer->pending->n_records;
    g_queue_unlink(&producer->partition->producers, &producer->link);
    producer->closed = true;
    bool claimed = producer->claimed;
    if (claimed)
        atomic_fetch_sub(&producer->partition->n_claimed, 1);
    g_mutex_unlock(&producer->partition->produce_lock);
    if (error < 0 && n_dropped > 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(producer->partition),
                 "the last commit of a closed producer failed: %s; %u record%s dropped, as its close reported",
                 g_strerror(-error), n_dropped, nrd_plural(n_dropped));
    if (claimed)
        unclaim(producer->partition);
    nrd_partition_unpin(producer->partition);
    nrd_producer_unref(producer);
    if (closing->done)
        closing->done(closing->user_data, error);
    g_free(closing);
}

void nrd_local_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data)
{
    Closing *closing = g_new(Closing, 1);
    *closing = (Closing){ producer, done, user_data };
    g_mutex_lock(&producer->partition->produce_lock);
    bool empty = producer->pending->n_records == 0 && !producer->in_flight;
    g_mutex_unlock(&producer->partition->produce_lock);
    if (empty)
        on_closed(closing, 0);
    else
        nrd_producer_sync(producer, NRD_SYNC_OWN, on_closed, closing);
}

/* ---- one commit, all or nothing: the dispatcher's ---- */

typedef struct Once {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int error; /* 1: not called back yet; guarded by lock */
} Once;

static void on_once(void *user_data, int error)
{
    Once *once = user_data;
    pthread_mutex_lock(&once->lock);
    once->error = error;
    pthread_cond_signal(&once->done);
    pthread_mutex_unlock(&once->lock);
}

static int wait_for(Once *once)
{
    pthread_mutex_lock(&once->lock);
    while (once->error == 1)
        pthread_cond_wait(&once->done, &once->lock);
    pthread_mutex_unlock(&once->lock);
    pthread_cond_destroy(&once->done);
    pthread_mutex_destroy(&once->lock);
    return once->error;
}

static NrdProducer *producer_of_one(NrdPartition *partition, NrdRecordBatch *batch)
{
    NrdProducer *producer = g_new0(NrdProducer, 1);
    producer->table = &nrd_local_table;
    producer->partition = partition;
    producer->once = true;
    producer->n_refs = 2; /* ours and the waiter's */
    producer->link.data = producer;
    producer->pending = batch;
    nrd_topic_ref(partition->topic);
    return producer;
}

int nrd_produce_commit(NrdPartition *partition, NrdRecordBatch *batch, uint64_t *ret_first)
{
    Once once = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };
    g_mutex_lock(&partition->produce_lock);
    int rc = nrd_partition_usable(partition);
    if (rc < 0) { /* once it is closed nobody would come for the waiter */
        g_mutex_unlock(&partition->produce_lock);
        nrd_record_batch_free(batch);
        return rc;
    }
    /* The records and who waits for them at once: no round takes the ones without the other. */
    NrdProducer *producer = producer_of_one(partition, batch);
    NrdSyncWaiter waiter = { producer, NRD_SYNC_OWN, on_once, &once };
    g_queue_push_tail_link(&partition->producers, &producer->link);
    g_array_append_val(partition->sync_waiters, waiter);
    bool runs = !partition->committing;
    if (runs) {
        partition->committing = true;
        nrd_produce_run_and_unlock(partition, NRD_ROUNDS_OF_A_WORKER);
    } else {
        g_mutex_unlock(&partition->produce_lock);
    }
    rc = wait_for(&once);
    g_mutex_lock(&partition->produce_lock);
    g_queue_unlink(&partition->producers, &producer->link);
    uint64_t first = producer->first;
    g_mutex_unlock(&partition->produce_lock);
    nrd_producer_unref(producer);
    if (rc == 0)
        *ret_first = first;
    return rc;
}
