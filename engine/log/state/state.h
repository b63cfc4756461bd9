/* The state of a log and its locks, for the rooms that read it and for those who change it.
 *
 * Every lock of the folder, outermost first; what is higher up may be held while a lower one is taken. Those above the
 * line are held across I/O, those below it never are: commits and all readers wait for them.
 *
 *   text->io_lock          reading/           one read of a text at a time
 *   rendered->io_lock      reading/           as the text's
 *   segment->render_lock   segments/          one rendering of a segment at a time
 *   log->remove_lock       below              one removal of files at a time; never together with the next
 *   segment->load_lock     segments/          one load, repair or seal of an index at a time
 *   ---
 *   log->lock              below
 *   text->lock, rendered->lock  reading/
 *   hot_lock               segments/          the process's descriptors
 *   segment->lock          segments/
 *   cache_lock, map_lock   segments/          with nothing below them, nor one below another; the one of render
 *                          maps tries a render_lock
 *   spare_lock, context_lock  frames/       likewise
 *   ahead_lock             reading/           likewise, but for spare_lock below it
 *
 * No lock covers the sync of a commit, which is the committer's: the one thread at a time that commits, rolls, trims,
 * expires, reopens or closes. Pins (hot_set.h) and holds (segment.h) are counts, not locks: a pin keeps a descriptor, a
 * hold keeps a file; a hold is taken before it is looked whether the segment is still in the log. */
#ifndef NRD_LOG_STATE_H
#define NRD_LOG_STATE_H

#include "engine/log/segments/hwm.h"
#include "engine/log/segments/segment.h"
#include "engine/log/segments/segment_list.h"
#include "engine/log/state/settings.h"

#include <glib.h>

struct NrdLog {
    NrdSegmentHome home;
    char *hwm_path;

    /* the committer's alone */
    bool hwm_emptied;      /* since the open or reopen */
    bool hwm_empty_failed; /* an attempt failed: the next one makes the kernel write anew */
    bool roll_needed;      /* the active segment must not be written to any more */
    bool tail_is_others;   /* nor cut: it is as a reopen found it, and others have put it there; see relist.c */
    uint64_t skip_to;      /* offsets below were given out once, though no record of them is left; see recovery.c */
    uint64_t hidden_end;   /* set at the open: whole records up to here may stand above the high watermark */
    bool told_late_clock;  /* that commit times are far ahead of the clock */
    int commit_error;      /* the failure that was logged last; 0 after a success. Others read it atomically */
    uint64_t zero_end;     /* the active segment's file may hold zeros up to here; see zero_ahead.h */
    bool zero_failed;      /* they could not be written, which was told */
    char *why;             /* what kept the log from being opened or reopened, in words, or NULL */
    int64_t named_ms;      /* when the active segment's name was looked at last; see commit.c */

    /* atomic: written by the committer, read by anybody */
    uint64_t hwm;
    uint64_t oldest;
    uint64_t next_offset;
    uint64_t hwm_pos;  /* in the active segment: what lies above the high watermark begins here */
    int64_t newest_ms; /* greatest commit time: the floor of the next */
    bool poisoned;
    bool was_read; /* by a cursor, since the last commit looked: the next one's frames go into the cache */

    GMutex lock;
    /* guarded by lock */
    NrdSegmentList *list;
    uint64_t hidden_text; /* bytes of text above the high watermark in the active segment */
    int poison_errno;
    bool poison_by_others; /* not for the disk: others have taken or replaced a file that is written to */
    char *poison_reason;
    NrdLogSettings settings;
    GArray *missing;   /* NrdGap: segments that others removed, before the oldest one; ascending; missing.c */
    GArray *forgotten; /* NrdGap, of which nobody is to be told any more */
    GList *texts;      /* NrdText, open ones */
    GList *rendered;   /* NrdRendered, likewise */
    GQueue detached;   /* NrdSegment, a reference each: out of the list, their files still there; oldest first */

    GMutex remove_lock; /* one removal of files at a time; held across I/O, never by a commit */
    /* guarded by remove_lock */
    NrdSegment *remove_failed; /* borrowed from detached: its failure was logged */
    bool dir_unsynced;         /* names were removed since the folder was synced */
    bool dir_failed;           /* the folder could not be opened or synced, which was told */
};

static inline uint64_t nrd_load(const uint64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_SEQ_CST);
}

static inline void nrd_store(uint64_t *to, uint64_t value)
{
    __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}

static inline bool nrd_log_is_closed(const NrdLog *log)
{
    return __atomic_load_n(&log->home.closed, __ATOMIC_ACQUIRE);
}

static inline bool nrd_log_is_poisoned(const NrdLog *log)
{
    return __atomic_load_n(&log->poisoned, __ATOMIC_ACQUIRE);
}

/* A reference on the segments as they are now. */
NrdSegmentList *nrd_log_segments(NrdLog *log);

/* Bytes of text below the high watermark in a segment of the log, or in one that was detached from it. log->lock is
 * held. */
uint64_t nrd_log_visible_text_locked(NrdLog *log, NrdSegment *segment);

/* Bytes of a segment of the log, or of one that was detached from it, up to the end of the last committed frame.
 * log->lock is held. */
uint64_t nrd_log_visible_size_locked(NrdLog *log, NrdSegment *segment);

/* The active segment, borrowed; NULL when none was created yet. The committer only. */
NrdSegment *nrd_log_active(NrdLog *log);

/* -ESHUTDOWN, -EROFS or -EIO (poisoned): whether the committer may change anything. */
int nrd_log_check_writable(const NrdLog *log) NRD_MUST_CHECK;

/* Latches the failure of a sync (or of a cut): logged and counted once. error is negative. */
void nrd_log_poison(NrdLog *log, int error, const char *what);

/* The same when the name of the active segment is gone (-ENOENT) or another file's (-ESTALE). */
void nrd_log_poison_taken_away(NrdLog *log, NrdSegment *active, int error);

/* The same when at path, a file of the log that could not be written, stands what is no regular file; false: it is not so.
 * Blocks. */
bool nrd_log_poison_foreign(NrdLog *log, const char *path, int error);

#endif
