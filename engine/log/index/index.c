/* See index.h. */
#include "engine/log/index/index.h"

NrdIndex *nrd_index_new(uint64_t base)
{
    NrdIndex *index = g_new0(NrdIndex, 1);
    index->entries = g_array_new(FALSE, FALSE, sizeof(NrdIndexEntry));
    index->gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    index->end.offset = base;
    return index;
}

void nrd_index_free(NrdIndex *index)
{
    if (index == NULL)
        return;
    g_array_unref(index->entries);
    g_array_unref(index->gaps);
    g_free(index);
}

static NrdIndexEntry *entry_at(const NrdIndex *index, guint i)
{
    return &g_array_index(index->entries, NrdIndexEntry, i);
}

static NrdGap *gap_at(const NrdIndex *index, guint i)
{
    return &g_array_index(index->gaps, NrdGap, i);
}

static bool needs_entry(const NrdIndex *index)
{
    if (index->entries->len == 0 || index->after_gap)
        return true;
    return index->end.pos - entry_at(index, index->entries->len - 1)->pos >= NRD_INDEX_EVERY_BYTES;
}

void nrd_index_add_frame(NrdIndex *index, uint64_t size_bytes, uint32_t n_records, uint64_t text_bytes,
                         int64_t commit_ms)
{
    int64_t greatest = MAX(index->end.commit_ms, commit_ms);

    if (needs_entry(index)) {
        NrdIndexEntry entry = { index->end.offset, index->end.pos, index->end.text_bytes, greatest };
        g_array_append_val(index->entries, entry);
        index->after_gap = false;
    }
    index->end.pos += size_bytes;
    index->end.offset += n_records;
    index->end.text_bytes += text_bytes;
    index->end.commit_ms = greatest;
}

void nrd_index_add_gap(NrdIndex *index, uint64_t end_pos, uint64_t end_offset)
{
    NrdGap gap = { index->end.pos, end_pos, index->end.offset, end_offset };

    g_assert(end_pos >= gap.pos && end_offset >= gap.offset);
    g_array_append_val(index->gaps, gap);
    index->end.pos = end_pos;
    index->end.offset = end_offset;
    index->after_gap = true;
}

void nrd_index_continue(NrdIndex *index, const NrdIndex *old, const NrdIndexEnd *since)
{
    uint64_t text_before = index->end.text_bytes;

    g_assert(index->end.pos == since->pos && index->end.offset == since->offset);
    if (old->end.pos == since->pos)
        return;
    /* The frame that begins where the rebuild stopped gets an entry: old may have none there, and the last frames
     * before it may be a gap now. */
    NrdIndexEntry seam = { since->offset, since->pos, text_before, index->end.commit_ms };
    g_array_append_val(index->entries, seam);
    for (guint i = 0; i < old->entries->len; i++) {
        NrdIndexEntry entry = *entry_at(old, i);
        if (entry.pos <= since->pos)
            continue;
        entry.text_pos = entry.text_pos - since->text_bytes + text_before;
        g_array_append_val(index->entries, entry);
    }
    for (guint i = 0; i < old->gaps->len; i++) {
        if (gap_at(old, i)->pos >= since->pos)
            g_array_append_val(index->gaps, *gap_at(old, i));
    }
    index->end = (NrdIndexEnd){ .pos = old->end.pos,
                                .offset = old->end.offset,
                                .text_bytes = old->end.text_bytes - since->text_bytes + text_before,
                                .commit_ms = MAX(old->end.commit_ms, index->end.commit_ms) };
    index->after_gap = old->after_gap;
}

static void add_hole(NrdDamage *damage, const NrdGap *gap)
{
    if (damage->n_holes == 0 || gap->offset < damage->first_missing)
        damage->first_missing = gap->offset;
    damage->missing_end = MAX(damage->missing_end, gap->end_offset);
    damage->n_holes++;
    damage->n_missing += gap->end_offset - gap->offset;
}

void nrd_damage_add(NrdDamage *damage, const NrdGap *gap)
{
    if (gap->pos == gap->end_pos) {
        add_hole(damage, gap);
        return;
    }
    if (damage->n_frames == 0 || gap->offset < damage->first_offset)
        damage->first_offset = gap->offset;
    damage->n_frames++;
    damage->n_records += gap->end_offset - gap->offset;
}
