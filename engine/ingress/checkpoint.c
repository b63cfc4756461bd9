#include "engine/ingress/checkpoint.h"

#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/ingress/wal_entry.h"
#include "engine/ingress/wal_segment.h"
#include "engine/io/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH NRD_WAL_DIR "/checkpoint"
#define MAGIC "NRDCHKPT"
#define VERSION 1
#define HEADER_BYTES 32
#define PART_BYTES 12
#define MOVE_BYTES 24
#define MAX_BYTES ((size_t)HEADER_BYTES + (size_t)NRD_CHECKPOINT_MAX_PARTS * (PART_BYTES + MOVE_BYTES) + 4)

void nrd_checkpoint_init(NrdCheckpoint *checkpoint)
{
    checkpoint->top = 0;
    checkpoint->parts = g_array_new(FALSE, FALSE, sizeof(NrdCheckpointPart));
    checkpoint->moves = g_array_new(FALSE, FALSE, sizeof(NrdCheckpointMove));
}

void nrd_checkpoint_clear(NrdCheckpoint *checkpoint)
{
    g_clear_pointer(&checkpoint->parts, g_array_unref);
    g_clear_pointer(&checkpoint->moves, g_array_unref);
}

/* For parts, and for moves, which begin with one. */
static int compare(const void *a, const void *b)
{
    const NrdCheckpointPart *left = a, *right = b;
    if (left->sequence != right->sequence)
        return left->sequence < right->sequence ? -1 : 1;
    return left->partition < right->partition ? -1 : left->partition > right->partition;
}

_Static_assert(offsetof(NrdCheckpointMove, part) == 0, "a move can be compared as a part");

void nrd_checkpoint_sort(NrdCheckpoint *checkpoint)
{
    g_array_sort(checkpoint->parts, compare);
    g_array_sort(checkpoint->moves, compare);
}

bool nrd_checkpoint_outstanding(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition)
{
    NrdCheckpointPart part = { sequence, partition };
    return sequence >= checkpoint->top || g_array_binary_search(checkpoint->parts, &part, compare, NULL);
}

const NrdCheckpointMove *nrd_checkpoint_move(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition)
{
    NrdCheckpointMove key = { .part = { sequence, partition } };
    guint index;
    if (!g_array_binary_search(checkpoint->moves, &key, compare, &index))
        return NULL;
    return &g_array_index(checkpoint->moves, NrdCheckpointMove, index);
}

static void put_part(uint8_t *p, const NrdCheckpointPart *part)
{
    nrd_put_be64(p, part->sequence);
    nrd_put_be32(p + 8, part->partition);
}

GByteArray *nrd_checkpoint_encode(const NrdCheckpoint *checkpoint)
{
    guint n_parts = checkpoint->parts->len, n_moves = checkpoint->moves->len;
    g_assert(n_parts <= NRD_CHECKPOINT_MAX_PARTS && n_moves <= NRD_CHECKPOINT_MAX_PARTS);
    GByteArray *bytes = g_byte_array_new();
    g_byte_array_set_size(bytes, HEADER_BYTES + n_parts * PART_BYTES + n_moves * MOVE_BYTES + 4);
    uint8_t *p = bytes->data;
    memset(p, 0, HEADER_BYTES);
    memcpy(p, MAGIC, 8);
    nrd_put_be32(p + 8, VERSION);
    nrd_put_be32(p + 12, n_parts);
    nrd_put_be64(p + 16, checkpoint->top);
    nrd_put_be32(p + 24, n_moves);
    p += HEADER_BYTES;
    for (guint i = 0; i < n_parts; i++, p += PART_BYTES)
        put_part(p, &g_array_index(checkpoint->parts, NrdCheckpointPart, i));
    for (guint i = 0; i < n_moves; i++, p += MOVE_BYTES) {
        const NrdCheckpointMove *move = &g_array_index(checkpoint->moves, NrdCheckpointMove, i);
        put_part(p, &move->part);
        nrd_put_be32(p + 12, move->to);
        nrd_put_be64(p + 16, move->expected);
    }
    nrd_put_be32(p, nrd_crc32c(0, bytes->data, bytes->len - 4));
    return bytes;
}

/* ---- reading: the bytes are not trusted ---- */

static bool head_valid(const uint8_t *bytes, size_t size)
{
    if (size < HEADER_BYTES + 4 || size > MAX_BYTES || memcmp(bytes, MAGIC, 8) != 0 ||
        nrd_get_be32(bytes + 8) != VERSION || nrd_get_be32(bytes + 28) != 0)
        return false;
    uint64_t n_parts = nrd_get_be32(bytes + 12), n_moves = nrd_get_be32(bytes + 24);
    return n_parts <= NRD_CHECKPOINT_MAX_PARTS && n_moves <= NRD_CHECKPOINT_MAX_PARTS &&
           size == HEADER_BYTES + n_parts * PART_BYTES + n_moves * MOVE_BYTES + 4 &&
           nrd_get_be64(bytes + 16) <= NRD_ENTRY_SEQUENCE_MAX + 1 &&
           nrd_get_be32(bytes + size - 4) == nrd_crc32c(0, bytes, size - 4);
}

static NrdCheckpointPart get_part(const uint8_t *p)
{
    return (NrdCheckpointPart){ nrd_get_be64(p), nrd_get_be32(p + 8) };
}

int nrd_checkpoint_decode(const uint8_t *bytes, size_t size, NrdCheckpoint *checkpoint)
{
    if (!head_valid(bytes, size))
        return -EBADMSG;
    uint32_t n_parts = nrd_get_be32(bytes + 12), n_moves = nrd_get_be32(bytes + 24);
    checkpoint->top = nrd_get_be64(bytes + 16);
    g_array_set_size(checkpoint->parts, 0);
    g_array_set_size(checkpoint->moves, 0);
    const uint8_t *p = bytes + HEADER_BYTES;
    for (uint32_t i = 0; i < n_parts; i++, p += PART_BYTES) {
        NrdCheckpointPart part = get_part(p);
        g_array_append_val(checkpoint->parts, part);
    }
    for (uint32_t i = 0; i < n_moves; i++, p += MOVE_BYTES) {
        NrdCheckpointMove move = { get_part(p), nrd_get_be32(p + 12), nrd_get_be64(p + 16) };
        g_array_append_val(checkpoint->moves, move);
    }
    nrd_checkpoint_sort(checkpoint); /* the checksum vouches for who wrote it; the searches only need the order */
    return 0;
}

int nrd_checkpoint_load(int root_fd, NrdCheckpoint *checkpoint)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(root_fd, PATH, MAX_BYTES, &bytes);
    if (rc == -ENOENT)
        return 0;
    gsize size = 0;
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    if (rc == -EFBIG || (rc == 0 && (!data || nrd_checkpoint_decode(data, size, checkpoint) < 0))) {
        nrd_counter_add(NRD_COUNTER_INGRESS_CHECKPOINT, 1);
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE,
                 PATH " is damaged: everything in the ingress WAL is committed again, records may come twice");
        return 0;
    }
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, PATH " cannot be read: %s",
                 rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc));
    return rc;
}

int nrd_checkpoint_store(int root_fd, const NrdCheckpoint *checkpoint)
{
    g_autoptr(GByteArray) bytes = nrd_checkpoint_encode(checkpoint);
    return nrd_io_replace_file(root_fd, PATH, bytes->data, bytes->len);
}
