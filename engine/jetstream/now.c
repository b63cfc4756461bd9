/* What is there now, on the thread that asks: for readers that never wait. See pull_private.h. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/copies.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/pull_private.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

/* ---- what is there now, at once ---- */

#define FEWEST 2 /* of each partition of a topic, so that a small batch has some of many */
#define FEW 8
#define MANY 256
#define SILENCE_MS 750
#define EXPIRES_MS 500 /* less than SILENCE_MS */
#define LAST_MS 50

/* How long to wait for the next record of a round. The servers send what is there without a pause, and say nothing when there
 * is no more: that shows in the record that was the last, or, when somebody else was faster, in the silence. */
static int64_t next_ms(const GPtrArray *gots)
{
    NrdJsAckSubject parts;
    const NrdJsGot *last = gots->len > 0 ? gots->pdata[gots->len - 1] : NULL;
    if (!last || nrd_js_parse_ack(natsMsg_GetReply(last->msg), &parts) < 0)
        return NRD_JS_LOOK_MS;
    return parts.n_pending == 0 ? LAST_MS : SILENCE_MS;
}

/* false: it is another record than the one that was acknowledged, and nobody's; what should be there comes when its time is
 * over, if the copy that it is sent from is right by then. */
static bool take_in(NrdPartition *partition, natsMsg *msg, int64_t came_ms, GPtrArray *gots)
{
    NrdJsAckSubject parts;
    if (nrd_js_parse_ack(natsMsg_GetReply(msg), &parts) == 0 &&
        !nrd_js_copies_may_deliver(partition, parts.sequence, msg)) {
        natsMsg_Destroy(msg);
        return false;
    }
    g_ptr_array_add(gots, nrd_js_got_new(partition, msg, came_ms));
    return true;
}

/* The answers to one request for n records that are there now: so many, or fewer (-ETIMEDOUT), or a word that there is none;
 * -ESRCH: that nobody is there. *ret_n_held: as many of them are held back. */
static int collect(NrdPartition *partition, NrdJsRound *round, guint n, GPtrArray *gots, guint *ret_n_held)
{
    *ret_n_held = 0;
    for (guint n_came = 0; n_came < n; n_came++) {
        natsMsg *msg = nrd_js_round_next(round, next_ms(gots));
        if (!msg)
            return -ETIMEDOUT;
        if (!nrd_js_is_record(msg)) {
            bool nobody = natsMsg_IsNoResponders(msg);
            natsMsg_Destroy(msg);
            return nobody ? -ESRCH : 0;
        }
        *ret_n_held += !take_in(partition, msg, nrd_js_round_asked_ms(round), gots);
    }
    return 0;
}

/* No answer at all: every slot is taken, or somebody was faster, or (-EAGAIN) the servers have forgotten the pull, or they are
 * silent (-EIO), which is no end of the records. */
static int why_silent(NrdPartition *partition)
{
    if (nrd_js_partition_look(partition, NRD_JS_GLANCE_MS) < 0 || nrd_js_partition_is_silent(partition))
        return -EIO;
    return nrd_js_partition_has_deliverable(partition) ? -EAGAIN : 0;
}

/* Appends up to n records of the partition to `gots`. -ESRCH: nobody answers for the consumer; -EAGAIN: see why_silent. A pull for
 * many, which is made when there was more, ends on the servers: they keep none that is answered when nobody waits any more. With
 * a time of its own one that finds nothing would last for that, so the first has none. */
static int pull_once(NrdPartition *partition, guint n, GPtrArray *gots)
{
    NrdJsRound *round = NULL;
    int rc = nrd_js_partition_need_consumer(partition);
    nrd_js_give_back_wait(partition); /* else it would be there later than who asks now */
    if (rc == 0)
        rc = nrd_js_round_ask(partition, n, n > FEW ? EXPIRES_MS : 0, &round);
    if (rc < 0)
        return rc;
    guint n_held;
    rc = collect(partition, round, n, gots, &n_held);
    nrd_js_round_leave(round, rc != -ETIMEDOUT);
    if (rc == -ESRCH)
        nrd_js_consumer_doubt(partition); /* nobody answers for it */
    if (gots->len > 0)
        return 0;
    if (n_held > 0)
        return -EIO; /* no end of the records */
    return rc == -ETIMEDOUT ? why_silent(partition) : rc;
}

/* The consumer may have been replaced, or deleted, by somebody else: then there is another one by the second try. And 2.9 may
 * forget a pull that comes while it finds that those before it are nobody's any more. */
static int pull_of_any(NrdPartition *partition, guint n, GPtrArray *gots)
{
    int rc = pull_once(partition, n, gots);
    if (rc == -ESRCH || rc == -EAGAIN)
        rc = pull_once(partition, n, gots);
    return rc == -ESRCH ? -EIO : rc == -EAGAIN ? 0 : rc;
}

/* How many of `wanted` this daemon may ask for: with every slot of max_in_flight taken the servers would not answer. What other
 * mounts hold is not known here. */
static int count_slots(NrdPartition *partition, guint wanted, guint *ret_n)
{
    uint64_t max = (uint64_t)nrd_js_topic_config(partition->topic).max_in_flight;
    uint64_t held = nrd_js_leases_n_live(partition) + nrd_js_hand_count(partition);
    if (held < max) {
        *ret_n = (guint)MIN(wanted, max - held);
        return 0;
    }
    if (nrd_js_partition_look(partition, NRD_JS_GLANCE_MS) < 0 || nrd_js_partition_is_silent(partition))
        return nrd_js_partition_why(partition, -EIO);
    *ret_n = nrd_js_partition_has_deliverable(partition) ? 1 : 0; /* what was given back needs no slot */
    return 0;
}

/* See ask_again_locked. */
static int pull_now(NrdPartition *partition, guint n, GPtrArray *gots)
{
    int rc = pull_of_any(partition, n, gots);
    if (rc == 0 && gots->len == 0 && nrd_js_partition_may_lag(partition)) {
        g_usleep(NRD_JS_LAG_MS * 1000);
        rc = pull_of_any(partition, n, gots);
    }
    return nrd_js_partition_why(partition, rc);
}

static void return_to_hand(NrdJsPulls *pulls, NrdPartition *partition, GPtrArray *gots, guint from)
{
    g_mutex_lock(&pulls->lock);
    for (guint i = from; i < gots->len; i++)
        nrd_js_hand_put_locked(pulls, gots->pdata[i]);
    g_mutex_unlock(&pulls->lock);
    if (from < gots->len)
        nrd_js_hand_serve(pulls, partition);
}

/* false: there is no room for it. */
static bool copy_out(NrdJsGot *got, NrdBatch *batch)
{
    NrdDelivery delivery;
    g_autofree uint8_t *key = NULL;
    if (!nrd_js_got_lease(got, &delivery, &key))
        return true;
    size_t size = batch->copy(batch->user_data, &delivery);
    NrdHold hold = {
        .partition = delivery.partition, .note = (uint32_t)size, .offset = delivery.offset, .nonce = delivery.nonce
    };
    if (size > 0) {
        g_array_append_val(batch->holds, hold);
        return true;
    }
    nrd_js_lease_drop(got->partition, delivery.nonce); /* nobody was given it */
    batch->full = true;
    return false;
}

/* What does not fit goes to the hand, where the next read finds it. */
static void copy_all(NrdJsPulls *pulls, NrdPartition *partition, GPtrArray *gots, NrdBatch *batch)
{
    guint i = 0;
    while (i < gots->len && copy_out(gots->pdata[i], batch))
        nrd_js_got_free(gots->pdata[i++]);
    return_to_hand(pulls, partition, gots, i);
}

static void copy_hand(NrdJsPulls *pulls, NrdPartition *partition, NrdBatch *batch)
{
    g_autoptr(GPtrArray) gots = g_ptr_array_new();
    NrdJsGot *got;
    g_mutex_lock(&pulls->lock);
    while ((got = nrd_js_hand_take_locked(pulls, partition)))
        g_ptr_array_add(gots, got);
    g_mutex_unlock(&pulls->lock);
    copy_all(pulls, partition, gots, batch);
}

/* Asks for up to `wanted` more; *ret_more: there may be others. */
static int take_some(NrdPartition *partition, guint wanted, NrdBatch *batch, bool *ret_more)
{
    g_autoptr(GPtrArray) gots = g_ptr_array_new();
    guint n = 0;
    int rc = count_slots(partition, wanted, &n);
    if (rc == 0 && n > 0)
        rc = pull_now(partition, n, gots);
    *ret_more = rc == 0 && n > 0 && gots->len == n;
    copy_all(partition->topic->engine->pulls, partition, gots, batch);
    return rc;
}

/* What is in the hand comes first. */
static int begin_batch(NrdPartition *partition, NrdBatch *batch)
{
    int rc = nrd_js_pull_why_not(partition->topic->engine, partition->topic, partition);
    if (rc == 0 && !batch->full)
        copy_hand(partition->topic->engine->pulls, partition, batch);
    return rc;
}

int nrd_js_now_batch(NrdPartition *partition, NrdBatch *batch)
{
    bool more = true;
    int rc = begin_batch(partition, batch);
    for (guint n = FEW; rc == 0 && more && !batch->full; n = MIN(2 * n, MANY))
        rc = take_some(partition, n, batch, &more);
    return rc;
}

/* All partitions of a topic, in turn. */
typedef struct Turn {
    NrdTopic *topic;
    uint32_t n, first; /* how many, and the number of the one that begins */
    bool *ends;        /* by number: there is no more, or it has failed */
    uint32_t n_left, n_failed;
    int64_t until_ms; /* for so long others are asked in the place of one that fails: not each is waited for */
} Turn;

static Turn turn_of(NrdTopic *topic)
{
    uint32_t n = nrd_js_topic_n_partitions(topic);
    return (Turn){ .topic = topic,
                   .n = n,
                   .first = atomic_fetch_add(&topic->turn, 1),
                   .ends = g_new0(bool, n),
                   .n_left = n,
                   .until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS };
}

static NrdPartition *turn_at(const Turn *turn, uint32_t i, bool **ret_ends)
{
    uint32_t number = (turn->first + i) % turn->n;
    *ret_ends = &turn->ends[number];
    return nrd_js_topic_partition(turn->topic, number);
}

/* One that has failed is left out, unless all have. */
static int leave_out(Turn *turn, bool *ends, int rc)
{
    if (rc != -EIO)
        return rc;
    *ends = true;
    turn->n_left--;
    turn->n_failed++;
    return turn->n_failed < turn->n && nrd_clock_mono_ms() < turn->until_ms ? 0 : rc;
}

static int begin_turn(Turn *turn, NrdBatch *batch)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < turn->n; i++) {
        bool *ends;
        NrdPartition *partition = turn_at(turn, i, &ends);
        rc = leave_out(turn, ends, begin_batch(partition, batch));
    }
    return rc;
}

/* Of each n records, if there may be any. */
static int take_round(Turn *turn, guint n, NrdBatch *batch)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && !batch->full && i < turn->n; i++) {
        bool *ends, more = false;
        NrdPartition *partition = turn_at(turn, i, &ends);
        if (*ends)
            continue;
        rc = take_some(partition, n, batch, &more);
        batch->withheld |= rc == -EIO && nrd_js_partition_usable(partition) == 0; /* silent, and not poisoned */
        rc = leave_out(turn, ends, rc);
        if (rc == 0 && !more && !*ends) {
            *ends = true;
            turn->n_left--;
        }
    }
    return rc;
}

int nrd_js_now_topic_batch(NrdTopic *topic, NrdBatch *batch)
{
    Turn turn = turn_of(topic);
    batch->withheld = false;
    int rc = begin_turn(&turn, batch);
    for (guint n = FEWEST; rc == 0 && turn.n_left > 0 && !batch->full; n = MIN(2 * n, MANY))
        rc = take_round(&turn, n, batch);
    g_free(turn.ends);
    return batch->holds->len > 0 ? 0 : rc;
}

/* Of each in turn, until one has something. */
static int pull_any(NrdTopic *topic, GPtrArray *gots)
{
    Turn turn = turn_of(topic);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && gots->len == 0 && i < turn.n; i++) {
        bool *ends;
        NrdPartition *partition = turn_at(&turn, i, &ends);
        rc = nrd_js_partition_usable(partition);
        rc = leave_out(&turn, ends, rc < 0 ? rc : pull_now(partition, 1, gots));
    }
    g_free(turn.ends);
    return rc;
}

/* One that is there, on this thread. */
void nrd_js_now_one(NrdTopic *topic, NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    g_autoptr(GPtrArray) gots = g_ptr_array_new();
    int rc = nrd_js_pull_why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    NrdJsGot *got = rc == 0 ? nrd_js_hand_take_locked(pulls, partition ? (void *)partition : (void *)topic) : NULL;
    g_mutex_unlock(&pulls->lock);
    if (rc == 0 && !got)
        rc = partition ? pull_now(partition, 1, gots) : pull_any(topic, gots);
    if (gots->len > 0)
        got = gots->pdata[0];
    if (got)
        nrd_js_got_hand_over(got, deliver, user_data);
    else
        deliver(user_data, rc < 0 ? rc : -EAGAIN, NULL);
}
