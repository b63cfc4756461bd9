/* See cursor_file.h. */
#include "engine/fanout/cursor_file.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"

#include <errno.h>
#include <string.h>

#define MAGIC "NRDFANCU"
#define VERSION 1
#define CRC_POS 60

void nrd_cursor_slot_encode(const NrdCursorSlot *slot, uint8_t ret_bytes[NRD_CURSOR_SLOT_BYTES])
{
    memset(ret_bytes, 0, NRD_CURSOR_SLOT_BYTES);
    memcpy(ret_bytes, MAGIC, 8);
    nrd_put_be32(ret_bytes + 8, VERSION);
    nrd_put_be64(ret_bytes + 16, slot->sequence);
    nrd_put_be64(ret_bytes + 24, slot->owner.epoch);
    nrd_put_be64(ret_bytes + 32, slot->owner.child);
    nrd_put_be64(ret_bytes + 40, slot->offset);
    nrd_put_be32(ret_bytes + CRC_POS, nrd_crc32c(0, ret_bytes, CRC_POS));
}

int nrd_cursor_slot_decode(const uint8_t bytes[NRD_CURSOR_SLOT_BYTES], NrdCursorSlot *ret_slot)
{
    uint8_t again[NRD_CURSOR_SLOT_BYTES];
    NrdCursorSlot slot = {
        .owner = { nrd_get_be64(bytes + 24), nrd_get_be64(bytes + 32) },
        .sequence = nrd_get_be64(bytes + 16),
        .offset = nrd_get_be64(bytes + 40),
    };
    if (slot.sequence == 0 || slot.offset > NRD_CURSOR_OFFSET_MAX)
        return -EBADMSG;
    nrd_cursor_slot_encode(&slot, again); /* every byte that is not a number has one value */
    if (memcmp(again, bytes, NRD_CURSOR_SLOT_BYTES) != 0)
        return -EBADMSG;
    *ret_slot = slot;
    return 0;
}

NrdCursorFound nrd_cursor_file_decode(const uint8_t *bytes, size_t size, const NrdCursorOwner *owner,
                                      NrdCursorSlot *ret_slot, unsigned *ret_index)
{
    NrdCursorFound found = NRD_CURSOR_DAMAGED;
    for (unsigned i = 0; i < 2; i++) {
        NrdCursorSlot slot;
        size_t pos = (size_t)i * NRD_CURSOR_SLOT_GAP;
        if (size < pos + NRD_CURSOR_SLOT_BYTES || nrd_cursor_slot_decode(bytes + pos, &slot) < 0)
            continue;
        if (slot.owner.epoch != owner->epoch || slot.owner.child != owner->child) {
            found = found == NRD_CURSOR_VALID ? found : NRD_CURSOR_OTHERS;
            continue;
        }
        if (found == NRD_CURSOR_VALID && slot.sequence <= ret_slot->sequence)
            continue;
        found = NRD_CURSOR_VALID;
        *ret_slot = slot;
        *ret_index = i;
    }
    return found;
}
