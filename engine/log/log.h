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
#include "engine/log/frames/record.h"
#include "engine/log/index/index.h"
#include "engine/log/reading/reading.h"
#include "engine/log/state/settings.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdLogOptions {
    int root_fd;        /* the data directory; borrowed, outlives the log */
    const char *dir;    /* the partition's folder beneath it, e.g. "topics/logs/p00000"; copied; it exists */
    const char *topic;  /* for messages; copied */
    uint32_t partition; /* for messages */
    bool read_only;     /* a torn tail is left alone (hidden), nothing is written */
    NrdLogSettings settings;
    char **ret_why; /* NULL, or where a failed open leaves one sentence, or NULL; g_free */
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
    uint64_t oldest_bytes;   /* size of the oldest segment */
    int64_t oldest_file_ms;  /* when its file was written last, by the machine's clock */
    NrdDamage damage;        /* that is known; 0 before anybody met it */
    uint64_t n_unreadable;   /* segments whose last read failed, though their files may be there */
    uint64_t unreadable;     /* the base of the first of them, and */
    int unreadable_errno;    /* why, positive; both only with n_unreadable above 0 */
    uint64_t n_hidden;       /* whole records above the high watermark that an open found, from hwm on */
    int commit_errno;        /* 0, or the positive errno of the last commit, which failed; the next one may succeed */
    int poison_errno;        /* 0, or the positive errno of the sync that failed */
    bool by_others; /* poisoned, but not for the disk: others have taken or replaced a file that is written to */
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

/* Whether the folder of a log that nobody has opened yet looks as if records were lost or hidden: an open tells. Cheap, as
 * above, and as little: what only the records' bytes would tell is not met. */
int nrd_log_peek_trouble(int root_fd, const char *dir, bool *ret_trouble) NRD_MUST_CHECK;

/* The same, and how long the log is in a rendering: known when every segment was measured and has its side file
 * (render_file.h) besides. */
int nrd_log_peek_rendered(int root_fd, const char *dir, const NrdRendering *rendering, NrdLogStats *ret_stats,
                          uint64_t *ret_bytes, bool *ret_known) NRD_MUST_CHECK;

void nrd_log_configure(NrdLog *log, const NrdLogSettings *settings);

/* Commits the batches durably, in order: stamps commit times, writes, syncs, reads back, empties hwm the first time,
 * advances the high watermark. ret_first[i] is the offset of the first record of batches[i].
 * On failure nothing of them is left: the tail above the high watermark is cut and the next commit starts at the same
 * offset. A failed sync, or a cut that fails, poisons the log: -EIO from then on until nrd_log_reopen.
 * Errors: -ENOSPC, -EDQUOT, -EFBIG, -EIO, -ESHUTDOWN. The caller is the only committer. Blocks. */
int nrd_log_commit(NrdLog *log, NrdRecordBatch *const *batches, size_t n_batches, uint64_t *ret_first) NRD_MUST_CHECK;

/* Makes visible what an open found above the high watermark, whole and checked, as the next commit would; nothing to do is
 * success. Errors and threads as of a commit. Blocks. */
int nrd_log_expose(NrdLog *log) NRD_MUST_CHECK;

/* 0, or -EIO when poisoned. Never blocks. */
int nrd_log_check(NrdLog *log) NRD_MUST_CHECK;

/* Closes and recovers in place, which is what clears poison: cuts everything above the high watermark of this process,
 * looks at the disk and not at the page cache, and rebuilds the index. -EIO, told, when the folder cannot be used as it is,
 * or the segment cannot be begun that says which offsets were given out: poison stays then, and nrd_log_why says why, for a
 * person, until the next one. */
int nrd_log_reopen(NrdLog *log) NRD_MUST_CHECK;
const char *nrd_log_why(const NrdLog *log); /* the log's; by the committer */

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

/* Takes sealed segments out of the log whose last record is older than max_age_ms, and then, oldest first, those that
 * lie wholly beyond the newest max_bytes. An active segment whose records are all too old is sealed first and goes too, but
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
GArray *nrd_log_gaps(NrdLog *log);        /* NrdGap that are known, ascending; g_array_unref; memory only */
char *nrd_log_poison_reason(NrdLog *log); /* one sentence or NULL; g_free */
uint64_t nrd_log_hwm(NrdLog *log);        /* atomic load */
uint64_t nrd_log_oldest(NrdLog *log);     /* atomic load */

#endif
