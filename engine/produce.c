/* Group commit: rounds, and the role of who commits them. The producers are in producer.c.
 *
 * Who wants a commit and finds nobody committing takes the committer role and commits on its own thread, without a
 * hand-over; who arrives meanwhile leaves word (a sync waiter, flush_wanted) and is served by the next round of whoever
 * has the role. A round takes what every producer of the partition holds: one frame, one fdatasync for all of them.
 * A failed round gives each producer its records back, in front of what it has written since, before anybody is
 * answered: so a retry lands one copy, in order. One round is under way at a time, so records of one producer never
 * overtake each other. */
#include "engine/produce_private.h"

#include "engine/consume.h"
#include "engine/fan.h"
#include "engine/housekeeping.h"
#include "engine/offsets.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/clock.h"
#include "engine/base/ranges.h"

#include <errno.h>

#define SPARE_BYTES (64 * NRD_KIB) /* a committed batch up to this size is kept for the next one */
#define RETRY_MS 1000              /* between background attempts while commits fail */

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

/* What a round does not take, for want of a claim, comes soon: nobody else may have it in mind, since an attempt to flush it may
 * have begun before it was there. Produce lock held. */
static void leave_unclaimed_locked(NrdPartition *partition, const NrdProducer *producer)
{
    nrd_produce_arm_linger_locked(partition, producer->failing_errno < 0 ? RETRY_MS : 0);
}

/* Takes what every producer holds that has made its claim: the role may be the dispatcher's. A producer of a topic that was
 * just deleted may be closed while the round has it. Produce lock held. */
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
        if (!producer->claimed && !producer->once) {
            leave_unclaimed_locked(partition, producer);
            continue;
        }
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
        round->error = nrd_offsets_before_commit(partition);
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

static void producer_committed_locked(NrdProducer *producer, uint64_t first)
{
    NrdRecordBatch *batch = g_steal_pointer(&producer->in_flight);
    if (producer->want_ranges)
        nrd_ranges_add(producer->ranges, producer->partition->number, first, first + batch->n_records - 1);
    producer->first = first;
    producer->untold_errno = 0;
    producer->failing_errno = 0;
    producer->committed = true;
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

void nrd_produce_arm_linger_locked(NrdPartition *partition, int64_t delay_ms)
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
        nrd_produce_arm_linger_locked(partition, RETRY_MS);
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

void nrd_produce_run_and_unlock(NrdPartition *partition, unsigned max_rounds)
{
    for (unsigned n = 0; wanted_locked(partition) && n < max_rounds && partition->n_entering == 0; n++)
        run_round_locked(partition);
    partition->committing = false;
    if (partition->n_entering > 0) /* to tell nobody is a system call all the same, for every commit */
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
    nrd_produce_run_and_unlock(partition, NRD_ROUNDS_OF_A_VERB);
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
    (void)!nrd_produce_claim(partition, NULL); /* what is not committed then is told as dropped */
    if (nrd_produce_enter(partition) < 0)
        return; /* closed: nothing can be committed */
    g_mutex_lock(&partition->produce_lock);
    partition->flush_wanted = true;
    nrd_produce_run_and_unlock(partition, NRD_ROUNDS_OF_A_VERB);
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

void nrd_produce_flush(NrdPartition *partition, unsigned max_rounds)
{
    int rc = nrd_produce_claim(partition, NULL);
    g_mutex_lock(&partition->produce_lock);
    partition->linger_armed = false;
    if (rc < 0)
        nrd_produce_arm_linger_locked(partition, RETRY_MS);
    partition->flush_wanted = true;
    if (partition->committing) {
        g_mutex_unlock(&partition->produce_lock);
        return;
    }
    partition->committing = true;
    nrd_produce_run_and_unlock(partition, max_rounds);
}

static void on_linger(void *user_data)
{
    nrd_produce_flush(user_data, NRD_ROUNDS_OF_A_WORKER);
}
