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

#endif
