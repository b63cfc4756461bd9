/* The first record at or after a time; see log.h.
 *
 * Commit times never decrease along a log that this engine wrote. In a file that somebody else wrote they may: then the
 * search goes by the greatest time so far, and ends all the same, since it only ever moves forward. */
#include "engine/log/reading/reading.h"
#include "engine/log/state/state.h"

#include "engine/log/reading/walk.h"

#include <errno.h>

typedef struct Sought {
    int64_t time_ms;
    uint64_t end_offset; /* records at or above do not count */
    uint64_t offset;     /* found */
} Sought;

/* Looks for the first record of the frame that is late enough. */
static bool visit(const NrdFrameReader *reader, uint64_t text_pos, void *data)
{
    Sought *sought = data;
    const NrdFrameHeader *h = &reader->header;
    NrdRecordView view;
    size_t pos = 0;

    (void)text_pos;
    if (reader->summary.commit_ms < sought->time_ms)
        return false;
    for (uint64_t offset = h->offset; offset < h->offset + h->n_records && offset < sought->end_offset; offset++) {
        nrd_frame_reader_next_record(reader, &pos, &view);
        if (view.commit_ms >= sought->time_ms) {
            sought->offset = offset;
            return true;
        }
    }
    return false;
}

/* Keeps the file of a segment of the list; false when the segment has left the log, and its file perhaps the disk. */
static bool hold(NrdLog *log, NrdSegment *segment)
{
    g_mutex_lock(&log->lock);
    bool there = nrd_segment_base(segment) >= nrd_load(&log->oldest);
    if (there)
        nrd_segment_hold(segment);
    g_mutex_unlock(&log->lock);
    return there;
}

static int learn_end(NrdLog *log, NrdSegment *segment)
{
    if (!hold(log, segment))
        return 0;
    int r = nrd_segment_learn_end(segment);
    nrd_segment_release(segment);
    return r;
}

/* A segment whose end an open could not learn would hide from the search. */
static int learn_all(NrdLog *log, NrdSegmentList *list)
{
    int r = 0;

    g_mutex_lock(&log->lock);
    bool complete = nrd_segment_list_sums_locked(list, nrd_load(&log->home.text_version))->complete;
    g_mutex_unlock(&log->lock);
    if (complete)
        return 0;
    for (guint i = 0; r == 0 && i < list->n; i++)
        r = learn_end(log, list->items[i]);
    return r;
}

/* The first segment, from `from` on, by whose end the time is reached; list->n when there is none. */
static guint find_segment(NrdLog *log, NrdSegmentList *list, guint from, int64_t time_ms)
{
    guint low = from, high = list->n - 1;

    g_mutex_lock(&log->lock);
    const NrdSegmentSums *sums = nrd_segment_list_sums_locked(list, nrd_load(&log->home.text_version));
    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (sums->greatest_ms[mid] < time_ms)
            low = mid + 1;
        else
            high = mid;
    }
    g_mutex_unlock(&log->lock);
    bool reached = low < list->n - 1 || nrd_segment_end(list->items[low]).commit_ms >= time_ms;
    return reached ? low : list->n;
}

static int search_in(NrdSegment *segment, Sought *sought, bool *ret_found)
{
    NrdWalk walk = { .segment = segment, .by_time = true, .time_ms = sought->time_ms, .visit = visit, .data = sought };

    sought->end_offset = nrd_segment_end(segment).offset;
    return nrd_walk(&walk, ret_found);
}

static int search(NrdLog *log, NrdSegmentList *list, Sought *sought, bool *ret_found)
{
    bool found = false;
    int r = 0;

    /* should the records that promised it be lost, or the segment be gone, a later one is the first */
    for (guint i = 0; r == 0 && !found && i < list->n; i++) {
        i = find_segment(log, list, i, sought->time_ms);
        if (i == list->n)
            break;
        if (!hold(log, list->items[i]))
            continue;
        r = search_in(list->items[i], sought, &found);
        nrd_segment_release(list->items[i]);
    }
    if (r == 0)
        *ret_found = found;
    return r;
}

int nrd_log_find_time(NrdLog *log, int64_t time_ms, uint64_t *ret_offset)
{
    Sought sought = { .time_ms = time_ms };
    bool found = false;
    int r = 0;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    uint64_t hwm = nrd_load(&log->hwm);
    NrdSegmentList *list = nrd_log_segments(log);
    if (time_ms <= 0) { /* all are */
        found = true;
    } else if (list->n > 0) {
        r = learn_all(log, list);
        if (r == 0)
            r = search(log, list, &sought, &found);
    }
    nrd_segment_list_unref(list);
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (r < 0)
        return r == -ENOMEM ? r : -EIO;
    uint64_t oldest = nrd_load(&log->oldest);
    *ret_offset = found ? MIN(MAX(sought.offset, oldest), hwm) : hwm;
    return 0;
}
