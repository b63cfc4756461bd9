/* What the dispatcher has done with the WAL, durably: DATA/ingress/checkpoint.
 *
 *   pos   size  what (numbers big-endian)
 *   0     8     magic "NRDCHKPT"
 *   8     4     version: 1
 *   12    4     number of parts outstanding
 *   16    8     top
 *   24    8     trust
 *   32    24 each  parts outstanding, ascending by the first two; sequences below top:
 *                    sequence (8), partition by its entry (4), partition where it is to be committed (4),
 *                    the offset that it will get there (8), 2^64 - 1: not known
 *         4     CRC-32C of everything before
 *
 * Every part of an entry below top is committed (or its topic is gone), but for those that are outstanding; from top on
 * all are outstanding. So the set is as long as what is unfinished, however far the rest has got ahead of it. Where a
 * part that is listed will be is said here; where one that is not, its entry says, unless the entry is below trust: then
 * nobody knows. A part that goes to a sibling is written down before it is committed there.
 *
 * The file is replaced as a whole (temporary file, sync, rename, sync of the folder): after a crash it is the old one or
 * the new one, and both tell only what was true when they were written. It is never written ahead of the commits that it
 * speaks of. Without a valid file everything in the WAL is outstanding: records may come twice, none is lost.
 * Pure but for load and store, which block. */
#ifndef NRD_INGRESS_CHECKPOINT_H
#define NRD_INGRESS_CHECKPOINT_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_CHECKPOINT_MAX_PARTS (512 * 1024)

typedef struct NrdCheckpointPart {
    uint64_t sequence;
    uint32_t partition;
    uint32_t to;       /* `partition`, or a sibling */
    uint64_t expected; /* or NRD_ENTRY_OFFSET_UNKNOWN */
} NrdCheckpointPart;

typedef struct NrdCheckpoint {
    uint64_t top;
    uint64_t trust;
    GArray *parts; /* of NrdCheckpointPart */
} NrdCheckpoint;

void nrd_checkpoint_init(NrdCheckpoint *checkpoint);
void nrd_checkpoint_clear(NrdCheckpoint *checkpoint);
void nrd_checkpoint_sort(NrdCheckpoint *checkpoint);

/* Whether the part is unfinished; *ret_part is what is written of it, or NULL. The checkpoint is sorted. */
bool nrd_checkpoint_outstanding(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition,
                                const NrdCheckpointPart **ret_part);

/* The file's bytes (g_byte_array_unref). The checkpoint is sorted and has at most NRD_CHECKPOINT_MAX_PARTS. */
GByteArray *nrd_checkpoint_encode(const NrdCheckpoint *checkpoint);

/* -EBADMSG; *checkpoint, initialized by the caller, is untouched then. */
int nrd_checkpoint_decode(const uint8_t *bytes, size_t size, NrdCheckpoint *checkpoint) NRD_MUST_CHECK;

/* A file that is missing or damaged (told, and *ret_damaged) leaves the checkpoint empty: success. What the disk cannot read
 * is an error. */
int nrd_checkpoint_load(int root_fd, NrdCheckpoint *checkpoint, bool *ret_damaged) NRD_MUST_CHECK;
int nrd_checkpoint_store(int root_fd, const NrdCheckpoint *checkpoint) NRD_MUST_CHECK;

#endif
