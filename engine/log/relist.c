/* A reopen lists the folder again: what others have put there, taken away or replaced since the log was opened is found as an
 * open would find it, under the handles of whoever reads. By the committer.
 *
 *   a sealed segment as it was             stays the object it is
 *   one that is there and was not, or is   a new object takes the place; the side files of one that has changed are made
 *   another or was damaged or unreadable   again from the segment; who is in the middle of the old one finishes there
 *   a sealed segment that is gone          stays in its place, as known damage (segment_presence.c)
 *   the active segment as it was, and      recovered in place (reopen.c)
 *   nothing behind it
 *   an empty segment at the end,           it is the active one; an empty one is made for one that is gone. Bytes in it that
 *   which no record is missing from        are no record keep the log from being reopened
 *   any other end of the log               what is there is read, never cut and never added to: it may be somebody's only
 *                                          copy, or still being copied. The log goes on behind it in a segment of its
 *                                          own, above all offsets that were ever given out
 *
 * The boundary in memory is the least that there can be: what was acknowledged and is not there any more is a gap. Until the
 * segment behind that has been begun nothing but memory knows it, so the reopen has not succeeded before (reopen.c). */
#include "engine/log/relist_private.h"

#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/log/index/index_file.h"
#include "engine/log/index/scan.h"
#include "engine/log/reading/texts.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/log/segments/render_file.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

void nrd_relist_clear(NrdRelist *relist)
{
    g_clear_pointer(&relist->files, g_array_unref);
    g_clear_pointer(&relist->missing, g_array_unref);
    g_clear_pointer(&relist->segments, g_ptr_array_unref);
    nrd_segment_unref(relist->tail);
    relist->tail = NULL;
}

/* ---- what is there ---- */

/* Segments that retention has taken out of the log, and whose files are still there, are not part of it. */
static void leave_out_detached(NrdLog *log, GArray *files)
{
    g_mutex_lock(&log->lock);
    for (GList *l = log->detached.head; l != NULL; l = l->next) {
        for (guint i = 0; i < files->len; i++) {
            if (g_array_index(files, NrdSegmentFile, i).base == nrd_segment_base(l->data)) {
                g_array_remove_index(files, i);
                break;
            }
        }
    }
    g_mutex_unlock(&log->lock);
}

/* No file of the log is removed meanwhile: that needs remove_lock. */
int nrd_relist_list(NrdLog *log, NrdRelist *relist)
{
    NrdSegmentOdd odd = { .name = NULL };

    relist->files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    relist->missing = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    relist->segments = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_segment_unref);
    g_mutex_lock(&log->remove_lock);
    int r = nrd_segment_files_list(log->home.root_fd, log->home.dir, relist->files, &odd);
    if (r == 0 && odd.name == NULL)
        r = nrd_segment_files_missing(log->home.root_fd, log->home.dir, relist->files, relist->missing);
    leave_out_detached(log, relist->files);
    g_mutex_unlock(&log->remove_lock);
    if (r < 0)
        r = nrd_log_complain(log, "", r, NULL);
    else if (odd.name != NULL)
        r = nrd_log_complain(log, odd.name, odd.error, odd.what);
    g_free(odd.name);
    return r;
}

/* ---- the sealed ones ---- */

/* What was made from other bytes than stand there now. */
static int remove_side_files(NrdLog *log, NrdSegment *segment, uint64_t end_offset)
{
    g_autofree char *index_path = nrd_segment_index_path(segment);
    g_autofree char *render_path = nrd_segment_render_path(segment);
    NrdIndexFileId id = { .root_fd = log->home.root_fd,
                          .path = index_path,
                          .base = nrd_segment_base(segment),
                          .end_offset = end_offset,
                          .size_bytes = nrd_segment_size_bytes(segment) };
    int r = nrd_index_file_remove(&id);
    return r == 0 ? nrd_render_file_remove(log->home.root_fd, render_path) : r;
}

/* Adds the segment of a file that ends where the next one begins. */
static int add_file(NrdLog *log, NrdRelist *relist, const NrdSegmentFile *file, NrdSegment *old, uint64_t end_offset)
{
    if (old != NULL && old != nrd_log_active(log) && nrd_segment_end(old).offset == end_offset &&
        nrd_segment_is_as_known(old, &file->st)) {
        g_ptr_array_add(relist->segments, nrd_segment_ref(old));
        return 0;
    }
    NrdSegment *segment = nrd_segment_new(&log->home, file->base, file->size_bytes);
    nrd_segment_set_file(segment, &file->st);
    int r = 0;
    if (old != NULL && !nrd_segment_is_gone(old))
        r = remove_side_files(log, segment, end_offset);
    if (r < 0) {
        nrd_segment_unref(segment);
        return nrd_log_complain(log, "", r, NULL);
    }
    nrd_segment_open_sealed(segment, end_offset);
    g_ptr_array_add(relist->segments, segment);
    return 0;
}

/* Adds a segment that was in the log and has no file any more. */
static int add_gone(NrdLog *log, NrdRelist *relist, NrdSegment *old)
{
    if (!nrd_segment_lose(old))
        return nrd_log_complain(log, "", -ENOENT, NULL);
    g_ptr_array_add(relist->segments, nrd_segment_ref(old));
    return 0;
}

static NrdSegment *old_at(NrdLog *log, uint64_t base)
{
    NrdSegment *found = nrd_segment_list_find(log->list, base);
    return found != NULL && nrd_segment_base(found) == base ? found : NULL;
}

int nrd_relist_find_sealed(NrdLog *log, NrdRelist *relist, uint64_t tail_base)
{
    NrdSegmentList *old = log->list; /* the committer's to change */
    guint i = 0, o = 0;
    int r = 0;

    while (r == 0) {
        while (o < old->n && (nrd_segment_base(old->items[o]) >= tail_base || old->items[o] == nrd_log_active(log)))
            o++;
        uint64_t file_base = i < relist->files->len ? nrd_relist_file_at(relist, i)->base : UINT64_MAX;
        uint64_t old_base = o < old->n ? nrd_segment_base(old->items[o]) : UINT64_MAX;
        if (file_base == UINT64_MAX && old_base == UINT64_MAX)
            break;
        if (old_base < file_base) {
            r = add_gone(log, relist, old->items[o++]);
            continue;
        }
        uint64_t next = i + 1 < relist->files->len ? nrd_relist_file_at(relist, i + 1)->base : tail_base;
        if (old_base == file_base)
            o++;
        if (o < old->n && nrd_segment_base(old->items[o]) > file_base && old->items[o] != nrd_log_active(log))
            next = MIN(next, nrd_segment_base(old->items[o]));
        r = add_file(log, relist, nrd_relist_file_at(relist, i), old_at(log, file_base), next);
        i++;
    }
    return r;
}

/* ---- taking it over ---- */

static uint64_t first_base(const NrdRelist *relist, uint64_t tail_base)
{
    return relist->segments->len > 0 ? nrd_segment_base(relist->segments->pdata[0]) : tail_base;
}

/* The old objects that are not in the log any more: who has one in hand keeps it. */
static void let_go(NrdSegmentList *old, NrdSegmentList *now)
{
    for (guint i = 0; i < old->n; i++) {
        NrdSegment *segment = old->items[i];
        if (nrd_segment_list_find(now, nrd_segment_base(segment)) == segment)
            continue;
        nrd_segment_bury(segment);
        nrd_frame_cache_drop(segment);
        if (!nrd_segment_is_held(segment))
            nrd_segment_let_go(segment);
    }
}

void nrd_relist_install(NrdLog *log, NrdRelist *relist)
{
    bool other_tail = relist->tail != NULL;
    NrdSegment *tail = other_tail ? relist->tail : nrd_log_active(log);

    if (tail == NULL)
        return;
    g_ptr_array_add(relist->segments, nrd_segment_ref(tail));
    NrdSegmentList *now = nrd_segment_list_new((NrdSegment *const *)relist->segments->pdata, relist->segments->len);
    NrdIndexEnd end = nrd_segment_end(tail);
    uint64_t oldest = first_base(relist, nrd_segment_base(tail));
    nrd_log_find_before(log, relist->missing, oldest);
    g_mutex_lock(&log->lock);
    nrd_text_extend_all_locked(log);
    NrdSegmentList *old = log->list;
    GArray *missing = log->missing;
    log->list = now;
    log->missing = g_steal_pointer(&relist->missing);
    nrd_store(&log->oldest, oldest);
    if (other_tail) {
        log->hidden_text = 0;
        log->hidden_end = 0;
        nrd_store(&log->hwm_pos, end.pos);
        nrd_store(&log->next_offset, end.offset);
        nrd_store(&log->hwm, end.offset);
    }
    nrd_text_relist_all_locked(log);
    g_mutex_unlock(&log->lock);
    g_array_unref(missing);
    let_go(old, now);
    nrd_segment_list_unref(old);
    if (other_tail) {
        log->zero_end = 0;
        log->roll_needed = end.offset > nrd_segment_base(tail); /* an empty one takes the next record itself */
        log->tail_is_others = log->roll_needed;
    }
    nrd_log_learn_newest(log);
}
