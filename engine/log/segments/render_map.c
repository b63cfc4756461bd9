/* See render_map.h. */
#include "engine/log/segments/render_map.h"

void nrd_render_map_init(NrdRenderMap *map, uint64_t base)
{
    *map = (NrdRenderMap){ .base = base,
                           .every = NRD_RENDER_EVERY_BYTES,
                           .next_offset = base,
                           .points = g_array_new(FALSE, FALSE, sizeof(NrdRenderPoint)) };
}

void nrd_render_map_drop_points(NrdRenderMap *map)
{
    if (map->points != NULL)
        g_array_unref(map->points);
    map->points = NULL;
}

static NrdRenderPoint *point_at(const NrdRenderMap *map, guint i)
{
    return &g_array_index(map->points, NrdRenderPoint, i);
}

static void thin_out(NrdRenderMap *map)
{
    guint n = 0;

    for (guint i = 1; i < map->points->len; i += 2)
        *point_at(map, n++) = *point_at(map, i);
    g_array_set_size(map->points, n);
    map->every *= 2;
}

void nrd_render_map_add(NrdRenderMap *map, uint64_t offset, uint64_t length)
{
    guint n = map->points->len;
    uint64_t last = n > 0 ? point_at(map, n - 1)->at : 0;

    if (map->bytes - last >= map->every) {
        NrdRenderPoint point = { map->bytes, offset };
        g_array_append_val(map->points, point);
        if (map->points->len > NRD_RENDER_MAX_POINTS)
            thin_out(map);
    }
    map->bytes += length;
    map->next_offset = offset + 1;
}

NrdRenderPoint nrd_render_map_find(const NrdRenderMap *map, uint64_t at)
{
    guint low = 0, high = map->points->len;

    while (low < high) {
        guint mid = low + (high - low) / 2;
        if (point_at(map, mid)->at <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? *point_at(map, low - 1) : (NrdRenderPoint){ 0, map->base };
}
