/* A side file (index_file.h) that is searched where it lies: mapped, and of it only the blocks that a search touches are
 * read and checked. Never changes; counted references; any thread. A look may wait for the disk, and one at a page that
 * the disk cannot give finds zeros (io.h), which do not check out. */
#ifndef NRD_LOG_INDEX_MAP_H
#define NRD_LOG_INDEX_MAP_H

#include "engine/log/index/index_search.h"

#define NRD_INDEX_BLOCK_BYTES 4096
#define NRD_INDEX_ITEM_BYTES 32
#define NRD_INDEX_BLOCK_ITEMS 127 /* the rest is the trailer */

typedef struct NrdIndexMap {
    gint refs;            /* atomic */
    const uint8_t *bytes; /* all of the file, the header first */
    size_t size;
    bool mapped; /* else in memory: the file system cannot map */
    uint64_t base;
    uint64_t n_entries;
    uint64_t n_gaps;
    NrdIndexEnd end;
} NrdIndexMap;

/* Takes over bytes of a file whose header was checked. */
NrdIndexMap *nrd_index_map_new(const NrdIndexMap *from);
NrdIndexMap *nrd_index_map_ref(NrdIndexMap *map);
void nrd_index_map_unref(NrdIndexMap *map); /* takes NULL */

/* A search's place to check blocks in: a copy, since the file may change under a mapping. */
typedef struct NrdIndexBlock {
    const NrdIndexMap *map;
    bool loaded;
    uint64_t number; /* of the block in the file */
    uint8_t bytes[NRD_INDEX_BLOCK_BYTES];
} NrdIndexBlock;

/* The view of a map; uses block, one thread at a time. */
NrdIndexView nrd_index_map_view(const NrdIndexMap *map, NrdIndexBlock *block);

/* Fills in the trailer of block `number`, whose items are there. */
void nrd_index_block_finish(uint8_t *block, uint64_t base, uint64_t number);

static inline uint64_t nrd_index_n_blocks(uint64_t n_items)
{
    return n_items / NRD_INDEX_BLOCK_ITEMS + (n_items % NRD_INDEX_BLOCK_ITEMS > 0);
}

#endif
