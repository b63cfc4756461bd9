/* A partition's folder: which files there are, its segments one after the other, its high watermark, its frontier. */
#include "ctl/check_segment.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_numbered(const char *name, const char *suffix)
{
    return strspn(name, "0123456789") == 20 && strcmp(name + 20, suffix) == 0;
}

/* A file that a segment has beside it, which can be made again. */
static bool is_side_file(const char *name)
{
    return is_numbered(name, ".index") || is_numbered(name, ".rendered");
}

static bool has_segment(const GArray *files, const char *name)
{
    uint64_t base = g_ascii_strtoull(name, NULL, 10);
    for (guint i = 0; i < files->len; i++) {
        if (g_array_index(files, NrdSegmentFile, i).base == base)
            return true;
    }
    return false;
}

/* A side index is written beside its segment and removed before it, so it tells that somebody else removed that. One that
 * lies within the others' offsets adds nothing to the gap that is told there. */
static void tell_lone(NrdCheck *check, const char *dir, const char *name, const GArray *missing, const GArray *files)
{
    g_autofree char *path = g_strconcat(dir, "/", name, NULL);
    uint64_t base = g_ascii_strtoull(name, NULL, 10);
    uint64_t oldest = files->len > 0 ? g_array_index(files, NrdSegmentFile, 0).base : UINT64_MAX;
    uint64_t newest = files->len > 0 ? g_array_index(files, NrdSegmentFile, files->len - 1).base : 0;
    bool told = base > oldest && base < newest;
    for (guint i = 0; !told && g_str_has_suffix(name, ".index") && i < missing->len; i++) {
        const NrdGap *gap = &g_array_index(missing, NrdGap, i);
        uint64_t end = base < oldest ? MIN(gap->end_offset, oldest) : gap->end_offset;
        NrdSpot spot = { path, "missing", false, 0, 0, true, gap->offset, end };
        if (gap->pos != base)
            continue;
        nrd_check_tell(check, NRD_ERROR, &spot,
                       "its segment is gone, and was not deleted by the daemon: %" PRIu64 " record%s lost",
                       end - gap->offset, nrd_plural(end - gap->offset));
        return;
    }
    nrd_check_note(check, path, "stray", "a side file without its segment; nothing reads it");
}

static bool is_plain(const NrdCheck *check, const char *dir, const char *name)
{
    g_autofree char *path = g_strconcat(dir, "/", name, NULL);
    struct stat st;
    return nrd_io_stat(check->root_fd, path, &st) == 0 && S_ISREG(st.st_mode);
}

static void tell_odd_side_file(NrdCheck *check, const char *dir, const char *name)
{
    g_autofree char *path = g_strconcat(dir, "/", name, NULL);
    nrd_check_unreadable(check, path, NRD_OUT_SIDE_FILE, -EINVAL);
}

/* Side files without a segment, and files of no kind that this layout has. */
static void check_names(NrdCheck *check, const char *dir, const GArray *files)
{
    static const char *const known[] = { "hwm", "consumer.offset", "consumer.ahead", NULL };
    g_autoptr(GPtrArray) names = NULL;
    g_autoptr(GArray) missing = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    int rc = nrd_io_list_dir(check->root_fd, dir, &names);
    if (rc == 0)
        rc = nrd_segment_files_missing(check->root_fd, dir, files, missing);
    if (rc < 0)
        nrd_check_unreadable(check, dir, NRD_OUT_PARTITION, rc);
    for (guint i = 0; rc == 0 && i < names->len; i++) {
        const char *name = names->pdata[i];
        if (is_side_file(name) && !is_plain(check, dir, name))
            tell_odd_side_file(check, dir, name);
        else if (is_side_file(name) && !has_segment(files, name))
            tell_lone(check, dir, name, missing, files);
        else if (!is_side_file(name) && !is_numbered(name, ".log") && !g_strv_contains(known, name) &&
                 !nrd_check_is_cursor(name))
            nrd_check_stray(check, dir, name);
    }
}

/* As recovery takes it: nothing is rolled before it is committed, so what is below the newest segment is stale. */
static void raise_hwm(NrdCheck *check, const char *path, const GArray *files, NrdHwm *hwm)
{
    uint64_t newest = files->len > 0 ? g_array_index(files, NrdSegmentFile, files->len - 1).base : 0;
    if (!hwm->clean || hwm->value >= newest)
        return;
    nrd_check_note(check, path, "hwm",
                   "it says %" PRIu64 ", below the newest segment, which begins at %" PRIu64
                   ": it was set back, and a start takes that; nothing below is lost or hidden",
                   hwm->value, newest);
    hwm->value = newest;
}

/* Of another size it counts as empty: a stop that was cut short leaves a byte too many. */
static void tell_unclean(NrdCheck *check, const char *path, const GArray *files, const NrdHwm *hwm, uint64_t size)
{
    if (size == 8)
        nrd_check_error(check, path, "hwm", "it holds no offset; the end of the records counts as the boundary");
    else if (size > 0)
        nrd_check_note(check, path, "hwm",
                       "of %" PRIu64 " byte%s, which counts as empty: the log was not closed cleanly, or somebody "
                       "changed it; the records tell where it ends",
                       size, nrd_plural(size));
    else if (files->len > 0)
        nrd_check_note(check, path, "hwm", "%s: the log was not closed cleanly; the records tell where it ends",
                       hwm->exists ? "empty" : "missing");
}

static void check_hwm(NrdCheck *check, const char *dir, const GArray *files, NrdHwm *ret_hwm)
{
    g_autofree char *path = g_strconcat(dir, "/hwm", NULL);
    struct stat st = { .st_size = 0 };
    NrdHwm hwm = { .exists = false };
    int rc = nrd_hwm_read(check->root_fd, path, &hwm);
    if (rc == 0 && hwm.exists)
        rc = nrd_io_stat(check->root_fd, path, &st);
    if (rc < 0)
        nrd_check_unreadable(check, path, NRD_OUT_PARTITION, rc);
    else if (!hwm.clean)
        tell_unclean(check, path, files, &hwm, (uint64_t)st.st_size);
    else
        raise_hwm(check, path, files, &hwm);
    *ret_hwm = hwm;
}

/* Returns where the partition ends; UINT64_MAX when that cannot be told. */
static uint64_t check_segments(NrdCheck *check, const char *dir, const GArray *files, NrdHwm hwm)
{
    int64_t last_ms = INT64_MIN;
    uint64_t boundary = hwm.clean ? hwm.value : 0;
    for (guint i = 0; i < files->len && nrd_check_going(check); i++) {
        const NrdSegmentFile *file = &g_array_index(files, NrdSegmentFile, i);
        NrdSegmentCheck segment = { .check = check, .dir = dir, .file = file, .hwm = hwm, .last_ms = &last_ms };
        segment.end_offset = i + 1 < files->len ? g_array_index(files, NrdSegmentFile, i + 1).base : UINT64_MAX;
        boundary = nrd_check_segment(&segment) ? segment.boundary : UINT64_MAX;
    }
    if (files->len == 0 && hwm.clean && hwm.value > 0) {
        NrdSpot spot = { .path = dir, .kind = "frame", .has_offsets = true, .offset = 0, .end_offset = hwm.value };
        nrd_check_tell(check, NRD_ERROR, &spot, "there is no segment, but hwm says that records were committed");
    }
    return boundary;
}

static void check_cursors(NrdCheck *check, const char *dir, uint64_t end_offset)
{
    g_autoptr(GPtrArray) names = NULL;
    if (nrd_io_list_dir(check->root_fd, dir, &names) < 0)
        return; /* has been told */
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *path = g_strconcat(dir, "/", names->pdata[i], NULL);
        if (nrd_check_is_cursor(names->pdata[i]))
            nrd_check_cursor(check, path, end_offset);
    }
}

void nrd_check_partition(NrdCheck *check, const char *dir)
{
    g_autoptr(GArray) files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    NrdSegmentOdd odd = { .name = NULL };
    NrdHwm hwm;
    check->n_partitions++;
    int rc = nrd_segment_files_list(check->root_fd, dir, files, &odd);
    if (rc < 0) {
        nrd_check_unreadable(check, dir, NRD_OUT_PARTITION, rc);
        return;
    }
    if (odd.name) {
        g_autofree char *path = g_strconcat(dir, "/", odd.name, NULL);
        if (odd.what && is_plain(check, dir, odd.name))
            nrd_check_error(check, path, "segment", "%s: " NRD_OUT_PARTITION, odd.what);
        else
            nrd_check_unreadable(check, path, NRD_OUT_PARTITION, odd.error < 0 ? odd.error : -EINVAL);
    }
    g_free(odd.name);
    check_names(check, dir, files);
    check_hwm(check, dir, files, &hwm);
    uint64_t end_offset = check_segments(check, dir, files, hwm);
    if (end_offset != UINT64_MAX && nrd_check_going(check)) {
        nrd_check_frontier(check, dir, end_offset);
        check_cursors(check, dir, end_offset);
    }
}
