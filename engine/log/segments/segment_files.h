/* The segment files of a folder, by name and size; nothing of them is read. */
#ifndef NRD_LOG_SEGMENT_FILES_H
#define NRD_LOG_SEGMENT_FILES_H

#include "engine/base/macros.h"
#include "engine/log/index/index.h"

#include <glib.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct NrdSegmentFile {
    uint64_t base;
    uint64_t size_bytes;
    int64_t mtime_ms; /* Unix milliseconds */
    struct stat st;
} NrdSegmentFile;

/* A name of a segment with no segment behind it that can be used. */
typedef struct NrdSegmentOdd {
    char *name;       /* the caller's; NULL: there is none */
    int error;        /* of the look at it: negative, or 0: */
    const char *what; /* is wrong with it, in words */
} NrdSegmentOdd;

/* Appends the bases (uint64_t), ascending, of side files with that suffix (".index", ".rendered") that no segment of files,
 * which is the whole list, goes with: somebody took the segment away, since the log removes it last. Blocks. */
int nrd_segment_files_orphans(int root_fd, const char *dir, const char *suffix, const GArray *files,
                              GArray *orphans) NRD_MUST_CHECK;

/* Appends what the ".index" orphans say of segments that are gone, in order: NrdGap, whose offsets are those that the
 * segment had, and whose positions are both the base in its name. Blocks. */
int nrd_segment_files_missing(int root_fd, const char *dir, const GArray *files, GArray *missing) NRD_MUST_CHECK;

/* Appends the segments (NrdSegmentFile) of a folder in order of base. One that is odd is left out, and *ret_odd is the
 * first of them: the list is the whole only when there is none. Errors: of the folder; -ENOENT: there is none. Blocks. */
int nrd_segment_files_list(int root_fd, const char *dir, GArray *files, NrdSegmentOdd *ret_odd) NRD_MUST_CHECK;

#endif
