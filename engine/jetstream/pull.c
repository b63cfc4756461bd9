/* Waiting for records, on one partition or on any of a topic.
 *
 * A take first looks into the hand: records that this daemon has leased and nobody has taken yet. Else it asks the servers:
 * one that does not wait asks each partition in turn for what is there now; one that waits parks a pull at each partition, on
 * an inbox of its own. Whoever gives up unsubscribes that inbox, and the servers pass it over: the record goes to the next.
 * One that comes all the same, because it was under way, is given back at once.
 *
 * A parked pull lasts five seconds at the servers and is then asked for again, on a new inbox: a pull may be lost with the
 * server that kept it, and nobody says so.
 *
 * poll(2) has to know whether there is a record, which only a pull can tell. So a watch sends a scout, which takes a record
 * into the hand; there it waits a while for the read that follows, and is given back when none comes.
 *
 * Locks: one for all of it, memory only; nothing is sent and nobody called with it held. */
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"

#define PULL_MS 5000  /* how long the servers keep a pull */
#define RENEW_MS 6000 /* ... and when it is asked for again at the latest */
#define AGAIN_MS 250  /* after an answer that means: not now */
#define LOOK_MS 2500  /* for the answer to a pull that does not wait */
#define HAND_MAX_MS 10000
#define LAG_MS 30 /* how long a consumer may be behind its stream */

static const char now_json[] = "{\"batch\":1,\"no_wait\":true}";

enum {
    STATE_NEW,       /* not entered take yet */
    STATE_CANCELLED, /* ... and never will wait */
    STATE_PARKED,
    STATE_DONE,
};

/* A record that was delivered to this daemon. */
typedef struct Got {
    NrdPartition *partition; /* a reference to its topic */
    natsMsg *msg;
    int64_t until_ms; /* in the hand: monotonic */
} Got;

typedef struct Watchers Watchers;

/* One who waits. Found by its number, which changes with its inbox. */
typedef struct Take {
    uint64_t number;
    NrdTopic *topic;         /* referenced */
    NrdPartition *partition; /* NULL: any of the topic */
    NrdWaiter *waiter;       /* NULL: a scout */
    Watchers *watchers;      /* whose scout it is */
    NrdDeliverFn deliver;
    void *user_data;
    bool waits;
    uint32_t first, n_asked; /* where it began to ask what is there now, and how many have said that nothing is */
    int64_t deadline_ms;     /* monotonic; INT64_MAX: for ever */
    int64_t renew_ms;        /* when an answer is overdue; INT64_MAX: none is awaited */
    natsSubscription *inbox;
    char *reply;            /* its subject */
    bool again, asks_again; /* it has found nothing once, and waits to ask anew: see ask_again_locked */
} Take;

/* Those who watch a partition or a topic. */
struct Watchers {
    void *source; /* an NrdPartition or an NrdTopic; the key */
    GQueue watches;
    Take *scout;
};

struct NrdJsPulls {
    NrdEngine *engine;
    char *inbox; /* what all inboxes begin with */
    NrdTimer timer;
    GMutex lock;
    /* guarded by lock */
    GHashTable *takes; /* of Take, by number */
    uint64_t next_number;
    GQueue hand;          /* of Got, the oldest first */
    GHashTable *watchers; /* of Watchers, by source */
};

static void on_timer(void *user_data);
static void start_later(NrdJsPulls *pulls, uint64_t number);
static void nothing_there(NrdJsPulls *pulls, uint64_t number, int error);
static bool is_parked(const Take *take);

/* ---- records ---- */

static Got *got_new(NrdPartition *partition, natsMsg *msg)
{
    Got *got = g_new0(Got, 1);
    got->partition = partition;
    got->msg = msg;
    nrd_js_topic_ref(partition->topic);
    return got;
}

static void got_free(Got *got)
{
    NrdTopic *topic = got->partition->topic;
    natsMsg_Destroy(got->msg);
    g_free(got);
    nrd_js_topic_unref(topic);
}

static void give_back(Got *got)
{
    nrd_js_give_back(got->partition->topic->engine, natsMsg_GetReply(got->msg));
    got_free(got);
}

static bool is_record(natsMsg *msg)
{
    const char *reply = natsMsg_GetReply(msg);
    return reply && g_str_has_prefix(reply, "$JS.ACK.");
}

/* The delivery of a record, under a lease that begins now. false: its subject means nothing. The bytes are the message's; the
 * key is the caller's (g_free). */
static bool lease(Got *got, NrdDelivery *ret_delivery, uint8_t **ret_key)
{
    NrdJsAckSubject parts;
    const char *reply = natsMsg_GetReply(got->msg);
    const char *key = NULL;
    size_t key_size;
    if (nrd_js_parse_ack(reply, &parts) < 0)
        return false;
    (void)natsMsgHeader_Get(got->msg, NRD_JS_KEY_HEADER, &key);
    nrd_js_decode_key(key, ret_key, &key_size);
    *ret_delivery = (NrdDelivery){
        .partition = got->partition->number,
        .offset = parts.sequence - 1,
        .nonce = nrd_js_lease_add(got->partition, parts.sequence - 1, reply),
        .timestamp_ms = parts.time_ns / 1000000,
        .key = *ret_key,
        .key_size = key_size,
        .payload = (const uint8_t *)natsMsg_GetData(got->msg),
        .payload_size = (size_t)natsMsg_GetDataLength(got->msg),
    };
    nrd_js_partition_grew(got->partition, parts.sequence, false);
    return true;
}

static void hand_over(Got *got, NrdDeliverFn deliver, void *user_data)
{
    NrdDelivery delivery;
    g_autofree uint8_t *key = NULL;
    if (lease(got, &delivery, &key))
        deliver(user_data, 0, &delivery);
    else
        deliver(user_data, -EIO, NULL);
    got_free(got);
}

/* What a thread that may block has to say to one who waits. */
typedef struct Answer {
    NrdDeliverFn deliver;
    void *user_data;
    int error;
    Got *got; /* NULL with an error */
} Answer;

static void run_answer(void *user_data)
{
    Answer *answer = user_data;
    if (answer->got)
        hand_over(answer->got, answer->deliver, answer->user_data);
    else
        answer->deliver(answer->user_data, answer->error, NULL);
    g_free(answer);
}

static void answer_later(NrdJsPulls *pulls, Answer answer)
{
    nrd_js_later(pulls->engine->conn, run_answer, g_memdup2(&answer, sizeof answer));
}

/* ---- the hand ---- */

static bool is_of(const NrdPartition *partition, const void *source)
{
    return partition == source || partition->topic == source;
}

/* The oldest record in the hand of a partition or topic; the caller's, or NULL. */
static Got *from_hand_locked(NrdJsPulls *pulls, const void *source)
{
    for (GList *l = pulls->hand.head; l; l = l->next) {
        Got *got = l->data;
        if (!is_of(got->partition, source))
            continue;
        g_queue_delete_link(&pulls->hand, l);
        return got;
    }
    return NULL;
}

static bool in_hand_locked(NrdJsPulls *pulls, const void *source)
{
    for (GList *l = pulls->hand.head; l; l = l->next)
        if (is_of(((Got *)l->data)->partition, source))
            return true;
    return false;
}

/* What is leased and not taken stays for half its time. */
static void put_in_hand_locked(NrdJsPulls *pulls, Got *got)
{
    int64_t timeout_ms = nrd_js_topic_config(got->partition->topic).visibility_timeout_ms;
    got->until_ms = nrd_clock_mono_ms() + MIN(timeout_ms / 2, HAND_MAX_MS);
    g_queue_push_tail(&pulls->hand, got);
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, got->until_ms);
}

/* ---- takes ---- */

/* Out of the table: nobody else finds it any more, and the waiter is its owner's. */
static void leave_locked(NrdJsPulls *pulls, Take *take)
{
    g_hash_table_remove(pulls->takes, &take->number);
    if (take->waiter)
        take->waiter->state = STATE_DONE;
    if (take->watchers)
        take->watchers->scout = NULL;
}

/* After it has left. The servers see the inbox go. */
static void free_take(Take *take)
{
    natsSubscription_Destroy(take->inbox);
    nrd_js_topic_unref(take->topic);
    g_free(take->reply);
    g_free(take);
}

static void finish(NrdJsPulls *pulls, Take *take, int error)
{
    if (take->deliver)
        answer_later(pulls, (Answer){ take->deliver, take->user_data, error, NULL });
    free_take(take);
}

static Take *add_take_locked(NrdJsPulls *pulls, NrdTopic *topic, NrdPartition *partition)
{
    Take *take = g_new0(Take, 1);
    take->number = pulls->next_number++;
    take->topic = nrd_js_topic_ref(topic);
    take->partition = partition;
    take->deadline_ms = INT64_MAX;
    take->renew_ms = INT64_MAX;
    g_hash_table_insert(pulls->takes, &take->number, take);
    return take;
}

/* The error of a partition or topic that nothing can be taken from, or 0. */
static int why_not(NrdEngine *engine, NrdTopic *topic, NrdPartition *partition)
{
    int rc = partition ? nrd_js_partition_usable(partition) : nrd_js_topic_usable(topic);
    return rc == 0 && atomic_load(&engine->stopping) ? -ENODEV : rc;
}

/* ---- watches ---- */

/* The lock is held on entry and exit, not between: a watch is out of the list, hence its owner's, before it is called. */
static void fire_locked(NrdJsPulls *pulls, Watchers *watchers)
{
    GQueue fired = watchers->watches;
    g_queue_init(&watchers->watches);
    while (!g_queue_is_empty(&fired)) {
        NrdWatch *watch = fired.head->data;
        void (*notify)(void *) = watch->notify;
        void *user_data = watch->user_data;
        g_queue_unlink(&fired, &watch->link);
        watch->set = false;
        nrd_js_later(pulls->engine->conn, notify, user_data);
    }
}

static void fire_source_locked(NrdJsPulls *pulls, const void *source)
{
    Watchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    if (watchers)
        fire_locked(pulls, watchers);
}

/* ---- what the servers answer ---- */

static Take *find_take_locked(NrdJsPulls *pulls, uint64_t number)
{
    return g_hash_table_lookup(pulls->takes, &number);
}

/* A record for a take; or for nobody, when it has left. */
static void take_record(NrdJsPulls *pulls, uint64_t number, NrdPartition *partition, natsMsg *msg)
{
    Got *got = got_new(partition, msg);
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    if (take)
        leave_locked(pulls, take);
    if (take && !take->deliver) {
        put_in_hand_locked(pulls, g_steal_pointer(&got));
        fire_source_locked(pulls, partition);
        fire_source_locked(pulls, partition->topic);
    }
    g_mutex_unlock(&pulls->lock);
    if (take && got)
        answer_later(pulls, (Answer){ take->deliver, take->user_data, 0, got });
    else if (got)
        give_back(got);
    if (take)
        free_take(take);
}

static void renew_at_locked(NrdJsPulls *pulls, Take *take, int64_t after_ms)
{
    take->renew_ms = nrd_clock_mono_ms() + after_ms;
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, MIN(take->renew_ms, take->deadline_ms));
}

static bool has_status(natsMsg *msg, const char *status)
{
    const char *value = NULL;
    return natsMsgHeader_Get(msg, "Status", &value) == NATS_OK && strcmp(value, status) == 0;
}

/* What an inbox's messages are for. Freed when none comes any more. */
typedef struct Inbox {
    NrdJsPulls *pulls;
    uint64_t number;
} Inbox;

static void free_inbox(void *user_data)
{
    g_free(user_data);
}

/* The partition of a record, of a take's topic (referenced), or NULL. */
static NrdPartition *partition_of_record(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    NrdJsAckSubject parts;
    NrdPartition *partition = NULL;
    if (nrd_js_parse_ack(natsMsg_GetReply(msg), &parts) < 0)
        return NULL;
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    if (take)
        partition = nrd_js_topic_partition(take->topic, parts.partition);
    if (partition)
        nrd_js_topic_ref(partition->topic);
    g_mutex_unlock(&pulls->lock);
    return partition;
}

static void on_record(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    NrdPartition *partition = partition_of_record(pulls, number, msg);
    if (!partition) { /* whoever asked is gone */
        nrd_js_give_back(pulls->engine, natsMsg_GetReply(msg));
        natsMsg_Destroy(msg);
        return;
    }
    NrdTopic *topic = partition->topic;
    take_record(pulls, number, partition, msg);
    nrd_js_topic_unref(topic);
}

/* No record: nothing there (404), the pull's time at the servers is over (408), or the consumer has no leader now, or is gone. */
static void on_status(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    bool nobody = natsMsg_IsNoResponders(msg);
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    bool parked = take && is_parked(take);
    if (take && nobody && take->partition)
        atomic_store(&take->partition->has_consumer, false);
    if (parked)
        renew_at_locked(pulls, take, has_status(msg, "408") ? 0 : AGAIN_MS);
    g_mutex_unlock(&pulls->lock);
    natsMsg_Destroy(msg);
    if (take && !parked)
        nothing_there(pulls, number, nobody ? -EIO : -EAGAIN);
}

static void on_inbox(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    const Inbox *inbox = user_data;
    if (is_record(msg))
        on_record(inbox->pulls, inbox->number, msg);
    else
        on_status(inbox->pulls, inbox->number, msg);
}

/* ---- asking ---- */

static void ask(NrdPartition *partition, const char *reply, const char *json)
{
    g_autofree char *subject = g_strdup_printf("$JS.API.CONSUMER.MSG.NEXT.%s." NRD_JS_CONSUMER, partition->stream);
    nrd_js_tell(partition->topic->engine->conn, subject, reply, json);
}

static void ask_to_park(NrdPartition *partition, const char *reply)
{
    g_autofree char *json =
        g_strdup_printf("{\"batch\":1,\"expires\":%" G_GINT64_FORMAT "}", PULL_MS * INT64_C(1000000));
    ask(partition, reply, json);
}

/* The partitions of a take (g_ptr_array_unref), each with its consumer. Blocks when one has to be made. */
static GPtrArray *partitions_of(NrdTopic *topic, NrdPartition *partition, int *ret_error)
{
    GPtrArray *all = g_ptr_array_new();
    uint32_t n = partition ? 1 : nrd_js_topic_n_partitions(topic);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        NrdPartition *one = partition ? partition : nrd_js_topic_partition(topic, i);
        rc = nrd_js_partition_need_consumer(one);
        g_ptr_array_add(all, one);
    }
    *ret_error = rc;
    return all;
}

/* The partition that is asked next for what is there now; NULL: all have been. */
static NrdPartition *next_to_ask_locked(const Take *take)
{
    uint32_t n = take->partition ? 1 : nrd_js_topic_n_partitions(take->topic);
    if (take->n_asked >= n)
        return NULL;
    return take->partition ? take->partition : nrd_js_topic_partition(take->topic, (take->first + take->n_asked) % n);
}

static bool is_parked(const Take *take)
{
    return next_to_ask_locked(take) == NULL;
}

static bool may_lag(const Take *take)
{
    uint32_t n = take->partition ? 1 : nrd_js_topic_n_partitions(take->topic);
    for (uint32_t i = 0; i < n; i++)
        if (nrd_js_partition_may_lag(take->partition ? take->partition : nrd_js_topic_partition(take->topic, i)))
            return true;
    return false;
}

/* Who has just written here and does not wait would find nothing of it for a moment: all partitions are asked once more. */
static bool ask_again_locked(NrdJsPulls *pulls, Take *take)
{
    if (take->again || !may_lag(take))
        return false;
    take->again = take->asks_again = true;
    take->n_asked = 0;
    renew_at_locked(pulls, take, LAG_MS);
    return true;
}

/* The next partition is asked, or the wait begins, or it ends with this error. */
static void nothing_there(NrdJsPulls *pulls, uint64_t number, int error)
{
    NrdPartition *next = NULL;
    bool over = false, again = false;
    g_autofree char *reply = NULL;
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take) {
        take->n_asked++;
        next = next_to_ask_locked(take);
        again = !next && !take->waits && ask_again_locked(pulls, take);
        over = !next && !take->waits && !again;
        reply = g_strdup(take->reply);
    }
    if (next)
        renew_at_locked(pulls, take, LOOK_MS);
    if (over)
        leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (next)
        ask(next, reply, now_json);
    else if (over)
        finish(pulls, take, error);
    else if (topic && !again)
        start_later(pulls, number); /* it may have to make a consumer */
    nrd_js_topic_unref(topic);
}

/* A new number, under which an inbox is made; the old inbox is nobody's from here on. */
static natsSubscription *renumber_locked(NrdJsPulls *pulls, Take *take)
{
    natsSubscription *old = take->inbox;
    g_hash_table_remove(pulls->takes, &take->number);
    take->number = pulls->next_number++;
    g_hash_table_insert(pulls->takes, &take->number, take);
    take->inbox = NULL;
    g_free(take->reply);
    take->reply = g_strdup_printf("%s%" G_GUINT64_FORMAT, pulls->inbox, take->number);
    renew_at_locked(pulls, take, is_parked(take) ? RENEW_MS : LOOK_MS);
    return old;
}

/* What a thread needs of a take while the lock is not held. */
typedef struct Asking {
    uint64_t number;
    NrdTopic *topic; /* referenced */
    NrdPartition *partition;
    NrdPartition *next; /* to be asked what is there now; NULL: park */
    char *reply;
} Asking;

static natsSubscription *subscribe(NrdJsPulls *pulls, const Asking *asking)
{
    natsSubscription *sub = NULL;
    Inbox *inbox = g_new(Inbox, 1);
    *inbox = (Inbox){ pulls, asking->number };
    natsStatus s =
        natsConnection_Subscribe(&sub, nrd_js_conn_nats(pulls->engine->conn), asking->reply, on_inbox, inbox);
    if (s != NATS_OK)
        g_free(inbox);
    else
        (void)natsSubscription_SetOnCompleteCB(sub, free_inbox, inbox); /* it fails of a closed one only */
    return sub;
}

/* false: the take has gone. */
static bool keep_inbox(NrdJsPulls *pulls, uint64_t number, natsSubscription *sub)
{
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    if (take)
        take->inbox = sub;
    g_mutex_unlock(&pulls->lock);
    if (!take)
        natsSubscription_Destroy(sub);
    return take != NULL;
}

/* The inbox is the take's before anything is asked: an answer may end it at once. Without a connection there is none, and it
 * is tried again when an answer is overdue. */
static void ask_all(NrdJsPulls *pulls, const Asking *asking, const GPtrArray *partitions)
{
    natsSubscription *sub = subscribe(pulls, asking);
    if (!sub || !keep_inbox(pulls, asking->number, sub))
        return;
    if (asking->next)
        ask(asking->next, asking->reply, now_json);
    for (guint i = 0; i < partitions->len && !asking->next; i++)
        ask_to_park(partitions->pdata[i], asking->reply);
}

static void fail_take(NrdJsPulls *pulls, uint64_t number, int error)
{
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    if (take)
        leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (take)
        finish(pulls, take, error);
}

/* Asks for a take, on a new inbox. May block: for consumers that have to be made. */
static void start(NrdJsPulls *pulls, uint64_t number)
{
    natsSubscription *old = NULL;
    Asking asking = { .topic = NULL };
    g_mutex_lock(&pulls->lock);
    Take *take = find_take_locked(pulls, number);
    if (take) {
        old = renumber_locked(pulls, take);
        asking = (Asking){ take->number, nrd_js_topic_ref(take->topic), take->partition, next_to_ask_locked(take),
                           g_strdup(take->reply) };
    }
    g_mutex_unlock(&pulls->lock);
    natsSubscription_Destroy(old);
    if (!asking.topic)
        return;
    int rc;
    g_autoptr(GPtrArray) partitions = partitions_of(asking.topic, asking.partition, &rc);
    if (rc < 0)
        fail_take(pulls, asking.number, rc);
    else
        ask_all(pulls, &asking, partitions);
    nrd_js_topic_unref(asking.topic);
    g_free(asking.reply);
}

static void start_later_fn(void *user_data)
{
    Inbox *start_of = user_data;
    start(start_of->pulls, start_of->number);
    g_free(start_of);
}

static void start_later(NrdJsPulls *pulls, uint64_t number)
{
    Inbox *start_of = g_new(Inbox, 1);
    *start_of = (Inbox){ pulls, number };
    nrd_js_later(pulls->engine->conn, start_later_fn, start_of);
}

/* ---- time ---- */

/* Who has waited long enough, in `over`; who is to ask again, in `renew`, and who got no answer to what is there now, in
 * `silent` (numbers); the next time. */
static int64_t look_locked(NrdJsPulls *pulls, int64_t now_ms, GPtrArray *over, GArray *renew, GArray *silent)
{
    GHashTableIter iter;
    gpointer data;
    int64_t next_ms = INT64_MAX;
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        Take *take = data;
        if (take->deadline_ms <= now_ms) {
            g_ptr_array_add(over, take);
        } else if (take->renew_ms <= now_ms) {
            bool ask_anew = is_parked(take) || take->asks_again;
            take->asks_again = false;
            g_array_append_val(ask_anew ? renew : silent, take->number);
            take->renew_ms = now_ms + RENEW_MS;
        } else {
            next_ms = MIN(next_ms, MIN(take->deadline_ms, take->renew_ms));
        }
    }
    for (guint i = 0; i < over->len; i++)
        leave_locked(pulls, over->pdata[i]);
    return next_ms;
}

static GPtrArray *stale_in_hand_locked(NrdJsPulls *pulls, int64_t now_ms)
{
    GPtrArray *stale = g_ptr_array_new();
    for (GList *l = pulls->hand.head; l;) {
        GList *next = l->next;
        if (((Got *)l->data)->until_ms <= now_ms) {
            g_ptr_array_add(stale, l->data);
            g_queue_delete_link(&pulls->hand, l);
        }
        l = next;
    }
    return stale;
}

static void on_timer(void *user_data)
{
    NrdJsPulls *pulls = user_data;
    g_autoptr(GPtrArray) over = g_ptr_array_new();
    g_autoptr(GArray) renew = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(GArray) silent = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_mutex_lock(&pulls->lock);
    int64_t now_ms = nrd_clock_mono_ms();
    int64_t next_ms = look_locked(pulls, now_ms, over, renew, silent);
    g_autoptr(GPtrArray) stale = stale_in_hand_locked(pulls, now_ms);
    for (GList *l = pulls->hand.head; l; l = l->next)
        next_ms = MIN(next_ms, ((Got *)l->data)->until_ms);
    if (next_ms != INT64_MAX)
        nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, next_ms);
    g_mutex_unlock(&pulls->lock);
    for (guint i = 0; i < over->len; i++)
        finish(pulls, over->pdata[i], -ETIMEDOUT);
    for (guint i = 0; i < stale->len; i++)
        give_back(stale->pdata[i]);
    for (guint i = 0; i < renew->len; i++)
        start_later(pulls, g_array_index(renew, uint64_t, i));
    for (guint i = 0; i < silent->len; i++)
        nothing_there(pulls, g_array_index(silent, uint64_t, i), -EAGAIN);
}

/* ---- life ---- */

NrdJsPulls *nrd_js_pulls_new(NrdEngine *engine)
{
    NrdJsPulls *pulls = g_new0(NrdJsPulls, 1);
    g_autofree char *inbox = nrd_js_new_inbox(engine->conn);
    pulls->engine = engine;
    pulls->inbox = g_strconcat(inbox, ".", NULL);
    pulls->takes = g_hash_table_new(g_int64_hash, g_int64_equal);
    pulls->watchers = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
    g_queue_init(&pulls->hand);
    g_mutex_init(&pulls->lock);
    nrd_timer_init(&pulls->timer, on_timer, pulls, false);
    return pulls;
}

void nrd_js_pulls_free(NrdJsPulls *pulls)
{
    if (!pulls)
        return;
    nrd_timer_drain(pulls->engine->timers, &pulls->timer);
    g_queue_clear_full(&pulls->hand, (GDestroyNotify)got_free);
    g_hash_table_unref(pulls->takes);
    g_hash_table_unref(pulls->watchers);
    g_mutex_clear(&pulls->lock);
    g_free(pulls->inbox);
    g_free(pulls);
}

static GPtrArray *interrupted_locked(NrdJsPulls *pulls, const NrdTopic *topic)
{
    GPtrArray *found = g_ptr_array_new();
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data))
        if (!topic || ((Take *)data)->topic == topic)
            g_ptr_array_add(found, data);
    for (guint i = 0; i < found->len; i++)
        leave_locked(pulls, found->pdata[i]);
    return found;
}

/* Also what is in the hand goes back: nobody comes for it. */
void nrd_js_pulls_interrupt(NrdJsPulls *pulls, NrdTopic *topic, int error)
{
    GHashTableIter iter;
    gpointer source, watchers;
    Got *got;
    g_autoptr(GPtrArray) back = g_ptr_array_new();
    g_mutex_lock(&pulls->lock);
    g_autoptr(GPtrArray) takes = interrupted_locked(pulls, topic);
    while (!topic && (got = g_queue_pop_head(&pulls->hand)))
        g_ptr_array_add(back, got);
    g_hash_table_iter_init(&iter, pulls->watchers);
    while (g_hash_table_iter_next(&iter, &source, &watchers))
        fire_locked(pulls, watchers); /* who watches something else looks and watches on */
    g_mutex_unlock(&pulls->lock);
    for (guint i = 0; i < takes->len; i++)
        finish(pulls, takes->pdata[i], error);
    for (guint i = 0; i < back->len; i++)
        give_back(back->pdata[i]);
}

/* What was parked went with the connection. */
void nrd_js_pulls_reconnected(NrdJsPulls *pulls)
{
    GHashTableIter iter;
    gpointer data;
    g_mutex_lock(&pulls->lock);
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data))
        if (((Take *)data)->renew_ms != INT64_MAX)
            renew_at_locked(pulls, data, 0);
    g_mutex_unlock(&pulls->lock);
}

/* ---- taking ---- */

static int64_t deadline_after(int64_t wait_ms)
{
    return wait_ms < 0 ? INT64_MAX : nrd_clock_mono_ms() + wait_ms + 1;
}

/* One partition is asked to park at once; of several each is first asked for what is there. */
static Take *begin_locked(NrdJsPulls *pulls, NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter,
                          int64_t wait_ms)
{
    Take *take = add_take_locked(pulls, topic, partition);
    take->waiter = waiter;
    take->waits = wait_ms != 0;
    take->n_asked = partition && take->waits ? 1 : 0;
    take->first = atomic_fetch_add(&topic->turn, 1);
    if (take->waits)
        take->deadline_ms = deadline_after(wait_ms);
    if (take->deadline_ms != INT64_MAX)
        nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, take->deadline_ms);
    if (!waiter)
        return take;
    take->deliver = waiter->deliver;
    take->user_data = waiter->user_data;
    waiter->state = STATE_PARKED;
    waiter->link.data = take;
    return take;
}

static void take(NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                 void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    Got *got = NULL;
    uint64_t number = 0;
    int rc = why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    bool cancelled = waiter->state == STATE_CANCELLED;
    waiter->deliver = deliver;
    waiter->user_data = user_data;
    waiter->state = STATE_DONE;
    rc = cancelled ? -EINTR : rc;
    if (rc == 0)
        got = from_hand_locked(pulls, partition ? (void *)partition : (void *)topic);
    if (rc == 0 && !got)
        number = begin_locked(pulls, topic, partition, waiter, wait_ms)->number;
    g_mutex_unlock(&pulls->lock);
    if (rc < 0)
        deliver(user_data, rc, NULL);
    else if (got)
        hand_over(got, deliver, user_data);
    else
        start_later(pulls, number);
}

static bool cancel(NrdJsPulls *pulls, NrdWaiter *waiter)
{
    Take *take = NULL;
    g_mutex_lock(&pulls->lock);
    if (waiter->state == STATE_PARKED) {
        take = waiter->link.data;
        leave_locked(pulls, take);
    } else if (waiter->state == STATE_NEW) {
        waiter->state = STATE_CANCELLED;
    }
    g_mutex_unlock(&pulls->lock);
    if (take)
        free_take(take);
    return take != NULL;
}

/* ---- what is there now, at once ---- */

#define FEW 8
#define MANY 256
#define SILENCE_MS 100
#define LAST_MS 10

/* How long to wait for the next record of a round. The servers send what is there without a pause, and say nothing when there
 * is no more: that shows in the record that was the last, or, when somebody else was faster, in the silence. */
static int64_t next_ms(const GPtrArray *gots)
{
    NrdJsAckSubject parts;
    const Got *last = gots->len > 0 ? gots->pdata[gots->len - 1] : NULL;
    if (!last || nrd_js_parse_ack(natsMsg_GetReply(last->msg), &parts) < 0)
        return LOOK_MS;
    return parts.n_pending == 0 ? LAST_MS : SILENCE_MS;
}

/* The answers to one request for n records that are there now: so many, or fewer, or a word that there is none. */
static int collect(NrdPartition *partition, natsSubscription *sub, guint n, GPtrArray *gots)
{
    natsStatus s = NATS_OK;
    bool over = false;
    while (!over && gots->len < n) {
        natsMsg *msg = NULL;
        s = natsSubscription_NextMsg(&msg, sub, next_ms(gots));
        over = s != NATS_OK || !is_record(msg);
        if (!over)
            g_ptr_array_add(gots, got_new(partition, g_steal_pointer(&msg)));
        natsMsg_Destroy(msg);
    }
    return s == NATS_OK ? 0 : s == NATS_TIMEOUT ? -ETIMEDOUT : -EIO;
}

/* Appends up to n records of the partition to `gots`. A partition all of whose slots are taken does not answer at all. */
static int pull_once(NrdPartition *partition, guint n, GPtrArray *gots)
{
    NrdEngine *engine = partition->topic->engine;
    natsSubscription *sub = NULL;
    int rc = nrd_js_partition_need_consumer(partition);
    if (rc < 0)
        return rc;
    g_autofree char *inbox = nrd_js_new_inbox(engine->conn);
    if (natsConnection_SubscribeSync(&sub, nrd_js_conn_nats(engine->conn), inbox) != NATS_OK)
        return -EIO;
    g_autofree char *json = g_strdup_printf("{\"batch\":%u,\"no_wait\":true}", n);
    ask(partition, inbox, json);
    rc = collect(partition, sub, n, gots);
    natsSubscription_Destroy(sub);
    if (rc == -EIO)
        atomic_store(&partition->has_consumer, false); /* nobody answers for it */
    return gots->len > 0 || rc == -ETIMEDOUT ? 0 : rc;
}

/* See ask_again_locked. */
static int pull_now(NrdPartition *partition, guint n, GPtrArray *gots)
{
    int rc = pull_once(partition, n, gots);
    if (rc < 0 || gots->len > 0 || !nrd_js_partition_may_lag(partition))
        return rc;
    g_usleep(LAG_MS * 1000);
    return pull_once(partition, n, gots);
}

static void return_to_hand(NrdJsPulls *pulls, GPtrArray *gots, guint from)
{
    g_mutex_lock(&pulls->lock);
    for (guint i = from; i < gots->len; i++)
        put_in_hand_locked(pulls, gots->pdata[i]);
    g_mutex_unlock(&pulls->lock);
}

/* false: there is no room for it. */
static bool copy_out(Got *got, NrdBatch *batch)
{
    NrdDelivery delivery;
    g_autofree uint8_t *key = NULL;
    if (!lease(got, &delivery, &key))
        return true;
    size_t size = batch->copy(batch->user_data, &delivery);
    NrdHold hold = {
        .partition = delivery.partition, .note = (uint32_t)size, .offset = delivery.offset, .nonce = delivery.nonce
    };
    if (size > 0)
        g_array_append_val(batch->holds, hold);
    else
        batch->full = true;
    return size > 0;
}

/* What does not fit goes to the hand, where the next read finds it. */
static void copy_all(NrdJsPulls *pulls, GPtrArray *gots, NrdBatch *batch)
{
    guint i = 0;
    while (i < gots->len && copy_out(gots->pdata[i], batch))
        got_free(gots->pdata[i++]);
    return_to_hand(pulls, gots, i);
}

static void copy_hand(NrdJsPulls *pulls, const void *source, NrdBatch *batch)
{
    g_autoptr(GPtrArray) gots = g_ptr_array_new();
    Got *got;
    g_mutex_lock(&pulls->lock);
    while ((got = from_hand_locked(pulls, source)))
        g_ptr_array_add(gots, got);
    g_mutex_unlock(&pulls->lock);
    copy_all(pulls, gots, batch);
}

static int take_batch(NrdPartition *partition, NrdBatch *batch)
{
    NrdJsPulls *pulls = partition->topic->engine->pulls;
    int rc = why_not(partition->topic->engine, partition->topic, partition);
    if (rc == 0)
        copy_hand(pulls, partition, batch);
    for (guint n = FEW; rc == 0 && !batch->full; n = MIN(2 * n, MANY)) {
        g_autoptr(GPtrArray) gots = g_ptr_array_new();
        rc = pull_now(partition, n, gots);
        guint n_got = gots->len;
        copy_all(pulls, gots, batch);
        if (n_got < n)
            break;
    }
    return rc;
}

/* One that is there, on this thread. */
static void take_sure(NrdTopic *topic, NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    uint32_t n = partition ? 1 : nrd_js_topic_n_partitions(topic);
    uint32_t first = atomic_fetch_add(&topic->turn, 1);
    g_autoptr(GPtrArray) gots = g_ptr_array_new();
    int rc = why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    Got *got = rc == 0 ? from_hand_locked(pulls, partition ? (void *)partition : (void *)topic) : NULL;
    g_mutex_unlock(&pulls->lock);
    for (uint32_t i = 0; rc == 0 && !got && gots->len == 0 && i < n; i++)
        rc = pull_now(partition ? partition : nrd_js_topic_partition(topic, (first + i) % n), 1, gots);
    if (gots->len > 0)
        got = gots->pdata[0];
    if (got)
        hand_over(got, deliver, user_data);
    else
        deliver(user_data, rc < 0 ? rc : -EAGAIN, NULL);
}

/* ---- watching ---- */

static Watchers *watchers_locked(NrdJsPulls *pulls, void *source)
{
    Watchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    if (watchers)
        return watchers;
    watchers = g_new0(Watchers, 1);
    watchers->source = source;
    g_queue_init(&watchers->watches);
    g_hash_table_insert(pulls->watchers, source, watchers);
    return watchers;
}

static void watch_set(NrdTopic *topic, NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data),
                      void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    void *source = partition ? (void *)partition : (void *)topic;
    uint64_t number = 0;
    bool scout = false;
    int rc = why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    Watchers *watchers = watchers_locked(pulls, source);
    watch->notify = notify;
    watch->user_data = user_data;
    if (!watch->set) {
        watch->set = true;
        watch->link = (GList){ .data = watch };
        g_queue_push_tail_link(&watchers->watches, &watch->link);
    }
    if (rc < 0 || in_hand_locked(pulls, source)) {
        fire_locked(pulls, watchers);
    } else if (!watchers->scout) {
        watchers->scout = begin_locked(pulls, topic, partition, NULL, -1);
        watchers->scout->watchers = watchers;
        number = watchers->scout->number;
        scout = true;
    }
    g_mutex_unlock(&pulls->lock);
    if (scout)
        start_later(pulls, number);
}

/* The last one takes the scout along. */
static bool watch_clear(NrdTopic *topic, void *source, NrdWatch *watch)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    Take *scout = NULL;
    g_mutex_lock(&pulls->lock);
    Watchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    bool was_set = watch->set;
    if (was_set) {
        g_queue_unlink(&watchers->watches, &watch->link);
        watch->set = false;
    }
    if (was_set && watchers->watches.length == 0) {
        scout = watchers->scout;
        if (scout)
            leave_locked(pulls, scout);
        g_hash_table_remove(pulls->watchers, source);
    }
    g_mutex_unlock(&pulls->lock);
    if (scout)
        free_take(scout);
    return was_set;
}

static bool readable(NrdTopic *topic, NrdPartition *partition)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    if (why_not(topic->engine, topic, partition) < 0)
        return true;
    g_mutex_lock(&pulls->lock);
    bool there = in_hand_locked(pulls, partition ? (void *)partition : (void *)topic);
    g_mutex_unlock(&pulls->lock);
    return there;
}

/* ---- engine.h: of a partition ---- */

void nrd_js_partition_take(NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                           void *user_data)
{
    take(partition->topic, partition, waiter, wait_ms, deliver, user_data);
}

void nrd_js_partition_take_sure(NrdPartition *partition, NrdDeliverFn deliver, void *user_data)
{
    take_sure(partition->topic, partition, deliver, user_data);
}

int nrd_js_partition_take_batch(NrdPartition *partition, NrdBatch *batch)
{
    batch->full = false;
    return take_batch(partition, batch);
}

bool nrd_js_waiter_cancel(NrdPartition *partition, NrdWaiter *waiter)
{
    return cancel(partition->topic->engine->pulls, waiter);
}

bool nrd_js_partition_readable(NrdPartition *partition)
{
    return readable(partition->topic, partition);
}

void nrd_js_watch_set(NrdPartition *partition, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    watch_set(partition->topic, partition, watch, notify, user_data);
}

bool nrd_js_watch_clear(NrdPartition *partition, NrdWatch *watch)
{
    return watch_clear(partition->topic, partition, watch);
}

/* ---- of a topic ---- */

struct NrdTopicConsumer {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;             /* referenced */
};

int nrd_js_topic_consumer_open(NrdTopic *topic, NrdTopicConsumer **ret_consumer)
{
    int rc = why_not(topic->engine, topic, NULL);
    if (rc < 0)
        return rc;
    NrdTopicConsumer *consumer = g_new(NrdTopicConsumer, 1);
    *consumer = (NrdTopicConsumer){ &nrd_js_table, nrd_js_topic_ref(topic) };
    *ret_consumer = consumer;
    return 0;
}

void nrd_js_topic_consumer_close(NrdTopicConsumer *consumer)
{
    nrd_js_topic_unref(consumer->topic);
    g_free(consumer);
}

void nrd_js_topic_take(NrdTopicConsumer *consumer, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver,
                       void *user_data)
{
    take(consumer->topic, NULL, waiter, wait_ms, deliver, user_data);
}

void nrd_js_topic_take_sure(NrdTopicConsumer *consumer, NrdDeliverFn deliver, void *user_data)
{
    take_sure(consumer->topic, NULL, deliver, user_data);
}

int nrd_js_topic_take_batch(NrdTopicConsumer *consumer, NrdBatch *batch)
{
    NrdTopic *topic = consumer->topic;
    uint32_t n = nrd_js_topic_n_partitions(topic);
    uint32_t first = atomic_fetch_add(&topic->turn, 1);
    int rc = 0;
    batch->full = false;
    for (uint32_t i = 0; rc == 0 && !batch->full && i < n; i++)
        rc = take_batch(nrd_js_topic_partition(topic, (first + i) % n), batch);
    return batch->holds->len > 0 ? 0 : rc;
}

bool nrd_js_topic_take_cancel(NrdTopic *topic, NrdWaiter *waiter)
{
    return cancel(topic->engine->pulls, waiter);
}

bool nrd_js_topic_readable(NrdTopic *topic)
{
    return readable(topic, NULL);
}

void nrd_js_topic_watch_set(NrdTopic *topic, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    watch_set(topic, NULL, watch, notify, user_data);
}

bool nrd_js_topic_watch_clear(NrdTopic *topic, NrdWatch *watch)
{
    return watch_clear(topic, topic, watch);
}
