/* Walks a segment from its first byte, checks every frame, builds the index, and finds the way past damage.
 *
 * What counts as what, in order (seed: Recovery; FAULTS: "a frame inside a payload"):
 *  - A good frame is valid (frame.h) and begins with the offset that is expected.
 *  - Where there is none, a header that still tells its extent and begins with the expected offset is believed about
 *    that extent: the walk goes on at its end, and nothing inside ever becomes a record. So is a header in which
 *    nothing is wrong but the offset.
 *  - Otherwise the file is searched byte by byte for a valid frame whose offset the lost bytes can explain and which
 *    chains: its end is the end of the file, a tail of zeros, or another header that goes on with the right offset.
 *  - Damage that a good frame follows is a gap, for good. Damage that none follows is the tail.
 * Linear: the search computes CRCs over a few times the segment's size at most, then takes the rest as damage. */
#ifndef NRD_LOG_SCAN_H
#define NRD_LOG_SCAN_H

#include "engine/base/diag.h"
#include "engine/base/macros.h"
#include "engine/log/frames/frame_reader.h"
#include "engine/log/index/index.h"

#include <stdbool.h>
#include <stdint.h>

/* A file that is longer than any segment can be, and may be next to nothing on the disk, is not read in its holes. Those of
 * the others are: what a file system says of holes need not be believed for them. */
#define NRD_SCAN_READ_ALL_BYTES ((uint64_t)2 * NRD_GIB)

/* What to scan. */
typedef struct NrdScanWant {
    int fd; /* of a file whose first size_bytes bytes nobody changes meanwhile */
    uint64_t base;
    uint64_t size_bytes;
    uint64_t end_offset; /* where the segment ends (its successor's base): frames beyond are unreachable, and what is
                            missing up to there is a gap. UINT64_MAX: unknown, the frames tell */
} NrdScanWant;

/* What stands behind the last good frame; only for an unknown end_offset. */
typedef struct NrdScanTail {
    bool torn;           /* there are bytes behind it that are no frame */
    bool only_zeros;     /* and all of them are zero */
    bool misnamed;       /* the file begins with a whole frame of another offset, and holds none of its own */
    uint64_t max_n_lost; /* at most so many records can have stood there */
} NrdScanTail;

/* Fills an index. *ret_index is the caller's. Damage is believed when a second look, past the page cache, finds the same
 * (scan_again.c): what is found may be cut or written down for good. -EIO and what the disk says, -EIO also when it reads
 * differently each time; -ENOMEM. place: for the line in the log about that. */
int nrd_scan_segment(const NrdScanWant *want, NrdPlace place, NrdIndex **ret_index,
                     NrdScanTail *ret_tail) NRD_MUST_CHECK;

/* Told about every step of a walk, in order of position. Either may be NULL. */
typedef struct NrdScanWatch {
    /* A good frame, as it was loaded; the reader's memory is valid during the call. */
    void (*frame)(void *data, const NrdFrameReader *frame);
    /* Damage at gap->pos, for this reason, that a good frame (or the segment's known end) follows. What no good frame
     * follows is told by *ret_tail alone. */
    void (*lost)(void *data, const NrdGap *gap, NrdFrameFault fault);
    void *data;
} NrdScanWatch;

/* Looks once, and tells the watch: for reports alone, since a read may be wrong while the disk is well. Errors as above. */
int nrd_scan_segment_watched(const NrdScanWant *want, const NrdScanWatch *watch, NrdIndex **ret_index,
                             NrdScanTail *ret_tail) NRD_MUST_CHECK;

#endif
