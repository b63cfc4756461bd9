/* What is known of one rendering of a segment: how long it is, and where its records stand. A segment remembers one
 * rendering; another one takes its place. Any thread; who has begun blocks the others until the end, never a commit.
 *
 * Whoever uses this holds the segment (nrd_segment_hold): its files stay, so that no side file is written behind the
 * back of a removal. */
#ifndef NRD_LOG_SEGMENT_RENDER_H
#define NRD_LOG_SEGMENT_RENDER_H

#include "engine/base/rendering.h"
#include "engine/log/segments/render_map.h"
#include "engine/log/segments/segment.h"

/* Takes the lock and gives the map, which the caller extends from next_offset on by reading the segment. It is empty when
 * nothing usable is known, also not on the disk. May block. */
NrdRenderMap *nrd_segment_render_begin(NrdSegment *segment, const NrdRendering *rendering);

/* Whether the map has no points in memory while the caller needs them: then they are read from the side file, or the map
 * is emptied. Between begin and end. May block. */
void nrd_segment_render_need_points(NrdSegment *segment);

/* Whether the index is another one than that the map was made from: what was found meanwhile may be wrong. The map is
 * emptied then. Between begin and end. */
bool nrd_segment_render_is_stale(NrdSegment *segment);

/* Writes the side file when the map of a sealed segment is complete and not on the disk yet (a failure is only logged),
 * and gives the lock back. May block. */
void nrd_segment_render_end(NrdSegment *segment);

/* The length of a sealed segment, when it is in memory and nobody is at it. Memory only. */
bool nrd_segment_render_peek(NrdSegment *segment, const NrdRendering *rendering, uint64_t *ret_bytes);

/* The map led to a wrong place: forgets it, here and on the disk. May block. */
void nrd_segment_render_reset(NrdSegment *segment);

/* The active segment of a log that is being closed: leaves what is known of it for the next open. Failures are only
 * logged. May block. */
void nrd_segment_render_close(NrdSegment *segment);

#endif
