/* What the servers answer to who asks for records, and whose it is. See pull_private.h. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/copies.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull_private.h"

#define GIVE_BACK_MS 500 /* to send back what was sent since then; its topic, and so its time, is not known any more */
#define AGAIN_MS 250     /* after an answer that means: not now */

static void fire_source_locked(NrdJsPulls *pulls, const void *source)
{
    NrdJsWatchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    if (!watchers)
        return;
    nrd_js_watchers_fire_locked(pulls, watchers);
    nrd_js_watchers_tidy_locked(pulls, watchers);
}

/* Who watches a partition or its topic, and has sent a scout; or NULL. */
static NrdJsTake *scout_of_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    const NrdJsWatchers *watchers = g_hash_table_lookup(pulls->watchers, partition);
    if (!watchers || !watchers->scout)
        watchers = g_hash_table_lookup(pulls->watchers, partition->topic);
    return watchers ? watchers->scout : NULL;
}

/* Who asked for it; else, or when that one has left, who has waited longest; else a scout; or NULL. */
static NrdJsTake *taker_locked(NrdJsPulls *pulls, const NrdPartition *partition, uint64_t asker)
{
    NrdJsTake *take = asker ? nrd_js_take_find_locked(pulls, asker) : NULL;
    if (!take)
        take = nrd_js_hand_longest_locked(pulls, partition);
    return take ? take : scout_of_locked(pulls, partition);
}

/* A record for somebody who waits, or for nobody. */
static void take_record(NrdPartition *partition, uint64_t asker, natsMsg *msg, int64_t sent_ms)
{
    NrdJsPulls *pulls = partition->topic->engine->pulls;
    NrdJsGot *got = nrd_js_got_new(partition, msg, sent_ms);
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = taker_locked(pulls, partition, asker);
    if (take)
        nrd_js_take_leave_locked(pulls, take);
    if (take && !take->deliver) {
        nrd_js_hand_put_locked(pulls, g_steal_pointer(&got));
        fire_source_locked(pulls, partition);
        fire_source_locked(pulls, partition->topic);
    }
    nrd_js_asked_fill_locked(pulls, partition); /* it may have been another's pull */
    g_mutex_unlock(&pulls->lock);
    nrd_js_hand_serve(pulls, partition);
    if (take && got)
        nrd_js_pull_answer_later(pulls, (NrdJsAnswer){ take->deliver, take->user_data, 0, got });
    else if (got)
        nrd_js_got_give_back(got);
    if (take)
        nrd_js_take_free(take);
}

static bool has_status(natsMsg *msg, const char *status)
{
    const char *value = NULL;
    return natsMsgHeader_Get(msg, "Status", &value) == NATS_OK && strcmp(value, status) == 0;
}

static void give_back_unknown(NrdEngine *engine, natsMsg *msg)
{
    NrdJsLeaseEnd end = { .here_ms = nrd_js_conn_heard_ms(engine->conn) + GIVE_BACK_MS };
    nrd_js_tell_before(engine->conn, natsMsg_GetReply(msg), "-NAK", &end);
    natsMsg_Destroy(msg);
}

/* What a consumer that was replaced meanwhile has sent is nothing any more; who waits has been told to ask anew. false: its time
 * was over before it was looked at, as this process was stopped, and it may be somebody else's; or the partition is poisoned by
 * now, and serves nothing; or it is not the record that it should be. */
static bool on_record(NrdPartition *partition, uint64_t asker, natsMsg *msg, int64_t sent_ms)
{
    NrdJsAckSubject parts;
    if (nrd_js_parse_ack(natsMsg_GetReply(msg), &parts) < 0) {
        give_back_unknown(partition->topic->engine, msg);
        return true;
    }
    bool ours = parts.generation == nrd_js_leases_generation(partition);
    bool lives = nrd_js_delivery_lives(partition, sent_ms) && nrd_js_partition_usable(partition) == 0 &&
                 nrd_js_copies_may_deliver(partition, parts.sequence, msg);
    if (ours && lives)
        take_record(partition, asker, msg, sent_ms);
    else
        natsMsg_Destroy(msg);
    return !ours || lives;
}

void nrd_js_record_came(NrdPartition *partition, natsMsg *msg, int64_t came_ms)
{
    (void)on_record(partition, 0, msg, came_ms);
}

/* A parked pull has ended without a record. When its time was over others take its place at once; else those who wait ask anew,
 * in a while. */
static void on_end_locked(NrdJsPulls *pulls, const NrdJsAsked *asked, bool in_time, bool nobody)
{
    GHashTableIter iter;
    gpointer data;
    if (asked->lost)
        return;
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        NrdJsTake *take = data;
        if (!nrd_js_take_is_parked(take) || !nrd_js_take_wants(take, asked->partition))
            continue;
        take->nobody = nobody;
        if (!in_time)
            nrd_js_take_renew_locked(pulls, take, AGAIN_MS);
    }
    if (in_time)
        nrd_js_asked_fill_locked(pulls, asked->partition);
}

static void on_end(NrdJsPulls *pulls, const NrdJsAsked *asked, bool in_time, bool nobody)
{
    bool is_awaited = false;
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = asked->asker ? nrd_js_take_find_locked(pulls, asked->asker) : NULL;
    if (take && take->asked == asked->number) {
        take->asked = 0;
        take->nobody = nobody;
        is_awaited = true;
    } else if (!asked->asker) {
        on_end_locked(pulls, asked, in_time, nobody);
    }
    g_mutex_unlock(&pulls->lock);
    if (is_awaited)
        nrd_js_take_found_nothing(pulls, asked->asker, nobody ? -EIO : -EAGAIN);
}

/* No record: nothing there (404), the pull's time at the servers is over (408), or the consumer has no leader now, or is gone:
 * nobody answers for it (503), or it was deleted just now (409), and by the next use of it it is looked for. */
static void on_status(NrdJsPulls *pulls, const NrdJsAsked *asked, natsMsg *msg)
{
    bool nobody = natsMsg_IsNoResponders(msg);
    if (asked && !asked->lost && (nobody || has_status(msg, "409")))
        nrd_js_consumer_doubt(asked->partition);
    if (asked)
        on_end(pulls, asked, has_status(msg, "408"), nobody);
    natsMsg_Destroy(msg);
}

void nrd_js_asked_answered(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    NrdJsAsked *asked = nrd_js_asked_steal(pulls, number);
    if (!nrd_js_is_record(msg))
        on_status(pulls, asked, msg);
    else if (!asked) /* so late that it is not known any more */
        give_back_unknown(pulls->engine, msg);
    else if (!on_record(asked->partition, asked->asker, msg, nrd_js_asked_sent_ms(pulls, asked)))
        on_end(pulls, asked, true, false);
    nrd_js_asked_done(pulls, asked);
}
