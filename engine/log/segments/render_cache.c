/* See render_cache.h. */
#include "engine/log/segments/render_cache.h"

static GMutex cache_lock;
/* guarded by cache_lock */
static GQueue lru = G_QUEUE_INIT; /* segments, the one used last first */

static void unlink_locked(NrdSegment *segment)
{
    if (segment->in_render_lru)
        g_queue_unlink(&lru, &segment->render_lru);
    segment->in_render_lru = false;
}

/* Takes the points of the coldest one, unless somebody is using them. */
static void drop_coldest_locked(void)
{
    NrdSegment *coldest = g_queue_peek_tail(&lru);

    if (!g_mutex_trylock(&coldest->render_lock))
        return; /* it is about to become the hottest */
    unlink_locked(coldest);
    nrd_render_map_drop_points(&coldest->render);
    g_mutex_unlock(&coldest->render_lock);
}

void nrd_render_cache_touch(NrdSegment *segment)
{
    g_mutex_lock(&cache_lock);
    unlink_locked(segment);
    g_queue_push_head_link(&lru, &segment->render_lru);
    segment->in_render_lru = true;
    if (lru.length > NRD_RENDER_CACHE_MAX)
        drop_coldest_locked();
    g_mutex_unlock(&cache_lock);
}

void nrd_render_cache_forget(NrdSegment *segment)
{
    g_mutex_lock(&cache_lock);
    unlink_locked(segment);
    g_mutex_unlock(&cache_lock);
}

unsigned nrd_render_cache_length(void)
{
    g_mutex_lock(&cache_lock);
    unsigned n = lru.length;
    g_mutex_unlock(&cache_lock);
    return n;
}
