/* Leases for those who ask, and for those who wait.
 *
 * A take leases under the queue lock, reads the record without it, and hands over a copy. Who finds nothing stands in
 * line (first come, first served); a wake-up hands each record to exactly one of them. One thread at a time hands out:
 * a wake-up that finds another one at work leaves word (wake_again), so a reply that fails and gives its lease back
 * cannot recurse, and a commit never wakes more readers than it has records for.
 *
 * The fast path of a commit is one load of n_waiting. It is raised before the line is joined and the high watermark
 * looked at once more, and the commit looks at it after the high watermark moved (both sequentially consistent): one of
 * the two sees the other. */
#include "engine/engine_private.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#include <errno.h>

#define SMALL_BYTES 2048 /* records up to this size are copied to the stack */

enum {
    STATE_NEW,       /* not entered take yet */
    STATE_CANCELLED, /* ... and never will wait */
    STATE_PARKED,    /* in the line */
    STATE_DONE,      /* has been or is being called back, or was cancelled */
};

static void on_lease_over(void *user_data);
static void on_wait_over(void *user_data);

static void limits_from(const NrdTopicConfig *config, NrdQueueLimits *ret_limits)
{
    *ret_limits = (NrdQueueLimits){
        .visibility_timeout_ms = config->visibility_timeout_ms,
        .max_in_flight = (uint32_t)config->max_in_flight,
        .max_acked_ahead = (uint32_t)config->max_acked_ahead,
    };
}

void nrd_consume_init(NrdPartition *partition)
{
    pthread_mutex_init(&partition->queue_lock, NULL);
    pthread_mutex_init(&partition->read_lock, NULL);
    partition->lease_timer_ms = INT64_MAX;
    g_queue_init(&partition->waiters);
    g_queue_init(&partition->watches);
    nrd_timer_init(&partition->lease_timer, on_lease_over, partition, true); /* who waits is served: a read */
    nrd_timer_init(&partition->wait_timer, on_wait_over, partition, false);
}

void nrd_consume_clear(NrdPartition *partition)
{
    g_assert(g_queue_is_empty(&partition->waiters) && partition->queue == NULL);
    pthread_mutex_destroy(&partition->read_lock);
    pthread_mutex_destroy(&partition->queue_lock);
}

void nrd_consume_open(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdQueueLimits limits;
    limits_from(config, &limits);
    pthread_mutex_lock(&partition->queue_lock);
    partition->queue = nrd_queue_new(&limits);
    partition->lease_timer_ms = INT64_MAX;
    pthread_mutex_unlock(&partition->queue_lock);
}

void nrd_consume_close(NrdPartition *partition)
{
    pthread_mutex_lock(&partition->queue_lock);
    NrdQueue *queue = g_steal_pointer(&partition->queue);
    pthread_mutex_unlock(&partition->queue_lock);
    pthread_mutex_lock(&partition->read_lock);
    NrdLogCursor *cursor = g_steal_pointer(&partition->cursor);
    pthread_mutex_unlock(&partition->read_lock);
    nrd_queue_free(queue);
    nrd_log_cursor_free(cursor);
}

void nrd_consume_rest(NrdPartition *partition)
{
    pthread_mutex_lock(&partition->read_lock);
    if (partition->cursor && !partition->cursor_used)
        nrd_log_cursor_reset(partition->cursor);
    partition->cursor_used = false;
    pthread_mutex_unlock(&partition->read_lock);
}

void nrd_consume_configure(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdQueueLimits limits;
    limits_from(config, &limits);
    pthread_mutex_lock(&partition->queue_lock);
    nrd_queue_configure(partition->queue, &limits);
    pthread_mutex_unlock(&partition->queue_lock);
}

/* ---- leasing ---- */

/* Sees to it that the lease that ends first is noticed. Queue lock held. */
static void arm_lease_timer_locked(NrdPartition *partition)
{
    int64_t next_ms = nrd_queue_next_expiry_ms(partition->queue);
    if (next_ms >= partition->lease_timer_ms)
        return;
    partition->lease_timer_ms = next_ms;
    nrd_timer_set(partition->topic->engine->timers, &partition->lease_timer, next_ms);
}

static bool lease_locked(NrdPartition *partition, const NrdWaiter *waiter, NrdLease *ret_lease)
{
    NrdLog *log = atomic_load(&partition->log);
    bool found = false;
    if (waiter->sure && !nrd_queue_sure(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log)))
        return false;
    nrd_queue_take(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log), nrd_clock_mono_ms(), nrd_random_u64(),
                   ret_lease, &found);
    if (found)
        arm_lease_timer_locked(partition);
    return found;
}

static void leave_line_locked(NrdPartition *partition, NrdWaiter *waiter)
{
    g_queue_unlink(&partition->waiters, &waiter->link);
    atomic_fetch_sub(&partition->n_waiting, 1);
    waiter->state = STATE_DONE;
}

static void join_line_locked(NrdPartition *partition, NrdWaiter *waiter)
{
    waiter->state = STATE_PARKED;
    waiter->link = (GList){ .data = waiter };
    g_queue_push_tail_link(&partition->waiters, &waiter->link);
    if (waiter->deadline_ms != INT64_MAX)
        nrd_timer_set_earlier(partition->topic->engine->timers, &partition->wait_timer, waiter->deadline_ms);
}

/* A lease for this waiter at once, or a place in the line (then *ret_found is false and *ret_error 0), or an error. */
static void lease_or_park_locked(NrdPartition *partition, NrdWaiter *waiter, NrdLease *ret_lease, bool *ret_found,
                                 int *ret_error)
{
    *ret_found = false;
    *ret_error = nrd_partition_usable(partition);
    if (*ret_error == 0 && atomic_load(&partition->topic->engine->stopping))
        *ret_error = -ENODEV;
    if (*ret_error < 0)
        return;
    atomic_fetch_add(&partition->n_waiting, 1); /* before the look at the high watermark: see the top */
    *ret_found = lease_locked(partition, waiter, ret_lease);
    if (!*ret_found && waiter->deadline_ms != 0) {
        join_line_locked(partition, waiter);
        return;
    }
    atomic_fetch_sub(&partition->n_waiting, 1);
    if (!*ret_found)
        *ret_error = -EAGAIN;
}

/* ---- handing over ---- */

/* The bytes of one record, copied from the cursor so that no lock is held while they are handed over. */
typedef struct Copy {
    NrdDelivery delivery;
    uint8_t *large;
    uint8_t small[SMALL_BYTES];
} Copy;

static int copy_record(Copy *copy, const NrdRecordView *view)
{
    uint8_t *bytes = copy->small;
    copy->large = NULL;
    if (view->key_size + view->payload_size > SMALL_BYTES) {
        copy->large = g_try_malloc(view->key_size + view->payload_size);
        if (!copy->large)
            return -ENOMEM;
        bytes = copy->large;
    }
    if (view->key_size > 0)
        memcpy(bytes, view->key, view->key_size);
    if (view->payload_size > 0)
        memcpy(bytes + view->key_size, view->payload, view->payload_size);
    copy->delivery.timestamp_ms = view->commit_ms;
    copy->delivery.key = bytes;
    copy->delivery.key_size = view->key_size;
    copy->delivery.payload = bytes + view->key_size;
    copy->delivery.payload_size = view->payload_size;
    return 0;
}

static int read_record(NrdPartition *partition, NrdLease lease, Copy *copy, uint64_t *ret_next_offset)
{
    NrdRecordView view;
    pthread_mutex_lock(&partition->read_lock);
    if (!partition->cursor)
        partition->cursor = nrd_log_cursor_new(atomic_load(&partition->log));
    partition->cursor_used = true;
    int rc = nrd_log_cursor_read(partition->cursor, lease.offset, &view, ret_next_offset);
    if (rc == 0)
        rc = copy_record(copy, &view);
    if (rc == 0 && lease.offset + 1 == nrd_log_hwm(atomic_load(&partition->log)))
        nrd_log_cursor_rest(partition->cursor); /* at the tail: it may be idle from now on */
    pthread_mutex_unlock(&partition->read_lock);
    copy->delivery.partition = partition->number;
    copy->delivery.offset = lease.offset;
    copy->delivery.nonce = lease.nonce;
    return rc;
}

static void skip_lost(NrdPartition *partition, NrdLease lease, uint64_t next_offset)
{
    pthread_mutex_lock(&partition->queue_lock);
    uint64_t skipped = nrd_queue_skip(partition->queue, lease, next_offset);
    if (skipped > 0)
        nrd_offsets_touch_locked(partition);
    pthread_mutex_unlock(&partition->queue_lock);
    if (skipped == 0)
        return;
    nrd_counter_add(NRD_COUNTER_CORRUPT_SKIPPED, skipped);
    NrdPlace place = nrd_partition_place(partition);
    place.offset = (int64_t)lease.offset;
    nrd_diag(NRD_LEVEL_WARNING, place, "skipped %" G_GUINT64_FORMAT " records that can never be read", skipped);
}

static void give_back(NrdPartition *partition, NrdLease lease)
{
    pthread_mutex_lock(&partition->queue_lock);
    /* -ESTALE: the lease has lapsed meanwhile, which is the same to us. */
    (void)!nrd_queue_nack(partition->queue, lease.offset, lease.nonce, nrd_clock_mono_ms());
    pthread_mutex_unlock(&partition->queue_lock);
}

/* Reads the leased record and calls back; passes over what can never be read. Returns false when the waiter is in the
 * line again instead. No lock held. */
static bool serve(NrdPartition *partition, NrdWaiter *waiter, NrdLease lease)
{
    for (;;) {
        Copy copy;
        uint64_t next_offset = 0;
        bool found = false;
        int rc = read_record(partition, lease, &copy, &next_offset);
        if (rc == 0) {
            waiter->deliver(waiter->user_data, 0, &copy.delivery);
            g_free(copy.large);
            return true;
        }
        if (rc == -EBADMSG) {
            skip_lost(partition, lease, next_offset);
        } else if (rc != -ENOENT) { /* -ENOENT: retention was faster; the next take starts at the new oldest */
            give_back(partition, lease);
            waiter->deliver(waiter->user_data, rc == -ESHUTDOWN ? nrd_partition_closed_error(partition) : rc, NULL);
            nrd_consume_wake(partition); /* somebody may have joined the line while the record was leased */
            return true;
        }
        pthread_mutex_lock(&partition->queue_lock);
        waiter->state = STATE_DONE;
        lease_or_park_locked(partition, waiter, &lease, &found, &rc);
        pthread_mutex_unlock(&partition->queue_lock);
        if (rc < 0) {
            waiter->deliver(waiter->user_data, rc, NULL);
            return true;
        }
        if (!found)
            return false;
    }
}

void nrd_waiter_init(NrdWaiter *waiter)
{
    *waiter = (NrdWaiter){ .state = STATE_NEW };
}

static int64_t deadline_after(int64_t wait_ms)
{
    if (wait_ms < 0)
        return INT64_MAX;
    return wait_ms == 0 ? 0 : nrd_clock_mono_ms() + wait_ms;
}

void nrd_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                        void *user_data)
{
    NrdLease lease;
    bool found = false;
    int rc = 0;
    pthread_mutex_lock(&partition->queue_lock);
    bool cancelled = waiter->state == STATE_CANCELLED;
    waiter->deliver = deliver;
    waiter->user_data = user_data;
    waiter->deadline_ms = deadline_after(wait_ms);
    waiter->state = STATE_DONE;
    if (cancelled)
        rc = -EINTR;
    else
        lease_or_park_locked(partition, waiter, &lease, &found, &rc);
    pthread_mutex_unlock(&partition->queue_lock);
    if (rc < 0)
        deliver(user_data, rc, NULL);
    else if (found)
        (void)serve(partition, waiter, lease);
}

void nrd_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    NrdWaiter waiter;
    nrd_waiter_init(&waiter);
    waiter.sure = true;
    nrd_partition_take(partition, &waiter, 0, deliver, user_data);
}

bool nrd_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter)
{
    pthread_mutex_lock(&partition->queue_lock);
    bool parked = waiter->state == STATE_PARKED;
    if (parked)
        leave_line_locked(partition, waiter);
    else if (waiter->state == STATE_NEW)
        waiter->state = STATE_CANCELLED;
    pthread_mutex_unlock(&partition->queue_lock);
    return parked;
}

/* ---- waking ---- */

/* One record to one waiter. Queue lock held on entry and exit, not between. Returns whether there was work. */
static bool hand_out_locked(NrdPartition *partition)
{
    NrdLease lease;
    if (g_queue_is_empty(&partition->waiters) || nrd_partition_usable(partition) < 0)
        return false;
    NrdWaiter *waiter = partition->waiters.head->data;
    if (!lease_locked(partition, waiter, &lease))
        return false;
    leave_line_locked(partition, waiter);
    pthread_mutex_unlock(&partition->queue_lock);
    (void)serve(partition, waiter, lease);
    pthread_mutex_lock(&partition->queue_lock);
    return true;
}

/* Fires every watch. Queue lock held on entry and exit, not between: a watch is out of the list, hence its own again,
 * before it is called. */
static void fire_watches_locked(NrdPartition *partition)
{
    while (!g_queue_is_empty(&partition->watches)) {
        NrdWatch *watch = partition->watches.head->data;
        void (*notify)(void *) = watch->notify;
        void *user_data = watch->user_data;
        g_queue_unlink(&partition->watches, &watch->link);
        watch->set = false;
        atomic_fetch_sub(&partition->n_waiting, 1);
        pthread_mutex_unlock(&partition->queue_lock);
        notify(user_data);
        pthread_mutex_lock(&partition->queue_lock);
    }
}

static bool deliverable_locked(NrdPartition *partition)
{
    NrdLog *log = atomic_load(&partition->log);
    return log && partition->queue && nrd_queue_deliverable(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log));
}

void nrd_consume_wake(NrdPartition *partition)
{
    if (atomic_load(&partition->n_waiting) == 0)
        return;
    pthread_mutex_lock(&partition->queue_lock);
    if (partition->waking) {
        partition->wake_again = true;
        pthread_mutex_unlock(&partition->queue_lock);
        return;
    }
    partition->waking = true;
    do {
        partition->wake_again = false;
        while (hand_out_locked(partition))
            ;
        if (deliverable_locked(partition))
            fire_watches_locked(partition);
    } while (partition->wake_again);
    partition->waking = false;
    pthread_mutex_unlock(&partition->queue_lock);
}

void nrd_consume_interrupt(NrdPartition *partition, int error)
{
    pthread_mutex_lock(&partition->queue_lock);
    while (!g_queue_is_empty(&partition->waiters)) {
        NrdWaiter *waiter = partition->waiters.head->data;
        leave_line_locked(partition, waiter);
        pthread_mutex_unlock(&partition->queue_lock);
        waiter->deliver(waiter->user_data, error, NULL);
        pthread_mutex_lock(&partition->queue_lock);
    }
    fire_watches_locked(partition);
    pthread_mutex_unlock(&partition->queue_lock);
}

static void on_lease_over(void *user_data)
{
    NrdPartition *partition = user_data;
    pthread_mutex_lock(&partition->queue_lock);
    partition->lease_timer_ms = INT64_MAX;
    uint32_t n_expired = nrd_queue_expire(partition->queue, nrd_clock_mono_ms());
    arm_lease_timer_locked(partition);
    pthread_mutex_unlock(&partition->queue_lock);
    if (n_expired == 0)
        return;
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, n_expired);
    nrd_consume_wake(partition);
}

/* Takes one waiter whose time is over out of the line; the earliest deadline of the others goes to *next_ms. */
static NrdWaiter *timed_out_locked(NrdPartition *partition, int64_t now_ms, int64_t *next_ms)
{
    for (GList *l = partition->waiters.head; l; l = l->next) {
        NrdWaiter *waiter = l->data;
        if (waiter->deadline_ms <= now_ms) {
            leave_line_locked(partition, waiter);
            return waiter;
        }
        *next_ms = MIN(*next_ms, waiter->deadline_ms);
    }
    return NULL;
}

static void on_wait_over(void *user_data)
{
    NrdPartition *partition = user_data;
    int64_t next_ms = INT64_MAX;
    NrdWaiter *waiter;
    pthread_mutex_lock(&partition->queue_lock);
    while ((waiter = timed_out_locked(partition, nrd_clock_mono_ms(), &next_ms))) {
        pthread_mutex_unlock(&partition->queue_lock);
        waiter->deliver(waiter->user_data, -ETIMEDOUT, NULL);
        pthread_mutex_lock(&partition->queue_lock);
        next_ms = INT64_MAX;
    }
    if (next_ms != INT64_MAX)
        nrd_timer_set_earlier(partition->topic->engine->timers, &partition->wait_timer, next_ms);
    pthread_mutex_unlock(&partition->queue_lock);
}

/* ---- settling ---- */

int nrd_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    int rc = nrd_partition_usable(partition);
    if (rc < 0)
        return rc;
    if (partition->topic->engine->read_only)
        return -EROFS;
    int64_t now_ms = nrd_clock_mono_ms();
    pthread_mutex_lock(&partition->queue_lock);
    switch (verb) {
    case NRD_VERB_ACK:
        rc = nrd_queue_ack(partition->queue, offset, nonce, now_ms);
        if (rc == 0)
            nrd_offsets_touch_locked(partition);
        break;
    case NRD_VERB_NACK:
        rc = nrd_queue_nack(partition->queue, offset, nonce, now_ms);
        break;
    case NRD_VERB_EXTEND:
        rc = nrd_queue_extend(partition->queue, offset, nonce, now_ms);
        arm_lease_timer_locked(partition);
        break;
    }
    pthread_mutex_unlock(&partition->queue_lock);
    if (rc == 0 && verb != NRD_VERB_EXTEND)
        nrd_consume_wake(partition);
    return rc;
}

void nrd_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data)
{
    int rc = nrd_partition_usable(partition);
    if (rc == 0)
        rc = nrd_offsets_sync(partition, false);
    done(user_data, rc);
}

/* Where a seek goes, bounded to what is retained: the offset itself must not lie above the high watermark. */
static int seek_target(NrdLog *log, NrdSeek to, uint64_t offset, uint64_t *ret_target)
{
    uint64_t hwm = nrd_log_hwm(log);
    uint64_t oldest = nrd_log_oldest(log);
    if (to == NRD_SEEK_OFFSET && offset > hwm)
        return -EINVAL;
    *ret_target = to == NRD_SEEK_START ? oldest : to == NRD_SEEK_END ? hwm : MAX(offset, oldest);
    return 0;
}

static int seek_pinned(NrdPartition *partition, NrdSeek to, uint64_t offset)
{
    uint64_t target = 0;
    int rc = seek_target(atomic_load(&partition->log), to, offset, &target);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&partition->queue_lock);
    nrd_queue_seek(partition->queue, target);
    nrd_offsets_touch_locked(partition);
    pthread_mutex_unlock(&partition->queue_lock);
    /* Recovery takes the larger frontier of the two files: after a step back both have to say so before it is true. */
    rc = nrd_offsets_sync(partition, true);
    nrd_consume_wake(partition);
    return rc;
}

int nrd_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset)
{
    int rc = partition->topic->engine->read_only ? -EROFS : nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    rc = seek_pinned(partition, to, offset);
    nrd_partition_unpin(partition);
    return rc;
}

/* ---- readability ---- */

bool nrd_partition_readable(NrdPartition *partition)
{
    if (nrd_partition_usable(partition) < 0)
        return true;
    pthread_mutex_lock(&partition->queue_lock);
    bool readable = deliverable_locked(partition);
    pthread_mutex_unlock(&partition->queue_lock);
    return readable;
}

void nrd_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    pthread_mutex_lock(&partition->queue_lock);
    watch->notify = notify;
    watch->user_data = user_data;
    if (!watch->set) {
        watch->set = true;
        watch->link = (GList){ .data = watch };
        g_queue_push_tail_link(&partition->watches, &watch->link);
        atomic_fetch_add(&partition->n_waiting, 1);
    }
    pthread_mutex_unlock(&partition->queue_lock);
}

bool nrd_watch_clear(NrdPartition *partition, NrdWatch *watch)
{
    pthread_mutex_lock(&partition->queue_lock);
    bool was_set = watch->set;
    if (was_set) {
        g_queue_unlink(&partition->watches, &watch->link);
        watch->set = false;
        atomic_fetch_sub(&partition->n_waiting, 1);
    }
    pthread_mutex_unlock(&partition->queue_lock);
    return was_set;
}
