/* See frames.h. */
#include "frames.h"

#include "engine/base/endian.h"
#include "engine/log/frames/codec.h"
#include "fuzz.h"

#include <string.h>

#define HEADER 27
#define CRC_POS 23
#define DECODED_MAX (4U << 20) /* a target's inputs hold no more */

typedef struct Header {
    uint8_t codec;
    uint32_t n_records;
    uint64_t offset;
    uint32_t raw;
    uint32_t stored;
} Header;

/* Whether a frame may begin there and ends within the bytes. */
static bool looks_like_frame(const uint8_t *at, size_t left, Header *ret_header)
{
    if (left < HEADER || at[0] != 0xCA || at[1] != 0xFE)
        return false;
    Header h = { at[2], nrd_get_be32(at + 3), nrd_get_be64(at + 7), nrd_get_be32(at + 15), nrd_get_be32(at + 19) };
    if (h.codec > 1 || h.n_records == 0 || h.n_records > INT32_MAX || h.offset > INT64_MAX ||
        h.stored > left - HEADER || (h.codec == 0 && h.raw != h.stored))
        return false;
    *ret_header = h;
    return true;
}

static uint32_t frame_crc(const uint8_t *at, const Header *h)
{
    return fuzz_crc32c(fuzz_crc32c(0, at + 2, CRC_POS - 2), at + HEADER, h->stored);
}

static GBytes *decode(const uint8_t *at, const Header *h)
{
    NrdBuffer buffer = { 0 };
    GBytes *payload = NULL;
    if (h->codec == 0)
        return g_bytes_new(at + HEADER, h->stored);
    if (h->raw <= DECODED_MAX && nrd_codec_decompress(at + HEADER, h->stored, h->raw, &buffer) == 0)
        payload = g_bytes_new(buffer.data, h->raw);
    nrd_buffer_release(&buffer);
    return payload;
}

static void clear_frame(gpointer data)
{
    g_bytes_unref(((RawFrame *)data)->payload);
}

GArray *frames_find(const uint8_t *bytes, size_t size)
{
    GArray *frames = g_array_new(FALSE, FALSE, sizeof(RawFrame));
    Header h;
    g_array_set_clear_func(frames, clear_frame);
    for (size_t pos = 0; pos + HEADER <= size; pos++) {
        if (!looks_like_frame(bytes + pos, size - pos, &h) ||
            frame_crc(bytes + pos, &h) != nrd_get_be32(bytes + pos + CRC_POS))
            continue;
        RawFrame frame = { h.offset, h.n_records, pos, pos + HEADER + h.stored, decode(bytes + pos, &h) };
        if (frame.payload)
            g_array_append_val(frames, frame);
    }
    return frames;
}

/* Record number n of a decoded payload: [length][0x02][uvarint key length][key][time][payload]. */
static bool record_is(const uint8_t *p, size_t size, uint64_t n, const uint8_t *key, size_t key_size,
                      const uint8_t *payload, size_t payload_size, int64_t commit_ms)
{
    for (;; n--) {
        if (size < 4 || nrd_get_be32(p) > size - 4)
            return false;
        if (n == 0)
            break;
        size_t total = 4 + (size_t)nrd_get_be32(p);
        p += total;
        size -= total;
    }
    size_t left = nrd_get_be32(p), n_key = 0;
    unsigned shift = 0;
    p += 4;
    if (left < 1 || *p++ != 0x02)
        return false;
    for (left--; left > 0 && shift < 63; shift += 7) {
        uint8_t byte = *p++;
        left--;
        n_key |= (size_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            break;
    }
    return n_key == key_size && left == key_size + 8 + payload_size && memcmp(p, key, key_size) == 0 &&
           (int64_t)nrd_get_be64(p + key_size) == commit_ms && memcmp(p + key_size + 8, payload, payload_size) == 0;
}

bool frames_hold(const GArray *frames, uint64_t offset, const uint8_t *key, size_t key_size, const uint8_t *payload,
                 size_t payload_size, int64_t commit_ms)
{
    for (guint i = 0; i < frames->len; i++) {
        const RawFrame *frame = &g_array_index(frames, RawFrame, i);
        gsize size;
        const uint8_t *p = g_bytes_get_data(frame->payload, &size);
        if (offset >= frame->offset && offset - frame->offset < frame->n_records &&
            record_is(p, size, offset - frame->offset, key, key_size, payload, payload_size, commit_ms))
            return true;
    }
    return false;
}

void frames_repair(uint8_t *bytes, size_t size)
{
    Header h;
    for (size_t pos = size; pos-- > 0;)
        if (looks_like_frame(bytes + pos, size - pos, &h))
            nrd_put_be32(bytes + pos + CRC_POS, frame_crc(bytes + pos, &h));
}
