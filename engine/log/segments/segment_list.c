/* See segment_list.h. */
#include "engine/log/segments/segment_list.h"

static NrdSegmentList *list_alloc(guint n)
{
    NrdSegmentList *list = g_malloc0(sizeof *list + n * sizeof list->items[0]);
    list->refs = 1;
    list->n = n;
    return list;
}

/* Two segments with one base would be two objects on one file, and what retention removes of one is the other's. */
static void put(NrdSegmentList *list, guint i, NrdSegment *segment)
{
    g_assert(i == 0 || nrd_segment_base(list->items[i - 1]) < nrd_segment_base(segment));
    list->items[i] = nrd_segment_ref(segment);
}

NrdSegmentList *nrd_segment_list_new(NrdSegment *const *items, guint n)
{
    NrdSegmentList *list = list_alloc(n);
    for (guint i = 0; i < n; i++)
        put(list, i, items[i]);
    return list;
}

NrdSegmentList *nrd_segment_list_ref(NrdSegmentList *list)
{
    g_atomic_int_inc(&list->refs);
    return list;
}

void nrd_segment_list_unref(NrdSegmentList *list)
{
    if (list == NULL || !g_atomic_int_dec_and_test(&list->refs))
        return;
    for (guint i = 0; i < list->n; i++)
        nrd_segment_unref(list->items[i]);
    g_free(list->sums.text_start);
    g_free(list->sums.greatest_ms);
    g_free(list);
}

NrdSegmentList *nrd_segment_list_append(const NrdSegmentList *list, NrdSegment *segment)
{
    NrdSegmentList *longer = list_alloc(list->n + 1);
    for (guint i = 0; i < list->n; i++)
        put(longer, i, list->items[i]);
    put(longer, list->n, segment);
    return longer;
}

NrdSegmentList *nrd_segment_list_drop(const NrdSegmentList *list, guint n_gone)
{
    g_assert(n_gone <= list->n);
    return nrd_segment_list_new(list->items + n_gone, list->n - n_gone);
}

guint nrd_segment_list_count(const NrdSegmentList *list, uint64_t offset)
{
    guint low = 0, high = list->n;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (nrd_segment_base(list->items[mid]) <= offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

NrdSegment *nrd_segment_list_find(const NrdSegmentList *list, uint64_t offset)
{
    guint n = nrd_segment_list_count(list, offset);
    return n > 0 ? list->items[n - 1] : NULL;
}

static void sum_up(NrdSegmentList *list)
{
    NrdSegmentSums *sums = &list->sums;
    uint64_t text_bytes = 0;
    int64_t greatest = 0;

    sums->size_bytes = 0;
    sums->complete = true;
    for (guint i = 0; i + 1 < list->n; i++) {
        NrdIndexEnd end = nrd_segment_end(list->items[i]);
        sums->size_bytes += nrd_segment_size_bytes(list->items[i]);
        sums->text_start[i] = text_bytes;
        text_bytes += end.text_bytes;
        sums->complete &= nrd_segment_end_is_known(list->items[i]);
        greatest = MAX(greatest, end.commit_ms);
        sums->greatest_ms[i] = greatest;
    }
    if (list->n > 0)
        sums->text_start[list->n - 1] = text_bytes;
}

const NrdSegmentSums *nrd_segment_list_sums_locked(NrdSegmentList *list, uint64_t text_version)
{
    NrdSegmentSums *sums = &list->sums;

    if (sums->known && sums->version == text_version)
        return sums;
    if (sums->text_start == NULL) {
        sums->text_start = g_new(uint64_t, list->n);
        sums->greatest_ms = g_new(int64_t, list->n);
    }
    sum_up(list);
    sums->version = text_version; /* read before the segments were: a change since then has another one */
    sums->known = true;
    return sums;
}

NrdSegment *nrd_segment_list_last(const NrdSegmentList *list)
{
    return list->n > 0 ? list->items[list->n - 1] : NULL;
}
