/* What the files of engine/log/ itself, which open a log and change it, have from each other. */
#ifndef NRD_LOG_LOG_PRIVATE_H
#define NRD_LOG_LOG_PRIVATE_H

#include "engine/log/log.h"
#include "engine/log/state/state.h"

/* recovery.c: fills an empty log from its folder. */
int nrd_log_recover(NrdLog *log) NRD_MUST_CHECK;

/* recovery.c: syncs the segment, drops its clean pages and leaves it to the next read to look at the disk. */
int nrd_log_sync_and_drop(NrdLog *log, int fd) NRD_MUST_CHECK;

/* recovery.c: takes over what a scan found in the active segment; hwm is the boundary. */
int nrd_log_adopt_active(NrdLog *log, NrdSegment *active, int fd, NrdIndex *index, uint64_t size_bytes,
                         uint64_t hwm) NRD_MUST_CHECK;

/* roll.c: makes an active segment that the next frame may be written to. */
int nrd_log_prepare_active(NrdLog *log) NRD_MUST_CHECK;

/* roll.c: seals the active segment and starts the next; everything in it is committed. */
int nrd_log_roll_active(NrdLog *log) NRD_MUST_CHECK;

/* retention.c: removes files of detached segments while the log is being closed: a few at most, and it is no failure
 * when some stay; the next open finds them as sealed segments. */
void nrd_log_remove_at_close(NrdLog *log);

/* missing.c: judges log->missing, as the listing left it, once the segments are known: keeps what lies before the oldest
 * segment and tells of it. *ret_first and *ret_end: the offsets that stood behind the newest one; UINT64_MAX and 0: none.
 * committed: what hwm says, or 0. */
void nrd_log_judge_missing(NrdLog *log, bool has_segments, uint64_t committed, uint64_t *ret_first, uint64_t *ret_end);

/* recovery.c: whether so many records can have been in a part of the log that is gone. */
bool nrd_log_can_be_lost(const NrdLog *log, uint64_t n_records);

/* missing.c: adds what is missing at both ends of the log. log->lock is held. */
void nrd_log_add_missing_locked(const NrdLog *log, NrdDamage *damage);

/* missing.c: what is missing below offset is of no interest any more. log->lock is held. */
void nrd_log_forget_missing_locked(NrdLog *log, uint64_t offset);

/* missing.c: whether there are witnesses of what was forgotten, and their removal; log->remove_lock is held for that, and
 * the caller syncs the folder. */
bool nrd_log_has_forgotten(NrdLog *log);
void nrd_log_remove_forgotten(NrdLog *log, int dir_fd);

#endif
