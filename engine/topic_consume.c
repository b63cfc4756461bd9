/* A topic as one queue: takes from any of its partitions, in turn.
 *
 * The topic has a line of its own. A partition with something to deliver serves its own readers first, then wakes the
 * topic's line, naming itself: so a wake-up costs a look at one partition, however many there are. Whoever joins the
 * line looks at all of them. Between the two nothing is missed, for the reason given in line.h. */
#include "engine/consume.h"
#include "engine/dispatch.h"
#include "engine/partition.h"
#include "engine/topic.h"

#include <errno.h>

/* The records that a batch takes from a partition before it turns to the next one: 1 in the first round, then twice as many
 * each time, so that a small batch has some of each partition and a large one does not turn for each record. */
#define MAX_SHARE 64

struct NrdTopicConsumer {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;             /* referenced */
    /* guarded by lock */
    pthread_mutex_t lock;
    GPtrArray *pinned; /* of NrdPartition*, by number; NULL: it could not be opened */
};

/* ---- the line's source ---- */

static bool lease_of(NrdPartition *partition, bool sure, NrdLease *ret_lease)
{
    if (nrd_consume_is_failing(partition))
        return false; /* its trouble alone */
    if (!nrd_partition_pin_if_open(partition))
        return false; /* closed for want of use: there is nothing in it that a consumer's pin would not have kept open */
    bool found = nrd_consume_lease(partition, sure, ret_lease);
    nrd_partition_unpin_quietly(partition); /* the lease keeps it open from here on */
    return found;
}

static bool line_lease(void *owner, bool sure, NrdPartition *only, NrdPartition **ret_partition, NrdLease *ret_lease)
{
    NrdTopic *topic = owner;
    uint32_t n = nrd_topic_n_partitions(topic);
    uint32_t first = only ? 0 : atomic_fetch_add(&topic->turn, 1);
    for (uint32_t i = 0; i < (only ? 1 : n); i++) {
        NrdPartition *partition = only ? only : nrd_topic_partition(topic, (first + i) % n);
        if (partition && lease_of(partition, sure, ret_lease)) {
            *ret_partition = partition;
            return true;
        }
    }
    return false;
}

static bool deliverable_in(NrdPartition *partition)
{
    if (nrd_consume_is_failing(partition) || !nrd_partition_pin_if_open(partition))
        return false;
    bool there = nrd_consume_deliverable(partition);
    nrd_partition_unpin_quietly(partition);
    return there;
}

static bool line_deliverable(void *owner, NrdPartition *only)
{
    if (only)
        return deliverable_in(only);
    uint32_t n = nrd_topic_n_partitions(owner);
    for (uint32_t i = 0; i < n; i++) {
        if (deliverable_in(nrd_topic_partition(owner, i)))
            return true;
    }
    return false;
}

static bool line_any_well(void *owner, NrdPartition *but)
{
    uint32_t n = nrd_topic_n_partitions(owner);
    for (uint32_t i = 0; i < n; i++) {
        NrdPartition *partition = nrd_topic_partition(owner, i);
        if (partition && partition != but && !nrd_consume_is_failing(partition) && !nrd_partition_is_out(partition))
            return true;
    }
    return false;
}

static int line_error(void *owner)
{
    NrdTopic *topic = owner;
    if (atomic_load(&topic->deleted))
        return -EIDRM;
    return atomic_load(&topic->engine->stopping) ? -ENODEV : 0;
}

static const NrdLineSource line_source = { line_lease, line_deliverable, line_any_well, line_error };

void nrd_topic_line_init(NrdTopic *topic)
{
    nrd_line_init(&topic->line, &line_source, topic, topic->engine->timers);
}

/* ---- consumers ---- */

static void unpin(gpointer partition)
{
    if (partition)
        nrd_partition_unpin(partition);
}

/* Pins partition number i, in the place of one that was retired. A failure is told where it happens, and is that
 * partition's alone. One that is out of service is left alone until it is back: an open that fails costs every read of
 * the others; what passes by itself, as too many descriptors, is tried again. */
static void pin_locked(NrdTopicConsumer *consumer, uint32_t i)
{
    NrdPartition *partition = nrd_topic_partition(consumer->topic, i);
    bool first = i == consumer->pinned->len;
    if (first)
        g_ptr_array_add(consumer->pinned, NULL);
    gpointer *pinned = &consumer->pinned->pdata[i];
    if (*pinned == partition)
        return;
    unpin(g_steal_pointer(pinned));
    if ((first || nrd_partition_seems_well(partition)) && nrd_partition_pin(partition) == 0)
        *pinned = partition;
}

/* Also what the topic has grown by. */
static void pin_all(NrdTopicConsumer *consumer)
{
    uint32_t n = nrd_topic_n_partitions(consumer->topic);
    pthread_mutex_lock(&consumer->lock);
    for (uint32_t i = 0; i < n; i++)
        pin_locked(consumer, i);
    pthread_mutex_unlock(&consumer->lock);
}

int nrd_local_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer)
{
    int rc = nrd_topic_retry(topic);
    if (rc == 0)
        rc = line_error(topic);
    if (rc < 0)
        return rc;
    NrdTopicConsumer *consumer = g_new0(NrdTopicConsumer, 1);
    consumer->table = &nrd_local_table;
    consumer->topic = nrd_topic_ref(topic);
    consumer->pinned = g_ptr_array_new_with_free_func(unpin);
    pthread_mutex_init(&consumer->lock, NULL);
    pin_all(consumer);
    *ret_consumer = consumer;
    return 0;
}

void nrd_local_topic_consumer_close(NrdTopicConsumer *consumer)
{
    if (!consumer)
        return;
    g_ptr_array_unref(consumer->pinned);
    pthread_mutex_destroy(&consumer->lock);
    nrd_topic_unref(consumer->topic);
    g_free(consumer);
}

void nrd_local_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                          void *user_data)
{
    pin_all(consumer);
    nrd_line_take(&consumer->topic->line, waiter, wait_ms, deliver, user_data);
}

void nrd_local_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data)
{
    NrdWaiter waiter;
    nrd_waiter_init(&waiter);
    waiter.sure = true;
    nrd_topic_take(consumer, &waiter, 0, deliver, user_data);
}

/* What cannot be read is left to others only while there are any. */
static int batch_of(NrdPartition *partition, NrdBatch *batch, uint32_t share, uint32_t *ret_n)
{
    int rc = 0;
    *ret_n = 0;
    if (!partition)
        return 0;
    if (!nrd_partition_pin_if_open(partition)) {
        batch->withheld = true; /* the consumer would have opened it */
        return 0;
    }
    if (!nrd_consume_is_failing(partition))
        rc = nrd_consume_batch(partition, batch, share, ret_n);
    else if (nrd_consume_deliverable(partition))
        batch->withheld = true;
    nrd_partition_unpin_quietly(partition);
    if (rc == -EIO && line_any_well(partition->topic, partition)) {
        nrd_consume_note_failing(partition);
        batch->withheld = true;
        rc = 0;
    }
    return rc;
}

/* Once round the partitions. */
static int batch_round(NrdTopic *topic, NrdBatch *batch, uint32_t share, uint32_t *ret_n)
{
    uint32_t n_taken = 0, n = nrd_topic_n_partitions(topic), first = atomic_fetch_add(&topic->turn, 1);
    int rc = 0;
    batch->withheld = false;
    for (uint32_t i = 0; i < n && rc == 0 && !batch->full; i++) {
        uint32_t n_of_it;
        rc = batch_of(nrd_topic_partition(topic, (first + i) % n), batch, share, &n_of_it);
        n_taken += n_of_it;
    }
    *ret_n = n_taken;
    return rc;
}

int nrd_local_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch)
{
    NrdTopic *topic = consumer->topic;
    int rc = line_error(topic);
    pin_all(consumer);
    for (uint32_t n = 1, share = 1; rc == 0 && n > 0 && !batch->full; share = MIN(2 * share, MAX_SHARE))
        rc = batch_round(topic, batch, share, &n);
    return rc;
}

bool nrd_local_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter)
{
    return nrd_line_cancel(&topic->line, waiter);
}

bool nrd_local_topic_readable(NrdTopic *topic)
{
    /* With none that is well a read does not wait: it fails. */
    return line_error(topic) == 0 && (line_deliverable(topic, NULL) || !line_any_well(topic, NULL));
}

void nrd_local_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    nrd_line_watch_set(&topic->line, watch, notify, user_data);
}

bool nrd_local_topic_watch_clear(NrdTopic *topic, NrdWatch *watch)
{
    return nrd_line_watch_clear(&topic->line, watch);
}

/* ---- settling ---- */

/* Leases of one partition. */
static size_t settle_of(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    NrdPartition *partition = nrd_topic_partition(topic, holds[0].partition);
    *ret_error = atomic_load(&topic->deleted) ? -EIDRM : partition ? 0 : -EINVAL;
    if (*ret_error == 0 && !nrd_partition_pin_if_open(partition))
        *ret_error = -ESTALE; /* a lease would have kept it open */
    if (*ret_error < 0)
        return 0;
    size_t n_done = nrd_partition_settle_many(partition, verb, holds, n, ret_error);
    nrd_partition_unpin(partition);
    return n_done;
}

size_t nrd_local_topic_settle_many(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    size_t n_done = 0;
    *ret_error = 0;
    while (n_done < n && *ret_error == 0) {
        size_t end = n_done + 1;
        while (end < n && holds[end].partition == holds[n_done].partition)
            end++;
        n_done += settle_of(topic, verb, holds + n_done, end - n_done, ret_error);
    }
    return n_done;
}

int nrd_local_topic_settle(NrdTopic *topic, uint32_t number, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    NrdHold hold = { .partition = number, .offset = offset, .nonce = nonce };
    int error;
    (void)nrd_topic_settle_many(topic, verb, &hold, 1, &error);
    return error;
}

/* Leases of one partition, or none. */
static int settle_durably_of(NrdTopic *topic, uint32_t number, const NrdHold *holds, size_t n, int *ret_errors)
{
    NrdPartition *partition = nrd_topic_partition(topic, number);
    if (!nrd_partition_pin_if_open(partition)) {
        for (size_t i = 0; i < n; i++)
            ret_errors[i] = -ESTALE; /* a lease would have kept it open */
        return 0;                    /* its close has written everything */
    }
    int rc = nrd_partition_settle_durably(partition, holds, n, ret_errors);
    if (n > 0)
        nrd_partition_unpin(partition);
    else
        nrd_partition_unpin_quietly(partition);
    return rc;
}

/* Either the partitions of which there are leases, or the others, up to the first that fails. */
static int settle_durably_some(NrdTopic *topic, bool with_leases, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = 0;
    size_t begin = 0, end = 0;
    uint32_t n_partitions = nrd_topic_n_partitions(topic);
    for (uint32_t i = 0; rc == 0 && i < n_partitions; i++, begin = end) {
        while (end < n && holds[end].partition == i)
            end++;
        if (with_leases && end > begin)
            rc = settle_durably_of(topic, i, holds + begin, end - begin, ret_errors + begin);
        else if (!with_leases && end == begin)
            rc = settle_durably_of(topic, i, NULL, 0, NULL);
    }
    return rc;
}

/* First what may fail without having settled anything: whoever undoes the work on one record because this failed must not
 * find it settled. */
int nrd_local_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = atomic_load(&topic->deleted) ? -EIDRM : 0;
    for (size_t i = 0; i < n; i++)
        ret_errors[i] = -EINVAL;
    if (rc == 0)
        rc = settle_durably_some(topic, false, holds, n, ret_errors);
    if (rc == 0)
        rc = settle_durably_some(topic, true, holds, n, ret_errors);
    for (size_t i = 0; rc < 0 && i < n; i++)
        ret_errors[i] = ret_errors[i] == -EINVAL ? rc : ret_errors[i];
    return rc;
}

static void keep_first(void *user_data, int error)
{
    int *first = user_data;
    if (*first == 0)
        *first = error;
}

void nrd_local_topic_sync_frontiers(NrdTopic *topic, NrdDoneFn done, void *user_data)
{
    int first = atomic_load(&topic->deleted) ? -EIDRM : 0;
    uint32_t n = nrd_topic_n_partitions(topic);
    for (uint32_t i = 0; first == 0 && i < n; i++) {
        NrdPartition *partition = nrd_topic_partition(topic, i);
        if (!nrd_partition_pin_if_open(partition))
            continue; /* its close has written everything */
        nrd_partition_sync_frontier(partition, keep_first, &first);
        nrd_partition_unpin_quietly(partition);
    }
    done(user_data, first);
}
