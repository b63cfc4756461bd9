/* Which segments a text spans, and where the text of each begins: prefix sums, so that a position is found by a binary
 * search. They are worked out anew only when the text of some segment has changed; the last segment, which grows, is
 * asked each time.
 *
 * Every segment of a span is held, so that its file stays whatever retention does. A segment that has been detached and
 * lies wholly behind the reader is given up: its bytes go on counting, its positions cannot be read any more. */
#include "engine/log/text_private.h"

#include "engine/base/clock.h"

/* A reader that is on its way may still ask for what lies so far behind: the kernel reads ahead, out of order. */
#define BACK_BYTES ((uint64_t)NRD_MIB)
/* One that has not read for so long does not. */
#define IDLE_MS ((int64_t)30 * 1000)

static NrdTextPart *part_at(const NrdText *text, guint i)
{
    return &g_array_index(text->parts, NrdTextPart, i);
}

void nrd_text_extend_locked(NrdText *text, uint64_t base)
{
    const NrdSegmentList *list = text->log->list;
    guint from = list->n;

    if (text->parts->len > 0)
        base = nrd_segment_base(part_at(text, text->parts->len - 1)->segment) + 1;
    while (from > 0 && nrd_segment_base(list->items[from - 1]) >= base)
        from--;
    for (guint i = from; i < list->n; i++) {
        NrdTextPart part = { .segment = nrd_segment_ref(list->items[i]) };
        nrd_segment_hold(part.segment);
        g_array_append_val(text->parts, part);
    }
}

/* Fills in the starts that are missing or may have moved; returns where the span ends. Both locks are held. */
static uint64_t sum_up_locked(NrdText *text)
{
    uint64_t version = nrd_load(&text->log->home.text_version); /* before the segments: a change since shows */

    if (text->parts->len == 0)
        return 0;
    if (text->n_summed == 0 || text->version != version)
        text->n_summed = 1; /* what was dropped is before parts[0], which stays where it is */
    for (; text->n_summed < text->parts->len; text->n_summed++) {
        const NrdTextPart *before = part_at(text, text->n_summed - 1);
        uint64_t bytes = nrd_log_visible_text_locked(text->log, before->segment);
        part_at(text, text->n_summed)->start = before->start + bytes;
    }
    text->version = version;
    const NrdTextPart *last = part_at(text, text->parts->len - 1);
    return last->start + nrd_log_visible_text_locked(text->log, last->segment);
}

/* The last part that begins at or before at; parts[0] does. */
static const NrdTextPart *search(const NrdText *text, uint64_t at)
{
    guint low = 1, high = text->parts->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (part_at(text, mid)->start <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return part_at(text, low - 1);
}

NrdTextFound nrd_text_find(NrdText *text, uint64_t pos)
{
    NrdLog *log = text->log;
    NrdTextFound found = { .total = 0 };

    g_mutex_lock(&log->lock);
    g_mutex_lock(&text->lock);
    nrd_text_extend_locked(text, text->from);
    uint64_t end = sum_up_locked(text);
    found.version = text->version;
    found.total = end > text->skip ? end - text->skip : 0;
    if (pos < found.total) {
        uint64_t at = pos + text->skip;
        found.gone = at < part_at(text, 0)->start;
        const NrdTextPart *part = found.gone ? NULL : search(text, at);
        if (part != NULL) {
            found.segment = nrd_segment_ref(part->segment);
            found.local = at - part->start;
        }
    }
    g_mutex_unlock(&text->lock);
    g_mutex_unlock(&log->lock);
    return found;
}

static void give_up(const NrdTextPart *part)
{
    nrd_segment_release(part->segment);
    nrd_segment_unref(part->segment);
}

/* text->lock is held. */
static void drop_passed_locked(NrdText *text)
{
    uint64_t oldest = nrd_load(&text->log->oldest);
    guint n = 0;

    while (n + 1 < text->n_summed && nrd_segment_base(part_at(text, n)->segment) < oldest &&
           part_at(text, n + 1)->start <= text->passed)
        give_up(part_at(text, n++));
    if (n == 0)
        return;
    g_array_remove_range(text->parts, 0, n);
    text->n_summed -= n;
    text->dropped = true;
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

void nrd_text_release_parts(NrdText *text)
{
    for (guint i = 0; i < text->parts->len; i++)
        give_up(part_at(text, i));
    g_array_unref(text->parts);
}

guint nrd_text_extend_all_locked(NrdLog *log)
{
    guint n = 0;

    for (GList *l = log->texts; l != NULL; l = l->next, n++) {
        NrdText *text = l->data;
        g_mutex_lock(&text->lock);
        nrd_text_extend_locked(text, text->from);
        (void)sum_up_locked(text);
        g_mutex_unlock(&text->lock);
    }
    return n;
}

void nrd_text_drop_idle(NrdLog *log)
{
    int64_t now_ms = nrd_clock_mono_ms();

    g_mutex_lock(&log->lock);
    for (GList *l = log->texts; l != NULL; l = l->next) {
        NrdText *text = l->data;
        g_mutex_lock(&text->lock);
        if (now_ms - text->read_ms >= IDLE_MS)
            text->passed = MAX(text->passed, text->read_pos);
        drop_passed_locked(text);
        g_mutex_unlock(&text->lock);
    }
    g_mutex_unlock(&log->lock);
}
