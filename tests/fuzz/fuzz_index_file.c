/* A side index of any bytes: nothing that it says leads out of its segment, and a damaged block is noticed.
 *
 * Input: flags (1: checksums, bases and numbers of blocks are made right; 2: a byte is changed after that; 4: of a log that
 * was closed), that place (2 bytes), counts of entries and of gaps (1 byte each), the header's first 72 bytes, the items. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/log/index/index_file.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, POKE = 2, AT_CLOSE = 4 };
#define BASE 100
#define END 1100
#define SIZE 50000

/* Lays header and items out in blocks, as a file has them. */
static uint8_t *lay_out(FuzzInput *in, uint64_t n_entries, uint64_t n_gaps, size_t *ret_size)
{
    uint64_t entry_blocks = nrd_index_n_blocks(n_entries), gap_blocks = nrd_index_n_blocks(n_gaps);
    uint64_t n_blocks = 1 + entry_blocks + gap_blocks;
    uint8_t *bytes = g_malloc0(n_blocks * NRD_INDEX_BLOCK_BYTES);
    fuzz_fill(in, bytes, 72);
    for (uint64_t i = 0; i < n_entries + n_gaps; i++) {
        uint64_t block =
            i < n_entries ? 1 + i / NRD_INDEX_BLOCK_ITEMS : 1 + entry_blocks + (i - n_entries) / NRD_INDEX_BLOCK_ITEMS;
        uint64_t at = (i < n_entries ? i : i - n_entries) % NRD_INDEX_BLOCK_ITEMS;
        fuzz_fill(in, bytes + block * NRD_INDEX_BLOCK_BYTES + at * NRD_INDEX_ITEM_BYTES, NRD_INDEX_ITEM_BYTES);
    }
    *ret_size = n_blocks * NRD_INDEX_BLOCK_BYTES;
    return bytes;
}

static void repair(uint8_t *bytes, size_t size, const NrdIndexFileId *id, uint64_t n_entries, uint64_t n_gaps)
{
    memcpy(bytes, "NRDX\0\0\0\2", 8);
    nrd_put_be64(bytes + 8, id->base);
    nrd_put_be64(bytes + 16, id->end_offset);
    nrd_put_be64(bytes + 24, id->size_bytes);
    nrd_put_be64(bytes + 48, n_entries);
    nrd_put_be64(bytes + 56, n_gaps);
    nrd_put_be32(bytes + 64, (uint32_t)id->kind);
    nrd_put_be32(bytes + 4092, nrd_crc32c(0, bytes, 4092));
    for (uint64_t i = 1; i < size / NRD_INDEX_BLOCK_BYTES; i++)
        nrd_index_block_finish(bytes + i * NRD_INDEX_BLOCK_BYTES, id->base, i);
}

static void search(const NrdIndexView *view, NrdIndexQuery query)
{
    NrdIndexPlace place = { 0 };
    bool was_found = false;
    int rc = nrd_index_search(view, &query, &place, &was_found);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc < 0 || !was_found)
        return;
    if (place.is_gap) {
        FUZZ_CHECK(place.gap.end_pos <= SIZE && place.gap.end_offset <= END);
        FUZZ_CHECK(query.key != NRD_BY_OFFSET ||
                   (query.value >= place.gap.offset && query.value < place.gap.end_offset));
    } else {
        FUZZ_CHECK(place.pos <= SIZE && place.offset >= BASE && place.offset <= END && place.end_pos <= SIZE);
    }
}

static void search_all(const NrdIndexFileId *id)
{
    NrdIndexMap *map = NULL;
    NrdIndexEnd end;
    NrdIndexBlock block = { 0 };
    uint64_t n_gaps = 0;
    int rc = nrd_index_file_read_end(id, &end, &n_gaps);
    int rc_map = nrd_index_file_map(id, &map);
    FUZZ_CHECK(rc == rc_map && (rc == 0 || rc == -ENOENT));
    if (rc < 0)
        return;
    NrdIndexView view = nrd_index_map_view(map, &block);
    FUZZ_CHECK(end.offset == END && end.pos == SIZE && view.end.text_bytes == end.text_bytes);
    for (uint64_t offset = BASE; offset < END; offset += 37)
        search(&view, (NrdIndexQuery){ NRD_BY_OFFSET, offset, 0 });
    for (uint64_t i = 0; i < 5; i++) {
        search(&view, (NrdIndexQuery){ NRD_BY_TEXT, i * 9000, 0 });
        search(&view, (NrdIndexQuery){ NRD_BY_TIME, 0, (int64_t)i * 1000 });
    }
    nrd_index_map_unref(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    uint16_t poke = fuzz_u16(&in);
    uint64_t n_entries = fuzz_u8(&in), n_gaps = fuzz_u8(&in) % 16;
    size_t n;
    NrdIndexFileId id = {
        memory_io_start(), "p/i", BASE, END, SIZE, flags & AT_CLOSE ? NRD_INDEX_AT_CLOSE : NRD_INDEX_OF_SEALED
    };
    uint8_t *bytes = lay_out(&in, n_entries, n_gaps, &n);
    if (flags & REPAIR)
        repair(bytes, n, &id, n_entries, n_gaps);
    if (flags & POKE)
        bytes[poke % n] ^= 0x10;
    memory_io_put("p/i", bytes, n);
    search_all(&id);
    if (flags & POKE && poke % n < NRD_INDEX_BLOCK_BYTES && flags & REPAIR) {
        NrdIndexEnd end; /* a changed byte of the header is always noticed */
        uint64_t n_told;
        FUZZ_CHECK(nrd_index_file_read_end(&id, &end, &n_told) == -ENOENT);
    }
    g_free(bytes);
    memory_io_end();
    return 0;
}
