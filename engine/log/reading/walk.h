/* Walks the frames of one segment from an offset or a time on, for a search whose last step is to look into frames.
 *
 * Every frame is checked in full. Damage: a frame that fails is read once more, then the segment is scanned and its
 * index rebuilt; what is damaged for good is a gap then, and is passed over (cursor.c says why). */
#ifndef NRD_LOG_WALK_H
#define NRD_LOG_WALK_H

#include "engine/base/macros.h"
#include "engine/log/frames/frame_reader.h"
#include "engine/log/segments/segment.h"

/* Looks at the loaded frame; text_pos: bytes of text in the segment before it. Returns whether the walk is over. A walk
 * that meets damage begins anew, so that a frame may be seen twice. */
typedef bool (*NrdWalkVisit)(const NrdFrameReader *reader, uint64_t text_pos, void *data);

/* Where to begin. */
typedef struct NrdWalk {
    NrdSegment *segment;
    bool by_time; /* at the frame from which time_ms is reached, and else: */
    int64_t time_ms;
    uint64_t offset; /* at the frame that holds it, or the first one behind it */
    NrdWalkVisit visit;
    void *data;
    NrdFrameReader *reader; /* to use, and to keep the frame loaded that the walk ends at; NULL: one of its own */
} NrdWalk;

/* *ret_found: visit said so; false at the segment's end. -EIO, -ENOMEM. May block. */
int nrd_walk(const NrdWalk *walk, bool *ret_found) NRD_MUST_CHECK;

#endif
