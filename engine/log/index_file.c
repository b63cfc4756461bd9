/* See index_file.h. */
#include "engine/log/index_file.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HEADER_BYTES 80
#define ITEM_BYTES 32
#define VERSION 1

enum {
    AT_VERSION = 4,
    AT_BASE = 8,
    AT_END = 16,
    AT_SIZE = 24,
    AT_TEXT = 32,
    AT_TIME = 40,
    AT_ENTRIES = 48,
    AT_GAPS = 56,
    AT_BODY_CRC = 64,
    AT_HEADER_CRC = 76
};

_Static_assert(AT_HEADER_CRC + 4 == HEADER_BYTES, "the header ends with its CRC");
_Static_assert(sizeof(NrdIndexEntry) == ITEM_BYTES && sizeof(NrdGap) == ITEM_BYTES, "items are four 64-bit numbers");

static const uint8_t magic[4] = { 'N', 'R', 'D', 'X' };

typedef struct Header {
    NrdIndexEnd end;
    uint64_t n_entries;
    uint64_t n_gaps;
    uint32_t body_crc;
} Header;

/* Takes a header apart; false when it is not the one of this segment. */
static bool parse_header(const NrdIndexFileId *id, const uint8_t *bytes, Header *ret_header)
{
    if (memcmp(bytes, magic, sizeof magic) != 0 || nrd_get_be32(bytes + AT_VERSION) != VERSION)
        return false;
    if (nrd_get_be32(bytes + AT_HEADER_CRC) != nrd_crc32c(0, bytes, AT_HEADER_CRC))
        return false;
    if (nrd_get_be64(bytes + AT_BASE) != id->base || nrd_get_be64(bytes + AT_END) != id->end_offset ||
        nrd_get_be64(bytes + AT_SIZE) != id->size_bytes)
        return false;
    ret_header->end = (NrdIndexEnd){ .pos = id->size_bytes,
                                     .offset = id->end_offset,
                                     .text_bytes = nrd_get_be64(bytes + AT_TEXT),
                                     .commit_ms = (int64_t)nrd_get_be64(bytes + AT_TIME) };
    ret_header->n_entries = nrd_get_be64(bytes + AT_ENTRIES);
    ret_header->n_gaps = nrd_get_be64(bytes + AT_GAPS);
    ret_header->body_crc = nrd_get_be32(bytes + AT_BODY_CRC);
    /* every entry and every gap stands for bytes of the segment, but for one gap at its end */
    return ret_header->n_entries <= id->size_bytes && ret_header->n_gaps <= id->size_bytes + 1;
}

/* Opens the file and reads its header. */
static int open_and_parse(const NrdIndexFileId *id, int *ret_fd, Header *ret_header)
{
    uint8_t bytes[HEADER_BYTES];
    size_t n = 0;
    struct stat st;

    int fd = nrd_io->open(id->root_fd, id->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd == -ELOOP || fd == -ENXIO ? -ENOENT : fd;
    int r = nrd_io->fstat(fd, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -ENOENT;
    if (r == 0)
        r = nrd_io_pread_full(fd, bytes, sizeof bytes, 0, &n);
    if (r == 0 && (n < sizeof bytes || !parse_header(id, bytes, ret_header)))
        r = -ENOENT;
    if (r == 0 && (uint64_t)st.st_size != HEADER_BYTES + (ret_header->n_entries + ret_header->n_gaps) * ITEM_BYTES)
        r = -ENOENT;
    if (r < 0) {
        nrd_io_close(&fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

int nrd_index_file_read_end(const NrdIndexFileId *id, NrdIndexEnd *ret_end)
{
    Header header;
    int fd = -1;
    int r = open_and_parse(id, &fd, &header);
    if (r < 0)
        return r;
    nrd_io_close(&fd);
    *ret_end = header.end;
    return 0;
}

static void get_item(const uint8_t *bytes, uint64_t ret_item[4])
{
    for (int i = 0; i < 4; i++)
        ret_item[i] = nrd_get_be64(bytes + 8 * i);
}

/* Fills the index from the body; false when something in it does not fit. */
static bool parse_body(const NrdIndexFileId *id, const Header *header, const uint8_t *body, NrdIndex *index)
{
    NrdIndexEntry last = { 0 };
    NrdGap last_gap = { 0 };
    uint64_t item[4];

    for (uint64_t i = 0; i < header->n_entries; i++, body += ITEM_BYTES) {
        get_item(body, item);
        NrdIndexEntry e = { item[0], item[1], item[2], (int64_t)item[3] };
        if (e.offset < id->base || e.offset >= id->end_offset || e.pos >= id->size_bytes ||
            e.text_pos > header->end.text_bytes)
            return false;
        if (i > 0 && (e.offset <= last.offset || e.pos <= last.pos || e.text_pos < last.text_pos))
            return false;
        g_array_append_val(index->entries, e);
        last = e;
    }
    for (uint64_t i = 0; i < header->n_gaps; i++, body += ITEM_BYTES) {
        get_item(body, item);
        NrdGap g = { item[0], item[1], item[2], item[3] };
        if (g.pos > g.end_pos || g.offset > g.end_offset || g.end_pos > id->size_bytes ||
            g.end_offset > id->end_offset || g.pos < last_gap.end_pos || g.offset < last_gap.end_offset)
            return false;
        g_array_append_val(index->gaps, g);
        last_gap = g;
    }
    index->end = header->end;
    return true;
}

int nrd_index_file_load(const NrdIndexFileId *id, NrdIndex **ret_index)
{
    Header header;
    int fd = -1;
    int r = open_and_parse(id, &fd, &header);
    if (r < 0)
        return r;
    /* the file is that long: open_and_parse compared */
    size_t size = (size_t)(header.n_entries + header.n_gaps) * ITEM_BYTES;
    size_t n = 0;
    uint8_t *body = g_try_malloc(size + 1);
    if (body == NULL)
        r = -ENOMEM;
    if (r == 0)
        r = nrd_io_pread_full(fd, body, size, HEADER_BYTES, &n);
    if (r == 0 && (n < size || nrd_crc32c(0, body, size) != header.body_crc))
        r = -ENOENT;
    if (r == 0) {
        NrdIndex *index = nrd_index_new(id->base);
        if (parse_body(id, &header, body, index)) {
            *ret_index = index;
        } else {
            nrd_index_free(index);
            r = -ENOENT;
        }
    }
    g_free(body);
    nrd_io_close(&fd);
    return r;
}

static void put_item(uint8_t *bytes, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    nrd_put_be64(bytes, a);
    nrd_put_be64(bytes + 8, b);
    nrd_put_be64(bytes + 16, c);
    nrd_put_be64(bytes + 24, d);
}

static void fill(const NrdIndexFileId *id, const NrdIndex *index, uint8_t *bytes, size_t size)
{
    uint8_t *body = bytes + HEADER_BYTES;
    uint8_t *p = body;

    for (guint i = 0; i < index->entries->len; i++, p += ITEM_BYTES) {
        const NrdIndexEntry *e = &g_array_index(index->entries, NrdIndexEntry, i);
        put_item(p, e->offset, e->pos, e->text_pos, (uint64_t)e->commit_ms);
    }
    for (guint i = 0; i < index->gaps->len; i++, p += ITEM_BYTES) {
        const NrdGap *g = &g_array_index(index->gaps, NrdGap, i);
        put_item(p, g->pos, g->end_pos, g->offset, g->end_offset);
    }
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    nrd_put_be32(bytes + AT_VERSION, VERSION);
    nrd_put_be64(bytes + AT_BASE, id->base);
    nrd_put_be64(bytes + AT_END, id->end_offset);
    nrd_put_be64(bytes + AT_SIZE, id->size_bytes);
    nrd_put_be64(bytes + AT_TEXT, index->end.text_bytes);
    nrd_put_be64(bytes + AT_TIME, (uint64_t)index->end.commit_ms);
    nrd_put_be64(bytes + AT_ENTRIES, index->entries->len);
    nrd_put_be64(bytes + AT_GAPS, index->gaps->len);
    nrd_put_be32(bytes + AT_BODY_CRC, nrd_crc32c(0, body, size - HEADER_BYTES));
    nrd_put_be32(bytes + AT_HEADER_CRC, nrd_crc32c(0, bytes, AT_HEADER_CRC));
}

int nrd_index_file_write(const NrdIndexFileId *id, const NrdIndex *index)
{
    size_t size = HEADER_BYTES + ((size_t)index->entries->len + index->gaps->len) * ITEM_BYTES;
    uint8_t *bytes = g_try_malloc(size);
    struct stat st;

    if (bytes == NULL)
        return -ENOMEM;
    fill(id, index, bytes, size);
    int fd = nrd_io->open(id->root_fd, id->path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    int r = fd < 0 ? fd : nrd_io->fstat(fd, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -EINVAL;
    if (r == 0)
        r = nrd_io->ftruncate(fd, 0);
    if (r == 0)
        r = nrd_io_pwrite_full(fd, bytes, size, 0);
    /* No sync: a crash now leaves a file whose CRC or length is wrong, or none. */
    nrd_io_close(&fd);
    g_free(bytes);
    return r;
}
