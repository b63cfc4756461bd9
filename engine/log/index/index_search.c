/* See index_search.h. */
#include "engine/log/index/index_search.h"

static int memory_entry(void *data, uint64_t i, NrdIndexEntry *ret_entry)
{
    const NrdIndex *index = data;
    *ret_entry = g_array_index(index->entries, NrdIndexEntry, i);
    return 0;
}

static int memory_gap(void *data, uint64_t i, NrdGap *ret_gap)
{
    const NrdIndex *index = data;
    *ret_gap = g_array_index(index->gaps, NrdGap, i);
    return 0;
}

NrdIndexView nrd_index_view(NrdIndex *index)
{
    return (NrdIndexView){ .data = index,
                           .n_entries = index->entries->len,
                           .n_gaps = index->gaps->len,
                           .end = index->end,
                           .get_entry = memory_entry,
                           .get_gap = memory_gap };
}

/* Whether an entry stands at or before what is sought; for a time: wholly before. */
static bool is_before(const NrdIndexEntry *entry, const NrdIndexQuery *query)
{
    switch (query->key) {
    case NRD_BY_OFFSET:
        return entry->offset <= query->value;
    case NRD_BY_TEXT:
        return entry->text_pos <= query->value;
    case NRD_BY_TIME:
        return entry->commit_ms < query->time_ms;
    }
    g_assert_not_reached();
}

static int count_entries(const NrdIndexView *view, const NrdIndexQuery *query, uint64_t *ret_n)
{
    uint64_t low = 0, high = view->n_entries;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        NrdIndexEntry entry;
        int r = view->get_entry(view->data, mid, &entry);
        if (r < 0)
            return r;
        if (is_before(&entry, query))
            low = mid + 1;
        else
            high = mid;
    }
    *ret_n = low;
    return 0;
}

/* Number of gaps that begin at or before a file position or an offset. */
static int count_gaps(const NrdIndexView *view, uint64_t value, bool by_pos, uint64_t *ret_n)
{
    uint64_t low = 0, high = view->n_gaps;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        NrdGap gap;
        int r = view->get_gap(view->data, mid, &gap);
        if (r < 0)
            return r;
        if ((by_pos ? gap.pos : gap.offset) <= value)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_n = low;
    return 0;
}

/* Up to where frames follow entry i without a hole. */
static int find_limit(const NrdIndexView *view, uint64_t i, const NrdIndexEntry *entry, uint64_t *ret_pos)
{
    uint64_t limit = view->end.pos;
    uint64_t n = 0;
    NrdIndexEntry next;
    NrdGap gap;
    int r = 0;

    if (i + 1 < view->n_entries) {
        r = view->get_entry(view->data, i + 1, &next);
        if (r == 0)
            limit = MIN(limit, next.pos);
    }
    if (r == 0)
        r = count_gaps(view, entry->pos, true, &n);
    if (r == 0 && n < view->n_gaps) {
        r = view->get_gap(view->data, n, &gap);
        if (r == 0)
            limit = MIN(limit, gap.pos);
    }
    if (r < 0)
        return r;
    *ret_pos = limit;
    return 0;
}

/* Fills in the place of entry i. */
static int place_of(const NrdIndexView *view, uint64_t i, NrdIndexPlace *ret_place)
{
    NrdIndexEntry entry;
    uint64_t limit_pos = 0;
    int r = view->get_entry(view->data, i, &entry);
    if (r == 0)
        r = find_limit(view, i, &entry, &limit_pos);
    if (r < 0)
        return r;
    *ret_place = (NrdIndexPlace){ .pos = entry.pos,
                                  .offset = entry.offset,
                                  .text_pos = entry.text_pos,
                                  .limit_pos = limit_pos,
                                  .end_pos = view->end.pos };
    return 0;
}

/* The gap that holds offset, if one does. */
static int find_gap(const NrdIndexView *view, uint64_t offset, NrdIndexPlace *ret_place, bool *ret_found)
{
    NrdGap gap = { 0 };
    uint64_t n = 0;
    int r = count_gaps(view, offset, false, &n);
    if (r == 0 && n > 0)
        r = view->get_gap(view->data, n - 1, &gap);
    if (r < 0)
        return r;
    *ret_found = n > 0 && offset < gap.end_offset;
    if (*ret_found)
        *ret_place = (NrdIndexPlace){ .is_gap = true, .gap = gap };
    return 0;
}

/* No frame stands before offset: what is lost goes up to the first one. */
static int gap_before_first(const NrdIndexView *view, uint64_t offset, NrdIndexPlace *ret_place)
{
    uint64_t next = view->end.offset;
    NrdIndexEntry first;

    if (view->n_entries > 0) {
        int r = view->get_entry(view->data, 0, &first);
        if (r < 0)
            return r;
        next = first.offset;
    }
    *ret_place = (NrdIndexPlace){ .is_gap = true, .gap = { 0, 0, offset, MAX(next, offset + 1) } };
    return 0;
}

int nrd_index_search(const NrdIndexView *view, const NrdIndexQuery *query, NrdIndexPlace *ret_place, bool *ret_found)
{
    uint64_t n = 0;
    bool in_gap = false;
    int r = 0;

    *ret_found = true;
    if (query->key == NRD_BY_OFFSET)
        r = find_gap(view, query->value, ret_place, &in_gap);
    if (r < 0 || in_gap)
        return r;
    if (query->key == NRD_BY_TIME && (view->n_entries == 0 || view->end.commit_ms < query->time_ms))
        *ret_found = false;
    if (query->key == NRD_BY_TEXT && (view->n_entries == 0 || query->value >= view->end.text_bytes))
        *ret_found = false;
    if (!*ret_found)
        return 0;
    r = count_entries(view, query, &n);
    if (r < 0)
        return r;
    if (n == 0 && query->key == NRD_BY_OFFSET)
        return gap_before_first(view, query->value, ret_place);
    /* by time the record stands behind the frame of entry n - 1, and not behind that of entry n */
    return place_of(view, n > 0 ? n - 1 : 0, ret_place);
}
