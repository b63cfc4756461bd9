/* The index of a segment: taken over, loaded and made again.
 *
 * That of the active segment is in memory. That of a sealed one is searched in its mapped side file, and in memory only
 * after the segment was sealed or scanned, until it goes cold. A side file that is missing, of another segment, or
 * damaged in a block that a search touches, is made again from the segment. */
#include "engine/log/segments/segment_private.h"

#include "engine/log/index/index_file.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/hot_set.h"
#include "engine/log/segments/map_cache.h"

#include <errno.h>
#include <inttypes.h>

static void text_moved(NrdSegmentHome *home)
{
    __atomic_add_fetch(&home->text_version, 1, __ATOMIC_ACQ_REL);
}

/* Installs an index; the caller holds segment->lock. Returns the old one, to be freed without the lock. */
static NrdIndex *install_index_locked(NrdSegment *segment, NrdIndex *index)
{
    NrdIndex *old = segment->index;

    bool differs = segment->end.text_bytes != index->end.text_bytes || segment->end.commit_ms != index->end.commit_ms;
    if (differs || (segment->sealed && !segment->end_known))
        text_moved(segment->home);
    segment->index = index;
    segment->end = index->end;
    segment->end_known = true;
    segment->version++;
    return old;
}

void nrd_segment_set_index(NrdSegment *segment, NrdIndex *index, uint64_t size_bytes)
{
    g_mutex_lock(&segment->lock);
    NrdIndex *old = install_index_locked(segment, index);
    segment->size_bytes = size_bytes;
    g_mutex_unlock(&segment->lock);
    if (old != NULL) /* else it is new, and nobody has read it */
        text_moved(segment->home);
    nrd_index_free(old);
}

/* Scans the segment as far as it is indexed and replaces the index. The caller holds load_lock and a pin. */
static int rebuild(NrdSegment *segment, int fd)
{
    NrdIndex *index = NULL;

    if (fd < 0)
        return 0; /* gone: there is nothing to find */
    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    uint64_t version = segment->version;
    NrdIndexEnd since = segment->end;
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);

    NrdScanWant want = { fd, segment->base, sealed ? size_bytes : since.pos, since.offset };
    int r = nrd_scan_segment(&want, nrd_segment_home_place(segment->home, NRD_NO_OFFSET), &index, NULL);
    nrd_segment_report_read(segment, r);
    if (r < 0)
        return r;
    index->end.pos = want.size_bytes; /* unreachable bytes behind the last frame count as read */
    if (sealed)
        nrd_segment_write_side(segment, index, size_bytes, NRD_INDEX_OF_SEALED);
    GArray *gaps = g_array_copy(index->gaps); /* who installs an index gives it away */
    g_mutex_lock(&segment->lock);
    /* The committer may have added frames meanwhile. When it has recovered the segment, what the scan found is void: it may
     * have cut bytes above the boundary under the scan. */
    bool current = segment->version == version;
    if (current) {
        if (!sealed && segment->index != NULL)
            nrd_index_continue(index, segment->index, &since);
        index = install_index_locked(segment, index);
    }
    g_mutex_unlock(&segment->lock);
    if (current)
        nrd_segment_report_gaps(segment, gaps);
    nrd_map_cache_drop(segment);
    nrd_index_free(index);
    g_array_unref(gaps);
    return 0;
}

/* The side file is of no use: makes the index again. The caller holds load_lock and a pin. */
static int rebuild_from_segment(NrdSegment *segment, int fd, const char *path)
{
    g_mutex_lock(&segment->lock);
    bool failing = segment->read_error != 0; /* that has been told: no line for each try */
    g_mutex_unlock(&segment->lock);
    if (!failing)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_segment_home_place(segment->home, (int64_t)segment->base),
                 "index %s is missing or not usable: rebuilding it from the segment", path);
    int r = rebuild(segment, fd);
    if (r == 0)
        nrd_counter_add(NRD_COUNTER_INDEX_REBUILT, 1);
    return r;
}

/* Takes over the sums of a side file; -ENOENT when they are not those that are known already. */
static int learn_end(NrdSegment *segment, const NrdIndexEnd *end)
{
    g_mutex_lock(&segment->lock);
    bool fits =
        !segment->end_known || (segment->end.text_bytes == end->text_bytes && segment->end.commit_ms == end->commit_ms);
    if (!segment->end_known) {
        text_moved(segment->home);
        segment->end = *end;
        segment->end_known = true;
    }
    g_mutex_unlock(&segment->lock);
    return fits ? 0 : -ENOENT;
}

static int report_map_gaps(NrdSegment *segment, const NrdIndexMap *map)
{
    NrdIndexBlock block;
    NrdIndexView view = nrd_index_map_view(map, &block);
    NrdGap gap;

    for (uint64_t i = 0; i < view.n_gaps && i < NRD_MAX_KNOWN_GAPS; i++) {
        int r = view.get_gap(view.data, i, &gap);
        if (r < 0)
            return r;
        nrd_segment_report_gap(segment, &gap);
    }
    return 0;
}

static bool has_index(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    bool have = segment->index != NULL;
    g_mutex_unlock(&segment->lock);
    return have;
}

/* Maps the side file; *ret_map stays NULL when the index is in memory now. The caller holds load_lock and a pin. */
static int load_map(NrdSegment *segment, int fd, NrdIndexMap **ret_map)
{
    NrdIndexMap *map = has_index(segment) ? NULL : nrd_map_cache_get(segment);

    if (map != NULL || has_index(segment)) { /* another thread was faster */
        *ret_map = map;
        return 0;
    }
    char *path = nrd_segment_index_path(segment);
    g_mutex_lock(&segment->lock);
    NrdIndexFileId id = nrd_segment_side_id(segment, path, segment->end.offset, segment->size_bytes);
    g_mutex_unlock(&segment->lock);
    int r = nrd_index_file_map(&id, &map);
    if (r == 0)
        r = learn_end(segment, &map->end);
    if (r == 0)
        r = report_map_gaps(segment, map);
    if (r == 0) {
        nrd_map_cache_put(segment, map);
        *ret_map = map;
    } else {
        nrd_index_map_unref(map);
        r = rebuild_from_segment(segment, fd, path);
    }
    g_free(path);
    return r;
}

/* A block of this map does not check out. The caller holds load_lock and a pin. */
static int replace_map(NrdSegment *segment, int fd, const NrdIndexMap *bad)
{
    NrdIndexMap *now = nrd_map_cache_get(segment);
    bool is_bad = now == bad;
    int r = 0;

    nrd_index_map_unref(now);
    if (is_bad) { /* else another thread was faster */
        char *path = nrd_segment_index_path(segment);
        r = rebuild_from_segment(segment, fd, path);
        g_free(path);
    }
    return r;
}

int nrd_segment_load(NrdSegment *segment, const NrdIndexMap *bad, NrdIndexMap **ret_map)
{
    int fd;
    int r = nrd_segment_pin(segment, &fd);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->load_lock);
    r = bad != NULL ? replace_map(segment, fd, bad) : load_map(segment, fd, ret_map);
    g_mutex_unlock(&segment->load_lock);
    nrd_segment_unpin(segment); /* the caller has a pin of its own: nothing goes cold */
    return r;
}

static int load_index(NrdSegment *segment)
{
    NrdIndexMap *map = NULL;
    int r = nrd_segment_load(segment, NULL, &map);
    nrd_index_map_unref(map);
    return r;
}

void nrd_segment_learn_gaps(NrdSegment *segment)
{
    (void)!load_index(segment); /* a failure is told by the read that meets it */
}

int nrd_segment_learn_end(NrdSegment *segment)
{
    return nrd_segment_end_is_known(segment) ? 0 : load_index(segment);
}

int nrd_segment_repair(NrdSegment *segment, uint64_t seen_version)
{
    int fd;
    int r = nrd_segment_pin(segment, &fd);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->load_lock);
    g_mutex_lock(&segment->lock);
    bool again = segment->version == seen_version;
    g_mutex_unlock(&segment->lock);
    if (again)
        r = rebuild(segment, fd);
    g_mutex_unlock(&segment->load_lock);
    nrd_segment_unpin(segment);
    return r;
}
