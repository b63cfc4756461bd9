/* Reading records by offset; see log.h.
 *
 * Every frame is checked in full each time it is read from the disk. A frame that fails is read once more; if it still
 * fails, its segment is scanned anew, which turns damage into a gap of the index or finds that there is none (a read
 * that failed by itself). So a gap is only ever what a scan, reading the file again, found to be one. */
#include "engine/log/log_private.h"

#include "engine/log/frame_reader.h"

#include <errno.h>

#define RANDOM_AHEAD_MAX_BYTES ((uint64_t)64 * 1024)
#define SEQUENTIAL_AHEAD_BYTES ((size_t)64 * 1024)
#define MAX_ATTEMPTS 4

struct NrdLogCursor {
    NrdLog *log;
    NrdSegment *segment; /* a reference, or NULL */
    uint64_t version;    /* of the segment's index, when what reader holds was read */
    NrdFrameReader reader;
    uint32_t next_index; /* within the loaded frame: the record that begins at next_pos of its payload */
    size_t next_pos;
};

NrdLogCursor *nrd_log_cursor_new(NrdLog *log)
{
    NrdLogCursor *cursor = g_new0(NrdLogCursor, 1);
    cursor->log = log;
    return cursor;
}

void nrd_log_cursor_reset(NrdLogCursor *cursor)
{
    nrd_frame_reader_clear(&cursor->reader);
    nrd_segment_unref(cursor->segment);
    cursor->segment = NULL;
}

void nrd_log_cursor_free(NrdLogCursor *cursor)
{
    if (cursor == NULL)
        return;
    nrd_log_cursor_reset(cursor);
    g_free(cursor);
}

static void begin_frame(NrdLogCursor *cursor)
{
    cursor->next_index = 0;
    cursor->next_pos = 0;
}

/* Moves to another segment, or notices that the index of this one was rebuilt: what was read may be stale then. */
static void enter_segment(NrdLogCursor *cursor, NrdSegment *segment, uint64_t version)
{
    if (cursor->segment == segment && cursor->version == version)
        return;
    nrd_frame_reader_forget(&cursor->reader);
    if (cursor->segment != segment) {
        nrd_segment_unref(cursor->segment);
        cursor->segment = nrd_segment_ref(segment);
    }
    cursor->version = version;
}

static bool frame_holds(const NrdLogCursor *cursor, uint64_t offset)
{
    const NrdFrameReader *reader = &cursor->reader;
    return reader->loaded && offset >= reader->header.offset &&
           offset - reader->header.offset < reader->header.n_records;
}

/* Gives the record out of the loaded frame. */
static int give_record(NrdLogCursor *cursor, uint64_t offset, NrdRecordView *ret_view)
{
    const NrdFrameReader *reader = &cursor->reader;
    uint32_t index = (uint32_t)(offset - reader->header.offset);
    const uint8_t *envelope = NULL;
    size_t size = 0;
    NrdRecordView view;

    if (index < cursor->next_index)
        begin_frame(cursor);
    while (cursor->next_index <= index) {
        /* the frame was checked when it was loaded */
        bool more = nrd_frame_next_record(reader->payload, reader->payload_size, &cursor->next_pos, &envelope, &size);
        g_assert(more);
        cursor->next_index++;
    }
    int r = nrd_record_parse(envelope, size, &view);
    g_assert(r == 0);
    view.offset = offset;
    *ret_view = view;
    return 0;
}

/* The frame right behind the loaded one, if that is where offset is. Any failure is left to the lookup. */
static bool load_next(NrdLogCursor *cursor, uint64_t offset)
{
    NrdFrameReader *reader = &cursor->reader;
    NrdFrameWant want = { .ahead_bytes = SEQUENTIAL_AHEAD_BYTES, .end_offset = UINT64_MAX };

    if (!reader->loaded || offset != reader->header.offset + reader->header.n_records)
        return false;
    NrdIndexEnd end = nrd_segment_end(cursor->segment);
    if (offset >= end.offset || nrd_segment_version(cursor->segment) != cursor->version)
        return false;
    if (nrd_segment_pin(cursor->segment, &want.fd) < 0)
        return false;
    want.pos = reader->end_pos;
    want.limit_pos = end.pos;
    want.offset = offset;
    int r = nrd_frame_reader_load(reader, &want);
    nrd_segment_unpin(cursor->segment);
    if (r < 0)
        nrd_frame_reader_forget(reader);
    begin_frame(cursor);
    return r == 0;
}

/* Walks from an index entry to the frame that holds offset. */
static int walk_to(NrdLogCursor *cursor, int fd, const NrdIndexPlace *place, uint64_t offset)
{
    NrdFrameWant want = { .fd = fd,
                          .pos = place->pos,
                          .limit_pos = place->end_pos,
                          .offset = place->offset,
                          .end_offset = UINT64_MAX,
                          .ahead_bytes = (size_t)MIN(place->limit_pos - place->pos, RANDOM_AHEAD_MAX_BYTES) };

    while (want.pos < place->limit_pos) {
        int r = nrd_frame_reader_load(&cursor->reader, &want);
        if (r < 0)
            return r;
        begin_frame(cursor);
        if (frame_holds(cursor, offset))
            return 0;
        want.pos = cursor->reader.end_pos;
        want.offset += cursor->reader.header.n_records;
    }
    return -EBADMSG; /* the index promised it before limit_pos */
}

/* One lookup through list and index. *ret_again: damage was met and mended in the index; look again. */
static int look_up(NrdLogCursor *cursor, NrdSegment *segment, uint64_t offset, bool reread, uint64_t *ret_next,
                   bool *ret_again)
{
    NrdIndexPlace place;
    uint64_t version;
    int fd;

    *ret_again = false;
    int r = nrd_segment_pin(segment, &fd);
    if (r < 0)
        return r;
    r = nrd_segment_find_offset(segment, offset, &place, &version);
    if (r == 0)
        enter_segment(cursor, segment, version);
    if (r == 0 && place.is_gap) {
        *ret_next = place.gap.end_offset;
        r = -EBADMSG;
    } else if (r == 0) {
        r = walk_to(cursor, fd, &place, offset);
        if (r == -EBADMSG) {
            nrd_frame_reader_forget(&cursor->reader);
            r = reread ? nrd_segment_repair(segment, version) : 0;
            *ret_again = r == 0;
        }
    }
    if (r != -EBADMSG)
        nrd_segment_report_read(segment, r);
    nrd_segment_unpin(segment);
    return r;
}

static int find_frame(NrdLogCursor *cursor, uint64_t offset, uint64_t *ret_next)
{
    NrdSegmentList *list = nrd_log_segments(cursor->log);
    NrdSegment *segment = nrd_segment_list_find(list, offset);
    bool again = true;
    int r = segment != NULL ? 0 : -ENOENT; /* trimmed meanwhile */

    for (int i = 0; r == 0 && again && i < MAX_ATTEMPTS; i++)
        r = look_up(cursor, segment, offset, i > 0, ret_next, &again);
    nrd_segment_list_unref(list);
    if (r == 0 && again)
        return -EIO; /* the scan finds nothing wrong, and yet reading goes wrong: the disk is failing */
    if (r == 0 || r == -EBADMSG || r == -ENOENT)
        return r;
    return -EIO;
}

int nrd_log_cursor_read(NrdLogCursor *cursor, uint64_t offset, NrdRecordView *ret_view, uint64_t *ret_next_offset)
{
    NrdLog *log = cursor->log;
    uint64_t hwm = nrd_load(&log->hwm);
    uint64_t next = offset + 1;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (offset >= hwm || offset < nrd_load(&log->oldest))
        return -ENOENT;
    if (frame_holds(cursor, offset) || load_next(cursor, offset))
        return give_record(cursor, offset, ret_view);
    int r = find_frame(cursor, offset, &next);
    if (r == 0)
        return give_record(cursor, offset, ret_view);
    if (r == -EBADMSG)
        *ret_next_offset = MIN(next, hwm);
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN; /* never "not found" or "corrupt" out of a log that was closing */
    return r;
}
