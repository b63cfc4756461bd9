/* See state.h. */
#include "engine/log/state/state.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>

NrdSegmentList *nrd_log_segments(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    NrdSegmentList *list = nrd_segment_list_ref(log->list);
    g_mutex_unlock(&log->lock);
    return list;
}

uint64_t nrd_log_visible_text_locked(NrdLog *log, NrdSegment *segment)
{
    uint64_t text_bytes = nrd_segment_end(segment).text_bytes;
    uint64_t hidden = segment == nrd_segment_list_last(log->list) ? log->hidden_text : 0;

    /* damage that was found in what is hidden has made the segment's text shorter, not hidden_text */
    return text_bytes > hidden ? text_bytes - hidden : 0;
}

uint64_t nrd_log_visible_size_locked(NrdLog *log, NrdSegment *segment)
{
    if (segment != nrd_segment_list_last(log->list))
        return nrd_segment_size_bytes(segment);
    /* the two move one after the other: the smaller is right */
    return MIN(nrd_segment_end(segment).pos, nrd_load(&log->hwm_pos));
}

NrdSegment *nrd_log_active(NrdLog *log)
{
    /* only the committer replaces the list, and it is the caller */
    return nrd_segment_list_last(log->list);
}

int nrd_log_check_writable(const NrdLog *log)
{
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (log->home.read_only)
        return -EROFS;
    return nrd_log_is_poisoned(log) ? -EIO : 0;
}

/* Takes reason over. */
static void latch(NrdLog *log, int error, bool by_others, char *reason)
{
    g_mutex_lock(&log->lock);
    bool first = log->poison_errno == 0;
    if (first) {
        log->poison_errno = -error;
        log->poison_by_others = by_others;
        log->poison_reason = g_steal_pointer(&reason);
    }
    g_mutex_unlock(&log->lock);
    __atomic_store_n(&log->poisoned, true, __ATOMIC_RELEASE);
    if (first) {
        nrd_counter_add(by_others ? NRD_COUNTER_TAKEN_AWAY : NRD_COUNTER_FSYNC_POISONED, 1);
        nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)), "%s",
                 log->poison_reason);
    }
    g_free(reason);
}

void nrd_log_poison(NrdLog *log, int error, const char *what)
{
    latch(log, error, false,
          g_strdup_printf("%s of %s failed: %s; writes are refused until the partition is reopened", what,
                          log->home.dir, g_strerror(-error)));
}

void nrd_log_poison_taken_away(NrdLog *log, NrdSegment *active, int error)
{
    g_autofree char *path = nrd_segment_path(active);

    latch(log, error, true,
          g_strdup_printf(
              "%s, which records are written to, was %s while the daemon runs, and not by it; writes are "
              "refused until the partition is reopened",
              path, error == -ENOENT || error == -ENOTDIR ? "removed or moved away" : "replaced by another file"));
}

bool nrd_log_poison_foreign(NrdLog *log, const char *path, int error)
{
    g_autofree char *kind = nrd_io_foreign_kind(log->home.root_fd, path);

    if (kind == NULL)
        return false;
    latch(log, error, true,
          g_strdup_printf("%s cannot be written: %s; writes are refused until the partition is reopened", path, kind));
    return true;
}
