/* The keyed envelope around every record, and batches of records as they lie in a frame's payload. Pure.
 *
 * Envelope (seed: "Frame format"):      in a frame's payload each is preceded by its length, 4 bytes big-endian
 *   0            version, 1 byte, 0x02
 *   1            key length, uvarint (0: unkeyed)
 *   1+v          key
 *   1+v+k        commit time, Unix milliseconds, 8 bytes big-endian
 *   1+v+k+8      payload, to the end
 */
#ifndef NRD_LOG_RECORD_H
#define NRD_LOG_RECORD_H

#include "engine/base/endian.h"
#include "engine/base/macros.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_RECORD_VERSION 0x02
#define NRD_RECORD_LENGTH_BYTES 4 /* the prefix */
#define NRD_RECORD_TIME_BYTES 8
/* Smallest record in a frame's payload: length, version, empty key, time. */
#define NRD_RECORD_MIN_BYTES (NRD_RECORD_LENGTH_BYTES + 1 + 1 + NRD_RECORD_TIME_BYTES)

/* A record that was read; the pointers belong to whoever gave it out. */
typedef struct NrdRecordView {
    uint64_t offset;
    int64_t commit_ms; /* Unix milliseconds */
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdRecordView;

/* Parses the envelope bytes[0..size) (without its length prefix) into *ret_view (offset untouched); -EBADMSG when it is
 * not one. The view points into bytes. In the header, since reading does it twice for every record. */
NRD_MUST_CHECK static inline int nrd_record_parse(const uint8_t *bytes, size_t size, NrdRecordView *ret_view)
{
    if (size < NRD_RECORD_MIN_BYTES - NRD_RECORD_LENGTH_BYTES || bytes[0] != NRD_RECORD_VERSION)
        return -EBADMSG;
    uint64_t key_size = 0;
    size_t n = nrd_get_uvarint(bytes + 1, size - 1, &key_size);
    if (n == 0)
        return -EBADMSG;
    size_t left = size - 1 - n;
    if (left < NRD_RECORD_TIME_BYTES || key_size > left - NRD_RECORD_TIME_BYTES)
        return -EBADMSG;
    const uint8_t *key = bytes + 1 + n;
    ret_view->key = key;
    ret_view->key_size = key_size;
    ret_view->commit_ms = (int64_t)nrd_get_be64(key + key_size);
    ret_view->payload = key + key_size + NRD_RECORD_TIME_BYTES;
    ret_view->payload_size = left - NRD_RECORD_TIME_BYTES - key_size;
    return 0;
}

/* Records of one producer, laid out as they will stand in the frame: [length][envelope]... */
typedef struct NrdRecordBatch {
    GByteArray *bytes;
    uint32_t n_records;
    uint64_t text_bytes; /* sum of payload sizes, plus one newline each: their share of `log` */
    bool copies;         /* of records of another topic: nobody has produced them here */
} NrdRecordBatch;

NrdRecordBatch *nrd_record_batch_new(void);
void nrd_record_batch_free(NrdRecordBatch *batch); /* takes NULL */
void nrd_record_batch_clear(NrdRecordBatch *batch);

/* Appends one record with commit time 0; copies key and payload. key may be NULL when key_size is 0. The caller has
 * checked the sizes against the topic's limit (at most 64 MiB). */
void nrd_record_batch_add(NrdRecordBatch *batch, const void *key, size_t key_size, const void *payload,
                          size_t payload_size);

/* Puts the records of `first` before those of `batch` (a failed commit gives its records back, in order). */
void nrd_record_batch_prepend(NrdRecordBatch *batch, const NrdRecordBatch *first);

/* Sets the commit time of every record. */
void nrd_record_batch_stamp(NrdRecordBatch *batch, int64_t commit_ms);

#endif
