/* Byte buffers for reading and staging, from a small free list that the whole process shares, so that idle logs and
 * cursors hold none (seed: "Flusher pipeline", read-back through a process-wide free list). Any thread. */
#ifndef NRD_LOG_BUFFER_H
#define NRD_LOG_BUFFER_H

#include "engine/base/macros.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed: empty. Owned by one thread at a time. */
typedef struct NrdBuffer {
    uint8_t *data;
    size_t capacity;
} NrdBuffer;

/* Makes room for size bytes and keeps the first `keep` that are there. -ENOMEM leaves the buffer as it was. */
int nrd_buffer_reserve(NrdBuffer *buffer, size_t size, size_t keep) NRD_MUST_CHECK;

/* Gives the memory back and empties the buffer. */
void nrd_buffer_release(NrdBuffer *buffer);

#endif
