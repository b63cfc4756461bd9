/* The object of `consume.jsonl` and `log.jsonl`: one record on one line. Pure.
 *
 * {"handle":"0:43:881","partition":0,"offset":43,"timestamp":1700000000000,"key":"k","payload":...}
 * handle     the receipt for `ack`; not in `log.jsonl`
 * key        null for a record without key; a key that is not UTF-8 is base64 and followed by "key_encoding":"base64"
 * payload    as it is when it is JSON itself (line breaks in it, which can only be white space, become spaces), else a
 *            string, else (not UTF-8) base64, followed by "payload_encoding":"base64" */
#ifndef NRD_FS_JSONL_H
#define NRD_FS_JSONL_H

#include <glib.h>
#include <stdint.h>

typedef struct NrdJsonlRecord {
    const char *receipt; /* NULL: the object has no handle */
    uint32_t partition;
    uint64_t offset;
    int64_t timestamp_ms;
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdJsonlRecord;

/* Appends the object and a newline. What stands in `log.jsonl` has a length that is kept on the disk (NrdRendering in
 * log_rendered.c): its version changes with every change to this. */
void nrd_jsonl_append(GString *text, const NrdJsonlRecord *record);

/* Bytes that nrd_jsonl_append appends; takes no memory. */
uint64_t nrd_jsonl_length(const NrdJsonlRecord *record);

#endif
