/* See index_map.h; the bytes are described in index_file.h. */
#include "engine/log/index/index_map.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

enum { AT_BASE = 4064, AT_NUMBER = 4072, AT_CRC = 4092 };

_Static_assert(NRD_INDEX_BLOCK_ITEMS *NRD_INDEX_ITEM_BYTES == AT_BASE, "the trailer follows the items");

NrdIndexMap *nrd_index_map_new(const NrdIndexMap *from)
{
    NrdIndexMap *map = g_new(NrdIndexMap, 1);
    *map = *from;
    map->refs = 1;
    return map;
}

NrdIndexMap *nrd_index_map_ref(NrdIndexMap *map)
{
    g_atomic_int_inc(&map->refs);
    return map;
}

void nrd_index_map_unref(NrdIndexMap *map)
{
    if (map == NULL || !g_atomic_int_dec_and_test(&map->refs))
        return;
    if (map->mapped)
        nrd_io_unmap(map->bytes, map->size);
    else
        g_free((void *)(uintptr_t)map->bytes);
    g_free(map);
}

void nrd_index_block_finish(uint8_t *block, uint64_t base, uint64_t number)
{
    nrd_put_be64(block + AT_BASE, base);
    nrd_put_be64(block + AT_NUMBER, number);
    nrd_put_be32(block + AT_CRC, nrd_crc32c(0, block, AT_CRC));
}

/* Copies a block and checks the copy. */
static int load(NrdIndexBlock *block, uint64_t number)
{
    const NrdIndexMap *map = block->map;

    if (block->loaded && block->number == number)
        return 0;
    block->loaded = false;
    memcpy(block->bytes, map->bytes + number * NRD_INDEX_BLOCK_BYTES, NRD_INDEX_BLOCK_BYTES);
    if (nrd_get_be32(block->bytes + AT_CRC) != nrd_crc32c(0, block->bytes, AT_CRC) ||
        nrd_get_be64(block->bytes + AT_BASE) != map->base || nrd_get_be64(block->bytes + AT_NUMBER) != number)
        return -EBADMSG;
    block->number = number;
    block->loaded = true;
    return 0;
}

/* Item i of the items that begin in block `first`. */
static int get_item(NrdIndexBlock *block, uint64_t first, uint64_t i, uint64_t ret_item[4])
{
    int r = load(block, first + i / NRD_INDEX_BLOCK_ITEMS);
    if (r < 0)
        return r;
    const uint8_t *item = block->bytes + i % NRD_INDEX_BLOCK_ITEMS * NRD_INDEX_ITEM_BYTES;
    for (int k = 0; k < 4; k++)
        ret_item[k] = nrd_get_be64(item + 8 * k);
    return 0;
}

static int get_entry(void *data, uint64_t i, NrdIndexEntry *ret_entry)
{
    NrdIndexBlock *block = data;
    const NrdIndexMap *map = block->map;
    uint64_t item[4];
    int r = get_item(block, 1, i, item);
    if (r < 0)
        return r;
    if (item[0] < map->base || item[0] >= map->end.offset || item[1] >= map->end.pos || item[2] > map->end.text_bytes)
        return -EBADMSG;
    *ret_entry = (NrdIndexEntry){ item[0], item[1], item[2], (int64_t)item[3] };
    return 0;
}

static int get_gap(void *data, uint64_t i, NrdGap *ret_gap)
{
    NrdIndexBlock *block = data;
    const NrdIndexMap *map = block->map;
    uint64_t item[4];
    int r = get_item(block, 1 + nrd_index_n_blocks(map->n_entries), i, item);
    if (r < 0)
        return r;
    if (item[0] > item[1] || item[1] > map->end.pos || item[2] > item[3] || item[3] > map->end.offset)
        return -EBADMSG;
    *ret_gap = (NrdGap){ item[0], item[1], item[2], item[3] };
    return 0;
}

NrdIndexView nrd_index_map_view(const NrdIndexMap *map, NrdIndexBlock *block)
{
    block->map = map;
    block->loaded = false;
    return (NrdIndexView){ .data = block,
                           .n_entries = map->n_entries,
                           .n_gaps = map->n_gaps,
                           .end = map->end,
                           .get_entry = get_entry,
                           .get_gap = get_gap };
}
