/* The workers: what they do with a lane, and when they do it again.
 *
 * A job is a lane that is ready, a WAL round that somebody handed over, or a checkpoint that is due. A worker that finds
 * none sleeps until the next retry or checkpoint, or without a timeout. */
#include "engine/ingress/batch_private.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"

#include <errno.h>
#include <string.h>

#define FIRST_DELAY_MS 25
#define MAX_DELAY_MS 1000
#define AWAY_DELAY_MS 5000 /* of a topic that is out of service: memory only, and a kick comes when it is well */
#define PASSES_BEFORE_MOVE 3
#define TELL_AGAIN_MS 10000
#define LEFT_TO_OTHERS 2 /* workers that one topic does not get */

/* ---- what follows ---- */

static uint64_t n_records_of(const NrdIngressBatch *batch)
{
    uint64_t n = 0;
    for (guint i = 0; i < batch->parts->len; i++)
        n += ((const NrdPart *)batch->parts->pdata[i])->n_records;
    return n;
}

/* Tells who wants to know the offsets. No lock held. */
static void tell_sinks(const NrdIngressBatch *batch)
{
    uint64_t first = batch->first;
    for (guint i = 0; i < batch->parts->len; i++) {
        const NrdPart *part = batch->parts->pdata[i];
        const NrdIngressSink *sink = &part->entry->sink;
        if (sink->committed)
            sink->committed(sink->user_data, batch->lane->partition, first, first + part->n_records - 1);
        first += part->n_records;
    }
}

/* Entries without parts are left to nrd_ingress_batch_clear, to be freed without the lock. Lock held. */
static void finish_locked(NrdDispatcher *d, NrdIngressBatch *batch, bool committed)
{
    NrdLane *lane = batch->lane;
    uint64_t first = batch->first;
    for (guint i = 0; i < batch->parts->len; i++) {
        NrdPart *part = batch->parts->pdata[i];
        if (committed && part->expected != NRD_ENTRY_OFFSET_UNKNOWN && part->expected != first) {
            lane->exact = false; /* somebody came between, without a claim: not to be believed any more */
            d->trust = MAX(d->trust, nrd_wal_next_sequence(d->options.wal));
        }
        first += part->n_records;
        NrdPending *entry = nrd_part_finish(d, lane, part);
        if (entry)
            g_ptr_array_add(batch->dead, entry);
    }
    lane->n_failed = 0;
}

static int64_t delay_of(const NrdLane *lane, NrdIngressResult result)
{
    int64_t delay_ms = FIRST_DELAY_MS << MIN(lane->n_failed - 1, 10);
    return MIN(delay_ms, result == NRD_INGRESS_AWAY ? AWAY_DELAY_MS : MAX_DELAY_MS);
}

/* Lock held. */
static void set_no_room(NrdDispatcher *d, NrdLane *lane, bool no_room)
{
    d->n_no_room += (unsigned)no_room - (unsigned)lane->no_room;
    lane->no_room = no_room;
}

static void tell_no_room(const NrdIngressBatch *batch)
{
    nrd_diag(
        NRD_LEVEL_ERROR, nrd_ingress_batch_place(batch),
        "acknowledged records wait in the ingress WAL: no space left on the disk; topics cannot be produced to as a "
        "whole until a trim, retention or the deletion of a topic has made room for them");
}

/* One line when it begins, one when it moves; not one for each pass. */
static void tell_failure(const NrdIngressBatch *batch, NrdIngressResult result, uint32_t n_failed)
{
    if (result == NRD_INGRESS_NO_ROOM) /* is told once for all */
        return;
    if (n_failed != 1 || result == NRD_INGRESS_POISONED) /* that has its own line */
        return;
    nrd_diag(NRD_LEVEL_WARNING, nrd_ingress_batch_place(batch), "acknowledged records wait in the ingress WAL: %s",
             result == NRD_INGRESS_AWAY ? "the topic is out of service" : "their commit failed; it is tried again");
}

static bool wants_move(const NrdLane *lane, NrdIngressResult result)
{
    return result == NRD_INGRESS_POISONED || (result == NRD_INGRESS_FAILED && lane->n_failed + 1 >= PASSES_BEFORE_MOVE);
}

/* The lock is taken, and kept until the lane is somebody else's. */
static void fail_and_lock(NrdDispatcher *d, NrdIngressBatch *batch, NrdIngressResult result)
{
    NrdLane *lane = batch->lane;
    const NrdIngressOps *ops = &d->options.ops;
    /* only this worker counts the lane's failures */
    bool has_sibling = wants_move(lane, result) && ops->sibling(ops->user_data, &batch->target, &batch->moved_to);
    nrd_counter_add(NRD_COUNTER_INGRESS_COMMIT, 1);
    tell_failure(batch, result, lane->n_failed + 1);
    pthread_mutex_lock(&d->lock);
    nrd_ingress_batch_put_back_locked(batch);
    lane->n_failed++;
    batch->tell_no_room = result == NRD_INGRESS_NO_ROOM && d->n_no_room == 0;
    batch->make_room = result == NRD_INGRESS_NO_ROOM;
    set_no_room(d, lane, result == NRD_INGRESS_NO_ROOM);
    int64_t now_ms = nrd_clock_mono_ms();
    batch->tell_move = has_sibling && nrd_lane_move(d, lane, batch->moved_to, now_ms) &&
                       (d->told_ms == 0 || now_ms - d->told_ms > TELL_AGAIN_MS);
    if (batch->tell_move)
        d->told_ms = now_ms;
    lane->retry_ms = now_ms + delay_of(lane, result);
    if (!lane->parts.head) /* all are somewhere else: what comes next begins anew */
        lane->n_failed = 0;
    nrd_lane_set_state(d, lane, lane->parts.head ? NRD_LANE_WAITING : NRD_LANE_IDLE);
}

/* The offset that an entry of an earlier run names may not be the one that its part gets now: what was before it may have
 * been lost with the crash. */
static void look_no_more_and_lock(NrdDispatcher *d, NrdIngressBatch *batch)
{
    pthread_mutex_lock(&d->lock);
    ((NrdPart *)batch->parts->pdata[0])->verify = false;
    nrd_ingress_batch_put_back_locked(batch);
    batch->lane->exact = false;
    nrd_lane_set_state(d, batch->lane, NRD_LANE_READY);
}

static void succeed_and_lock(NrdDispatcher *d, NrdIngressBatch *batch, bool committed)
{
    NrdLane *lane = batch->lane;
    if (committed && !batch->damaged)
        tell_sinks(batch);
    if (!committed)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_ingress_batch_place(batch),
                 "%" G_GUINT64_FORMAT " record%s of the deleted incarnation %s discarded", (guint64)n_records_of(batch),
                 nrd_plural(n_records_of(batch)), lane->id);
    if (lane->n_failed > 0 && committed)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_ingress_batch_place(batch), "records in the ingress WAL are committed again");
    if (!batch->damaged)
        nrd_counter_add(committed ? NRD_COUNTER_INGRESS_DISPATCHED : NRD_COUNTER_INGRESS_DISCARDED,
                        n_records_of(batch));
    pthread_mutex_lock(&d->lock);
    lane->exact = lane->exact && !batch->damaged; /* what is behind it goes where it would have gone */
    finish_locked(d, batch, committed && !batch->damaged);
    set_no_room(d, lane, false);
    nrd_lane_set_state(d, lane, lane->parts.head ? NRD_LANE_READY : NRD_LANE_IDLE);
}

/* Sees to it that it is known, and will be written down, where the lane's parts go, in the order in which they may. Lock
 * held, given up meanwhile, but not after the order is settled. */
static void name_locked(NrdDispatcher *d, NrdLane *lane)
{
    const NrdIngressOps *ops = &d->options.ops;
    NrdIngressTarget target = { lane->topic, lane->id, lane->partition }; /* nobody frees a lane that runs */
    bool cold = !lane->exact && lane->n_claims == 0 && lane->parts.head;
    if (cold) {
        pthread_mutex_unlock(&d->lock);
        ops->warm(ops->user_data, &target);
        pthread_mutex_lock(&d->lock);
    }
    nrd_order_settle(d, lane);
    if (!lane->exact)
        nrd_lane_name(d, lane);
}

/* Lock held, given up meanwhile. */
static void run_lane_locked(NrdDispatcher *d, NrdLane *lane)
{
    NrdIngressBatch batch;
    nrd_lane_set_state(d, lane, NRD_LANE_RUNNING);
    name_locked(d, lane);
    nrd_ingress_batch_take_locked(d, lane, &batch);
    if (batch.parts->len > 0) {
        pthread_mutex_unlock(&d->lock);
        NrdIngressResult result = nrd_ingress_batch_pass(d, &batch);
        if (batch.again)
            look_no_more_and_lock(d, &batch);
        else if (result == NRD_INGRESS_DONE || result == NRD_INGRESS_GONE)
            succeed_and_lock(d, &batch, result == NRD_INGRESS_DONE);
        else
            fail_and_lock(d, &batch, result);
    } else {
        nrd_lane_set_state(d, lane, NRD_LANE_IDLE);
    }
    lane->verifying = false;
    nrd_lane_put(d, lane); /* another worker's from here on */
    pthread_cond_broadcast(&d->change);
    pthread_mutex_unlock(&d->lock);
    if (batch.tell_move)
        nrd_diag(NRD_LEVEL_WARNING, nrd_ingress_batch_place(&batch),
                 "records in the ingress WAL go to partition %05u instead", batch.moved_to);
    if (batch.tell_no_room)
        tell_no_room(&batch);
    if (batch.make_room)
        d->options.make_room(d->options.user_data);
    nrd_ingress_batch_clear(&batch);
    pthread_mutex_lock(&d->lock);
}

/* ---- workers ---- */

static void run_checkpoint_locked(NrdDispatcher *d)
{
    d->checkpointing = true;
    d->checkpoint_at = 0;
    pthread_mutex_unlock(&d->lock);
    int rc = d->options.checkpoint(d->options.user_data, 0);
    pthread_mutex_lock(&d->lock);
    d->checkpointing = false;
    if (rc < 0 && d->checkpoint_at == 0) /* told by who wrote it */
        d->checkpoint_at = nrd_clock_mono_ms() + MAX(d->options.checkpoint_ms, MAX_DELAY_MS);
}

/* Lanes whose time has come are ready. Returns when to look again; 0: never. Lock held. */
static int64_t wake_lanes_locked(NrdDispatcher *d, int64_t now_ms)
{
    int64_t next_ms = d->checkpointing ? 0 : d->checkpoint_at;
    for (GList *l = d->waiting.head; l;) {
        NrdLane *lane = l->data;
        l = l->next;
        if (lane->retry_ms <= now_ms)
            nrd_lane_set_state(d, lane, NRD_LANE_READY);
        else
            next_ms = next_ms == 0 ? lane->retry_ms : MIN(next_ms, lane->retry_ms);
    }
    return next_ms;
}

static void sleep_locked(NrdDispatcher *d, int64_t now_ms, int64_t until_ms)
{
    d->n_idle++;
    if (until_ms == 0) {
        pthread_cond_wait(&d->work, &d->lock);
    } else {
        struct timespec until = nrd_cond_end(MAX(until_ms - now_ms, 1));
        pthread_cond_timedwait(&d->work, &d->lock, &until);
    }
    d->n_idle--;
}

/* A topic whose partitions hang in the disk, or wait for each other to open, leaves workers to the others. Lock held. */
static NrdLane *next_lane_locked(NrdDispatcher *d)
{
    unsigned limit = d->options.n_workers > LEFT_TO_OTHERS ? d->options.n_workers - LEFT_TO_OTHERS : 1;
    for (GList *l = d->ready.head; l; l = l->next) {
        NrdLane *lane = l->data;
        unsigned n = 0;
        if (lane->n_holders > 0)
            continue;
        for (GList *r = d->running.head; r; r = r->next)
            n += strcmp(((const NrdLane *)r->data)->id, lane->id) == 0;
        if (n < limit)
            return lane;
    }
    return NULL;
}

static void run_wal_locked(NrdDispatcher *d)
{
    d->wal_due = false;
    pthread_mutex_unlock(&d->lock);
    nrd_wal_write_on(d->options.wal);
    pthread_mutex_lock(&d->lock);
}

static void *worker(void *data)
{
    NrdDispatcher *d = data;
    pthread_mutex_lock(&d->lock);
    while (!d->stopping || d->wal_due) {
        if (!d->started) {
            sleep_locked(d, 0, 0);
            continue;
        }
        nrd_dispatcher_take_in_locked(d);
        int64_t now_ms = nrd_clock_mono_ms();
        int64_t next_ms = wake_lanes_locked(d, now_ms);
        NrdLane *lane = next_lane_locked(d);
        if (d->wal_due)
            run_wal_locked(d);
        else if (d->checkpoint_at > 0 && d->checkpoint_at <= now_ms && !d->checkpointing)
            run_checkpoint_locked(d);
        else if (lane)
            run_lane_locked(d, lane);
        else
            sleep_locked(d, now_ms, next_ms);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool nrd_dispatcher_add_worker_locked(NrdDispatcher *d)
{
    pthread_t thread;
    if (d->workers->len >= d->options.n_workers || pthread_create(&thread, NULL, worker, d) != 0)
        return false;
    g_array_append_val(d->workers, thread);
    return true;
}

/* Without another worker, one of those that are there comes to it. */
void nrd_dispatcher_signal_locked(NrdDispatcher *d)
{
    if (!d->started || d->stopping)
        return;
    if (d->ready.length + d->wal_due <= d->n_idle || !nrd_dispatcher_add_worker_locked(d))
        pthread_cond_signal(&d->work);
}

void nrd_dispatcher_start(NrdDispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->started = true;
    for (guint i = 0; i < MIN(d->ready.length, d->options.n_workers); i++)
        nrd_dispatcher_signal_locked(d);
    pthread_cond_signal(&d->work); /* the first has waited for this */
    pthread_mutex_unlock(&d->lock);
}

bool nrd_dispatcher_write_wal(NrdDispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    bool anybody = d->started && d->workers->len > 0;
    d->wal_due = anybody;
    nrd_dispatcher_signal_locked(d);
    pthread_mutex_unlock(&d->lock);
    return anybody;
}

void nrd_dispatcher_kick(NrdDispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    while (d->waiting.head)
        nrd_lane_set_state(d, d->waiting.head->data, NRD_LANE_READY);
    pthread_mutex_unlock(&d->lock);
}

bool nrd_dispatcher_drain(NrdDispatcher *d, int64_t ms)
{
    struct timespec until = nrd_cond_end(ms);
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    nrd_dispatcher_take_in_locked(d);
    while (d->started && d->all.head && rc == 0)
        rc = pthread_cond_timedwait(&d->change, &d->lock, &until);
    bool empty = !d->all.head;
    pthread_mutex_unlock(&d->lock);
    return empty;
}

void nrd_dispatcher_stop(NrdDispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_cond_broadcast(&d->work);
    pthread_cond_broadcast(&d->change);
    pthread_mutex_unlock(&d->lock);
    for (guint i = 0; i < d->workers->len; i++)
        pthread_join(g_array_index(d->workers, pthread_t, i), NULL);
    g_array_set_size(d->workers, 0);
}
