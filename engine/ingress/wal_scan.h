/* Walks the bytes of one segment of the ingress WAL: entries, and the damage between them. Pure.
 *
 * A valid entry (wal_entry.h) whose sequence is not below those before it counts; everything else is damage, which ends
 * where a header stands that has the mark of exactly that place. */
#ifndef NRD_INGRESS_WAL_SCAN_H
#define NRD_INGRESS_WAL_SCAN_H

#include "engine/ingress/wal_entry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The caller fills in bytes (which stay as they are meanwhile), size, salt and least; the rest is zero. */
typedef struct NrdWalScan {
    const uint8_t *bytes;
    size_t size;
    uint64_t salt;
    uint64_t least; /* the next sequence is at least this: at first the one in the segment's name */
    size_t pos;
} NrdWalScan;

/* Bytes [pos, end): an entry, or damage. */
typedef struct NrdWalPiece {
    bool is_entry;
    bool is_zeros; /* damage, or room that was given back: all bytes are zero */
    size_t pos;
    size_t end;
    NrdEntryView view; /* of an entry; points into the segment's bytes */
} NrdWalPiece;

/* The next piece; false at the end. */
bool nrd_wal_scan_next(NrdWalScan *scan, NrdWalPiece *ret_piece);

#endif
