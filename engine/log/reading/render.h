/* How long the segments of a log are in a rendering, and where a position of it lies: worked out by reading them, once,
 * and remembered (segment_render.h). The segment is held by the caller. Any thread. May block, for a read of the whole
 * segment when nothing of it is known. */
#ifndef NRD_LOG_RENDER_H
#define NRD_LOG_RENDER_H

#include "engine/base/rendering.h"
#include "engine/log/reading/reading.h"
#include "engine/log/segments/render_map.h"
#include "engine/log/state/state.h"

/* Whose segments, and how. */
typedef struct NrdRenderJob {
    NrdLog *log;
    NrdRenderedWant want;
} NrdRenderJob;

NrdRenderRecord nrd_render_record(const NrdRenderJob *job, const NrdRecordView *view);

/* Bytes of the rendering of the segment's records below limit_offset or some more of them, all committed.
 * -EIO, -ENOMEM; -ESHUTDOWN when the log was closed, -ECANCELED when the caller's give_up said so. */
int nrd_render_length(const NrdRenderJob *job, NrdSegment *segment, uint64_t limit_offset,
                      uint64_t *ret_bytes) NRD_MUST_CHECK;

/* A record that begins at or before byte `at` of the segment's rendering, not far. at lies below the segment's length.
 * Errors as above. */
int nrd_render_find(const NrdRenderJob *job, NrdSegment *segment, uint64_t at, uint64_t limit_offset,
                    NrdRenderPoint *ret_point) NRD_MUST_CHECK;

#endif
