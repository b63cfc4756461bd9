/* Turns the batches of one commit into frames: cuts them at record boundaries when they are too long for one, applies
 * the codec, and sees to it that no stored payload holds anything that looks like a frame. Memory only. */
#ifndef NRD_LOG_FRAME_WRITER_H
#define NRD_LOG_FRAME_WRITER_H

#include "engine/log/frames/buffer.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/record.h"

#include <glib.h>

/* A commit's records go into one frame up to this; a longer record has a frame of its own. */
#define NRD_FRAME_TARGET_BYTES (16 * NRD_MIB)

/* A run of whole records inside one batch. */
typedef struct NrdFrameSpan {
    const uint8_t *bytes;
    size_t size;
} NrdFrameSpan;

/* The records of one frame to be. */
typedef struct NrdFramePlan {
    GArray *spans; /* NrdFrameSpan, borrowing from the batches */
    size_t raw_bytes;
    uint32_t n_records;
    uint64_t text_bytes;
} NrdFramePlan;

/* The plans (NrdFramePlan *, g_ptr_array_unref) of the frames that the batches become; the batches must not change. */
GPtrArray *nrd_frame_plan(NrdRecordBatch *const *batches, size_t n_batches);

/* Copies the payload, before any codec, to `to`: raw_bytes bytes. */
void nrd_frame_plan_copy(const NrdFramePlan *plan, uint8_t *to);

/* One encoded frame; the payload borrows from the batch or from the buffers of the writer. */
typedef struct NrdFrameImage {
    uint8_t header[NRD_FRAME_HEADER_BYTES];
    const uint8_t *stored;
    size_t stored_bytes;
    uint32_t crc;
} NrdFrameImage;

/* Zeroed: empty. */
typedef struct NrdFrameWriter {
    NrdBuffer gathered;
    NrdBuffer coded;
} NrdFrameWriter;

/* Encodes one plan as the frame that begins at offset; valid until the next call. -ENOMEM, -EIO (zstd), -EMSGSIZE. */
int nrd_frame_writer_encode(NrdFrameWriter *writer, const NrdFramePlan *plan, uint64_t offset, NrdCodec codec,
                            int zstd_level, NrdFrameImage *ret_image) NRD_MUST_CHECK;

void nrd_frame_writer_clear(NrdFrameWriter *writer);

#endif
