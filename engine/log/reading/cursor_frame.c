/* Which frame holds an offset; see cursor_private.h.
 *
 * Frames come from the cache or from the disk; one that is read from the disk is checked in full and decoded. It is kept
 * in the cache, but for the plain frames of a backlog that is read in order: those are served out of the window they
 * were read into, since a copy costs more than reading them again does, and a long backlog would push out of the cache
 * what others read at the tail. (Measured, frames of ten 100-byte records, per record: 45 ns so, 150 ns through a cache
 * smaller than the backlog.) One that fails the check is read once more; if it still fails, its segment is scanned
 * anew, which turns damage into a gap of the index or finds that there is none (a read that failed by itself). So a gap
 * is only ever what a scan, reading the file again, found to be one. */
#include "engine/log/reading/cursor_private.h"

#include <errno.h>
#include <string.h>

#define RANDOM_AHEAD_MAX_BYTES ((uint64_t)64 * 1024)
#define SEQUENTIAL_AHEAD_BYTES ((size_t)64 * 1024)
#define MAX_ATTEMPTS 4

/* Moves to another segment, or notices that the index of this one was rebuilt: what was read may be stale then. */
static void enter_segment(NrdLogCursor *cursor, NrdSegment *segment, uint64_t version)
{
    if (cursor->segment == segment && cursor->version == version)
        return;
    nrd_cursor_release_frame(cursor);
    nrd_frame_reader_forget(&cursor->reader);
    nrd_segment_ref(segment);
    nrd_segment_unref(cursor->segment);
    cursor->segment = segment;
    cursor->version = version;
    cursor->next_offset = UINT64_MAX;
}

/* Begins with a frame whose payload was set. Records beyond the segment's end belong to the next one, whatever a foreign
 * or misnamed file holds there. */
static void begin_frame(NrdLogCursor *cursor, uint64_t offset, uint32_t n_records, uint64_t end_pos)
{
    uint64_t end_offset = nrd_segment_end(cursor->segment).offset;

    cursor->offset = offset;
    cursor->n_records = (uint32_t)MIN((uint64_t)n_records, end_offset > offset ? end_offset - offset : 0);
    cursor->next_offset = offset + n_records;
    cursor->next_pos = end_pos;
    cursor->next_index = 0;
    cursor->record_pos = 0;
}

/* Takes a frame and the reference over. */
static void take_frame(NrdLogCursor *cursor, NrdFrameData *frame)
{
    nrd_cursor_release_frame(cursor);
    cursor->frame = frame;
    cursor->payload = frame->payload;
    cursor->payload_size = frame->payload_size;
    begin_frame(cursor, frame->offset, frame->n_records, frame->end_pos);
}

/* A copy of the frame that reader has loaded, or NULL when it is too long or there is no memory. */
static NrdFrameData *copy_loaded(const NrdFrameReader *reader)
{
    if (reader->payload_size > NRD_FRAME_CACHE_MAX_FRAME_BYTES)
        return NULL;
    NrdFrameData *frame = nrd_frame_data_new(reader->payload_size);
    if (frame == NULL)
        return NULL;
    frame->n_records = reader->header.n_records;
    frame->offset = reader->header.offset;
    frame->pos = reader->pos;
    frame->end_pos = reader->end_pos;
    frame->summary = reader->summary;
    memcpy(frame->payload, reader->payload, reader->payload_size);
    return frame;
}

/* Whether a frame that was read in order is worth keeping: it was decompressed, or it is the last one. */
static bool is_worth_keeping(const NrdLogCursor *cursor)
{
    const NrdFrameHeader *h = &cursor->reader.header;
    return h->flags != 0 || h->offset + h->n_records >= nrd_load(&cursor->log->hwm);
}

/* Takes the frame that reader has loaded; keep: by way of the cache. */
static void take_loaded(NrdLogCursor *cursor, bool keep)
{
    const NrdFrameReader *reader = &cursor->reader;
    NrdFrameData *frame = keep ? copy_loaded(reader) : NULL;

    nrd_counter_add(NRD_COUNTER_CACHE_MISSES, 1);
    if (frame != NULL) {
        nrd_frame_cache_put(cursor->segment, cursor->version, frame);
        take_frame(cursor, frame);
        return;
    }
    nrd_cursor_release_frame(cursor);
    cursor->payload = reader->payload;
    cursor->payload_size = reader->payload_size;
    begin_frame(cursor, reader->header.offset, reader->header.n_records, reader->end_pos);
}

/* Takes the frame at pos from the cache when it is there and begins with offset. *ret_frame: the caller's reference, or
 * NULL. */
static void look_in_cache(NrdSegment *segment, uint64_t pos, uint64_t offset, NrdFrameData **ret_frame)
{
    NrdFrameData *frame = nrd_frame_cache_get(segment, pos);

    if (frame != NULL && frame->offset != offset) {
        nrd_frame_data_unref(frame);
        frame = NULL;
    }
    *ret_frame = frame;
}

static bool take_cached(NrdLogCursor *cursor, NrdFrameData *frame)
{
    if (frame == NULL)
        return false;
    nrd_counter_add(NRD_COUNTER_CACHE_HITS, 1);
    take_frame(cursor, frame);
    return true;
}

/* It lies ready, or is read now; then what is behind it is asked for. Pinned. */
static bool take_or_load(NrdLogCursor *cursor, const NrdFrameWant *want)
{
    NrdFrameSource source = { cursor->log, cursor->segment, cursor->version };
    bool loaded = (want->fd >= 0 && nrd_frame_ahead_take(cursor->frames, &source, want, &cursor->reader)) ||
                  nrd_frame_reader_load(&cursor->reader, want) == 0;

    if (loaded)
        nrd_frame_ahead_ask(&cursor->frames, &source, &cursor->reader);
    return loaded;
}

/* Reads the frame at the cursor's place. Any failure is left to the lookup. */
static bool read_next(NrdLogCursor *cursor, uint64_t offset, uint64_t limit_pos)
{
    NrdFrameWant want = { .pos = cursor->next_pos,
                          .limit_pos = limit_pos,
                          .offset = offset,
                          .end_offset = UINT64_MAX,
                          .ahead_bytes = SEQUENTIAL_AHEAD_BYTES };

    if (nrd_segment_pin(cursor->segment, &want.fd) < 0)
        return false;
    nrd_cursor_release_frame(cursor); /* it may lie in the window that moves now */
    bool loaded = take_or_load(cursor, &want);
    nrd_segment_unpin(cursor->segment);
    if (loaded)
        take_loaded(cursor, is_worth_keeping(cursor));
    else
        nrd_frame_reader_forget(&cursor->reader);
    return loaded;
}

/* The same, of a segment that is held; false too when it has left the log or its index has changed. */
static bool load_next_held(NrdLogCursor *cursor, uint64_t offset)
{
    NrdFrameData *frame;
    NrdIndexEnd end = nrd_segment_end(cursor->segment);

    if (offset >= end.offset || nrd_segment_version(cursor->segment) != cursor->version ||
        nrd_segment_base(cursor->segment) < nrd_load(&cursor->log->oldest))
        return false;
    look_in_cache(cursor->segment, cursor->next_pos, offset, &frame);
    return take_cached(cursor, frame) || read_next(cursor, offset, end.pos);
}

bool nrd_cursor_load_next(NrdLogCursor *cursor, uint64_t offset)
{
    if (cursor->segment == NULL || offset != cursor->next_offset)
        return false;
    /* First the hold, then the look at the oldest offset, without the log's lock: retention moves that offset first and
     * looks for holds then, so that one of the two sees the other. */
    nrd_segment_hold(cursor->segment);
    bool loaded = load_next_held(cursor, offset);
    nrd_segment_release(cursor->segment);
    return loaded;
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
        NrdFrameData *frame;
        look_in_cache(cursor->segment, want.pos, want.offset, &frame);
        int r = frame != NULL ? 0 : nrd_frame_reader_load(&cursor->reader, &want);
        if (r < 0)
            return r;
        uint64_t n = frame != NULL ? frame->n_records : cursor->reader.header.n_records;
        if (offset - want.offset < n) {
            if (!take_cached(cursor, frame))
                take_loaded(cursor, true);
            nrd_frame_cache_note(cursor->segment, offset, want.pos, want.offset);
            return 0;
        }
        want.pos = frame != NULL ? frame->end_pos : cursor->reader.end_pos;
        want.offset += n;
        nrd_frame_data_unref(frame);
    }
    return -EBADMSG; /* the index promised it before limit_pos */
}

/* Whether the position was noted and the frame there is in memory: no index, no descriptor. */
static bool recall(NrdLogCursor *cursor, NrdSegment *segment, uint64_t offset)
{
    uint64_t version = nrd_segment_version(segment);
    uint64_t pos, frame_offset;
    NrdFrameData *frame;

    if (!nrd_frame_cache_find(segment, offset, &pos, &frame_offset))
        return false;
    look_in_cache(segment, pos, frame_offset, &frame);
    if (frame != NULL && (offset < frame->offset || offset - frame->offset >= frame->n_records))
        g_clear_pointer(&frame, nrd_frame_data_unref);
    if (frame != NULL)
        enter_segment(cursor, segment, version);
    return take_cached(cursor, frame);
}

/* One lookup through the index. *ret_again: damage was met and mended in the index; look again. */
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

/* The segment of the list that holds offset, with a reference and a hold, so that its file stays while it is read. */
static NrdSegment *hold_segment(NrdLog *log, uint64_t offset)
{
    g_mutex_lock(&log->lock);
    NrdSegment *segment = nrd_segment_list_find(log->list, offset);
    if (segment != NULL) {
        nrd_segment_ref(segment);
        nrd_segment_hold(segment);
    }
    g_mutex_unlock(&log->lock);
    return segment;
}

int nrd_cursor_find_frame(NrdLogCursor *cursor, uint64_t offset, uint64_t *ret_next)
{
    NrdSegment *segment = hold_segment(cursor->log, offset);
    bool again = true;
    int r = 0;

    nrd_cursor_release_frame(cursor);
    if (segment == NULL)
        return -ENOENT; /* trimmed meanwhile */
    if (recall(cursor, segment, offset))
        again = false;
    for (int i = 0; r == 0 && again && i < MAX_ATTEMPTS; i++)
        r = look_up(cursor, segment, offset, i > 0, ret_next, &again);
    nrd_segment_release(segment);
    nrd_segment_unref(segment);
    if (r == 0 && again)
        return -EIO; /* the scan finds nothing wrong, and yet reading goes wrong: the disk is failing */
    /* -ENOENT is a file that somebody took away, not a record that retention did */
    return r == 0 || r == -EBADMSG ? r : -EIO;
}
