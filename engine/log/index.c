/* See index.h. */
#include "engine/log/index.h"

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

/* Number of entries whose offset (or text_pos) is at most `value`. */
static guint count_entries(const NrdIndex *index, uint64_t value, bool by_text)
{
    guint low = 0, high = index->entries->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        const NrdIndexEntry *entry = entry_at(index, mid);
        if ((by_text ? entry->text_pos : entry->offset) <= value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Number of gaps that begin at or before position pos. */
static guint count_gaps(const NrdIndex *index, uint64_t pos)
{
    guint low = 0, high = index->gaps->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (gap_at(index, mid)->pos <= pos)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Fills in the place of entry i. */
static void place_of(const NrdIndex *index, guint i, NrdIndexPlace *ret_place)
{
    const NrdIndexEntry *entry = entry_at(index, i);
    guint g = count_gaps(index, entry->pos);
    uint64_t limit = index->end.pos;

    if (i + 1 < index->entries->len)
        limit = MIN(limit, entry_at(index, i + 1)->pos);
    if (g < index->gaps->len)
        limit = MIN(limit, gap_at(index, g)->pos);
    *ret_place = (NrdIndexPlace){ .pos = entry->pos,
                                  .offset = entry->offset,
                                  .text_pos = entry->text_pos,
                                  .limit_pos = limit,
                                  .end_pos = index->end.pos };
}

/* The last gap that begins at or before offset, if it holds offset. */
static const NrdGap *gap_with(const NrdIndex *index, uint64_t offset)
{
    guint low = 0, high = index->gaps->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (gap_at(index, mid)->offset <= offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && offset < gap_at(index, low - 1)->end_offset ? gap_at(index, low - 1) : NULL;
}

void nrd_index_find_offset(const NrdIndex *index, uint64_t offset, NrdIndexPlace *ret_place)
{
    const NrdGap *gap = gap_with(index, offset);

    if (gap != NULL) {
        *ret_place = (NrdIndexPlace){ .is_gap = true, .gap = *gap };
        return;
    }
    guint n = count_entries(index, offset, false);
    if (n > 0) {
        place_of(index, n - 1, ret_place);
        return;
    }
    uint64_t next = index->entries->len > 0 ? entry_at(index, 0)->offset : index->end.offset;
    *ret_place = (NrdIndexPlace){ .is_gap = true, .gap = { 0, 0, offset, MAX(next, offset + 1) } };
}

bool nrd_index_find_text(const NrdIndex *index, uint64_t text_pos, NrdIndexPlace *ret_place)
{
    guint n = count_entries(index, text_pos, true);

    if (n == 0 || text_pos >= index->end.text_bytes)
        return false;
    place_of(index, n - 1, ret_place);
    return true;
}

bool nrd_index_find_time(const NrdIndex *index, int64_t time_ms, NrdIndexPlace *ret_place)
{
    guint low = 0, high = index->entries->len;

    if (high == 0 || index->end.commit_ms < time_ms)
        return false;
    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (entry_at(index, mid)->commit_ms < time_ms)
            low = mid + 1;
        else
            high = mid;
    }
    /* the record stands behind the frame of entry low - 1, and not behind that of entry low */
    place_of(index, low > 0 ? low - 1 : 0, ret_place);
    return true;
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
