/* What is asked of the servers for those who wait. See pull_private.h. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/copies.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull_private.h"

#include "engine/base/clock.h"

void nrd_js_take_renew_locked(NrdJsPulls *pulls, NrdJsTake *take, int64_t after_ms)
{
    take->renew_ms = nrd_clock_mono_ms() + after_ms;
    nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, MIN(take->renew_ms, take->deadline_ms));
}

void nrd_js_ask_consumer(NrdPartition *partition, const char *reply, const char *json)
{
    g_autofree char *consumer = nrd_js_consumer_name(nrd_js_leases_generation(partition));
    g_autofree char *subject = g_strdup_printf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", partition->stream, consumer);
    nrd_js_tell(partition->topic->engine->conn, subject, reply, json);
}

/* The partitions of a take (g_ptr_array_unref), each with its consumer: of a topic those that serve, if there are any. Blocks
 * when a consumer has to be made, and goes no further behind one for which it has waited long. */
static GPtrArray *partitions_of(NrdTopic *topic, NrdPartition *partition, int *ret_error)
{
    GPtrArray *all = g_ptr_array_new();
    uint32_t n = partition ? 1 : nrd_js_topic_n_partitions(topic);
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    int rc = 0;
    for (uint32_t i = 0; i < n && (rc == 0 || (rc == -EIO && nrd_clock_mono_ms() < until_ms)); i++) {
        NrdPartition *one = partition ? partition : nrd_js_topic_partition(topic, i);
        rc = nrd_js_partition_need_consumer(one);
        nrd_js_give_back_wait(one); /* else it would be there later than who asks now */
        if (rc == 0)
            g_ptr_array_add(all, one);
    }
    *ret_error = rc == -EIO && all->len > 0 ? 0 : rc;
    return all;
}

/* The partition that is asked next for what is there now, as the *ret_n_asked-th; NULL: all have been that serve. */
static NrdPartition *next_to_ask_locked(const NrdJsTake *take, uint32_t *ret_n_asked)
{
    uint32_t n = take->partition ? 1 : nrd_js_topic_n_partitions(take->topic);
    for (uint32_t i = take->n_asked; i < n; i++) {
        NrdPartition *next = take->partition;
        if (!next)
            next = nrd_js_topic_partition(take->topic, (take->first + i) % n);
        if (nrd_js_partition_usable(next) < 0)
            continue;
        *ret_n_asked = i;
        return next;
    }
    return NULL;
}

bool nrd_js_take_is_parked(const NrdJsTake *take)
{
    uint32_t n_asked;
    return next_to_ask_locked(take, &n_asked) == NULL;
}

bool nrd_js_take_wants(const NrdJsTake *take, const NrdPartition *partition)
{
    return take->partition ? take->partition == partition : take->topic == partition->topic;
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

/* The next one, or NULL. */
static NrdPartition *ask_next_locked(NrdJsPulls *pulls, NrdJsTake *take)
{
    NrdPartition *next = next_to_ask_locked(take, &take->n_asked);
    if (!next)
        return NULL;
    nrd_js_asked_now_locked(pulls, next, take);
    nrd_js_take_renew_locked(pulls, take, NRD_JS_LOOK_MS);
    return next;
}

void nrd_js_take_found_nothing(NrdJsPulls *pulls, uint64_t number, int error)
{
    NrdPartition *next = NULL;
    bool over = false, again = false;
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take) {
        take->asked = 0;
        take->n_asked++;
        next = ask_next_locked(pulls, take);
        bool hurries = !take->waits || take->deadline_ms <= nrd_clock_mono_ms();
        again = !next && hurries && ask_again_locked(pulls, take);
        over = !next && !take->waits && !again;
    }
    if (over)
        nrd_js_take_leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (over)
        nrd_js_take_finish(pulls, take, error);
    else if (topic && !next && !again)
        nrd_js_take_start_later(pulls, number); /* it may have to make a consumer */
    nrd_js_topic_unref(topic);
}

/* Once for each take: 2.9 may forget a pull. */
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

/* What a thread that may block is to do something about. */
typedef struct OfTake {
    NrdJsPulls *pulls;
    uint64_t number;
} OfTake;

static void look_for_servers(void *user_data)
{
    OfTake *silent = user_data;
    NrdPartition *partition = NULL;
    uint32_t n_asked;
    g_mutex_lock(&silent->pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(silent->pulls, silent->number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take)
        partition = next_to_ask_locked(take, &n_asked);
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
    OfTake *silent = g_new(OfTake, 1);
    *silent = (OfTake){ pulls, number };
    nrd_js_later(pulls->engine->conn, look_for_servers, silent);
}

/* A scout tries again in a while, since nobody else would tell those who watch that the servers are there again. When a read
 * has to fail from now on they are told. */
static void fail_take(NrdJsPulls *pulls, uint64_t number, int error)
{
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    if (take && take->watchers && nrd_js_pull_why_not(pulls->engine, take->topic, take->partition) == 0) {
        take->asks_again = true;
        nrd_js_take_renew_locked(pulls, take, NRD_JS_RENEW_MS);
        take = NULL;
    }
    if (take && take->watchers)
        nrd_js_watchers_fire_locked(pulls, take->watchers);
    if (take)
        nrd_js_take_leave_locked(pulls, take);
    g_mutex_unlock(&pulls->lock);
    if (take)
        nrd_js_take_finish(pulls, take, error);
}

/* The partitions have their consumers. The take may have gone meanwhile. */
static void ask(NrdJsPulls *pulls, uint64_t number, const GPtrArray *partitions)
{
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    NrdPartition *next = take ? ask_next_locked(pulls, take) : NULL;
    if (take)
        take->nobody = false;
    if (take && !next)
        nrd_js_take_renew_locked(pulls, take, NRD_JS_RENEW_MS);
    for (guint i = 0; i < partitions->len && take && !next; i++)
        nrd_js_asked_fill_locked(pulls, partitions->pdata[i]);
    g_mutex_unlock(&pulls->lock);
}

/* Asks for a take. May block: for consumers that have to be made. */
static void start(NrdJsPulls *pulls, uint64_t number)
{
    NrdPartition *partition = NULL;
    g_mutex_lock(&pulls->lock);
    NrdJsTake *take = nrd_js_take_find_locked(pulls, number);
    NrdTopic *topic = take ? nrd_js_topic_ref(take->topic) : NULL;
    if (take)
        partition = take->partition;
    g_mutex_unlock(&pulls->lock);
    if (!topic)
        return;
    int rc;
    g_autoptr(GPtrArray) partitions = partitions_of(topic, partition, &rc);
    if (rc < 0)
        fail_take(pulls, number, rc);
    else
        ask(pulls, number, partitions);
    nrd_js_topic_unref(topic);
}

static void start_later_fn(void *user_data)
{
    OfTake *start_of = user_data;
    start(start_of->pulls, start_of->number);
    g_free(start_of);
}

void nrd_js_take_start_later(NrdJsPulls *pulls, uint64_t number)
{
    OfTake *start_of = g_new(OfTake, 1);
    *start_of = (OfTake){ pulls, number };
    nrd_js_later(pulls->engine->conn, start_later_fn, start_of);
}
