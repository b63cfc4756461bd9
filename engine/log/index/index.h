/* The sparse index of one segment, in memory: where frames begin, one entry for every 4 KiB of file at least, and the
 * gaps that damage left. That of the active segment grows; that of a sealed one is written to a side file and searched
 * there (index_map.h). Pure; the owner locks.
 *
 * Invariants: entries ascend in offset, pos and text_pos; from an entry up to the next entry, the next gap or the end,
 * frames follow one another without a hole; the first frame and the first frame after a gap have an entry.
 * Source: "Segmented log" (index_every, binary search, short scan). */
#ifndef NRD_LOG_INDEX_H
#define NRD_LOG_INDEX_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_INDEX_EVERY_BYTES 4096

typedef struct NrdIndexEntry {
    uint64_t offset;   /* first record of a frame */
    uint64_t pos;      /* of that frame in the file */
    uint64_t text_pos; /* bytes of text in the segment before it */
    int64_t commit_ms; /* greatest commit time in the segment up to and with that frame */
} NrdIndexEntry;

/* Records that are lost: offsets [offset, end_offset), which stood, or should have, in bytes [pos, end_pos). */
typedef struct NrdGap {
    uint64_t pos;
    uint64_t end_pos;
    uint64_t offset;
    uint64_t end_offset;
} NrdGap;

/* Damage that is known: places of damage, the offsets lost in them, the first of these. */
typedef struct NrdDamage {
    uint64_t n_frames; /* where there are bytes that are no good frame */
    uint64_t n_records;
    uint64_t first_offset; /* only with n_frames above 0 */
    /* and where there is nothing: a segment's file is gone, emptied, or ends between two frames before it should */
    uint64_t n_holes;
    uint64_t n_missing;                  /* records */
    uint64_t first_missing, missing_end; /* only with n_holes above 0: [the first, behind the last) */
} NrdDamage;

/* Adds a gap to what is known. Pure. */
void nrd_damage_add(NrdDamage *damage, const NrdGap *gap);

/* Where a segment ends, as far as it is indexed. */
typedef struct NrdIndexEnd {
    uint64_t pos;
    uint64_t offset;
    uint64_t text_bytes;
    int64_t commit_ms; /* greatest commit time, 0 when there is no record */
} NrdIndexEnd;

typedef struct NrdIndex {
    GArray *entries; /* NrdIndexEntry */
    GArray *gaps;    /* NrdGap */
    NrdIndexEnd end;
    bool after_gap; /* the next frame gets an entry whatever its position */
} NrdIndex;

/* Where to begin reading for an offset, a text position or a time. */
typedef struct NrdIndexPlace {
    bool is_gap; /* only `gap` holds: the offset is lost */
    NrdGap gap;
    uint64_t pos; /* a frame begins here */
    uint64_t offset;
    uint64_t text_pos;
    uint64_t limit_pos; /* what is sought lies before this position */
    uint64_t end_pos;   /* of the whole index */
} NrdIndexPlace;

NrdIndex *nrd_index_new(uint64_t base);
void nrd_index_free(NrdIndex *index); /* takes NULL */

/* Appends the frame [index->end.pos, index->end.pos + size_bytes). */
void nrd_index_add_frame(NrdIndex *index, uint64_t size_bytes, uint32_t n_records, uint64_t text_bytes,
                         int64_t commit_ms);

/* Appends a gap that ends at end_pos and end_offset (neither before the index's end). */
void nrd_index_add_gap(NrdIndex *index, uint64_t end_pos, uint64_t end_offset);

/* `index` was rebuilt up to `since` while `old` went on growing: takes over what old has beyond. */
void nrd_index_continue(NrdIndex *index, const NrdIndex *old, const NrdIndexEnd *since);

#endif
