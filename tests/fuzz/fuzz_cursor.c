/* The cursor of a fan-out child: slots, a file of any bytes, and the store that writes on.
 * Input: flags (1: checksums are made right; 2: the owner is that of slot 0; 4: the file is short), the offset that is
 * written (8 bytes), slot 0 (64 bytes), slot 1. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/endian.h"
#include "engine/fanout/cursor_store.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, OWN = 2, SHORT = 4 };
#define PATH "topics/par/p00003/fanout-chi.offset"

static void check_slot(const uint8_t *bytes)
{
    NrdCursorSlot slot;
    uint8_t again[NRD_CURSOR_SLOT_BYTES];
    if (nrd_cursor_slot_decode(bytes, &slot) < 0)
        return;
    FUZZ_CHECK(slot.offset <= NRD_CURSOR_OFFSET_MAX && slot.sequence > 0);
    nrd_cursor_slot_encode(&slot, again);
    FUZZ_CHECK(memcmp(again, bytes, sizeof again) == 0);
}

/* The valid slot of this owner with the higher sequence, found plainly. */
static bool best_slot(const uint8_t *bytes, size_t size, const NrdCursorOwner *owner, NrdCursorSlot *ret_slot)
{
    NrdCursorSlot slot;
    bool any = false;
    for (size_t i = 0; i < 2 && i * NRD_CURSOR_SLOT_GAP + NRD_CURSOR_SLOT_BYTES <= size; i++) {
        if (nrd_cursor_slot_decode(bytes + i * NRD_CURSOR_SLOT_GAP, &slot) < 0 || slot.owner.epoch != owner->epoch ||
            slot.owner.child != owner->child || (any && slot.sequence <= ret_slot->sequence))
            continue;
        *ret_slot = slot;
        any = true;
    }
    return any;
}

static void load(NrdCursorStore *store, int root, const NrdCursorOwner *owner, NrdCursorFound *ret_found,
                 uint64_t *ret_offset)
{
    bool missing = false;
    nrd_cursor_store_init(store, root, "par", 3, "chi", owner);
    FUZZ_CHECK(nrd_cursor_store_load(store, ret_found, ret_offset, &missing) == 0);
    FUZZ_CHECK(missing == !memory_io_exists(PATH));
}

static void expect_offset(int root, const NrdCursorOwner *owner, uint64_t offset)
{
    NrdCursorStore store;
    NrdCursorFound how;
    uint64_t got = 0;
    load(&store, root, owner, &how, &got);
    FUZZ_CHECK(how == NRD_CURSOR_VALID && got == offset);
    nrd_cursor_store_clear(&store);
}

static void check_store(int root, const NrdCursorOwner *owner, const uint8_t *bytes, size_t size, uint64_t offset)
{
    NrdCursorStore store;
    NrdCursorFound how;
    NrdCursorSlot best = { 0 };
    uint64_t got = 0;
    bool valid = best_slot(bytes, size, owner, &best);
    load(&store, root, owner, &how, &got);
    FUZZ_CHECK((how == NRD_CURSOR_VALID) == valid);
    FUZZ_CHECK(!valid || got == best.offset);
    if (!valid || best.sequence < UINT64_MAX - 2) {
        FUZZ_CHECK(nrd_cursor_store_write(&store, offset) == 0);
        expect_offset(root, owner, offset);
        FUZZ_CHECK(nrd_cursor_store_sync(&store) == 0);
        FUZZ_CHECK(nrd_cursor_store_write(&store, offset / 2) == 0);
        expect_offset(root, owner, offset / 2);
        /* a slot that is torn now leaves the other one */
        uint8_t torn[NRD_CURSOR_FILE_BYTES];
        const GByteArray *there = memory_io_get(PATH);
        memcpy(torn, there->data, MIN(there->len, sizeof torn));
        torn[(1 - store.anchor) * NRD_CURSOR_SLOT_GAP + 41] ^= 1;
        memory_io_put(PATH, torn, sizeof torn);
        expect_offset(root, owner, offset);
    }
    nrd_cursor_store_clear(&store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[NRD_CURSOR_FILE_BYTES];
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    uint64_t offset = fuzz_u64(&in) >> 1;
    memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < 2; i++) {
        uint8_t *slot = bytes + i * NRD_CURSOR_SLOT_GAP;
        for (size_t k = 0; k < NRD_CURSOR_SLOT_BYTES; k++)
            slot[k] = fuzz_u8(&in);
        if (flags & REPAIR)
            nrd_put_be32(slot + 60, fuzz_crc32c(0, slot, 60));
        check_slot(slot);
    }
    NrdCursorOwner owner = { 7, 9 };
    if (flags & OWN)
        owner = (NrdCursorOwner){ nrd_get_be64(bytes + 24), nrd_get_be64(bytes + 32) };
    size_t n = flags & SHORT ? NRD_CURSOR_SLOT_GAP + 10 : sizeof bytes;
    int root = memory_io_start();
    memory_io_put(PATH, bytes, n);
    check_store(root, &owner, bytes, n, offset);
    memory_io_end();
    return 0;
}
