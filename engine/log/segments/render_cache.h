/* Whose render maps keep their points in memory: those of the sealed segments that were looked into last, up to a bound
 * for the process (each has 64 KiB at most). The sums stay; points that are gone are read from the side file again. One
 * lock, under which another segment's render_lock is only tried. */
#ifndef NRD_LOG_RENDER_CACHE_H
#define NRD_LOG_RENDER_CACHE_H

#include "engine/log/segments/segment_private.h"

#define NRD_RENDER_CACHE_MAX 64

/* The points of this sealed segment are in memory and in use; render_lock is held. */
void nrd_render_cache_touch(NrdSegment *segment);

/* It has none any more, or is going. */
void nrd_render_cache_forget(NrdSegment *segment);

unsigned nrd_render_cache_length(void);

#endif
