/* What relist.c and relist_tail.c find, for reopen.c. By the committer. */
#ifndef NRD_LOG_RELIST_PRIVATE_H
#define NRD_LOG_RELIST_PRIVATE_H

#include "engine/log/log_private.h"
#include "engine/log/segments/segment_files.h"

typedef struct NrdRelist {
    GArray *files;       /* NrdSegmentFile: in order; at last those of sealed segments alone */
    GArray *missing;     /* NrdGap, as side files without a segment tell */
    GPtrArray *segments; /* NrdSegment, a reference each: the sealed ones that the log will have */
    NrdSegment *tail;    /* the one behind them, when the log ends in another file than it did; else NULL */
} NrdRelist;

static inline const NrdSegmentFile *nrd_relist_file_at(const NrdRelist *relist, guint i)
{
    return &g_array_index(relist->files, NrdSegmentFile, i);
}

void nrd_relist_clear(NrdRelist *relist);

/* Lists the folder. An error is told. Blocks. */
int nrd_relist_list(NrdLog *log, NrdRelist *relist) NRD_MUST_CHECK;

/* ---- relist_tail.c ---- */

/* Whether the log ends with the file that it has written, and nobody else has written to that. An error is told. Blocks. */
int nrd_relist_same_tail(NrdLog *log, NrdRelist *relist, bool *ret_same) NRD_MUST_CHECK;

/* Where it does not: reads what it ends with now, or makes a file for what is gone. An error is told. Blocks. */
int nrd_relist_find_tail(NrdLog *log, NrdRelist *relist) NRD_MUST_CHECK;

/* ---- relist.c ---- */

/* Fills segments with what lies before tail_base. An error is told; nothing has changed in the log then, but that segments
 * whose files are gone are known as lost. Blocks. */
int nrd_relist_find_sealed(NrdLog *log, NrdRelist *relist, uint64_t tail_base) NRD_MUST_CHECK;

/* Puts it into the log. Memory only, but for what it tells. */
void nrd_relist_install(NrdLog *log, NrdRelist *relist);

#endif
