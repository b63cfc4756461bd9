/* Producers and group commit.
 *
 * Who wants a commit and finds nobody committing takes the committer role and commits on its own thread, without a
 * hand-over; who arrives meanwhile leaves word (a sync waiter, flush_wanted) and is served by the next round of whoever
 * has the role. A round takes what every producer of the partition holds: one frame, one fdatasync for all of them.
 * A failed round gives each producer its records back, in front of what it has written since, before anybody is
 * answered: so a retry lands one copy, in order. One round is under way at a time, so records of one producer never
 * overtake each other. */
#include "engine/engine_private.h"

#include "engine/base/clock.h"
#include "engine/ingress/ingress.h"

#include <errno.h>

#define NOW_BYTES (1 * NRD_MIB)
#define NOW_RECORDS 1000
#define FULL_BYTES (4 * NRD_MIB)
#define SPARE_BYTES (64 * NRD_KIB) /* a committed batch up to this size is kept for the next one */
#define RETRY_MS 1000              /* between background attempts while commits fail */

/* How many rounds a thread commits before it hands the rest over: it has its own work to answer. */
#define ROUNDS_OF_A_PRODUCER 64
#define ROUNDS_OF_A_WORKER 4
#define ROUNDS_OF_A_VERB 1

struct NrdProducer {
    NrdPartition *partition; /* holds a reference to its topic */
    bool want_ranges;
    bool once;   /* of nrd_produce_commit: records that failed are not kept */
    gint n_refs; /* atomic */
    /* guarded by the partition's produce lock */
    GList link;
    NrdRecordBatch *pending;
    NrdRecordBatch *in_flight; /* what the round under way commits, or NULL */
    NrdRecordBatch *spare;     /* empty */
    int untold_errno;          /* failure of a background commit that nobody was told yet */
    int failing_errno;         /* result of the last commit */
    uint64_t first;            /* offset that the last commit gave its first record */
    GString *ranges;
};

static void on_linger(void *user_data);

void nrd_produce_init(NrdPartition *partition)
{
    g_mutex_init(&partition->produce_lock);
    g_cond_init(&partition->role_free);
    g_queue_init(&partition->producers);
    partition->sync_waiters = g_array_new(FALSE, FALSE, sizeof(NrdSyncWaiter));
    nrd_timer_init(&partition->linger_timer, on_linger, partition, true);
}

void nrd_produce_clear(NrdPartition *partition)
{
    g_assert(g_queue_is_empty(&partition->producers));
    g_assert(partition->sync_waiters->len == 0);
    g_array_unref(partition->sync_waiters);
    g_cond_clear(&partition->role_free);
    g_mutex_clear(&partition->produce_lock);
}

/* ---- a round ---- */

typedef struct Round {
    GPtrArray *producers; /* of NrdProducer*, referenced, those that had records */
    GPtrArray *batches;   /* of NrdRecordBatch*, theirs, in the same order */
    GArray *waiters;      /* of NrdSyncWaiter */
    uint64_t *first;      /* offset of each batch's first record */
    int error;
} Round;

static void unref_producer(gpointer producer)
{
    nrd_producer_unref(producer);
}

/* Takes what every producer holds. A producer of a topic that was just deleted may be closed while the round has it. Produce
 * lock held. */
static void round_begin_locked(NrdPartition *partition, Round *round)
{
    round->producers = g_ptr_array_new_with_free_func(unref_producer);
    round->batches = g_ptr_array_new();
    round->waiters = partition->sync_waiters;
    partition->sync_waiters = g_array_new(FALSE, FALSE, sizeof(NrdSyncWaiter));
    partition->flush_wanted = false;
    partition->linger_armed = false;
    for (GList *l = partition->producers.head; l; l = l->next) {
        NrdProducer *producer = l->data;
        if (producer->pending->n_records == 0)
            continue;
        producer->in_flight = producer->pending;
        producer->pending = producer->spare ? g_steal_pointer(&producer->spare) : nrd_record_batch_new();
        g_ptr_array_add(round->producers, nrd_producer_ref(producer));
        g_ptr_array_add(round->batches, producer->in_flight);
    }
    round->first = g_new0(uint64_t, round->batches->len + 1);
}

/* From the second commit on the log prepares for the next one. */
static void warm_up(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    if (atomic_exchange(&partition->warm, true))
        return;
    pthread_mutex_lock(&topic->lock);
    NrdLogSettings settings = nrd_partition_log_settings(partition, &topic->record->config);
    pthread_mutex_unlock(&topic->lock);
    nrd_log_configure(atomic_load(&partition->log), &settings);
}

static void round_commit(NrdPartition *partition, Round *round)
{
    round->error = 0;
    if (round->batches->len == 0)
        return;
    round->error = nrd_partition_usable(partition);
    if (round->error == 0)
        round->error = nrd_log_commit(atomic_load(&partition->log), (NrdRecordBatch *const *)round->batches->pdata,
                                      round->batches->len, round->first);
    if (round->error == 0)
        warm_up(partition);
    if (round->error == -ESHUTDOWN)
        round->error = nrd_partition_closed_error(partition);
}

static void keep_spare_locked(NrdProducer *producer, NrdRecordBatch *batch)
{
    if (producer->spare || batch->bytes->len > SPARE_BYTES) {
        nrd_record_batch_free(batch);
        return;
    }
    nrd_record_batch_clear(batch);
    producer->spare = batch;
}

static bool has_waiter(const Round *round, const NrdProducer *producer)
{
    for (guint i = 0; i < round->waiters->len; i++) {
        if (g_array_index(round->waiters, NrdSyncWaiter, i).producer == producer)
            return true;
    }
    return false;
}

/* Who opened for reading too and never reads has lost the oldest lines, but for the one that a read may be in. */
void nrd_ranges_add(GString *ranges, uint32_t partition, uint64_t first, uint64_t last)
{
    if (ranges->len >= NRD_RANGES_BYTES) {
        size_t kept = (size_t)(strchr(ranges->str, '\n') - ranges->str) + 1;
        size_t from = (size_t)(strchr(ranges->str + NRD_RANGES_BYTES / 2, '\n') - ranges->str) + 1;
        g_string_erase(ranges, (gssize)kept, (gssize)(from - kept));
    }
    g_string_append_printf(ranges, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", partition, first, last);
}

static void producer_committed_locked(NrdProducer *producer, uint64_t first)
{
    NrdRecordBatch *batch = g_steal_pointer(&producer->in_flight);
    if (producer->want_ranges)
        nrd_ranges_add(producer->ranges, producer->partition->number, first, first + batch->n_records - 1);
    producer->first = first;
    producer->untold_errno = 0;
    producer->failing_errno = 0;
    keep_spare_locked(producer, batch);
}

static void producer_failed_locked(NrdProducer *producer, const Round *round)
{
    NrdRecordBatch *batch = g_steal_pointer(&producer->in_flight);
    if (!producer->once)
        nrd_record_batch_prepend(producer->pending, batch);
    nrd_record_batch_free(batch);
    producer->failing_errno = round->error;
    producer->untold_errno = has_waiter(round, producer) ? 0 : round->error;
}

static void arm_linger_locked(NrdPartition *partition, int64_t delay_ms)
{
    int64_t due_ms = nrd_clock_mono_ms() + delay_ms;
    if (atomic_load(&partition->closed) || (partition->linger_armed && partition->linger_due_ms <= due_ms))
        return;
    partition->linger_armed = true;
    partition->linger_due_ms = due_ms;
    nrd_timer_set_earlier(partition->topic->engine->timers, &partition->linger_timer, due_ms);
}

static void round_end_locked(NrdPartition *partition, Round *round)
{
    for (guint i = 0; i < round->producers->len; i++) {
        NrdProducer *producer = round->producers->pdata[i];
        if (round->error == 0)
            producer_committed_locked(producer, round->first[i]);
        else
            producer_failed_locked(producer, round);
    }
    if (round->error < 0)
        arm_linger_locked(partition, RETRY_MS);
}

/* A waiter whose own records were not in the round had none: nothing of its own can have failed. */
static bool concerns(const Round *round, const NrdSyncWaiter *waiter)
{
    return waiter->scope == NRD_SYNC_FILE || g_ptr_array_find(round->producers, waiter->producer, NULL);
}

static void answer(const NrdSyncWaiter *waiter, int error)
{
    waiter->done(waiter->user_data, error);
    nrd_producer_unref(waiter->producer);
}

/* Answers. No lock held. */
static void round_answer(Round *round)
{
    for (guint i = 0; i < round->waiters->len; i++) {
        const NrdSyncWaiter *waiter = &g_array_index(round->waiters, NrdSyncWaiter, i);
        answer(waiter, concerns(round, waiter) ? round->error : 0);
    }
    g_ptr_array_unref(round->producers);
    g_ptr_array_unref(round->batches);
    g_array_unref(round->waiters);
    g_free(round->first);
}

/* A bound on bytes holds at once, not at the next sweep. */
static void kick_when_too_large(NrdPartition *partition)
{
    if (atomic_load(&partition->retention_bytes) == 0 || !nrd_retention_due(partition, 0))
        return;
    atomic_store(&partition->retention_due_ms, 0);
    nrd_housekeeping_kick_retention(partition->topic->engine->housekeeping);
}

static void announce(NrdPartition *partition)
{
    nrd_consume_wake(partition);
    nrd_fan_committed(partition);
    kick_when_too_large(partition);
}

/* One round, entered and left with the produce lock held; each result goes to those it concerns. */
static void run_round_locked(NrdPartition *partition)
{
    Round round;
    round_begin_locked(partition, &round);
    g_mutex_unlock(&partition->produce_lock);
    round_commit(partition, &round);
    g_mutex_lock(&partition->produce_lock);
    round_end_locked(partition, &round);
    g_mutex_unlock(&partition->produce_lock);
    bool committed = round.error == 0 && round.batches->len > 0;
    round_answer(&round);
    if (committed)
        announce(partition);
    g_mutex_lock(&partition->produce_lock);
}

static bool wanted_locked(const NrdPartition *partition)
{
    return partition->flush_wanted || partition->sync_waiters->len > 0;
}

/* The caller has the role: commits until nobody wants anything, or it has done its share, or somebody waits for the role;
 * then gives it up. What is left over is for who waits, or for a worker. Produce lock held, and released. */
static void run_rounds_and_unlock(NrdPartition *partition, unsigned max_rounds)
{
    for (unsigned n = 0; wanted_locked(partition) && n < max_rounds && partition->n_entering == 0; n++)
        run_round_locked(partition);
    partition->committing = false;
    g_cond_broadcast(&partition->role_free);
    if (wanted_locked(partition) && partition->n_entering == 0)
        nrd_timer_set(partition->topic->engine->timers, &partition->linger_timer, nrd_clock_mono_ms());
    g_mutex_unlock(&partition->produce_lock);
}

/* ---- the role, for who does not commit ---- */

int nrd_produce_enter(NrdPartition *partition)
{
    g_mutex_lock(&partition->produce_lock);
    partition->n_entering++;
    while (partition->committing && !atomic_load(&partition->closed))
        g_cond_wait(&partition->role_free, &partition->produce_lock);
    partition->n_entering--;
    int rc = atomic_load(&partition->closed) ? nrd_partition_closed_error(partition) : 0;
    if (rc == 0)
        partition->committing = true;
    g_mutex_unlock(&partition->produce_lock);
    return rc;
}

void nrd_produce_leave(NrdPartition *partition)
{
    g_mutex_lock(&partition->produce_lock);
    run_rounds_and_unlock(partition, ROUNDS_OF_A_VERB);
}

void nrd_produce_shut(NrdPartition *partition)
{
    g_mutex_lock(&partition->produce_lock);
    g_assert(partition->committing);
    atomic_store(&partition->closed, true);
    g_cond_broadcast(&partition->role_free);
    g_mutex_unlock(&partition->produce_lock);
}

void nrd_produce_flush_all(NrdPartition *partition)
{
    if (nrd_produce_enter(partition) < 0)
        return; /* closed: nothing can be committed */
    g_mutex_lock(&partition->produce_lock);
    partition->flush_wanted = true;
    run_rounds_and_unlock(partition, ROUNDS_OF_A_VERB);
}

void nrd_produce_fail_waiters(NrdPartition *partition, int error)
{
    nrd_timer_drain(partition->topic->engine->timers, &partition->linger_timer);
    g_mutex_lock(&partition->produce_lock);
    g_assert(partition->committing);
    GArray *waiters = partition->sync_waiters;
    partition->sync_waiters = g_array_new(FALSE, FALSE, sizeof(NrdSyncWaiter));
    g_mutex_unlock(&partition->produce_lock);
    for (guint i = 0; i < waiters->len; i++)
        answer(&g_array_index(waiters, NrdSyncWaiter, i), error);
    g_array_unref(waiters);
}

int nrd_produce_expose(NrdPartition *partition)
{
    int rc = nrd_produce_enter(partition);
    if (rc < 0)
        return rc;
    NrdLog *log = atomic_load(&partition->log);
    uint64_t hwm = nrd_log_hwm(log);
    rc = nrd_log_expose(log);
    bool exposed = nrd_log_hwm(log) > hwm;
    nrd_produce_leave(partition);
    if (exposed)
        announce(partition);
    return rc;
}

static void flush(NrdPartition *partition, unsigned max_rounds)
{
    g_mutex_lock(&partition->produce_lock);
    partition->linger_armed = false;
    partition->flush_wanted = true;
    if (partition->committing) {
        g_mutex_unlock(&partition->produce_lock);
        return;
    }
    partition->committing = true;
    run_rounds_and_unlock(partition, max_rounds);
}

static void on_linger(void *user_data)
{
    flush(user_data, ROUNDS_OF_A_WORKER);
}

/* ---- producers ---- */

/* Whoever commits beside the dispatcher says so first: see engine/ingress/ingress.h. */
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

int nrd_producer_open(NrdPartition *partition, bool want_ranges, NrdProducer **ret_producer)
{
    if (partition->topic->engine->read_only)
        return -EROFS;
    if (nrd_topic_is_delayed(partition->topic))
        return nrd_family_refuse_producer(partition->topic, partition->number);
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    rc = claim(partition);
    if (rc < 0) {
        nrd_partition_unpin(partition);
        return rc;
    }
    NrdProducer *producer = g_new0(NrdProducer, 1);
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

int nrd_producer_check(NrdProducer *producer)
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
    if (rc == 0 && producer->pending->bytes->len >= NOW_BYTES)
        rc = producer->failing_errno;
    producer->untold_errno = 0;
    g_mutex_unlock(&partition->produce_lock);
    return rc;
}

void nrd_producer_add(NrdProducer *producer, const void *key, size_t key_size, const void *payload, size_t payload_size)
{
    g_mutex_lock(&producer->partition->produce_lock);
    nrd_record_batch_add(producer->pending, key, key_size, payload, payload_size);
    g_mutex_unlock(&producer->partition->produce_lock);
}

static int64_t linger_ms(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record->config.linger_ms;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}

NrdUrgency nrd_producer_wrote(NrdProducer *producer, bool more_follows)
{
    NrdPartition *partition = producer->partition;
    NrdUrgency urgency = NRD_URGENCY_LATER;
    g_mutex_lock(&partition->produce_lock);
    const NrdRecordBatch *pending = producer->pending;
    if (pending->bytes->len >= FULL_BYTES)
        urgency = NRD_URGENCY_FULL;
    else if (pending->bytes->len >= NOW_BYTES || pending->n_records >= NOW_RECORDS)
        urgency = more_follows ? NRD_URGENCY_LATER : NRD_URGENCY_NOW;
    if (urgency == NRD_URGENCY_LATER && pending->n_records > 0)
        arm_linger_locked(partition,
                          more_follows ? MIN(linger_ms(partition), NRD_MORE_FOLLOWS_MS) : linger_ms(partition));
    g_mutex_unlock(&partition->produce_lock);
    return urgency;
}

void nrd_partition_flush(NrdPartition *partition)
{
    nrd_timer_clear(partition->topic->engine->timers, &partition->linger_timer);
    flush(partition, ROUNDS_OF_A_PRODUCER);
}

void nrd_producer_sync(NrdProducer *producer, NrdSyncScope scope, NrdDoneFn done, void *user_data)
{
    NrdPartition *partition = producer->partition;
    NrdSyncWaiter waiter = { producer, scope, done, user_data };
    g_mutex_lock(&partition->produce_lock);
    /* A round that has this producer's records answers, whatever has become of the topic: only then are they its own
     * again. Once closed nobody would come for the waiter. */
    int rc = nrd_partition_usable(partition);
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
    run_rounds_and_unlock(partition, ROUNDS_OF_A_PRODUCER);
}

size_t nrd_producer_read_ranges(NrdProducer *producer, char *buf, size_t size)
{
    if (!producer->ranges)
        return 0;
    g_mutex_lock(&producer->partition->produce_lock);
    size_t n = MIN(size, producer->ranges->len);
    memcpy(buf, producer->ranges->str, n);
    g_string_erase(producer->ranges, 0, (gssize)n);
    g_mutex_unlock(&producer->partition->produce_lock);
    return n;
}

/* ---- closing ---- */

typedef struct Closing {
    NrdProducer *producer;
    NrdDoneFn done;
    void *user_data;
} Closing;

NrdProducer *nrd_producer_ref(NrdProducer *producer)
{
    g_atomic_int_inc(&producer->n_refs);
    return producer;
}

void nrd_producer_unref(NrdProducer *producer)
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
    g_mutex_unlock(&producer->partition->produce_lock);
    if (error < 0 && n_dropped > 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(producer->partition),
                 "the last commit of a closed producer failed: %s; %u record%s dropped, as its close reported",
                 g_strerror(-error), n_dropped, nrd_plural(n_dropped));
    unclaim(producer->partition);
    nrd_partition_unpin(producer->partition);
    nrd_producer_unref(producer);
    if (closing->done)
        closing->done(closing->user_data, error);
    g_free(closing);
}

void nrd_producer_close(NrdProducer *producer, NrdDoneFn done, void *user_data)
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
        run_rounds_and_unlock(partition, ROUNDS_OF_A_WORKER);
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
