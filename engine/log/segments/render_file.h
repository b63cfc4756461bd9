/* The side file <20-digit base>.rendered of a segment: a render map (render_map.h) on the disk, so that the segment need
 * not be read again to know how long it is in that rendering. Rebuildable, checksummed, safe to delete; written without a
 * sync: a crash leaves it absent, torn or old, and each of those is noticed.
 *
 * All numbers are big-endian.
 *   0     magic          4  "NRDR"
 *   4     version        4  1
 *   8     base           8  first offset of the segment
 *   16    end offset     8  what is rendered ends there: of a sealed segment its successor's base
 *   24    size           8  bytes of the segment file up to there
 *   32    text bytes     8  payloads and newlines of the segment up to there
 *   40    rendering     16  its name, ASCII, rest zero
 *   56    its version    4
 *   60    point count    4  at most 4096
 *   64    bytes          8  of the rendering
 *   72    every          8  bytes of the rendering between points, at least
 *   80    points        16  each: bytes of the rendering before the record, its offset; both ascending
 *         crc32c         4  over everything before
 *
 * Valid when: the file is exactly as long as the count says, the CRC matches, magic and version are these, everything up
 * to the rendering's version is as expected, and the points ascend within [base, end offset) and the bytes. The text
 * bytes tell whether damage has been found, or has gone, since it was written. */
#ifndef NRD_LOG_RENDER_FILE_H
#define NRD_LOG_RENDER_FILE_H

#include "engine/base/macros.h"
#include "engine/base/rendering.h"
#include "engine/log/segments/render_map.h"

/* What the file has to be of. */
typedef struct NrdRenderFileId {
    int root_fd;
    const char *path;
    uint64_t base;
    uint64_t end_offset;
    uint64_t size_bytes;
    uint64_t text_bytes;
    const NrdRendering *rendering;
} NrdRenderFileId;

/* *ret_map holds its points. -ENOENT when there is no usable file; other errors: the disk. */
int nrd_render_file_read(const NrdRenderFileId *id, NrdRenderMap *ret_map) NRD_MUST_CHECK;

/* Writes it anew. On failure what is there is not valid or not there. */
int nrd_render_file_write(const NrdRenderFileId *id, const NrdRenderMap *map) NRD_MUST_CHECK;

/* A missing one is success; what is no regular file is left alone (-EINVAL). */
int nrd_render_file_remove(int root_fd, const char *path) NRD_MUST_CHECK;

#endif
