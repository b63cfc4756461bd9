/* The side file of a segment, `<20 digits>.index`: its sparse index and its sums, so that neither an open nor a seek has
 * to read the segment. Rebuildable, checksummed, safe to delete; written without a sync: a crash leaves it absent, torn
 * or old, and each of those is noticed and repaired by a scan. It is never changed in place: whoever has it mapped keeps
 * what he mapped.
 *
 * All numbers are big-endian. The file is a run of blocks of 4096 bytes, unused bytes zero.
 *   header
 *     0     magic          4  "NRDX"
 *     4     version        4  2
 *     8     base           8  first offset of the segment
 *     16    end offset     8  its successor's base
 *     24    size           8  bytes of the segment file
 *     32    text bytes     8  payloads and newlines of the segment
 *     40    commit time    8  greatest in the segment, Unix milliseconds
 *     48    entry count    8
 *     56    gap count      8
 *     64    kind           4  0 sealed; 1 active when the log was closed: the sums alone, no entries and no gaps
 *     4092  crc32c         4  over bytes 0 to 4091
 *   then the blocks of entries, then those of gaps, each
 *     0     127 items     32 bytes each (fewer in the last block of each sort)
 *             entry: offset, position, text position, greatest commit time up to and with the frame
 *             gap:   position, end position, offset, end offset
 *     4064  base           8
 *     4072  number         8  of the block in the file, the header being 0
 *     4092  crc32c         4  over bytes 0 to 4091
 *
 * Valid when: the header's CRC matches, magic, version and kind are these, base, end offset and size are those of the
 * segment, and the file is exactly as long as the counts say. A block is valid when its CRC, base and number are right
 * and its items lie within the segment; that is looked at when the block is used. Files of version 1 count as missing. */
#ifndef NRD_LOG_INDEX_FILE_H
#define NRD_LOG_INDEX_FILE_H

#include "engine/base/macros.h"
#include "engine/log/index/index.h"
#include "engine/log/index/index_map.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum NrdIndexFileKind { NRD_INDEX_OF_SEALED = 0, NRD_INDEX_AT_CLOSE = 1 } NrdIndexFileKind;

/* Which segment the file has to belong to. */
typedef struct NrdIndexFileId {
    int root_fd;
    const char *path; /* of the index file */
    uint64_t base;
    uint64_t end_offset;
    uint64_t size_bytes;
    NrdIndexFileKind kind;
} NrdIndexFileId;

/* Reads the header alone. -ENOENT when there is no usable file; other errors: the disk. */
int nrd_index_file_read_end(const NrdIndexFileId *id, NrdIndexEnd *ret_end, uint64_t *ret_n_gaps) NRD_MUST_CHECK;

/* Which offsets the file says that its segment, which begins at base, has: up to *ret_end_offset. Whether that segment is
 * there, and what it holds, does not matter. Errors as above. */
int nrd_index_file_claim(int root_fd, const char *path, uint64_t base, uint64_t *ret_end_offset) NRD_MUST_CHECK;

/* Maps it. Errors as above. One reference, the caller's. */
int nrd_index_file_map(const NrdIndexFileId *id, NrdIndexMap **ret_map) NRD_MUST_CHECK;

/* Writes it anew, with the index's entries and gaps when it is of a sealed segment. On failure what is there is not valid
 * or not there. */
int nrd_index_file_write(const NrdIndexFileId *id, const NrdIndex *index) NRD_MUST_CHECK;

/* Removes it; a missing one is success. */
int nrd_index_file_remove(const NrdIndexFileId *id) NRD_MUST_CHECK;

#endif
