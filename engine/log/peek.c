/* What a log left when it was closed cleanly; see log.h.
 *
 * Known when, and only when, an open would find the same without reading a frame:
 *   hwm holds a boundary; every sealed segment has a side file that fits its size and its successor's base; the newest
 *   one has the side file that a close leaves, which fits its size and ends at the boundary. So nothing was written
 *   since the close, and nothing is hidden.
 *   Or the newest segment is empty: then the boundary is its base, whatever a file says that is not above it.
 *   Or there is no segment.
 * And no side file is there without its segment. Everything else is left to an open.
 *
 * Trouble is what makes it worth an open before anybody uses the log: names, sizes and headers that contradict each other,
 * or tell of damage. What a crash leaves is none: hwm is empty then, and the newest side files may be missing or torn. */
#include "engine/log/log_private.h"

#include "engine/log/index/index_file.h"
#include "engine/log/segments/render_file.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>
#include <inttypes.h>

/* A folder that is being looked at. */
typedef struct Peek {
    int root_fd;
    const char *dir;
    NrdHwm hwm;
    GArray *files; /* NrdSegmentFile, in order of base */
    NrdLogStats stats;
    const NrdRendering *rendering; /* NULL: not wanted */
    uint64_t rendered_bytes;
    bool want_trouble; /* goes on behind what only an open can tell */
    bool trouble;
} Peek;

/* The sums of the segment of files[i] that ends before end_offset; -ENOENT when only an open can tell. */
static int read_end(Peek *peek, guint i, NrdIndexFileKind kind, uint64_t end_offset, NrdIndexEnd *ret_end)
{
    const NrdSegmentFile *file = &g_array_index(peek->files, NrdSegmentFile, i);
    g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".index", peek->dir, file->base);
    NrdIndexFileId id = { .root_fd = peek->root_fd,
                          .path = path,
                          .base = file->base,
                          .end_offset = end_offset,
                          .size_bytes = file->size_bytes,
                          .kind = kind };
    uint64_t n_gaps = 0, claimed;
    int r = nrd_index_file_read_end(&id, ret_end, &n_gaps);
    if (r == 0 && n_gaps > 0)
        r = -ENOENT; /* only an open can tell what is lost */
    else if (r == 0 || r != -ENOENT)
        return r;
    /* one that is whole and does not fit is another story than one that is missing */
    peek->trouble |= file->size_bytes == 0 || nrd_index_file_claim(peek->root_fd, path, file->base, &claimed) == 0;
    return r;
}

/* How long the segment is in the rendering; -ENOENT when only an open can tell. */
static int add_rendered(Peek *peek, const NrdSegmentFile *file, const NrdIndexEnd *end)
{
    g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".rendered", peek->dir, file->base);
    NrdRenderFileId id = { .root_fd = peek->root_fd,
                           .path = path,
                           .base = file->base,
                           .end_offset = end->offset,
                           .size_bytes = file->size_bytes,
                           .text_bytes = end->text_bytes,
                           .rendering = peek->rendering };
    NrdRenderMap map;
    int r = nrd_render_file_read(&id, &map);
    if (r < 0)
        return r;
    peek->rendered_bytes += map.bytes;
    nrd_render_map_drop_points(&map);
    return 0;
}

static void add_oldest(NrdLogStats *stats, const NrdSegmentFile *file, const NrdIndexEnd *end)
{
    stats->oldest_offset = file->base;
    stats->oldest_last_ms = end->commit_ms;
    stats->oldest_bytes = file->size_bytes;
    stats->oldest_file_ms = file->mtime_ms;
    if (end->commit_ms == 0 && file->size_bytes > 0)
        stats->oldest_last_ms = file->mtime_ms;
}

static int add(Peek *peek, guint i, const NrdIndexEnd *end)
{
    const NrdSegmentFile *file = &g_array_index(peek->files, NrdSegmentFile, i);
    NrdLogStats *stats = &peek->stats;

    stats->n_segments++;
    stats->size_bytes += file->size_bytes;
    stats->text_bytes += end->text_bytes;
    stats->last_commit_ms = MAX(stats->last_commit_ms, end->commit_ms);
    if (i == 0)
        add_oldest(stats, file, end);
    return peek->rendering != NULL && file->size_bytes > 0 ? add_rendered(peek, file, end) : 0;
}

/* The newest segment. -ENOENT as above. */
static int look_at_active(Peek *peek, guint i)
{
    const NrdSegmentFile *file = &g_array_index(peek->files, NrdSegmentFile, i);
    NrdIndexEnd end = { .offset = file->base };

    if (file->size_bytes == 0) {
        if (peek->hwm.clean && peek->hwm.value > file->base) {
            peek->trouble = true;
            return -ENOENT; /* records are lost: an open says so */
        }
    } else {
        peek->trouble |= peek->hwm.clean && peek->hwm.value < file->base;
        if (!peek->hwm.clean || peek->hwm.value < file->base)
            return -ENOENT;
        int r = read_end(peek, i, NRD_INDEX_AT_CLOSE, peek->hwm.value, &end);
        peek->trouble |= r == -ENOENT; /* a clean close leaves none where there is damage, or hidden records */
        if (r < 0)
            return r;
    }
    peek->stats.hwm = peek->stats.next_offset = end.offset;
    return add(peek, i, &end);
}

static int look_at_segments(Peek *peek)
{
    guint n = peek->files->len;
    int first_r = 0;

    if (n == 0) {
        peek->trouble |= peek->hwm.clean && peek->hwm.value > 0;
        return peek->trouble ? -ENOENT : 0;
    }
    for (guint i = 0; i + 1 < n; i++) {
        NrdIndexEnd end;
        uint64_t next = g_array_index(peek->files, NrdSegmentFile, i + 1).base;
        int r = read_end(peek, i, NRD_INDEX_OF_SEALED, next, &end);
        if (r == 0)
            r = add(peek, i, &end);
        if (r < 0 && (r != -ENOENT || !peek->want_trouble))
            return r;
        first_r = first_r < 0 ? first_r : r;
    }
    return first_r < 0 ? first_r : look_at_active(peek, n - 1);
}

/* Segments that somebody took away, leaving their side files. */
static int look_for_missing(Peek *peek)
{
    g_autoptr(GArray) missing = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    int r = nrd_segment_files_missing(peek->root_fd, peek->dir, peek->files, missing);

    peek->trouble |= missing->len > 0;
    return r;
}

/* *ret_known: the sums are right. */
static int look_at_folder(Peek *peek, bool *ret_known)
{
    g_autofree char *hwm_path = g_strdup_printf("%s/hwm", peek->dir);
    NrdSegmentOdd odd = { .name = NULL };

    peek->files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    int r = nrd_segment_files_list(peek->root_fd, peek->dir, peek->files, &odd);
    if (r == -ENOENT) { /* no folder: nothing */
        r = 0;
    } else if (r == 0) {
        r = nrd_hwm_read(peek->root_fd, hwm_path, &peek->hwm);
        if (r == -ELOOP || r == -EINVAL || r == -ENXIO) {
            peek->trouble = true; /* something else of that name: an open says so */
            r = -ENOENT;
        }
        peek->trouble |= odd.name != NULL && odd.error == 0; /* likewise */
        if (r == 0)
            r = look_for_missing(peek);
        if (r == 0)
            r = odd.name == NULL ? look_at_segments(peek) : odd.error < 0 ? odd.error : -ENOENT;
        if (r == 0 && peek->trouble)
            r = -ENOENT;
    }
    g_free(odd.name);
    g_array_unref(peek->files);
    if (r < 0 && r != -ENOENT)
        return r;
    *ret_known = r == 0;
    return 0;
}

int nrd_log_peek(int root_fd, const char *dir, NrdLogStats *ret_stats, bool *ret_known)
{
    Peek peek = { .root_fd = root_fd, .dir = dir };
    bool known = false;
    int r = look_at_folder(&peek, &known);
    if (r < 0)
        return r;
    *ret_known = known;
    if (known)
        *ret_stats = peek.stats;
    return 0;
}

int nrd_log_peek_rendered(int root_fd, const char *dir, const NrdRendering *rendering, NrdLogStats *ret_stats,
                          uint64_t *ret_bytes, bool *ret_known)
{
    Peek peek = { .root_fd = root_fd, .dir = dir, .rendering = rendering };
    bool known = false;
    int r = look_at_folder(&peek, &known);
    if (r < 0)
        return r;
    *ret_known = known;
    if (known) {
        *ret_stats = peek.stats;
        *ret_bytes = peek.rendered_bytes;
    }
    return 0;
}

int nrd_log_peek_trouble(int root_fd, const char *dir, bool *ret_trouble)
{
    Peek peek = { .root_fd = root_fd, .dir = dir, .want_trouble = true };
    bool known = false;
    int r = look_at_folder(&peek, &known);
    if (r == 0)
        *ret_trouble = peek.trouble;
    return r;
}
