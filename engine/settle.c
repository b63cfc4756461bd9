/* Ending leases by ack and nack, prolonging them, and moving the frontier by hand. Many leases are settled under one
 * lock, and wake who waits once. */
#include "engine/consume.h"
#include "engine/offsets.h"
#include "engine/partition.h"

#include "engine/base/clock.h"

#include <errno.h>

#define AT_A_TIME 256

static int look(NrdQueue *queue, uint64_t offset, uint64_t nonce, int64_t now_ms)
{
    return nrd_queue_leased(queue, offset, nonce, now_ms) ? 0 : -ESTALE;
}

/* Acts on one after the other, as nrd_queue_ack_many acks. Queue lock held. */
static size_t other_verb_locked(NrdPartition *partition, NrdVerb verb, const NrdLease *leases, size_t n, int64_t now_ms,
                                int *ret_error)
{
    int (*act)(NrdQueue *, uint64_t, uint64_t, int64_t) = verb == NRD_VERB_NACK     ? nrd_queue_nack
                                                          : verb == NRD_VERB_EXTEND ? nrd_queue_extend
                                                                                    : look;
    size_t n_done = 0;
    int error = 0;
    while (n_done < n && error == 0) {
        error = act(partition->queue, leases[n_done].offset, leases[n_done].nonce, now_ms);
        n_done += error == 0;
    }
    *ret_error = error;
    return n_done;
}

static size_t settle_leases(NrdPartition *partition, NrdVerb verb, const NrdLease *leases, size_t n, int *ret_error)
{
    int64_t now_ms = nrd_clock_mono_ms();
    size_t n_done;
    g_mutex_lock(&partition->queue_lock);
    if (verb == NRD_VERB_ACK)
        n_done = nrd_queue_ack_many(partition->queue, leases, n, now_ms, ret_error);
    else
        n_done = other_verb_locked(partition, verb, leases, n, now_ms, ret_error);
    if (n_done > 0 && verb == NRD_VERB_ACK)
        nrd_offsets_touch_locked(partition);
    if (n_done > 0 && verb == NRD_VERB_EXTEND)
        nrd_consume_arm_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    return n_done;
}

/* At most AT_A_TIME of them, all of this partition; *ret_error: why not all. */
static size_t settle_some(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    NrdLease leases[AT_A_TIME];
    size_t n_ours = 0;
    while (n_ours < n && n_ours < AT_A_TIME && holds[n_ours].partition == partition->number) {
        leases[n_ours] = (NrdLease){ holds[n_ours].offset, holds[n_ours].nonce };
        n_ours++;
    }
    if (n_ours == 0) {
        *ret_error = -EINVAL;
        return 0;
    }
    return settle_leases(partition, verb, leases, n_ours, ret_error);
}

/* Leases are in memory: read-only, they can be given back and prolonged, and only an ack would have to be written. */
static int may_settle(NrdPartition *partition, NrdVerb verb)
{
    int rc = nrd_partition_usable(partition);
    return rc == 0 && verb == NRD_VERB_ACK && partition->topic->engine->read_only ? -EROFS : rc;
}

size_t nrd_local_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n,
                                       int *ret_error)
{
    size_t n_done = 0;
    int error = may_settle(partition, verb);
    while (n_done < n && error == 0)
        n_done += settle_some(partition, verb, holds + n_done, n - n_done, &error);
    if (verb == NRD_VERB_ACK)
        nrd_counter_add(NRD_COUNTER_SETTLED, n_done);
    if (n_done > 0 && (verb == NRD_VERB_ACK || verb == NRD_VERB_NACK))
        nrd_consume_wake(partition);
    *ret_error = error;
    return n_done;
}

int nrd_local_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    NrdHold hold = { .partition = partition->number, .offset = offset, .nonce = nonce };
    int error;
    (void)nrd_partition_settle_many(partition, verb, &hold, 1, &error);
    return error;
}

static void settle_wake(NrdPartition *partition, const int *errors, size_t n)
{
    size_t n_settled = 0;
    for (size_t i = 0; i < n; i++)
        n_settled += errors[i] == 0;
    nrd_counter_add(NRD_COUNTER_SETTLED, n_settled);
    nrd_consume_wake(partition); /* also when nothing was: meanwhile there was less room for others */
}

int nrd_local_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = n > 0 ? may_settle(partition, NRD_VERB_ACK) : nrd_partition_usable(partition);
    for (size_t i = 0; i < n; i++) {
        g_assert(holds[i].partition == partition->number);
        ret_errors[i] = rc;
    }
    if (rc < 0)
        return rc;
    g_autofree NrdLease *leases = g_new(NrdLease, n);
    for (size_t i = 0; i < n; i++)
        leases[i] = (NrdLease){ holds[i].offset, holds[i].nonce };
    rc = nrd_offsets_settle(partition, leases, n, ret_errors);
    if (n > 0)
        settle_wake(partition, ret_errors, n);
    return rc;
}

void nrd_local_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data)
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
    g_mutex_lock(&partition->queue_lock);
    nrd_queue_seek(partition->queue, target);
    nrd_offsets_touch_locked(partition);
    g_mutex_unlock(&partition->queue_lock);
    /* Recovery takes the larger frontier of the two files: after a step back both have to say so before it is true. */
    rc = nrd_offsets_sync(partition, true);
    nrd_consume_wake(partition);
    return rc;
}

int nrd_local_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset)
{
    int rc = partition->topic->engine->read_only ? -EROFS : nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    rc = seek_pinned(partition, to, offset);
    nrd_partition_unpin(partition);
    return rc;
}
