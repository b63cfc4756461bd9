/* The segment files of a folder, by name and size; nothing of them is read. */
#ifndef NRD_LOG_SEGMENT_FILES_H
#define NRD_LOG_SEGMENT_FILES_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct NrdSegmentFile {
    uint64_t base;
    uint64_t size_bytes;
    int64_t mtime_ms; /* Unix milliseconds */
} NrdSegmentFile;

/* Whether name is 20 digits and ".log"; *ret_base saturates at UINT64_MAX. */
bool nrd_segment_parse_name(const char *name, uint64_t *ret_base);

/* Appends the segments (NrdSegmentFile) of a folder in order of base. *ret_whole is false when a name of a segment is no
 * segment: not a regular file, a base that leaves no room, or gone by the time it was looked at. -ENOENT: no folder. */
int nrd_segment_files_list(int root_fd, const char *dir, GArray *files, bool *ret_whole) NRD_MUST_CHECK;

#endif
