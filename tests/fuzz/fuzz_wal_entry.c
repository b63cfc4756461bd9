/* An entry of the ingress WAL: what decodes is what the encoder makes of the same records.
 * Input: flags (1: checksums are made right; 2: and the size), the mark (8 bytes), the entry. */
#include "fuzz.h"

#include "engine/base/endian.h"
#include "engine/ingress/wal_entry.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, RESIZE = 2 };

static void repair(uint8_t *bytes, size_t size, uint64_t mark, uint8_t flags)
{
    if (size < NRD_ENTRY_HEADER_BYTES)
        return;
    if (flags & RESIZE)
        nrd_put_be32(bytes + 24, (uint32_t)size);
    size_t n = MIN((size_t)nrd_get_be32(bytes + 24), size);
    if (n < NRD_ENTRY_HEADER_BYTES)
        return;
    nrd_put_be64(bytes + 8, mark);
    nrd_put_be32(bytes + 56, fuzz_crc32c(0, bytes + NRD_ENTRY_HEADER_BYTES, n - NRD_ENTRY_HEADER_BYTES));
    nrd_put_be32(bytes + 60, fuzz_crc32c(0, bytes, 60));
}

/* Takes the entry apart and makes it again. */
static void rebuild(const NrdEntryView *view, const uint8_t *bytes, uint64_t mark)
{
    g_autofree char *topic = g_strndup((const char *)view->topic, view->head.topic_size);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    NrdEntryRecord record;
    NrdEntryPart part;
    uint8_t *again;
    size_t size;
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        uint32_t n = 0;
        nrd_entry_part(view, i, &part);
        while (nrd_entry_next_record(&part.records, &part.size, &record)) {
            nrd_entry_draft_add(draft, part.partition, record.key, record.key_size, record.payload,
                                record.payload_size);
            n++;
        }
        FUZZ_CHECK(n == part.n_records && part.size == 0);
    }
    FUZZ_CHECK(draft->n_records == view->head.n_records);
    FUZZ_CHECK(nrd_entry_encode(draft, topic, view->head.id, &again, &size) == 0 && size == view->head.size);
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        nrd_entry_part(view, i, &part);
        nrd_entry_set_expected(again, i, part.expected);
    }
    nrd_entry_seal(again, size, mark, view->head.sequence);
    FUZZ_CHECK(memcmp(again, bytes, size) == 0);
    g_free(again);
    nrd_entry_draft_free(draft);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    uint64_t mark = fuzz_u64(&in);
    NrdEntryView view;
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    if (flags & REPAIR)
        repair(bytes, n, mark, flags);
    int rc = nrd_entry_decode(bytes, n, mark, &view);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc == 0) {
        NrdEntryView other;
        FUZZ_CHECK(view.head.size <= n);
        rebuild(&view, bytes, mark);
        FUZZ_CHECK(nrd_entry_decode(bytes, n, mark + 1, &other) == -EBADMSG); /* a copy elsewhere is worthless */
        FUZZ_CHECK(nrd_entry_decode(bytes, view.head.size - 1, mark, &other) == -EBADMSG);
    }
    g_free(bytes);
    return 0;
}
