/* Reading a log: record by record, as text, by time, and as segment files. Any thread, beside the committer. Contract of
 * the log itself: engine/log/log.h, which includes this. */
#ifndef NRD_LOG_READING_H
#define NRD_LOG_READING_H

#include "engine/base/macros.h"
#include "engine/base/rendering.h"
#include "engine/log/frames/record.h"
#include "engine/log/state/settings.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct NrdLogCursor NrdLogCursor;
typedef struct NrdText NrdText;

/* A cursor reads records by offset and keeps the frame it is in, so that reading in order costs one disk read per
 * frame. One thread at a time per cursor; freed before its log. */
NrdLogCursor *nrd_log_cursor_new(NrdLog *log);
void nrd_log_cursor_free(NrdLogCursor *cursor);  /* takes NULL */
void nrd_log_cursor_rest(NrdLogCursor *cursor);  /* gives back what it keeps in memory, but knows where it is */
void nrd_log_cursor_reset(NrdLogCursor *cursor); /* and forgets where it is; it may be used again */

/* Reads the record at offset. The view points into the cursor and is valid until its next use.
 * Errors: -ENOENT below the oldest or at or above the high watermark; -EBADMSG when its frame is damaged or lost, then
 * *ret_next_offset is the next offset (above `offset`, at most the high watermark) that is worth trying; -EIO when the
 * disk fails (try again later; not a gap); -ESHUTDOWN after close. Damage is counted and logged here, once per frame. */
int nrd_log_cursor_read(NrdLogCursor *cursor, uint64_t offset, NrdRecordView *ret_view,
                        uint64_t *ret_next_offset) NRD_MUST_CHECK;

/* Whether the record is taken; the view is valid until it returns. */
typedef bool (*NrdRecordFn)(void *user_data, const NrdRecordView *view);

/* The same of n records from offset on, each given to take in its order, up to the first that is not taken or cannot be
 * read: how many were taken. *ret_error is 0, or what the read of the record behind them fails with. take is called on
 * this thread and does not use the cursor. */
uint32_t nrd_log_cursor_read_run(NrdLogCursor *cursor, uint64_t offset, uint32_t n, NrdRecordFn take, void *user_data,
                                 uint64_t *ret_next_offset, int *ret_error);

/* The text of the log (`log`): every committed payload followed by a newline, from the oldest record retained when the
 * text was opened. Positions are stable while it is open, whatever retention does; it grows with the high watermark.
 * Any thread; reads of one text are serialised inside. A text that was read to its end keeps no memory and no
 * descriptor. */
int nrd_text_open(NrdLog *log, NrdText **ret_text) NRD_MUST_CHECK;

/* The same, from the record at `offset` on (the next one that can be read, when it is lost); position 0 is its first
 * byte. -ENOENT below the oldest or above the high watermark; the watermark itself is an empty text that grows. Costs a
 * seek. Blocks. */
int nrd_text_open_from(NrdLog *log, uint64_t offset, NrdText **ret_text) NRD_MUST_CHECK;
void nrd_text_close(NrdText *text);    /* takes NULL */
uint64_t nrd_text_size(NrdText *text); /* bytes readable now; never blocks on the disk */

/* Copies up to size bytes at pos; *ret_size is 0 at the end. Damaged frames are passed over, counted and logged.
 * Costs O(log segments + log index + one gap) to seek. Errors: -ENOENT when retention has taken the position away and
 * the reader was well past it (a megabyte, or half a minute without a read); -EIO, -ESHUTDOWN. */
int nrd_text_read(NrdText *text, uint64_t pos, void *buf, size_t size, size_t *ret_size) NRD_MUST_CHECK;

/* The text in a rendering (base/rendering.h) that the log knows nothing of, but for how long its records are in it. The
 * lengths are worked out by reading the segments, once: they are remembered with each segment, and of sealed ones in side
 * files (render_file.h), so the first question after records were written costs a read of these, and the first ever one
 * of the whole log. */
typedef struct NrdRendered NrdRendered;
typedef struct NrdRenderedWant {
    const NrdRendering *rendering;
    bool (*give_up)(void *data); /* asked now and then while lengths are worked out; any thread; NULL: never */
    void *data;
} NrdRenderedWant;

/* As nrd_text_open. Memory only. -ESHUTDOWN. */
int nrd_rendered_open(NrdLog *log, const NrdRenderedWant *want, NrdRendered **ret_rendered) NRD_MUST_CHECK;
void nrd_rendered_close(NrdRendered *rendered); /* takes NULL */

/* Bytes readable now. May block for reads of whole segments. -EIO, -ENOMEM, -ESHUTDOWN, -ECANCELED (give_up said so). */
int nrd_rendered_size(NrdRendered *rendered, uint64_t *ret_size) NRD_MUST_CHECK;

/* Whether a read at pos would work out the length of whole segments first. A hint; memory only. */
bool nrd_rendered_waits(NrdRendered *rendered, uint64_t pos);

/* As nrd_text_read; works out the lengths of what lies before pos, where they are not known. */
int nrd_rendered_read(NrdRendered *rendered, uint64_t pos, void *buf, size_t size, size_t *ret_size) NRD_MUST_CHECK;

/* The first offset whose commit time is at or after time_ms (Unix milliseconds): the oldest when all are, the high
 * watermark when none is yet. Commit times never decrease, so it is a search over segments, index and one gap.
 * Errors: -EIO, -ESHUTDOWN. Any thread. Blocks. */
int nrd_log_find_time(NrdLog *log, int64_t time_ms, uint64_t *ret_offset) NRD_MUST_CHECK;

/* A segment as the outside sees it. */
typedef struct NrdSegmentInfo {
    uint64_t base;
    uint64_t size_bytes; /* up to the end of the last committed frame */
    int64_t last_ms;     /* commit time of its newest record, 0 when it has none */
    bool sealed;
} NrdSegmentInfo;

/* All retained segments, oldest first (NrdSegmentInfo; g_array_unref). Never blocks on the disk. */
GArray *nrd_log_segment_infos(NrdLog *log);

/* The file bytes of one segment, up to the last committed frame; grows while the segment is the active one. What
 * retention detaches meanwhile stays readable. Any thread. */
typedef struct NrdRaw NrdRaw;
int nrd_raw_open(NrdLog *log, uint64_t base, NrdRaw **ret_raw) NRD_MUST_CHECK; /* -ENOENT, -ESHUTDOWN */
void nrd_raw_close(NrdRaw *raw);                                               /* takes NULL */
void nrd_raw_info(NrdRaw *raw, NrdSegmentInfo *ret_info);                      /* never blocks on the disk */
int nrd_raw_read(NrdRaw *raw, uint64_t pos, void *buf, size_t size, size_t *ret_size) NRD_MUST_CHECK;

#endif
