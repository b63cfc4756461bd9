/* The bytes of segment files as they lie on the disk; see log.h. */
#include "engine/log/reading/reading.h"
#include "engine/log/state/state.h"

#include "engine/io/io.h"

#include <errno.h>

struct NrdRaw {
    NrdLog *log;
    NrdSegment *segment; /* a reference and a hold: its file stays */
};

/* log->lock is held. */
static NrdSegmentInfo info_locked(NrdLog *log, NrdSegment *segment)
{
    return (NrdSegmentInfo){ .base = nrd_segment_base(segment),
                             .size_bytes = nrd_log_visible_size_locked(log, segment),
                             .last_ms = nrd_segment_end(segment).commit_ms,
                             .sealed = segment != nrd_segment_list_last(log->list) };
}

GArray *nrd_log_segment_infos(NrdLog *log)
{
    GArray *infos = g_array_new(FALSE, FALSE, sizeof(NrdSegmentInfo));

    g_mutex_lock(&log->lock);
    for (guint i = 0; i < log->list->n; i++) {
        if (nrd_segment_is_gone(log->list->items[i]))
            continue; /* there is no such file */
        NrdSegmentInfo info = info_locked(log, log->list->items[i]);
        g_array_append_val(infos, info);
    }
    g_mutex_unlock(&log->lock);
    return infos;
}

int nrd_raw_open(NrdLog *log, uint64_t base, NrdRaw **ret_raw)
{
    NrdRaw *raw = NULL;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    g_mutex_lock(&log->lock);
    NrdSegment *segment = nrd_segment_list_find(log->list, base);
    if (segment != NULL && nrd_segment_base(segment) == base && !nrd_segment_is_gone(segment)) {
        raw = g_new0(NrdRaw, 1);
        raw->log = log;
        raw->segment = nrd_segment_ref(segment);
        nrd_segment_hold(segment); /* under the lock: a detach comes before it, or sees it */
    }
    g_mutex_unlock(&log->lock);
    if (raw == NULL)
        return -ENOENT;
    *ret_raw = raw;
    return 0;
}

void nrd_raw_close(NrdRaw *raw)
{
    if (raw == NULL)
        return;
    nrd_segment_release(raw->segment);
    nrd_segment_unref(raw->segment);
    g_free(raw);
}

void nrd_raw_info(NrdRaw *raw, NrdSegmentInfo *ret_info)
{
    g_mutex_lock(&raw->log->lock);
    *ret_info = info_locked(raw->log, raw->segment);
    g_mutex_unlock(&raw->log->lock);
}

int nrd_raw_read(NrdRaw *raw, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    NrdSegmentInfo info;
    size_t n = 0;
    int fd;

    if (nrd_log_is_closed(raw->log))
        return -ESHUTDOWN;
    nrd_raw_info(raw, &info);
    if (nrd_segment_is_gone(raw->segment))
        return -EIO; /* not the end of what was committed */
    if (pos >= info.size_bytes || size == 0) {
        *ret_size = 0;
        return 0;
    }
    size = (size_t)MIN((uint64_t)size, info.size_bytes - pos);
    int r = nrd_segment_pin(raw->segment, &fd);
    if (r == 0 && fd < 0) { /* it is gone, as has just been found */
        nrd_segment_unpin(raw->segment);
        r = -EIO;
    } else if (r == 0) {
        r = nrd_io_pread_full(fd, buf, size, (int64_t)pos, &n);
        if (r == 0 && n == 0)
            r = -EIO; /* the file is shorter than it was: not the end of what was committed */
        nrd_segment_report_read(raw->segment, r);
        nrd_segment_unpin(raw->segment);
    }
    if (nrd_log_is_closed(raw->log))
        return -ESHUTDOWN;
    if (r < 0)
        return -EIO;
    *ret_size = n;
    return 0;
}
