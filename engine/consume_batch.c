/* Taking many records at a time. A batch finds under the queue lock which run of offsets it could lease, copies the records
 * of that run as far as there is room, and only then leases those that were copied: so what has no room is never leased.
 * If others were faster meanwhile it leases what they left of the front of the run, and drops the other copies.
 *
 * The read lock is held throughout, across the batch's copy function too: it only copies. */
#include "engine/consume.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#include <errno.h>

#define RUN_MAX 512

/* What became of a run. */
typedef struct Run {
    uint64_t first;
    uint32_t n;           /* that could be leased */
    uint32_t n_copied;    /* ... and were copied */
    uint32_t n_leased;    /* ... and leased */
    uint64_t next_offset; /* with -EBADMSG: behind the damage */
    NrdLease lost;        /* a lease on the first one when that cannot be read, or nonce 0 */
    uint64_t nonces[RUN_MAX];
} Run;

static void find_run(NrdPartition *partition, bool sure, uint32_t max, Run *run)
{
    NrdLog *log = atomic_load(&partition->log);
    g_mutex_lock(&partition->queue_lock);
    run->n =
        nrd_queue_peek(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log), sure, MIN(max, RUN_MAX), &run->first);
    g_mutex_unlock(&partition->queue_lock);
}

static uint32_t lease_run(NrdPartition *partition, bool sure, Run *run, uint32_t n)
{
    NrdLog *log = atomic_load(&partition->log);
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->queue_lock);
    n = nrd_queue_take_run(partition->queue, nrd_log_oldest(log), nrd_log_hwm(log), sure, now_ms, run->first,
                           run->nonces, n);
    if (n > 0)
        nrd_consume_arm_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    return n;
}

/* Where the records of a run are copied to. */
typedef struct Copying {
    NrdBatch *batch;
    const uint64_t *nonces; /* of the record that comes next */
    NrdHold *holds;         /* likewise */
    uint32_t partition;
} Copying;

/* false: there is no room. */
static bool copy_one(void *user_data, const NrdRecordView *view)
{
    Copying *copying = user_data;
    NrdBatch *batch = copying->batch;
    uint64_t nonce = *copying->nonces;
    NrdDelivery delivery = { copying->partition, view->offset,   nonce,         view->commit_ms,
                             view->key,          view->key_size, view->payload, view->payload_size };
    size_t size = batch->copy(batch->user_data, &delivery);
    *copying->holds = (NrdHold){ copying->partition, (uint32_t)size, view->offset, nonce };
    batch->full = size == 0;
    copying->holds++;
    copying->nonces++;
    return !batch->full;
}

/* Copies what can be read and has room. An error is about the record behind those. Read lock held. */
static int copy_run_locked(NrdPartition *partition, NrdBatch *batch, Run *run)
{
    NrdLogCursor *cursor = nrd_consume_cursor_locked(partition);
    guint n_before = batch->holds->len;
    g_array_set_size(batch->holds, n_before + run->n);
    Copying copying = { batch, run->nonces, &g_array_index(batch->holds, NrdHold, n_before), partition->number };
    int rc;
    run->n_copied = nrd_log_cursor_read_run(cursor, run->first, run->n, copy_one, &copying, &run->next_offset, &rc);
    nrd_consume_cursor_done_locked(partition, rc == 0 ? run->first + run->n_copied : 0);
    g_array_set_size(batch->holds, n_before + run->n_copied);
    return rc;
}

static void drop_copies(NrdBatch *batch, uint32_t n)
{
    size_t size = 0;
    for (guint i = batch->holds->len - n; i < batch->holds->len; i++)
        size += g_array_index(batch->holds, NrdHold, i).note;
    g_array_set_size(batch->holds, batch->holds->len - n);
    batch->uncopy(batch->user_data, size);
    batch->full = false;
}

static void make_nonces(Run *run)
{
    nrd_random_fill(run->nonces, run->n);
    for (uint32_t i = 0; i < run->n; i++)
        run->nonces[i] &= INT64_MAX; /* as the queue will have them */
}

static int take_run_locked(NrdPartition *partition, NrdBatch *batch, Run *run)
{
    make_nonces(run);
    int rc = copy_run_locked(partition, batch, run);
    if (run->n_copied > 0)
        run->n_leased = lease_run(partition, batch->sure, run, run->n_copied);
    else if ((rc == -EBADMSG || rc == -ENOENT) && lease_run(partition, batch->sure, run, 1) > 0)
        run->lost = (NrdLease){ run->first, run->nonces[0] };
    if (run->n_leased < run->n_copied)
        drop_copies(batch, run->n_copied - run->n_leased);
    return rc;
}

/* One run; *ret_more: there may be another one. */
static int take_run(NrdPartition *partition, NrdBatch *batch, uint32_t max, uint32_t *ret_n, bool *ret_more)
{
    Run run; /* large: set what is read only */
    run.n_copied = run.n_leased = 0;
    run.lost.nonce = 0;
    int rc = 0;
    g_mutex_lock(&partition->read_lock);
    find_run(partition, batch->sure, max, &run);
    if (run.n > 0)
        rc = take_run_locked(partition, batch, &run);
    g_mutex_unlock(&partition->read_lock);
    if (run.lost.nonce != 0 && rc == -EBADMSG)
        nrd_consume_skip(partition, run.lost, run.next_offset);
    /* Damage was skipped, or is met again as the first of the next run. -ENOENT: retention was faster, and the next run
     * starts at the new oldest, which drops the lease; should it not have, the lease keeps the loop from turning on the
     * spot. */
    if (rc == -EBADMSG || rc == -ENOENT || run.n_copied > 0)
        rc = 0;
    *ret_n = run.n_leased;
    *ret_more = rc == 0 && run.n > 0 && !batch->full;
    return rc;
}

int nrd_consume_batch(NrdPartition *partition, NrdBatch *batch, uint32_t max, uint32_t *ret_n)
{
    uint32_t n_taken = 0;
    bool more = true;
    int rc = 0;
    while (rc == 0 && more && n_taken < max) {
        uint32_t n;
        rc = take_run(partition, batch, max - n_taken, &n, &more);
        n_taken += n;
    }
    *ret_n = n_taken;
    return rc == -ESHUTDOWN ? nrd_partition_closed_error(partition) : rc;
}

int nrd_local_partition_take_batch(NrdPartition *partition, NrdBatch *batch)
{
    uint32_t n;
    int rc = nrd_consume_error(partition);
    return rc < 0 ? rc : nrd_consume_batch(partition, batch, UINT32_MAX, &n);
}
