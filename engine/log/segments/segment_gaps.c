/* The gaps of a segment: each is counted and logged once. */
#include "engine/log/segments/segment_private.h"

#include <inttypes.h>

static bool learn_gap_locked(NrdSegment *segment, const NrdGap *gap)
{
    if (segment->known_gaps == NULL)
        segment->known_gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        if (g_array_index(segment->known_gaps, NrdGap, i).pos == gap->pos)
            return false;
    }
    if (segment->known_gaps->len < NRD_MAX_KNOWN_GAPS)
        g_array_append_val(segment->known_gaps, *gap);
    return true;
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
    bool has = segment->known_gaps != NULL;
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
