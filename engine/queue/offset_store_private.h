/* What offset_store.c (writing the two files) and offset_store_open.c (what an open makes of them) share. */
#ifndef NRD_QUEUE_OFFSET_STORE_PRIVATE_H
#define NRD_QUEUE_OFFSET_STORE_PRIVATE_H

#include "engine/base/diag.h"
#include "engine/queue/ahead.h"
#include "engine/queue/offset_store.h"

#define NRD_OFFSET_SIZE 8 /* of consumer.offset */
#define NRD_OFFSET_N_SLOTS 2
#define NRD_OFFSET_AHEAD_SIZE (NRD_OFFSET_N_SLOTS * NRD_AHEAD_SLOT_SIZE)
#define NRD_OFFSET_NO_SLOT (-1)

struct NrdOffsetStore {
    int root_fd;
    char *topic;
    uint32_t partition;
    char *offset_path;
    char *ahead_path;

    uint64_t offset_frontier; /* what consumer.offset says */
    bool offset_whole;        /* it has exactly 8 bytes: may be overwritten in place */
    bool offset_unproven;     /* it may not be durable as it stands: level writes it even if it seems level */
    bool offset_counts;       /* what was recovered stands there alone, and nothing durable has replaced it yet */

    bool damaged;           /* a file was found to be */
    uint64_t claimed_below; /* offsets below that are settled, as a file says, whether it counted or not */

    int ahead_fd;      /* consumer.ahead, from a write to the sync that proves it; else -1 */
    int anchor;        /* slot number, or NRD_OFFSET_NO_SLOT: no slot is worth anything */
    GBytes *unproven;  /* the anchor's bytes up to its last non-zero body byte, while it is not known durable */
    uint64_t sequence; /* the highest in use */
    uint8_t *window;   /* the slot that was ticked and is not durable yet, or NULL */
    bool window_lost;  /* it has to be written again: a write or a sync of it failed */
};

static inline NrdPlace nrd_offset_store_place(const NrdOffsetStore *store)
{
    return (NrdPlace){ .topic = store->topic, .partition = store->partition, .offset = NRD_NO_OFFSET };
}

/* The slot behind store->unproven. */
void nrd_offset_slot_unpack(GBytes *packed, uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE]);

#endif
