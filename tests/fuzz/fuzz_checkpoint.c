/* The dispatcher's checkpoint: what decodes encodes to the same bytes (parts in order), and is asked the same way as a plain list.
 * Input: flags (1: count and checksum are made right), the file. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/endian.h"
#include "engine/ingress/checkpoint.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1 };

static void repair(uint8_t *bytes, size_t size)
{
    if (size < 36)
        return;
    nrd_put_be32(bytes + 12, (uint32_t)((size - 36) / 24));
    nrd_put_be32(bytes + size - 4, fuzz_crc32c(0, bytes, size - 4));
}

/* Parts in any other order are read too, and sorted. */
static bool ascending(const uint8_t *bytes, size_t size)
{
    for (size_t pos = 32 + 24; pos + 24 <= size - 4; pos += 24)
        if (memcmp(bytes + pos - 24, bytes + pos, 12) >= 0)
            return false;
    return true;
}

static void ask(const NrdCheckpoint *checkpoint, uint64_t sequence, uint32_t partition)
{
    const NrdCheckpointPart *part, *plain = NULL;
    bool outstanding = nrd_checkpoint_outstanding(checkpoint, sequence, partition, &part);
    for (guint i = 0; i < checkpoint->parts->len; i++) {
        const NrdCheckpointPart *p = &g_array_index(checkpoint->parts, NrdCheckpointPart, i);
        if (p->sequence == sequence && p->partition == partition)
            plain = p;
    }
    FUZZ_CHECK(!part == !plain && (!part || (part->sequence == sequence && part->partition == partition)));
    FUZZ_CHECK(outstanding == (plain || sequence >= checkpoint->top));
}

static void check_loaded(const NrdCheckpoint *decoded, int rc)
{
    NrdCheckpoint loaded;
    nrd_checkpoint_init(&loaded);
    int root = memory_io_start();
    memory_io_put_folder("ingress");
    if (rc == 0) {
        FUZZ_CHECK(nrd_checkpoint_store(root, decoded) == 0);
        bool damaged = true;
        FUZZ_CHECK(nrd_checkpoint_load(root, &loaded, &damaged) == 0 && !damaged);
        FUZZ_CHECK(loaded.top == decoded->top && loaded.trust == decoded->trust);
        FUZZ_CHECK(loaded.parts->len == decoded->parts->len);
    }
    memory_io_end();
    nrd_checkpoint_clear(&loaded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    NrdCheckpoint checkpoint;
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    if (flags & REPAIR)
        repair(bytes, n);
    nrd_checkpoint_init(&checkpoint);
    int rc = nrd_checkpoint_decode(bytes, n, &checkpoint);
    FUZZ_CHECK(rc == 0 || (rc == -EBADMSG && checkpoint.parts->len == 0 && checkpoint.top == 0));
    if (rc == 0) {
        GByteArray *again = nrd_checkpoint_encode(&checkpoint);
        FUZZ_CHECK(again->len == n && (!ascending(bytes, n) || memcmp(again->data, bytes, n) == 0));
        g_byte_array_unref(again);
        for (guint i = 0; i < MIN(checkpoint.parts->len, 8); i++) {
            const NrdCheckpointPart *p = &g_array_index(checkpoint.parts, NrdCheckpointPart, i);
            ask(&checkpoint, p->sequence, p->partition);
            ask(&checkpoint, p->sequence, p->partition + 1);
            ask(&checkpoint, p->sequence + 1, p->partition);
        }
        check_loaded(&checkpoint, rc);
    }
    nrd_checkpoint_clear(&checkpoint);
    g_free(bytes);
    return 0;
}
