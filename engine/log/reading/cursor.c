/* Reading records by offset; see log.h. Where their frames come from: cursor_frame.c.
 *
 * A cursor keeps the frame it is in, where the next one begins, and while it reads a backlog a window of the file; what
 * follows behind that is read and checked meanwhile by another thread (frame_ahead.h). At the tail it gives the window
 * back, and the frame when it is asked for something else. */
#include "engine/log/reading/cursor_private.h"

#include <errno.h>

#define NO_POS SIZE_MAX

NrdLogCursor *nrd_log_cursor_new(NrdLog *log)
{
    NrdLogCursor *cursor = g_new0(NrdLogCursor, 1);
    cursor->log = log;
    cursor->next_offset = UINT64_MAX;
    return cursor;
}

void nrd_cursor_release_frame(NrdLogCursor *cursor)
{
    nrd_frame_data_unref(cursor->frame);
    cursor->frame = NULL;
    cursor->payload = NULL;
}

void nrd_log_cursor_rest(NrdLogCursor *cursor)
{
    nrd_cursor_release_frame(cursor);
    nrd_frame_reader_clear(&cursor->reader);
    nrd_frame_ahead_rest(cursor->frames);
}

void nrd_log_cursor_reset(NrdLogCursor *cursor)
{
    nrd_log_cursor_rest(cursor);
    nrd_frame_ahead_drop(&cursor->frames);
    nrd_segment_unref(cursor->segment);
    cursor->segment = NULL;
    cursor->next_offset = UINT64_MAX;
}

void nrd_log_cursor_free(NrdLogCursor *cursor)
{
    if (cursor == NULL)
        return;
    nrd_log_cursor_reset(cursor);
    nrd_frame_ahead_free(cursor->frames);
    g_free(cursor);
}

static bool frame_holds(const NrdLogCursor *cursor, uint64_t offset)
{
    return cursor->payload != NULL && offset >= cursor->offset && offset - cursor->offset < cursor->n_records;
}

static void first_record(NrdLogCursor *cursor)
{
    cursor->next_index = 0;
    cursor->record_pos = 0;
}

/* Only once for a record that was parsed: where the one before that begins is not known. */
static void again(NrdLogCursor *cursor)
{
    cursor->next_index--;
    cursor->record_pos = cursor->last_pos;
    cursor->last_pos = NO_POS;
}

/* Goes to a record of the frame: the next one to be parsed. The one before it costs no walk. */
static void go_to(NrdLogCursor *cursor, uint32_t index)
{
    const uint8_t *envelope;
    size_t size;

    if (index + 1 == cursor->next_index && cursor->last_pos != NO_POS)
        again(cursor);
    else if (index < cursor->next_index)
        first_record(cursor);
    while (cursor->next_index < index) {
        bool more = nrd_frame_next_record(cursor->payload, cursor->payload_size, &cursor->record_pos, &envelope, &size);
        g_assert(more); /* the frame was checked when it was loaded */
        cursor->next_index++;
    }
}

/* Parses the record that is next. */
static inline void parse_next(NrdLogCursor *cursor, NrdRecordView *ret_view)
{
    const uint8_t *envelope = NULL;
    size_t size = 0;

    cursor->last_pos = cursor->record_pos;
    bool more = nrd_frame_next_record(cursor->payload, cursor->payload_size, &cursor->record_pos, &envelope, &size);
    g_assert(more);
    int r = nrd_record_parse(envelope, size, ret_view);
    g_assert(r == 0);
    ret_view->offset = cursor->offset + cursor->next_index++;
}

/* Gives the first of n records of the frame that are there, and those behind it; how many were taken. */
static uint32_t give(NrdLogCursor *cursor, uint64_t offset, uint32_t n, NrdRecordFn take, void *user_data)
{
    NrdRecordView view;
    uint32_t n_taken = 0;

    go_to(cursor, (uint32_t)(offset - cursor->offset));
    while (n_taken < n) {
        parse_next(cursor, &view);
        if (!take(user_data, &view)) {
            again(cursor);
            break;
        }
        n_taken++;
    }
    return n_taken;
}

/* Makes the cursor's frame the one that holds offset; *ret_n: how many records it has from there on below the high
 * watermark. The errors are nrd_log_cursor_read's. */
static int reach(NrdLogCursor *cursor, uint64_t offset, uint32_t *ret_n, uint64_t *ret_next_offset)
{
    NrdLog *log = cursor->log;
    uint64_t hwm = nrd_load(&log->hwm);
    uint64_t next = offset + 1;
    int r = 0;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (!__atomic_load_n(&log->was_read, __ATOMIC_RELAXED))
        __atomic_store_n(&log->was_read, true, __ATOMIC_RELEASE);
    if (offset >= hwm || offset < nrd_load(&log->oldest)) {
        nrd_log_cursor_rest(cursor);
        return -ENOENT;
    }
    if (!frame_holds(cursor, offset) && !nrd_cursor_load_next(cursor, offset))
        r = nrd_cursor_find_frame(cursor, offset, &next);
    /* never "not found" or "corrupt" out of a log that was closing, nor what a folder holds that has taken the name */
    if (nrd_log_is_closed(log)) {
        nrd_log_cursor_reset(cursor);
        return -ESHUTDOWN;
    }
    if (r == -EBADMSG)
        *ret_next_offset = MIN(next, hwm);
    uint64_t end = MIN(cursor->offset + cursor->n_records, hwm);
    if (r == 0)
        *ret_n = end > offset ? (uint32_t)(end - offset) : 1;
    return r;
}

uint32_t nrd_log_cursor_read_run(NrdLogCursor *cursor, uint64_t offset, uint32_t n, NrdRecordFn take, void *user_data,
                                 uint64_t *ret_next_offset, int *ret_error)
{
    uint32_t n_taken = 0, n_wanted = 0, n_given = 0;
    int r = 0;

    while (n_taken < n && n_given == n_wanted) {
        r = reach(cursor, offset + n_taken, &n_wanted, ret_next_offset);
        if (r < 0)
            break;
        n_wanted = MIN(n_wanted, n - n_taken);
        n_given = give(cursor, offset + n_taken, n_wanted, take, user_data);
        n_taken += n_given;
    }
    if (cursor->frame != NULL && offset + n_taken == nrd_load(&cursor->log->hwm))
        nrd_frame_reader_clear(&cursor->reader); /* the tail: no backlog to read ahead in */
    *ret_error = r;
    return n_taken;
}

static bool keep_view(void *user_data, const NrdRecordView *view)
{
    *(NrdRecordView *)user_data = *view;
    return true;
}

int nrd_log_cursor_read(NrdLogCursor *cursor, uint64_t offset, NrdRecordView *ret_view, uint64_t *ret_next_offset)
{
    int r;

    (void)nrd_log_cursor_read_run(cursor, offset, 1, keep_view, ret_view, ret_next_offset, &r);
    return r;
}
