/* One segment: what the scan takes for frames and for gaps, and the index that it makes, in memory and in a side file.
 * Input: flags (1: checksums are made right, 2: the end offset is known), the base's low byte, how many records there
 * are up to the known end, the segment. */
#include "frames.h"
#include "fuzz.h"
#include "memory_io.h"

#include "engine/io/io.h"
#include "engine/log/index/index_file.h"
#include "engine/log/index/index_search.h"
#include "engine/log/index/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { REPAIR = 1, KNOWN_END = 2 };

typedef struct Seen {
    const GArray *frames;
    const uint8_t *bytes;
    uint64_t end_offset;
    uint64_t pos; /* everything up to here was told of */
    uint64_t offset;
    unsigned n_frames;
} Seen;

static void on_frame(void *data, const NrdFrameReader *frame)
{
    Seen *seen = data;
    bool there = false;
    FUZZ_CHECK(frame->pos == seen->pos && frame->header.offset == seen->offset);
    for (guint i = 0; i < seen->frames->len; i++)
        there |= g_array_index(seen->frames, RawFrame, i).pos == frame->pos;
    FUZZ_CHECK(there);
    seen->pos = frame->end_pos;
    seen->offset = MIN(frame->header.offset + frame->header.n_records, seen->end_offset);
    seen->n_frames++;
}

/* A damaged frame that still begins with the right offset and tells its length twice vouches for its extent. */
static bool tells_extent(const Seen *seen, const NrdGap *gap)
{
    NrdFrameHeader h;
    if (gap->end_pos - gap->pos < NRD_FRAME_HEADER_BYTES)
        return false;
    nrd_frame_decode(seen->bytes + gap->pos, &h);
    return h.offset == gap->offset && h.raw_bytes == h.stored_bytes && h.stored_bytes >= NRD_RECORD_MIN_BYTES &&
           h.stored_bytes <= NRD_FRAME_MAX_BYTES;
}

static void on_lost(void *data, const NrdGap *gap, NrdFrameFault fault)
{
    Seen *seen = data;
    NrdFrameHeader h;
    FUZZ_CHECK(gap->pos == seen->pos && gap->offset == seen->offset);
    FUZZ_CHECK(gap->end_pos >= gap->pos && gap->end_offset >= gap->offset && gap->end_offset <= seen->end_offset);
    FUZZ_CHECK(fault != NRD_FRAME_GOOD);
    if (tells_extent(seen, gap) && fault == NRD_FRAME_BAD_CRC) {
        nrd_frame_decode(seen->bytes + gap->pos, &h); /* nothing inside it became a record */
        FUZZ_CHECK(gap->end_pos >= gap->pos + NRD_FRAME_HEADER_BYTES + h.stored_bytes);
    }
    seen->pos = gap->end_pos;
    seen->offset = gap->end_offset;
}

static void check_index(const NrdIndex *index, uint64_t base, uint64_t size)
{
    uint64_t offset = base, pos = 0, text = 0;
    for (guint i = 0; i < index->entries->len; i++) {
        const NrdIndexEntry *e = &g_array_index(index->entries, NrdIndexEntry, i);
        FUZZ_CHECK(e->offset >= offset && e->pos >= pos && e->text_pos >= text);
        offset = e->offset + 1;
        pos = e->pos + 1;
        text = e->text_pos + 1;
    }
    FUZZ_CHECK(index->end.pos <= size && index->end.offset >= base && index->end.text_bytes + 1 >= text);
}

/* The index in memory and the one in the file say the same. */
static void check_query(const NrdIndexView *memory, const NrdIndexView *file, NrdIndexQuery query)
{
    NrdIndexPlace a = { 0 }, b = { 0 };
    bool found_a = false, found_b = false;
    FUZZ_CHECK(nrd_index_search(memory, &query, &a, &found_a) == 0);
    FUZZ_CHECK(nrd_index_search(file, &query, &b, &found_b) == 0);
    FUZZ_CHECK(found_a == found_b);
    if (!found_a)
        return;
    FUZZ_CHECK(a.is_gap == b.is_gap);
    if (a.is_gap)
        FUZZ_CHECK(memcmp(&a.gap, &b.gap, sizeof a.gap) == 0);
    else
        FUZZ_CHECK(a.pos == b.pos && a.offset == b.offset && a.text_pos == b.text_pos && a.limit_pos == b.limit_pos &&
                   a.end_pos == b.end_pos);
}

static void check_side_file(int root, NrdIndex *index, uint64_t base, uint64_t size)
{
    NrdIndexFileId id = { root, "p/i", base, index->end.offset, size, NRD_INDEX_OF_SEALED };
    NrdIndexMap *map = NULL;
    NrdIndexBlock block = { 0 };
    if (index->end.pos != size) /* not of a sealed segment */
        return;
    FUZZ_CHECK(nrd_index_file_write(&id, index) == 0);
    FUZZ_CHECK(nrd_index_file_map(&id, &map) == 0);
    NrdIndexView memory = nrd_index_view(index), file = nrd_index_map_view(map, &block);
    uint64_t n = index->end.offset - base;
    for (uint64_t i = 0; i < MIN(n, 8); i++)
        check_query(&memory, &file, (NrdIndexQuery){ NRD_BY_OFFSET, base + (i < 4 ? i : n - 1 - (i - 4) % n), 0 });
    for (uint64_t i = 0; i < 4; i++) {
        check_query(&memory, &file, (NrdIndexQuery){ NRD_BY_TEXT, index->end.text_bytes * i / 3, 0 });
        check_query(&memory, &file, (NrdIndexQuery){ NRD_BY_TIME, 0, index->end.commit_ms / 3 * (int64_t)i });
    }
    nrd_index_map_unref(map);
    id.size_bytes++; /* of another segment it says nothing */
    FUZZ_CHECK(nrd_index_file_map(&id, &map) == -ENOENT);
}

static void check_scan(int root, const NrdScanWant *want, const uint8_t *bytes)
{
    g_autoptr(GArray) frames = frames_find(bytes, (size_t)want->size_bytes);
    Seen seen = { frames, bytes, want->end_offset, 0, want->base, 0 };
    NrdScanWatch watch = { on_frame, on_lost, &seen };
    NrdScanTail tail = { 0 };
    NrdIndex *index = NULL;
    int rc = nrd_scan_segment_watched(want, &watch, &index, &tail);
    FUZZ_CHECK(rc == 0);
    FUZZ_CHECK(seen.pos == index->end.pos && seen.offset == index->end.offset);
    check_index(index, want->base, want->size_bytes);
    if (want->end_offset == UINT64_MAX)
        FUZZ_CHECK(tail.torn == (index->end.pos < want->size_bytes));
    check_side_file(root, index, want->base, want->size_bytes);
    nrd_index_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    uint64_t base = fuzz_u8(&in);
    uint64_t n_records = fuzz_u8(&in);
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    int root = memory_io_start();
    if (base == 255)
        base = (uint64_t)INT64_MAX - 2;
    if (flags & REPAIR)
        frames_repair(bytes, n);
    memory_io_put("p/s", bytes, n);
    NrdScanWant want = { .fd = nrd_io->open(root, "p/s", O_RDONLY, 0),
                         .base = base,
                         .size_bytes = n,
                         .end_offset = flags & KNOWN_END ? base + n_records : UINT64_MAX };
    check_scan(root, &want, bytes);
    nrd_io_close(&want.fd);
    memory_io_end();
    g_free(bytes);
    return 0;
}
