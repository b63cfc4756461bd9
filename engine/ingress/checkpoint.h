/* What the dispatcher has done with the WAL, durably: DATA/ingress/checkpoint.
 *
 *   pos   size  what (numbers big-endian)
 *   0     8     magic "NRDCHKPT"
 *   8     4     version: 1
 *   12    4     number of parts outstanding
 *   16    8     top
 *   24    4     number of moves
 *   28    4     zero
 *   32    12 each  parts outstanding, ascending: sequence (8), partition (4); sequences below top
 *         24 each  moves, ascending: sequence (8), partition (4), partition it goes to (4), offset expected there (8)
 *         4     CRC-32C of everything before
 *
 * Every part of an entry below top is committed (or its topic is gone), but for those that are outstanding; from top on
 * all are outstanding. So the set is as long as what is unfinished, however far the rest has got ahead of it. A move says
 * that a part may have been committed to a sibling: it is written before that commit.
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

#define NRD_CHECKPOINT_MAX_PARTS (1024 * 1024)

typedef struct NrdCheckpointPart {
    uint64_t sequence;
    uint32_t partition;
} NrdCheckpointPart;

typedef struct NrdCheckpointMove {
    NrdCheckpointPart part;
    uint32_t to;
    uint64_t expected; /* or NRD_ENTRY_OFFSET_UNKNOWN */
} NrdCheckpointMove;

typedef struct NrdCheckpoint {
    uint64_t top;
    GArray *parts; /* of NrdCheckpointPart */
    GArray *moves; /* of NrdCheckpointMove */
} NrdCheckpoint;

void nrd_checkpoint_init(NrdCheckpoint *checkpoint);
void nrd_checkpoint_clear(NrdCheckpoint *checkpoint);
void nrd_checkpoint_sort(NrdCheckpoint *checkpoint);

/* Whether the part is unfinished; and where it was moved to, or NULL. The checkpoint is sorted. */
bool nrd_checkpoint_outstanding(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition);
const NrdCheckpointMove *nrd_checkpoint_move(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition);

/* The file's bytes (g_byte_array_unref). The checkpoint is sorted and has at most NRD_CHECKPOINT_MAX_PARTS of each. */
GByteArray *nrd_checkpoint_encode(const NrdCheckpoint *checkpoint);

/* -EBADMSG; *checkpoint, initialized by the caller, is untouched then. */
int nrd_checkpoint_decode(const uint8_t *bytes, size_t size, NrdCheckpoint *checkpoint) NRD_MUST_CHECK;

/* A file that is missing or damaged (told) leaves the checkpoint empty: success. What the disk cannot read is an error. */
int nrd_checkpoint_load(int root_fd, NrdCheckpoint *checkpoint) NRD_MUST_CHECK;
int nrd_checkpoint_store(int root_fd, const NrdCheckpoint *checkpoint) NRD_MUST_CHECK;

#endif
