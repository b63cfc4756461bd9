/* The index of a segment: where it is kept, searched, and made again.
 *
 * That of the active segment is in memory. That of a sealed one is searched in its mapped side file, and in memory only
 * after the segment was sealed or scanned, until it goes cold. A side file that is missing, of another segment, or
 * damaged in a block that a search touches, is made again from the segment. */
#include "engine/log/segment_private.h"

#include "engine/log/hot_set.h"
#include "engine/log/index_file.h"
#include "engine/log/map_cache.h"
#include "engine/log/scan.h"

#include <errno.h>
#include <inttypes.h>

/* So many gaps of a segment are remembered as counted; a segment with more of them counts some twice. */
#define MAX_KNOWN_GAPS 1024
#define MAX_ATTEMPTS 4

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

static bool learn_gap_locked(NrdSegment *segment, uint64_t pos)
{
    if (segment->known_gaps == NULL)
        segment->known_gaps = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        if (g_array_index(segment->known_gaps, uint64_t, i) == pos)
            return false;
    }
    if (segment->known_gaps->len < MAX_KNOWN_GAPS)
        g_array_append_val(segment->known_gaps, pos);
    return true;
}

static void report_gap(NrdSegment *segment, const NrdGap *gap)
{
    g_mutex_lock(&segment->lock);
    bool fresh = learn_gap_locked(segment, gap->pos);
    g_mutex_unlock(&segment->lock);
    if (!fresh)
        return;
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, (int64_t)gap->offset),
             "damaged frame in segment %020" PRIu64 " at byte %" PRIu64 ": %" PRIu64 " records are lost", segment->base,
             gap->pos, gap->end_offset - gap->offset);
}

void nrd_segment_report_gaps(NrdSegment *segment, const GArray *gaps)
{
    for (guint i = 0; i < gaps->len; i++)
        report_gap(segment, &g_array_index(gaps, NrdGap, i));
}

static int report_map_gaps(NrdSegment *segment, const NrdIndexMap *map)
{
    NrdIndexBlock block;
    NrdIndexView view = nrd_index_map_view(map, &block);
    NrdGap gap;

    for (uint64_t i = 0; i < view.n_gaps && i < MAX_KNOWN_GAPS; i++) {
        int r = view.get_gap(view.data, i, &gap);
        if (r < 0)
            return r;
        report_gap(segment, &gap);
    }
    return 0;
}

static NrdIndexFileId file_id(const NrdSegment *segment, const char *path, uint64_t end_offset, uint64_t size_bytes)
{
    return (NrdIndexFileId){ .root_fd = segment->home->root_fd,
                             .path = path,
                             .base = segment->base,
                             .end_offset = end_offset,
                             .size_bytes = size_bytes };
}

static void write_index_file(NrdSegment *segment, const NrdIndex *index, uint64_t size_bytes, NrdIndexFileKind kind)
{
    if (segment->home->read_only || __atomic_load_n(&segment->home->abandoned, __ATOMIC_ACQUIRE))
        return;
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = file_id(segment, path, index->end.offset, size_bytes);
    id.kind = kind;
    int r = nrd_index_file_write(&id, index);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET),
                 "cannot write index %s: %s; it will be rebuilt when it is needed", path, g_strerror(-r));
    g_free(path);
}

/* Scans the segment as far as it is indexed and replaces the index. The caller holds load_lock and a pin. */
static int rebuild(NrdSegment *segment, int fd)
{
    NrdIndex *index = NULL;

    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    uint64_t version = segment->version;
    NrdIndexEnd since = segment->end;
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);

    NrdScanWant want = { fd, segment->base, sealed ? size_bytes : since.pos, since.offset };
    int r = nrd_scan_segment(&want, &index, NULL);
    nrd_segment_report_read(segment, r);
    if (r < 0)
        return r;
    index->end.pos = want.size_bytes; /* unreachable bytes behind the last frame count as read */
    if (sealed)
        write_index_file(segment, index, size_bytes, NRD_INDEX_OF_SEALED);
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
    bool failing = segment->read_failed; /* that has been told: no line for each try */
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
    NrdIndexFileId id = file_id(segment, path, segment->end.offset, segment->size_bytes);
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

/* load_map, or replace_map when there is a bad one, with what they need. */
static int with_load_lock(NrdSegment *segment, const NrdIndexMap *bad, NrdIndexMap **ret_map)
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
        int r = map != NULL ? 0 : with_load_lock(segment, NULL, &map);
        if (r < 0)
            return r;
        if (map == NULL)
            continue; /* it is in memory now */
        bool good = search_map(map, s) == 0;
        r = good ? 0 : with_load_lock(segment, map, NULL);
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

static int load_index(NrdSegment *segment)
{
    NrdIndexMap *map = NULL;
    int r = with_load_lock(segment, NULL, &map);
    nrd_index_map_unref(map);
    return r;
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
    write_index_file(segment, index, size_bytes, NRD_INDEX_OF_SEALED);
    g_mutex_unlock(&segment->load_lock);
    nrd_hot_unpin(segment);
}

void nrd_segment_open_sealed(NrdSegment *segment, uint64_t end_offset)
{
    NrdIndexEnd end = { .offset = end_offset };

    g_mutex_lock(&segment->lock);
    segment->sealed = true;
    segment->end = end;
    g_mutex_unlock(&segment->lock);
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = file_id(segment, path, end_offset, segment->size_bytes);
    int r = nrd_index_file_read_end(&id, &end);
    if (r == 0) {
        g_mutex_lock(&segment->lock);
        segment->end = end;
        segment->end_known = true;
        g_mutex_unlock(&segment->lock);
    } else {
        r = load_index(segment); /* a failure was reported */
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
    uint64_t size_bytes = segment->size_bytes;
    bool wanted = complete && !segment->sealed && size_bytes > 0 && index.end.pos == size_bytes;
    g_mutex_unlock(&segment->lock);
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = file_id(segment, path, index.end.offset, size_bytes);
    if (wanted)
        write_index_file(segment, &index, size_bytes, NRD_INDEX_AT_CLOSE);
    int r = complete ? 0 : nrd_index_file_remove(&id);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET), "cannot remove %s: %s", path,
                 g_strerror(-r));
    g_free(path);
    g_mutex_unlock(&segment->load_lock);
}
