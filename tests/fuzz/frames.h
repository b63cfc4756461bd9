/* Frames in raw bytes, looked at without the product's reader: what may be served is what stands in one of them. */
#ifndef NRD_TESTS_FUZZ_FRAMES_H
#define NRD_TESTS_FUZZ_FRAMES_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole frame as engine/log/frames/frame.h has it: sizes fit, the CRC holds. */
typedef struct RawFrame {
    uint64_t offset; /* of its first record */
    uint32_t n_records;
    size_t pos; /* in the bytes */
    size_t end;
    GBytes *payload; /* decoded */
} RawFrame;

/* Every whole frame at any position, also inside of others (RawFrame; g_array_unref gives the payloads back too). */
GArray *frames_find(const uint8_t *bytes, size_t size);

/* Whether some frame holds this record: offset, key, payload and time. */
bool frames_hold(const GArray *frames, uint64_t offset, const uint8_t *key, size_t key_size, const uint8_t *payload,
                 size_t payload_size, int64_t commit_ms);

/* Makes the checksum of everything that looks like a frame right, inner ones before those around them, so that a changed
 * byte is not just a bad checksum. */
void frames_repair(uint8_t *bytes, size_t size);

#endif
