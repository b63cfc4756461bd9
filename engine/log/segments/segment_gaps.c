/* The gaps of a segment: each is counted and logged once. */
#include "engine/log/segments/segment_private.h"

#include <inttypes.h>

static bool learn_gap_locked(NrdSegment *segment, uint64_t pos)
{
    if (segment->known_gaps == NULL)
        segment->known_gaps = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        if (g_array_index(segment->known_gaps, uint64_t, i) == pos)
            return false;
    }
    if (segment->known_gaps->len < NRD_MAX_KNOWN_GAPS)
        g_array_append_val(segment->known_gaps, pos);
    return true;
}

void nrd_segment_report_gap(NrdSegment *segment, const NrdGap *gap)
{
    g_mutex_lock(&segment->lock);
    bool fresh = learn_gap_locked(segment, gap->pos);
    g_mutex_unlock(&segment->lock);
    if (!fresh)
        return;
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, (int64_t)gap->offset),
             "damaged frame in segment %020" PRIu64 " at byte %" PRIu64 ": %" PRIu64 " records are lost", segment->base,
             gap->pos, gap->end_offset - gap->offset);
}

void nrd_segment_report_gaps(NrdSegment *segment, const GArray *gaps)
{
    for (guint i = 0; i < gaps->len; i++)
        nrd_segment_report_gap(segment, &g_array_index(gaps, NrdGap, i));
}
