/* See render_file.h. */
#include "engine/log/segments/render_file.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/log/index/index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define HEADER_BYTES 80
#define POINT_BYTES 16
#define CRC_BYTES 4
#define MAX_BYTES (HEADER_BYTES + NRD_RENDER_MAX_POINTS * POINT_BYTES + CRC_BYTES)
#define VERSION 1

enum {
    AT_VERSION = 4,
    AT_BASE = 8,
    AT_END = 16,
    AT_SIZE = 24,
    AT_TEXT = 32,
    AT_NAME = 40,
    AT_NAME_VERSION = 56,
    AT_POINTS = 60,
    AT_BYTES = 64,
    AT_EVERY = 72
};

_Static_assert(AT_NAME_VERSION - AT_NAME == NRD_RENDERING_NAME_MAX, "a name fits");

static const uint8_t magic[4] = { 'N', 'R', 'D', 'R' };

static size_t file_size(uint32_t n_points)
{
    return HEADER_BYTES + (size_t)n_points * POINT_BYTES + CRC_BYTES;
}

/* The header as it has to begin: up to the rendering's version. */
static void put_id(const NrdRenderFileId *id, uint8_t *bytes)
{
    memset(bytes, 0, HEADER_BYTES);
    memcpy(bytes, magic, sizeof magic);
    nrd_put_be32(bytes + AT_VERSION, VERSION);
    nrd_put_be64(bytes + AT_BASE, id->base);
    nrd_put_be64(bytes + AT_END, id->end_offset);
    nrd_put_be64(bytes + AT_SIZE, id->size_bytes);
    nrd_put_be64(bytes + AT_TEXT, id->text_bytes);
    memcpy(bytes + AT_NAME, id->rendering->name, strnlen(id->rendering->name, NRD_RENDERING_NAME_MAX));
    nrd_put_be32(bytes + AT_NAME_VERSION, id->rendering->version);
}

/* Takes the points over; false when they do not fit together. */
static bool take_points(const NrdRenderFileId *id, const uint8_t *bytes, uint32_t n, NrdRenderMap *map)
{
    NrdRenderPoint last = { 0, id->base };

    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *p = bytes + HEADER_BYTES + (size_t)i * POINT_BYTES;
        NrdRenderPoint point = { nrd_get_be64(p), nrd_get_be64(p + 8) };
        if (point.at <= last.at || point.offset <= last.offset || point.at >= map->bytes ||
            point.offset >= id->end_offset)
            return false;
        g_array_append_val(map->points, point);
        last = point;
    }
    return true;
}

static bool parse(const NrdRenderFileId *id, const uint8_t *bytes, size_t size, NrdRenderMap *ret_map)
{
    uint8_t wanted[HEADER_BYTES];

    if (size < file_size(0))
        return false;
    put_id(id, wanted);
    uint32_t n = nrd_get_be32(bytes + AT_POINTS);
    if (memcmp(bytes, wanted, AT_POINTS) != 0 || n > NRD_RENDER_MAX_POINTS || size != file_size(n))
        return false;
    if (nrd_get_be32(bytes + size - CRC_BYTES) != nrd_crc32c(0, bytes, size - CRC_BYTES))
        return false;
    NrdRenderMap map;
    nrd_render_map_init(&map, id->base);
    map.every = nrd_get_be64(bytes + AT_EVERY);
    map.next_offset = id->end_offset;
    map.bytes = nrd_get_be64(bytes + AT_BYTES);
    if (map.every < NRD_RENDER_EVERY_BYTES || !take_points(id, bytes, n, &map)) {
        nrd_render_map_drop_points(&map);
        return false;
    }
    *ret_map = map;
    return true;
}

int nrd_render_file_read(const NrdRenderFileId *id, NrdRenderMap *ret_map)
{
    struct stat st;
    size_t n = 0;

    int fd = nrd_io->open(id->root_fd, id->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd == -ELOOP || fd == -ENXIO ? -ENOENT : fd;
    int r = nrd_io->fstat(fd, &st);
    if (r == 0 && (!S_ISREG(st.st_mode) || st.st_size > MAX_BYTES))
        r = -ENOENT;
    size_t size = r == 0 ? (size_t)st.st_size : 0;
    uint8_t *bytes = g_malloc(size);
    if (r == 0)
        r = nrd_io_pread_full(fd, bytes, size, 0, &n);
    if (r == 0 && (n < size || !parse(id, bytes, size, ret_map)))
        r = -ENOENT;
    g_free(bytes);
    nrd_io_close(&fd);
    return r;
}

static uint8_t *encode(const NrdRenderFileId *id, const NrdRenderMap *map, size_t *ret_size)
{
    size_t size = file_size(map->points->len);
    uint8_t *bytes = g_malloc(size);

    put_id(id, bytes);
    nrd_put_be32(bytes + AT_POINTS, map->points->len);
    nrd_put_be64(bytes + AT_BYTES, map->bytes);
    nrd_put_be64(bytes + AT_EVERY, map->every);
    for (guint i = 0; i < map->points->len; i++) {
        const NrdRenderPoint *point = &g_array_index(map->points, NrdRenderPoint, i);
        nrd_put_be64(bytes + HEADER_BYTES + (size_t)i * POINT_BYTES, point->at);
        nrd_put_be64(bytes + HEADER_BYTES + (size_t)i * POINT_BYTES + 8, point->offset);
    }
    nrd_put_be32(bytes + size - CRC_BYTES, nrd_crc32c(0, bytes, size - CRC_BYTES));
    *ret_size = size;
    return bytes;
}

int nrd_render_file_remove(int root_fd, const char *path)
{
    return nrd_index_file_remove(&(NrdIndexFileId){ .root_fd = root_fd, .path = path });
}

int nrd_render_file_write(const NrdRenderFileId *id, const NrdRenderMap *map)
{
    size_t size;
    int r = nrd_render_file_remove(id->root_fd, id->path);
    if (r < 0)
        return r;
    int fd = nrd_io->open(id->root_fd, id->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    uint8_t *bytes = encode(id, map, &size);
    /* No sync: a crash now leaves a file whose CRC or length is wrong, or none. */
    r = nrd_io_pwrite_full(fd, bytes, size, 0);
    nrd_io_close(&fd);
    g_free(bytes);
    return r;
}
