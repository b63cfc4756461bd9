/* See index_file.h. */
#include "engine/log/index/index_file.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HEADER_BYTES NRD_INDEX_BLOCK_BYTES
#define VERSION 2

enum {
    AT_VERSION = 4,
    AT_BASE = 8,
    AT_END = 16,
    AT_SIZE = 24,
    AT_TEXT = 32,
    AT_TIME = 40,
    AT_ENTRIES = 48,
    AT_GAPS = 56,
    AT_KIND = 64,
    AT_HEADER_CRC = 4092
};

_Static_assert(AT_HEADER_CRC + 4 == HEADER_BYTES, "the header ends with its CRC");
_Static_assert(sizeof(NrdIndexEntry) == NRD_INDEX_ITEM_BYTES && sizeof(NrdGap) == NRD_INDEX_ITEM_BYTES,
               "items are four 64-bit numbers");

static const uint8_t magic[4] = { 'N', 'R', 'D', 'X' };

typedef struct Header {
    NrdIndexEnd end;
    uint64_t n_entries;
    uint64_t n_gaps;
} Header;

static uint64_t file_size(const Header *header)
{
    return (1 + nrd_index_n_blocks(header->n_entries) + nrd_index_n_blocks(header->n_gaps)) * NRD_INDEX_BLOCK_BYTES;
}

static bool is_header(const uint8_t *bytes)
{
    return memcmp(bytes, magic, sizeof magic) == 0 && nrd_get_be32(bytes + AT_VERSION) == VERSION &&
           nrd_get_be32(bytes + AT_HEADER_CRC) == nrd_crc32c(0, bytes, AT_HEADER_CRC);
}

/* Takes a header apart; false when it is not the one of this segment. */
static bool parse_header(const NrdIndexFileId *id, const uint8_t *bytes, Header *ret_header)
{
    if (!is_header(bytes))
        return false;
    if (nrd_get_be64(bytes + AT_BASE) != id->base || nrd_get_be64(bytes + AT_END) != id->end_offset ||
        nrd_get_be64(bytes + AT_SIZE) != id->size_bytes || nrd_get_be32(bytes + AT_KIND) != (uint32_t)id->kind)
        return false;
    ret_header->end = (NrdIndexEnd){ .pos = id->size_bytes,
                                     .offset = id->end_offset,
                                     .text_bytes = nrd_get_be64(bytes + AT_TEXT),
                                     .commit_ms = (int64_t)nrd_get_be64(bytes + AT_TIME) };
    ret_header->n_entries = nrd_get_be64(bytes + AT_ENTRIES);
    ret_header->n_gaps = nrd_get_be64(bytes + AT_GAPS);
    /* every entry and every gap stands for bytes of the segment, but for one gap at its end */
    return ret_header->n_entries <= id->size_bytes && ret_header->n_gaps <= id->size_bytes + 1;
}

/* Opens the file and reads what may be its header. */
static int open_and_read(int root_fd, const char *path, uint8_t bytes[HEADER_BYTES], int *ret_fd, uint64_t *ret_size)
{
    size_t n = 0;
    struct stat st;

    int fd = nrd_io->open(root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd == -ELOOP || fd == -ENXIO ? -ENOENT : fd;
    int r = nrd_io->fstat(fd, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -ENOENT;
    if (r == 0)
        r = nrd_io_pread_full(fd, bytes, HEADER_BYTES, 0, &n);
    if (r == 0 && n < HEADER_BYTES)
        r = -ENOENT;
    if (r < 0) {
        nrd_io_close(&fd);
        return r;
    }
    *ret_fd = fd;
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

static int open_and_parse(const NrdIndexFileId *id, int *ret_fd, Header *ret_header)
{
    uint8_t bytes[HEADER_BYTES];
    uint64_t size = 0;
    int fd = -1;

    int r = open_and_read(id->root_fd, id->path, bytes, &fd, &size);
    if (r < 0)
        return r;
    if (!parse_header(id, bytes, ret_header) || size != file_size(ret_header)) {
        nrd_io_close(&fd);
        return -ENOENT;
    }
    *ret_fd = fd;
    return 0;
}

int nrd_index_file_claim(int root_fd, const char *path, uint64_t base, uint64_t *ret_end_offset)
{
    uint8_t bytes[HEADER_BYTES];
    uint64_t size;
    int fd = -1;

    int r = open_and_read(root_fd, path, bytes, &fd, &size);
    if (r < 0)
        return r;
    nrd_io_close(&fd);
    uint64_t end = nrd_get_be64(bytes + AT_END);
    if (!is_header(bytes) || nrd_get_be64(bytes + AT_BASE) != base || end <= base || end > INT64_MAX)
        return -ENOENT;
    *ret_end_offset = end;
    return 0;
}

int nrd_index_file_read_end(const NrdIndexFileId *id, NrdIndexEnd *ret_end, uint64_t *ret_n_gaps)
{
    Header header;
    int fd = -1;
    int r = open_and_parse(id, &fd, &header);
    if (r < 0)
        return r;
    nrd_io_close(&fd);
    *ret_end = header.end;
    *ret_n_gaps = header.n_gaps;
    return 0;
}

/* Where the file system cannot map: all of it in memory. */
static int read_all(int fd, size_t size, const uint8_t **ret_bytes)
{
    uint8_t *bytes = g_try_malloc(size);
    size_t n = 0;

    if (bytes == NULL)
        return -ENOMEM;
    int r = nrd_io_pread_full(fd, bytes, size, 0, &n);
    if (r == 0 && n < size)
        r = -ENOENT;
    if (r < 0) {
        g_free(bytes);
        return r;
    }
    *ret_bytes = bytes;
    return 0;
}

int nrd_index_file_map(const NrdIndexFileId *id, NrdIndexMap **ret_map)
{
    Header header;
    const void *addr = NULL;
    int fd = -1;
    int r = open_and_parse(id, &fd, &header);
    if (r < 0)
        return r;
    NrdIndexMap map = { .size = (size_t)file_size(&header),
                        .mapped = true,
                        .base = id->base,
                        .n_entries = header.n_entries,
                        .n_gaps = header.n_gaps,
                        .end = header.end };
    r = nrd_io_map(fd, map.size, &addr);
    map.bytes = addr;
    if (r == -ENODEV || r == -ENOSYS) {
        map.mapped = false;
        r = read_all(fd, map.size, &map.bytes);
    }
    nrd_io_close(&fd);
    if (r < 0)
        return r;
    *ret_map = nrd_index_map_new(&map);
    return 0;
}

/* Item i, as four numbers. */
static void put_item(uint8_t *blocks, uint64_t first, uint64_t i, const uint64_t item[4])
{
    uint8_t *p = blocks + (first + i / NRD_INDEX_BLOCK_ITEMS) * NRD_INDEX_BLOCK_BYTES +
                 i % NRD_INDEX_BLOCK_ITEMS * NRD_INDEX_ITEM_BYTES;
    for (int k = 0; k < 4; k++)
        nrd_put_be64(p + 8 * k, item[k]);
}

static void put_header(const NrdIndexFileId *id, const Header *header, uint8_t *bytes)
{
    memcpy(bytes, magic, sizeof magic);
    nrd_put_be32(bytes + AT_VERSION, VERSION);
    nrd_put_be64(bytes + AT_BASE, id->base);
    nrd_put_be64(bytes + AT_END, id->end_offset);
    nrd_put_be64(bytes + AT_SIZE, id->size_bytes);
    nrd_put_be64(bytes + AT_TEXT, header->end.text_bytes);
    nrd_put_be64(bytes + AT_TIME, (uint64_t)header->end.commit_ms);
    nrd_put_be64(bytes + AT_ENTRIES, header->n_entries);
    nrd_put_be64(bytes + AT_GAPS, header->n_gaps);
    nrd_put_be32(bytes + AT_KIND, (uint32_t)id->kind);
    nrd_put_be32(bytes + AT_HEADER_CRC, nrd_crc32c(0, bytes, AT_HEADER_CRC));
}

static void put_blocks(const NrdIndexFileId *id, const Header *header, const NrdIndex *index, uint8_t *bytes)
{
    uint64_t first_gap = 1 + nrd_index_n_blocks(header->n_entries);
    uint64_t n_blocks = file_size(header) / NRD_INDEX_BLOCK_BYTES;

    for (guint i = 0; i < header->n_entries; i++) {
        const NrdIndexEntry *e = &g_array_index(index->entries, NrdIndexEntry, i);
        put_item(bytes, 1, i, (uint64_t[4]){ e->offset, e->pos, e->text_pos, (uint64_t)e->commit_ms });
    }
    for (guint i = 0; i < header->n_gaps; i++) {
        const NrdGap *g = &g_array_index(index->gaps, NrdGap, i);
        put_item(bytes, first_gap, i, (uint64_t[4]){ g->pos, g->end_pos, g->offset, g->end_offset });
    }
    for (uint64_t number = 1; number < n_blocks; number++)
        nrd_index_block_finish(bytes + number * NRD_INDEX_BLOCK_BYTES, id->base, number);
}

int nrd_index_file_remove(const NrdIndexFileId *id)
{
    const char *slash = strrchr(id->path, '/');
    g_autofree char *dir = g_strndup(id->path, (gsize)(slash - id->path));
    int dir_fd = -1;
    struct stat st;

    int r = nrd_io_open_dir(id->root_fd, dir, &dir_fd);
    if (r == 0)
        r = nrd_io->fstatat(dir_fd, slash + 1, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -EINVAL; /* a link or whatever somebody put there is not ours to remove */
    if (r == 0)
        r = nrd_io->unlink(dir_fd, slash + 1, false);
    nrd_io_close(&dir_fd);
    return r == -ENOENT ? 0 : r;
}

int nrd_index_file_write(const NrdIndexFileId *id, const NrdIndex *index)
{
    Header header = { .end = index->end };
    int fd = -1;

    if (id->kind == NRD_INDEX_OF_SEALED) {
        header.n_entries = index->entries->len;
        header.n_gaps = index->gaps->len;
    }
    size_t size = (size_t)file_size(&header);
    uint8_t *bytes = g_try_malloc0(size);
    if (bytes == NULL)
        return -ENOMEM;
    put_header(id, &header, bytes);
    put_blocks(id, &header, index, bytes);
    /* a new file: who has the old one mapped keeps it */
    int r = nrd_index_file_remove(id);
    if (r == 0)
        fd = nrd_io->open(id->root_fd, id->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 && r == 0)
        r = fd;
    /* No sync: a crash now leaves a file whose CRCs or length are wrong, or none. */
    if (r == 0)
        r = nrd_io_pwrite_full(fd, bytes, size, 0);
    nrd_io_close(&fd);
    g_free(bytes);
    return r;
}
