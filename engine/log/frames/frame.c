/* See frame.h. */
#include "engine/log/frames/frame.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/log/frames/record.h"

#include <errno.h>
#include <string.h>

enum { AT_FLAGS = 2, AT_COUNT = 3, AT_OFFSET = 7, AT_RAW = 15, AT_STORED = 19, AT_CRC = 23 };

_Static_assert(AT_CRC + 4 == NRD_FRAME_HEADER_BYTES, "the header ends with its CRC");

uint32_t nrd_frame_crc_start(const uint8_t bytes[NRD_FRAME_HEADER_BYTES])
{
    return nrd_crc32c(0, bytes + AT_FLAGS, AT_CRC - AT_FLAGS);
}

void nrd_frame_encode(NrdFrameHeader *header, const uint8_t *stored, uint8_t ret_bytes[NRD_FRAME_HEADER_BYTES])
{
    ret_bytes[0] = NRD_FRAME_MAGIC_0;
    ret_bytes[1] = NRD_FRAME_MAGIC_1;
    ret_bytes[AT_FLAGS] = header->flags;
    nrd_put_be32(ret_bytes + AT_COUNT, header->n_records);
    nrd_put_be64(ret_bytes + AT_OFFSET, header->offset);
    nrd_put_be32(ret_bytes + AT_RAW, header->raw_bytes);
    nrd_put_be32(ret_bytes + AT_STORED, header->stored_bytes);
    header->crc = nrd_crc32c(nrd_frame_crc_start(ret_bytes), stored, header->stored_bytes);
    nrd_put_be32(ret_bytes + AT_CRC, header->crc);
}

void nrd_frame_decode(const uint8_t bytes[NRD_FRAME_HEADER_BYTES], NrdFrameHeader *ret_header)
{
    ret_header->flags = bytes[AT_FLAGS];
    ret_header->n_records = nrd_get_be32(bytes + AT_COUNT);
    ret_header->offset = nrd_get_be64(bytes + AT_OFFSET);
    ret_header->raw_bytes = nrd_get_be32(bytes + AT_RAW);
    ret_header->stored_bytes = nrd_get_be32(bytes + AT_STORED);
    ret_header->crc = nrd_get_be32(bytes + AT_CRC);
}

bool nrd_frame_header_plausible(const uint8_t bytes[NRD_FRAME_HEADER_BYTES])
{
    NrdFrameHeader h;

    if (bytes[0] != NRD_FRAME_MAGIC_0 || bytes[1] != NRD_FRAME_MAGIC_1 || bytes[AT_FLAGS] > 1)
        return false;
    nrd_frame_decode(bytes, &h);
    if (h.n_records == 0 || h.n_records > INT32_MAX)
        return false;
    if (h.offset > (uint64_t)INT64_MAX - h.n_records)
        return false;
    if (h.raw_bytes > NRD_FRAME_MAX_BYTES || h.stored_bytes > NRD_FRAME_MAX_BYTES || h.stored_bytes == 0)
        return false;
    if ((uint64_t)h.n_records * NRD_RECORD_MIN_BYTES > h.raw_bytes)
        return false;
    return h.flags == 1 || h.raw_bytes == h.stored_bytes;
}

size_t nrd_frame_find_header(const uint8_t *bytes, size_t size, size_t from)
{
    while (from < size) {
        const uint8_t *p = memchr(bytes + from, NRD_FRAME_MAGIC_0, size - from);
        if (p == NULL)
            return SIZE_MAX;
        size_t pos = (size_t)(p - bytes);
        size_t left = size - pos;
        if (left > 1 && p[1] == NRD_FRAME_MAGIC_1 && (left < NRD_FRAME_HEADER_BYTES || nrd_frame_header_plausible(p)))
            return pos;
        from = pos + 1;
    }
    return SIZE_MAX;
}

int nrd_frame_summarize(const uint8_t *payload, size_t size, uint32_t n_records, uint32_t n_counted,
                        NrdFrameSummary *ret_summary)
{
    NrdFrameSummary sum = { .text_bytes = 0, .commit_ms = 0 };
    size_t pos = 0;

    for (uint32_t i = 0; i < n_records; i++) {
        const uint8_t *envelope;
        size_t n;
        NrdRecordView view;
        if (!nrd_frame_next_record(payload, size, &pos, &envelope, &n) || nrd_record_parse(envelope, n, &view) < 0)
            return -EBADMSG;
        if (i >= n_counted)
            continue;
        sum.text_bytes += view.payload_size + 1;
        if (view.commit_ms > sum.commit_ms)
            sum.commit_ms = view.commit_ms;
    }
    if (pos != size)
        return -EBADMSG;
    *ret_summary = sum;
    return 0;
}
