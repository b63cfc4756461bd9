/* The hwm file: 8 bytes big-endian, the high watermark (exclusive), while the log is closed; empty while it is open.
 *
 * Valid when it is exactly 8 bytes long and below 2^63. Empty, missing or of another size: the log was not closed
 * cleanly, the verified record tail tells. Source: the seed, "High watermark and hidden tail". */
#ifndef NRD_LOG_HWM_H
#define NRD_LOG_HWM_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdHwm {
    bool exists;
    bool clean;     /* value holds */
    uint64_t value; /* may be garbage: to be clamped by what the segments hold */
} NrdHwm;

int nrd_hwm_read(int root_fd, const char *path, NrdHwm *ret_hwm) NRD_MUST_CHECK;

/* A read may be wrong while the disk is well, and nothing in the file tells: reads past the page cache until the same comes
 * twice in a row, *hwm being the first. -EIO also when it never does. */
int nrd_hwm_read_again(int root_fd, const char *path, NrdHwm *hwm) NRD_MUST_CHECK;

/* Makes the file empty, durably; a missing one is success. again: an earlier attempt failed, so nothing that the kernel
 * holds about the file's size can be trusted, and it is made to write it anew. */
int nrd_hwm_empty(int root_fd, const char *path, bool again) NRD_MUST_CHECK;

/* Writes the value, durably; dir is the file's folder. */
int nrd_hwm_write(int root_fd, const char *dir, const char *path, uint64_t value) NRD_MUST_CHECK;

#endif
