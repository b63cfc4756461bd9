/* The table of those who wait: who comes, who leaves, whose time is over. See pull_private.h. */
#include "engine/jetstream/pull.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull_private.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

static void on_timer(void *user_data);

/* ---- takes ---- */

void nrd_js_take_leave_locked(NrdJsPulls *pulls, NrdJsTake *take)
{
    g_hash_table_remove(pulls->takes, &take->number);
    if (take->waiter)
        take->waiter->state = NRD_JS_WAITER_DONE;
    NrdJsWatchers *watchers = g_steal_pointer(&take->watchers);
    if (!watchers)
        return;
    watchers->scout = NULL;
    nrd_js_watchers_tidy_locked(pulls, watchers);
}

/* After it has left. What is parked for it at the servers is the next one's. */
void nrd_js_take_free(NrdJsTake *take)
{
    nrd_js_topic_unref(take->topic);
    g_free(take);
}

void nrd_js_take_finish(NrdJsPulls *pulls, NrdJsTake *take, int error)
{
    if (take->deliver)
        nrd_js_pull_answer_later(pulls, (NrdJsAnswer){ take->deliver, take->user_data, error, NULL });
    nrd_js_take_free(take);
}

static NrdJsTake *add_locked(NrdJsPulls *pulls, NrdTopic *topic, NrdPartition *partition)
{
    NrdJsTake *take = g_new0(NrdJsTake, 1);
    take->number = pulls->next_number++;
    take->topic = nrd_js_topic_ref(topic);
    take->partition = partition;
    take->deadline_ms = INT64_MAX;
    take->renew_ms = INT64_MAX;
    g_hash_table_insert(pulls->takes, &take->number, take);
    return take;
}

NrdJsTake *nrd_js_take_find_locked(NrdJsPulls *pulls, uint64_t number)
{
    return g_hash_table_lookup(pulls->takes, &number);
}

/* One partition that serves is enough. */
static int why_not_any(NrdTopic *topic)
{
    int rc = nrd_js_topic_usable(topic);
    uint32_t n = rc == 0 ? nrd_js_topic_n_partitions(topic) : 0;
    for (uint32_t i = 0; i < n; i++) {
        rc = nrd_js_partition_usable(nrd_js_topic_partition(topic, i));
        if (rc == 0)
            break;
    }
    return rc;
}

int nrd_js_pull_why_not(NrdEngine *engine, NrdTopic *topic, NrdPartition *partition)
{
    int rc = partition ? nrd_js_partition_usable(partition) : why_not_any(topic);
    return rc == 0 && atomic_load(&engine->stopping) ? -ENODEV : rc;
}

/* ---- taking ---- */

static int64_t deadline_after(int64_t wait_ms)
{
    return wait_ms < 0 ? INT64_MAX : nrd_clock_mono_ms() + wait_ms + 1;
}

/* One partition is asked to park at once; of several each is first asked for what is there, and so is one by who waits for a while
 * only: that may be over before the servers have answered, and what is there comes first. */
NrdJsTake *nrd_js_take_begin_locked(NrdJsPulls *pulls, NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter,
                                    int64_t wait_ms)
{
    NrdJsTake *take = add_locked(pulls, topic, partition);
    take->waiter = waiter;
    take->waits = wait_ms != 0;
    take->n_asked = partition && wait_ms < 0 ? 1 : 0;
    take->first = atomic_fetch_add(&topic->turn, 1);
    if (take->waits)
        take->deadline_ms = deadline_after(wait_ms);
    if (take->deadline_ms != INT64_MAX)
        nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, take->deadline_ms);
    if (!waiter)
        return take;
    take->deliver = waiter->deliver;
    take->user_data = waiter->user_data;
    waiter->state = NRD_JS_WAITER_PARKED;
    waiter->link.data = take;
    return take;
}

void nrd_js_pull_take(NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms,
                      NrdDeliverFn deliver, void *user_data)
{
    NrdJsPulls *pulls = topic->engine->pulls;
    NrdJsGot *got = NULL;
    uint64_t number = 0;
    int rc = nrd_js_pull_why_not(topic->engine, topic, partition);
    g_mutex_lock(&pulls->lock);
    bool cancelled = waiter->state == NRD_JS_WAITER_CANCELLED;
    waiter->deliver = deliver;
    waiter->user_data = user_data;
    waiter->state = NRD_JS_WAITER_DONE;
    rc = cancelled ? -EINTR : rc;
    if (rc == 0)
        got = nrd_js_hand_take_locked(pulls, partition ? (void *)partition : (void *)topic);
    if (rc == 0 && !got)
        number = nrd_js_take_begin_locked(pulls, topic, partition, waiter, wait_ms)->number;
    g_mutex_unlock(&pulls->lock);
    if (rc < 0)
        deliver(user_data, rc, NULL);
    else if (got)
        nrd_js_got_hand_over(got, deliver, user_data);
    else
        nrd_js_take_start_later(pulls, number);
}

bool nrd_js_pull_cancel(NrdJsPulls *pulls, NrdWaiter *waiter)
{
    NrdJsTake *take = NULL;
    g_mutex_lock(&pulls->lock);
    if (waiter->state == NRD_JS_WAITER_PARKED) {
        take = waiter->link.data;
        nrd_js_take_leave_locked(pulls, take);
    } else if (waiter->state == NRD_JS_WAITER_NEW) {
        waiter->state = NRD_JS_WAITER_CANCELLED;
    }
    g_mutex_unlock(&pulls->lock);
    if (take)
        nrd_js_take_free(take);
    return take != NULL;
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
        NrdJsTake *take = data;
        int64_t deadline_ms =
            nrd_js_take_is_parked(take) ? take->deadline_ms : INT64_MAX; /* else it is still told what is there */
        if (deadline_ms <= now_ms) {
            g_ptr_array_add(over, take);
        } else if (take->renew_ms <= now_ms) {
            bool ask_anew = nrd_js_take_is_parked(take) || take->asks_again;
            take->asks_again = false;
            g_array_append_val(ask_anew ? renew : silent, take->number);
            take->renew_ms = now_ms + NRD_JS_RENEW_MS;
        } else {
            next_ms = MIN(next_ms, MIN(deadline_ms, take->renew_ms));
        }
    }
    for (guint i = 0; i < over->len; i++)
        nrd_js_take_leave_locked(pulls, over->pdata[i]);
    return next_ms;
}

/* A wait that ended without a record, while there were servers to ask: else it is no end of the records. */
static int why_over(NrdJsPulls *pulls, const NrdJsTake *take)
{
    return !take->nobody && nrd_js_conn_is_up(pulls->engine->conn) ? -ETIMEDOUT : -EIO;
}

static void on_timer(void *user_data)
{
    NrdJsPulls *pulls = user_data;
    g_autoptr(GPtrArray) over = g_ptr_array_new();
    g_autoptr(GArray) renew = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_autoptr(GArray) silent = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_mutex_lock(&pulls->lock);
    int64_t now_ms = nrd_clock_mono_ms();
    g_autoptr(GPtrArray) forgotten = nrd_js_asked_overdue_locked(pulls, now_ms);
    int64_t next_ms = MIN(look_locked(pulls, now_ms, over, renew, silent), nrd_js_asked_next_ms_locked(pulls));
    g_autoptr(GPtrArray) stale = nrd_js_hand_stale_locked(pulls, now_ms);
    next_ms = MIN(next_ms, nrd_js_asked_ping_locked(pulls, now_ms));
    for (GList *l = pulls->hand.head; l; l = l->next)
        next_ms = MIN(next_ms, ((NrdJsGot *)l->data)->until_ms);
    if (next_ms != INT64_MAX)
        nrd_timer_set_earlier(pulls->engine->timers, &pulls->timer, next_ms);
    g_mutex_unlock(&pulls->lock);
    for (guint i = 0; i < forgotten->len; i++)
        nrd_js_asked_free(forgotten->pdata[i]);
    for (guint i = 0; i < over->len; i++)
        nrd_js_take_finish(pulls, over->pdata[i], why_over(pulls, over->pdata[i]));
    for (guint i = 0; i < stale->len; i++)
        nrd_js_got_give_back(stale->pdata[i]);
    for (guint i = 0; i < renew->len; i++)
        nrd_js_take_start_later(pulls, g_array_index(renew, uint64_t, i));
    for (guint i = 0; i < silent->len; i++)
        nrd_js_take_was_silent(pulls, g_array_index(silent, uint64_t, i));
}

/* ---- life ---- */

NrdJsPulls *nrd_js_pulls_new(NrdEngine *engine)
{
    NrdJsPulls *pulls = g_new0(NrdJsPulls, 1);
    pulls->engine = engine;
    g_autofree char *inbox = nrd_js_new_inbox(engine->conn);
    pulls->inbox = g_strconcat(inbox, ".", NULL);
    pulls->next_number = 1; /* 0 is nobody */
    pulls->takes = g_hash_table_new(g_int64_hash, g_int64_equal);
    pulls->asked = g_hash_table_new(g_int64_hash, g_int64_equal);
    pulls->watchers = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
    g_queue_init(&pulls->hand);
    g_mutex_init(&pulls->lock);
    g_cond_init(&pulls->none_asked);
    nrd_timer_init(&pulls->timer, on_timer, pulls, false);
    return pulls;
}

void nrd_js_pulls_stop(NrdJsPulls *pulls)
{
    nrd_js_pulls_interrupt(pulls, NULL, -ENODEV);
    nrd_timer_drain(pulls->engine->timers, &pulls->timer);
    nrd_js_asked_free_all(pulls);
}

void nrd_js_pulls_free(NrdJsPulls *pulls)
{
    if (!pulls)
        return;
    g_queue_clear_full(&pulls->hand, (GDestroyNotify)nrd_js_got_free);
    g_hash_table_unref(pulls->asked);
    g_hash_table_unref(pulls->takes);
    g_hash_table_unref(pulls->watchers);
    g_mutex_clear(&pulls->lock);
    g_cond_clear(&pulls->none_asked);
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
        if (!topic || ((NrdJsTake *)data)->topic == topic)
            g_ptr_array_add(found, data);
    for (guint i = 0; i < found->len; i++)
        nrd_js_take_leave_locked(pulls, found->pdata[i]);
    return found;
}

/* Also what is in the hand goes back: nobody comes for it. */
void nrd_js_pulls_interrupt(NrdJsPulls *pulls, NrdTopic *topic, int error)
{
    GHashTableIter iter;
    gpointer watchers;
    NrdJsGot *got;
    g_autoptr(GPtrArray) back = g_ptr_array_new();
    g_mutex_lock(&pulls->lock);
    g_autoptr(GPtrArray) takes = interrupted_locked(pulls, topic);
    while (!topic && (got = g_queue_pop_head(&pulls->hand)))
        g_ptr_array_add(back, got);
    g_hash_table_iter_init(&iter, pulls->watchers);
    while (g_hash_table_iter_next(&iter, NULL, &watchers)) {
        nrd_js_watchers_fire_locked(pulls, watchers); /* who watches something else looks and watches on */
        if (!((NrdJsWatchers *)watchers)->scout)
            g_hash_table_iter_remove(&iter);
    }
    g_mutex_unlock(&pulls->lock);
    for (guint i = 0; i < takes->len; i++)
        nrd_js_take_finish(pulls, takes->pdata[i], error);
    for (guint i = 0; i < back->len; i++)
        nrd_js_got_give_back(back->pdata[i]);
}

/* Before the leases go back: else a record would come to the question of somebody who has just been told to go. */
void nrd_js_pulls_end(NrdJsPulls *pulls)
{
    nrd_js_pulls_interrupt(pulls, NULL, -ENODEV);
    nrd_js_asked_cancel_all(pulls);
}

/* What was parked may have gone with the connection. */
void nrd_js_pulls_reconnected(NrdJsPulls *pulls)
{
    GHashTableIter iter;
    gpointer data;
    g_mutex_lock(&pulls->lock);
    nrd_js_asked_lose_locked(pulls, NULL);
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data))
        if (((NrdJsTake *)data)->renew_ms != INT64_MAX)
            nrd_js_take_renew_locked(pulls, data, 0);
    g_mutex_unlock(&pulls->lock);
}

/* Of the partition alone, or of a topic that has no other that serves. */
static bool ends_with(NrdJsPulls *pulls, const NrdJsTake *take, const NrdPartition *partition)
{
    return nrd_js_take_wants(take, partition) &&
           (take->partition || nrd_js_pull_why_not(pulls->engine, take->topic, NULL) < 0);
}

/* Of takes those of the partition alone are answered: one of the topic goes on with the others, if there are any. */
void nrd_js_pulls_forget(NrdJsPulls *pulls, NrdPartition *partition, int error)
{
    GHashTableIter iter;
    gpointer data;
    g_autoptr(GPtrArray) takes = g_ptr_array_new();
    g_mutex_lock(&pulls->lock);
    g_autoptr(GPtrArray) forgotten = nrd_js_hand_forget_locked(pulls, partition);
    nrd_js_asked_lose_locked(pulls, partition);
    g_hash_table_iter_init(&iter, pulls->takes);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        NrdJsTake *take = data;
        if (error < 0 && ends_with(pulls, take, partition))
            g_ptr_array_add(takes, take);
        else if (take->topic == partition->topic && nrd_js_take_is_parked(take) && take->renew_ms != INT64_MAX)
            nrd_js_take_renew_locked(pulls, take, 0);
    }
    for (guint i = 0; i < takes->len; i++) {
        NrdJsTake *take = takes->pdata[i];
        if (take->watchers) /* a scout, which nobody waits for */
            nrd_js_watchers_fire_locked(pulls, take->watchers);
        nrd_js_take_leave_locked(pulls, take);
    }
    g_mutex_unlock(&pulls->lock);
    for (guint i = 0; i < takes->len; i++)
        nrd_js_take_finish(pulls, takes->pdata[i], error);
    for (guint i = 0; i < forgotten->len; i++)
        nrd_js_got_free(forgotten->pdata[i]);
}
