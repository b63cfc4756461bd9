/* See codec.h. */
#include "engine/log/frames/codec.h"

#include "engine/base/beside.h"
#include "engine/log/frames/frame.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#define N_CONTEXTS 4

/* From this size on a payload is compressed in parts beside each other, which are zstd frames of their own, one behind the
 * other (RFC 8878, 3.1). That costs a third of a percent of the bytes of two parts. The threads of zstd's own were slower
 * here than one of ours: 2.6 to 3.0 ms for 1.1 MiB at level 3, where one thread takes 2.3, and two parts 1.2. */
#define WIDE_BYTES ((size_t)1 << 20)
#define PART_MIN_BYTES ((size_t)512 * 1024)

/* Of a zstd block (RFC 8878, 3.1.1.2). */
#define BLOCK_MAX_BYTES ((size_t)128 * 1024)
#define BLOCK_HEADER_BYTES 3

static GMutex context_lock;
/* guarded by context_lock: contexts that nobody uses */
static ZSTD_CCtx *idle_compressors[N_CONTEXTS];
static unsigned n_idle_compressors;
static ZSTD_DCtx *idle_decompressors[N_CONTEXTS];
static unsigned n_idle_decompressors;

static ZSTD_CCtx *take_compressor(void)
{
    ZSTD_CCtx *context = NULL;

    g_mutex_lock(&context_lock);
    if (n_idle_compressors > 0)
        context = idle_compressors[--n_idle_compressors];
    g_mutex_unlock(&context_lock);
    return context != NULL ? context : ZSTD_createCCtx();
}

static void give_compressor(ZSTD_CCtx *context)
{
    g_mutex_lock(&context_lock);
    if (n_idle_compressors < N_CONTEXTS) {
        idle_compressors[n_idle_compressors++] = context;
        context = NULL;
    }
    g_mutex_unlock(&context_lock);
    ZSTD_freeCCtx(context);
}

/* Into `to`, where there is room for whatever comes of it; the size, or zstd's error. */
static size_t compress(int level, const uint8_t *src, size_t size, uint8_t *to)
{
    ZSTD_CCtx *context = take_compressor();
    if (context == NULL)
        return (size_t)-ZSTD_error_memory_allocation;
    size_t n = ZSTD_compressCCtx(context, to, ZSTD_compressBound(size), src, size, level);
    give_compressor(context);
    return n;
}

typedef struct Part {
    size_t pos, size; /* in what is compressed */
    size_t to;        /* where there is room for it */
    size_t n;         /* what came of it */
} Part;

typedef struct Parts {
    int level;
    const uint8_t *src;
    uint8_t *to;
    unsigned n;
    Part parts[NRD_BESIDE_MAX];
} Parts;

/* Equal parts: all are done at about the same time. Returns the room that they take. */
static size_t divide(Parts *parts, size_t size)
{
    size_t room = 0;
    size_t n = size >= WIDE_BYTES ? MIN(size / PART_MIN_BYTES, nrd_beside_n()) : 1;
    parts->n = (unsigned)n;
    for (size_t i = 0, pos = 0; i < n; i++) {
        size_t end = size / n * (i + 1) + (i + 1 == n ? size % n : 0);
        parts->parts[i] = (Part){ .pos = pos, .size = end - pos, .to = room };
        room += ZSTD_compressBound(end - pos);
        pos = end;
    }
    return room;
}

static void compress_part(void *user_data, unsigned i)
{
    Parts *parts = user_data;
    Part *part = &parts->parts[i];
    part->n = compress(parts->level, parts->src + part->pos, part->size, parts->to + part->to);
}

/* Moves the parts together; the size of all, or zstd's error of one. */
static size_t join(Parts *parts)
{
    size_t total = 0;
    for (unsigned i = 0; i < parts->n; i++) {
        const Part *part = &parts->parts[i];
        if (ZSTD_isError(part->n))
            return part->n;
        memmove(parts->to + total, parts->to + part->to, part->n);
        total += part->n;
    }
    return total;
}

static ZSTD_DCtx *take_decompressor(void)
{
    ZSTD_DCtx *context = NULL;

    g_mutex_lock(&context_lock);
    if (n_idle_decompressors > 0)
        context = idle_decompressors[--n_idle_decompressors];
    g_mutex_unlock(&context_lock);
    return context != NULL ? context : ZSTD_createDCtx();
}

static void give_decompressor(ZSTD_DCtx *context)
{
    g_mutex_lock(&context_lock);
    if (n_idle_decompressors < N_CONTEXTS) {
        idle_decompressors[n_idle_decompressors++] = context;
        context = NULL;
    }
    g_mutex_unlock(&context_lock);
    ZSTD_freeDCtx(context);
}

int nrd_codec_compress(int level, const uint8_t *src, size_t size, NrdBuffer *out, size_t *ret_size)
{
    Parts parts = { .level = level, .src = src };
    int r = nrd_buffer_reserve(out, divide(&parts, size), 0);
    if (r < 0)
        return r;
    parts.to = out->data;
    if (parts.n == 1)
        compress_part(&parts, 0);
    else
        nrd_beside_run(compress_part, &parts, parts.n);
    size_t n = join(&parts);
    if (ZSTD_isError(n))
        return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EIO;
    *ret_size = n;
    return 0;
}

/* Whether zstd frames unpack to raw_bytes, as far as they say so: raw_bytes comes from the disk, and memory for it is asked
 * for only then. The frames need not say (RFC 8878, 3.1.1.1.4), but no block of theirs unpacks to more than 128 KiB. */
static bool may_unpack_to(const uint8_t *src, size_t size, size_t raw_bytes)
{
    size_t left = raw_bytes;

    while (size > 0) {
        unsigned long long content = ZSTD_getFrameContentSize(src, size);
        if (content == ZSTD_CONTENTSIZE_UNKNOWN)
            return left / BLOCK_MAX_BYTES <= size / BLOCK_HEADER_BYTES;
        size_t frame_size = ZSTD_findFrameCompressedSize(src, size);
        if (content == ZSTD_CONTENTSIZE_ERROR || content > left || ZSTD_isError(frame_size))
            return false;
        left -= (size_t)content;
        src += frame_size;
        size -= frame_size;
    }
    return left == 0;
}

int nrd_codec_decompress(const uint8_t *src, size_t size, size_t raw_bytes, NrdBuffer *out)
{
    if (!may_unpack_to(src, size, raw_bytes))
        return -EBADMSG;
    int r = nrd_buffer_reserve(out, raw_bytes, 0);
    if (r < 0)
        return r;
    ZSTD_DCtx *context = take_decompressor();
    if (context == NULL)
        return -ENOMEM;
    size_t n = ZSTD_decompressDCtx(context, out->data, raw_bytes, src, size);
    give_decompressor(context);
    return ZSTD_isError(n) || n != raw_bytes ? -EBADMSG : 0;
}

/* A zstd frame by hand (RFC 8878, 3.1.1): magic, frame header descriptor 0 (no content size, no checksum), window
 * descriptor for 128 KiB, then blocks of a 3-byte little-endian header: bit 0 last, bits 1-2 type (0: raw), then size.
 *
 * No 0xCA 0xFE can come from these headers: a raw block's first byte has bits 1 and 2 clear, which neither 0xCA nor
 * 0xFE has, and its third byte is at most 0x10. So a payload in which every 0xCA 0xFE is parted holds none at all. */
static const uint8_t wrap_head[] = { 0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38 };

static uint8_t *put_block(uint8_t *to, const uint8_t *from, size_t size, bool last)
{
    uint32_t head = (uint32_t)size << 3 | (last ? 1 : 0);
    to[0] = (uint8_t)head;
    to[1] = (uint8_t)(head >> 8);
    to[2] = (uint8_t)(head >> 16);
    memcpy(to + BLOCK_HEADER_BYTES, from, size);
    return to + BLOCK_HEADER_BYTES + size;
}

/* The next place that has to be parted: a plausible header, or any magic at all when that was not enough. */
static size_t find_place(const uint8_t *src, size_t size, size_t from, bool every)
{
    if (!every)
        return nrd_frame_find_header(src, size, from);
    while (from < size) {
        const uint8_t *p = memchr(src + from, NRD_FRAME_MAGIC_0, size - from);
        if (p == NULL)
            return SIZE_MAX;
        from = (size_t)(p - src);
        if (from + 1 < size && p[1] == NRD_FRAME_MAGIC_1)
            return from;
        from++;
    }
    return SIZE_MAX;
}

static size_t count_places(const uint8_t *src, size_t size, bool every)
{
    size_t n = 0;
    for (size_t at = find_place(src, size, 0, every); at != SIZE_MAX; at = find_place(src, size, at + 1, every))
        n++;
    return n;
}

static int wrap(const uint8_t *src, size_t size, bool every, NrdBuffer *out, size_t *ret_size)
{
    size_t n_blocks = count_places(src, size, every) + size / BLOCK_MAX_BYTES + 1;
    int r = nrd_buffer_reserve(out, sizeof wrap_head + size + n_blocks * BLOCK_HEADER_BYTES, 0);
    if (r < 0)
        return r;
    memcpy(out->data, wrap_head, sizeof wrap_head);
    uint8_t *to = out->data + sizeof wrap_head;
    size_t from = 0;
    size_t place = find_place(src, size, 0, every);
    do {
        size_t n = MIN(size - from, BLOCK_MAX_BYTES);
        if (place != SIZE_MAX && place + 1 - from <= n) {
            n = place + 1 - from; /* the block ends after the 0xCA */
            place = find_place(src, size, place + 1, every);
        }
        to = put_block(to, src + from, n, from + n == size);
        from += n;
    } while (from < size);
    *ret_size = (size_t)(to - out->data);
    return 0;
}

int nrd_codec_wrap(const uint8_t *src, size_t size, NrdBuffer *out, size_t *ret_size)
{
    size_t n = 0;
    int r = wrap(src, size, false, out, &n);
    if (r == 0 && nrd_frame_find_header(out->data, n, 0) != SIZE_MAX)
        r = wrap(src, size, true, out, &n); /* the block headers themselves made one up: part every magic */
    if (r < 0)
        return r;
    *ret_size = n;
    return 0;
}
