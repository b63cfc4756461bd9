/* Which segments a rendered text spans, and where each begins: as text_span.c, but that a length is worked out when it is
 * needed, which may take a read of the segment, so without the locks that commits need. Every text keeps its own sums. */
#include "engine/log/reading/rendered_private.h"

#include "engine/base/clock.h"
#include "engine/log/segments/segment_render.h"

#include <errno.h>

/* As in text_span.c. */
#define BACK_BYTES ((uint64_t)NRD_MIB)

static NrdRenderedPart *part_at(const NrdRendered *rendered, guint i)
{
    return &g_array_index(rendered->parts, NrdRenderedPart, i);
}

/* Holds the first part, before it lets go of the one that was. lock is held. */
static void hold_first_locked(NrdRendered *rendered)
{
    NrdSegment *first = rendered->parts->len > 0 ? part_at(rendered, 0)->segment : NULL;
    NrdSegment *old = rendered->held;

    if (first == old)
        return;
    if (first != NULL)
        nrd_segment_hold(first);
    rendered->held = first != NULL ? nrd_segment_ref(first) : NULL;
    if (old != NULL) {
        nrd_segment_release(old);
        nrd_segment_unref(old);
    }
}

/* Takes over what the log has got since. None has come and gone meanwhile: before any go, everybody is extended.
 * log->lock and lock are held. */
static void catch_up_locked(NrdRendered *rendered)
{
    NrdSegmentList *list = rendered->job.log->list;
    guint i = rendered->next_base > 0 ? nrd_segment_list_count(list, rendered->next_base - 1) : 0;

    for (; i < list->n; i++) {
        NrdRenderedPart part = { .segment = nrd_segment_ref(list->items[i]) };
        g_array_append_val(rendered->parts, part);
        rendered->next_base = nrd_segment_base(part.segment) + 1;
    }
    hold_first_locked(rendered);
}

void nrd_rendered_begin_span_locked(NrdRendered *rendered)
{
    g_mutex_lock(&rendered->lock);
    rendered->version = nrd_load(&rendered->job.log->home.text_version);
    catch_up_locked(rendered);
    g_mutex_unlock(&rendered->lock);
}

void nrd_rendered_end_span(NrdRendered *rendered)
{
    for (guint i = 0; i < rendered->parts->len; i++)
        nrd_segment_unref(part_at(rendered, i)->segment);
    g_array_set_size(rendered->parts, 0);
    hold_first_locked(rendered); /* nobody else knows it any more */
    g_array_unref(rendered->parts);
}

/* lock is held. */
static void forget_lengths_locked(NrdRendered *rendered)
{
    for (guint i = 0; i < rendered->parts->len; i++)
        part_at(rendered, i)->known = part_at(rendered, i)->asked = false;
}

void nrd_rendered_forget_lengths(NrdRendered *rendered)
{
    g_mutex_lock(&rendered->lock);
    forget_lengths_locked(rendered);
    g_mutex_unlock(&rendered->lock);
}

/* Text has moved (damage was found, or has gone): the lengths are asked for again, from the first one that is still there
 * on. lock is held. */
static void forget_if_moved_locked(NrdRendered *rendered)
{
    uint64_t version = nrd_load(&rendered->job.log->home.text_version);

    if (rendered->version == version)
        return;
    forget_lengths_locked(rendered);
    rendered->version = version;
}

/* The first part that is not known. lock is held. */
static guint first_unknown_locked(NrdRendered *rendered)
{
    guint low = 0, high = rendered->parts->len;

    while (low < high) { /* they become known in order */
        guint mid = low + (high - low) / 2;
        if (part_at(rendered, mid)->known)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static uint64_t end_of(const NrdRenderedPart *part)
{
    return part->start + part->bytes;
}

/* Finds pos in the parts [0, n). */
static bool find_locked(NrdRendered *rendered, guint n, uint64_t pos, NrdRenderedFound *found)
{
    guint low = 0, high = n;

    if (n == 0 || pos >= end_of(part_at(rendered, n - 1)))
        return false;
    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (end_of(part_at(rendered, mid)) <= pos)
            low = mid + 1;
        else
            high = mid;
    }
    const NrdRenderedPart *part = part_at(rendered, low);
    found->segment = nrd_segment_ref(part->segment);
    nrd_segment_hold(found->segment);
    found->local = pos - part->start;
    return true;
}

/* The next part whose length has to be asked for. */
typedef struct Question {
    NrdSegment *segment; /* a reference and a hold */
    uint64_t number;
    bool last; /* of the log */
    uint64_t limit_offset;
} Question;

/* Looks pos up in what is known. Returns whether that was enough (found, given up, or nothing is left to ask);
 * else *ret_question says what is not. log->lock and lock are held. */
static bool look_locked(NrdRendered *rendered, uint64_t pos, bool asked_last, NrdRenderedFound *found,
                        Question *ret_question)
{
    forget_if_moved_locked(rendered);
    guint n = rendered->parts->len;
    guint unknown = first_unknown_locked(rendered);

    found->version = rendered->version;
    if (n == 0 || find_locked(rendered, unknown, pos, found))
        return true;
    if (unknown == n - 1 && asked_last) {
        found->total = end_of(part_at(rendered, n - 1));
        (void)find_locked(rendered, n, pos, found);
        return true;
    }
    NrdSegment *segment = part_at(rendered, unknown)->segment;
    bool last = unknown == n - 1;
    *ret_question =
        (Question){ .segment = nrd_segment_ref(segment),
                    .number = rendered->n_given_up + unknown,
                    .last = last,
                    .limit_offset = last ? nrd_load(&rendered->job.log->hwm) : nrd_segment_end(segment).offset };
    nrd_segment_hold(segment);
    return false;
}

/* Notes an answer, unless the text has moved since the question, or the part was learnt to its end meanwhile: then the
 * answer is older, and what follows has been placed by the other. */
static void note_locked(NrdRendered *rendered, const Question *question, uint64_t version, uint64_t bytes)
{
    if (question->number < rendered->n_given_up || version != rendered->version)
        return;
    guint i = (guint)(question->number - rendered->n_given_up);
    NrdRenderedPart *part = part_at(rendered, i);
    if (part->known)
        return;
    if (i > 0)
        part->start = end_of(part_at(rendered, i - 1));
    part->bytes = bytes;
    part->asked = true;
    part->known = !question->last;
}

static int answer(NrdRendered *rendered, Question *question, uint64_t version)
{
    uint64_t bytes = 0;
    int r = nrd_render_length(&rendered->job, question->segment, question->limit_offset, &bytes);

    nrd_segment_release(question->segment);
    nrd_segment_unref(question->segment);
    if (r < 0)
        return r;
    g_mutex_lock(&rendered->lock);
    note_locked(rendered, question, version, bytes);
    g_mutex_unlock(&rendered->lock);
    return 0;
}

int nrd_rendered_find(NrdRendered *rendered, uint64_t pos, NrdRenderedFound *ret_found)
{
    NrdLog *log = rendered->job.log;
    uint64_t last_asked = UINT64_MAX; /* number of the part that was the last one when it was asked */
    uint64_t last_version = 0;
    bool done = false;
    int r = 0;

    while (r == 0 && !done) {
        NrdRenderedFound found = { .total = 0 };
        Question question = { .segment = NULL };
        g_mutex_lock(&log->lock);
        g_mutex_lock(&rendered->lock);
        catch_up_locked(rendered);
        bool gone = rendered->parts->len > 0 && pos < part_at(rendered, 0)->start;
        uint64_t last = rendered->n_given_up + rendered->parts->len - 1;
        uint64_t now = nrd_load(&log->home.text_version);
        done = gone || look_locked(rendered, pos, last_asked == last && last_version == now, &found, &question);
        g_mutex_unlock(&rendered->lock);
        g_mutex_unlock(&log->lock);
        if (gone)
            return -ENOENT;
        if (done) {
            *ret_found = found;
            return 0;
        }
        last_asked = question.last ? question.number : UINT64_MAX;
        last_version = found.version;
        r = answer(rendered, &question, found.version);
    }
    return r;
}

void nrd_rendered_found_done(NrdRenderedFound *found)
{
    if (found->segment == NULL)
        return;
    nrd_segment_release(found->segment);
    nrd_segment_unref(found->segment);
    found->segment = NULL;
}

bool nrd_rendered_waits(NrdRendered *rendered, uint64_t pos)
{
    g_mutex_lock(&rendered->lock);
    guint unknown = first_unknown_locked(rendered);
    bool enough = unknown > 0 && pos < end_of(part_at(rendered, unknown - 1));
    bool only_tail =
        unknown >= rendered->parts->len || (unknown + 1 == rendered->parts->len && part_at(rendered, unknown)->asked);
    bool moved = rendered->version != nrd_load(&rendered->job.log->home.text_version);
    g_mutex_unlock(&rendered->lock);
    return moved || !(enough || only_tail);
}

/* A part that was the last one when it was asked, and that nothing was added to since: a reader that waits at its end
 * does not ask again. log->lock and lock are held. */
static void learn_quietly_locked(NrdRendered *rendered)
{
    guint i = first_unknown_locked(rendered);
    uint64_t bytes;

    if (i + 1 >= rendered->parts->len || rendered->version != nrd_load(&rendered->job.log->home.text_version))
        return;
    if (!nrd_segment_render_peek(part_at(rendered, i)->segment, rendered->job.want.rendering, &bytes))
        return;
    NrdRenderedPart *part = part_at(rendered, i);
    if (i > 0)
        part->start = end_of(part_at(rendered, i - 1));
    part->bytes = bytes;
    part->known = true;
}

/* Gives up what lies before `passed` and has left the log. log->lock and lock are held. */
static void drop_passed_locked(NrdRendered *rendered)
{
    uint64_t oldest = nrd_load(&rendered->job.log->oldest);
    guint n = 0;

    learn_quietly_locked(rendered);
    while (n + 1 < rendered->parts->len && part_at(rendered, n)->known &&
           end_of(part_at(rendered, n)) <= rendered->passed && nrd_segment_base(part_at(rendered, n)->segment) < oldest)
        n++;
    if (n == 0)
        return;
    part_at(rendered, n)->start = end_of(part_at(rendered, n - 1));
    for (guint i = 0; i < n; i++)
        nrd_segment_unref(part_at(rendered, i)->segment);
    g_array_remove_range(rendered->parts, 0, n);
    rendered->n_given_up += n;
    hold_first_locked(rendered);
}

void nrd_rendered_passed(NrdRendered *rendered, uint64_t pos)
{
    NrdLog *log = rendered->job.log;

    g_mutex_lock(&log->lock);
    g_mutex_lock(&rendered->lock);
    rendered->read_pos = pos;
    rendered->passed = pos > BACK_BYTES ? pos - BACK_BYTES : 0;
    rendered->read_ms = nrd_clock_mono_ms();
    drop_passed_locked(rendered);
    g_mutex_unlock(&rendered->lock);
    g_mutex_unlock(&log->lock);
}

void nrd_rendered_extend_all_locked(NrdLog *log)
{
    for (GList *l = log->rendered; l != NULL; l = l->next) {
        NrdRendered *rendered = l->data;
        g_mutex_lock(&rendered->lock);
        catch_up_locked(rendered);
        g_mutex_unlock(&rendered->lock);
    }
}

/* Takes the segments over that the log has now, from the first one on that it had when the text was opened. Both locks are
 * held. */
static void relist_locked(NrdRendered *rendered)
{
    GArray *old = rendered->parts;
    NrdSegmentList *list = rendered->job.log->list;
    uint64_t oldest = list->n > 0 ? nrd_segment_base(list->items[0]) : UINT64_MAX;
    guint n = 0;

    if (old->len == 0)
        return;
    while (n < old->len && nrd_segment_base(g_array_index(old, NrdRenderedPart, n).segment) < oldest)
        n++; /* detached ones stay */
    uint64_t start = part_at(rendered, 0)->start;
    uint64_t from = n < old->len ? nrd_segment_base(g_array_index(old, NrdRenderedPart, n).segment) : oldest;
    rendered->parts = g_array_new(FALSE, FALSE, sizeof(NrdRenderedPart));
    for (guint i = 0; i < n; i++) {
        NrdRenderedPart part = { .segment = nrd_segment_ref(g_array_index(old, NrdRenderedPart, i).segment) };
        g_array_append_val(rendered->parts, part);
    }
    rendered->next_base = from;
    catch_up_locked(rendered);
    if (rendered->parts->len > 0)
        part_at(rendered, 0)->start = start;
    for (guint i = 0; i < old->len; i++)
        nrd_segment_unref(g_array_index(old, NrdRenderedPart, i).segment);
    g_array_unref(old);
}

void nrd_rendered_relist_all_locked(NrdLog *log)
{
    for (GList *l = log->rendered; l != NULL; l = l->next) {
        NrdRendered *rendered = l->data;
        g_mutex_lock(&rendered->lock);
        relist_locked(rendered);
        g_mutex_unlock(&rendered->lock);
    }
}

void nrd_rendered_drop_idle_locked(NrdLog *log, int64_t idle_ms)
{
    int64_t now_ms = nrd_clock_mono_ms();

    for (GList *l = log->rendered; l != NULL; l = l->next) {
        NrdRendered *rendered = l->data;
        g_mutex_lock(&rendered->lock);
        catch_up_locked(rendered);
        if (now_ms - rendered->read_ms >= idle_ms)
            rendered->passed = MAX(rendered->passed, rendered->read_pos);
        drop_passed_locked(rendered);
        g_mutex_unlock(&rendered->lock);
    }
}
