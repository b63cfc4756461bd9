/* A walk by itself, for scan.c, scan_resync.c and scan_again.c alone. */
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

/* A walk that is under way. */
typedef struct NrdScan {
    const NrdScanWant *want;
    const NrdScanWatch *watch;
    NrdIndex *index;
    NrdFrameReader reader;
    NrdBuffer chunk;     /* for the search */
    NrdBuffer crc_chunk; /* for CRCs during the search */
    uint64_t zero_pos;   /* from here on all bytes are zero; UINT64_MAX: not looked yet */
    uint64_t crc_budget;
    size_t chunk_bytes; /* of both */
    bool holes;         /* are passed over: a frame begins with a byte that is not zero */
    bool seen_zstd;
    bool seen_frame;
    bool damaged; /* something was no good frame, at: */
    NrdScanPlace damage;
    bool foreign_first;  /* the first frame is whole, and another offset's */
    uint64_t max_n_lost; /* by the damage looked at last */
} NrdScan;

/* Where the walk goes on after damage. */
typedef struct NrdResync {
    bool found;
    uint64_t pos;
    uint64_t offset;
} NrdResync;

/* ---- scan_resync.c ---- */

/* Finds where the walk goes on behind the damage at the index's end. */
int nrd_scan_resync(NrdScan *s, NrdResync *ret_resync) NRD_MUST_CHECK;

/* The most records that lost_bytes bytes can have held: one in 14 bytes, unless compressed frames may be among them. Pure. */
uint64_t nrd_scan_explainable(uint64_t lost_bytes, bool zstd);

#endif
