/* Which segments a text spans, and where the text of each begins: the ones that have left the log since it was opened,
 * and those of the log's list from some place on. The list keeps prefix sums that all its texts share, so that to open a
 * text and to find a position in it takes a binary search. They are worked out anew only when the list or the text of
 * some segment has changed; the last segment, which grows, is asked each time.
 *
 * The first segment of a span is held, and so, since files go in order, are all of them: they stay whatever retention
 * does. A segment that has left the log and lies wholly behind the reader is given up: its bytes go on counting, its
 * positions cannot be read any more. */
#include "engine/log/reading/text_private.h"

#include "engine/base/clock.h"
#include "engine/log/reading/rendered_private.h"
#include "engine/log/reading/texts.h"

/* A reader that is on its way may still ask for what lies so far behind: the kernel reads ahead, out of order. */
#define BACK_BYTES ((uint64_t)NRD_MIB)
/* One that has not read for so long does not. */
#define IDLE_MS ((int64_t)30 * 1000)

static NrdTextPart *part_at(const NrdText *text, guint i)
{
    return &g_array_index(text->parts, NrdTextPart, i);
}

static NrdSegment *first_segment(const NrdText *text)
{
    if (text->parts->len > 0)
        return part_at(text, 0)->segment;
    return text->first < text->list->n ? text->list->items[text->first] : NULL;
}

/* Holds the first segment of the span, before it lets go of the one that was. text->lock is held. */
static void hold_first(NrdText *text)
{
    NrdSegment *first = first_segment(text);
    NrdSegment *old = text->held;

    if (first == old)
        return;
    nrd_segment_hold(first); /* there always is one when there was one */
    text->held = nrd_segment_ref(first);
    if (old != NULL) {
        nrd_segment_release(old);
        nrd_segment_unref(old);
    }
}

void nrd_text_begin_span_locked(NrdText *text)
{
    NrdSegmentList *list = text->log->list;
    guint n = nrd_segment_list_count(list, text->from);

    g_mutex_lock(&text->lock);
    text->list = nrd_segment_list_ref(list);
    text->first = n > 0 ? n - 1 : 0;
    hold_first(text);
    g_mutex_unlock(&text->lock);
}

void nrd_text_end_span(NrdText *text)
{
    for (guint i = 0; i < text->parts->len; i++)
        nrd_segment_unref(part_at(text, i)->segment);
    g_array_unref(text->parts);
    if (text->held != NULL) {
        nrd_segment_release(text->held);
        nrd_segment_unref(text->held);
    }
    nrd_segment_list_unref(text->list);
}

/* Goes over to the log's list as it is now. None of its segments has come and gone since the last time: before any go,
 * nrd_text_extend_all_locked is called; in the place of one that a reopen has replaced stands one of the same base.
 * log->lock and text->lock are held. */
static void catch_up_locked(NrdText *text)
{
    NrdSegmentList *old = text->list;
    NrdSegmentList *now = text->log->list;
    guint i = text->first;

    if (old == now)
        return;
    for (; i < old->n && nrd_segment_base(old->items[i]) < nrd_segment_base(now->items[0]); i++) {
        NrdTextPart part = { .segment = nrd_segment_ref(old->items[i]) };
        g_array_append_val(text->parts, part);
    }
    text->first = i < old->n ? nrd_segment_list_count(now, nrd_segment_base(old->items[i])) - 1 : 0;
    text->list = nrd_segment_list_ref(now);
    text->summed = false;
    hold_first(text);
    nrd_segment_list_unref(old); /* what goes with it has let its file go: memory only */
}

/* Works out where everything begins; returns where the span ends. Both locks are held, the span has caught up. */
static uint64_t sum_up_locked(NrdText *text, const NrdSegmentSums **ret_sums)
{
    uint64_t version = nrd_load(&text->log->home.text_version); /* before the segments: a change since shows */
    uint64_t at = text->start;

    if (!text->summed || text->version != version) {
        for (guint i = 0; i < text->parts->len; i++) {
            part_at(text, i)->start = at;
            at += nrd_segment_end(part_at(text, i)->segment).text_bytes;
        }
        text->list_start = at;
        text->summed = true;
        text->version = version;
    }
    *ret_sums = nrd_segment_list_sums_locked(text->list, version);
    NrdSegment *last = nrd_segment_list_last(text->list);
    if (last == NULL)
        return text->list_start;
    uint64_t before = (*ret_sums)->text_start[text->list->n - 1] - (*ret_sums)->text_start[text->first];
    return text->list_start + before + nrd_log_visible_text_locked(text->log, last);
}

/* Both are asked for a position that the span holds, and fill in segment and local. The hold is for the time after the
 * locks: the text may be taken for idle then, and give the segment up. */
static void find_in_parts(const NrdText *text, uint64_t at, NrdTextFound *found)
{
    guint low = 1, high = text->parts->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (part_at(text, mid)->start <= at)
            low = mid + 1;
        else
            high = mid;
    }
    const NrdTextPart *part = part_at(text, low - 1);
    found->segment = nrd_segment_ref(part->segment);
    nrd_segment_hold(found->segment);
    found->local = at - part->start;
}

static void find_in_list(const NrdText *text, const NrdSegmentSums *sums, uint64_t at, NrdTextFound *found)
{
    guint low = text->first + 1, high = text->list->n;
    uint64_t sought = at - text->list_start + sums->text_start[text->first];

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (sums->text_start[mid] <= sought)
            low = mid + 1;
        else
            high = mid;
    }
    found->segment = nrd_segment_ref(text->list->items[low - 1]);
    nrd_segment_hold(found->segment);
    found->local = sought - sums->text_start[low - 1];
}

NrdTextFound nrd_text_find(NrdText *text, uint64_t pos)
{
    NrdLog *log = text->log;
    NrdTextFound found = { .total = 0 };
    const NrdSegmentSums *sums;

    g_mutex_lock(&log->lock);
    g_mutex_lock(&text->lock);
    catch_up_locked(text);
    uint64_t end = sum_up_locked(text, &sums);
    found.version = text->version;
    found.total = end > text->skip ? end - text->skip : 0;
    if (pos < found.total) {
        uint64_t at = pos + text->skip;
        found.gone = at < text->start;
        if (!found.gone && at < text->list_start)
            find_in_parts(text, at, &found);
        else if (!found.gone)
            find_in_list(text, sums, at, &found);
    }
    g_mutex_unlock(&text->lock);
    g_mutex_unlock(&log->lock);
    return found;
}

void nrd_text_found_done(NrdTextFound *found)
{
    if (found->segment == NULL)
        return;
    nrd_segment_release(found->segment);
    nrd_segment_unref(found->segment);
    found->segment = NULL;
}

/* text->lock is held. */
static void drop_passed_locked(NrdText *text)
{
    guint n = 0;

    if (!text->summed)
        return; /* it is done after the next read */
    while (n < text->parts->len) {
        uint64_t end = n + 1 < text->parts->len ? part_at(text, n + 1)->start : text->list_start;
        if (end > text->passed)
            break;
        nrd_segment_unref(part_at(text, n)->segment);
        text->start = end;
        n++;
    }
    if (n == 0)
        return;
    g_array_remove_range(text->parts, 0, n);
    text->dropped = true;
    hold_first(text);
}

void nrd_text_passed(NrdText *text, uint64_t pos)
{
    g_mutex_lock(&text->lock);
    text->read_pos = pos + text->skip;
    text->passed = text->read_pos > BACK_BYTES ? text->read_pos - BACK_BYTES : 0;
    text->read_ms = nrd_clock_mono_ms();
    drop_passed_locked(text);
    g_mutex_unlock(&text->lock);
}

void nrd_text_extend_all_locked(NrdLog *log)
{
    nrd_rendered_extend_all_locked(log);
    for (GList *l = log->texts; l != NULL; l = l->next) {
        NrdText *text = l->data;
        g_mutex_lock(&text->lock);
        catch_up_locked(text);
        g_mutex_unlock(&text->lock);
    }
}

void nrd_text_relist_all_locked(NrdLog *log)
{
    __atomic_add_fetch(&log->home.text_version, 1, __ATOMIC_ACQ_REL);
    nrd_rendered_relist_all_locked(log);
    for (GList *l = log->texts; l != NULL; l = l->next) {
        NrdText *text = l->data;
        g_mutex_lock(&text->lock);
        catch_up_locked(text);
        g_mutex_unlock(&text->lock);
    }
}

void nrd_text_drop_idle(NrdLog *log)
{
    int64_t now_ms = nrd_clock_mono_ms();
    const NrdSegmentSums *sums;

    g_mutex_lock(&log->lock);
    for (GList *l = log->texts; l != NULL; l = l->next) {
        NrdText *text = l->data;
        g_mutex_lock(&text->lock);
        catch_up_locked(text);
        (void)sum_up_locked(text, &sums);
        if (now_ms - text->read_ms >= IDLE_MS)
            text->passed = MAX(text->passed, text->read_pos);
        drop_passed_locked(text);
        g_mutex_unlock(&text->lock);
    }
    nrd_rendered_drop_idle_locked(log, IDLE_MS);
    g_mutex_unlock(&log->lock);
}
