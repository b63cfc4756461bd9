/* Inside of a cursor, for cursor.c (records out of the frame) and cursor_frame.c (which frame). One thread at a time. */
#ifndef NRD_LOG_CURSOR_PRIVATE_H
#define NRD_LOG_CURSOR_PRIVATE_H

#include "engine/log/reading/frame_ahead.h"
#include "engine/log/reading/reading.h"
#include "engine/log/segments/frame_cache.h"

struct NrdLogCursor {
    NrdLog *log;

    /* the place: behind the frame that was read last */
    NrdSegment *segment; /* a reference, or NULL: no place */
    uint64_t version;    /* of the segment's index when it was read */
    uint64_t next_pos;
    uint64_t next_offset; /* UINT64_MAX: no frame was read in this segment */

    /* the frame, when there is one */
    const uint8_t *payload; /* NULL: none; lies in frame or, when that is NULL, in reader */
    size_t payload_size;
    uint64_t offset;
    uint32_t n_records;
    NrdFrameData *frame; /* a reference */
    uint32_t next_index; /* within the frame: the record that begins at record_pos of its payload */
    size_t record_pos;
    size_t last_pos; /* of the record before it: who had no room for it asks for it again */

    NrdFrameReader reader;
    NrdFrameAhead *frames; /* behind the window; NULL: none was asked for */
};

/* Gives the frame back that the cursor is in. */
void nrd_cursor_release_frame(NrdLogCursor *cursor);

/* Takes the frame right behind the last one, if that is where offset is; false: it has to be found. Blocks. */
bool nrd_cursor_load_next(NrdLogCursor *cursor, uint64_t offset) NRD_MUST_CHECK;

/* Looks the frame up that holds offset, through list and index, and takes it. -ENOENT when it was trimmed; -EBADMSG when
 * it is damaged or lost, then *ret_next is behind the damage; -EIO. Blocks. */
int nrd_cursor_find_frame(NrdLogCursor *cursor, uint64_t offset, uint64_t *ret_next) NRD_MUST_CHECK;

#endif
