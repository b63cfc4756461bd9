/* The side file of a sealed segment, `<20 digits>.index`: its sparse index and its sums, so that neither an open nor a
 * seek has to read the segment. Rebuildable, checksummed, safe to delete; written without a sync: a crash leaves it
 * absent, torn or old, and each of those is noticed and repaired by a scan.
 *
 * All numbers are big-endian.
 *   header, 80 bytes
 *     0   magic          4  "NRDX"
 *     4   version        4  1
 *     8   base           8  first offset of the segment
 *     16  end offset     8  its successor's base
 *     24  size           8  bytes of the segment file
 *     32  text bytes     8  payloads and newlines of the segment
 *     40  commit time    8  greatest in the segment, Unix milliseconds
 *     48  entry count    8
 *     56  gap count      8
 *     64  body crc32c    4  over everything behind the header
 *     68  reserved       8  zero
 *     76  header crc32c  4  over bytes 0 to 75
 *   entries, 32 bytes each: offset, position, text position, greatest commit time
 *   gaps, 32 bytes each:    position, end position, offset, end offset
 *
 * Valid when: both CRCs match, magic and version are these, base, end offset and size are those of the segment, the
 * file is exactly as long as the counts say, and entries and gaps ascend within the segment. */
#ifndef NRD_LOG_INDEX_FILE_H
#define NRD_LOG_INDEX_FILE_H

#include "engine/base/macros.h"
#include "engine/log/index.h"

#include <stdbool.h>
#include <stdint.h>

/* Which segment the file has to belong to. */
typedef struct NrdIndexFileId {
    int root_fd;
    const char *path; /* of the index file */
    uint64_t base;
    uint64_t end_offset;
    uint64_t size_bytes;
} NrdIndexFileId;

/* Reads the header alone. -ENOENT when there is no usable file; other errors: the disk. */
int nrd_index_file_read_end(const NrdIndexFileId *id, NrdIndexEnd *ret_end) NRD_MUST_CHECK;

/* Reads all of it. Errors as above. The caller owns *ret_index. */
int nrd_index_file_load(const NrdIndexFileId *id, NrdIndex **ret_index) NRD_MUST_CHECK;

/* Writes it. On failure what is there is not valid or not there. */
int nrd_index_file_write(const NrdIndexFileId *id, const NrdIndex *index) NRD_MUST_CHECK;

#endif
