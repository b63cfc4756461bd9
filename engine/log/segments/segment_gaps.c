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
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, (int64_t)gap->offset),
             "damaged frame in segment %020" PRIu64 " at byte %" PRIu64 ": %" PRIu64 " record%s lost", segment->base,
             gap->pos, gap->end_offset - gap->offset, nrd_plural(gap->end_offset - gap->offset));
}

void nrd_segment_report_gaps(NrdSegment *segment, const GArray *gaps)
{
    for (guint i = 0; i < gaps->len; i++)
        nrd_segment_report_gap(segment, &g_array_index(gaps, NrdGap, i));
}

void nrd_segment_add_damage(NrdSegment *segment, NrdDamage *damage)
{
    g_mutex_lock(&segment->lock);
    for (guint i = 0; segment->known_gaps != NULL && i < segment->known_gaps->len; i++) {
        const NrdGap *gap = &g_array_index(segment->known_gaps, NrdGap, i);
        if (damage->n_frames == 0 || gap->offset < damage->first_offset)
            damage->first_offset = gap->offset;
        damage->n_frames++;
        damage->n_records += gap->end_offset - gap->offset;
    }
    g_mutex_unlock(&segment->lock);
}

void nrd_segment_copy_gaps(NrdSegment *segment, GArray *gaps)
{
    g_mutex_lock(&segment->lock);
    if (segment->known_gaps != NULL)
        g_array_append_vals(gaps, segment->known_gaps->data, segment->known_gaps->len);
    g_mutex_unlock(&segment->lock);
}
