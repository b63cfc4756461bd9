/* What is asked of the servers for those who wait, and what they answer. See pull_private.h. */
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

#define GIVE_BACK_MS 500 /* to send back what came just now; its topic, and so its time, is not known any more */
#define PULL_MS 5000     /* how long the servers keep a pull */
#define AGAIN_MS 250     /* after an answer that means: not now */

static const char now_json[] = "{\"batch\":1,\"no_wait\":true}";

/* ---- watches ---- */

/* The lock is held on entry and exit, not between: a watch is out of the list, hence its owner's, before it is called. */
void nrd_js_watchers_fire_locked(NrdJsPulls *pulls, NrdJsWatchers *watchers)
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
    NrdJsWatchers *watchers = g_hash_table_lookup(pulls->watchers, source);
    if (watchers)
        nrd_js_watchers_fire_locked(pulls, watchers);
}

/* ---- what the servers answer ---- */

/* A record for a take; or for nobody, when it has left. */
static void take_record(NrdJsPulls *pulls, uint64_t number, NrdPartition *partition, natsMsg *msg)
{
    NrdJsGot *got = nrd_js_got_new(partition, msg, nrd_clock_mono_ms());
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take)
        nrd_js_take_leave_locked(pulls, take);
    if (take && !take->deliver) {
        nrd_js_hand_put_locked(pulls, g_steal_pointer(&got));
        fire_source_locked(pulls, partition);
        fire_source_locked(pulls, partition->topic);
    }
    g_mutex_unlock(&pulls->lock);
    nrd_js_hand_serve(pulls, partition);
    if (take && got)
        nrd_js_pull_answer_later(pulls, (NrdJsAnswer){ take->deliver, take->user_data, 0, got });
    else if (got)
        nrd_js_got_give_back(got);
    if (take)
        nrd_js_take_free(take);
}

void nrd_js_take_renew_locked(NrdJsPulls *pulls, NrdJsTake *take, int64_t after_ms)
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

/* The partition of that number of a take's topic (referenced), or NULL. */
static NrdPartition *partition_of(NrdJsPulls *pulls, uint64_t number, uint32_t partition_number)
{
    NrdPartition *partition = NULL;
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take)
        partition = nrd_js_topic_partition(take->topic, partition_number);
    if (partition)
        nrd_js_topic_ref(partition->topic);
    g_mutex_unlock(&pulls->lock);
    return partition;
}

/* What a consumer that was replaced meanwhile has sent is nothing any more; the take has been told to ask anew. */
static void on_record(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    NrdJsAckSubject parts;
    NrdPartition *partition = NULL;
    if (nrd_js_parse_ack(natsMsg_GetReply(msg), &parts) == 0)
        partition = partition_of(pulls, number, parts.partition);
    NrdTopic *topic = partition ? partition->topic : NULL;
    if (!partition) { /* whoever asked is gone */
        nrd_js_give_back(pulls->engine, natsMsg_GetReply(msg), nrd_clock_mono_ms() + GIVE_BACK_MS);
        natsMsg_Destroy(msg);
    } else if (parts.generation != nrd_js_leases_generation(partition)) {
        natsMsg_Destroy(msg);
    } else {
        take_record(pulls, number, partition, msg);
    }
    nrd_js_topic_unref(topic);
}

/* A take asks each partition under a subject of its own below its inbox. */
static char *subject_of(const char *inbox, const NrdPartition *partition)
{
    return g_strdup_printf("%s.%u", inbox, partition->number);
}

/* Nobody answers for a consumer (503), or it was deleted just now (409): by the next use of it it is looked for. */
static void doubt_consumer(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    const char *last = strrchr(natsMsg_GetSubject(msg), '.');
    guint64 partition_number;
    if (!last || !g_ascii_string_to_unsigned(last + 1, 10, 0, G_MAXUINT32, &partition_number, NULL))
        return;
    NrdPartition *partition = partition_of(pulls, number, (uint32_t)partition_number);
    if (!partition)
        return;
    NrdTopic *topic = partition->topic;
    nrd_js_consumer_doubt(partition);
    nrd_js_topic_unref(topic);
}

/* No record: nothing there (404), the pull's time at the servers is over (408), or the consumer has no leader now, or is gone. */
static void on_status(NrdJsPulls *pulls, uint64_t number, natsMsg *msg)
{
    bool nobody = natsMsg_IsNoResponders(msg);
    if (nobody || has_status(msg, "409"))
        doubt_consumer(pulls, number, msg);
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    bool parked = take && nrd_js_take_is_parked(take);
    if (take)
        take->nobody = nobody;
    if (parked)
        nrd_js_take_renew_locked(pulls, take, has_status(msg, "408") ? 0 : AGAIN_MS);
    g_mutex_unlock(&pulls->lock);
    natsMsg_Destroy(msg);
    if (take && !parked)
        nrd_js_take_found_nothing(pulls, number, nobody ? -EIO : -EAGAIN);
}

static void on_inbox(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data)
{
    const Inbox *inbox = user_data;
    if (nrd_js_is_record(msg))
        on_record(inbox->pulls, inbox->number, msg);
    else
        on_status(inbox->pulls, inbox->number, msg);
}

/* ---- asking ---- */

void nrd_js_ask_consumer(NrdPartition *partition, const char *reply, const char *json)
{
    g_autofree char *consumer = nrd_js_consumer_name(nrd_js_leases_generation(partition));
    g_autofree char *subject = g_strdup_printf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", partition->stream, consumer);
    nrd_js_tell(partition->topic->engine->conn, subject, reply, json);
}

static void ask_what_is_there(NrdPartition *partition, const char *inbox)
{
    g_autofree char *reply = subject_of(inbox, partition);
    nrd_js_ask_consumer(partition, reply, now_json);
}

static void ask_to_park(NrdPartition *partition, const char *inbox)
{
    g_autofree char *reply = subject_of(inbox, partition);
    g_autofree char *json =
        g_strdup_printf("{\"batch\":1,\"expires\":%" G_GINT64_FORMAT "}", PULL_MS * INT64_C(1000000));
    nrd_js_ask_consumer(partition, reply, json);
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
static NrdPartition *next_to_ask_locked(const NrdJsTake *take)
{
    uint32_t n = take->partition ? 1 : nrd_js_topic_n_partitions(take->topic);
    if (take->n_asked >= n)
        return NULL;
    return take->partition ? take->partition : nrd_js_topic_partition(take->topic, (take->first + take->n_asked) % n);
}

bool nrd_js_take_is_parked(const NrdJsTake *take)
{
    return next_to_ask_locked(take) == NULL;
}

static bool may_lag(const NrdJsTake *take)
{
    uint32_t n = take->partition ? 1 : nrd_js_topic_n_partitions(take->topic);
    for (uint32_t i = 0; i < n; i++)
        if (nrd_js_partition_may_lag(take->partition ? take->partition : nrd_js_topic_partition(take->topic, i)))
            return true;
    return false;
}

/* Who has just written here and does not wait would find nothing of it for a moment: all partitions are asked once more. */
static bool ask_again_locked(NrdJsPulls *pulls, NrdJsTake *take)
{
    if (take->again || !may_lag(take))
        return false;
    take->again = take->asks_again = true;
    take->n_asked = 0;
    nrd_js_take_renew_locked(pulls, take, NRD_JS_LAG_MS);
    return true;
}

void nrd_js_take_found_nothing(NrdJsPulls *pulls, uint64_t number, int error)
{
    NrdPartition *next = NULL;
    bool over = false, again = false;
    g_autofree char *reply = NULL;
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take) {
        take->n_asked++;
        next = next_to_ask_locked(take);
        bool hurries = !take->waits || take->deadline_ms <= nrd_clock_mono_ms();
        again = !next && hurries && ask_again_locked(pulls, take);
        over = !next && !take->waits && !again;
        reply = g_strdup(take->reply);
    }
    if (next)
        nrd_js_take_renew_locked(pulls, take, NRD_JS_LOOK_MS);
    if (over)
        nrd_js_take_leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (next)
        ask_what_is_there(next, reply);
    else if (over)
        nrd_js_take_finish(pulls, take, error);
    else if (topic && !again)
        nrd_js_take_start_later(pulls, number); /* it may have to make a consumer */
    nrd_js_topic_unref(topic);
}

/* Once for each take: 2.9 may forget a pull that comes while it finds that those before it are nobody's any more. */
static bool may_ask_twice(NrdJsPulls *pulls, uint64_t number)
{
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    bool may = take && !take->asked_twice;
    if (may)
        take->asked_twice = true;
    g_mutex_unlock(&pulls->lock);
    return may;
}

static void look_for_servers(void *user_data)
{
    Inbox *silent = user_data;
    NrdPartition *partition = NULL;
    g_mutex_lock(&silent->pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(silent->pulls, silent->number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take)
        partition = next_to_ask_locked(take);
    g_mutex_unlock(&silent->pulls->lock);
    bool there =
        partition && nrd_js_partition_look(partition, NRD_JS_GLANCE_MS) == 0 && !nrd_js_partition_is_silent(partition);
    if (there && nrd_js_partition_has_deliverable(partition) && may_ask_twice(silent->pulls, silent->number))
        nrd_js_take_start_later(silent->pulls, silent->number);
    else if (take)
        nrd_js_take_found_nothing(silent->pulls, silent->number, there ? -EAGAIN : -EIO);
    nrd_js_topic_unref(topic);
    g_free(silent);
}

void nrd_js_take_was_silent(NrdJsPulls *pulls, uint64_t number)
{
    Inbox *silent = g_new(Inbox, 1);
    *silent = (Inbox){ pulls, number };
    nrd_js_later(pulls->engine->conn, look_for_servers, silent);
}

/* A new number, under which an inbox is made; the old inbox is nobody's from here on. */
static natsSubscription *renumber_locked(NrdJsPulls *pulls, NrdJsTake *take)
{
    natsSubscription *old = take->inbox;
    g_hash_table_remove(pulls->takes, &take->number);
    take->number = pulls->next_number++;
    g_hash_table_insert(pulls->takes, &take->number, take);
    take->inbox = NULL;
    take->nobody = false;
    g_free(take->reply);
    take->reply = g_strdup_printf("%s%" G_GUINT64_FORMAT, pulls->inbox, take->number);
    nrd_js_take_renew_locked(pulls, take, nrd_js_take_is_parked(take) ? NRD_JS_RENEW_MS : NRD_JS_LOOK_MS);
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
    g_autofree char *all = g_strconcat(asking->reply, ".*", NULL);
    natsStatus s = natsConnection_Subscribe(&sub, nrd_js_conn_nats(pulls->engine->conn), all, on_inbox, inbox);
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
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take)
        take->inbox = sub;
    g_mutex_unlock(&pulls->lock);
    if (!take)
        nrd_js_unsubscribe(pulls->engine->conn, sub);
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
        ask_what_is_there(asking->next, asking->reply);
    for (guint i = 0; i < partitions->len && !asking->next; i++)
        ask_to_park(partitions->pdata[i], asking->reply);
}

static void fail_take(NrdJsPulls *pulls, uint64_t number, int error)
{
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take)
        nrd_js_take_leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (take)
        nrd_js_take_finish(pulls, take, error);
}

/* Asks for a take, on a new inbox. May block: for consumers that have to be made. */
static void start(NrdJsPulls *pulls, uint64_t number)
{
    natsSubscription *old = NULL;
    Asking asking = { .topic = NULL };
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take) {
        old = renumber_locked(pulls, take);
        asking = (Asking){ take->number, nrd_js_topic_ref(take->topic), take->partition, next_to_ask_locked(take),
                           g_strdup(take->reply) };
    }
    g_mutex_unlock(&pulls->lock);
    nrd_js_unsubscribe(pulls->engine->conn, old);
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

void nrd_js_take_start_later(NrdJsPulls *pulls, uint64_t number)
{
    Inbox *start_of = g_new(Inbox, 1);
    *start_of = (Inbox){ pulls, number };
    nrd_js_later(pulls->engine->conn, start_later_fn, start_of);
}
