/* See map_cache.h. */
#include "engine/log/segments/map_cache.h"

static GMutex map_lock;
/* guarded by map_lock */
static GQueue lru = G_QUEUE_INIT; /* segments with a map, the one searched last first */

NrdIndexMap *nrd_map_cache_get(NrdSegment *segment)
{
    NrdIndexMap *map = NULL;

    g_mutex_lock(&map_lock);
    if (segment->map != NULL) {
        map = nrd_index_map_ref(segment->map);
        g_queue_unlink(&lru, &segment->map_lru);
        g_queue_push_head_link(&lru, &segment->map_lru);
    }
    g_mutex_unlock(&map_lock);
    return map;
}

/* Returns the map that was there, for an unref without the lock. */
static NrdIndexMap *take_locked(NrdSegment *segment)
{
    if (segment->map != NULL)
        g_queue_unlink(&lru, &segment->map_lru);
    return g_steal_pointer(&segment->map);
}

void nrd_map_cache_put(NrdSegment *segment, NrdIndexMap *map)
{
    NrdIndexMap *coldest = NULL;

    g_mutex_lock(&map_lock);
    NrdIndexMap *old = take_locked(segment);
    segment->map = nrd_index_map_ref(map);
    g_queue_push_head_link(&lru, &segment->map_lru);
    if (lru.length > NRD_MAP_CACHE_MAX)
        coldest = take_locked(g_queue_peek_tail(&lru));
    g_mutex_unlock(&map_lock);
    nrd_index_map_unref(old);
    nrd_index_map_unref(coldest);
}

void nrd_map_cache_drop(NrdSegment *segment)
{
    g_mutex_lock(&map_lock);
    NrdIndexMap *old = take_locked(segment);
    g_mutex_unlock(&map_lock);
    nrd_index_map_unref(old);
}

unsigned nrd_map_cache_length(void)
{
    g_mutex_lock(&map_lock);
    unsigned n = lru.length;
    g_mutex_unlock(&map_lock);
    return n;
}
