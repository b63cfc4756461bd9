/* Whether a segment's file is there, is the one it was, and can be read.
 *
 * A file that is there and cannot be read may be read tomorrow: its readers get the error, and nothing is passed over. One
 * whose name is gone from a folder that is there was taken away by others: its records are lost, as at an open that does not
 * find it, and they are passed over like any that are damaged. Should it be put back, a reopen finds it. */
#include "engine/log/segments/segment_private.h"

#include "engine/base/errors.h"
#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/log/segments/map_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void nrd_segment_report_read(NrdSegment *segment, int error)
{
    if (nrd_error_is_shortage(error) || error == -ECANCELED)
        return;
    g_mutex_lock(&segment->lock);
    bool tell = error != 0 && segment->read_error == 0;
    segment->read_error = error;
    g_mutex_unlock(&segment->lock);
    if (!tell)
        return;
    __atomic_add_fetch(&segment->home->n_unreadable, 1, __ATOMIC_ACQ_REL);
    nrd_counter_add(NRD_COUNTER_UNREADABLE, 1);
    g_autofree char *path = nrd_segment_path(segment);
    g_autofree char *kind = nrd_io_foreign_kind(segment->home->root_fd, path);
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(segment->home, (int64_t)segment->base),
             "cannot read %s: %s; its readers get this error until it can be read again, or until it is put back and "
             "`reopen` is written to the partition's ctl",
             path, kind != NULL ? kind : g_strerror(-error));
}

int nrd_segment_read_error(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    int error = segment->read_error;
    g_mutex_unlock(&segment->lock);
    return error;
}

void nrd_segment_set_file(NrdSegment *segment, const struct stat *st)
{
    g_mutex_lock(&segment->lock);
    segment->dev = st->st_dev;
    segment->ino = st->st_ino;
    segment->file_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
    g_mutex_unlock(&segment->lock);
}

void nrd_segment_note_opened(NrdSegment *segment, const struct stat *st)
{
    g_mutex_lock(&segment->lock);
    /* what a folder says of a file may differ from what the open file says, where file systems are stacked */
    if (!segment->opened) {
        segment->dev = st->st_dev;
        segment->ino = st->st_ino;
        segment->opened = true;
    }
    g_mutex_unlock(&segment->lock);
}

static bool is_same_file_locked(const NrdSegment *segment, const struct stat *st)
{
    return segment->ino == 0 || (segment->ino == st->st_ino && segment->dev == st->st_dev);
}

bool nrd_segment_is_file(NrdSegment *segment, const struct stat *st)
{
    g_mutex_lock(&segment->lock);
    bool same = is_same_file_locked(segment, st);
    g_mutex_unlock(&segment->lock);
    return same;
}

bool nrd_segment_is_as_known(NrdSegment *segment, const struct stat *st)
{
    g_mutex_lock(&segment->lock);
    bool same = is_same_file_locked(segment, st) && segment->size_bytes == (uint64_t)st->st_size;
    bool well = !segment->gone && segment->read_error == 0 && segment->end_known &&
                (segment->known_gaps == NULL || segment->known_gaps->len == 0);
    g_mutex_unlock(&segment->lock);
    return same && well;
}

int nrd_segment_check_place(NrdSegment *segment, int fd, bool by_name)
{
    struct stat st;
    int r = nrd_io->fstat(fd, &st);

    if (r < 0 || (st.st_nlink > 0 && !by_name))
        return r;
    g_autofree char *path = nrd_segment_path(segment);
    r = nrd_io_stat(segment->home->root_fd, path, &st);
    if (r < 0)
        return r;
    return nrd_segment_is_file(segment, &st) ? 0 : -ESTALE;
}

bool nrd_segment_is_gone(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    bool gone = segment->gone;
    g_mutex_unlock(&segment->lock);
    return gone;
}

/* Whether the file is gone, and others have removed it. load_lock is held. */
static bool was_taken_away(NrdSegment *segment)
{
    const NrdSegmentHome *home = segment->home;
    struct stat st;

    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    g_mutex_unlock(&segment->lock);
    if (!sealed || segment->buried)
        return false;
    g_autofree char *path = nrd_segment_path(segment);
    /* The folder first: with that gone, moved away perhaps, nothing is known of what was in it. */
    return nrd_io_stat(home->root_fd, home->dir, &st) == 0 && S_ISDIR(st.st_mode) &&
           nrd_io_stat(home->root_fd, path, &st) == -ENOENT &&
           /* after the look: whoever removes a log's folder has closed the log before */
           !__atomic_load_n(&home->closed, __ATOMIC_ACQUIRE) && !__atomic_load_n(&home->abandoned, __ATOMIC_ACQUIRE);
}

/* Puts one gap in the place of all records; *ret_gap is it. Returns the old index, to be freed without the lock. */
static NrdIndex *empty_locked(NrdSegment *segment, NrdGap *ret_gap)
{
    NrdIndex *index = nrd_index_new(segment->base);
    NrdIndex *old = segment->index;

    /* Its age stays what it was: retention goes by it. */
    index->end.commit_ms = segment->end_known ? segment->end.commit_ms : segment->file_ms;
    nrd_index_add_gap(index, 0, segment->end.offset);
    *ret_gap = g_array_index(index->gaps, NrdGap, 0);
    segment->index = index;
    segment->end = index->end;
    segment->end_known = true;
    segment->version++;
    segment->size_bytes = 0;
    segment->read_error = 0;
    segment->gone = true;
    if (segment->known_gaps != NULL)
        g_array_set_size(segment->known_gaps, 0); /* they are in it */
    __atomic_add_fetch(&segment->home->text_version, 1, __ATOMIC_ACQ_REL);
    return old;
}

/* load_lock is held. */
static void lose_locked(NrdSegment *segment)
{
    NrdGap gap;

    g_mutex_lock(&segment->lock);
    NrdIndex *old = empty_locked(segment, &gap);
    g_mutex_unlock(&segment->lock);
    nrd_index_free(old);
    nrd_map_cache_drop(segment);
    nrd_frame_cache_drop(segment);
    if (gap.end_offset > gap.offset)
        nrd_segment_report_gap(segment, &gap);
}

bool nrd_segment_lose(NrdSegment *segment)
{
    g_mutex_lock(&segment->load_lock);
    bool gone = nrd_segment_is_gone(segment);
    if (!gone && was_taken_away(segment)) {
        lose_locked(segment);
        gone = true;
    }
    g_mutex_unlock(&segment->load_lock);
    return gone;
}
