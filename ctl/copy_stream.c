/* Records out of `log.bin`; see copy.h, and fs/bin.h for the layout. */
#include "ctl/copy.h"
#include "engine/base/endian.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)36)
#define READ_BYTES ((size_t)1 << 20)
#define RECORD_MAX_BYTES ((size_t)80 << 20) /* above the largest payload with the largest key */
#define KEPT_BYTES ((size_t)4 << 20)        /* of a buffer that was needed for one long record */

struct NrdCopyStream {
    int fd;
    uint8_t *bytes;
    size_t capacity;
    size_t begin, end; /* what was read and not given yet */
};

int nrd_copy_stream_open(const char *partition_dir, NrdCopyStream **ret_stream)
{
    g_autofree char *path = g_strconcat(partition_dir, "/log.bin", NULL);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    NrdCopyStream *stream = g_new0(NrdCopyStream, 1);
    stream->fd = fd;
    *ret_stream = stream;
    return 0;
}

void nrd_copy_stream_free(NrdCopyStream *stream)
{
    if (!stream)
        return;
    close(stream->fd);
    g_free(stream->bytes);
    g_free(stream);
}

/* Room for `size` bytes from begin on, and for a read behind what is there. */
static int make_room(NrdCopyStream *stream, size_t size)
{
    size_t have = stream->end - stream->begin;
    size_t want = MAX(size, have) + READ_BYTES;
    if (stream->begin > 0)
        memmove(stream->bytes, stream->bytes + stream->begin, have);
    stream->begin = 0;
    stream->end = have;
    if (want <= stream->capacity && (stream->capacity <= KEPT_BYTES || want > KEPT_BYTES))
        return 0;
    uint8_t *bytes = g_try_realloc(stream->bytes, want);
    if (!bytes)
        return -ENOMEM;
    stream->bytes = bytes;
    stream->capacity = want;
    return 0;
}

/* Until so many bytes are there; *ret_there false: the file ends before. */
static int fill(NrdCopyStream *stream, size_t size, bool *ret_there)
{
    *ret_there = true;
    if (stream->end - stream->begin >= size)
        return 0;
    int rc = make_room(stream, size);
    while (rc == 0 && *ret_there && stream->end - stream->begin < size) {
        ssize_t n = read(stream->fd, stream->bytes + stream->end, MIN(stream->capacity - stream->end, READ_BYTES));
        if (n < 0 && errno != EINTR)
            rc = -errno;
        *ret_there = n != 0;
        stream->end += n > 0 ? (size_t)n : 0;
    }
    return rc;
}

int nrd_copy_stream_next(NrdCopyStream *stream, NrdCopyRecord *ret_record, bool *ret_found)
{
    int rc = fill(stream, HEAD_BYTES, ret_found);
    if (rc < 0 || !*ret_found)
        return rc;
    const uint8_t *head = stream->bytes + stream->begin;
    size_t size = (size_t)nrd_get_be32(head) + 4, key_size = nrd_get_be32(head + 32);
    if (size < HEAD_BYTES || size > RECORD_MAX_BYTES || key_size > size - HEAD_BYTES)
        return -EBADMSG;
    rc = fill(stream, size, ret_found);
    if (rc < 0 || !*ret_found)
        return rc;
    const uint8_t *record = stream->bytes + stream->begin; /* it may have moved */
    *ret_record = (NrdCopyRecord){
        .offset = nrd_get_be64(record + 8),
        .key = record + HEAD_BYTES,
        .key_size = key_size,
        .payload = record + HEAD_BYTES + key_size,
        .payload_size = size - HEAD_BYTES - key_size,
    };
    stream->begin += size;
    return 0;
}

/* ---- what a record is, wherever it stands ---- */

bool nrd_copy_record_same(const NrdCopyRecord *a, const NrdCopyRecord *b)
{
    return a->key_size == b->key_size && a->payload_size == b->payload_size &&
           memcmp(a->key, b->key, a->key_size) == 0 && memcmp(a->payload, b->payload, a->payload_size) == 0;
}

static void put_head(uint8_t head[8], const NrdCopyRecord *record)
{
    nrd_put_be32(head, (uint32_t)record->key_size);
    nrd_put_be32(head + 4, (uint32_t)record->payload_size);
}

void nrd_copy_record_put(GByteArray *out, const NrdCopyRecord *record)
{
    uint8_t head[8];
    put_head(head, record);
    g_byte_array_append(out, head, sizeof head);
    g_byte_array_append(out, record->key, (guint)record->key_size);
    g_byte_array_append(out, record->payload, (guint)record->payload_size);
}

void nrd_copy_tally_init(NrdCopyTally *tally)
{
    *tally = (NrdCopyTally){ .sum = g_checksum_new(G_CHECKSUM_SHA256) };
}

void nrd_copy_tally_add(NrdCopyTally *tally, const NrdCopyRecord *record)
{
    uint8_t head[8];
    put_head(head, record);
    g_checksum_update(tally->sum, head, sizeof head);
    g_checksum_update(tally->sum, record->key, (gssize)record->key_size);
    g_checksum_update(tally->sum, record->payload, (gssize)record->payload_size);
    tally->n++;
}

char *nrd_copy_tally_text(const NrdCopyTally *tally)
{
    GChecksum *so_far = g_checksum_copy(tally->sum); /* telling ends it */
    char *text = g_strdup(g_checksum_get_string(so_far));
    g_checksum_free(so_far);
    return text;
}

void nrd_copy_tally_clear(NrdCopyTally *tally)
{
    g_clear_pointer(&tally->sum, g_checksum_free);
}
