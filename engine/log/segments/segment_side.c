/* The side file of a segment: written when the segment is sealed or its log closed, looked at when it is opened. */
#include "engine/log/segments/segment_private.h"

#include "engine/log/index/index_file.h"
#include "engine/log/segments/hot_set.h"

NrdIndexFileId nrd_segment_side_id(const NrdSegment *segment, const char *path, uint64_t end_offset,
                                   uint64_t size_bytes)
{
    return (NrdIndexFileId){ .root_fd = segment->home->root_fd,
                             .path = path,
                             .base = segment->base,
                             .end_offset = end_offset,
                             .size_bytes = size_bytes };
}

void nrd_segment_write_side(NrdSegment *segment, const NrdIndex *index, uint64_t size_bytes, NrdIndexFileKind kind)
{
    if (segment->home->read_only || segment->buried || __atomic_load_n(&segment->home->abandoned, __ATOMIC_ACQUIRE))
        return;
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = nrd_segment_side_id(segment, path, index->end.offset, size_bytes);
    id.kind = kind;
    int r = nrd_index_file_write(&id, index);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET),
                 "cannot write index %s: %s; it will be rebuilt when it is needed", path, g_strerror(-r));
    g_free(path);
}

void nrd_segment_bury(NrdSegment *segment)
{
    g_mutex_lock(&segment->load_lock);
    segment->buried = true;
    g_mutex_unlock(&segment->load_lock);
}

void nrd_segment_seal(NrdSegment *segment, uint64_t end_offset)
{
    nrd_hot_pin(segment);              /* before it counts as sealed: a reader that is done lets sealed ones go cold */
    g_mutex_lock(&segment->load_lock); /* no repair replaces the index meanwhile */
    g_mutex_lock(&segment->lock);
    g_assert(segment->index != NULL && segment->index->end.offset == end_offset);
    segment->sealed = true;
    NrdIndex *index = segment->index;
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);
    /* sealed: the index does not change, and under load_lock and a pin it does not go */
    nrd_segment_write_side(segment, index, size_bytes, NRD_INDEX_OF_SEALED);
    g_mutex_unlock(&segment->load_lock);
    nrd_hot_unpin(segment);
}

void nrd_segment_open_sealed(NrdSegment *segment, uint64_t end_offset)
{
    NrdIndexEnd end = { .offset = end_offset };
    uint64_t n_gaps = 0;

    g_mutex_lock(&segment->lock);
    segment->sealed = true;
    segment->end = end;
    g_mutex_unlock(&segment->lock);
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = nrd_segment_side_id(segment, path, end_offset, segment->size_bytes);
    int r = nrd_index_file_read_end(&id, &end, &n_gaps);
    if (r == 0) {
        g_mutex_lock(&segment->lock);
        segment->end = end;
        segment->end_known = true;
        g_mutex_unlock(&segment->lock);
        if (n_gaps > 0)
            nrd_segment_learn_gaps(segment);
    } else {
        r = nrd_segment_learn_end(segment); /* a failure was reported */
    }
    g_free(path);
}

void nrd_segment_write_closed(NrdSegment *segment, bool complete)
{
    if (segment->home->read_only)
        return;
    g_mutex_lock(&segment->load_lock);
    g_mutex_lock(&segment->lock);
    NrdIndex index = { .end = segment->end };
    bool whole = segment->index != NULL && segment->index->gaps->len == 0; /* of gaps only an open tells */
    uint64_t size_bytes = segment->size_bytes;
    bool wanted = complete && whole && !segment->sealed && size_bytes > 0 && index.end.pos == size_bytes;
    g_mutex_unlock(&segment->lock);
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = nrd_segment_side_id(segment, path, index.end.offset, size_bytes);
    if (wanted)
        nrd_segment_write_side(segment, &index, size_bytes, NRD_INDEX_AT_CLOSE);
    int r = complete && whole ? 0 : nrd_index_file_remove(&id);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET), "cannot remove %s: %s", path,
                 g_strerror(-r));
    g_free(path);
    g_mutex_unlock(&segment->load_lock);
}
