/* A partition's segmented log: what a partition may do with its files.
 *
 * One log owns one partition folder: its segments, their side indexes and the hwm file (not the consumer's files).
 * Invariants: records below the high watermark are on disk, were read back and checked, and never change; everything
 * above it is either being committed or will be cut before the next append; offsets are never reused for other
 * acknowledged bytes.
 *
 * Threads: commit, roll, trim, expire, reopen and close are called by one thread at a time (the caller holds the
 * partition's committer role, which is the seed's produce lock); reads, stats, text and the removal of detached files
 * come from any thread beside them. No
 * function holds the log's own lock across I/O.
 * Source: the seed "Storage engine", sections Write path to Retention; "Segmented log". */
#ifndef NRD_LOG_LOG_H
#define NRD_LOG_LOG_H

#include "engine/base/macros.h"
#include "engine/log/record.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdLog NrdLog;
typedef struct NrdLogCursor NrdLogCursor;
typedef struct NrdText NrdText;

typedef enum NrdCodec { NRD_CODEC_NONE = 0, NRD_CODEC_ZSTD = 1 } NrdCodec;

/* A good value for prealloc_bytes below (zero_ahead.h has the figures). */
#define NRD_LOG_PREALLOC_BYTES ((uint64_t)64 * 1024)

/* What may change while a log is open. */
typedef struct NrdLogSettings {
    uint64_t segment_bytes; /* roll above this */
    NrdCodec codec;
    int zstd_level;          /* 1-19 */
    int64_t roll_age_ms;     /* roll before the first write that finds the oldest record older; 0: never */
    uint64_t prealloc_bytes; /* zeros written ahead of the active segment's tail, a chunk at a time; 0: none */
} NrdLogSettings;

typedef struct NrdLogOptions {
    int root_fd;        /* the data directory; borrowed, outlives the log */
    const char *dir;    /* the partition's folder beneath it, e.g. "topics/logs/p00000"; copied; it exists */
    const char *topic;  /* for messages; copied */
    uint32_t partition; /* for messages */
    bool read_only;     /* a torn tail is left alone (hidden), nothing is written */
    NrdLogSettings settings;
} NrdLogOptions;

/* A consistent picture, for xattrs and status. */
typedef struct NrdLogStats {
    uint64_t oldest_offset; /* first retained */
    uint64_t hwm;           /* high watermark, exclusive */
    uint64_t next_offset;   /* what the next record gets */
    uint64_t n_segments;
    uint64_t size_bytes;     /* of all segment files */
    uint64_t text_bytes;     /* what `log` holds, [oldest, hwm) */
    int64_t last_commit_ms;  /* commit time of the newest record, 0 when none is known */
    int64_t oldest_first_ms; /* commit time of the oldest record, about: of its frame; 0: not known without looking */
    int64_t oldest_last_ms;  /* time of the last write to the oldest segment, 0 when it holds no record */
    int64_t oldest_file_ms;  /* when its file was written last, by the machine's clock */
    int poison_errno;        /* 0, or the positive errno of the sync that failed */
} NrdLogStats;

/* Opens and recovers. Sealed segments are only stat'ed. Blocks for at most one read of the active segment (see
 * recovery.c for every case). Errors: -EIO and what the disk says; the line in the log names the file. On success the
 * caller owns *ret_log. */
int nrd_log_open(const NrdLogOptions *options, NrdLog **ret_log) NRD_MUST_CHECK;

/* Writes the exact high watermark (unless poisoned or read-only) and closes the files. Later reads answer -ESHUTDOWN.
 * The log stays allocated until nrd_log_free. Returns the first error; the files are closed all the same. */
int nrd_log_close(NrdLog *log) NRD_MUST_CHECK;

/* As a close, but writes nothing: the folder under this name is not the one that was opened. */
void nrd_log_abandon(NrdLog *log);
void nrd_log_free(NrdLog *log); /* takes NULL; closed, and no cursor or text of it left */

/* What a cleanly closed log left in its folder, without opening it: reads hwm, the listing and the headers of side files,
 * no frame. *ret_known is false when only an open can tell (an unclean close, a side file that is missing or does not
 * fit, a poisoned past); *ret_stats is untouched then. Errors: what the disk says. Changes nothing. Blocks. */
int nrd_log_peek(int root_fd, const char *dir, NrdLogStats *ret_stats, bool *ret_known) NRD_MUST_CHECK;

void nrd_log_configure(NrdLog *log, const NrdLogSettings *settings);

/* Commits the batches durably, in order: stamps commit times, writes, syncs, reads back, empties hwm the first time,
 * advances the high watermark. ret_first[i] is the offset of the first record of batches[i].
 * On failure nothing of them is left: the tail above the high watermark is cut and the next commit starts at the same
 * offset. A failed sync, or a cut that fails, poisons the log: -EIO from then on until nrd_log_reopen.
 * Errors: -ENOSPC, -EDQUOT, -EFBIG, -EIO, -ESHUTDOWN. The caller is the only committer. Blocks. */
int nrd_log_commit(NrdLog *log, NrdRecordBatch *const *batches, size_t n_batches, uint64_t *ret_first) NRD_MUST_CHECK;

/* 0, or -EIO when poisoned. Never blocks. */
int nrd_log_check(NrdLog *log) NRD_MUST_CHECK;

/* Closes and recovers in place, which is what clears poison: cuts everything above the high watermark of this process,
 * looks at the disk and not at the page cache, and rebuilds the index. */
int nrd_log_reopen(NrdLog *log) NRD_MUST_CHECK;

/* Seals the active segment, if it holds records, and starts the next one. -EBUSY while records stand above the high
 * watermark (the next commit exposes them); -EROFS, -EIO when poisoned, -ESHUTDOWN; what the disk says. */
int nrd_log_roll(NrdLog *log) NRD_MUST_CHECK;

/* Why segments were deleted. */
typedef enum NrdDeleteReason {
    NRD_DELETE_AGE,
    NRD_DELETE_BYTES,
    NRD_DELETE_TRIM,
    NRD_N_DELETE_REASONS
} NrdDeleteReason;

/* Takes whole sealed segments that lie below offset out of the log, so that nothing of them is served to who opens it
 * from now on; -EINVAL when offset is above the high watermark. Their files are removed by
 * nrd_log_remove_detached. Counts as NRD_DELETE_TRIM. Memory only. */
int nrd_log_trim(NrdLog *log, uint64_t offset, uint64_t *ret_n_detached) NRD_MUST_CHECK;

/* The bounds that retention keeps. */
typedef struct NrdRetention {
    int64_t max_age_ms; /* 0: no bound */
    uint64_t max_bytes; /* 0: no bound */
    int64_t now_ms;     /* Unix milliseconds */
} NrdRetention;

/* Whether nrd_log_expire would do something now. Memory only, any thread; costs a look at the oldest segment, and with
 * max_bytes at the size of each. */
bool nrd_log_has_expired(NrdLog *log, const NrdRetention *retention);

/* The earliest time (Unix milliseconds) at which something may become too old: a lower bound that stays good while records
 * are only added. 0: at once, or files of detached segments are still there. INT64_MAX: never, by age. Memory only, any
 * thread. */
int64_t nrd_log_next_expiry_ms(NrdLog *log, const NrdRetention *retention);

/* The same of a log that is closed, by what was known of it when it was open. Pure. */
bool nrd_log_stats_expired(const NrdLogStats *stats, const NrdRetention *retention);

/* Takes sealed segments out of the log whose last record is older than max_age_ms, and then, oldest first, as many as
 * bring the size down to max_bytes. An active segment whose records are all too old is sealed first and goes too, but
 * only when everything in it is committed. Memory only, but for that roll. *ret_n_detached may be 0. Errors: of the
 * roll; -EROFS, -ESHUTDOWN; poisoned logs lose sealed segments only. */
int nrd_log_expire(NrdLog *log, const NrdRetention *retention, uint64_t *ret_n_detached) NRD_MUST_CHECK;

/* Removes the files of detached segments, oldest first, up to the first one that an open text or raw reader still needs
 * or that cannot be removed: what is on disk is a suffix at every moment. Failures are logged once for each segment,
 * counted each time, and met again by the next call. Any thread; one at a time inside; blocks; never holds what a
 * commit needs. *ret_n_left: segments whose files are still there. Returns the first failure, 0 when only readers hold
 * the rest up. */
int nrd_log_remove_detached(NrdLog *log, uint64_t *ret_n_left) NRD_MUST_CHECK;

/* Whether files of detached segments are still there. Memory only, any thread. */
bool nrd_log_has_detached(NrdLog *log);

void nrd_log_stats(NrdLog *log, NrdLogStats *ret_stats); /* never blocks on the disk */
char *nrd_log_poison_reason(NrdLog *log);                /* one sentence or NULL; g_free */
uint64_t nrd_log_hwm(NrdLog *log);                       /* atomic load */
uint64_t nrd_log_oldest(NrdLog *log);                    /* atomic load */

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
