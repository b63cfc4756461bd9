/* The log in a rendering; see reading.h. A position is found through the parts' sums (rendered_span.c), then through the
 * part's map (segment_render.h), then by rendering one gap of it. Reading in order goes from record to record. */
#include "engine/log/reading/rendered_private.h"

#include "engine/log/segments/segment_render.h"

#include <errno.h>
#include <string.h>

/* A line's buffer that is longer than this is not kept. */
#define LINE_KEPT_BYTES ((gsize)256 * 1024)
#define MAX_ATTEMPTS 4

int nrd_rendered_open(NrdLog *log, const NrdRenderedWant *want, NrdRendered **ret_rendered)
{
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    NrdRendered *rendered = g_new0(NrdRendered, 1);
    rendered->job = (NrdRenderJob){ log, *want };
    rendered->parts = g_array_new(FALSE, FALSE, sizeof(NrdRenderedPart));
    rendered->line = g_string_new(NULL);
    g_mutex_init(&rendered->lock);
    g_mutex_init(&rendered->io_lock);
    g_mutex_lock(&log->lock);
    nrd_rendered_begin_span_locked(rendered);
    log->rendered = g_list_prepend(log->rendered, rendered);
    g_mutex_unlock(&log->lock);
    *ret_rendered = rendered;
    return 0;
}

/* Gives the memory back that reading on would need: a tail that waits holds nothing. */
static void rest(NrdRendered *rendered)
{
    rendered->live = false;
    nrd_frame_run_clear(&rendered->run);
    nrd_segment_unref(rendered->segment);
    rendered->segment = NULL;
    if (rendered->line->allocated_len > LINE_KEPT_BYTES) {
        g_string_free(rendered->line, TRUE);
        rendered->line = g_string_new(NULL);
    }
    g_string_truncate(rendered->line, 0);
    rendered->line_pos = 0;
}

void nrd_rendered_close(NrdRendered *rendered)
{
    if (rendered == NULL)
        return;
    NrdLog *log = rendered->job.log;
    g_mutex_lock(&log->lock);
    log->rendered = g_list_remove(log->rendered, rendered);
    g_mutex_unlock(&log->lock);
    rest(rendered);
    nrd_rendered_end_span(rendered);
    g_string_free(rendered->line, TRUE);
    g_mutex_clear(&rendered->lock);
    g_mutex_clear(&rendered->io_lock);
    g_free(rendered);
}

int nrd_rendered_size(NrdRendered *rendered, uint64_t *ret_size)
{
    NrdRenderedFound found;

    g_mutex_lock(&rendered->io_lock);
    int r = nrd_rendered_find(rendered, UINT64_MAX, &found); /* no text is that long: no segment to give back */
    g_mutex_unlock(&rendered->io_lock);
    if (nrd_log_is_closed(rendered->job.log))
        return -ESHUTDOWN;
    if (r < 0)
        return r;
    *ret_size = found.total;
    return 0;
}

/* The records of the segment that count. */
static uint64_t limit_of(const NrdRendered *rendered)
{
    return MIN(nrd_load(&rendered->job.log->hwm), nrd_segment_end(rendered->segment).offset);
}

/* Renders the next record into the line; false when the segment has no more of them, or for the error *ret_error. */
static bool next_line(NrdRendered *rendered, int *ret_error)
{
    NrdRecordView view;
    bool found = false;
    int r = nrd_frame_run_read(&rendered->run, rendered->segment, rendered->offset, limit_of(rendered), &view, &found);

    *ret_error = r;
    if (r < 0 || !found)
        return false;
    NrdRenderRecord record = nrd_render_record(&rendered->job, &view);
    g_string_truncate(rendered->line, 0);
    rendered->job.want.rendering->append(rendered->line, &record);
    rendered->line_pos = 0;
    rendered->offset = view.offset + 1;
    return true;
}

/* Goes from a point to the record that holds the segment's position `local`; -EBADMSG when it is not reached. */
static int walk_to(NrdRendered *rendered, const NrdRenderPoint *point, uint64_t local)
{
    uint64_t at = point->at;
    NrdRecordView view;
    bool found = true;
    int r = 0;

    rendered->offset = point->offset;
    while (true) {
        r = nrd_frame_run_read(&rendered->run, rendered->segment, rendered->offset, limit_of(rendered), &view, &found);
        if (r < 0 || !found)
            return r < 0 ? r : -EBADMSG;
        NrdRenderRecord record = nrd_render_record(&rendered->job, &view);
        uint64_t length = rendered->job.want.rendering->length(&record);
        if (local - at < length)
            break;
        at += length;
        rendered->offset = view.offset + 1;
    }
    if (!next_line(rendered, &r)) /* the same record, in full */
        return r < 0 ? r : -EBADMSG;
    rendered->line_pos = (gsize)(local - at);
    return 0;
}

static int enter(NrdRendered *rendered, const NrdRenderedFound *found)
{
    NrdRenderPoint point;

    if (rendered->segment != found->segment) {
        nrd_segment_unref(rendered->segment);
        rendered->segment = nrd_segment_ref(found->segment);
    }
    int r = nrd_render_find(&rendered->job, found->segment, found->local, limit_of(rendered), &point);
    return r < 0 ? r : walk_to(rendered, &point, found->local);
}

/* Looks pos up and makes the place live; *ret_end: pos is not below the text's size. */
static int seek(NrdRendered *rendered, uint64_t pos, bool *ret_end)
{
    rendered->live = false;
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        NrdRenderedFound found;
        int r = nrd_rendered_find(rendered, pos, &found);
        if (r < 0)
            return r;
        *ret_end = found.segment == NULL;
        if (found.segment == NULL)
            return 0;
        r = enter(rendered, &found);
        bool moved = found.version != nrd_load(&rendered->job.log->home.text_version);
        if (r == -EBADMSG && !moved) { /* a map that leads astray, or a wrong length; or the segment is odd */
            nrd_segment_render_reset(found.segment);
            nrd_rendered_forget_lengths(rendered);
        }
        nrd_rendered_found_done(&found);
        if (r == 0 && !moved) {
            rendered->live = true;
            rendered->pos = pos;
            rendered->live_version = found.version;
        }
        if (r != -EBADMSG && (r < 0 || !moved))
            return r;
    }
    return -EIO; /* what was measured is never what is read: the disk is failing */
}

/* Copies out of the current line and those that follow it. Leaves the place not live when a look-up has to tell where the
 * text goes on. */
static size_t copy(NrdRendered *rendered, uint8_t *to, size_t size)
{
    size_t done = 0;
    int error = 0;

    while (done < size) {
        size_t n = MIN(rendered->line->len - rendered->line_pos, size - done);
        memcpy(to + done, rendered->line->str + rendered->line_pos, n);
        done += n;
        rendered->line_pos += n;
        if (done < size && !next_line(rendered, &error)) {
            rendered->live = false; /* the look-up meets an error again */
            break;
        }
    }
    rendered->pos += done;
    return done;
}

static int read_locked(NrdRendered *rendered, uint64_t pos, uint8_t *buf, size_t size, size_t *ret_size, bool *ret_end)
{
    size_t n = 0;

    while (n < size && !*ret_end) {
        uint64_t version = nrd_load(&rendered->job.log->home.text_version);
        bool live = rendered->live && rendered->pos == pos + n && rendered->live_version == version;
        int r = live ? 0 : seek(rendered, pos + n, ret_end);
        if (r < 0 && n == 0)
            return r;
        if (r < 0)
            break; /* what there is first; the next read meets the failure again */
        if (!*ret_end)
            n += copy(rendered, buf + n, size - n);
    }
    *ret_size = n;
    return 0;
}

int nrd_rendered_read(NrdRendered *rendered, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    NrdLog *log = rendered->job.log;
    bool end = false;
    size_t n = 0;

    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    g_mutex_lock(&rendered->io_lock);
    int r = read_locked(rendered, pos, buf, size, &n, &end);
    if (end || r < 0)
        rest(rendered);
    if (r == 0 && n > 0)
        nrd_rendered_passed(rendered, pos + n);
    g_mutex_unlock(&rendered->io_lock);
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    if (r < 0)
        return r == -ENOMEM || r == -ENOENT || r == -ECANCELED ? r : -EIO;
    *ret_size = n;
    return 0;
}
