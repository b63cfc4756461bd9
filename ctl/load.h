/* Loads for `naradctl bench`, the same for a file of a mount and for a plain one. Each returns 0 or a negative errno and
 * ends early when interrupted. Blocks. */
#ifndef NRD_CTL_LOAD_H
#define NRD_CTL_LOAD_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

#define NRD_LOAD_RECORD_BYTES 100 /* with its newline */

/* How much was done in how long. */
typedef struct NrdLoad {
    uint64_t count; /* syncs, or bytes */
    double seconds;
} NrdLoad;

/* n_writers threads append records to paths[i], each followed by a sync (fsync, which is fdatasync for a plain file when
 * data_only). Counts syncs. */
int nrd_load_sync(char *const *paths, unsigned n_writers, double seconds, bool data_only,
                  NrdLoad *ret_load) NRD_MUST_CHECK;

/* Appends records in pieces of 1 MiB, max_bytes at most, then syncs once; the sync is part of the time. Counts bytes. */
int nrd_load_bulk(const char *path, double seconds, uint64_t max_bytes, bool data_only,
                  NrdLoad *ret_load) NRD_MUST_CHECK;

/* Reads to the end of the file in pieces of 1 MiB. Counts bytes. */
int nrd_load_read(const char *path, NrdLoad *ret_load) NRD_MUST_CHECK;

#endif
