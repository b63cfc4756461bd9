/* Which part may be committed before which: dispatcher_private.h tells the rule.
 *
 * With every part in the lane of the partition that its entry names, a lane's order is all there is to keep. Parts that
 * went to a sibling are what this is for: those behind them, in whatever lane, wait. */
#include "engine/ingress/dispatcher_private.h"

void nrd_order_join(NrdDispatcher *d, NrdPart *part, NrdLane *home)
{
    part->home = home;
    part->order_link.data = part;
    g_queue_push_tail_link(&home->order, &part->order_link);
    home->order_bytes += part->size;
    d->n_strayed += part->to != part->partition;
}

static void wake_lane_of(NrdDispatcher *d, const NrdPart *part)
{
    NrdLane *lane = nrd_lane_find(d, part->entry->id, part->to);
    if (lane && lane->parts.head)
        nrd_lane_wake(d, lane);
}

/* The next one in the order may go now, and those before it that stand aside: nothing waits for them, but they wait. */
static void wake_next(NrdDispatcher *d, const NrdPart *part)
{
    bool aside = true;
    for (const GList *l = part->order_link.next; l && aside; l = l->next) {
        const NrdPart *next = l->data;
        aside = next->aside;
        if (next->to != part->to)
            wake_lane_of(d, next);
    }
}

void nrd_order_leave(NrdDispatcher *d, NrdPart *part)
{
    wake_next(d, part);
    d->n_strayed -= part->to != part->partition;
    g_queue_unlink(&part->home->order, &part->order_link);
    part->home->order_bytes -= part->size;
}

void nrd_order_step_aside(NrdDispatcher *d, NrdPart *part)
{
    part->aside = true;
    wake_next(d, part);
}

void nrd_order_place(NrdDispatcher *d, NrdPart *part, uint32_t to)
{
    d->n_strayed -= part->to != part->partition;
    part->to = to;
    d->n_strayed += part->to != part->partition;
}

/* Everything before it is done, or goes with it, or stands aside. */
static bool may_go(const NrdPart *part)
{
    const GList *before = part->order_link.prev;
    while (before && ((const NrdPart *)before->data)->aside)
        before = before->prev;
    return !before || ((const NrdPart *)before->data)->goes;
}

/* Those that may go come first. Whether any had to pass another one. */
static bool sort_out(NrdLane *lane)
{
    GQueue stay = G_QUEUE_INIT;
    bool passed = false;
    lane->n_ready = 0;
    for (GList *l = lane->parts.head; l;) {
        NrdPart *part = l->data;
        l = l->next;
        part->goes = may_go(part);
        lane->n_ready += part->goes;
        passed = passed || (part->goes && stay.head);
        if (part->goes)
            continue;
        g_queue_unlink(&lane->parts, &part->link);
        g_queue_push_tail_link(&stay, &part->link);
    }
    for (GList *l = lane->parts.head; l; l = l->next)
        ((NrdPart *)l->data)->goes = false;
    while (stay.head)
        g_queue_push_tail_link(&lane->parts, g_queue_pop_head_link(&stay));
    return passed;
}

void nrd_order_settle(NrdDispatcher *d, NrdLane *lane)
{
    lane->n_ready = lane->parts.length;
    if (d->n_strayed == 0 || !sort_out(lane))
        return;
    d->notes++;
    lane->exact = false;
    if (lane->n_stamped > 0)
        d->trust = MAX(d->trust, nrd_wal_next_sequence(d->options.wal));
    for (GList *l = lane->parts.head; l; l = l->next) {
        NrdPart *part = l->data;
        if (part->verify)
            continue;
        part->expected = NRD_ENTRY_OFFSET_UNKNOWN;
        part->note = d->notes;
    }
}
