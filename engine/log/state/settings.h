/* What a log is told, at its open and whenever it changes. */
#ifndef NRD_LOG_SETTINGS_H
#define NRD_LOG_SETTINGS_H

#include "engine/log/frames/frame.h"

#include <stdint.h>

typedef struct NrdLog NrdLog;

/* A good value for prealloc_bytes below (zero_ahead.h has the figures). */
#define NRD_LOG_PREALLOC_BYTES ((uint64_t)64 * 1024)

/* What may change while a log is open. */
typedef struct NrdLogSettings {
    uint64_t segment_bytes; /* roll above this */
    NrdCodec codec;
    int zstd_level;          /* 1-19 */
    int64_t roll_age_ms;     /* roll before the first write that finds the oldest record older; 0: never */
    uint64_t prealloc_bytes; /* zeros written ahead of the active segment's tail, a chunk at a time; 0: none */
} NrdLogSettings;

#endif
