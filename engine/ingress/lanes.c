/* Lanes: which there are, what state they are in, and what goes from one to another. */
#include "engine/ingress/dispatcher_private.h"

#include "engine/base/cond.h"
#include "engine/base/diag.h"

#include <string.h>

#define MOVES_IN_A_ROW 4   /* a sibling may turn out to fail as well */
#define MOVE_AGAIN_MS 5000 /* after so many a part stays where it is so long: else it would go round in circles */

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

void nrd_lane_wake(NrdDispatcher *d, NrdLane *lane)
{
    if (lane->state == NRD_LANE_IDLE)
        nrd_lane_set_state(d, lane, NRD_LANE_READY);
}

/* ---- moving to a sibling ---- */

/* Whether it is in the lane, and no worker has it. */
static bool stands_in(const NrdPart *part, const NrdLane *lane)
{
    return part->to == lane->partition && !part->taken;
}

void nrd_lane_insert(NrdLane *lane, NrdPart *part, GList **front)
{
    const GList *next = part->order_link.next;
    while (next && !stands_in(next->data, lane))
        next = next->next;
    GList *at = next ? &((NrdPart *)next->data)->link : *front;
    g_queue_insert_before_link(&lane->parts, at, &part->link);
    if (at == *front)
        *front = &part->link;
}

/* Several moves in a row, then a rest. */
static bool may_move(NrdPart *part, int64_t now_ms)
{
    if (part->moved_ms > 0 && now_ms - part->moved_ms >= MOVE_AGAIN_MS)
        part->n_moves = 0;
    return part->n_moves < MOVES_IN_A_ROW;
}

/* The checkpoint says where it is now before it is committed there. */
static void move_part(NrdDispatcher *d, NrdPart *part, NrdLane *target, int64_t now_ms, GList **front)
{
    part->expected = NRD_ENTRY_OFFSET_UNKNOWN; /* it is named before it is committed */
    target->exact = false;
    nrd_order_place(d, part, target->partition);
    part->note = d->notes;
    part->moved_ms = now_ms;
    part->n_moves++;
    nrd_lane_insert(target, part, front);
    nrd_lane_wake(d, target);
    nrd_counter_add(NRD_COUNTER_INGRESS_REROUTED, part->n_records);
}

/* What a replay has to look up may be there already: only its own partition can tell, so it waits for that. What is
 * behind it does not wait. */
bool nrd_lane_move(NrdDispatcher *d, NrdLane *lane, uint32_t to, int64_t now_ms)
{
    NrdLane *target = nrd_lane_get(d, lane->topic, lane->id, to);
    GList *front = NULL;
    bool any = false;
    if (target != lane && target->n_failed == 0) {
        d->notes++;
        if (lane->n_stamped > 0 || target->n_stamped > 0) /* what is being written names wrong offsets now */
            d->trust = MAX(d->trust, nrd_wal_next_sequence(d->options.wal));
        for (GList *l = lane->parts.tail; l;) {
            NrdPart *part = l->data;
            l = l->prev;
            if (part->verify) {
                nrd_order_step_aside(d, part);
                continue;
            }
            part->expected = NRD_ENTRY_OFFSET_UNKNOWN; /* what was before it is not any more */
            if (!may_move(part, now_ms))
                continue;
            g_queue_unlink(&lane->parts, &part->link);
            move_part(d, part, target, now_ms, &front);
            any = true;
        }
        lane->exact = false;
    }
    nrd_lane_put(d, target);
    return any;
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
    nrd_dispatcher_take_in_locked(d);
    *ret_load = (NrdDispatcherLoad){ d->all.length, d->pending_bytes };
    pthread_mutex_unlock(&d->lock);
}

void nrd_dispatcher_load_of(NrdDispatcher *d, const char *id, NrdDispatcherLoad *ret_load)
{
    GHashTableIter iter;
    gpointer key;
    *ret_load = (NrdDispatcherLoad){ 0 };
    pthread_mutex_lock(&d->lock);
    nrd_dispatcher_take_in_locked(d);
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
    d->options = *options;
    pthread_mutex_init(&d->lock, NULL);
    nrd_cond_init(&d->work);
    nrd_cond_init(&d->change);
    d->lanes = g_hash_table_new_full(lane_hash, lane_equal, lane_free, NULL);
    g_queue_init(&d->incoming);
    g_queue_init(&d->ready);
    g_queue_init(&d->waiting);
    g_queue_init(&d->running);
    g_queue_init(&d->all);
    d->workers = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    pthread_mutex_lock(&d->lock);
    bool any = nrd_dispatcher_add_worker_locked(d);
    pthread_mutex_unlock(&d->lock);
    if (any)
        return d;
    nrd_dispatcher_free(d);
    return NULL;
}

void nrd_dispatcher_set_wal(NrdDispatcher *d, NrdWal *wal)
{
    d->options.wal = wal;
}

void nrd_dispatcher_free(NrdDispatcher *d)
{
    if (!d)
        return;
    g_assert(d->workers->len == 0 && !d->incoming.head);
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
