/* Leases of one partition: taking one, and reading what was leased. A take leases under the queue lock, reads the record
 * without it, and hands over a copy. Who waits stands in line.h; taking many at a time in consume_batch.c, settling in
 * settle.c. */
#include "engine/consume.h"
#include "engine/offsets.h"
#include "engine/partition.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#include <errno.h>

#define SMALL_BYTES 2048 /* records up to this size are copied to the stack */

#define FAILING_MS 1000

static void on_lease_over(void *user_data);
static void on_retry(void *user_data);

static void limits_from(const NrdTopicConfig *config, NrdQueueLimits *ret_limits)
{
    *ret_limits = (NrdQueueLimits){
        .visibility_timeout_ms = config->visibility_timeout_ms,
        .max_in_flight = (uint32_t)config->max_in_flight,
        .max_acked_ahead = (uint32_t)config->max_acked_ahead,
    };
}

/* ---- the line's source ---- */

static bool line_lease(void *owner, bool sure, NrdPartition *only, NrdPartition **ret_partition, NrdLease *ret_lease)
{
    *ret_partition = owner;
    return nrd_consume_lease(owner, sure, ret_lease);
}

static bool line_deliverable(void *owner, NrdPartition *only)
{
    return nrd_consume_deliverable(owner);
}

int nrd_consume_error(NrdPartition *partition)
{
    int rc = nrd_partition_usable(partition);
    return rc == 0 && atomic_load(&partition->topic->engine->stopping) ? -ENODEV : rc;
}

static bool line_any_well(void *owner, NrdPartition *but)
{
    return but != owner;
}

static int line_error(void *owner)
{
    return nrd_consume_error(owner);
}

static const NrdLineSource line_source = { line_lease, line_deliverable, line_any_well, line_error };

void nrd_consume_init(NrdPartition *partition)
{
    g_mutex_init(&partition->queue_lock);
    g_mutex_init(&partition->read_lock);
    partition->lease_timer_ms = INT64_MAX;
    nrd_timer_init(&partition->lease_timer, on_lease_over, partition, true); /* who waits is served: a read */
    nrd_timer_init(&partition->retry_timer, on_retry, partition, true);
    nrd_line_init(&partition->line, &line_source, partition, partition->topic->engine->timers);
}

void nrd_consume_clear(NrdPartition *partition)
{
    g_assert(partition->queue == NULL);
    nrd_line_clear(&partition->line);
    g_mutex_clear(&partition->read_lock);
    g_mutex_clear(&partition->queue_lock);
}

void nrd_consume_open(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdQueueLimits limits;
    limits_from(config, &limits);
    g_mutex_lock(&partition->queue_lock);
    partition->queue = nrd_queue_new(&limits);
    partition->lease_timer_ms = INT64_MAX;
    g_mutex_unlock(&partition->queue_lock);
}

void nrd_consume_close(NrdPartition *partition)
{
    g_mutex_lock(&partition->queue_lock);
    NrdQueue *queue = g_steal_pointer(&partition->queue);
    g_mutex_unlock(&partition->queue_lock);
    g_mutex_lock(&partition->read_lock);
    NrdLogCursor *cursor = g_steal_pointer(&partition->cursor);
    g_mutex_unlock(&partition->read_lock);
    nrd_queue_free(queue);
    nrd_log_cursor_free(cursor);
}

void nrd_consume_rest(NrdPartition *partition)
{
    g_mutex_lock(&partition->read_lock);
    if (partition->cursor && !partition->cursor_used) {
        nrd_log_cursor_reset(partition->cursor);
        atomic_store(&partition->cursor_holds, false);
    }
    partition->cursor_used = false;
    g_mutex_unlock(&partition->read_lock);
}

void nrd_consume_configure(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdQueueLimits limits;
    limits_from(config, &limits);
    g_mutex_lock(&partition->queue_lock);
    nrd_queue_configure(partition->queue, &limits);
    g_mutex_unlock(&partition->queue_lock);
}

/* ---- leasing ---- */

void nrd_consume_arm_locked(NrdPartition *partition)
{
    int64_t next_ms = nrd_queue_next_expiry_ms(partition->queue);
    if (next_ms >= partition->lease_timer_ms)
        return;
    partition->lease_timer_ms = next_ms;
    nrd_timer_set(partition->topic->engine->timers, &partition->lease_timer, next_ms);
}

bool nrd_consume_lease(NrdPartition *partition, bool sure, NrdLease *ret_lease)
{
    NrdLog *log = atomic_load(&partition->log);
    bool found = false;
    g_mutex_lock(&partition->queue_lock);
    if (!sure || nrd_queue_sure(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log)))
        nrd_queue_take(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log), nrd_clock_mono_ms(), nrd_random_u64(),
                       ret_lease, &found);
    if (found)
        nrd_consume_arm_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    return found;
}

bool nrd_consume_deliverable(NrdPartition *partition)
{
    NrdLog *log = atomic_load(&partition->log);
    g_mutex_lock(&partition->queue_lock);
    bool there =
        log && partition->queue && nrd_queue_deliverable(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log));
    g_mutex_unlock(&partition->queue_lock);
    return there;
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

NrdLogCursor *nrd_consume_cursor_locked(NrdPartition *partition)
{
    if (!partition->cursor)
        partition->cursor = nrd_log_cursor_new(atomic_load(&partition->log));
    partition->cursor_used = true;
    return partition->cursor;
}

void nrd_consume_cursor_done_locked(NrdPartition *partition, uint64_t end_offset)
{
    bool at_tail = end_offset == nrd_log_hwm(atomic_load(&partition->log));
    if (at_tail)
        nrd_log_cursor_rest(partition->cursor); /* it may be idle from now on */
    atomic_store(&partition->cursor_holds, !at_tail);
}

static int read_record(NrdPartition *partition, NrdLease lease, Copy *copy, uint64_t *ret_next_offset)
{
    NrdRecordView view;
    g_mutex_lock(&partition->read_lock);
    int rc = nrd_log_cursor_read(nrd_consume_cursor_locked(partition), lease.offset, &view, ret_next_offset);
    if (rc == 0)
        rc = copy_record(copy, &view);
    nrd_consume_cursor_done_locked(partition, rc == 0 ? lease.offset + 1 : 0);
    g_mutex_unlock(&partition->read_lock);
    if (rc == 0 && atomic_load(&partition->failing_until_ms) != 0)
        atomic_store(&partition->failing_until_ms, 0);
    copy->delivery.partition = partition->number;
    copy->delivery.offset = lease.offset;
    copy->delivery.nonce = lease.nonce;
    return rc;
}

void nrd_consume_skip(NrdPartition *partition, NrdLease lease, uint64_t next_offset)
{
    g_mutex_lock(&partition->queue_lock);
    uint64_t skipped = nrd_queue_skip(partition->queue, lease, next_offset);
    if (skipped > 0)
        nrd_offsets_touch_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    if (skipped == 0)
        return;
    nrd_counter_add(NRD_COUNTER_CORRUPT_SKIPPED, skipped);
    NrdPlace place = nrd_partition_place(partition);
    place.offset = (int64_t)lease.offset;
    nrd_diag(NRD_LEVEL_WARNING, place, "skipped %" G_GUINT64_FORMAT " record%s that can never be read", skipped,
             nrd_plural(skipped));
}

static void give_back(NrdPartition *partition, NrdLease lease)
{
    g_mutex_lock(&partition->queue_lock);
    /* -ESTALE: the lease has lapsed meanwhile, which is the same to us. */
    (void)!nrd_queue_nack(partition->queue, lease.offset, lease.nonce, nrd_clock_mono_ms());
    g_mutex_unlock(&partition->queue_lock);
}

void nrd_consume_note_failing(NrdPartition *partition)
{
    int64_t until_ms = nrd_clock_mono_ms() + FAILING_MS;
    atomic_store(&partition->failing_until_ms, until_ms);
    nrd_timer_set(partition->topic->engine->timers, &partition->retry_timer, until_ms);
}

bool nrd_consume_is_failing(NrdPartition *partition)
{
    int64_t until_ms = atomic_load(&partition->failing_until_ms);
    return until_ms != 0 && nrd_clock_mono_ms() < until_ms;
}

static void on_retry(void *user_data)
{
    NrdPartition *partition = user_data;
    atomic_store(&partition->failing_until_ms, 0);
    nrd_line_wake(&partition->topic->line, partition);
}

bool nrd_consume_serve(NrdPartition *partition, const NrdLine *line, NrdDeliverFn deliver, void *user_data,
                       NrdLease lease)
{
    Copy copy;
    uint64_t next_offset = 0;
    int rc = read_record(partition, lease, &copy, &next_offset);
    if (rc == 0) {
        deliver(user_data, 0, &copy.delivery);
        g_free(copy.large);
        return true;
    }
    if (rc == -EBADMSG)
        nrd_consume_skip(partition, lease, next_offset);
    if (rc == -EBADMSG || rc == -ENOENT) /* -ENOENT: retention was faster; the next take starts at the new oldest */
        return false;
    give_back(partition, lease);
    if (rc == -EIO && line->source->any_well(line->owner, partition)) {
        nrd_consume_note_failing(partition);
        nrd_line_wake(&partition->line, partition); /* as below, for those who ask this partition */
        return false;
    }
    deliver(user_data, rc == -ESHUTDOWN ? nrd_partition_closed_error(partition) : rc, NULL);
    nrd_consume_wake(partition); /* somebody may have joined the line while the record was leased */
    return true;
}

void nrd_local_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                              void *user_data)
{
    nrd_line_take(&partition->line, waiter, wait_ms, deliver, user_data);
}

void nrd_local_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    NrdWaiter waiter;
    nrd_waiter_init(&waiter);
    waiter.sure = true;
    nrd_partition_take(partition, &waiter, 0, deliver, user_data);
}

bool nrd_local_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter)
{
    return nrd_line_cancel(&partition->line, waiter);
}

void nrd_consume_wake(NrdPartition *partition)
{
    nrd_line_wake(&partition->line, partition);
    nrd_line_wake(&partition->topic->line, partition);
}

void nrd_consume_interrupt(NrdPartition *partition, int error)
{
    nrd_line_interrupt(&partition->line, error);
}

static void on_lease_over(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->queue_lock);
    partition->lease_timer_ms = INT64_MAX;
    uint32_t n_expired = nrd_queue_expire(partition->queue, nrd_clock_mono_ms());
    nrd_consume_arm_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    if (n_expired == 0)
        return;
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, n_expired);
    nrd_consume_wake(partition);
}

/* ---- readability ---- */

bool nrd_local_partition_readable(NrdPartition *partition)
{
    /* A read that fails does not wait. */
    return nrd_partition_usable(partition) < 0 || nrd_consume_deliverable(partition);
}

void nrd_local_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    nrd_line_watch_set(&partition->line, watch, notify, user_data);
}

bool nrd_local_watch_clear(NrdPartition *partition, NrdWatch *watch)
{
    return nrd_line_watch_clear(&partition->line, watch);
}
