/* See frame_cache.h. */
#include "engine/log/frame_cache.h"

void nrd_frame_cache_drop(NrdSegment *segment)
{
    (void)segment;
}

void nrd_frame_cache_set_limit(size_t limit_bytes)
{
    (void)limit_bytes;
}

size_t nrd_frame_cache_size(void)
{
    return 0;
}
