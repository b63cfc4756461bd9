/* Retention: whole sealed segments go, oldest first (seed: Retention). By the committer.
 *
 * They leave the list first, so that no reader begins with them, and their files go after the lock is released. What is
 * left is always a suffix: at the first file that cannot be removed that segment and the later ones return. */
#include "engine/log/log_private.h"

#include "engine/io/io.h"

#include <errno.h>

/* Replaces the list; its first segment tells the oldest offset. Returns the number of open texts. */
static guint set_list(NrdLog *log, NrdSegmentList *list)
{
    g_mutex_lock(&log->lock);
    guint n_texts = nrd_text_extend_all_locked(log);
    NrdSegmentList *old = log->list;
    log->list = list;
    nrd_store(&log->oldest, nrd_segment_base(list->items[0]));
    g_mutex_unlock(&log->lock);
    nrd_segment_list_unref(old);
    return n_texts;
}

static void report(NrdLog *log, const char *path, int error)
{
    nrd_counter_add(NRD_COUNTER_RETENTION_UNLINK, 1);
    nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, NRD_NO_OFFSET),
             "cannot remove %s: %s; trying again later", path, g_strerror(-error));
}

static int remove_name(NrdLog *log, char *path)
{
    int r = nrd_io->unlink(log->home.root_fd, path, false);
    if (r == -ENOENT)
        r = 0;
    if (r < 0)
        report(log, path, r);
    g_free(path);
    return r;
}

/* Removes one segment's files. An index that stays behind is only rubbish. */
static int remove_segment(NrdLog *log, NrdSegment *segment)
{
    int r = remove_name(log, nrd_segment_path(segment));
    if (r == 0 && remove_name(log, nrd_segment_index_path(segment)) < 0)
        return 0;
    return r;
}

static guint count_below(const NrdSegmentList *list, uint64_t offset)
{
    guint n = 0;
    while (n + 1 < list->n && nrd_segment_base(list->items[n + 1]) <= offset)
        n++;
    return n;
}

int nrd_log_trim(NrdLog *log, uint64_t offset, uint64_t *ret_n_deleted)
{
    int r = 0;
    guint n_gone = 0;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (log->home.read_only)
        return -EROFS;
    if (offset > nrd_load(&log->hwm))
        return -EINVAL;
    NrdSegmentList *all = nrd_log_segments(log);
    guint n = count_below(all, offset);
    if (n > 0) {
        set_list(log, nrd_segment_list_drop(all, n));
        while (n_gone < n && r == 0) {
            r = remove_segment(log, all->items[n_gone]);
            n_gone += r == 0;
        }
        if (n_gone < n)
            set_list(log, nrd_segment_list_drop(all, n_gone));
    }
    nrd_segment_list_unref(all);
    if (n_gone > 0) {
        /* A crash before this is over may bring files back: they are sealed segments like any other. */
        int sync = nrd_io_sync_dir(log->home.root_fd, log->home.dir);
        if (sync < 0)
            report(log, log->home.dir, sync);
        r = r == 0 ? sync : r;
    }
    if (r < 0)
        return r;
    *ret_n_deleted = n_gone;
    return 0;
}
