/* One frame: the reader against frames.c, the header's own encoder, and the search for headers against a plain one.
 * Input: a byte of flags (1: checksums are made right, 2: the bytes are wrapped as a payload would be), the file. */
#include "frames.h"
#include "fuzz.h"
#include "memory_io.h"

#include "engine/io/io.h"
#include "engine/log/frames/codec.h"
#include "engine/log/frames/frame_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { REPAIR = 1, WRAP = 2 };

static void check_header(const NrdFrameReader *reader, const uint8_t *bytes)
{
    uint8_t again[NRD_FRAME_HEADER_BYTES];
    NrdFrameHeader header = reader->header;
    nrd_frame_encode(&header, bytes + NRD_FRAME_HEADER_BYTES, again);
    FUZZ_CHECK(memcmp(again, bytes, sizeof again) == 0);
}

static void check_records(const NrdFrameReader *reader, const GArray *frames)
{
    NrdRecordView view;
    size_t pos = 0;
    uint64_t text = 0;
    int64_t commit_ms = 0;
    for (uint32_t i = 0; i < reader->header.n_records; i++) {
        nrd_frame_reader_next_record(reader, &pos, &view);
        text += view.payload_size + 1;
        commit_ms = MAX(commit_ms, view.commit_ms);
        if (i < 64) /* they are found by counting */
            FUZZ_CHECK(frames_hold(frames, reader->header.offset + i, view.key, view.key_size, view.payload,
                                   view.payload_size, view.commit_ms));
    }
    FUZZ_CHECK(pos == reader->payload_size);
    FUZZ_CHECK(reader->summary.text_bytes == text);
    FUZZ_CHECK(reader->summary.commit_ms == commit_ms);
}

static void check_reader(const uint8_t *bytes, size_t size)
{
    int root = memory_io_start();
    NrdFrameReader reader = { 0 };
    NrdFrameHeader header = { 0 };
    g_autoptr(GArray) frames = frames_find(bytes, size);
    memory_io_put("f", bytes, size);
    if (size >= NRD_FRAME_HEADER_BYTES)
        nrd_frame_decode(bytes, &header);
    NrdFrameWant want = {
        .fd = nrd_io->open(root, "f", O_RDONLY, 0), .limit_pos = size, .offset = header.offset, .end_offset = UINT64_MAX
    };
    int rc = nrd_frame_reader_load(&reader, &want);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOMEM);
    if (rc == 0) {
        FUZZ_CHECK(frames->len > 0 && g_array_index(frames, RawFrame, 0).pos == 0);
        FUZZ_CHECK(reader.end_pos == g_array_index(frames, RawFrame, 0).end);
        check_header(&reader, bytes);
        check_records(&reader, frames);
        want.limit_pos = reader.end_pos - 1; /* a byte less, and it is cut */
        nrd_frame_reader_forget(&reader);
        FUZZ_CHECK(nrd_frame_reader_load(&reader, &want) == -EBADMSG && reader.fault == NRD_FRAME_CUT);
        want.limit_pos = size;
        want.offset++;
        FUZZ_CHECK(nrd_frame_reader_load(&reader, &want) == -EBADMSG && reader.fault == NRD_FRAME_WRONG_OFFSET);
    }
    nrd_frame_reader_clear(&reader);
    nrd_io_close(&want.fd);
    memory_io_end();
}

/* What nrd_frame_find_header promises, place by place. */
static size_t find_plainly(const uint8_t *bytes, size_t size, size_t from)
{
    for (size_t pos = from; pos < size; pos++) {
        size_t left = size - pos;
        if (left >= NRD_FRAME_HEADER_BYTES ? nrd_frame_header_plausible(bytes + pos)
                                           : left >= 2 && bytes[pos] == 0xCA && bytes[pos + 1] == 0xFE)
            return pos;
    }
    return SIZE_MAX;
}

static void check_search(const uint8_t *bytes, size_t size)
{
    for (size_t from = 0, n = 0; from <= size && n < 16; n++) {
        size_t found = nrd_frame_find_header(bytes, size, from);
        FUZZ_CHECK(found == find_plainly(bytes, size, from));
        if (found == SIZE_MAX)
            break;
        from = found + 1;
    }
}

/* Nothing that is wrapped holds a frame, and it comes out as it went in. */
static void check_wrap(const uint8_t *bytes, size_t size)
{
    NrdBuffer wrapped = { 0 }, back = { 0 };
    size_t n;
    if (nrd_codec_wrap(bytes, size, &wrapped, &n) == 0) {
        for (size_t pos = 0; pos + NRD_FRAME_HEADER_BYTES <= n; pos++)
            FUZZ_CHECK(!nrd_frame_header_plausible(wrapped.data + pos));
        FUZZ_CHECK(nrd_codec_decompress(wrapped.data, n, size, &back) == 0);
        FUZZ_CHECK(memcmp(back.data, bytes, size) == 0);
    }
    nrd_buffer_release(&wrapped);
    nrd_buffer_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    if (flags & REPAIR)
        frames_repair(bytes, n);
    check_reader(bytes, n);
    check_search(bytes, n);
    if (flags & WRAP && n > 0)
        check_wrap(bytes, n);
    g_free(bytes);
    return 0;
}
