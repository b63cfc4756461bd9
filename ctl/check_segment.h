/* One segment under check: its frames and its side index. What a whole partition has to know of it comes back. */
#ifndef NRD_CTL_CHECK_SEGMENT_H
#define NRD_CTL_CHECK_SEGMENT_H

#include "ctl/check.h"
#include "engine/base/macros.h"
#include "engine/log/segments/hwm.h"
#include "engine/log/segments/segment_files.h"

typedef struct NrdSegmentCheck {
    NrdCheck *check;
    const char *dir; /* the partition's */
    const NrdSegmentFile *file;
    NrdHwm hwm;          /* of the partition, not below the newest segment's base */
    uint64_t end_offset; /* the next segment's base; UINT64_MAX: this is the active one */
    int64_t *last_ms;    /* commit time of the record before; moved on */
    uint64_t boundary;   /* set for the active one: where the high watermark is to a daemon */
} NrdSegmentCheck;

/* Walks the segment and tells what is wrong; false when it could not be read. */
bool nrd_check_segment(NrdSegmentCheck *segment) NRD_MUST_CHECK;

#endif
