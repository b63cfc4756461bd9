/* The codecs of a frame's payload. The only file that knows zstd. Pure; any thread (contexts are pooled). */
#ifndef NRD_LOG_CODEC_H
#define NRD_LOG_CODEC_H

#include "engine/base/macros.h"
#include "engine/log/frames/buffer.h"

#include <stddef.h>
#include <stdint.h>

/* Compresses src[0..size) into *out (whose content is replaced). -ENOMEM; -EIO when zstd refuses. */
int nrd_codec_compress(int level, const uint8_t *src, size_t size, NrdBuffer *out, size_t *ret_size) NRD_MUST_CHECK;

/* Decompresses src into exactly raw_bytes bytes of *out; the caller has checked raw_bytes against the frame's limit.
 * -EBADMSG when that is not what src holds; -ENOMEM. */
int nrd_codec_decompress(const uint8_t *src, size_t size, size_t raw_bytes, NrdBuffer *out) NRD_MUST_CHECK;

/* Wraps src[0..size) in a zstd frame of raw (uncompressed) blocks such that nothing in it looks like a frame header
 * of ours (FAULTS: a frame inside a payload must never become a record): a block ends between the 0xCA and the 0xFE of
 * every place that does, so that three bytes of block header come between. Any zstd decoder reads it. -ENOMEM. */
int nrd_codec_wrap(const uint8_t *src, size_t size, NrdBuffer *out, size_t *ret_size) NRD_MUST_CHECK;

#endif
