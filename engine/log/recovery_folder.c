/* The folder as an open finds it: which segments there are, and what lies there beside them. */
#include "engine/log/log_private.h"

#include "engine/io/io.h"
#include "engine/log/segments/render_file.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>

int nrd_log_complain(NrdLog *log, const char *name, int error, const char *what)
{
    g_autofree char *path = *name != '\0' ? g_strdup_printf("%s/%s", log->home.dir, name) : g_strdup(log->home.dir);
    g_autofree char *kind = *name != '\0' ? nrd_io_foreign_kind(log->home.root_fd, path) : NULL;

    g_free(log->why);
    log->why = g_strdup_printf("%s cannot be used: %s", path,
                               kind != NULL   ? kind
                               : what != NULL ? what
                                              : g_strerror(-error));
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, NRD_NO_OFFSET), "%s", log->why);
    return error == -ENOMEM ? -ENOMEM : -EIO;
}

/* Notes segments that others removed. No failure of an open either. */
static void find_missing(NrdLog *log, const GArray *files)
{
    int r = nrd_segment_files_missing(log->home.root_fd, log->home.dir, files, log->missing);

    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, NRD_NO_OFFSET),
                 "cannot tell whether segments of %s are missing: %s", log->home.dir, g_strerror(-r));
}

/* Removes render files whose segments are gone. No failure of an open: they are of no consequence, and the next open finds
 * them again. */
static void remove_orphans(NrdLog *log, const GArray *files)
{
    g_autoptr(GArray) orphans = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int r = log->home.read_only
                ? 0
                : nrd_segment_files_orphans(log->home.root_fd, log->home.dir, ".rendered", files, orphans);

    for (guint i = 0; r == 0 && i < orphans->len; i++) {
        NrdSegment *gone = nrd_segment_new(&log->home, g_array_index(orphans, uint64_t, i), 0);
        g_autofree char *path = nrd_segment_render_path(gone);
        r = nrd_render_file_remove(log->home.root_fd, path);
        nrd_segment_unref(gone);
    }
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, NRD_NO_OFFSET),
                 "cannot tidy %s up of side files without a segment: %s", log->home.dir, g_strerror(-r));
}

int nrd_log_list_segments(NrdLog *log, GPtrArray *segments)
{
    GArray *files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    NrdSegmentOdd odd = { .name = NULL };

    int r = nrd_segment_files_list(log->home.root_fd, log->home.dir, files, &odd);
    if (r < 0)
        r = nrd_log_complain(log, "", r, NULL);
    else if (odd.name != NULL)
        r = nrd_log_complain(log, odd.name, odd.error, odd.what);
    for (guint i = 0; r == 0 && i < files->len; i++) {
        const NrdSegmentFile *file = &g_array_index(files, NrdSegmentFile, i);
        NrdSegment *segment = nrd_segment_new(&log->home, file->base, file->size_bytes);
        nrd_segment_set_file(segment, &file->st);
        g_ptr_array_add(segments, segment);
    }
    if (r == 0)
        remove_orphans(log, files);
    if (r == 0)
        find_missing(log, files);
    g_free(odd.name);
    g_array_unref(files);
    return r;
}
