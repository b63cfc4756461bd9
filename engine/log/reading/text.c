/* The log as text; see log.h.
 *
 * A text keeps a reference on every segment from its start on, also on those that retention has detached since, so its
 * positions never move for that. A position is found through the segments' sums (text_span.c), then through the
 * segment's index, then by a walk over one gap of it. Reading in order goes from frame to frame; what follows is read
 * meanwhile by another thread (frame_ahead.h), until the reader has come to the end.
 *
 * Damage: see cursor.c. When a scan turns a frame into a gap, its text is gone and what follows moves up; the home's
 * text_version tells every text to look its place up again. */
#include "engine/log/reading/text_private.h"

#include <errno.h>
#include <string.h>

#define AHEAD_BYTES ((size_t)256 * 1024)
#define SEEK_AHEAD_MAX_BYTES ((uint64_t)64 * 1024)
#define MAX_ATTEMPTS 4
#define IN_ORDER 2 /* reads that went on from each other: a look at a place takes no more */

static NrdText *text_new(NrdLog *log)
{
    NrdText *text = g_new0(NrdText, 1);

    text->log = log;
    text->parts = g_array_new(FALSE, FALSE, sizeof(NrdTextPart));
    g_mutex_init(&text->lock);
    g_mutex_init(&text->io_lock);
    return text;
}

static void text_free(NrdText *text)
{
    nrd_frame_ahead_free(text->frames);
    nrd_frame_reader_clear(&text->reader);
    nrd_segment_unref(text->segment);
    if (text->list != NULL)
        nrd_text_end_span(text);
    else
        g_array_unref(text->parts);
    g_mutex_clear(&text->lock);
    g_mutex_clear(&text->io_lock);
    g_free(text);
}

/* Takes the segments from that of text->from on, and makes the text known. log->lock is held. */
static void begin_locked(NrdText *text)
{
    NrdLog *log = text->log;
    NrdSegment *first = nrd_segment_list_find(log->list, text->from);

    text->from_start = first == NULL || nrd_segment_base(first) == text->from;
    text->start_version = UINT64_MAX;
    nrd_text_begin_span_locked(text);
    log->texts = g_list_prepend(log->texts, text);
}

int nrd_text_open(NrdLog *log, NrdText **ret_text)
{
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    NrdText *text = text_new(log);
    g_mutex_lock(&log->lock);
    text->from = nrd_load(&log->oldest);
    begin_locked(text);
    g_mutex_unlock(&log->lock);
    *ret_text = text;
    return 0;
}

int nrd_text_open_from(NrdLog *log, uint64_t offset, NrdText **ret_text)
{
    if (nrd_log_is_closed(log))
        return -ESHUTDOWN;
    NrdText *text = text_new(log);
    text->from = offset;
    g_mutex_lock(&log->lock);
    int r = offset < nrd_load(&log->oldest) || offset > nrd_load(&log->hwm) ? -ENOENT : 0;
    if (r == 0)
        begin_locked(text);
    g_mutex_unlock(&log->lock);
    if (r < 0) {
        text_free(text);
        return r;
    }
    g_mutex_lock(&text->io_lock);
    r = nrd_text_settle_start(text);
    g_mutex_unlock(&text->io_lock);
    if (r == 0 && nrd_log_is_closed(log))
        r = -ESHUTDOWN;
    if (r < 0) {
        nrd_text_close(text);
        return r;
    }
    *ret_text = text;
    return 0;
}

void nrd_text_close(NrdText *text)
{
    if (text == NULL)
        return;
    g_mutex_lock(&text->log->lock);
    text->log->texts = g_list_remove(text->log->texts, text);
    g_mutex_unlock(&text->log->lock);
    text_free(text);
}

uint64_t nrd_text_size(NrdText *text)
{
    return nrd_text_find(text, UINT64_MAX).total; /* no text is that long: no segment to give back */
}

/* Steps to the next record of the loaded frame. */
static bool next_record(NrdText *text)
{
    NrdRecordView view;

    if (text->n_left == 0)
        return false;
    nrd_frame_reader_next_record(&text->reader, &text->record_pos, &view);
    text->n_left--;
    text->rest = view.payload;
    text->rest_size = view.payload_size;
    text->newline = true;
    return true;
}

/* Begins with the frame that was just loaded; records at or above end_offset do not count. */
static void begin_frame(NrdText *text, uint64_t end_offset)
{
    const NrdFrameHeader *h = &text->reader.header;

    text->record_pos = 0;
    text->n_left = MIN((uint64_t)h->n_records, end_offset - h->offset);
    text->rest_size = 0;
    text->newline = false;
}

/* Passes over `skip` bytes of the loaded frame's text. */
static void skip_text(NrdText *text, uint64_t skip)
{
    while (next_record(text)) {
        if (skip <= text->rest_size) {
            text->rest += skip;
            text->rest_size -= (size_t)skip;
            return;
        }
        skip -= text->rest_size + 1;
    }
}

/* Walks from an index entry to the frame that holds the segment's text position `local`. */
static int walk_to(NrdText *text, int fd, const NrdIndexPlace *place, uint64_t local)
{
    uint64_t end_offset = nrd_segment_end(text->segment).offset;
    uint64_t at = place->text_pos;
    NrdFrameWant want = { .fd = fd,
                          .pos = place->pos,
                          .limit_pos = place->end_pos,
                          .offset = place->offset,
                          .end_offset = end_offset,
                          .ahead_bytes = (size_t)MIN(place->limit_pos - place->pos, SEEK_AHEAD_MAX_BYTES) };

    while (want.pos < place->limit_pos) {
        int r = nrd_frame_reader_load(&text->reader, &want);
        if (r < 0)
            return r;
        if (local - at < text->reader.summary.text_bytes) {
            begin_frame(text, end_offset);
            skip_text(text, local - at);
            return 0;
        }
        at += text->reader.summary.text_bytes;
        want.pos = text->reader.end_pos;
        want.offset += text->reader.header.n_records;
    }
    return -EBADMSG;
}

/* One lookup; *ret_again: the index has changed, or damage was met and mended in it. Look again from the start. */
static int look_up(NrdText *text, const NrdTextFound *found, bool reread, bool *ret_again)
{
    NrdIndexPlace place;
    uint64_t version;
    bool there = false;
    int fd;

    *ret_again = false;
    int r = nrd_segment_pin(found->segment, &fd);
    if (r < 0)
        return r;
    r = nrd_segment_find_text(found->segment, found->local, &place, &version, &there);
    if (r == 0) {
        if (text->segment != found->segment || text->segment_version != version)
            nrd_frame_reader_forget(&text->reader);
        if (text->segment != found->segment) {
            nrd_segment_unref(text->segment);
            text->segment = nrd_segment_ref(found->segment);
        }
        text->segment_version = version;
    }
    if (r == 0 && !there) {
        *ret_again = true; /* the segment's text has become shorter: another segment holds the position now */
    } else if (r == 0) {
        r = walk_to(text, fd, &place, found->local);
        if (r == -EBADMSG) {
            nrd_frame_reader_forget(&text->reader);
            r = reread ? nrd_segment_repair(found->segment, version) : 0;
            *ret_again = r == 0;
        }
    }
    nrd_segment_report_read(found->segment, r);
    nrd_segment_unpin(found->segment);
    return r;
}

/* Looks pos up and makes the place live. *ret_total: the text's size; no place when pos is not below it. -ENOENT when
 * it was given up. */
static int seek(NrdText *text, uint64_t pos, uint64_t *ret_total)
{
    bool again = true;

    text->live = false;
    text->pos = pos;
    for (int i = 0; again; i++) {
        int r = nrd_text_settle_start(text);
        if (r < 0)
            return r;
        NrdTextFound found = nrd_text_find(text, pos);
        *ret_total = found.total;
        /* should the text have moved since its start was settled, that comes first again */
        bool settled = nrd_text_start_is_settled(text, found.version);
        if (settled && found.segment == NULL)
            return found.gone ? -ENOENT : 0;
        if (i == MAX_ATTEMPTS)
            r = -EIO; /* the scan finds nothing wrong, and yet reading goes wrong: the disk is failing */
        else if (settled)
            r = look_up(text, &found, i > 0, &again);
        nrd_text_found_done(&found);
        text->text_version = found.version;
        if (r < 0)
            return r == -ENOENT ? -EIO : r; /* a file that is missing is not a position that was given up */
    }
    text->live = true;
    return 0;
}

/* Gives the memory back that reading on would need: a tail that waits holds nothing. */
static void rest_at_end(NrdText *text)
{
    nrd_frame_ahead_rest(text->frames);
    text->live = false;
    nrd_frame_reader_clear(&text->reader);
    nrd_segment_unref(text->segment);
    text->segment = NULL;
}

/* It lies ready, or is read now. Pinned. */
static bool take_or_load(NrdText *text, const NrdFrameWant *want)
{
    NrdFrameSource source = { text->log, text->segment, text->segment_version };

    if (want->fd >= 0 && nrd_frame_ahead_take(text->frames, &source, want, &text->reader))
        return true;
    return nrd_frame_reader_load(&text->reader, want) == 0;
}

/* The next frame of the same segment; anything out of the ordinary is left to a lookup. */
static bool load_next(NrdText *text)
{
    NrdFrameReader *reader = &text->reader;
    NrdIndexEnd end = nrd_segment_end(text->segment);
    NrdFrameWant want = { .pos = reader->end_pos,
                          .limit_pos = end.pos,
                          .offset = reader->header.offset + reader->header.n_records,
                          .end_offset = end.offset,
                          .ahead_bytes = AHEAD_BYTES };

    if (want.offset >= end.offset || nrd_segment_version(text->segment) != text->segment_version)
        return false;
    if (nrd_segment_pin(text->segment, &want.fd) < 0)
        return false;
    bool loaded = take_or_load(text, &want);
    nrd_segment_unpin(text->segment);
    if (loaded)
        begin_frame(text, end.offset);
    return loaded;
}

/* Copies out of the current frame and those that follow it; returns the bytes. Leaves the place not live when a lookup
 * has to tell where the text goes on. */
static size_t copy(NrdText *text, uint8_t *to, size_t size)
{
    uint8_t *p = to;
    uint8_t *end = to + size;

    while (p < end) {
        size_t n = MIN(text->rest_size, (size_t)(end - p));
        if (n > 0) {
            memcpy(p, text->rest, n);
            p += n;
            text->rest += n;
            text->rest_size -= n;
        }
        if (p < end && text->newline) {
            *p++ = '\n';
            text->newline = false;
        }
        if (p < end && !next_record(text) && !load_next(text)) {
            text->live = false;
            break;
        }
    }
    text->pos += (uint64_t)(p - to);
    return (size_t)(p - to);
}

static int read_locked(NrdText *text, uint64_t pos, uint8_t *buf, size_t size, size_t *ret_size)
{
    size_t n = 0;

    while (n < size) {
        uint64_t total = 0;
        bool live = text->live && text->pos == pos + n && text->text_version == nrd_load(&text->log->home.text_version);
        int r = 0;
        if (live)
            total = nrd_text_size(text);
        else
            r = seek(text, pos + n, &total);
        if (r < 0 && n == 0)
            return r;
        if (r < 0 || pos + n >= total)
            break; /* what there is first; the next read meets the failure again */
        n += copy(text, buf + n, (size_t)MIN((uint64_t)(size - n), total - pos - n));
    }
    *ret_size = n;
    return 0;
}

static void after_read(NrdText *text, uint64_t pos, size_t n)
{
    uint64_t total = nrd_text_size(text);

    if (pos + n > total)
        return; /* out of range: nobody has come by here */
    if (pos + n == total)
        rest_at_end(text);
    nrd_text_passed(text, pos + n);
}

/* What a reader in order will want, while he looks at what he got. */
static void read_ahead(NrdText *text, uint64_t pos, size_t n)
{
    NrdFrameSource source = { text->log, text->segment, text->segment_version };

    text->n_in_order = text->next == pos ? text->n_in_order + 1 : 0;
    text->next = pos + n;
    if (text->n_in_order >= IN_ORDER && text->live && text->reader.loaded)
        nrd_frame_ahead_ask(&text->frames, &source, &text->reader);
}

int nrd_text_read(NrdText *text, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    size_t n = 0;

    if (nrd_log_is_closed(text->log))
        return -ESHUTDOWN;
    g_mutex_lock(&text->io_lock);
    int r = read_locked(text, pos, buf, size, &n);
    if (r == 0) {
        after_read(text, pos, n);
        read_ahead(text, pos, n);
    }
    g_mutex_unlock(&text->io_lock);
    if (nrd_log_is_closed(text->log))
        return -ESHUTDOWN;
    if (r < 0)
        return r == -ENOMEM || r == -ENOENT ? r : -EIO;
    *ret_size = n;
    return 0;
}
