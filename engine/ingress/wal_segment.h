/* One segment file of the ingress WAL: its name, and what is known of it.
 *
 * The name is `<20 digits>.<8 hex digits>.<16 hex digits>.wal`:
 *
 *   first    no entry of an earlier segment with this sequence or a higher one counts (wal.h says why)
 *   number   counts the segments made; of two with the same `first` the higher one is the later
 *   salt     random; part of every entry's mark (wal_entry.h)
 *
 * The file is a run of entries from position 0 on; there is no header, so there is none to be damaged. Where entries were
 * that are done with there may be zeros: their room was given back (nrd_wal_make_room). */
#ifndef NRD_INGRESS_WAL_SEGMENT_H
#define NRD_INGRESS_WAL_SEGMENT_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_WAL_DIR "ingress"

typedef struct NrdWalSegment {
    gint refs; /* atomic */
    uint64_t first;
    uint32_t number;
    uint64_t salt;
    char *path; /* beneath the data directory */
    /* guarded by the WAL's lock */
    uint64_t end_sequence; /* above every sequence in it, and above those that its name makes void */
    uint64_t size_bytes;   /* up to the end of its last proven entry */
    uint64_t n_live;       /* parts in it that are not committed anywhere yet */
    bool active;           /* it may get more: never removed */
    bool damaged;          /* bytes in its middle did not check out */
    GArray *done;          /* of NrdWalRange: entries without live parts; ascending, neighbours are one */
    uint64_t done_bytes;   /* of them */
    uint64_t freed_bytes;  /* ... that nrd_wal_make_room has seen */
} NrdWalSegment;

typedef struct NrdWalRange {
    uint64_t pos, end;
} NrdWalRange;

/* The entry there has no live parts any more. The WAL's lock is held. */
void nrd_wal_segment_note_done(NrdWalSegment *segment, uint64_t pos, uint64_t size_bytes);

NrdWalSegment *nrd_wal_segment_new(uint64_t first, uint32_t number, uint64_t salt);
NrdWalSegment *nrd_wal_segment_ref(NrdWalSegment *segment);
void nrd_wal_segment_unref(NrdWalSegment *segment); /* takes NULL */

/* Whether name is that of a segment, to the letter. */
bool nrd_wal_segment_parse_name(const char *name, uint64_t *ret_first, uint32_t *ret_number, uint64_t *ret_salt);

/* For g_ptr_array_sort: the order they were made in. */
gint nrd_wal_segment_compare(gconstpointer a, gconstpointer b);

#endif
