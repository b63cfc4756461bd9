/* Which side files stay mapped: those of the segments that were searched last, up to a bound for the process. A map needs
 * no descriptor, so it stays when its segment goes cold (segment.h). One lock, over pointers only, with none below it. */
#ifndef NRD_LOG_MAP_CACHE_H
#define NRD_LOG_MAP_CACHE_H

#include "engine/log/segments/segment_private.h"

#define NRD_MAP_CACHE_MAX 256

/* A reference on the segment's map, or NULL. */
NrdIndexMap *nrd_map_cache_get(NrdSegment *segment);

/* Keeps a reference on map, in place of an older one. */
void nrd_map_cache_put(NrdSegment *segment, NrdIndexMap *map);

/* The segment's map is not to be used any more, or the segment is going. */
void nrd_map_cache_drop(NrdSegment *segment);

unsigned nrd_map_cache_length(void);

#endif
