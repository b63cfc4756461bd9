/* What an open makes of the two files: which slot of consumer.ahead is the anchor, and the larger frontier of it and of
 * consumer.offset. Damage is no error: it is told, and what is left counts. See offset_store.c. */
#include "engine/queue/offset_store_private.h"

#include "engine/base/endian.h"
#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"

#include <errno.h>
#include <string.h>

#define OFFSET_NAME "/consumer.offset"
#define AHEAD_NAME "/consumer.ahead"
#define READ_MAX 65536 /* of a file that is not ours any more; what lies behind the slots is not looked at */

/* Reads a file that may be missing. *ret_bytes is NULL when it is, or when it is far too large to be ours. */
static int read_optional(NrdOffsetStore *store, const char *path, NrdIoCheckFn check, void *data, GBytes **ret_bytes)
{
    int rc = nrd_io_read_checked(store->root_fd, path, READ_MAX, check, data, ret_bytes);
    if (rc == -EFBIG) {
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store), "%s is too large to be ours; taking it as damaged",
                 path);
        store->damaged = true;
        rc = 0;
    }
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_offset_store_place(store), "%s cannot be read: %s", path,
                 rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc));
    return rc;
}

/* ---- consumer.offset ---- */

/* There is no checksum. What says the same as consumer.ahead is right; anything else counts, as does what stands alone, and is
 * read twice. */
static bool is_level(const uint8_t *bytes, size_t size, void *frontier)
{
    return size != NRD_OFFSET_SIZE || nrd_get_be64(bytes) + 1 == *(const uint64_t *)frontier;
}

/* ahead: the frontier that consumer.ahead says, or 0. */
static int read_offset(NrdOffsetStore *store, uint64_t ahead, uint64_t hwm)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = read_optional(store, store->offset_path, is_level, &ahead, &bytes);
    if (rc < 0 || !bytes || g_bytes_get_size(bytes) == 0)
        return rc;
    gsize size = 0;
    const void *data = g_bytes_get_data(bytes, &size);
    if (size != NRD_OFFSET_SIZE) {
        store->damaged = true;
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store),
                 "%s has %" G_GSIZE_FORMAT " byte%s instead of 8; not using it", store->offset_path, size,
                 nrd_plural(size));
        return 0;
    }
    store->offset_whole = true;
    uint64_t value = nrd_get_be64(data);
    store->claimed_below = MAX(store->claimed_below, MIN(value, NRD_AHEAD_FRONTIER_MAX) + 1);
    if (value >= NRD_AHEAD_FRONTIER_MAX || value >= hwm)
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store),
                 "%s holds %" G_GUINT64_FORMAT ", which is no offset below the high watermark; not using it",
                 store->offset_path, value);
    else
        store->offset_frontier = value + 1;
    return 0;
}

/* ---- consumer.ahead ---- */

/* Keeps what is needed to write the slot again; the rest of it is zeros and a checksum. */
static GBytes *pack_slot(const uint8_t *slot)
{
    size_t used = nrd_size_without_zeros(slot, NRD_AHEAD_CRC_POS);
    GByteArray *packed = g_byte_array_new();
    g_byte_array_append(packed, slot + NRD_AHEAD_CRC_POS, NRD_AHEAD_SLOT_SIZE - NRD_AHEAD_CRC_POS);
    g_byte_array_append(packed, slot, (guint)used);
    return g_byte_array_free_to_bytes(packed);
}

void nrd_offset_slot_unpack(GBytes *packed, uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE])
{
    gsize size = 0;
    const uint8_t *data = g_bytes_get_data(packed, &size);
    size_t crc_size = NRD_AHEAD_SLOT_SIZE - NRD_AHEAD_CRC_POS;
    memset(ret_slot, 0, NRD_AHEAD_SLOT_SIZE);
    memcpy(ret_slot + NRD_AHEAD_CRC_POS, data, crc_size);
    memcpy(ret_slot, data + crc_size, size - crc_size);
}

/* Takes slot i for the anchor and its state for *state, if it is valid and newer than what was found before. */
static void consider_slot(NrdOffsetStore *store, const uint8_t *slot, int i, NrdFrontier *state)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier found = { .frontier = 0, .ahead = ahead };
    uint64_t sequence = 0;
    if (nrd_ahead_decode(slot, &found, &sequence) < 0) {
        if (!nrd_ahead_unwritten(slot))
            nrd_diag(NRD_LEVEL_NOTICE, nrd_offset_store_place(store), "slot %d of %s is torn or damaged; not using it",
                     i, store->ahead_path);
        return;
    }
    if (store->anchor != NRD_OFFSET_NO_SLOT && sequence <= store->sequence)
        return;
    store->anchor = i;
    store->sequence = sequence;
    g_clear_pointer(&store->unproven, g_bytes_unref);
    store->unproven = pack_slot(slot);
    state->frontier = found.frontier;
    g_array_set_size(state->ahead, 0);
    g_array_append_vals(state->ahead, ahead->data, ahead->len);
}

/* Each slot is valid or was never written. What is torn is read twice for nothing, and no more. */
static bool is_whole(const uint8_t *bytes, size_t size, void *data)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    uint64_t sequence;
    for (size_t i = 0; i < NRD_OFFSET_N_SLOTS; i++) {
        const uint8_t *slot = bytes + i * NRD_AHEAD_SLOT_SIZE;
        if (size < (i + 1) * NRD_AHEAD_SLOT_SIZE)
            return size == 0;
        if (nrd_ahead_decode(slot, &state, &sequence) < 0 && !nrd_ahead_unwritten(slot))
            return false;
    }
    return true;
}

static int read_ahead(NrdOffsetStore *store, NrdFrontier *state)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = read_optional(store, store->ahead_path, is_whole, NULL, &bytes);
    if (rc < 0 || !bytes || g_bytes_get_size(bytes) == 0)
        return rc;
    gsize size = 0;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    if (size != NRD_OFFSET_AHEAD_SIZE)
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store), "%s has %" G_GSIZE_FORMAT " byte%s instead of %d",
                 store->ahead_path, size, nrd_plural(size), NRD_OFFSET_AHEAD_SIZE);
    for (int i = 0; i < NRD_OFFSET_N_SLOTS && (gsize)(i + 1) * NRD_AHEAD_SLOT_SIZE <= size; i++)
        consider_slot(store, data + (size_t)i * NRD_AHEAD_SLOT_SIZE, i, state);
    store->damaged = store->damaged || size != NRD_OFFSET_AHEAD_SIZE || store->anchor == NRD_OFFSET_NO_SLOT;
    if (store->anchor == NRD_OFFSET_NO_SLOT)
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store),
                 "%s has no valid slot; going on from consumer.offset, some settled records will come again",
                 store->ahead_path);
    return 0;
}

/* ---- the two together ---- */

/* The larger frontier wins; what lies below it is settled anyway, and what is contiguous moves it on. */
static void raise_frontier(NrdFrontier *state, uint64_t frontier)
{
    guint n = 0;
    frontier = MAX(state->frontier, frontier);
    for (; n < state->ahead->len && g_array_index(state->ahead, uint64_t, n) <= frontier; n++) {
        if (g_array_index(state->ahead, uint64_t, n) == frontier)
            frontier++;
    }
    g_array_remove_range(state->ahead, 0, n);
    state->frontier = frontier;
}

static NrdOffsetStore *new_store(int root_fd, const char *dir, const char *topic, uint32_t partition)
{
    NrdOffsetStore *store = g_new0(NrdOffsetStore, 1);
    store->root_fd = root_fd;
    store->topic = g_strdup(topic);
    store->partition = partition;
    store->offset_path = g_strconcat(dir, OFFSET_NAME, NULL);
    store->ahead_path = g_strconcat(dir, AHEAD_NAME, NULL);
    store->ahead_fd = -1;
    store->anchor = NRD_OFFSET_NO_SLOT;
    return store;
}

int nrd_offset_store_open(int root_fd, const char *dir, const char *topic, uint32_t partition, uint64_t hwm,
                          NrdFrontier *ret_state, NrdOffsetStore **ret_store)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    NrdOffsetStore *store = new_store(root_fd, dir, topic, partition);
    int rc = read_ahead(store, &state);
    store->claimed_below = ahead->len > 0 ? g_array_index(ahead, uint64_t, ahead->len - 1) + 1 : state.frontier;
    if (rc == 0 && store->claimed_below > hwm)
        nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store),
                 "%s says that offsets below %" G_GUINT64_FORMAT
                 " are settled, which is above the high watermark; not using that",
                 store->ahead_path, store->claimed_below);
    if (rc == 0)
        rc = read_offset(store, state.frontier, hwm);
    if (rc < 0) {
        nrd_offset_store_free(store);
        return rc;
    }
    store->offset_counts = store->offset_unproven = store->offset_frontier > state.frontier;
    raise_frontier(&state, store->offset_frontier);
    ret_state->frontier = state.frontier;
    g_array_set_size(ret_state->ahead, 0);
    g_array_append_vals(ret_state->ahead, ahead->data, ahead->len);
    *ret_store = store;
    return 0;
}

bool nrd_offset_store_foreign(int root_fd, const char *dir, char **ret_path, char **ret_kind)
{
    static const char *const names[] = { OFFSET_NAME, AHEAD_NAME };
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_strconcat(dir, names[i], NULL);
        char *kind = nrd_io_foreign_kind(root_fd, path);
        if (!kind)
            continue;
        *ret_path = g_steal_pointer(&path);
        *ret_kind = kind;
        return true;
    }
    return false;
}
