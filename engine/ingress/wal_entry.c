/* Encoding and decoding; the byte table is in wal_entry.h. Nothing here trusts bytes that were read, checksum or not. */
#include "engine/ingress/wal_entry.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"

#include <errno.h>
#include <string.h>

#define MAGIC "NRDE"
#define VERSION 1
#define VERSION_POS 4
#define TOPIC_SIZE_POS 5
#define N_PARTS_POS 6
#define MARK_POS 8
#define SEQUENCE_POS 16
#define SIZE_POS 24
#define N_RECORDS_POS 28
#define ID_POS 32
#define ZERO_POS 48
#define BODY_CRC_POS 56
#define HEAD_CRC_POS 60
#define RECORD_HEAD_BYTES 8

_Static_assert(HEAD_CRC_POS + 4 == NRD_ENTRY_HEADER_BYTES, "the checksum ends the header");
_Static_assert(ID_POS + NRD_ENTRY_ID_DIGITS == ZERO_POS, "the id ends where the unused bytes begin");
_Static_assert(NRD_ENTRY_MAX_BYTES <= UINT32_MAX, "sizes have four bytes");

/* ---- making one ---- */

typedef struct DraftPart {
    uint32_t partition;
    uint32_t n_records;
    GByteArray *bytes;
} DraftPart;

static void free_part(gpointer data)
{
    DraftPart *part = data;
    g_byte_array_unref(part->bytes);
    g_free(part);
}

NrdEntryDraft *nrd_entry_draft_new(void)
{
    NrdEntryDraft *draft = g_new0(NrdEntryDraft, 1);
    draft->parts = g_hash_table_new_full(NULL, NULL, NULL, free_part);
    return draft;
}

void nrd_entry_draft_free(NrdEntryDraft *draft)
{
    if (!draft)
        return;
    g_hash_table_unref(draft->parts);
    g_free(draft);
}

static DraftPart *part_for(NrdEntryDraft *draft, uint32_t partition)
{
    DraftPart *part = g_hash_table_lookup(draft->parts, GUINT_TO_POINTER(partition));
    if (part)
        return part;
    part = g_new0(DraftPart, 1);
    part->partition = partition;
    part->bytes = g_byte_array_new();
    g_hash_table_insert(draft->parts, GUINT_TO_POINTER(partition), part);
    return part;
}

void nrd_entry_draft_add(NrdEntryDraft *draft, uint32_t partition, const void *key, size_t key_size,
                         const void *payload, size_t payload_size)
{
    uint8_t head[RECORD_HEAD_BYTES];
    g_assert(partition < NRD_ENTRY_MAX_PARTS && key_size <= UINT32_MAX && payload_size <= UINT32_MAX);
    DraftPart *part = part_for(draft, partition);
    nrd_put_be32(head, (uint32_t)key_size);
    nrd_put_be32(head + 4, (uint32_t)payload_size);
    g_byte_array_append(part->bytes, head, sizeof head);
    if (key_size > 0)
        g_byte_array_append(part->bytes, key, (guint)key_size);
    if (payload_size > 0)
        g_byte_array_append(part->bytes, payload, (guint)payload_size);
    part->n_records++;
    draft->n_records++;
    draft->n_bytes += sizeof head + key_size + payload_size;
}

static bool id_valid(const char *id)
{
    return strspn(id, "0123456789abcdef") == NRD_ENTRY_ID_DIGITS;
}

static gint by_partition(gconstpointer a, gconstpointer b)
{
    uint32_t left = (*(DraftPart *const *)a)->partition, right = (*(DraftPart *const *)b)->partition;
    return left < right ? -1 : left > right;
}

static GPtrArray *sorted_parts(const NrdEntryDraft *draft)
{
    GPtrArray *parts = g_ptr_array_new();
    GHashTableIter iter;
    gpointer part;
    g_hash_table_iter_init(&iter, draft->parts);
    while (g_hash_table_iter_next(&iter, NULL, &part))
        g_ptr_array_add(parts, part);
    g_ptr_array_sort(parts, by_partition);
    return parts;
}

static void put_parts(uint8_t *table, uint8_t *records, const GPtrArray *parts)
{
    for (guint i = 0; i < parts->len; i++) {
        const DraftPart *part = parts->pdata[i];
        nrd_put_be32(table, part->partition);
        nrd_put_be32(table + 4, part->n_records);
        nrd_put_be64(table + 8, NRD_ENTRY_OFFSET_UNKNOWN);
        nrd_put_be32(table + 16, part->bytes->len);
        nrd_put_be32(table + 20, 0);
        memcpy(records, part->bytes->data, part->bytes->len);
        table += NRD_ENTRY_PART_BYTES;
        records += part->bytes->len;
    }
}

int nrd_entry_encode(const NrdEntryDraft *draft, const char *topic, const char *id, uint8_t **ret_bytes,
                     size_t *ret_size)
{
    size_t topic_size = strlen(topic);
    uint32_t n_parts = g_hash_table_size(draft->parts);
    size_t size = NRD_ENTRY_HEADER_BYTES + topic_size + n_parts * (size_t)NRD_ENTRY_PART_BYTES + draft->n_bytes;
    g_assert(draft->n_records > 0);
    if (topic_size == 0 || topic_size > NRD_ENTRY_TOPIC_MAX || strlen(id) != NRD_ENTRY_ID_DIGITS || !id_valid(id))
        return -EINVAL;
    if (size > NRD_ENTRY_MAX_BYTES)
        return -EFBIG;
    uint8_t *bytes = g_try_malloc(size);
    if (!bytes)
        return -ENOMEM;
    memset(bytes, 0, NRD_ENTRY_HEADER_BYTES);
    memcpy(bytes, MAGIC, 4);
    bytes[VERSION_POS] = VERSION;
    bytes[TOPIC_SIZE_POS] = (uint8_t)topic_size;
    bytes[N_PARTS_POS] = (uint8_t)(n_parts >> 8);
    bytes[N_PARTS_POS + 1] = (uint8_t)n_parts;
    nrd_put_be32(bytes + SIZE_POS, (uint32_t)size);
    nrd_put_be32(bytes + N_RECORDS_POS, draft->n_records);
    memcpy(bytes + ID_POS, id, NRD_ENTRY_ID_DIGITS);
    uint8_t *table = bytes + NRD_ENTRY_HEADER_BYTES + topic_size;
    memcpy(bytes + NRD_ENTRY_HEADER_BYTES, topic, topic_size);
    g_autoptr(GPtrArray) parts = sorted_parts(draft);
    put_parts(table, table + n_parts * (size_t)NRD_ENTRY_PART_BYTES, parts);
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

void nrd_entry_seal(uint8_t *bytes, size_t size, uint64_t mark, uint64_t sequence)
{
    nrd_put_be64(bytes + MARK_POS, mark);
    nrd_put_be64(bytes + SEQUENCE_POS, sequence);
    nrd_put_be32(bytes + BODY_CRC_POS, nrd_crc32c(0, bytes + NRD_ENTRY_HEADER_BYTES, size - NRD_ENTRY_HEADER_BYTES));
    nrd_put_be32(bytes + HEAD_CRC_POS, nrd_crc32c(0, bytes, HEAD_CRC_POS));
}

void nrd_entry_set_expected(uint8_t *bytes, uint32_t i, uint64_t offset)
{
    uint8_t *table = bytes + NRD_ENTRY_HEADER_BYTES + bytes[TOPIC_SIZE_POS];
    nrd_put_be64(table + i * (size_t)NRD_ENTRY_PART_BYTES + 8, offset);
}

/* ---- reading one ---- */

static void get_head(const uint8_t *bytes, NrdEntryHead *head)
{
    head->sequence = nrd_get_be64(bytes + SEQUENCE_POS);
    head->size = nrd_get_be32(bytes + SIZE_POS);
    head->n_records = nrd_get_be32(bytes + N_RECORDS_POS);
    head->n_parts = (uint32_t)bytes[N_PARTS_POS] << 8 | bytes[N_PARTS_POS + 1];
    head->topic_size = bytes[TOPIC_SIZE_POS];
    memcpy(head->id, bytes + ID_POS, NRD_ENTRY_ID_DIGITS);
    head->id[NRD_ENTRY_ID_DIGITS] = '\0';
}

int nrd_entry_decode_head(const uint8_t header[NRD_ENTRY_HEADER_BYTES], uint64_t mark, NrdEntryHead *ret_head)
{
    NrdEntryHead head;
    if (memcmp(header, MAGIC, 4) != 0 || header[VERSION_POS] != VERSION || nrd_get_be64(header + MARK_POS) != mark ||
        nrd_get_be64(header + ZERO_POS) != 0 ||
        nrd_get_be32(header + HEAD_CRC_POS) != nrd_crc32c(0, header, HEAD_CRC_POS))
        return -EBADMSG;
    get_head(header, &head);
    size_t least = NRD_ENTRY_HEADER_BYTES + head.topic_size + head.n_parts * (size_t)NRD_ENTRY_PART_BYTES +
                   head.n_records * (size_t)RECORD_HEAD_BYTES;
    if (head.sequence == 0 || head.sequence > NRD_ENTRY_SEQUENCE_MAX || head.topic_size == 0 ||
        head.topic_size > NRD_ENTRY_TOPIC_MAX || head.n_parts == 0 || head.n_parts > NRD_ENTRY_MAX_PARTS ||
        head.n_records < head.n_parts || head.size > NRD_ENTRY_MAX_BYTES || head.size < least || !id_valid(head.id))
        return -EBADMSG;
    *ret_head = head;
    return 0;
}

bool nrd_entry_next_record(const uint8_t **bytes, size_t *size, NrdEntryRecord *ret_record)
{
    if (*size < RECORD_HEAD_BYTES)
        return false;
    const uint8_t *p = *bytes;
    size_t key_size = nrd_get_be32(p), payload_size = nrd_get_be32(p + 4);
    size_t left = *size - RECORD_HEAD_BYTES;
    if (key_size > left || payload_size > left - key_size)
        return false;
    p += RECORD_HEAD_BYTES;
    *ret_record = (NrdEntryRecord){ p, key_size, p + key_size, payload_size };
    *bytes = p + key_size + payload_size;
    *size = left - key_size - payload_size;
    return true;
}

static bool records_add_up(const NrdEntryPart *part)
{
    const uint8_t *bytes = part->records;
    size_t size = part->size;
    NrdEntryRecord record;
    uint32_t n = 0;
    while (nrd_entry_next_record(&bytes, &size, &record))
        n++;
    return size == 0 && n == part->n_records && n > 0;
}

static void get_part(const uint8_t *entry, NrdEntryPart *part)
{
    part->partition = nrd_get_be32(entry);
    part->n_records = nrd_get_be32(entry + 4);
    part->expected = nrd_get_be64(entry + 8);
    part->size = nrd_get_be32(entry + 16);
}

static bool parts_add_up(const NrdEntryView *view)
{
    size_t left = view->head.size - (size_t)(view->records - view->topic) - NRD_ENTRY_HEADER_BYTES;
    uint64_t n_records = 0;
    NrdEntryPart part = { .records = view->records };
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        const uint8_t *entry = view->parts + i * (size_t)NRD_ENTRY_PART_BYTES;
        uint32_t before = part.partition;
        get_part(entry, &part);
        if (part.size > left || part.partition >= NRD_ENTRY_MAX_PARTS || (i > 0 && part.partition <= before) ||
            nrd_get_be32(entry + 20) != 0 || !records_add_up(&part))
            return false;
        part.records += part.size;
        left -= part.size;
        n_records += part.n_records;
    }
    return left == 0 && n_records == view->head.n_records;
}

static void point_into(const uint8_t *bytes, NrdEntryView *view)
{
    view->topic = bytes + NRD_ENTRY_HEADER_BYTES;
    view->parts = view->topic + view->head.topic_size;
    view->records = view->parts + view->head.n_parts * (size_t)NRD_ENTRY_PART_BYTES;
}

int nrd_entry_decode(const uint8_t *bytes, size_t size, uint64_t mark, NrdEntryView *ret_view)
{
    NrdEntryView view;
    int rc = size < NRD_ENTRY_HEADER_BYTES ? -EBADMSG : nrd_entry_decode_head(bytes, mark, &view.head);
    if (rc < 0)
        return rc;
    if (view.head.size > size ||
        nrd_get_be32(bytes + BODY_CRC_POS) !=
            nrd_crc32c(0, bytes + NRD_ENTRY_HEADER_BYTES, view.head.size - NRD_ENTRY_HEADER_BYTES))
        return -EBADMSG;
    point_into(bytes, &view);
    if (memchr(view.topic, '\0', view.head.topic_size) || !parts_add_up(&view))
        return -EBADMSG;
    *ret_view = view;
    return 0;
}

void nrd_entry_view_own(const uint8_t *bytes, NrdEntryView *ret_view)
{
    get_head(bytes, &ret_view->head);
    point_into(bytes, ret_view);
}

void nrd_entry_part(const NrdEntryView *view, uint32_t i, NrdEntryPart *ret_part)
{
    g_assert(i < view->head.n_parts);
    NrdEntryPart part = { .records = view->records };
    for (uint32_t n = 0;; n++) {
        get_part(view->parts + n * (size_t)NRD_ENTRY_PART_BYTES, &part);
        if (n == i)
            break;
        part.records += part.size;
    }
    *ret_part = part;
}
