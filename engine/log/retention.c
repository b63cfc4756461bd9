/* Retention: whole sealed segments go, oldest first (seed: Retention).
 *
 * In two steps. Detaching, by the committer, is memory only: the segments leave the list, so that no reader begins with
 * them, and queue up for the second step, which removes their files beside commits and reads. What is on disk is always
 * a suffix: files go in order, and the first one that cannot go holds up the rest.
 *
 * A crash between the steps, or before the folder is synced, brings segments back: sealed ones like any other, which
 * are expired again. The side files go before their segment: a segment without an index is scanned at the next open, while
 * one that outlives its segment says that others have removed that (missing.c). */
#include "engine/log/log_private.h"

#include "engine/io/io.h"
#include "engine/log/reading/texts.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/log/segments/segment_age.h"

#include <errno.h>
#include <string.h>

/* A stop does not wait for more removals than this. */
#define MAX_AT_CLOSE 16

/* ---- detaching ---- */

static void count_deleted(NrdSegment *segment, NrdDeleteReason reason)
{
    NrdIndexEnd end = nrd_segment_end(segment);

    nrd_counter_add(NRD_COUNTER_DELETED_BYTES + reason, nrd_segment_size_bytes(segment));
    nrd_counter_add(NRD_COUNTER_DELETED_RECORDS + reason, end.offset - nrd_segment_base(segment));
    nrd_counter_add(NRD_COUNTER_DELETED_SEGMENTS + reason, 1);
}

/* Takes the first n segments out of the log; never the active one. The work under the lock is a few instructions for
 * each segment: commits wait for it. */
static void detach(NrdLog *log, guint n, NrdDeleteReason reason)
{
    NrdSegmentList *all = nrd_log_segments(log);

    g_assert(n < all->n);
    NrdSegmentList *rest = nrd_segment_list_drop(all, n);
    for (guint i = 0; i < n; i++)
        nrd_segment_ref(all->items[i]);
    g_mutex_lock(&log->lock);
    nrd_text_extend_all_locked(log); /* what is open keeps what it can reach */
    NrdSegmentList *old = log->list;
    log->list = rest;
    nrd_store(&log->oldest, nrd_segment_base(rest->items[0]));
    for (guint i = 0; i < n; i++)
        g_queue_push_tail(&log->detached, all->items[i]);
    nrd_log_forget_missing_locked(log, nrd_segment_base(rest->items[0]));
    g_mutex_unlock(&log->lock);
    nrd_segment_list_unref(old);
    for (guint i = 0; i < n; i++) {
        nrd_frame_cache_drop(all->items[i]);
        count_deleted(all->items[i], reason);
    }
    nrd_segment_list_unref(all);
}

static int check_detachable(const NrdLog *log)
{
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    return log->home.read_only ? -EROFS : 0;
}

static guint count_below(const NrdSegmentList *list, uint64_t offset)
{
    guint n = 0;
    while (n + 1 < list->n && nrd_segment_base(list->items[n + 1]) <= offset)
        n++;
    return n;
}

int nrd_log_trim(NrdLog *log, uint64_t offset, uint64_t *ret_n_detached)
{
    int r = check_detachable(log);
    if (r < 0)
        return r;
    if (offset > nrd_load(&log->hwm))
        return -EINVAL;
    g_mutex_lock(&log->lock);
    nrd_log_forget_missing_locked(log, offset);
    g_mutex_unlock(&log->lock);
    guint n = count_below(log->list, offset);
    if (n > 0)
        detach(log, n, NRD_DELETE_TRIM);
    *ret_n_detached = n;
    return 0;
}

/* When segment i was written last. Where its own times lie in the future, because the clock was wrong, those of the ones
 * that follow are a bound: it was written before them. */
static int64_t written_ms(const NrdSegmentList *list, guint i, int64_t now_ms)
{
    int64_t own_ms = nrd_segment_last_write_ms(list->items[i], now_ms);
    int64_t ms = own_ms;
    while (ms > now_ms && ++i < list->n)
        ms = nrd_segment_last_write_ms(list->items[i], now_ms);
    return ms <= now_ms ? ms : own_ms;
}

static bool is_too_old(const NrdSegmentList *list, guint i, const NrdRetention *retention)
{
    return retention->max_age_ms > 0 &&
           nrd_is_older(written_ms(list, i, retention->now_ms), retention->now_ms, retention->max_age_ms);
}

/* Whether every record of the active segment is too old, and none is waiting for a commit to expose it. */
static bool active_is_too_old(NrdLog *log, const NrdSegmentList *list, const NrdRetention *retention)
{
    NrdSegment *active = nrd_segment_list_last(list);

    return nrd_segment_end(active).offset > nrd_segment_base(active) &&
           nrd_load(&log->hwm) == nrd_load(&log->next_offset) && is_too_old(list, list->n - 1, retention);
}

static guint count_too_old(const NrdSegmentList *list, const NrdRetention *retention)
{
    guint n = 0;
    while (n + 1 < list->n && is_too_old(list, n, retention))
        n++;
    return n;
}

/* A segment goes when all of it lies beyond the newest max_bytes, so that a full bound is kept whatever the sizes of
 * segments are (seed: "Segmented log", 3). */
static bool lies_beyond(uint64_t total_bytes, uint64_t oldest_bytes, uint64_t max_bytes)
{
    return total_bytes - oldest_bytes >= max_bytes;
}

/* How many of the first sealed segments lie beyond max_bytes. */
static guint count_surplus(const NrdSegmentList *list, const NrdRetention *retention)
{
    uint64_t total = 0;
    guint n = 0;

    if (retention->max_bytes == 0 || list->n < 2)
        return 0;
    for (guint i = 0; i < list->n; i++)
        total += nrd_segment_size_bytes(list->items[i]);
    while (n + 1 < list->n && lies_beyond(total, nrd_segment_size_bytes(list->items[n]), retention->max_bytes))
        total -= nrd_segment_size_bytes(list->items[n++]);
    return n;
}

/* As count_surplus(...) > 0, in constant time: a commit asks. */
static bool is_too_large(NrdLog *log, const NrdRetention *retention)
{
    if (retention->max_bytes == 0)
        return false;
    g_mutex_lock(&log->lock);
    NrdSegmentList *list = log->list;
    uint64_t size_bytes = 0;
    uint64_t oldest_bytes = 0;
    if (list->n > 1) {
        oldest_bytes = nrd_segment_size_bytes(list->items[0]);
        size_bytes = nrd_segment_list_sums_locked(list, nrd_load(&log->home.text_version))->size_bytes +
                     nrd_segment_size_bytes(nrd_segment_list_last(list));
    }
    bool too_large = list->n > 1 && lies_beyond(size_bytes, oldest_bytes, retention->max_bytes);
    g_mutex_unlock(&log->lock);
    return too_large;
}

bool nrd_log_has_expired(NrdLog *log, const NrdRetention *retention)
{
    if (check_detachable(log) < 0)
        return false;
    NrdSegmentList *list = nrd_log_segments(log);
    bool expired = is_too_large(log, retention);
    if (!expired && list->n > 1)
        expired = is_too_old(list, 0, retention);
    else if (!expired && list->n == 1)
        expired = !nrd_log_is_poisoned(log) && active_is_too_old(log, list, retention);
    nrd_segment_list_unref(list);
    return expired;
}

int64_t nrd_log_next_expiry_ms(NrdLog *log, const NrdRetention *retention)
{
    if (nrd_log_has_detached(log))
        return 0;
    if (retention->max_age_ms == 0)
        return INT64_MAX;
    NrdSegmentList *list = nrd_log_segments(log);
    int64_t last_ms = list->n > 0 ? written_ms(list, 0, retention->now_ms) : 0;
    nrd_segment_list_unref(list);
    /* With no record yet, and with one of the future, what is written from now on expires first. */
    if (last_ms <= 0 || last_ms > retention->now_ms)
        last_ms = retention->now_ms;
    return last_ms > INT64_MAX - retention->max_age_ms ? INT64_MAX : last_ms + retention->max_age_ms;
}

bool nrd_log_stats_expired(const NrdLogStats *stats, const NrdRetention *retention)
{
    if (stats->next_offset == stats->oldest_offset)
        return false;
    if (retention->max_bytes > 0 && stats->n_segments > 1 &&
        lies_beyond(stats->size_bytes, stats->oldest_bytes, retention->max_bytes))
        return true;
    int64_t last_ms = nrd_last_write_ms(stats->oldest_last_ms, stats->oldest_file_ms, retention->now_ms);
    return retention->max_age_ms > 0 && nrd_is_older(last_ms, retention->now_ms, retention->max_age_ms);
}

int nrd_log_expire(NrdLog *log, const NrdRetention *retention, uint64_t *ret_n_detached)
{
    int r = check_detachable(log);
    if (r < 0)
        return r;
    NrdSegment *active = nrd_log_active(log);
    if (active != NULL && !nrd_log_is_poisoned(log) && active_is_too_old(log, log->list, retention))
        r = nrd_log_roll(log); /* a failure was logged, and leaves the sealed ones to go */
    guint n_old = count_too_old(log->list, retention);
    if (n_old > 0)
        detach(log, n_old, NRD_DELETE_AGE);
    guint n_surplus = count_surplus(log->list, retention);
    if (n_surplus > 0)
        detach(log, n_surplus, NRD_DELETE_BYTES);
    if (r < 0 && n_old + n_surplus == 0)
        return r;
    *ret_n_detached = n_old + n_surplus;
    return 0;
}

/* ---- removing files ---- */

/* Counted each time; told: there was a line about it. */
static void report(NrdLog *log, bool told, const char *path, int error)
{
    nrd_counter_add(NRD_COUNTER_RETENTION_UNLINK, 1);
    if (told)
        return;
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, NRD_NO_OFFSET),
             "cannot remove %s: %s; trying again later", path, g_strerror(-error));
}

static int remove_name(NrdLog *log, int dir_fd, NrdSegment *segment, char *path)
{
    int r = nrd_io->unlink(dir_fd, strrchr(path, '/') + 1, false);
    if (r == -ENOENT)
        r = 0; /* removed by an attempt before */
    if (r < 0) {
        report(log, segment == log->remove_failed, path, r);
        log->remove_failed = segment;
    }
    g_free(path);
    return r;
}

static int remove_segment(NrdLog *log, int dir_fd, NrdSegment *segment)
{
    nrd_segment_bury(segment); /* a side file that outlives its segment says that somebody else has removed that */
    int r = remove_name(log, dir_fd, segment, nrd_segment_render_path(segment));
    if (r == 0)
        r = remove_name(log, dir_fd, segment, nrd_segment_index_path(segment));
    if (r == 0)
        r = remove_name(log, dir_fd, segment, nrd_segment_path(segment));
    return r;
}

/* The next one whose file may go, borrowed from the queue, which only the holder of remove_lock shortens. NULL: none,
 * or a reader holds it. Nobody who needs the file begins to hold it after this look: that is done under log->lock, to
 * segments of the list and of an open text's span, or is given up again when the segment has left the list. */
static NrdSegment *next_removable(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    NrdSegment *segment = g_queue_peek_head(&log->detached);
    if (segment != NULL && nrd_segment_is_held(segment))
        segment = NULL;
    g_mutex_unlock(&log->lock);
    return segment;
}

static void forget_removed(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    NrdSegment *segment = g_queue_pop_head(&log->detached);
    g_mutex_unlock(&log->lock);
    log->dir_unsynced = true;
    log->remove_failed = NULL;
    nrd_segment_let_go(segment); /* a cursor that rests may keep the segment for long */
    nrd_segment_unref(segment);
}

/* Removes up to max_n segments' files, in order; may_be_closed: goes on in a closed log. */
static int remove_in(NrdLog *log, int dir_fd, unsigned max_n, bool may_be_closed)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < max_n && (may_be_closed || !nrd_log_is_closed(log)); i++) {
        NrdSegment *segment = next_removable(log);
        if (segment == NULL)
            break;
        r = remove_segment(log, dir_fd, segment);
        if (r == 0)
            forget_removed(log);
    }
    return r;
}

/* Makes removals durable; those that an earlier call could not, too. */
static int sync_folder(NrdLog *log, int dir_fd)
{
    if (!log->dir_unsynced)
        return 0;
    /* A crash before this is over may bring files back: whole sealed segments, a suffix wherever a journal keeps the
     * removals in order. They are expired again. */
    int r = nrd_io->fsync(dir_fd);
    if (r < 0)
        report(log, log->dir_failed, log->home.dir, r);
    log->dir_failed = r < 0;
    log->dir_unsynced = r < 0;
    return r;
}

/* The same with the folder opened before and synced after; remove_lock is held. */
static int remove_files(NrdLog *log, unsigned max_n, bool may_be_closed)
{
    int dir_fd = -1;

    if (next_removable(log) == NULL && !log->dir_unsynced && !nrd_log_has_forgotten(log))
        return 0;
    int r = nrd_io_open_dir(log->home.root_fd, log->home.dir, &dir_fd);
    if (r < 0) {
        report(log, log->dir_failed, log->home.dir, r);
        log->dir_failed = true;
        return r;
    }
    r = remove_in(log, dir_fd, max_n, may_be_closed);
    nrd_log_remove_forgotten(log, dir_fd);
    int sync = sync_folder(log, dir_fd);
    nrd_io_close(&dir_fd);
    return r < 0 ? r : sync;
}

int nrd_log_remove_detached(NrdLog *log, uint64_t *ret_n_left)
{
    int r = -ESHUTDOWN; /* the folder's name may mean another topic's by now */

    nrd_text_drop_idle(log);
    g_mutex_lock(&log->remove_lock);
    if (!nrd_log_is_closed(log))
        r = remove_files(log, UINT_MAX, false);
    g_mutex_lock(&log->lock);
    uint64_t n_left = log->detached.length;
    g_mutex_unlock(&log->lock);
    g_mutex_unlock(&log->remove_lock);
    if (r < 0)
        return r;
    *ret_n_left = n_left;
    return 0;
}

void nrd_log_remove_at_close(NrdLog *log)
{
    g_mutex_lock(&log->remove_lock);
    /* A poisoned log's disk is failing: nothing more is deleted before the next open has looked at what there is. */
    if (!log->home.read_only && !nrd_log_is_poisoned(log))
        (void)remove_files(log, MAX_AT_CLOSE, true); /* it was reported; the next open finds what stays */
    g_mutex_unlock(&log->remove_lock);
}

bool nrd_log_has_detached(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    bool has = !g_queue_is_empty(&log->detached);
    g_mutex_unlock(&log->lock);
    return has;
}
