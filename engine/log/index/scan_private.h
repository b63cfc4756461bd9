/* A walk by itself, for scan.c and scan_again.c alone. */
#ifndef NRD_LOG_SCAN_PRIVATE_H
#define NRD_LOG_SCAN_PRIVATE_H

#include "engine/log/index/scan.h"

/* Where a walk met its first damage. Checksums vouch for everything before it. */
typedef struct NrdScanPlace {
    NrdIndexEnd end;
    guint n_entries; /* of the index, up to there */
    bool seen_zstd;
    bool seen_frame;
} NrdScanPlace;

/* What one walk has found. */
typedef struct NrdScanResult {
    NrdIndex *index; /* the caller's */
    NrdScanTail tail;
    bool damaged; /* there is something that is no good frame: a gap, a torn tail, or zeros behind the end */
    NrdScanPlace damage;
} NrdScanResult;

/* One walk, from the first byte on, or from where `before` (or NULL) met its first damage. Errors as nrd_scan_segment. */
int nrd_scan_walk(const NrdScanWant *want, const NrdScanWatch *watch, const NrdScanResult *before,
                  NrdScanResult *ret_result) NRD_MUST_CHECK;

#endif
