/* Segments that somebody took away: their side files are still there.
 *
 * The log removes a segment's side files before the segment, and a side file is written only beside a segment whose name
 * is durable. So one without a segment is a witness: these offsets were committed, and their file went by other hands. It
 * is judged by where the segment stood:
 *
 *   before the oldest one    nothing else tells it from retention: told at every open, until a trim or retention has
 *                            passed it, which removes the witness
 *   behind the newest one,   the records end there; the offsets up to the witness's end are lost, and are not given out
 *   or there is none left    again (as with an hwm above the records: recovery.c)
 *   in between               the segment before it ends too early, which is a gap of its own: the witness may go
 *
 * Should a file system keep only the second of two removals over a crash, this is a false alarm, and costs a trim. */
#include "engine/log/log_private.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <inttypes.h>

static void tell_missing(const NrdLog *log, const NrdGap *gap)
{
    nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)gap->offset),
             "records %" PRIu64 " to %" PRIu64
             " are missing: their segment is gone from %s, and was not deleted by the daemon; put it back and write "
             "`reopen` to the partition's ctl",
             gap->offset, gap->end_offset - 1, log->home.dir);
}

/* Keeps what lies before the oldest segment, no offset twice. */
static void keep_before(GArray *missing, uint64_t oldest)
{
    uint64_t from = 0;
    guint n = 0;

    for (guint i = 0; i < missing->len; i++) {
        NrdGap gap = g_array_index(missing, NrdGap, i);
        gap.offset = MAX(gap.offset, from);
        gap.end_offset = MIN(gap.end_offset, oldest);
        if (gap.offset >= gap.end_offset)
            continue;
        from = gap.end_offset;
        g_array_index(missing, NrdGap, n++) = gap;
    }
    g_array_set_size(missing, n);
}

/* Witnesses of what lies in between. */
static void forget_between(NrdLog *log, uint64_t oldest, uint64_t tail)
{
    for (guint i = 0; i < log->missing->len && !log->home.read_only; i++) {
        NrdGap gap = g_array_index(log->missing, NrdGap, i);
        if (gap.offset >= oldest && gap.offset < tail)
            g_array_append_val(log->forgotten, gap);
    }
}

static bool has_gap(const GArray *gaps, uint64_t pos)
{
    for (guint i = 0; i < gaps->len; i++) {
        if (g_array_index(gaps, NrdGap, i).pos == pos)
            return true;
    }
    return false;
}

void nrd_log_find_before(NrdLog *log, GArray *missing, uint64_t oldest)
{
    g_autoptr(GArray) news = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    guint n = 0;

    g_mutex_lock(&log->lock);
    for (guint i = 0; i < missing->len; i++) {
        if (!has_gap(log->forgotten, g_array_index(missing, NrdGap, i).pos))
            g_array_index(missing, NrdGap, n++) = g_array_index(missing, NrdGap, i);
    }
    g_array_set_size(missing, n);
    keep_before(missing, oldest);
    for (guint i = 0; i < missing->len; i++) {
        if (!has_gap(log->missing, g_array_index(missing, NrdGap, i).pos))
            g_array_append_val(news, g_array_index(missing, NrdGap, i));
    }
    g_mutex_unlock(&log->lock);
    for (guint i = 0; i < news->len; i++)
        tell_missing(log, &g_array_index(news, NrdGap, i));
}

/* A side file of another partition, say, must not move the offsets to where nothing leads. */
static bool is_believed(const NrdLog *log, const NrdGap *gap, uint64_t reach, uint64_t committed)
{
    if (gap->end_offset <= MAX(reach, committed) || nrd_log_can_be_lost(log, gap->end_offset - reach))
        return true;
    nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)reach),
             "%s/%020" PRIu64 ".index has no segment, and so many records cannot have been lost: it does not count",
             log->home.dir, gap->pos);
    return false;
}

void nrd_log_judge_missing(NrdLog *log, bool has_segments, uint64_t committed, uint64_t *ret_first, uint64_t *ret_end)
{
    uint64_t tail = nrd_load(&log->next_offset);
    uint64_t first = UINT64_MAX, end = 0;

    for (guint i = 0; i < log->missing->len; i++) {
        const NrdGap *gap = &g_array_index(log->missing, NrdGap, i);
        uint64_t reach = MAX(has_segments ? tail : g_array_index(log->missing, NrdGap, 0).offset, end);
        if ((has_segments && gap->offset < tail) || !is_believed(log, gap, reach, committed))
            continue;
        first = MIN(first, gap->offset);
        end = MAX(end, gap->end_offset);
    }
    if (has_segments)
        forget_between(log, nrd_load(&log->oldest), tail);
    keep_before(log->missing, has_segments ? nrd_load(&log->oldest) : 0);
    for (guint i = 0; i < log->missing->len; i++)
        tell_missing(log, &g_array_index(log->missing, NrdGap, i));
    *ret_first = first;
    *ret_end = end;
}

void nrd_log_add_missing_locked(const NrdLog *log, NrdDamage *damage)
{
    NrdGap tail = { .offset = nrd_load(&log->next_offset), .end_offset = log->skip_to };

    for (guint i = 0; i < log->missing->len; i++)
        nrd_damage_add(damage, &g_array_index(log->missing, NrdGap, i));
    if (tail.end_offset > tail.offset)
        nrd_damage_add(damage, &tail);
}

void nrd_log_forget_missing_locked(NrdLog *log, uint64_t offset)
{
    guint n = 0;

    while (n < log->missing->len && g_array_index(log->missing, NrdGap, n).end_offset <= offset)
        n++;
    g_array_append_vals(log->forgotten, log->missing->data, n);
    g_array_remove_range(log->missing, 0, n);
}

bool nrd_log_has_forgotten(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    bool has = log->forgotten->len > 0;
    g_mutex_unlock(&log->lock);
    return has;
}

/* A failure leaves the witness, for the next open to tell of. */
void nrd_log_remove_forgotten(NrdLog *log, int dir_fd)
{
    g_mutex_lock(&log->lock);
    g_autoptr(GArray) gone = log->forgotten;
    log->forgotten = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    g_mutex_unlock(&log->lock);
    for (guint i = 0; i < gone->len; i++) {
        g_autofree char *name = g_strdup_printf("%020" PRIu64 ".index", g_array_index(gone, NrdGap, i).pos);
        int r = nrd_io->unlink(dir_fd, name, false);
        if (r == 0)
            log->dir_unsynced = true; /* a crash before the sync brings it back, and its news */
        else if (r != -ENOENT)
            nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, NRD_NO_OFFSET), "cannot remove %s/%s: %s",
                     log->home.dir, name, g_strerror(-r));
    }
}
