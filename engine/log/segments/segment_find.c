/* Searching the index of a segment, wherever it is. */
#include "engine/log/segments/segment_private.h"

#include "engine/log/segments/map_cache.h"

#include <errno.h>

#define MAX_ATTEMPTS 4

/* A search and its outcome. */
typedef struct Search {
    NrdIndexQuery query;
    NrdIndexPlace place;
    uint64_t version; /* of the index */
    bool found;
} Search;

/* Searches the index in memory; false when there is none. Notes the version either way. */
static bool search_memory(NrdSegment *segment, Search *s)
{
    g_mutex_lock(&segment->lock);
    bool there = segment->index != NULL;
    s->version = segment->version;
    if (there) {
        NrdIndexView view = nrd_index_view(segment->index);
        int r = nrd_index_search(&view, &s->query, &s->place, &s->found);
        g_assert(r == 0); /* memory does not fail */
    }
    g_mutex_unlock(&segment->lock);
    return there;
}

/* Searches a mapped index: without a lock, since a look may wait for the disk. */
static int search_map(const NrdIndexMap *map, Search *s)
{
    NrdIndexBlock block;
    NrdIndexView view = nrd_index_map_view(map, &block);
    return nrd_index_search(&view, &s->query, &s->place, &s->found);
}

/* Pinned. */
static int search(NrdSegment *segment, Search *s)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        if (search_memory(segment, s))
            return 0;
        NrdIndexMap *map = nrd_map_cache_get(segment);
        int r = map != NULL ? 0 : nrd_segment_load(segment, NULL, &map);
        if (r < 0)
            return r;
        if (map == NULL)
            continue; /* it is in memory now */
        bool good = search_map(map, s) == 0;
        r = good ? 0 : nrd_segment_load(segment, map, NULL);
        nrd_index_map_unref(map);
        if (good || r < 0)
            return r;
    }
    return -EIO; /* made again and again, and never there: the disk is failing */
}

/* search, with its outcome where the callers want it. */
static int find(NrdSegment *segment, const NrdIndexQuery *query, NrdIndexPlace *ret_place, uint64_t *ret_version,
                bool *ret_found)
{
    Search s = { .query = *query };
    int r = search(segment, &s);
    if (r < 0)
        return r;
    *ret_place = s.place;
    *ret_version = s.version;
    *ret_found = s.found;
    return 0;
}

int nrd_segment_find_offset(NrdSegment *segment, uint64_t offset, NrdIndexPlace *ret_place, uint64_t *ret_version)
{
    NrdIndexQuery query = { .key = NRD_BY_OFFSET, .value = offset };
    bool found; /* always */
    return find(segment, &query, ret_place, ret_version, &found);
}

int nrd_segment_find_text(NrdSegment *segment, uint64_t text_pos, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found)
{
    NrdIndexQuery query = { .key = NRD_BY_TEXT, .value = text_pos };
    return find(segment, &query, ret_place, ret_version, ret_found);
}

int nrd_segment_find_time(NrdSegment *segment, int64_t time_ms, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found)
{
    NrdIndexQuery query = { .key = NRD_BY_TIME, .time_ms = time_ms };
    return find(segment, &query, ret_place, ret_version, ret_found);
}
