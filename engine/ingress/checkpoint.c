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
#define PART_BYTES 24
#define MAX_BYTES ((size_t)HEADER_BYTES + (size_t)NRD_CHECKPOINT_MAX_PARTS * PART_BYTES + 4)

void nrd_checkpoint_init(NrdCheckpoint *checkpoint)
{
    checkpoint->top = checkpoint->trust = 0;
    checkpoint->parts = g_array_new(FALSE, FALSE, sizeof(NrdCheckpointPart));
}

void nrd_checkpoint_clear(NrdCheckpoint *checkpoint)
{
    g_clear_pointer(&checkpoint->parts, g_array_unref);
}

static int compare(const void *a, const void *b)
{
    const NrdCheckpointPart *left = a, *right = b;
    if (left->sequence != right->sequence)
        return left->sequence < right->sequence ? -1 : 1;
    return left->partition < right->partition ? -1 : left->partition > right->partition;
}

void nrd_checkpoint_sort(NrdCheckpoint *checkpoint)
{
    g_array_sort(checkpoint->parts, compare);
}

bool nrd_checkpoint_outstanding(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition,
                                const NrdCheckpointPart **ret_part)
{
    NrdCheckpointPart key = { .sequence = sequence, .partition = partition };
    guint index;
    *ret_part = NULL;
    if (g_array_binary_search(checkpoint->parts, &key, compare, &index))
        *ret_part = &g_array_index(checkpoint->parts, NrdCheckpointPart, index);
    return *ret_part || sequence >= checkpoint->top;
}

GByteArray *nrd_checkpoint_encode(const NrdCheckpoint *checkpoint)
{
    guint n_parts = checkpoint->parts->len;
    g_assert(n_parts <= NRD_CHECKPOINT_MAX_PARTS);
    GByteArray *bytes = g_byte_array_new();
    g_byte_array_set_size(bytes, HEADER_BYTES + n_parts * PART_BYTES + 4);
    uint8_t *p = bytes->data;
    memcpy(p, MAGIC, 8);
    nrd_put_be32(p + 8, VERSION);
    nrd_put_be32(p + 12, n_parts);
    nrd_put_be64(p + 16, checkpoint->top);
    nrd_put_be64(p + 24, checkpoint->trust);
    p += HEADER_BYTES;
    for (guint i = 0; i < n_parts; i++, p += PART_BYTES) {
        const NrdCheckpointPart *part = &g_array_index(checkpoint->parts, NrdCheckpointPart, i);
        nrd_put_be64(p, part->sequence);
        nrd_put_be32(p + 8, part->partition);
        nrd_put_be32(p + 12, part->to);
        nrd_put_be64(p + 16, part->expected);
    }
    nrd_put_be32(p, nrd_crc32c(0, bytes->data, bytes->len - 4));
    return bytes;
}

/* ---- reading: the bytes are not trusted ---- */

static bool head_valid(const uint8_t *bytes, size_t size)
{
    if (size < HEADER_BYTES + 4 || size > MAX_BYTES || memcmp(bytes, MAGIC, 8) != 0 ||
        nrd_get_be32(bytes + 8) != VERSION)
        return false;
    uint64_t n_parts = nrd_get_be32(bytes + 12);
    return n_parts <= NRD_CHECKPOINT_MAX_PARTS && size == HEADER_BYTES + n_parts * PART_BYTES + 4 &&
           nrd_get_be64(bytes + 16) <= NRD_ENTRY_SEQUENCE_MAX + 1 &&
           nrd_get_be64(bytes + 24) <= NRD_ENTRY_SEQUENCE_MAX + 1 &&
           nrd_get_be32(bytes + size - 4) == nrd_crc32c(0, bytes, size - 4);
}

static bool get_part(const uint8_t *p, uint64_t top, NrdCheckpointPart *part)
{
    *part = (NrdCheckpointPart){ nrd_get_be64(p), nrd_get_be32(p + 8), nrd_get_be32(p + 12), nrd_get_be64(p + 16) };
    return part->sequence < top && part->partition < NRD_ENTRY_MAX_PARTS && part->to < NRD_ENTRY_MAX_PARTS;
}

int nrd_checkpoint_decode(const uint8_t *bytes, size_t size, NrdCheckpoint *checkpoint)
{
    if (!head_valid(bytes, size))
        return -EBADMSG;
    uint32_t n_parts = nrd_get_be32(bytes + 12);
    uint64_t top = nrd_get_be64(bytes + 16);
    g_array_set_size(checkpoint->parts, 0);
    const uint8_t *p = bytes + HEADER_BYTES;
    for (uint32_t i = 0; i < n_parts; i++, p += PART_BYTES) {
        NrdCheckpointPart part;
        if (!get_part(p, top, &part)) {
            g_array_set_size(checkpoint->parts, 0);
            return -EBADMSG;
        }
        g_array_append_val(checkpoint->parts, part);
    }
    checkpoint->top = top;
    checkpoint->trust = nrd_get_be64(bytes + 24);
    nrd_checkpoint_sort(checkpoint); /* the checksum vouches for who wrote it; the searches only need the order */
    return 0;
}

static bool is_checkpoint(const uint8_t *bytes, size_t size, void *checkpoint)
{
    return bytes && nrd_checkpoint_decode(bytes, size, checkpoint) == 0;
}

int nrd_checkpoint_load(int root_fd, NrdCheckpoint *checkpoint, bool *ret_damaged)
{
    *ret_damaged = false;
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_checked(root_fd, PATH, MAX_BYTES, is_checkpoint, checkpoint, &bytes);
    if (rc == -ENOENT)
        return 0;
    gsize size = 0;
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    if (rc == -EFBIG || (rc == 0 && (!data || nrd_checkpoint_decode(data, size, checkpoint) < 0))) {
        *ret_damaged = true;
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
