/* Who has what to get: lanes and their parts, the offsets that they will get, and what a checkpoint says of it. */
#include "engine/ingress/dispatcher_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <string.h>

#define CLAIM_WAIT_MS 2000 /* for what a replay has to look up, or for offsets that cannot be taken back */
#define MOVE_AGAIN_MS 5000 /* a part that was moved stays so long: else it would go round in circles */

/* ---- lanes ---- */

static guint lane_hash(gconstpointer key)
{
    const NrdLane *lane = key;
    return g_str_hash(lane->id) ^ lane->partition * 2654435761U;
}

static gboolean lane_equal(gconstpointer a, gconstpointer b)
{
    const NrdLane *left = a, *right = b;
    return left->partition == right->partition && strcmp(left->id, right->id) == 0;
}

static void lane_free(gpointer data)
{
    NrdLane *lane = data;
    g_free(lane->topic);
    g_free(lane);
}

NrdLane *nrd_lane_find(NrdDispatcher *d, const char *id, uint32_t partition)
{
    NrdLane key = { .partition = partition };
    g_strlcpy(key.id, id, sizeof key.id);
    return g_hash_table_lookup(d->lanes, &key);
}

NrdLane *nrd_lane_get(NrdDispatcher *d, const char *topic, const char *id, uint32_t partition)
{
    NrdLane *lane = nrd_lane_find(d, id, partition);
    if (!lane) {
        lane = g_new0(NrdLane, 1);
        lane->partition = partition;
        lane->link.data = lane;
        g_strlcpy(lane->id, id, sizeof lane->id);
        g_queue_init(&lane->parts);
        g_queue_init(&lane->order);
        g_hash_table_add(d->lanes, lane);
    }
    if (topic && !lane->topic)
        lane->topic = g_strdup(topic);
    return lane;
}

void nrd_lane_put(NrdDispatcher *d, NrdLane *lane)
{
    if (nrd_lane_n_parts(lane) > 0 || lane->order.head || lane->n_stamped > 0 || lane->n_claims > 0 ||
        lane->state == NRD_LANE_RUNNING)
        return;
    nrd_lane_set_state(d, lane, NRD_LANE_IDLE);
    g_hash_table_remove(d->lanes, lane);
}

void nrd_lane_set_state(NrdDispatcher *d, NrdLane *lane, NrdLaneState state)
{
    if (lane->state == NRD_LANE_READY)
        g_queue_unlink(&d->ready, &lane->link);
    if (lane->state == NRD_LANE_WAITING)
        g_queue_unlink(&d->waiting, &lane->link);
    if (lane->state == NRD_LANE_RUNNING)
        g_queue_unlink(&d->running, &lane->link);
    lane->state = state;
    if (state == NRD_LANE_READY)
        g_queue_push_tail_link(&d->ready, &lane->link);
    if (state == NRD_LANE_WAITING)
        g_queue_push_tail_link(&d->waiting, &lane->link);
    if (state == NRD_LANE_RUNNING)
        g_queue_push_tail_link(&d->running, &lane->link);
    if (state == NRD_LANE_READY || state == NRD_LANE_WAITING)
        nrd_dispatcher_signal_locked(d);
}

static NrdIngressTarget target_of(const NrdLane *lane)
{
    return (NrdIngressTarget){ lane->topic, lane->id, lane->partition };
}

/* Unfinished ones, or with to_verify those that a replay has to look up. */
static bool has_parts(NrdLane *lane, bool to_verify)
{
    if (!to_verify)
        return nrd_lane_n_parts(lane) > 0 || lane->n_stamped > 0;
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

/* ---- parts ---- */

static NrdPart *part_new(NrdPending *entry, uint32_t index, const NrdEntryPart *data)
{
    NrdPart *part = g_new0(NrdPart, 1);
    part->link.data = part->all_link.data = part;
    part->entry = entry;
    part->index = index;
    part->partition = part->to = data->partition;
    part->n_records = data->n_records;
    part->size = data->size;
    part->expected = data->expected;
    return part;
}

static void wake_idle(NrdDispatcher *d, NrdLane *lane)
{
    if (lane->state == NRD_LANE_IDLE)
        nrd_lane_set_state(d, lane, NRD_LANE_READY);
}

static void push_part(NrdDispatcher *d, NrdLane *lane, NrdPart *part)
{
    g_queue_push_tail_link(&lane->parts, &part->link);
    wake_idle(d, lane);
}

void nrd_pending_free(NrdPending *entry)
{
    if (!entry)
        return;
    if (entry->sink.release)
        entry->sink.release(entry->sink.user_data);
    nrd_wal_segment_unref(entry->segment);
    g_free(entry->bytes);
    g_free(entry->topic);
    g_free(entry);
}

/* The first of those that were being written. When its entry does not tell where it goes, or not truly any more, since
 * something came between while it was written, its place in the lane does: a checkpoint has to know. */
static void name_added(NrdDispatcher *d, NrdLane *lane, NrdPart *part)
{
    uint64_t place = lane->exact ? lane->expected - lane->n_stamped_records : NRD_ENTRY_OFFSET_UNKNOWN;
    bool true_name = part->entry->sequence >= d->trust && part->expected == place;
    if (!true_name && lane->exact)
        part->note = ++d->notes;
    part->expected = place;
}

void nrd_dispatcher_add(NrdDispatcher *d, NrdPending *entry)
{
    NrdEntryView view;
    nrd_entry_view_own(entry->bytes, &view);
    pthread_mutex_lock(&d->lock);
    entry->n_left = view.head.n_parts;
    for (uint32_t i = 0; i < view.head.n_parts; i++) {
        NrdEntryPart data;
        nrd_entry_part(&view, i, &data);
        NrdLane *lane = nrd_lane_get(d, entry->topic, entry->id, data.partition);
        NrdPart *part = part_new(entry, i, &data);
        name_added(d, lane, part);
        lane->n_stamped--;
        lane->n_stamped_records -= data.n_records;
        g_queue_push_tail_link(&d->all, &part->all_link);
        nrd_order_join(d, part, lane);
        push_part(d, lane, part);
    }
    d->top = MAX(d->top, entry->sequence + 1);
    d->pending_bytes += entry->size;
    if (d->memory_bytes + entry->size > d->options.memory_bytes)
        g_clear_pointer(&entry->bytes, g_free);
    else
        d->memory_bytes += entry->size;
    pthread_mutex_unlock(&d->lock);
}

/* One replayed part, in the lane where it may have been committed, or will be. known: what the checkpoint says of it. */
static void replay_part(NrdDispatcher *d, NrdPart *part, const NrdCheckpointPart *known, uint64_t trust)
{
    NrdPending *entry = part->entry;
    if (known)
        part->expected = known->expected;
    if (entry->sequence < (known ? 0 : trust) || d->options.nameless)
        part->expected = NRD_ENTRY_OFFSET_UNKNOWN;
    part->to = known ? known->to : part->partition;
    part->verify = part->expected != NRD_ENTRY_OFFSET_UNKNOWN;
    g_queue_push_tail_link(&d->all, &part->all_link);
    nrd_order_join(d, part, nrd_lane_get(d, entry->topic, entry->id, part->partition));
    NrdLane *lane = nrd_lane_get(d, entry->topic, entry->id, part->to);
    lane->may_verify = lane->may_verify || part->verify;
    push_part(d, lane, part);
}

uint32_t nrd_dispatcher_replay(NrdDispatcher *d, NrdPending *entry, const NrdEntryView *view,
                               const NrdCheckpoint *checkpoint)
{
    uint32_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        NrdEntryPart data;
        const NrdCheckpointPart *known;
        nrd_entry_part(view, i, &data);
        if (!nrd_checkpoint_outstanding(checkpoint, entry->sequence, data.partition, &known))
            continue;
        replay_part(d, part_new(entry, i, &data), known, checkpoint->trust);
        n++;
    }
    entry->n_left = n;
    d->pending_bytes += n > 0 ? entry->size : 0;
    pthread_mutex_unlock(&d->lock);
    nrd_counter_add(NRD_COUNTER_INGRESS_REPLAYED, n);
    return n;
}

NrdPending *nrd_part_finish(NrdDispatcher *d, NrdLane *lane, NrdPart *part)
{
    NrdPending *entry = part->entry;
    g_assert(lane->n_running > 0 && entry->n_left > 0);
    lane->n_running--;
    g_queue_unlink(&d->all, &part->all_link);
    nrd_order_leave(d, part);
    if (part->home != lane)
        nrd_lane_put(d, part->home);
    nrd_wal_drop_live(d->options.wal, entry->segment, 1);
    g_free(part);
    if (d->checkpoint_at == 0)
        d->checkpoint_at = nrd_clock_mono_ms() + d->options.checkpoint_ms;
    pthread_cond_broadcast(&d->change);
    if (--entry->n_left > 0)
        return NULL;
    nrd_wal_drop_entry(d->options.wal, entry->segment, entry->pos, entry->size);
    d->pending_bytes -= entry->size;
    if (entry->bytes)
        d->memory_bytes -= entry->size;
    return entry;
}

/* ---- moving to a sibling ---- */

void nrd_lane_insert(NrdLane *lane, NrdPart *part, GList **at)
{
    GList *l = *at ? *at : lane->parts.head;
    while (l && ((const NrdPart *)l->data)->entry->sequence < part->entry->sequence)
        l = l->next;
    g_queue_insert_before_link(&lane->parts, l, &part->link);
    *at = &part->link;
}

/* The checkpoint says where it is now before it is committed there. */
static void move_part(NrdDispatcher *d, NrdPart *part, NrdLane *target, int64_t now_ms, GList **at)
{
    part->expected = NRD_ENTRY_OFFSET_UNKNOWN; /* it is named before it is committed */
    target->exact = false;
    part->verify = false;
    nrd_order_place(d, part, target->partition);
    part->note = d->notes;
    part->moved_ms = now_ms;
    nrd_lane_insert(target, part, at);
    wake_idle(d, target);
    nrd_counter_add(NRD_COUNTER_INGRESS_REROUTED, part->n_records);
}

bool nrd_lane_move(NrdDispatcher *d, NrdLane *lane, uint32_t to, int64_t now_ms)
{
    NrdLane *target = nrd_lane_get(d, lane->topic, lane->id, to);
    GList *at = NULL;
    bool any = false;
    if (target != lane && target->n_failed == 0) {
        d->notes++;
        if (lane->n_stamped > 0 || target->n_stamped > 0) /* what is being written names wrong offsets now */
            d->trust = MAX(d->trust, nrd_wal_next_sequence(d->options.wal));
        for (GList *l = lane->parts.head; l;) {
            NrdPart *part = l->data;
            l = l->next;
            part->expected = NRD_ENTRY_OFFSET_UNKNOWN; /* what was before it is not any more */
            part->verify = false;
            if (part->moved_ms > 0 && now_ms - part->moved_ms < MOVE_AGAIN_MS)
                continue;
            g_queue_unlink(&lane->parts, &part->link);
            move_part(d, part, target, now_ms, &at);
            any = true;
        }
        lane->exact = false;
    }
    nrd_lane_put(d, target);
    return any;
}

/* ---- the checkpoint's contents ---- */

/* What does not fit is said to be unfinished: twice at worst, after a crash. */
static void keep_within_bound(NrdCheckpoint *checkpoint)
{
    if (checkpoint->parts->len <= NRD_CHECKPOINT_MAX_PARTS)
        return;
    checkpoint->top = g_array_index(checkpoint->parts, NrdCheckpointPart, NRD_CHECKPOINT_MAX_PARTS).sequence;
    guint n = NRD_CHECKPOINT_MAX_PARTS;
    while (n > 0 && g_array_index(checkpoint->parts, NrdCheckpointPart, n - 1).sequence >= checkpoint->top)
        n--;
    g_array_set_size(checkpoint->parts, n);
}

void nrd_dispatcher_snapshot(NrdDispatcher *d, NrdCheckpoint *checkpoint, uint64_t *ret_moved)
{
    pthread_mutex_lock(&d->lock);
    checkpoint->top = d->top;
    checkpoint->trust = d->trust;
    *ret_moved = d->notes;
    d->checkpoint_at = 0;
    for (GList *l = d->all.head; l; l = l->next) {
        const NrdPart *part = l->data;
        NrdCheckpointPart row = { part->entry->sequence, part->partition, part->to, part->expected };
        g_array_append_val(checkpoint->parts, row);
    }
    pthread_mutex_unlock(&d->lock);
    nrd_checkpoint_sort(checkpoint);
    keep_within_bound(checkpoint);
}

void nrd_dispatcher_noted(NrdDispatcher *d, uint64_t moved)
{
    pthread_mutex_lock(&d->lock);
    d->noted = MAX(d->noted, moved);
    pthread_mutex_unlock(&d->lock);
}

bool nrd_dispatcher_is_noted(NrdDispatcher *d, uint64_t moved)
{
    pthread_mutex_lock(&d->lock);
    bool noted = d->noted >= moved;
    pthread_mutex_unlock(&d->lock);
    return noted;
}

void nrd_dispatcher_set_top(NrdDispatcher *d, uint64_t top, uint64_t trust)
{
    pthread_mutex_lock(&d->lock);
    d->top = MAX(d->top, top);
    d->trust = MAX(d->trust, trust);
    pthread_mutex_unlock(&d->lock);
}

/* ---- claims ---- */

/* Waits until the lane has none of these. Lock held; false: it took too long. */
static bool wait_for_parts(NrdDispatcher *d, NrdLane *lane, bool to_verify)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLAIM_WAIT_MS / 1000;
    int rc = 0;
    while (has_parts(lane, to_verify) && rc == 0 && !d->stopping)
        rc = pthread_cond_timedwait(&d->change, &d->lock, &until);
    return !has_parts(lane, to_verify);
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

/* Some part of the lane may be in an entry that names its offset. What a replay has to look up is waited for first. */
static int take_names_back(NrdDispatcher *d, NrdLane *lane)
{
    if (d->started)
        (void)wait_for_parts(d, lane, true);
    if (!has_parts(lane, false))
        return 0;
    forget_names(d, lane);
    pthread_mutex_unlock(&d->lock);
    int rc = d->options.checkpoint(d->options.user_data, 0);
    pthread_mutex_lock(&d->lock);
    return rc < 0 && wait_for_parts(d, lane, false) ? 0 : rc;
}

int nrd_dispatcher_claim(NrdDispatcher *d, const char *id, uint32_t partition)
{
    if (d->options.nameless)
        return 0;
    pthread_mutex_lock(&d->lock);
    NrdLane *lane = nrd_lane_get(d, NULL, id, partition);
    lane->n_claims++;
    lane->exact = false;
    int rc = has_parts(lane, false) ? take_names_back(d, lane) : 0;
    if (rc < 0) {
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
    g_assert(lane && lane->n_claims > 0);
    lane->n_claims--;
    nrd_lane_put(d, lane);
    pthread_mutex_unlock(&d->lock);
}

/* ---- looking ---- */

bool nrd_dispatcher_holds(NrdDispatcher *d, const char *id)
{
    GHashTableIter iter;
    gpointer key;
    bool holds = false;
    pthread_mutex_lock(&d->lock);
    g_hash_table_iter_init(&iter, d->lanes);
    while (!holds && g_hash_table_iter_next(&iter, &key, NULL)) {
        const NrdLane *lane = key;
        holds = (nrd_lane_n_parts(lane) > 0 || lane->n_stamped > 0) && strcmp(lane->id, id) == 0;
    }
    pthread_mutex_unlock(&d->lock);
    return holds;
}

void nrd_dispatcher_load(NrdDispatcher *d, NrdDispatcherLoad *ret_load)
{
    pthread_mutex_lock(&d->lock);
    *ret_load = (NrdDispatcherLoad){ d->all.length, d->pending_bytes };
    pthread_mutex_unlock(&d->lock);
}

void nrd_dispatcher_load_of(NrdDispatcher *d, const char *id, NrdDispatcherLoad *ret_load)
{
    GHashTableIter iter;
    gpointer key;
    *ret_load = (NrdDispatcherLoad){ 0 };
    pthread_mutex_lock(&d->lock);
    g_hash_table_iter_init(&iter, d->lanes);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        const NrdLane *lane = key;
        if (strcmp(lane->id, id) != 0)
            continue;
        ret_load->n_parts += lane->order.length;
        ret_load->n_bytes += lane->order_bytes;
    }
    pthread_mutex_unlock(&d->lock);
}

uint64_t nrd_dispatcher_n_parts(NrdDispatcher *d)
{
    NrdDispatcherLoad load;
    nrd_dispatcher_load(d, &load);
    return load.n_parts;
}

uint64_t nrd_dispatcher_n_waiting(NrdDispatcher *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t n = d->waiting.length;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- life ---- */

NrdDispatcher *nrd_dispatcher_new(const NrdDispatcherOptions *options)
{
    NrdDispatcher *d = g_new0(NrdDispatcher, 1);
    pthread_condattr_t attr;
    d->options = *options;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->work, &attr);
    pthread_cond_init(&d->change, &attr);
    pthread_condattr_destroy(&attr);
    d->lanes = g_hash_table_new_full(lane_hash, lane_equal, lane_free, NULL);
    g_queue_init(&d->ready);
    g_queue_init(&d->waiting);
    g_queue_init(&d->running);
    g_queue_init(&d->all);
    d->workers = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    return d;
}

void nrd_dispatcher_set_wal(NrdDispatcher *d, NrdWal *wal)
{
    d->options.wal = wal;
}

void nrd_dispatcher_free(NrdDispatcher *d)
{
    if (!d)
        return;
    g_assert(d->workers->len == 0);
    while (d->all.head) {
        NrdPart *part = g_queue_pop_head_link(&d->all)->data;
        if (--part->entry->n_left == 0)
            nrd_pending_free(part->entry);
        g_free(part);
    }
    g_hash_table_unref(d->lanes);
    g_array_unref(d->workers);
    pthread_cond_destroy(&d->work);
    pthread_cond_destroy(&d->change);
    pthread_mutex_destroy(&d->lock);
    g_free(d);
}
