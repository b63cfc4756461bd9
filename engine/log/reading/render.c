/* See render.h. */
#include "engine/log/reading/render.h"

#include "engine/log/reading/frame_run.h"
#include "engine/log/segments/segment_render.h"

#include <errno.h>

#define MAX_ATTEMPTS 4

NrdRenderRecord nrd_render_record(const NrdRenderJob *job, const NrdRecordView *view)
{
    return (NrdRenderRecord){ .partition = job->log->home.partition,
                              .offset = view->offset,
                              .timestamp_ms = view->commit_ms,
                              .key = view->key,
                              .key_size = view->key_size,
                              .payload = view->payload,
                              .payload_size = view->payload_size };
}

static int check_wanted(const NrdRenderJob *job)
{
    if (nrd_log_is_closed(job->log))
        return -ESHUTDOWN;
    return job->want.give_up != NULL && job->want.give_up(job->want.data) ? -ECANCELED : 0;
}

/* Extends the map up to limit_offset. */
static int extend(const NrdRenderJob *job, NrdSegment *segment, NrdRenderMap *map, uint64_t limit_offset)
{
    NrdFrameRun run = { 0 };
    NrdRecordView view;
    bool found = true;
    int r = 0;

    while (r == 0 && found && map->next_offset < limit_offset) {
        r = check_wanted(job);
        if (r == 0)
            r = nrd_frame_run_read(&run, segment, map->next_offset, limit_offset, &view, &found);
        if (r < 0)
            break;
        if (found) {
            NrdRenderRecord record = nrd_render_record(job, &view);
            nrd_render_map_add(map, view.offset, job->want.rendering->length(&record));
        } else {
            map->next_offset = limit_offset; /* the rest is lost */
        }
    }
    nrd_frame_run_clear(&run);
    return r;
}

/* The map as far as limit_offset; between begin and end. */
static int bring_up(const NrdRenderJob *job, NrdSegment *segment, NrdRenderMap *map, uint64_t limit_offset)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        if (map->next_offset < limit_offset)
            nrd_segment_render_need_points(segment);
        int r = extend(job, segment, map, limit_offset);
        /* damage that was met has changed the index, and what stood in the map may be wrong with it */
        bool stale = nrd_segment_render_is_stale(segment);
        if (!stale || r < 0)
            return r;
    }
    return -EIO; /* the index changes again and again: the disk is failing */
}

int nrd_render_length(const NrdRenderJob *job, NrdSegment *segment, uint64_t limit_offset, uint64_t *ret_bytes)
{
    NrdRenderMap *map = nrd_segment_render_begin(segment, job->want.rendering);
    int r = bring_up(job, segment, map, limit_offset);
    uint64_t bytes = map->bytes;

    nrd_segment_render_end(segment);
    if (r < 0)
        return r;
    *ret_bytes = bytes;
    return 0;
}

int nrd_render_find(const NrdRenderJob *job, NrdSegment *segment, uint64_t at, uint64_t limit_offset,
                    NrdRenderPoint *ret_point)
{
    NrdRenderMap *map = nrd_segment_render_begin(segment, job->want.rendering);
    NrdRenderPoint point = { 0, map->base };
    int r = 0;

    if (at >= NRD_RENDER_EVERY_BYTES) {
        nrd_segment_render_need_points(segment);
        r = bring_up(job, segment, map, limit_offset);
        if (r == 0)
            point = nrd_render_map_find(map, at);
    }
    nrd_segment_render_end(segment);
    if (r < 0)
        return r;
    *ret_point = point;
    return 0;
}
