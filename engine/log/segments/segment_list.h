/* The segments of a log in order of base: an immutable, counted array, replaced as a whole, so that a reader keeps a
 * stable view ("Segmented log": copy-on-write list). Pure; only its sums are worked out later. */
#ifndef NRD_LOG_SEGMENT_LIST_H
#define NRD_LOG_SEGMENT_LIST_H

#include "engine/log/segments/segment.h"

/* Over all segments of a list but the last, the active one, which grows. */
typedef struct NrdSegmentSums {
    bool known;
    uint64_t version; /* of the home's text, when they were worked out */
    uint64_t size_bytes;
    bool complete;        /* the end of every segment is known */
    uint64_t *text_start; /* for each segment, and the last: bytes of text in those before it */
    int64_t *greatest_ms; /* for each segment: greatest commit time in it and in those before it */
} NrdSegmentSums;

typedef struct NrdSegmentList {
    gint refs; /* atomic */
    guint n;
    NrdSegmentSums sums; /* guarded by the log's lock */
    NrdSegment *items[]; /* a reference each */
} NrdSegmentList;

/* Takes new references on items[0..n). */
NrdSegmentList *nrd_segment_list_new(NrdSegment *const *items, guint n);
NrdSegmentList *nrd_segment_list_ref(NrdSegmentList *list);
void nrd_segment_list_unref(NrdSegmentList *list); /* takes NULL */

/* A new list with one more segment at its end. */
NrdSegmentList *nrd_segment_list_append(const NrdSegmentList *list, NrdSegment *segment);

/* A new list without the first n_gone segments. */
NrdSegmentList *nrd_segment_list_drop(const NrdSegmentList *list, guint n_gone);

/* Number of segments whose base is at most offset. */
guint nrd_segment_list_count(const NrdSegmentList *list, uint64_t offset);

/* The last segment whose base is at most offset; NULL when there is none. Borrowed from the list. */
NrdSegment *nrd_segment_list_find(const NrdSegmentList *list, uint64_t offset);

/* The sums, worked out again only when text_version (the home's, as it is now) is another one than last time. The log's
 * lock is held. Valid until the lock is released. */
const NrdSegmentSums *nrd_segment_list_sums_locked(NrdSegmentList *list, uint64_t text_version);

/* The last one, or NULL. */
NrdSegment *nrd_segment_list_last(const NrdSegmentList *list);

#endif
