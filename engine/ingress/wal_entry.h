/* The bytes of one entry of the ingress WAL: one producer's batch at topic level. Pure: no I/O, no locks.
 *
 *   pos   size  what (numbers big-endian)
 *   0     4     magic "NRDE"
 *   4     1     version: 1
 *   5     1     length of the topic's name: 1 to 200
 *   6     2     number of parts: 1 to 1024
 *   8     8     mark: the segment's salt plus the entry's position in it, modulo 2^64
 *   16    8     sequence: 1 to 2^62 - 1
 *   24    4     size of the whole entry: at most 256 MiB
 *   28    4     number of records, of all parts
 *   32    16    the topic's incarnation id, lower-case hex digits
 *   48    8     zero
 *   56    4     CRC-32C of what follows the header
 *   60    4     CRC-32C of bytes 0 to 59
 *   64          the topic's name
 *               the table of parts, 24 bytes each, partitions ascending:
 *                 0   4  partition
 *                 4   4  number of records: not 0
 *                 8   8  the offset that the part's first record is expected to get, or 2^64 - 1: not known
 *                 16  4  size of its records
 *                 20  4  zero
 *               the records, part by part: key length (4), payload length (4), key, payload
 *
 * An entry is valid at a position of a segment when all of that holds, sizes and numbers add up exactly, and both
 * checksums match. The header has a checksum of its own, so that damage in the body tells how much is lost, and of which
 * topic. The mark makes bytes inside a payload worthless: nobody who writes a payload knows the salt, which is random and
 * made with the segment, and a copy of an entry stands at another position or in another segment. */
#ifndef NRD_INGRESS_WAL_ENTRY_H
#define NRD_INGRESS_WAL_ENTRY_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_ENTRY_HEADER_BYTES 64
#define NRD_ENTRY_PART_BYTES 24
#define NRD_ENTRY_MAX_BYTES ((size_t)(256 * NRD_MIB))
#define NRD_ENTRY_MAX_PARTS 1024
#define NRD_ENTRY_TOPIC_MAX 200
#define NRD_ENTRY_ID_DIGITS 16
#define NRD_ENTRY_SEQUENCE_MAX ((UINT64_C(1) << 62) - 1)
#define NRD_ENTRY_OFFSET_UNKNOWN UINT64_MAX

/* ---- making one ---- */

/* Records on their way into an entry, by partition. One thread at a time. */
typedef struct NrdEntryDraft {
    GHashTable *parts; /* partition number -> DraftPart* (wal_entry.c) */
    uint32_t n_records;
    size_t n_bytes; /* of the records as they will stand in the entry */
} NrdEntryDraft;

NrdEntryDraft *nrd_entry_draft_new(void);
void nrd_entry_draft_free(NrdEntryDraft *draft); /* takes NULL */

/* Copies a record. key may be NULL when key_size is 0. partition < NRD_ENTRY_MAX_PARTS. */
void nrd_entry_draft_add(NrdEntryDraft *draft, uint32_t partition, const void *key, size_t key_size,
                         const void *payload, size_t payload_size);

/* The entry's bytes (g_free), whole but for mark, sequence and checksums. The draft is not empty. -EFBIG, -ENOMEM,
 * -EINVAL (a name or an id that is none). */
int nrd_entry_encode(const NrdEntryDraft *draft, const char *topic, const char *id, uint8_t **ret_bytes,
                     size_t *ret_size) NRD_MUST_CHECK;

/* Fills in mark, sequence and checksums; may be done again. */
void nrd_entry_seal(uint8_t *bytes, size_t size, uint64_t mark, uint64_t sequence);

/* Sets what part number i expects; before nrd_entry_seal. */
void nrd_entry_set_expected(uint8_t *bytes, uint32_t i, uint64_t offset);

/* ---- reading one ---- */

typedef struct NrdEntryHead {
    uint64_t sequence;
    uint32_t size;
    uint32_t n_records;
    uint32_t n_parts;
    size_t topic_size;
    char id[NRD_ENTRY_ID_DIGITS + 1];
} NrdEntryHead;

/* Checks the header's bytes; -EBADMSG. */
int nrd_entry_decode_head(const uint8_t header[NRD_ENTRY_HEADER_BYTES], uint64_t mark,
                          NrdEntryHead *ret_head) NRD_MUST_CHECK;

/* The whole entry; points into its bytes. */
typedef struct NrdEntryView {
    NrdEntryHead head;
    const uint8_t *topic; /* head.topic_size bytes, no NUL */
    const uint8_t *parts;
    const uint8_t *records;
} NrdEntryView;

/* Checks everything; -EBADMSG. size is the number of bytes there are: at least what the header claims. */
int nrd_entry_decode(const uint8_t *bytes, size_t size, uint64_t mark, NrdEntryView *ret_view) NRD_MUST_CHECK;

/* As decode, for bytes of our own that nrd_entry_encode has made (mark and checksums are not looked at). */
void nrd_entry_view_own(const uint8_t *bytes, NrdEntryView *ret_view);

typedef struct NrdEntryPart {
    uint32_t partition;
    uint32_t n_records;
    uint64_t expected;      /* or NRD_ENTRY_OFFSET_UNKNOWN */
    const uint8_t *records; /* for nrd_entry_next_record */
    size_t size;
} NrdEntryPart;

/* Part number i < head.n_parts. Costs O(i). */
void nrd_entry_part(const NrdEntryView *view, uint32_t i, NrdEntryPart *ret_part);

typedef struct NrdEntryRecord {
    const uint8_t *key;
    size_t key_size; /* 0: no key */
    const uint8_t *payload;
    size_t payload_size;
} NrdEntryRecord;

/* Takes the next record off bytes[0..*size); false at the end (or when what is left is no record). */
bool nrd_entry_next_record(const uint8_t **bytes, size_t *size, NrdEntryRecord *ret_record);

#endif
