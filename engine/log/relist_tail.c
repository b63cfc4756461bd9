/* The end of the log, as a reopen finds it: the file that was written to, or another one, or none. See relist.c. */
#include "engine/log/relist_private.h"

#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define LOOK_BYTES ((size_t)64 * 1024)

/* What a roll has left that did not succeed: nothing is in it, and the next roll takes it. */
static void leave_out_begun(NrdLog *log, NrdRelist *relist, NrdSegment *active)
{
    const NrdSegmentFile *last = nrd_relist_file_at(relist, relist->files->len - 1);

    if (last->base > nrd_segment_base(active) && last->base == nrd_load(&log->next_offset) && last->size_bytes == 0) {
        g_array_set_size(relist->files, relist->files->len - 1);
        log->roll_needed = true;
    }
}

static int has_data(int fd, uint64_t pos, uint64_t end, bool *ret_has)
{
    g_autofree uint8_t *buf = g_malloc(LOOK_BYTES);

    *ret_has = false;
    while (pos < end && !*ret_has) {
        size_t n = 0;
        int r = nrd_io_pread_full(fd, buf, (size_t)MIN((uint64_t)LOOK_BYTES, end - pos), (int64_t)pos, &n);
        if (r < 0)
            return r;
        if (n == 0)
            return 0;
        *ret_has = !nrd_all_zero(buf, n);
        pos += n;
    }
    return 0;
}

/* Whether the active segment holds, behind what was written to it, what somebody else has copied there. Zeros were written
 * ahead; when the disk has failed it may be what a commit could not take back. */
static int is_written_over(NrdLog *log, NrdSegment *active, uint64_t size_bytes, bool *ret_is)
{
    uint64_t end_pos = nrd_segment_size_bytes(active);
    bool disk_failed = nrd_log_is_poisoned(log) && !log->poison_by_others;
    int fd;

    *ret_is = false;
    if (disk_failed || size_bytes <= end_pos)
        return 0;
    int r = nrd_segment_pin(active, &fd);
    if (r < 0)
        return r;
    r = has_data(fd, end_pos, size_bytes, ret_is);
    nrd_segment_unpin(active);
    return r;
}

int nrd_relist_same_tail(NrdLog *log, NrdRelist *relist, bool *ret_same)
{
    NrdSegment *active = nrd_log_active(log);
    bool written_over = false;

    *ret_same = active == NULL && relist->files->len == 0;
    if (active == NULL || relist->files->len == 0)
        return 0;
    leave_out_begun(log, relist, active);
    if (relist->files->len == 0)
        return 0;
    const NrdSegmentFile *last = nrd_relist_file_at(relist, relist->files->len - 1);
    if (log->tail_is_others || last->base != nrd_segment_base(active) || !nrd_segment_is_file(active, &last->st))
        return 0;
    int r = is_written_over(log, active, last->size_bytes, &written_over);
    if (r < 0)
        return nrd_log_complain(log, "", r, NULL);
    *ret_same = !written_over;
    return 0;
}

/* ---- the end of the log, when it is another ---- */

/* The offsets below were given out, as far as anybody knows. */
static int find_floor(NrdLog *log, uint64_t tail, uint64_t *ret_floor)
{
    NrdHwm file;
    uint64_t floor = MAX(nrd_load(&log->next_offset), log->skip_to);
    int r = nrd_log_read_hwm(log, &file);

    if (r == 0 && file.clean && file.value > MAX(floor, tail) && nrd_log_can_be_lost(log, file.value - tail))
        floor = file.value;
    if (r == 0)
        *ret_floor = floor;
    return r;
}

/* The next record goes to the beginning of this segment, since none is in it, nor missing from it. So nothing else may be
 * there: somebody may want the bytes, or still be copying them. Zeros are nothing (zero_ahead.h): a crash before they are
 * cut leaves them to the next open, which cuts them. */
static int make_empty(NrdLog *log, NrdSegment *tail, const char *name, bool only_zeros)
{
    int fd;

    if (!only_zeros)
        return nrd_log_complain(log, name, -EIO,
                                "the next record would begin it, and what is in it is no record; move it away, or put "
                                "the segment there that belongs there, and write `reopen` to the partition's ctl");
    int r = nrd_segment_pin(tail, &fd);
    if (r == 0) {
        r = nrd_io->ftruncate(fd, 0);
        if (r == 0)
            r = nrd_io->fsync(fd);
        nrd_segment_unpin(tail);
    }
    return r < 0 ? nrd_log_complain(log, name, r, NULL) : 0;
}

/* Reads the newest segment, from the disk; *ret_index: its frames, and a gap up to what was given out. */
static int read_tail(NrdLog *log, NrdSegment *tail, NrdIndex **ret_index)
{
    NrdScanWant want = { -1, nrd_segment_base(tail), nrd_segment_size_bytes(tail), UINT64_MAX };
    NrdScanTail found;
    NrdIndex *index = NULL;
    uint64_t floor = 0;

    int r = nrd_segment_pin(tail, &want.fd);
    if (r == 0) {
        r = nrd_log_sync_and_drop(log, want.fd);
        if (r == 0)
            r = nrd_scan_segment(&want, nrd_segment_home_place(&log->home, NRD_NO_OFFSET), &index, &found);
        nrd_segment_unpin(tail);
    }
    g_autofree char *path = nrd_segment_path(tail);
    const char *name = strrchr(path, '/') + 1;
    if (r < 0 || found.misnamed) {
        nrd_index_free(index);
        return nrd_log_complain(log, name, r < 0 ? r : -EIO, r < 0 ? NULL : nrd_log_misnamed);
    }
    r = find_floor(log, index->end.offset, &floor);
    bool is_empty = r == 0 && MAX(index->end.offset, floor) == want.base;
    if (is_empty && want.size_bytes > 0)
        r = make_empty(log, tail, name, found.only_zeros);
    if (r < 0) {
        nrd_index_free(index);
        return r;
    }
    if (index->end.offset < floor)
        nrd_index_add_gap(index, want.size_bytes, floor);
    if (!is_empty)
        index->end.pos = want.size_bytes; /* what is left behind the last frame counts as read, as in a sealed one */
    *ret_index = index;
    return 0;
}

/* The reopen fails, and nothing in the folder says which offsets were given out: hwm does then, if that can be written, as
 * after a close. Not where the disk has failed: nobody has looked at it yet. */
static void tell_end(NrdLog *log)
{
    bool disk_failed = nrd_log_is_poisoned(log) && !log->poison_by_others;

    if (disk_failed || nrd_load(&log->hwm) != nrd_load(&log->next_offset))
        return;
    if (nrd_log_write_hwm(log) == 0)
        log->hwm_emptied = false;
}

/* The active segment's file is gone: an empty one stands for it, so that the next open, too, knows what is lost. */
static int make_tail(NrdLog *log, NrdSegment *old, NrdIndex **ret_index)
{
    uint64_t base = nrd_segment_base(old), floor = 0;
    g_autofree char *path = nrd_segment_path(old);

    int r = find_floor(log, base, &floor);
    if (r == 0) {
        r = nrd_log_create_file(log, path);
        if (r < 0)
            tell_end(log);
    }
    if (r < 0)
        return nrd_log_complain(log, strrchr(path, '/') + 1, r, NULL);
    *ret_index = nrd_index_new(base);
    if (floor > base)
        nrd_index_add_gap(*ret_index, 0, floor);
    return 0;
}

int nrd_relist_find_tail(NrdLog *log, NrdRelist *relist)
{
    NrdSegment *old = nrd_log_active(log);
    guint n = relist->files->len;
    NrdIndex *index = NULL;
    int r;

    if (n > 0 && (old == NULL || nrd_relist_file_at(relist, n - 1)->base >= nrd_segment_base(old))) {
        const NrdSegmentFile *file = nrd_relist_file_at(relist, n - 1);
        relist->tail = nrd_segment_new(&log->home, file->base, file->size_bytes);
        nrd_segment_set_file(relist->tail, &file->st);
        g_array_set_size(relist->files, n - 1);
        r = read_tail(log, relist->tail, &index);
    } else {
        relist->tail = nrd_segment_new(&log->home, nrd_segment_base(old), 0);
        r = make_tail(log, old, &index);
    }
    if (r < 0)
        return r;
    nrd_segment_report_gaps(relist->tail, index->gaps);
    nrd_segment_set_index(relist->tail, index, index->end.pos);
    return 0;
}
