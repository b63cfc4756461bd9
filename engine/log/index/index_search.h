/* Searching a sparse index, wherever its entries lie: in memory (index.h) or in a mapped side file (index_map.h).
 * Binary searches, so that of a mapped file only a few blocks are looked at. No locks. */
#ifndef NRD_LOG_INDEX_SEARCH_H
#define NRD_LOG_INDEX_SEARCH_H

#include "engine/base/macros.h"
#include "engine/log/index/index.h"

/* An index to be searched. The functions give item i, or -EBADMSG when the bytes it lies in do not check out. */
typedef struct NrdIndexView {
    void *data;
    uint64_t n_entries;
    uint64_t n_gaps;
    NrdIndexEnd end;
    int (*get_entry)(void *data, uint64_t i, NrdIndexEntry *ret_entry);
    int (*get_gap)(void *data, uint64_t i, NrdGap *ret_gap);
} NrdIndexView;

typedef enum NrdIndexKey {
    NRD_BY_OFFSET, /* the frame or gap that holds an offset below the index's end; what is before the first frame is a
                      gap; always found */
    NRD_BY_TEXT,   /* the entry from which a text position is reached; not found at or behind the end of the text */
    NRD_BY_TIME,   /* from which frame on the first record at or after a time is found; not found when all are older */
} NrdIndexKey;

typedef struct NrdIndexQuery {
    NrdIndexKey key;
    uint64_t value;  /* offset or text position */
    int64_t time_ms; /* by time only */
} NrdIndexQuery;

/* The view of an index in memory; nobody changes it meanwhile. */
NrdIndexView nrd_index_view(NrdIndex *index);

/* -EBADMSG when a look at the view is; *ret_place is undefined then. Reads mapped pages: may wait for the disk. */
int nrd_index_search(const NrdIndexView *view, const NrdIndexQuery *query, NrdIndexPlace *ret_place,
                     bool *ret_found) NRD_MUST_CHECK;

#endif
