/* See record.h. Pure: no I/O, no locks, no clock. */
#include "engine/log/frames/record.h"

#include "engine/base/endian.h"

#include <string.h>

NrdRecordBatch *nrd_record_batch_new(void)
{
    NrdRecordBatch *batch = g_new0(NrdRecordBatch, 1);
    batch->bytes = g_byte_array_new();
    return batch;
}

void nrd_record_batch_free(NrdRecordBatch *batch)
{
    if (batch == NULL)
        return;
    g_byte_array_unref(batch->bytes);
    g_free(batch);
}

void nrd_record_batch_clear(NrdRecordBatch *batch)
{
    g_byte_array_set_size(batch->bytes, 0);
    batch->n_records = 0;
    batch->text_bytes = 0;
    batch->copies = false;
}

void nrd_record_batch_add(NrdRecordBatch *batch, const void *key, size_t key_size, const void *payload,
                          size_t payload_size)
{
    uint8_t head[NRD_RECORD_LENGTH_BYTES + 1 + NRD_UVARINT_MAX];

    head[NRD_RECORD_LENGTH_BYTES] = NRD_RECORD_VERSION;
    size_t n_head = NRD_RECORD_LENGTH_BYTES + 1 + nrd_put_uvarint(head + NRD_RECORD_LENGTH_BYTES + 1, key_size);
    size_t envelope = n_head - NRD_RECORD_LENGTH_BYTES + key_size + NRD_RECORD_TIME_BYTES + payload_size;
    g_assert(envelope <= G_MAXINT32 && batch->n_records < G_MAXINT32);
    nrd_put_be32(head, (uint32_t)envelope);

    guint at = batch->bytes->len;
    g_byte_array_set_size(batch->bytes,
                          at + NRD_RECORD_LENGTH_BYTES + (guint)envelope); /* once: this is called for every record */
    uint8_t *p = batch->bytes->data + at;
    memcpy(p, head, n_head);
    if (key_size > 0)
        memcpy(p + n_head, key, key_size);
    memset(p + n_head + key_size, 0, NRD_RECORD_TIME_BYTES);
    if (payload_size > 0)
        memcpy(p + n_head + key_size + NRD_RECORD_TIME_BYTES, payload, payload_size);
    batch->n_records++;
    batch->text_bytes += payload_size + 1;
}

void nrd_record_batch_prepend(NrdRecordBatch *batch, const NrdRecordBatch *first)
{
    if (first->bytes->len > 0)
        g_byte_array_prepend(batch->bytes, first->bytes->data, first->bytes->len);
    batch->n_records += first->n_records;
    batch->text_bytes += first->text_bytes;
    batch->copies |= first->copies;
}

void nrd_record_batch_stamp(NrdRecordBatch *batch, int64_t commit_ms)
{
    uint8_t *p = batch->bytes->data;
    uint8_t *end = p + batch->bytes->len;

    while (p < end) {
        size_t envelope = nrd_get_be32(p);
        uint64_t key_size = 0;
        size_t n = nrd_get_uvarint(p + NRD_RECORD_LENGTH_BYTES + 1, envelope - 1, &key_size);
        /* our own memory: nrd_record_batch_add wrote it */
        g_assert(n > 0 && key_size + n + 1 + NRD_RECORD_TIME_BYTES <= envelope &&
                 envelope <= (size_t)(end - p) - NRD_RECORD_LENGTH_BYTES);
        nrd_put_be64(p + NRD_RECORD_LENGTH_BYTES + 1 + n + key_size, (uint64_t)commit_ms);
        p += NRD_RECORD_LENGTH_BYTES + envelope;
    }
}
