/* See frame_reader.h. */
#include "engine/log/frames/frame_reader.h"

#include "engine/base/crc32c.h"
#include "engine/io/io.h"
#include "engine/log/frames/codec.h"

#include <errno.h>
#include <string.h>

/* A window is not read ahead further than this, however long the last frame was. */
#define AHEAD_MAX_BYTES ((size_t)(4 * NRD_MIB))

void nrd_frame_reader_forget(NrdFrameReader *reader)
{
    reader->window_size = 0;
    reader->loaded = false;
}

void nrd_frame_reader_clear(NrdFrameReader *reader)
{
    nrd_buffer_release(&reader->window);
    nrd_buffer_release(&reader->decoded);
    nrd_frame_reader_forget(reader);
}

/* Moves the window to begin at pos and fills it up to `want_size` bytes from there. */
static int slide(NrdFrameReader *reader, int fd, uint64_t pos, size_t want_size)
{
    size_t keep = 0;
    uint64_t end = reader->window_pos + reader->window_size;

    if (reader->window_size > 0 && pos >= reader->window_pos && pos < end) {
        keep = (size_t)(end - pos);
        memmove(reader->window.data, reader->window.data + (pos - reader->window_pos), keep);
    }
    reader->window_pos = pos;
    reader->window_size = keep;
    int r = nrd_buffer_reserve(&reader->window, want_size, keep);
    if (r < 0)
        return r;
    size_t n = 0;
    r = nrd_io_pread_full(fd, reader->window.data + keep, want_size - keep, (int64_t)(pos + keep), &n);
    if (r < 0)
        return r;
    reader->window_size = keep + n;
    return 0;
}

int nrd_frame_reader_peek(NrdFrameReader *reader, const NrdFrameWant *want, uint64_t pos, size_t size,
                          const uint8_t **ret_bytes, size_t *ret_size)
{
    uint64_t left = pos < want->limit_pos ? want->limit_pos - pos : 0;

    size = (size_t)MIN((uint64_t)size, left);
    if (size > 0 && (pos < reader->window_pos || pos + size > reader->window_pos + reader->window_size)) {
        size_t ahead = MAX(size, MAX(want->ahead_bytes, MIN(reader->last_total, AHEAD_MAX_BYTES)));
        reader->loaded = false; /* its payload may lie in the window that moves now */
        int r = slide(reader, want->fd, pos, (size_t)MIN((uint64_t)ahead, left));
        if (r < 0) {
            reader->window_size = 0;
            return r;
        }
        size = MIN(size, reader->window_size);
    }
    *ret_bytes = size > 0 ? reader->window.data + (pos - reader->window_pos) : NULL;
    *ret_size = size;
    return 0;
}

static int refuse(NrdFrameReader *reader, NrdFrameFault fault)
{
    reader->fault = fault;
    return -EBADMSG;
}

static int decode_payload(NrdFrameReader *reader, const NrdFrameWant *want, const uint8_t *stored)
{
    const NrdFrameHeader *h = &reader->header;

    reader->payload = stored;
    reader->payload_size = h->raw_bytes;
    if (h->flags == 1) {
        int r = nrd_codec_decompress(stored, h->stored_bytes, h->raw_bytes, &reader->decoded);
        if (r == -EBADMSG)
            return refuse(reader, NRD_FRAME_BAD_RECORDS);
        if (r < 0)
            return r;
        reader->payload = reader->decoded.data;
    }
    uint64_t below_end = want->end_offset > h->offset ? want->end_offset - h->offset : 0;
    uint32_t n_counted = (uint32_t)MIN((uint64_t)h->n_records, below_end);
    if (nrd_frame_summarize(reader->payload, h->raw_bytes, h->n_records, n_counted, &reader->summary) < 0)
        return refuse(reader, NRD_FRAME_BAD_RECORDS);
    return 0;
}

int nrd_frame_reader_load(NrdFrameReader *reader, const NrdFrameWant *want)
{
    const uint8_t *bytes;
    size_t n = 0;

    reader->loaded = false;
    reader->pos = want->pos;
    int r = nrd_frame_reader_peek(reader, want, want->pos, NRD_FRAME_HEADER_BYTES, &bytes, &n);
    if (r < 0)
        return r;
    if (n < NRD_FRAME_HEADER_BYTES)
        return refuse(reader, NRD_FRAME_CUT);
    if (!nrd_frame_header_plausible(bytes))
        return refuse(reader, NRD_FRAME_BAD_HEADER);
    nrd_frame_decode(bytes, &reader->header);
    size_t total = NRD_FRAME_HEADER_BYTES + (size_t)reader->header.stored_bytes;
    if (want->limit_pos - want->pos < total) /* before any memory is asked for: the size comes from the disk */
        return refuse(reader, NRD_FRAME_CUT);
    r = nrd_frame_reader_peek(reader, want, want->pos, total, &bytes, &n);
    if (r < 0)
        return r;
    if (n < total)
        return refuse(reader, NRD_FRAME_CUT);
    const uint8_t *stored = bytes + NRD_FRAME_HEADER_BYTES;
    if (nrd_crc32c(nrd_frame_crc_start(bytes), stored, reader->header.stored_bytes) != reader->header.crc)
        return refuse(reader, NRD_FRAME_BAD_CRC);
    reader->end_pos = want->pos + total;
    reader->last_total = total;
    if (reader->header.offset != want->offset)
        return refuse(reader, NRD_FRAME_WRONG_OFFSET);
    r = decode_payload(reader, want, stored);
    if (r < 0)
        return r;
    reader->fault = NRD_FRAME_GOOD;
    reader->loaded = true;
    return 0;
}

void nrd_frame_reader_behind_window(const NrdFrameReader *reader, uint64_t *ret_pos, uint64_t *ret_offset)
{
    uint64_t end_pos = reader->window_pos + reader->window_size;
    uint64_t pos = reader->end_pos, offset = reader->header.offset + reader->header.n_records;
    NrdFrameHeader h;

    g_assert(reader->loaded);
    while (pos < end_pos && end_pos - pos >= NRD_FRAME_HEADER_BYTES) {
        const uint8_t *bytes = reader->window.data + (pos - reader->window_pos);
        if (!nrd_frame_header_plausible(bytes))
            break;
        nrd_frame_decode(bytes, &h);
        if (end_pos - pos - NRD_FRAME_HEADER_BYTES < h.stored_bytes)
            break;
        pos += NRD_FRAME_HEADER_BYTES + (uint64_t)h.stored_bytes;
        offset += h.n_records;
    }
    *ret_pos = pos;
    *ret_offset = offset;
}
