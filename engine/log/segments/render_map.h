/* Where the records of one segment stand in a rendering (base/rendering.h) of it: a sparse map, in order, that grows at
 * its end. Pure; the owner locks.
 *
 * A point says how many bytes the rendering has before the record `offset`. There is one every `every` bytes at least
 * (at the next record, that is); when they become too many every other one goes and `every` doubles, so that a map is
 * bounded whatever the segment holds, at the price of longer gaps. */
#ifndef NRD_LOG_RENDER_MAP_H
#define NRD_LOG_RENDER_MAP_H

#include <glib.h>
#include <stdint.h>

#define NRD_RENDER_EVERY_BYTES ((uint64_t)64 * 1024)
#define NRD_RENDER_MAX_POINTS 4096

typedef struct NrdRenderPoint {
    uint64_t at;
    uint64_t offset;
} NrdRenderPoint;

typedef struct NrdRenderMap {
    uint64_t base; /* of the segment: it begins at 0, which is in no point */
    uint64_t every;
    uint64_t next_offset; /* records below are in it, or lost */
    uint64_t bytes;       /* of the rendering so far */
    GArray *points;       /* NrdRenderPoint, both ascending; NULL: not in memory */
} NrdRenderMap;

/* Empty, from base on. What was in it has been cleared. */
void nrd_render_map_init(NrdRenderMap *map, uint64_t base);

/* Takes the points out of memory; the sums stay. Zeroed maps too. */
void nrd_render_map_drop_points(NrdRenderMap *map);

/* The record `offset`, at or above next_offset, takes length bytes. The points are in memory. */
void nrd_render_map_add(NrdRenderMap *map, uint64_t offset, uint64_t length);

/* The last point at or before `at`. The points are in memory. */
NrdRenderPoint nrd_render_map_find(const NrdRenderMap *map, uint64_t at);

#endif
