/* Settling durably: the state is written as it will be before it is so in memory. When that fails the state as it is goes on
 * top of it, into the page cache before the failure is answered, so that a killed daemon finds the records unsettled, and
 * to the disk by the cadence. Until then a power cut may find them settled: what a failed sync did nobody knows. */
#include "engine/offsets_private.h"

#include "engine/offsets.h"

#include "engine/base/clock.h"

/* What one write settles. */
typedef struct Round {
    NrdSettler *settlers;
    NrdFrontier state; /* as it will be */
    uint64_t seq;      /* settled_seq before */
    bool anew;         /* some lease is prepared */
} Round;

static void begin_round_locked(NrdPartition *partition, Round *round)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->queue_lock);
    round->settlers = g_steal_pointer(&partition->settlers);
    for (NrdSettler *settler = round->settlers; settler; settler = settler->next) {
        if (nrd_queue_prepare(partition->queue, &settler->settling, now_ms) > 0)
            round->anew = true;
    }
    nrd_queue_snapshot_prepared(partition->queue, &round->state);
    round->seq = partition->settled_seq;
    partition->tick_armed = false;
    g_mutex_unlock(&partition->queue_lock);
}

static int write_round_locked(NrdPartition *partition, const Round *round)
{
    if (!partition->offsets)
        return nrd_partition_closed_error(partition);
    int rc = 0;
    if (round->anew || round->seq != partition->ticked_seq)
        rc = nrd_offset_store_tick(partition->offsets, &round->state);
    /* A crash before this sync or in it leaves the leases unsettled or settled, and nobody was told which; after it they
     * are settled, though memory does not say so yet. */
    if (rc == 0)
        rc = nrd_offset_store_write_out(partition->offsets);
    if (!round->anew)
        return nrd_offsets_note_locked(partition, false, rc, "writing " NRD_OFFSETS_AHEAD, NRD_OFFSETS_KEPT);
    return nrd_offsets_note_locked(partition, false, rc, "settling records", "they stay leased as they were");
}

/* In memory it becomes as the disk has it before the offset lock is given up: no later write can lack it. What others
 * settled since the round began is not on the disk, and their tick is armed. */
static void end_round_locked(NrdPartition *partition, Round *round, bool durable)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->queue_lock);
    for (NrdSettler *settler = round->settlers; settler; settler = settler->next)
        nrd_queue_conclude(partition->queue, &settler->settling, durable, now_ms);
    nrd_queue_end_prepared(partition->queue, durable);
    bool alone = partition->settled_seq == round->seq;
    if (round->anew && durable)
        partition->settled_seq++;
    else if (round->anew)
        nrd_offsets_touch_locked(partition); /* the state as it was has to be written again */
    if (durable)
        partition->ticked_seq = partition->synced_seq = alone ? partition->settled_seq : round->seq;
    g_mutex_unlock(&partition->queue_lock);
}

static void answer_locked(NrdSettler *settlers, int rc)
{
    for (NrdSettler *settler = settlers; settler; settler = settler->next) {
        for (size_t i = 0; rc < 0 && i < settler->settling.n; i++)
            settler->settling.errors[i] = rc;
        settler->rc = rc;
        settler->done = true;
    }
}

/* The state as it is goes on top of what the failed round may have left. */
static void undo_round_locked(NrdPartition *partition)
{
    nrd_offset_store_take_back(partition->offsets);
    partition->ticked_seq = partition->synced_seq;
    (void)!nrd_offsets_tick_locked(partition); /* the caller arms the next try */
}

static int settle_locked(NrdPartition *partition, bool *ret_anew)
{
    Round round = { .state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) } };
    begin_round_locked(partition, &round);
    int rc = write_round_locked(partition, &round);
    end_round_locked(partition, &round, rc == 0);
    if (rc < 0 && partition->offsets)
        undo_round_locked(partition);
    answer_locked(round.settlers, rc);
    g_array_unref(round.state.ahead);
    *ret_anew = round.anew;
    return rc;
}

/* Who comes while another one's round is being written waits for the lock, and whoever then gets it first writes for all
 * of them. */
int nrd_offsets_settle(NrdPartition *partition, const NrdLease *leases, size_t n, int *ret_errors)
{
    NrdSettler self = { .settling = { leases, n, ret_errors } };
    bool anew = false;
    g_mutex_lock(&partition->queue_lock);
    self.next = partition->settlers;
    partition->settlers = &self;
    g_mutex_unlock(&partition->queue_lock);
    g_mutex_lock(&partition->offset_lock);
    int rc = self.done ? self.rc : settle_locked(partition, &anew);
    bool open = partition->offsets && !atomic_load(&partition->closed);
    g_mutex_unlock(&partition->offset_lock);
    nrd_offsets_arm_after(partition, open, rc, anew);
    return rc;
}
