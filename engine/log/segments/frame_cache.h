/* Decoded frames, kept in memory for whoever reads them next, and where records were found: one cache for the process,
 * bounded in bytes (seed: Flusher pipeline, frameCache and navCache).
 *
 * A frame is in the cache under its segment and its position. It enters when a reader has decoded it, and as it is
 * written when somebody reads at the tail. It leaves when it is the least recently used one and room is needed, and at
 * once when its bytes are cut or deleted: nrd_frame_cache_drop. Who holds a reference keeps the bytes, outside the bound.
 * Threads: any; one lock inside, never held across I/O or a copy. */
#ifndef NRD_LOG_FRAME_CACHE_H
#define NRD_LOG_FRAME_CACHE_H

#include "engine/log/frames/frame.h"
#include "engine/log/segments/segment.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Frames longer than this never enter. */
#define NRD_FRAME_CACHE_MAX_FRAME_BYTES (1 * NRD_MIB)

/* A frame, checked in full, its payload decoded. Never changes. */
typedef struct NrdFrameData {
    gint refs; /* atomic */
    uint32_t n_records;
    uint64_t offset; /* of the first record */
    uint64_t pos;
    uint64_t end_pos;
    NrdFrameSummary summary;
    size_t payload_size;
    uint8_t payload[]; /* [length][envelope]... */
} NrdFrameData;

/* One reference, the caller's; the payload is the caller's to fill. NULL: no memory. */
NrdFrameData *nrd_frame_data_new(size_t payload_size);
NrdFrameData *nrd_frame_data_ref(NrdFrameData *frame);
void nrd_frame_data_unref(NrdFrameData *frame); /* takes NULL */

/* Bound in bytes, payloads and bookkeeping; 0 keeps nothing. What is over goes at once. */
void nrd_frame_cache_set_limit(size_t limit_bytes);
size_t nrd_frame_cache_size(void); /* bytes held now */

/* A reference on the frame of this segment that begins at pos, or NULL. */
NrdFrameData *nrd_frame_cache_get(NrdSegment *segment, uint64_t pos);

/* Keeps a reference of its own. version: of the segment's index when the frame was read (nrd_segment_version); a frame
 * read under an older one is refused, so that nothing stale can enter after a drop. */
void nrd_frame_cache_put(NrdSegment *segment, uint64_t version, NrdFrameData *frame);

/* Forgets all frames and positions of the segment. */
void nrd_frame_cache_drop(NrdSegment *segment);

/* Where the frame that holds offset begins, if it was noted; a hint, to be checked against what is read there. */
bool nrd_frame_cache_find(NrdSegment *segment, uint64_t offset, uint64_t *ret_pos, uint64_t *ret_frame_offset);
void nrd_frame_cache_note(NrdSegment *segment, uint64_t offset, uint64_t pos, uint64_t frame_offset);

#endif
