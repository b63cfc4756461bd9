/* What an open finds, and what it makes of it.
 *
 * Only the newest segment is read; the range of a sealed one ends at its successor's base (seed: Recovery). The
 * boundary (high watermark) H:
 *
 *   hwm file      records            outcome
 *   8 bytes       tail >= H          H; whole frames above stay hidden; a torn tail is cut
 *   8 bytes       tail < H, and the  those bytes were committed and have rotted: not cut; [tail, H) is a gap for good,
 *                 bytes behind can   and the next write goes to a new segment
 *                 explain H
 *   8 bytes       tail < H, else     H = tail (the seed's min(file, tail)); a torn tail is cut. The offsets up to the
 *                                    file's were given out all the same: the next record gets that one, in a segment
 *                                    of its own, unless so many cannot have been lost (then the file is rubbish)
 *   otherwise     any                H = tail, looked up on the disk and not in the page cache; a torn tail is cut
 *
 * Zeros behind the last frame were written ahead of it (zero_ahead.h) and are cut in silence; but with a clean H above
 * the tail they are what became of committed bytes, and explain it like any other. A piece of a frame with zeros behind
 * it is a torn tail like any other.
 *
 * A segment in which there is a gap is left as it is, its tail among it: where a gap ends was judged by what follows it, up
 * to the end of the file. With more bytes behind, or fewer, the next open might judge another way, and lose what this one
 * has served. So nothing is cut from it, nothing is added, and the next record begins a new segment.
 *
 * H below the newest segment's base is raised to it: nothing is rolled before it is committed, so such a file is stale.
 * Opening writes nothing but the cut and missing side files, and removes .rendered files that have no segment (an .index
 * without one tells of a loss: missing.c). All of it is the same on the next open: a cut leaves a file of whole frames, and
 * nothing else is cut. */
#include "engine/log/log_private.h"

#include "engine/io/io.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/segment_age.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* After a failed write-back the kernel's pages are clean and right while the disk's are not, and neither a sync nor a
 * read through the cache tells (FAULTS: "the page cache lies"). Syncing writes what is still dirty; then every page of
 * the file is clean and can be dropped; what is read afterwards comes from the disk. Enough, because whatever the scan
 * then accepts was read from the disk after the last write to it; what it does not accept is no record. */
int nrd_log_sync_and_drop(NrdLog *log, int fd)
{
    if (!log->home.read_only) {
        int r = nrd_io->fdatasync(fd);
        if (r < 0)
            return r;
    }
    return nrd_io->drop_cache(fd);
}

/* How much of the active segment lies below hwm when whole frames above it are hidden. */
static int measure_visible(NrdLog *log, NrdSegment *active, int fd, uint64_t size_bytes, uint64_t hwm,
                           NrdIndexEnd *ret_end)
{
    NrdScanWant want = { fd, nrd_segment_base(active), size_bytes, hwm };
    NrdIndex *index = NULL;
    int r = nrd_scan_segment(&want, nrd_segment_home_place(&log->home, NRD_NO_OFFSET), &index, NULL);
    if (r < 0)
        return r;
    *ret_end = index->end;
    nrd_index_free(index);
    return 0;
}

int nrd_log_adopt_active(NrdLog *log, NrdSegment *active, int fd, NrdIndex *index, uint64_t size_bytes, uint64_t hwm)
{
    NrdIndexEnd visible = index->end;

    if (hwm < index->end.offset) {
        int r = measure_visible(log, active, fd, size_bytes, hwm, &visible);
        if (r < 0) {
            nrd_index_free(index);
            return r;
        }
    }
    uint64_t hidden_text = index->end.text_bytes - visible.text_bytes;
    /* A gap: nothing is added to the segment. What is left behind its last frame counts as read, as in a sealed one. No
     * segment follows one in which nothing ever was: both would have one name. */
    log->roll_needed = (log->roll_needed || index->gaps->len > 0) && index->end.offset > nrd_segment_base(active);
    index->end.pos = size_bytes;
    nrd_segment_report_gaps(active, index->gaps);
    nrd_store(&log->hwm_pos, visible.pos);
    log->zero_end = 0;
    nrd_store(&log->next_offset, index->end.offset);
    g_mutex_lock(&log->lock);
    nrd_segment_set_index(active, index, size_bytes);
    log->hidden_text = hidden_text;
    nrd_store(&log->hwm, hwm);
    g_mutex_unlock(&log->lock);
    return 0;
}

/* As many as fit into a segment, in the smallest records. */
bool nrd_log_can_be_lost(const NrdLog *log, uint64_t n_records)
{
    return n_records <= MAX(log->settings.segment_bytes, (uint64_t)64 * NRD_MIB) / NRD_RECORD_MIN_BYTES;
}

/* A clean hwm tells more than the records do: somebody cut or lost the file's end, or the disk lied about a sync. The
 * records are gone whatever we do (seed: min(file, tail)); it must not pass in silence, and their offsets are not given
 * out again: somebody may remember what they stood for. */
static void note_lost(NrdLog *log, uint64_t tail, uint64_t committed)
{
    if (nrd_log_can_be_lost(log, committed - tail))
        log->skip_to = committed;
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)tail),
             "%s/hwm says that offsets below %" PRIu64 " were committed, but the records end at %" PRIu64
             ": what is between is lost, or hwm is damaged",
             log->home.dir, committed, tail);
}

/* The side file of a segment that is gone says the same, with a checksum. */
static void note_gone(NrdLog *log, uint64_t tail, uint64_t end)
{
    bool told = log->skip_to > tail;

    log->skip_to = MAX(log->skip_to, end);
    if (told)
        return;
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)tail),
             "records %" PRIu64 " to %" PRIu64
             " are missing: their segment is gone from %s, and was not deleted by the daemon",
             tail, end - 1, log->home.dir);
}

/* With every segment gone nothing tells how far back the records went, but for side files. */
static void begin_at(NrdLog *log, uint64_t offset)
{
    nrd_store(&log->oldest, offset);
    nrd_store(&log->next_offset, offset);
    nrd_store(&log->hwm, offset);
}

/* What lies before and behind the segments that there are. */
static void judge_ends(NrdLog *log, bool has_segments, const NrdHwm *file)
{
    uint64_t first, end;

    nrd_log_judge_missing(log, has_segments, file->clean ? file->value : 0, &first, &end);
    if (!has_segments && end > 0)
        begin_at(log, file->clean ? MIN(first, file->value) : first);
    uint64_t tail = nrd_load(&log->next_offset);
    if (!has_segments && file->clean && file->value > tail)
        note_lost(log, tail, file->value);
    if (end > tail)
        note_gone(log, tail, end);
}

/* A close leaves nothing above the boundary that it writes, but for what a failed commit could not take back. So hwm may be
 * damaged, and hide what was committed; the next commit would bring that back. */
static void note_hidden(NrdLog *log, uint64_t hwm, uint64_t tail)
{
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)hwm),
             "records from %" PRIu64 " up to %" PRIu64
             " are not served, since %s/hwm ends before them: a failed commit has left "
             "them, or hwm is damaged (`naradctl check` with the daemon stopped tells)",
             hwm, tail - 1, log->home.dir);
}

static void report_torn(NrdLog *log, NrdSegment *active, const NrdIndexEnd *end, uint64_t size_bytes, const char *done)
{
    nrd_counter_add(NRD_COUNTER_TORN_TAILS, 1);
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)end->offset),
             "torn tail of %" PRIu64 " byte%s in segment %020" PRIu64 " %s", size_bytes - end->pos,
             nrd_plural(size_bytes - end->pos), nrd_segment_base(active), done);
}

/* Cuts what is behind the last good frame; not behind a gap, which was judged by it. Takes and gives the segment's size. */
static int settle_tail(NrdLog *log, NrdSegment *active, int fd, const NrdIndex *index, const NrdScanTail *tail,
                       uint64_t *size_bytes)
{
    bool stays = index->gaps->len > 0;
    int r = 0;

    if (!tail->only_zeros)
        report_torn(log, active, &index->end, *size_bytes,
                    stays                 ? "left where it is, for there is damage before it"
                    : log->home.read_only ? "hidden"
                                          : "cut");
    if (!stays && !log->home.read_only)
        r = nrd_io->ftruncate(fd, (int64_t)index->end.pos);
    /* A crash before this is over leaves the torn tail, or a part of it: the next open cuts it again. After it the next
     * frame cannot be shadowed by what stood here; and a tail that stays is the one that was judged. */
    if (r == 0 && !log->home.read_only)
        r = nrd_io->fsync(fd);
    if (r == 0 && !stays)
        *size_bytes = index->end.pos;
    return r;
}

/* Decides about the boundary and the tail; takes the index over. */
static int settle_active(NrdLog *log, NrdSegment *active, int fd, NrdIndex *index, const NrdScanTail *tail,
                         const NrdHwm *file)
{
    uint64_t size_bytes = nrd_segment_size_bytes(active);
    uint64_t hwm = index->end.offset;
    bool rotten = false;

    if (file->clean && file->value < hwm) {
        hwm = MAX(file->value, nrd_segment_base(active));
        if (hwm < index->end.offset) {
            note_hidden(log, hwm, index->end.offset);
            log->hidden_end = index->end.offset;
        }
    } else if (file->clean && file->value > hwm && tail->torn && file->value - hwm <= tail->max_n_lost) {
        rotten = true;
        hwm = file->value;
        nrd_index_add_gap(index, size_bytes, hwm);
        log->roll_needed = true;
    }
    if (file->clean && file->value > hwm)
        note_lost(log, hwm, file->value);
    if (tail->torn && !rotten) {
        int r = settle_tail(log, active, fd, index, tail, &size_bytes);
        if (r < 0) {
            nrd_index_free(index);
            return r;
        }
    }
    return nrd_log_adopt_active(log, active, fd, index, size_bytes, hwm);
}

/* Whole frames, but none that begins where the name says: another segment's file, or a name that somebody changed. As a
 * torn tail they would be cut; they may be the only copy. */
const char nrd_log_misnamed[] =
    "it holds frames of other offsets than its name says; give it its name back or move it away";

/* Scans the active segment, from the disk when what is found there has not been proven: without a clean hwm, and where it
 * hides records, since the next commit will expose them. */
static int scan_active(NrdLog *log, const NrdScanWant *want, NrdHwm *file, NrdIndex **ret_index, NrdScanTail *ret_tail)
{
    NrdPlace place = nrd_segment_home_place(&log->home, NRD_NO_OFFSET);
    bool proven = !file->clean;
    NrdIndex *index = NULL;

    int r = proven ? nrd_log_sync_and_drop(log, want->fd) : 0;
    if (r == 0)
        r = nrd_scan_segment(want, place, &index, ret_tail);
    /* Eight bytes without a checksum: what the records do not bear out is read again before anything is done about it. */
    if (r == 0 && file->clean && file->value != index->end.offset)
        r = nrd_hwm_read_again(log->home.root_fd, log->hwm_path, file);
    if (r == 0 && !proven && (!file->clean || file->value < index->end.offset)) {
        nrd_index_free(index);
        index = NULL;
        r = nrd_log_sync_and_drop(log, want->fd);
        if (r == 0)
            r = nrd_scan_segment(want, place, &index, ret_tail);
    }
    if (r < 0) {
        nrd_index_free(index);
        return r;
    }
    *ret_index = index;
    return 0;
}

/* *ret_what: the failure in words, when errno has none. */
static int recover_active(NrdLog *log, NrdSegment *active, NrdHwm *file, const char **ret_what)
{
    NrdScanWant want = { -1, nrd_segment_base(active), nrd_segment_size_bytes(active), UINT64_MAX };
    NrdScanTail tail;
    NrdIndex *index = NULL;

    int r = nrd_segment_pin(active, &want.fd);
    if (r < 0)
        return r;
    r = scan_active(log, &want, file, &index, &tail);
    if (r == 0 && tail.misnamed) {
        nrd_index_free(index);
        *ret_what = nrd_log_misnamed;
        r = -EIO;
    } else if (r == 0) {
        r = settle_active(log, active, want.fd, index, &tail, file);
    }
    nrd_segment_unpin(active);
    return r;
}

/* The newest commit time seen: the floor of the next one, and it goes on where the last process stopped. */
void nrd_log_learn_newest(NrdLog *log)
{
    int64_t newest = __atomic_load_n(&log->newest_ms, __ATOMIC_ACQUIRE);

    for (guint i = 0; i < log->list->n; i++)
        newest = MAX(newest, nrd_segment_end(log->list->items[i]).commit_ms);
    __atomic_store_n(&log->newest_ms, newest, __ATOMIC_RELEASE);
}

int nrd_log_read_hwm(NrdLog *log, NrdHwm *ret_hwm)
{
    NrdHwm file;
    int r = nrd_hwm_read(log->home.root_fd, log->hwm_path, &file);
    if (r == 0 && file.exists && !file.clean) /* or it was, and was not read as it is */
        r = nrd_hwm_read_again(log->home.root_fd, log->hwm_path, &file);
    if (r < 0)
        return nrd_log_complain(log, "hwm", r, NULL);
    *ret_hwm = file;
    return 0;
}

int nrd_log_recover(NrdLog *log)
{
    GPtrArray *segments = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_segment_unref);
    NrdHwm file;

    int r = nrd_log_read_hwm(log, &file);
    if (r == 0)
        r = nrd_log_list_segments(log, segments);
    for (guint i = 0; r == 0 && i + 1 < segments->len; i++)
        nrd_segment_open_sealed(segments->pdata[i], nrd_segment_base(segments->pdata[i + 1]));
    if (r == 0 && segments->len > 0) {
        NrdSegment *active = segments->pdata[segments->len - 1];
        const char *what = NULL;
        r = recover_active(log, active, &file, &what);
        if (r < 0) {
            char *path = nrd_segment_path(active);
            r = nrd_log_complain(log, strrchr(path, '/') + 1, r, what);
            g_free(path);
        }
        nrd_store(&log->oldest, nrd_segment_base(segments->pdata[0]));
    }
    if (r == 0) {
        judge_ends(log, segments->len > 0, &file);
        nrd_segment_list_unref(log->list);
        log->list = nrd_segment_list_new((NrdSegment *const *)segments->pdata, segments->len);
        nrd_log_learn_newest(log);
    }
    g_ptr_array_unref(segments);
    return r;
}
