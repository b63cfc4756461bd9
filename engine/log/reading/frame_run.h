/* Reading the records of one segment in order, from any offset on, over gaps: frame after frame through one window,
 * record after record. Damage is what walk.h says. One thread at a time. */
#ifndef NRD_LOG_FRAME_RUN_H
#define NRD_LOG_FRAME_RUN_H

#include "engine/base/macros.h"
#include "engine/log/frames/frame_reader.h"
#include "engine/log/frames/record.h"
#include "engine/log/segments/segment.h"

/* Zeroed: nowhere. */
typedef struct NrdFrameRun {
    NrdSegment *segment; /* a reference */
    uint64_t version;    /* of its index, before what the reader holds was read */
    bool loaded;         /* the reader holds a frame of it */
    NrdFrameReader reader;
    uint64_t offset;   /* of the record at record_pos of the frame */
    size_t record_pos; /* in the frame's payload */
} NrdFrameRun;

/* The record at `offset` of the segment, or the first one after it that is below limit_offset; *ret_found is false when
 * there is none. The view is valid until the next call. -EIO, -ENOMEM. May block. */
int nrd_frame_run_read(NrdFrameRun *run, NrdSegment *segment, uint64_t offset, uint64_t limit_offset,
                       NrdRecordView *ret_view, bool *ret_found) NRD_MUST_CHECK;

/* Gives the memory and the segment back. */
void nrd_frame_run_clear(NrdFrameRun *run);

#endif
