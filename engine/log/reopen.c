/* Clearing poison: the log is closed and recovered in place, by the committer, while readers go on (seed: Fsync
 * failure, "the state clears only when the log is reopened and its files scanned again").
 *
 * The boundary is the one in memory: nothing above it was ever acknowledged or served, so it is cut at its known
 * position; but for what an open has left behind a gap (recovery.c), which stays. What lies below was synced before; should the disk not have it after all, it becomes a gap, and its offsets
 * are never used again. */
#include "engine/log/log_private.h"

#include "engine/io/io.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/frame_cache.h"

#include <errno.h>

/* Cuts what is above the boundary and makes sure that the rest is read from the disk. */
static int cut_and_drop(NrdLog *log, NrdSegment *active, int fd, uint64_t *ret_size)
{
    struct stat st;
    int r = nrd_io->fstat(fd, &st);
    if (r < 0)
        return r;
    uint64_t size_bytes = (uint64_t)st.st_size;
    uint64_t end_pos = nrd_segment_has_gaps(active) ? nrd_segment_size_bytes(active) : log->hwm_pos;
    if (size_bytes > end_pos) {
        r = nrd_io->ftruncate(fd, (int64_t)end_pos);
        if (r < 0)
            return r;
        size_bytes = end_pos;
    }
    /* A crash before the sync is over leaves a tail that was never acknowledged, as after any crash. */
    r = nrd_log_sync_and_drop(log, fd);
    if (r < 0)
        return r;
    *ret_size = size_bytes;
    return 0;
}

static int recover_in_place(NrdLog *log, NrdSegment *active)
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
        log->roll_needed = true;
    }
    if (r == 0)
        r = nrd_log_adopt_active(log, active, want.fd, index, want.size_bytes, hwm);
    nrd_segment_unpin(active);
    return r;
}

int nrd_log_reopen(NrdLog *log)
{
    NrdSegment *active = nrd_log_active(log);
    int r = 0;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (log->home.read_only)
        return -EROFS;
    if (active != NULL)
        r = recover_in_place(log, active);
    if (r < 0) {
        nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "cannot reopen %s: %s", log->home.dir, g_strerror(-r));
        return -EIO;
    }
    log->hwm_emptied = false;
    __atomic_store_n(&log->commit_error, 0, __ATOMIC_RELEASE);
    g_mutex_lock(&log->lock);
    char *reason = g_steal_pointer(&log->poison_reason);
    log->poison_errno = 0;
    __atomic_store_n(&log->poisoned, false, __ATOMIC_RELEASE);
    g_mutex_unlock(&log->lock);
    if (reason != NULL)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "reopened %s: writes are accepted again", log->home.dir);
    g_free(reason);
    return 0;
}
