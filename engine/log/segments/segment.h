/* One segment: a file named by its first offset, its index, and the descriptor it is read through.
 *
 * Counted references: the list, cursors and texts each hold one. The descriptor is opened when it is needed and closed
 * when the segment goes cold: a log keeps at most two sealed segments hot, and the process at most a share of its
 * descriptor limit (seed: Retention, "Sealed segments do not pin a file descriptor"). Never under a reader: a pinned
 * segment keeps its descriptor and its index.
 *
 * Locks: load_lock (held across I/O), the process-wide hot lock, segment->lock; engine/log/state/state.h has the order of all. Any
 * thread, but where "the committer" stands. */
#ifndef NRD_LOG_SEGMENT_H
#define NRD_LOG_SEGMENT_H

#include "engine/base/diag.h"
#include "engine/base/macros.h"
#include "engine/log/index/index.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct NrdSegment NrdSegment;

#define NRD_N_HOT 2

/* What the segments of one log share; owned by the log, which outlives them. */
typedef struct NrdSegmentHome {
    int root_fd;
    char *dir;
    char *topic;
    uint32_t partition;
    bool read_only;
    bool closed;                /* atomic; of the log: what is missing now says nothing any more */
    bool abandoned;             /* atomic; dir may name another log's folder by now: nothing is written there */
    uint64_t n_gaps;            /* atomic; gaps that were ever met: 0 spares everybody the look for them */
    uint64_t n_unreadable;      /* atomic; times that a segment began to be unreadable: likewise */
    uint64_t text_version;      /* atomic; changes whenever text positions of a segment may have moved */
    NrdSegment *hot[NRD_N_HOT]; /* guarded by the hot lock; latest first, no references */
} NrdSegmentHome;

/* Where something happened in this log; offset may be NRD_NO_OFFSET. */
NrdPlace nrd_segment_home_place(const NrdSegmentHome *home, int64_t offset);

/* A segment whose file has size_bytes bytes; nrd_segment_open_sealed or nrd_segment_set_index makes it usable. One
 * reference, the caller's. No I/O. */
NrdSegment *nrd_segment_new(NrdSegmentHome *home, uint64_t base, uint64_t size_bytes);
NrdSegment *nrd_segment_ref(NrdSegment *segment);
void nrd_segment_unref(NrdSegment *segment); /* takes NULL */

uint64_t nrd_segment_base(const NrdSegment *segment);
char *nrd_segment_path(const NrdSegment *segment);        /* beneath root_fd; g_free */
char *nrd_segment_index_path(const NrdSegment *segment);  /* of its side file; g_free */
char *nrd_segment_render_path(const NrdSegment *segment); /* of the other one (render_file.h); g_free */

/* Keeps descriptor and index until the unpin. Success without a descriptor, -1: the file of a sealed segment is gone, and its
 * index, in memory, says of all its records that they are lost. May block. */
int nrd_segment_pin(NrdSegment *segment, int *ret_fd) NRD_MUST_CHECK;
void nrd_segment_unpin(NrdSegment *segment);

/* Closes the descriptor as soon as nobody has it pinned; the next pin opens the file anew. */
void nrd_segment_drop_fd(NrdSegment *segment);

/* Its files are about to be removed: no side file is written any more, so that none outlives its segment. Waits for who
 * writes one. */
void nrd_segment_bury(NrdSegment *segment);

/* Its file is gone: gives back the descriptor, as above, and the mapping of the side file, so that the disk gets its space
 * back while somebody still has the segment. */
void nrd_segment_let_go(NrdSegment *segment);

/* A hold is a reader's claim on the file: while there is one, a segment that retention has taken out of the log keeps
 * its name and its bytes, and so do all later ones, since files go in order. Any thread; memory only. */
void nrd_segment_hold(NrdSegment *segment);
void nrd_segment_release(NrdSegment *segment);
bool nrd_segment_is_held(NrdSegment *segment);

/* The active segment only, by the committer: takes over the index and the size; changes its version. */
void nrd_segment_set_index(NrdSegment *segment, NrdIndex *index, uint64_t size_bytes);
/* The active segment only, by the committer: one more committed frame. */
void nrd_segment_add_frame(NrdSegment *segment, uint64_t size_bytes, uint32_t n_records, uint64_t text_bytes,
                           int64_t commit_ms);

/* The active segment only, by the committer: the offsets up to end_offset are lost, in no bytes. That counts as known damage
 * from now on, and is not logged. */
void nrd_segment_add_gap(NrdSegment *segment, uint64_t end_offset);

/* Turns the active segment into a sealed one that ends at end_offset, and writes its side file (a failure is only
 * logged). May block. */
void nrd_segment_seal(NrdSegment *segment, uint64_t end_offset);

/* The active segment of a log that is being closed: leaves its sums in a side file, so that they are known without an
 * open. Not complete (records are hidden above the high watermark): removes what an earlier close left. Failures are
 * only logged. May block. */
void nrd_segment_write_closed(NrdSegment *segment, bool complete);

/* A sealed segment at open: takes its sums from the side file, or scans it and writes one. A segment that cannot be
 * read keeps unknown sums; the reads that need it will fail. May block. */
void nrd_segment_open_sealed(NrdSegment *segment, uint64_t end_offset);

/* Snapshots; never block on the disk. */
NrdIndexEnd nrd_segment_end(NrdSegment *segment);
bool nrd_segment_end_is_known(NrdSegment *segment); /* text and time too; not so after an open that could not read */
uint64_t nrd_segment_size_bytes(NrdSegment *segment);
/* Time of the last write: the greatest commit time, or the file's when no record of it can be read; 0 when it is empty. */
int64_t nrd_segment_last_ms(NrdSegment *segment);
uint64_t nrd_segment_version(NrdSegment *segment); /* of its index: bytes read under another one may be stale */

/* Looks an offset or a text position up; pinned. *ret_version goes to nrd_segment_repair. May load the index. */
int nrd_segment_find_offset(NrdSegment *segment, uint64_t offset, NrdIndexPlace *ret_place,
                            uint64_t *ret_version) NRD_MUST_CHECK;
/* *ret_found is false when the segment's text ends before text_pos. */
int nrd_segment_find_text(NrdSegment *segment, uint64_t text_pos, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found) NRD_MUST_CHECK;

/* *ret_found is false when every record of the segment is older than time_ms. */
int nrd_segment_find_time(NrdSegment *segment, int64_t time_ms, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found) NRD_MUST_CHECK;

/* Makes the end of a segment known that an open could not read; 0 when it is known already. May block. */
int nrd_segment_learn_end(NrdSegment *segment) NRD_MUST_CHECK;

/* A read met something that does not fit the index of that version: scans the segment and rebuilds the index, so that
 * damage becomes a gap; new gaps are counted and logged, once. Pinned. May block for a read of the segment. */
int nrd_segment_repair(NrdSegment *segment, uint64_t seen_version) NRD_MUST_CHECK;

/* Tells how a read of the segment went: a failure (negative) is logged once, and known, until a read succeeds (0). Too few
 * descriptors or too little memory say nothing of the segment. */
void nrd_segment_report_read(NrdSegment *segment, int error);

/* Whether any damage is known in it. Memory only. */
bool nrd_segment_has_gaps(NrdSegment *segment);

/* The failure of the last read, negative, or 0. Memory only. */
int nrd_segment_read_error(NrdSegment *segment);

/* Which file it is: noted when the folder was listed. The active segment's is noted when it is opened. */
void nrd_segment_set_file(NrdSegment *segment, const struct stat *st);

/* Whether that is its file. Memory only. */
bool nrd_segment_is_file(NrdSegment *segment, const struct stat *st);

/* Whether that is still its file, unread and undamaged as far as anybody knows. Memory only. */
bool nrd_segment_is_as_known(NrdSegment *segment, const struct stat *st);

/* Whether the file that fd, the pinned active segment's, belongs to still stands in the folder: -ENOENT when it was removed,
 * -ESTALE when its name belongs to another file. by_name: looks there even when the file has a name, which costs more than a
 * look at the file. */
int nrd_segment_check_place(NrdSegment *segment, int fd, bool by_name) NRD_MUST_CHECK;

/* The file of a sealed segment is gone though nobody of this log has removed it: its records are lost, which becomes known
 * damage, and is logged and counted once. False: that cannot be said (its folder is gone as well, the log is closed, the
 * segment is active or its file was removed by retention). Takes load_lock. Blocks. */
bool nrd_segment_lose(NrdSegment *segment);
bool nrd_segment_is_gone(NrdSegment *segment); /* memory only */

/* Counts and logs those gaps (NrdGap) that were not known yet. */
void nrd_segment_report_gaps(NrdSegment *segment, const GArray *gaps);

/* Adds what is known of this segment; memory only. */
void nrd_segment_add_damage(NrdSegment *segment, NrdDamage *damage);

/* Appends what is known of it to gaps (NrdGap), in whatever order; memory only. */
void nrd_segment_copy_gaps(NrdSegment *segment, GArray *gaps);

#endif
