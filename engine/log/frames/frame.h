/* The frame, the unit of writing. Pure: bytes in, bytes out.
 *
 *   offset 0   magic         2 bytes  0xCA 0xFE
 *   offset 2   flags         1 byte   bits 0-2: codec (0 none, 1 zstd); bits 3-7: zero
 *   offset 3   record count  4 bytes  big-endian, 1 to 2^31-1
 *   offset 7   base offset   8 bytes  big-endian, the first record's offset, 0 to 2^63-1
 *   offset 15  uncompressed  4 bytes  payload size before the codec, at most 256 MiB
 *   offset 19  compressed    4 bytes  payload size on disk, at most 256 MiB; equal to the former for codec none
 *   offset 23  crc32c        4 bytes  over bytes 2 to 22 and the payload as it is on disk
 *   offset 27  payload                [length: 4 bytes big-endian][envelope] x count, through the codec
 *
 * A frame is valid when all of this holds, every record takes NRD_RECORD_MIN_BYTES at least, the CRC matches, the
 * decoded payload is exactly its records, and each of them parses. Source: the seed, "Frame format". */
#ifndef NRD_LOG_FRAME_H
#define NRD_LOG_FRAME_H

#include "engine/base/endian.h"
#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_FRAME_MAGIC_0 0xCA
#define NRD_FRAME_MAGIC_1 0xFE
#define NRD_FRAME_HEADER_BYTES 27
#define NRD_FRAME_MAX_BYTES (256 * NRD_MIB)

/* As the flags say it. */
typedef enum NrdCodec { NRD_CODEC_NONE = 0, NRD_CODEC_ZSTD = 1 } NrdCodec;

typedef struct NrdFrameHeader {
    uint8_t flags;
    uint32_t n_records;
    uint64_t offset;       /* of the first record */
    uint32_t raw_bytes;    /* payload before the codec */
    uint32_t stored_bytes; /* payload on disk */
    uint32_t crc;
} NrdFrameHeader;

/* Sums over the records of one frame. */
typedef struct NrdFrameSummary {
    uint64_t text_bytes; /* payloads and their newlines */
    int64_t commit_ms;   /* the greatest commit time */
} NrdFrameSummary;

/* Writes the header with the CRC over it and stored[0..stored_bytes). */
void nrd_frame_encode(NrdFrameHeader *header, const uint8_t *stored, uint8_t ret_bytes[NRD_FRAME_HEADER_BYTES]);

/* Takes the fields apart, whatever they are. */
void nrd_frame_decode(const uint8_t bytes[NRD_FRAME_HEADER_BYTES], NrdFrameHeader *ret_header);

/* Whether bytes could be a frame's header: everything but the CRC. */
bool nrd_frame_header_plausible(const uint8_t bytes[NRD_FRAME_HEADER_BYTES]);

/* The CRC of a header's bytes 2 to 22, to be carried on over the payload. */
uint32_t nrd_frame_crc_start(const uint8_t bytes[NRD_FRAME_HEADER_BYTES]);

/* Position, from `from` on, of the next place in bytes[0..size) that looks like a frame header, or begins like one when
 * its 27 bytes are not all there to tell (a lone 0xCA at the very end does not count: a frame begins with 0xCA, never
 * with 0xFE); SIZE_MAX when there is none. Linear. */
size_t nrd_frame_find_header(const uint8_t *bytes, size_t size, size_t from);

/* Steps over a decoded payload: the envelope at *pos, and *pos after it. False at the end or when it is cut short. */
static inline bool nrd_frame_next_record(const uint8_t *payload, size_t size, size_t *pos, const uint8_t **ret_envelope,
                                         size_t *ret_size)
{
    if (size - *pos < 4)
        return false;
    size_t n = nrd_get_be32(payload + *pos);
    if (n > size - *pos - 4)
        return false;
    *ret_envelope = payload + *pos + 4;
    *ret_size = n;
    *pos += 4 + n;
    return true;
}

/* Checks that the payload is exactly n_records records that parse, and sums up the first n_counted of them.
 * -EBADMSG when it is not. */
int nrd_frame_summarize(const uint8_t *payload, size_t size, uint32_t n_records, uint32_t n_counted,
                        NrdFrameSummary *ret_summary) NRD_MUST_CHECK;

#endif
