/* See frame_cache.h. */
#include "engine/log/frame_cache.h"

void nrd_frame_cache_drop(NrdSegment *segment)
{
    (void)segment;
}
