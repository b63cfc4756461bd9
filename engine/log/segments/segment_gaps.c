/* The gaps of a segment: each is counted and logged once, and forgotten when a scan does not find it any more. */
#include "engine/log/segments/segment_private.h"

#include <inttypes.h>

static int compare_begins(gconstpointer a, gconstpointer b)
{
    const NrdGap *x = a, *y = b;
    return x->pos != y->pos ? (x->pos > y->pos) - (x->pos < y->pos) : (x->offset > y->offset) - (x->offset < y->offset);
}

static bool is_same(const NrdGap *a, const NrdGap *b)
{
    return compare_begins(a, b) == 0 && a->end_pos == b->end_pos && a->end_offset == b->end_offset;
}

/* Whether it is news: one that is not known, or ends elsewhere than was known. */
static bool learn_gap_locked(NrdSegment *segment, const NrdGap *gap)
{
    if (segment->known_gaps == NULL)
        segment->known_gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        NrdGap *known = &g_array_index(segment->known_gaps, NrdGap, i);
        if (compare_begins(known, gap) != 0)
            continue;
        bool differs = !is_same(known, gap);
        *known = *gap;
        return differs;
    }
    if (segment->known_gaps->len < NRD_MAX_KNOWN_GAPS)
        g_array_append_val(segment->known_gaps, *gap);
    return true;
}

void nrd_segment_forget_gaps_locked(NrdSegment *segment, GArray *gaps)
{
    guint n = 0, at;

    if (segment->known_gaps == NULL)
        return;
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        NrdGap known = g_array_index(segment->known_gaps, NrdGap, i);
        if (g_array_binary_search(gaps, &known, compare_begins, &at) &&
            is_same(&known, &g_array_index(gaps, NrdGap, at)))
            g_array_index(segment->known_gaps, NrdGap, n++) = known;
    }
    g_array_set_size(segment->known_gaps, n);
}

void nrd_segment_report_gap(NrdSegment *segment, const NrdGap *gap)
{
    g_mutex_lock(&segment->lock);
    bool fresh = learn_gap_locked(segment, gap);
    g_mutex_unlock(&segment->lock);
    if (!fresh)
        return;
    __atomic_add_fetch(&segment->home->n_gaps, 1, __ATOMIC_ACQ_REL);
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    uint64_t n_lost = gap->end_offset - gap->offset;
    NrdPlace place = nrd_segment_home_place(segment->home, (int64_t)gap->offset);
    if (nrd_segment_is_gone(segment))
        nrd_diag(
            NRD_LEVEL_ERROR, place,
            "records %" PRIu64 " to %" PRIu64 " are missing: %s/%020" PRIu64
            ".log is gone, and was not deleted by the daemon; put it back and write `reopen` to the partition's ctl",
            gap->offset, gap->end_offset - 1, segment->home->dir, segment->base);
    else if (gap->pos == gap->end_pos)
        nrd_diag(NRD_LEVEL_WARNING, place,
                 "%" PRIu64 " record%s missing up to offset %" PRIu64 ": segment %020" PRIu64
                 " ends before the next one begins, so a file is gone, or was emptied or cut",
                 n_lost, nrd_plural(n_lost), gap->end_offset - 1, segment->base);
    else
        nrd_diag(NRD_LEVEL_WARNING, place,
                 "damaged frame in segment %020" PRIu64 " at byte %" PRIu64 ": %" PRIu64 " record%s lost",
                 segment->base, gap->pos, n_lost, nrd_plural(n_lost));
}

void nrd_segment_add_gap(NrdSegment *segment, uint64_t end_offset)
{
    g_mutex_lock(&segment->lock);
    NrdIndexEnd from = segment->index->end;
    NrdGap gap = { from.pos, from.pos, from.offset, end_offset };
    nrd_index_add_gap(segment->index, from.pos, end_offset);
    segment->end = segment->index->end;
    (void)learn_gap_locked(segment, &gap); /* whose records are lost was told and counted when that was found */
    g_mutex_unlock(&segment->lock);
    __atomic_add_fetch(&segment->home->n_gaps, 1, __ATOMIC_ACQ_REL);
}

void nrd_segment_report_gaps(NrdSegment *segment, const GArray *gaps)
{
    for (guint i = 0; i < gaps->len; i++)
        nrd_segment_report_gap(segment, &g_array_index(gaps, NrdGap, i));
}

void nrd_segment_add_damage(NrdSegment *segment, NrdDamage *damage)
{
    g_mutex_lock(&segment->lock);
    for (guint i = 0; segment->known_gaps != NULL && i < segment->known_gaps->len; i++)
        nrd_damage_add(damage, &g_array_index(segment->known_gaps, NrdGap, i));
    g_mutex_unlock(&segment->lock);
}

bool nrd_segment_has_gaps(NrdSegment *segment)
{
    if (__atomic_load_n(&segment->home->n_gaps, __ATOMIC_ACQUIRE) == 0)
        return false;
    g_mutex_lock(&segment->lock);
    bool has = segment->known_gaps != NULL && segment->known_gaps->len > 0;
    g_mutex_unlock(&segment->lock);
    return has;
}

void nrd_segment_copy_gaps(NrdSegment *segment, GArray *gaps)
{
    g_mutex_lock(&segment->lock);
    if (segment->known_gaps != NULL)
        g_array_append_vals(gaps, segment->known_gaps->data, segment->known_gaps->len);
    g_mutex_unlock(&segment->lock);
}
