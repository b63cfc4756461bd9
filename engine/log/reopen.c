/* Clearing poison, and finding what others have done to the folder: the log is closed and recovered in place, by the committer,
 * while readers go on (seed: Fsync failure, "the state clears only when the log is reopened and its files scanned again").
 *
 * The folder is listed again (relist.c). Where the log ends with the file that it has written, the boundary is the one in
 * memory: nothing above it was ever acknowledged or served, so it is cut at its known position, unless the open found records
 * there that may have been acknowledged and are hidden, or left what stands behind a gap (recovery.c). What lies below was
 * synced before; should the disk not have it after all, it becomes a gap, and its offsets are never used again: the next
 * segment begins behind them at once, and so says it to the next open. Where that is the only thing to say it and the segment
 * cannot be begun, the reopen fails, and poison stays. Until one succeeds hwm says it, if that can be written: what is lost
 * above the records counts as lost then, as after a close (recovery.c, note_lost). */
#include "engine/log/relist_private.h"

#include "engine/io/io.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/frame_cache.h"

#include <errno.h>

/* Cuts what a failed commit may have left and makes sure that the rest is read from the disk. */
static int cut_and_drop(NrdLog *log, NrdSegment *active, int fd, uint64_t *ret_size)
{
    bool hidden = nrd_load(&log->hwm) < nrd_load(&log->next_offset);
    bool stays = hidden || nrd_segment_has_gaps(active);
    uint64_t limit_pos = stays ? nrd_segment_size_bytes(active) : nrd_load(&log->hwm_pos);
    struct stat st;
    int r = nrd_io->fstat(fd, &st);
    if (r < 0)
        return r;
    uint64_t size_bytes = (uint64_t)st.st_size;
    if (size_bytes > limit_pos) {
        r = nrd_io->ftruncate(fd, (int64_t)limit_pos);
        if (r < 0)
            return r;
        size_bytes = limit_pos;
    }
    /* A crash before the sync is over leaves a tail that was never acknowledged, as after any crash. */
    r = nrd_log_sync_and_drop(log, fd);
    if (r < 0)
        return r;
    *ret_size = size_bytes;
    return 0;
}

/* *ret_untold: offsets were given out that no record stands for any more. */
static int recover_in_place(NrdLog *log, NrdSegment *active, bool *ret_untold)
{
    NrdScanWant want = { .base = nrd_segment_base(active), .end_offset = UINT64_MAX };
    uint64_t hwm = nrd_load(&log->hwm);
    NrdIndex *index = NULL;

    nrd_frame_cache_drop(active);
    /* one opened anew is told by its sync of any write-back failure that nobody was told of */
    nrd_segment_drop_fd(active);
    int r = nrd_segment_pin(active, &want.fd);
    if (r < 0)
        return r;
    r = cut_and_drop(log, active, want.fd, &want.size_bytes);
    if (r == 0)
        r = nrd_scan_segment(&want, nrd_segment_home_place(&log->home, NRD_NO_OFFSET), &index, NULL);
    if (r == 0 && index->end.offset < hwm) {
        nrd_index_add_gap(index, want.size_bytes, hwm);
        *ret_untold = true;
    }
    if (r == 0)
        r = nrd_log_adopt_active(log, active, want.fd, index, want.size_bytes, hwm);
    if (r == 0)
        nrd_segment_report_read(active, 0);
    nrd_segment_unpin(active);
    return r;
}

/* A segment that must not be added to is left at once. untold: until the next one is there, nothing on the disk says which
 * offsets are taken, and after a crash they would be given out again. */
static int leave_tail(NrdLog *log, bool untold)
{
    NrdSegment *active = nrd_log_active(log);

    if (active == NULL || !log->roll_needed || nrd_load(&log->hwm) != nrd_load(&log->next_offset) ||
        nrd_segment_end(active).offset == nrd_segment_base(active))
        return 0;
    int r = nrd_log_roll_active(log);
    if (r < 0 && untold)
        (void)!nrd_log_write_hwm(log); /* the records were synced, and read from the disk */
    if (r < 0)
        nrd_diag(untold ? NRD_LEVEL_ERROR : NRD_LEVEL_WARNING,
                 nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "cannot start the next segment of %s: %s; %s", log->home.dir, g_strerror(-r),
                 untold
                     ? "without it nothing in the folder says which offsets were given out: make that possible, room "
                       "on the disk perhaps, and write `reopen` to the partition's ctl again"
                     : "trying again before the next write");
    return untold ? r : 0;
}

/* *ret_untold: the end of the log says less than was given out, or may. */
static int recover(NrdLog *log, bool *ret_untold)
{
    NrdRelist relist = { .files = NULL };
    NrdSegment *active = nrd_log_active(log);
    NrdHwm hwm;
    bool same = false;

    int r = nrd_log_read_hwm(log, &hwm); /* what stands in its place would fail the next commit */
    if (r == 0)
        r = nrd_relist_list(log, &relist);
    if (r == 0)
        r = nrd_relist_same_tail(log, &relist, &same);
    if (r == 0 && !same)
        r = nrd_relist_find_tail(log, &relist);
    else if (r == 0 && active != NULL)
        g_array_set_size(relist.files, relist.files->len - 1);
    NrdSegment *tail = relist.tail != NULL ? relist.tail : active;
    if (r == 0 && tail != NULL)
        r = nrd_relist_find_sealed(log, &relist, nrd_segment_base(tail));
    if (r == 0 && relist.tail == NULL && active != NULL)
        r = recover_in_place(log, active, ret_untold);
    if (r == 0) {
        *ret_untold |= relist.tail != NULL;
        nrd_relist_install(log, &relist);
        log->hwm_emptied = false;
        log->named_ms = 0;
    }
    nrd_relist_clear(&relist);
    return r;
}

int nrd_log_reopen(NrdLog *log)
{
    bool untold = false;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (log->home.read_only)
        return -EROFS;
    g_clear_pointer(&log->why, g_free);
    int r = recover(log, &untold);
    if (r == 0)
        r = leave_tail(log, untold);
    if (r < 0 && log->why == NULL)
        log->why = g_strdup_printf("%s: %s", log->home.dir, g_strerror(-r));
    if (r < 0)
        return -EIO;
    __atomic_store_n(&log->commit_error, 0, __ATOMIC_RELEASE);
    g_mutex_lock(&log->lock);
    char *reason = g_steal_pointer(&log->poison_reason);
    log->poison_errno = 0;
    log->poison_by_others = false;
    __atomic_store_n(&log->poisoned, false, __ATOMIC_RELEASE);
    g_mutex_unlock(&log->lock);
    if (reason != NULL)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "reopened %s: writes are accepted again", log->home.dir);
    g_free(reason);
    return 0;
}
