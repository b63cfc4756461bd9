/* Parts of entries: how they come, from an append or a replay, how they end, and what a checkpoint says of them. */
#include "engine/ingress/dispatcher_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

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

static void push_part(NrdDispatcher *d, NrdLane *lane, NrdPart *part)
{
    g_queue_push_tail_link(&lane->parts, &part->link);
    nrd_lane_wake(d, lane);
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

/* Its parts, each to the lane that it names. Lock held. */
static void take_in(NrdDispatcher *d, NrdPending *entry)
{
    NrdEntryView view;
    nrd_entry_view_own(entry->bytes, &view);
    entry->n_left = view.head.n_parts;
    for (uint32_t i = 0; i < view.head.n_parts; i++) {
        NrdEntryPart data;
        nrd_entry_part(&view, i, &data);
        NrdLane *lane = nrd_lane_get(d, entry->topic, entry->id, data.partition);
        NrdPart *part = part_new(entry, i, &data);
        nrd_name_added(d, lane, part);
        lane->n_stamped--;
        lane->n_stamped_records -= data.n_records;
        g_queue_push_tail_link(&d->all, &part->all_link);
        nrd_order_join(d, part, lane);
        push_part(d, lane, part);
    }
    d->top = MAX(d->top, entry->sequence + 1);
    if (d->memory_bytes + entry->size > d->options.memory_bytes)
        g_clear_pointer(&entry->bytes, g_free);
    else
        d->memory_bytes += entry->size;
}

void nrd_dispatcher_take_in_locked(NrdDispatcher *d)
{
    NrdPending *entry;
    while ((entry = g_queue_pop_head(&d->incoming)))
        take_in(d, entry);
}

void nrd_dispatcher_add(NrdDispatcher *d, NrdPending *entry)
{
    pthread_mutex_lock(&d->lock);
    g_queue_push_tail(&d->incoming, entry);
    d->pending_bytes += entry->size;
    if (d->n_idle > 0) { /* one wake-up here, whatever there is to do: this thread has producers to answer */
        pthread_cond_signal(&d->work);
    } else {
        nrd_dispatcher_take_in_locked(d);
        if (d->workers->len == 0) /* no thread could be made so far: the lanes are ready, and nobody knows */
            nrd_dispatcher_signal_locked(d);
    }
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
