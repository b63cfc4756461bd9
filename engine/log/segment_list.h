/* The segments of a log in order of base: an immutable, counted array, replaced as a whole, so that a reader keeps a
 * stable view ("Segmented log": copy-on-write list). Pure. */
#ifndef NRD_LOG_SEGMENT_LIST_H
#define NRD_LOG_SEGMENT_LIST_H

#include "engine/log/segment.h"

typedef struct NrdSegmentList {
    gint refs; /* atomic */
    guint n;
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

/* The last segment whose base is at most offset; NULL when there is none. Borrowed from the list. */
NrdSegment *nrd_segment_list_find(const NrdSegmentList *list, uint64_t offset);

/* The last one, or NULL. */
NrdSegment *nrd_segment_list_last(const NrdSegmentList *list);

#endif
