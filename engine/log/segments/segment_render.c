/* See segment_render.h. */
#include "engine/log/segments/segment_render.h"

#include "engine/log/segments/render_cache.h"
#include "engine/log/segments/render_file.h"
#include "engine/log/segments/segment_private.h"

#include <errno.h>

/* What of the segment decides about its side file. */
typedef struct Seen {
    NrdIndexEnd end;
    uint64_t size_bytes;
    uint64_t version;
    bool known;
    bool sealed;
} Seen;

static Seen look(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    Seen seen = { segment->end, segment->size_bytes, segment->version, segment->end_known, segment->sealed };
    g_mutex_unlock(&segment->lock);
    if (!seen.sealed) { /* it may grow meanwhile: the two belong together */
        seen.known = true;
        seen.size_bytes = seen.end.pos;
    }
    return seen;
}

static NrdRenderFileId file_id(const NrdSegment *segment, const Seen *seen, const char *path,
                               const NrdRendering *rendering)
{
    return (NrdRenderFileId){ .root_fd = segment->home->root_fd,
                              .path = path,
                              .base = segment->base,
                              .end_offset = seen->end.offset,
                              .size_bytes = seen->size_bytes,
                              .text_bytes = seen->end.text_bytes,
                              .rendering = rendering };
}

/* render_lock is held by all that follow. */
static void forget(NrdSegment *segment)
{
    nrd_render_cache_forget(segment);
    nrd_render_map_drop_points(&segment->render);
    segment->rendering = NULL;
}

static bool load(NrdSegment *segment, const Seen *seen, const NrdRendering *rendering, NrdRenderMap *ret_map)
{
    char *path = nrd_segment_render_path(segment);
    NrdRenderFileId id = file_id(segment, seen, path, rendering);
    int r = seen->known ? nrd_render_file_read(&id, ret_map) : -ENOENT;
    g_free(path);
    return r == 0; /* whatever it is: the segment tells as well */
}

static void begin_anew(NrdSegment *segment, const NrdRendering *rendering)
{
    int learnt = nrd_segment_learn_end(segment); /* a failure was reported; the reads will meet it again */
    Seen seen = look(segment);

    forget(segment);
    if (learnt == 0 && load(segment, &seen, rendering, &segment->render)) {
        segment->render_saved = segment->render.next_offset;
    } else {
        nrd_render_map_init(&segment->render, segment->base);
        segment->render_saved = UINT64_MAX;
    }
    segment->rendering = rendering;
    segment->render_version = seen.version;
}

NrdRenderMap *nrd_segment_render_begin(NrdSegment *segment, const NrdRendering *rendering)
{
    g_mutex_lock(&segment->render_lock);
    if (segment->rendering != rendering || segment->render_version != nrd_segment_version(segment))
        begin_anew(segment, rendering);
    return &segment->render;
}

void nrd_segment_render_need_points(NrdSegment *segment)
{
    if (segment->render.points == NULL)
        begin_anew(segment, segment->rendering);
}

bool nrd_segment_render_is_stale(NrdSegment *segment)
{
    bool stale = segment->render_version != nrd_segment_version(segment);
    if (stale)
        begin_anew(segment, segment->rendering);
    return stale;
}

/* Writes what is known, which reaches the end that was seen. */
static void save(NrdSegment *segment, const Seen *seen)
{
    segment->render_saved = segment->render.next_offset; /* once is enough, also when it fails */
    if (segment->home->read_only || __atomic_load_n(&segment->home->abandoned, __ATOMIC_ACQUIRE))
        return;
    char *path = nrd_segment_render_path(segment);
    NrdRenderFileId id = file_id(segment, seen, path, segment->rendering);
    int r = nrd_render_file_write(&id, &segment->render);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET),
                 "cannot write %s: %s; the segment will be read again when its length is asked for", path,
                 g_strerror(-r));
    g_free(path);
}

static bool is_complete(const NrdSegment *segment, const Seen *seen)
{
    return segment->rendering != NULL && segment->render.points != NULL && seen->known &&
           segment->render_version == seen->version && segment->render.next_offset == seen->end.offset;
}

void nrd_segment_render_end(NrdSegment *segment)
{
    Seen seen = look(segment);

    if (seen.sealed && is_complete(segment, &seen)) {
        if (segment->render_saved != segment->render.next_offset)
            save(segment, &seen);
        nrd_render_cache_touch(segment);
    }
    g_mutex_unlock(&segment->render_lock);
}

bool nrd_segment_render_peek(NrdSegment *segment, const NrdRendering *rendering, uint64_t *ret_bytes)
{
    if (!g_mutex_trylock(&segment->render_lock))
        return false;
    Seen seen = look(segment);
    bool known = seen.sealed && segment->rendering == rendering && segment->render_version == seen.version &&
                 segment->render.next_offset == seen.end.offset;
    if (known)
        *ret_bytes = segment->render.bytes;
    g_mutex_unlock(&segment->render_lock);
    return known;
}

void nrd_segment_render_reset(NrdSegment *segment)
{
    char *path = nrd_segment_render_path(segment);

    g_mutex_lock(&segment->render_lock);
    forget(segment);
    if (!segment->home->read_only && !__atomic_load_n(&segment->home->abandoned, __ATOMIC_ACQUIRE))
        (void)!nrd_render_file_remove(segment->home->root_fd, path); /* what stays is told by the next write */
    g_mutex_unlock(&segment->render_lock);
    g_free(path);
}

void nrd_segment_render_close(NrdSegment *segment)
{
    g_mutex_lock(&segment->render_lock);
    Seen seen = look(segment);
    bool unsaved = segment->render_saved != segment->render.next_offset;
    if (!seen.sealed && unsaved && seen.end.offset > segment->base && is_complete(segment, &seen))
        save(segment, &seen);
    g_mutex_unlock(&segment->render_lock);
}
