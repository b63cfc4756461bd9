/* Zeros written ahead of the tail of the active segment, so that a commit overwrites blocks that the file has already
 * and its fdatasync need not write the inode ("Segmented log": preallocate the active file).
 *
 * The zeros of a chunk are made durable by the fdatasync of the commit that writes them: no sync is added. They are
 * never a commit's failure: when they cannot be written the file grows as it would without them. segment->size_bytes
 * stays the end of the frames; the file is longer, and every reader takes the zeros as the end. They are cut when the
 * segment is sealed, at close, and by whatever cuts a failed commit.
 *
 * Measured with scripts/bench.d/prealloc.c, ext4 on a virtual disk, 2 cores: syncs a second for append, zeros 64 KiB
 * ahead, and unwritten extents (fallocate), in a quiet run:
 *
 *   writers    300 bytes                    4096 bytes
 *    1          7900   11100   11000          5500    8400    6400
 *    4         19400   28000   23300          9900   19400   14400
 *   16         45100   60000   56800         17800   33300   23600
 *   64         58100   52300   73000         30300   48300   28900
 *
 * One writer's median: 131 us for an append of 300 bytes, 91 us over zeros. With other load on the machine the order is
 * the same, but that 64 writers of 300 bytes come out even: their appends share the journal's flushes, and zeros only
 * double the bytes. So: zeros, but not while more than 32 commits are in flight. Larger chunks bring little more and
 * hold more of the disk for each open partition; unwritten extents gain less for longer commits, since each one is
 * converted by the journal, which is what was to be spared. A commit that is long for its chunk appends: it pays for
 * its own blocks, and zeros first would write its bytes twice. */
#ifndef NRD_LOG_ZERO_AHEAD_H
#define NRD_LOG_ZERO_AHEAD_H

#include "engine/log/state/state.h"

/* Counts this commit among those in flight in the process, whose number decides. Any thread. */
void nrd_zero_ahead_enter(void);
void nrd_zero_ahead_leave(void);

/* The committer, between its frames and its sync: the frames of size_bytes bytes end at pos of fd, the active segment;
 * writes zeros behind them when it is worth it. */
void nrd_zero_ahead_write(NrdLog *log, int fd, uint64_t pos, uint64_t size_bytes, const NrdLogSettings *settings);

/* The file was cut, or another one is active now: nothing is ahead. */
void nrd_zero_ahead_forget(NrdLog *log);

/* Cuts the active segment behind its frames, if it may be longer. Not synced: a crash may bring the zeros back. A failure
 * leaves them; it is logged and of no consequence. */
void nrd_zero_ahead_cut(NrdLog *log, NrdSegment *active);

#endif
