/* Starting segments: the first one, and the next one when the active is full. By the committer.
 *
 * Order: create the file, sync the folder, and only then seal the old one in memory. Everything in the old segment is
 * committed, so synced, before. A crash after the creation leaves an empty newest segment, which the next open takes
 * as the active one: the old one then ends where the new one begins, and nothing was written to it since. */
#include "engine/log/log_private.h"

#include "engine/base/clock.h"
#include "engine/io/io.h"
#include "engine/log/segments/segment_age.h"
#include "engine/log/zero_ahead.h"

#include <errno.h>
#include <fcntl.h>

/* Opens the file that an earlier attempt left; it has to be empty. */
static int reuse_empty(NrdLog *log, const char *path)
{
    struct stat st;
    int fd = nrd_io->open(log->home.root_fd, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int r = nrd_io->fstat(fd, &st);
    if (r == 0 && (!S_ISREG(st.st_mode) || st.st_size != 0))
        r = -EEXIST;
    if (r < 0) {
        nrd_io_close(&fd);
        return r;
    }
    return fd;
}

/* Creates the file of the segment that begins at base, durably. */
int nrd_log_create_file(NrdLog *log, const char *path)
{
    int fd = nrd_io->open(log->home.root_fd, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd == -EEXIST)
        fd = reuse_empty(log, path);
    if (fd < 0)
        return fd;
    nrd_io_close(&fd);
    /* Before: a crash may lose the name, with nothing in it. After: whatever is written to the file can be found. */
    return nrd_io_sync_dir(log->home.root_fd, log->home.dir);
}

static void install(NrdLog *log, NrdSegment *segment)
{
    NrdSegmentList *longer = nrd_segment_list_append(log->list, segment);

    g_mutex_lock(&log->lock);
    NrdSegmentList *old = log->list;
    log->list = longer;
    log->hidden_text = 0;
    if (longer->n == 1)
        nrd_store(&log->oldest, nrd_segment_base(segment));
    g_mutex_unlock(&log->lock);
    nrd_segment_list_unref(old);
    nrd_store(&log->hwm_pos, 0);
    log->roll_needed = false;
    log->tail_is_others = false;
}

static int start_segment(NrdLog *log, NrdSegment *old)
{
    uint64_t base = nrd_load(&log->next_offset);
    NrdSegment *segment = nrd_segment_new(&log->home, base, 0);
    char *path = nrd_segment_path(segment);

    if (old != NULL)
        nrd_zero_ahead_cut(log, old); /* before the folder's sync, which on a journal takes it along */
    int r = nrd_log_create_file(log, path);
    if (r == 0) {
        nrd_segment_set_index(segment, nrd_index_new(base), 0);
        if (old != NULL) {
            nrd_segment_seal(old, base);
            nrd_counter_add(NRD_COUNTER_ROLLED, 1);
        }
        install(log, segment);
    }
    g_free(path);
    nrd_segment_unref(segment);
    return r;
}

int nrd_log_roll_active(NrdLog *log)
{
    NrdSegment *active = nrd_log_active(log);

    g_assert(nrd_load(&log->hwm) == nrd_load(&log->next_offset));
    /* Until it succeeds nothing more is written to the old one: the new file may exist already, and then the old one
     * would end at its base for the next open. */
    log->roll_needed = true;
    return start_segment(log, active);
}

/* Whether the active segment is not to be written to any more: it is full, or its oldest record too old (seed:
 * "Time-based roll"), or damage was found in it (recovery.c). */
static bool is_done(NrdSegment *active, const NrdLogSettings *settings)
{
    NrdIndexEnd end = nrd_segment_end(active);

    if (end.offset == nrd_segment_base(active))
        return false;
    return end.pos >= settings->segment_bytes || nrd_segment_has_gaps(active) ||
           (settings->roll_age_ms > 0 &&
            nrd_is_older(nrd_segment_first_ms(active), nrd_clock_wall_ms(), settings->roll_age_ms));
}

/* Passes over offsets that were given out once: a gap at the end of the active segment, which is over with that. What
 * follows begins a new one, so that every frame stands at the offset that is expected of it. Where all segments are gone
 * an empty one stands for them, so that what is lost is known by the next open, too. */
static int skip_lost(NrdLog *log)
{
    if (log->skip_to <= nrd_load(&log->next_offset))
        return 0;
    if (nrd_log_active(log) == NULL) {
        int r = start_segment(log, NULL);
        if (r < 0)
            return r;
        nrd_segment_set_file_ms(nrd_log_active(log), nrd_clock_wall_ms()); /* it has its time, as an emptied one has */
    }
    g_mutex_lock(&log->lock);
    nrd_segment_add_gap(nrd_log_active(log), log->skip_to);
    nrd_store(&log->next_offset, log->skip_to);
    nrd_store(&log->hwm, log->skip_to);
    g_mutex_unlock(&log->lock);
    log->roll_needed = true;
    return 0;
}

int nrd_log_prepare_active(NrdLog *log)
{
    int r = skip_lost(log);
    if (r < 0)
        return r;
    NrdSegment *active = nrd_log_active(log);
    if (active == NULL)
        return start_segment(log, NULL);
    if (nrd_load(&log->hwm) != nrd_load(&log->next_offset))
        return 0; /* a hidden tail must stay in the active segment */
    g_mutex_lock(&log->lock);
    NrdLogSettings settings = log->settings;
    g_mutex_unlock(&log->lock);
    return log->roll_needed || is_done(active, &settings) ? nrd_log_roll_active(log) : 0;
}

int nrd_log_roll(NrdLog *log)
{
    int r = nrd_log_check_writable(log);
    if (r < 0)
        return r;
    NrdSegment *active = nrd_log_active(log);
    if (active == NULL || nrd_segment_end(active).offset == nrd_segment_base(active))
        return 0;
    if (nrd_load(&log->hwm) != nrd_load(&log->next_offset))
        return -EBUSY; /* what a failed commit would have to cut must lie in the active segment */
    r = nrd_log_roll_active(log);
    if (r < 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "cannot roll %s: %s; trying again before the next write", log->home.dir, g_strerror(-r));
    return r;
}
