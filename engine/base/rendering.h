/* A rendering: how a record reads as a line of text. The log keeps track of how long its records are in one (their
 * positions in a file that shows them), and knows nothing else of it. */
#ifndef NRD_BASE_RENDERING_H
#define NRD_BASE_RENDERING_H

#include <glib.h>
#include <stddef.h>
#include <stdint.h>

/* A record to be rendered; the pointers are borrowed. */
typedef struct NrdRenderRecord {
    uint32_t partition;
    uint64_t offset;
    int64_t timestamp_ms; /* Unix milliseconds */
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdRenderRecord;

#define NRD_RENDERING_NAME_MAX 16

/* Static and constant. Both functions are pure, the same for the same record for ever, or the version is another one:
 * lengths are kept on the disk under name and version. */
typedef struct NrdRendering {
    const char *name; /* at most NRD_RENDERING_NAME_MAX bytes */
    uint32_t version;
    uint64_t (*length)(const NrdRenderRecord *record); /* of what append appends; at least 1 */
    void (*append)(GString *out, const NrdRenderRecord *record);
} NrdRendering;

#endif
