/* The commit, and what happens when it fails; by the committer.
 *
 *   1 stamp commit times, raised to the newest the log has seen
 *   2 write the frames behind the last committed byte of the active segment, and zeros behind them (zero_ahead.h)
 *   3 fdatasync, once
 *   4 read back, compare headers, check CRCs
 *   5 look whether the file still has its name: what is written to one that was removed is gone with the process
 *   6 the first time since the open: empty the hwm file
 *   7 advance the high watermark in memory
 *   8 roll, when the segment is full
 *
 * A crash before 3 is over leaves nothing, a torn tail (cut by the next open) or whole frames that nobody was promised.
 * A crash between 3 and 7 leaves whole frames above the old boundary: duplicates in waiting, never a loss. From 7 on
 * the empty hwm file makes the next open take the boundary from the records.
 * A failure before 7 cuts the segment back to where it was, so that a retry lands one copy at the same offsets; a
 * failed sync poisons the log besides, because no later sync can tell what became of the pages (seed: Commit failure,
 * Fsync failure). */
#include "engine/log/commit_private.h"

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/io/io.h"
#include "engine/log/segments/segment_age.h"
#include "engine/log/zero_ahead.h"

#include <errno.h>
#include <inttypes.h>

#define FAR_AHEAD_MS ((int64_t)60 * 1000)
#define NAME_CHECK_MS ((int64_t)1000)

/* The caller's errors: what it can tell a producer. Anything else is an I/O error to it. */
static int commit_errno(int error)
{
    switch (error) {
    case 0:
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG:
    case -EMSGSIZE:
        return error;
    default:
        return -EIO;
    }
}

/* An error that says that the file is not there any more is final. */
static void note_taken_away(NrdLog *log, NrdSegment *active, int error)
{
    if (nrd_error_is_taken_away(error))
        nrd_log_poison_taken_away(log, active, error);
}

/* Others may remove the file, or move it or its folder away, and a sync of it still succeeds. Whether it has any name is
 * seen at every commit, for a fraction of a microsecond; whether it has its own costs ten times as much and is looked at
 * once in a second: what got into a file that was moved meanwhile is there still. */
static int check_place(const NrdCommit *c)
{
    NrdLog *log = c->log;
    bool due = c->now_ms - log->named_ms >= NAME_CHECK_MS || c->now_ms < log->named_ms;
    bool looked = false;
    int r = nrd_segment_check_place(c->active, c->fd, due ? &looked : NULL);

    note_taken_away(log, c->active, r);
    if (r == 0 && looked)
        log->named_ms = c->now_ms;
    return r;
}

/* The descriptor may have been closed since the last commit, and opened again by name. What is somebody else's file by now is
 * left as it is. */
static int pin_active(NrdCommit *c)
{
    int r = nrd_segment_pin(c->active, &c->fd);
    if (r == 0) {
        r = nrd_segment_check_place(c->active, c->fd, NULL);
        if (r < 0)
            nrd_segment_unpin(c->active);
    }
    note_taken_away(c->log, c->active, r);
    return r;
}

/* Before the first advance since the open the file must stop telling the old boundary. */
static int empty_hwm(NrdLog *log)
{
    if (log->hwm_emptied)
        return 0;
    int r = nrd_hwm_empty(log->home.root_fd, log->hwm_path, log->hwm_empty_failed);
    log->hwm_empty_failed = r < 0;
    log->hwm_emptied = r == 0;
    if (r < 0)
        (void)nrd_log_poison_foreign(log, log->hwm_path, r); /* trying again is of no use then */
    return r;
}

/* Makes the frames visible. */
static void advance(NrdCommit *c)
{
    NrdLog *log = c->log;
    uint64_t next = c->offset;

    g_mutex_lock(&log->lock);
    for (guint i = 0; i < c->written->len; i++) {
        const NrdWritten *w = &g_array_index(c->written, NrdWritten, i);
        nrd_segment_add_frame(c->active, NRD_FRAME_HEADER_BYTES + w->stored_bytes, w->n_records, w->text_bytes,
                              c->commit_ms);
        next += w->n_records;
    }
    NrdIndexEnd end = nrd_segment_end(c->active);
    log->hidden_text = 0;
    nrd_store(&log->next_offset, next);
    nrd_store(&log->hwm, next);
    __atomic_store_n(&log->newest_ms, c->commit_ms, __ATOMIC_RELEASE);
    g_mutex_unlock(&log->lock);
    nrd_store(&log->hwm_pos, end.pos);
    nrd_segment_set_file_ms(c->active, c->now_ms);
    nrd_counter_add(NRD_COUNTER_COMMITS, 1);
    nrd_counter_add(NRD_COUNTER_RECORDS, next - c->offset);
}

/* Leaves nothing of a failed commit behind. */
static void discard(NrdCommit *c, bool sync_failed)
{
    int r = nrd_io->ftruncate(c->fd, (int64_t)c->pos); /* zeros ahead go as well */
    if (r == 0)
        r = nrd_io->fdatasync(c->fd);
    nrd_zero_ahead_forget(c->log);
    /* A crash before the cut is durable leaves frames above the boundary that nobody was promised: duplicates in
     * waiting at worst. When it cannot be made durable no later append may follow it. */
    if (r < 0 && !sync_failed)
        nrd_log_poison(c->log, r, "cutting back a failed commit");
}

/* Steps 2 to 7, with the discard. */
static int run(NrdCommit *c, GPtrArray *plans, const NrdLogSettings *settings)
{
    int r = nrd_commit_write_frames(c, plans, settings);
    if (r < 0) {
        discard(c, false);
        return r;
    }
    r = nrd_io->fdatasync(c->fd);
    if (r < 0) {
        nrd_log_poison(c->log, r, "fdatasync");
        discard(c, true);
        return -EIO;
    }
    r = nrd_commit_verify_frames(c);
    if (r == 0)
        r = check_place(c);
    if (r < 0) {
        discard(c, false);
        return -EIO;
    }
    r = empty_hwm(c->log);
    if (r < 0) {
        discard(c, false);
        return r;
    }
    advance(c);
    nrd_commit_fill_cache(c);
    return 0;
}

/* One line when commits begin to fail, or fail differently; not one for each retry. */
static void report(NrdLog *log, int error)
{
    if (error < 0)
        nrd_counter_add(NRD_COUNTER_COMMIT_FAILED, 1);
    if (error == log->commit_error || nrd_log_is_poisoned(log))
        return; /* poison has its own line */
    NrdPlace place = nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->next_offset));
    if (error < 0)
        nrd_diag(NRD_LEVEL_ERROR, place, "commit failed: %s; nothing of it is left", g_strerror(-error));
    else
        nrd_diag(NRD_LEVEL_NOTICE, place, "commits succeed again");
    __atomic_store_n(&log->commit_error, error, __ATOMIC_RELEASE);
}

/* Commit times never decrease along a partition: once the clock was ahead, all that follows carries the time that it
 * showed then. Told once for each open; who waits for the age of records (a child with a delay, retention) waits as
 * long. */
static void tell_late_clock(NrdLog *log, int64_t now_ms, int64_t commit_ms)
{
    if (commit_ms - now_ms < FAR_AHEAD_MS || log->told_late_clock)
        return;
    log->told_late_clock = true;
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->next_offset)),
             "the clock is %" PRId64
             " s behind the newest record's commit time: records get that time until it has come, "
             "and are as much later due for a child with a delay",
             (commit_ms - now_ms) / 1000);
}

static int commit_batches(NrdLog *log, NrdRecordBatch *const *batches, size_t n_batches, NrdLogSettings *settings)
{
    NrdCommit c = { .log = log };
    int r = nrd_log_prepare_active(log);
    if (r < 0)
        return r;
    c.active = nrd_log_active(log);
    r = pin_active(&c);
    if (r < 0)
        return r;
    c.pos = nrd_segment_size_bytes(c.active);
    c.offset = nrd_load(&log->next_offset);
    c.now_ms = nrd_clock_wall_ms();
    c.commit_ms = MAX(c.now_ms, __atomic_load_n(&log->newest_ms, __ATOMIC_ACQUIRE));
    tell_late_clock(log, c.now_ms, c.commit_ms);
    for (size_t i = 0; i < n_batches; i++)
        nrd_record_batch_stamp(batches[i], c.commit_ms);
    c.keep = __atomic_exchange_n(&log->was_read, false, __ATOMIC_ACQ_REL);
    c.written = nrd_commit_written_new();
    GPtrArray *plans = nrd_frame_plan(batches, n_batches);
    nrd_zero_ahead_enter();
    r = run(&c, plans, settings);
    nrd_zero_ahead_leave();
    g_ptr_array_unref(plans);
    g_array_unref(c.written);
    nrd_segment_unpin(c.active);
    return r;
}

/* The commit is durable and visible: a roll that fails now is tried again before the next write. */
static void roll_if_full(NrdLog *log, uint64_t segment_bytes)
{
    if (nrd_segment_size_bytes(nrd_log_active(log)) < segment_bytes)
        return;
    int r = nrd_log_roll_active(log);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "cannot start the next segment of %s: %s; trying again before the next write", log->home.dir,
                 g_strerror(-r));
}

/* A commit without records: what the open found above the boundary was synced and checked then, and the next commit would
 * expose it in any case. */
int nrd_log_expose(NrdLog *log)
{
    NrdLogSettings settings = { 0 };
    int r = nrd_log_check_writable(log);
    if (r < 0 || nrd_load(&log->hwm) == nrd_load(&log->next_offset))
        return r;
    r = commit_errno(commit_batches(log, NULL, 0, &settings));
    report(log, r);
    return r;
}

int nrd_log_commit(NrdLog *log, NrdRecordBatch *const *batches, size_t n_batches, uint64_t *ret_first)
{
    uint64_t n_records = 0;
    NrdLogSettings settings;

    int r = nrd_log_check_writable(log);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n_batches; i++)
        n_records += batches[i]->n_records;
    if (n_records >= INT64_MAX - MAX(nrd_load(&log->next_offset), log->skip_to))
        return -EFBIG; /* offsets end at 2^63-1 */
    g_mutex_lock(&log->lock);
    settings = log->settings;
    g_mutex_unlock(&log->lock);
    /* A segment with a gap gets no more records (recovery.c), and one with a hidden tail is not left: this commit would show
     * the tail in any case, so that goes first. */
    NrdSegment *active = nrd_log_active(log);
    if (n_records > 0 && (log->roll_needed || (active != NULL && nrd_segment_has_gaps(active))))
        r = nrd_log_expose(log);
    if (n_records > 0 && r == 0) {
        r = commit_errno(commit_batches(log, batches, n_batches, &settings));
        report(log, r);
    }
    if (r < 0)
        return r;
    uint64_t offset = nrd_load(&log->next_offset) - n_records;
    for (size_t i = 0; i < n_batches; i++) {
        ret_first[i] = offset;
        offset += batches[i]->n_records;
        if (!batches[i]->copies)
            nrd_counter_add(NRD_COUNTER_PRODUCED, batches[i]->n_records);
    }
    if (n_records > 0)
        roll_if_full(log, settings.segment_bytes);
    return 0;
}
