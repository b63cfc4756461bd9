/* The offsets that parts will get: named where they are known, and taken back for who wants to commit beside the dispatcher.
 * ingress.h tells what they are for. */
#include "engine/ingress/dispatcher_private.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"

#define CLAIM_WAIT_MS 2000 /* for a look-up, a commit that runs, or offsets that cannot be taken back */

static NrdIngressTarget target_of(const NrdLane *lane)
{
    return (NrdIngressTarget){ lane->topic, lane->id, lane->partition };
}

/* What a claim waits for. */
typedef bool Condition(NrdLane *lane);

static bool has_parts(NrdLane *lane)
{
    return nrd_lane_n_parts(lane) > 0 || lane->n_stamped > 0;
}

static bool runs(NrdLane *lane)
{
    return lane->state == NRD_LANE_RUNNING;
}

/* A replay has to look some of them up. */
static bool has_parts_to_verify(NrdLane *lane)
{
    if (lane->verifying)
        return true;
    for (GList *l = lane->parts.head; l; l = l->next) {
        if (((NrdPart *)l->data)->verify)
            return true;
    }
    return false;
}

/* ---- offsets to come ---- */

/* With nothing on its way and nobody else committing, the log itself tells what comes next. */
static void settle_expected(NrdDispatcher *d, NrdLane *lane)
{
    if (nrd_lane_n_parts(lane) > 0 || lane->n_stamped > 0)
        return;
    NrdIngressTarget target = target_of(lane);
    const NrdIngressOps *ops = &d->options.ops;
    lane->exact = d->started && !d->options.nameless && ops->next_offset(ops->user_data, &target, &lane->expected);
}

/* The offset that the next part of so many records gets. */
static uint64_t take_expected(NrdDispatcher *d, NrdLane *lane, uint32_t n_records)
{
    if (lane->n_claims > 0) {
        lane->exact = false;
        return NRD_ENTRY_OFFSET_UNKNOWN;
    }
    settle_expected(d, lane);
    if (!lane->exact)
        return NRD_ENTRY_OFFSET_UNKNOWN;
    uint64_t expected = lane->expected;
    lane->expected += n_records;
    return expected;
}

/* Nothing of the lane runs, so the log tells where its first part goes. Parts that a replay has to look up keep what they
 * are looked up by; those of entries that are being written come behind, and get their names then. */
void nrd_lane_name(NrdDispatcher *d, NrdLane *lane)
{
    NrdIngressTarget target = target_of(lane);
    const NrdIngressOps *ops = &d->options.ops;
    uint64_t next;
    if (lane->n_claims > 0 || d->options.nameless || !ops->next_offset(ops->user_data, &target, &next))
        return;
    d->notes++;
    for (GList *l = lane->parts.head; l; l = l->next) {
        NrdPart *part = l->data;
        if (part->verify)
            return; /* where those behind it go depends on whether it is there */
        if (part->expected != next)
            part->note = d->notes;
        part->expected = next;
        next += part->n_records;
    }
    lane->expected = next + lane->n_stamped_records;
    lane->exact = true;
}

uint64_t nrd_dispatcher_stamp(NrdDispatcher *d, const NrdIngressTarget *target, uint32_t n_records)
{
    pthread_mutex_lock(&d->lock);
    NrdLane *lane = nrd_lane_get(d, target->topic, target->id, target->partition);
    uint64_t expected = take_expected(d, lane, n_records);
    lane->n_stamped++;
    lane->n_stamped_records += n_records;
    pthread_mutex_unlock(&d->lock);
    return expected;
}

/* The whole round failed, and the next one is not stamped before this: what was promised last is taken back first or
 * last, all of it is. */
void nrd_dispatcher_unstamp(NrdDispatcher *d, const char *id, uint32_t partition, uint32_t n_records)
{
    pthread_mutex_lock(&d->lock);
    NrdLane *lane = nrd_lane_find(d, id, partition);
    g_assert(lane && lane->n_stamped > 0);
    lane->n_stamped--;
    lane->n_stamped_records -= n_records;
    if (lane->exact)
        lane->expected -= n_records;
    nrd_lane_put(d, lane);
    pthread_mutex_unlock(&d->lock);
}

void nrd_name_added(NrdDispatcher *d, NrdLane *lane, NrdPart *part)
{
    uint64_t place = lane->exact ? lane->expected - lane->n_stamped_records : NRD_ENTRY_OFFSET_UNKNOWN;
    bool true_name = part->entry->sequence >= d->trust && part->expected == place;
    if (!true_name && lane->exact)
        part->note = ++d->notes;
    part->expected = place;
}

/* ---- claims ---- */

/* Until it is false of the lane. Lock held; whether it is: it may take too long, by the clock and not by what the wait says
 * (libfaketime's, which tests preload, may end at once with ETIMEDOUT). */
static bool wait_while(NrdDispatcher *d, NrdLane *lane, Condition *condition)
{
    int64_t until_ms = nrd_clock_mono_ms() + CLAIM_WAIT_MS;
    struct timespec until = nrd_cond_end(CLAIM_WAIT_MS);
    while (condition(lane) && nrd_clock_mono_ms() < until_ms && !d->stopping)
        (void)pthread_cond_timedwait(&d->change, &d->lock, &until);
    return !condition(lane);
}

/* Also of the parts that a worker has. */
static void forget_names(NrdDispatcher *d, const NrdLane *lane)
{
    for (GList *l = d->all.head; l; l = l->next) {
        NrdPart *part = l->data;
        if (part->to != lane->partition || strcmp(part->entry->id, lane->id) != 0)
            continue;
        part->expected = NRD_ENTRY_OFFSET_UNKNOWN;
        part->verify = false;
    }
    d->trust = MAX(d->trust, nrd_wal_next_sequence(d->options.wal));
}

/* Nobody works on the lane from now on, until release_lane: a commit that runs ends first, and its parts are done with.
 * Else they would lose their names when they have got what they name, and come twice after a crash. */
static void hold_lane(NrdDispatcher *d, NrdLane *lane)
{
    lane->n_holders++;
    (void)wait_while(d, lane, runs); /* one that hangs in the disk is not waited for */
}

static void release_lane(NrdDispatcher *d, NrdLane *lane)
{
    lane->n_holders--;
    if (lane->state == NRD_LANE_READY)
        nrd_dispatcher_signal_locked(d);
}

/* Lock held, given up meanwhile. */
static int forget_names_durably(NrdDispatcher *d, const NrdLane *lane)
{
    forget_names(d, lane);
    pthread_mutex_unlock(&d->lock);
    int rc = d->options.checkpoint(d->options.user_data, 0);
    pthread_mutex_lock(&d->lock);
    return rc;
}

/* Some part of the lane may be in an entry that names its offset. What a replay has to look up is waited for first. */
static int take_names_back(NrdDispatcher *d, NrdLane *lane)
{
    if (d->started)
        (void)wait_while(d, lane, has_parts_to_verify);
    hold_lane(d, lane);
    int rc = has_parts(lane) ? forget_names_durably(d, lane) : 0;
    release_lane(d, lane);
    return rc < 0 && wait_while(d, lane, has_parts) ? 0 : rc;
}

int nrd_dispatcher_claim(NrdDispatcher *d, const char *id, uint32_t partition)
{
    if (d->options.nameless)
        return 0;
    pthread_mutex_lock(&d->lock);
    nrd_dispatcher_take_in_locked(d);
    NrdLane *lane = nrd_lane_get(d, NULL, id, partition);
    lane->n_claims++;
    lane->exact = false;
    /* With another one granted there are no names, nor come any. */
    int rc = has_parts(lane) && lane->n_granted == 0 ? take_names_back(d, lane) : 0;
    if (rc == 0) {
        lane->n_granted++;
    } else {
        lane->n_claims--;
        nrd_lane_put(d, lane);
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

void nrd_dispatcher_unclaim(NrdDispatcher *d, const char *id, uint32_t partition)
{
    if (d->options.nameless) /* the claim may be older than the ingress */
        return;
    pthread_mutex_lock(&d->lock);
    NrdLane *lane = nrd_lane_find(d, id, partition);
    g_assert(lane && lane->n_granted > 0);
    lane->n_granted--;
    lane->n_claims--;
    nrd_lane_put(d, lane);
    pthread_mutex_unlock(&d->lock);
}
