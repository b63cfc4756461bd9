/* Records that were delivered to this daemon: handed over under a lease, or kept in the hand until somebody takes them. See
 * pull_private.h. */
#include "engine/jetstream/fetch.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

#define HAND_MAX_MS 10000

/* ---- records ---- */

NrdJsGot *nrd_js_got_new(NrdPartition *partition, natsMsg *msg, int64_t came_ms)
{
    NrdJsGot *got = g_new0(NrdJsGot, 1);
    got->partition = partition;
    got->msg = msg;
    got->came_ms = came_ms;
    nrd_js_topic_ref(partition->topic);
    return got;
}

void nrd_js_got_free(NrdJsGot *got)
{
    NrdTopic *topic = got->partition->topic;
    natsMsg_Destroy(got->msg);
    g_free(got);
    nrd_js_topic_unref(topic);
}

void nrd_js_got_give_back(NrdJsGot *got)
{
    NrdJsAckSubject parts;
    NrdJsLeaseEnd end = nrd_js_delivery_end(got->partition, got->came_ms);
    if (nrd_js_parse_ack(natsMsg_GetReply(got->msg), &parts) == 0)
        nrd_js_leases_note_returned(got->partition, parts.sequence - 1); /* first: it may come again at once */
    nrd_js_give_back(got->partition, natsMsg_GetReply(got->msg), &end);
    nrd_js_got_free(got);
}

bool nrd_js_is_record(natsMsg *msg)
{
    const char *reply = natsMsg_GetReply(msg);
    return reply && g_str_has_prefix(reply, "$JS.ACK.");
}

bool nrd_js_got_lease(NrdJsGot *got, NrdDelivery *ret_delivery, uint8_t **ret_key)
{
    NrdJsAckSubject parts;
    const char *reply = natsMsg_GetReply(got->msg);
    const char *key = NULL;
    size_t key_size;
    if (nrd_js_parse_ack(reply, &parts) < 0 || nrd_js_partition_usable(got->partition) < 0)
        return false;
    (void)natsMsgHeader_Get(got->msg, NRD_JS_KEY_HEADER, &key);
    nrd_js_decode_key(key, ret_key, &key_size);
    *ret_delivery = (NrdDelivery){
        .partition = got->partition->number,
        .offset = parts.sequence - 1,
        .nonce = nrd_js_lease_add(got->partition, &parts, reply, got->came_ms),
        .timestamp_ms = parts.time_ns / 1000000,
        .key = *ret_key,
        .key_size = key_size,
        .payload = (const uint8_t *)natsMsg_GetData(got->msg),
        .payload_size = (size_t)natsMsg_GetDataLength(got->msg),
    };
    nrd_js_partition_grew(got->partition, parts.sequence, false);
    if (got->until_ms > 0) /* it was in the hand: some of its time is over */
        nrd_js_lease_extend_later(got->partition, ret_delivery->offset, ret_delivery->nonce);
    return true;
}

void nrd_js_got_hand_over(NrdJsGot *got, NrdDeliverFn deliver, void *user_data)
{
    NrdDelivery delivery;
    g_autofree uint8_t *key = NULL;
    if (nrd_js_got_lease(got, &delivery, &key))
        deliver(user_data, 0, &delivery);
    else
        deliver(user_data, nrd_js_partition_why(got->partition, -EIO), NULL);
    nrd_js_got_free(got);
}

static void run_answer(void *user_data)
{
    NrdJsAnswer *answer = user_data;
    if (answer->got)
        nrd_js_got_hand_over(answer->got, answer->deliver, answer->user_data);
    else
        answer->deliver(answer->user_data, answer->error, NULL);
    g_free(answer);
}

void nrd_js_pull_answer_later(NrdJsPulls *pulls, NrdJsAnswer answer)
{
    nrd_js_answer_later(pulls->engine->conn, run_answer, g_memdup2(&answer, sizeof answer));
}

/* ---- the hand ---- */

static bool is_of(const NrdPartition *partition, const void *source)
{
    return partition == source || partition->topic == source;
}

/* The oldest record in the hand of a partition or topic; the caller's, or NULL. */
NrdJsGot *nrd_js_hand_take_locked(NrdJsPulls *pulls, const void *source)
{
    for (GList *l = pulls->hand.head; l; l = l->next) {
        NrdJsGot *got = l->data;
        if (!is_of(got->partition, source))
            continue;
        g_queue_delete_link(&pulls->hand, l);
        return got;
    }
    return NULL;
}

bool nrd_js_hand_has_locked(NrdJsPulls *pulls, const void *source)
{
    for (GList *l = pulls->hand.head; l; l = l->next)
        if (is_of(((NrdJsGot *)l->data)->partition, source))
            return true;
    return false;
}

uint64_t nrd_js_hand_count(NrdPartition *partition)
{
    NrdJsPulls *pulls = partition->topic->engine->pulls;
    uint64_t n = 0;
    g_mutex_lock(&pulls->lock);
    for (GList *l = pulls->hand.head; l; l = l->next)
        n += ((NrdJsGot *)l->data)->partition == partition;
    g_mutex_unlock(&pulls->lock);
    return n;
}

/* What is leased and not taken stays for half its time. */
void nrd_js_hand_put_locked(NrdJsPulls *pulls, NrdJsGot *got)
{
    got->until_ms = got->came_ms + MIN(nrd_js_leases_wait_ms(got->partition) / 2, HAND_MAX_MS);
    g_queue_push_tail(&pulls->hand, got);
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, got->until_ms);
}

NrdJsTake *nrd_js_hand_longest_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    NrdJsTake *longest = NULL;
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        NrdJsTake *take = data;
        if (nrd_js_take_wants(take, partition) && take->deliver && (!longest || take->number < longest->number))
            longest = take;
    }
    return longest;
}

void nrd_js_hand_serve(NrdJsPulls *pulls, NrdPartition *partition)
{
    NrdJsTake *take = NULL;
    do {
        g_mutex_lock(&pulls->lock);
        bool has = nrd_js_hand_has_locked(pulls, partition);
        take = has ? nrd_js_hand_longest_locked(pulls, partition) : NULL;
        NrdJsGot *got = take ? nrd_js_hand_take_locked(pulls, partition) : NULL;
        if (take)
            nrd_js_take_leave_locked(pulls, take);
        g_mutex_unlock(&pulls->lock);
        if (take) {
            nrd_js_pull_answer_later(pulls, (NrdJsAnswer){ take->deliver, take->user_data, 0, got });
            nrd_js_take_free(take);
        }
    } while (take);
}

GPtrArray *nrd_js_hand_stale_locked(NrdJsPulls *pulls, int64_t now_ms)
{
    GPtrArray *stale = g_ptr_array_new();
    for (GList *l = pulls->hand.head; l;) {
        GList *next = l->next;
        if (((NrdJsGot *)l->data)->until_ms <= now_ms) {
            g_ptr_array_add(stale, l->data);
            g_queue_delete_link(&pulls->hand, l);
        }
        l = next;
    }
    return stale;
}

GPtrArray *nrd_js_hand_forget_locked(NrdJsPulls *pulls, const NrdPartition *partition)
{
    GPtrArray *forgotten = g_ptr_array_new();
    NrdJsGot *got;
    while ((got = nrd_js_hand_take_locked(pulls, partition)))
        g_ptr_array_add(forgotten, got);
    return forgotten;
}
