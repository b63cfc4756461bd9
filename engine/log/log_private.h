/* What the files of engine/log/ itself, which open a log and change it, have from each other. */
#ifndef NRD_LOG_LOG_PRIVATE_H
#define NRD_LOG_LOG_PRIVATE_H

#include "engine/log/log.h"
#include "engine/log/state/state.h"

/* recovery.c: fills an empty log from its folder. */
int nrd_log_recover(NrdLog *log) NRD_MUST_CHECK;

/* recovery_folder.c: tells what keeps the folder from being opened: name in it ("": the folder), and what is wrong with it, in words
 * or (NULL) as error says. Returns what an open returns for it. */
int nrd_log_complain(NrdLog *log, const char *name, int error, const char *what);

/* Makes the segments in order of base. A listing that breaks off, or has something odd in it, is an error, never taken for
 * the whole: told as above. */
int nrd_log_list_segments(NrdLog *log, GPtrArray *segments) NRD_MUST_CHECK;

/* recovery.c: whole frames, but none that begins where the file's name says. */
extern const char nrd_log_misnamed[];

/* recovery.c: the file as it is; a failure is told. */
int nrd_log_read_hwm(NrdLog *log, NrdHwm *ret_hwm) NRD_MUST_CHECK;

/* log.c: writes the boundary down as a close does, durably. What lies below it has to be proven: the next open believes the
 * file, and looks at the disk only for what differs from it. */
int nrd_log_write_hwm(NrdLog *log) NRD_MUST_CHECK;

/* recovery.c: raises the floor of commit times to what the segments have seen. */
void nrd_log_learn_newest(NrdLog *log);

/* roll.c: creates the file of a segment, durably; an empty one that is there will do. */
int nrd_log_create_file(NrdLog *log, const char *path) NRD_MUST_CHECK;

/* missing.c: keeps in missing what lies before the oldest segment and was not removed by this log, and tells what of it is
 * news. */
void nrd_log_find_before(NrdLog *log, GArray *missing, uint64_t oldest);

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
