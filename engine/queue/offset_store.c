/* The two files and the order in which they are written.
 *
 * consumer.offset   8 bytes, big-endian: frontier - 1. Absent, empty, or of another size: nothing settled. A value that
 *                   is no frontier - 1 (2^63 - 1 and above) is damage, and read as nothing settled: records come twice
 *                   rather than not at all.
 * consumer.ahead    two slots of 4 KiB (ahead.h), at 0 and 4096.
 *
 * Which slot may be overwritten. At any time one slot, the anchor, is known durable, and writes go to the other one, the
 * window: a power cut in the middle of them tears the window and leaves the anchor. A window that was synced without an
 * error becomes the anchor.
 * After an open the valid slot with the higher sequence, H, is what was recovered, but not known durable: the process
 * before us may have ticked it into the page cache and died, or a sync of it may have failed, after which the cache
 * shows bytes as clean that the disk does not have. The other slot, L, may then be all that the disk has; and after a
 * clean close H may be. So neither may be written with new bytes. What may be written is H with the very bytes it has:
 * on the disk each sector of H is then either what it was or what it shall be, so a cut leaves H whole if it was
 * durable, and L untouched if it was not. A sync that covers these freshly dirtied pages proves H, which is the anchor
 * from then on. A bare sync would not do, since it skips pages that a failed write-back left clean. It happens before
 * the first tick, and in a write-out without one: a caller who is promised durability gets it for what was recovered,
 * too.
 * With no valid slot the file is replaced as a whole (temporary file, sync, rename), with the state in slot 0: the state
 * is durable at once, and a cut leaves the old file or the new one.
 *
 * consumer.offset is overwritten in place only when it holds 8 bytes, which lie in one sector; else it is replaced as a
 * whole, so that a cut never leaves 8 bytes of which the file system filled some with zeros.
 *
 * Source: the seed, "On disk" and "Retention" (anchor and window). Threads: one caller at a time. */
#include "engine/queue/offset_store.h"

#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/base/errors.h"
#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define OFFSET_NAME "/consumer.offset"
#define AHEAD_NAME "/consumer.ahead"
#define OFFSET_SIZE 8
#define N_SLOTS 2
#define AHEAD_SIZE (N_SLOTS * NRD_AHEAD_SLOT_SIZE)
#define READ_MAX 65536 /* of a file that is not ours any more; what lies behind the slots is not looked at */
#define NO_SLOT (-1)

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
    int anchor;        /* slot number, or NO_SLOT: no slot is worth anything */
    GBytes *unproven;  /* the anchor's bytes up to its last non-zero body byte, while it is not known durable */
    uint64_t sequence; /* the highest in use */
    uint8_t *window;   /* the slot that was ticked and is not durable yet, or NULL */
    bool window_lost;  /* it has to be written again: a write or a sync of it failed */
};

static NrdPlace place(const NrdOffsetStore *store)
{
    return (NrdPlace){ .topic = store->topic, .partition = store->partition, .offset = NRD_NO_OFFSET };
}

/* ---- opening ---- */

/* Reads a file that may be missing. *ret_bytes is NULL when it is, or when it is far too large to be ours. */
static int read_optional(NrdOffsetStore *store, const char *path, NrdIoCheckFn check, void *data, GBytes **ret_bytes)
{
    int rc = nrd_io_read_checked(store->root_fd, path, READ_MAX, check, data, ret_bytes);
    if (rc == -EFBIG) {
        nrd_diag(NRD_LEVEL_WARNING, place(store), "%s is too large to be ours; taking it as damaged", path);
        store->damaged = true;
        rc = 0;
    }
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, place(store), "%s cannot be read: %s", path,
                 rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc));
    return rc;
}

/* There is no checksum. What says the same as consumer.ahead is right; anything else counts, and is read twice. */
static bool is_level(const uint8_t *bytes, size_t size, void *frontier)
{
    return size != OFFSET_SIZE || nrd_get_be64(bytes) + 1 == *(const uint64_t *)frontier;
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
    if (size != OFFSET_SIZE) {
        store->damaged = true;
        nrd_diag(NRD_LEVEL_WARNING, place(store), "%s has %" G_GSIZE_FORMAT " byte%s instead of 8; not using it",
                 store->offset_path, size, nrd_plural(size));
        return 0;
    }
    store->offset_whole = true;
    uint64_t value = nrd_get_be64(data);
    store->claimed_below = MAX(store->claimed_below, MIN(value, NRD_AHEAD_FRONTIER_MAX) + 1);
    if (value >= NRD_AHEAD_FRONTIER_MAX || value >= hwm)
        nrd_diag(NRD_LEVEL_WARNING, place(store),
                 "%s holds %" G_GUINT64_FORMAT ", which is no offset below the high watermark; not using it",
                 store->offset_path, value);
    else
        store->offset_frontier = value + 1;
    return 0;
}

/* Keeps what is needed to write the slot again; the rest of it is zeros and a checksum. */
static GBytes *pack_slot(const uint8_t *slot)
{
    size_t used = nrd_size_without_zeros(slot, NRD_AHEAD_CRC_POS);
    GByteArray *packed = g_byte_array_new();
    g_byte_array_append(packed, slot + NRD_AHEAD_CRC_POS, NRD_AHEAD_SLOT_SIZE - NRD_AHEAD_CRC_POS);
    g_byte_array_append(packed, slot, (guint)used);
    return g_byte_array_free_to_bytes(packed);
}

static void unpack_slot(GBytes *packed, uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE])
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
            nrd_diag(NRD_LEVEL_NOTICE, place(store), "slot %d of %s is torn or damaged; not using it", i,
                     store->ahead_path);
        return;
    }
    if (store->anchor != NO_SLOT && sequence <= store->sequence)
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
    for (size_t i = 0; i < N_SLOTS; i++) {
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
    if (size != AHEAD_SIZE)
        nrd_diag(NRD_LEVEL_WARNING, place(store), "%s has %" G_GSIZE_FORMAT " byte%s instead of %d", store->ahead_path,
                 size, nrd_plural(size), AHEAD_SIZE);
    for (int i = 0; i < N_SLOTS && (gsize)(i + 1) * NRD_AHEAD_SLOT_SIZE <= size; i++)
        consider_slot(store, data + (size_t)i * NRD_AHEAD_SLOT_SIZE, i, state);
    store->damaged = store->damaged || size != AHEAD_SIZE || store->anchor == NO_SLOT;
    if (store->anchor == NO_SLOT)
        nrd_diag(NRD_LEVEL_WARNING, place(store),
                 "%s has no valid slot; going on from consumer.offset, some settled records will come again",
                 store->ahead_path);
    return 0;
}

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
    store->anchor = NO_SLOT;
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
        nrd_diag(NRD_LEVEL_WARNING, place(store),
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

void nrd_offset_store_free(NrdOffsetStore *store)
{
    if (!store)
        return;
    nrd_io_close(&store->ahead_fd);
    g_clear_pointer(&store->unproven, g_bytes_unref);
    g_free(store->window);
    g_free(store->topic);
    g_free(store->offset_path);
    g_free(store->ahead_path);
    g_free(store);
}

/* ---- consumer.ahead ---- */

static int window_slot(const NrdOffsetStore *store)
{
    return 1 - store->anchor;
}

static int open_ahead(NrdOffsetStore *store)
{
    if (store->ahead_fd >= 0)
        return 0;
    int fd = nrd_io->open(store->root_fd, store->ahead_path, O_RDWR | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    store->ahead_fd = fd;
    return 0;
}

static int write_slot(NrdOffsetStore *store, int i, const uint8_t *slot)
{
    return nrd_io_pwrite_full(store->ahead_fd, slot, NRD_AHEAD_SLOT_SIZE, (int64_t)i * NRD_AHEAD_SLOT_SIZE);
}

/* Makes the anchor that was read at open durable; the comment at the head of the file says why in this way. */
static int prove_anchor(NrdOffsetStore *store)
{
    if (!store->unproven)
        return 0;
    uint8_t slot[NRD_AHEAD_SLOT_SIZE];
    unpack_slot(store->unproven, slot);
    int rc = open_ahead(store);
    if (rc == 0)
        rc = write_slot(store, store->anchor, slot);
    /* A crash before this sync or during it leaves both slots as the last process left them, and the same bytes of the
     * anchor on top of themselves. After a failure nothing is proven, and the next call begins anew. */
    if (rc == 0)
        rc = nrd_io->fdatasync(store->ahead_fd);
    if (rc == 0)
        g_clear_pointer(&store->unproven, g_bytes_unref);
    return rc;
}

/* The file, whole and new, with state in slot 0 and an unwritten slot 1. */
static int replace_ahead(NrdOffsetStore *store, const NrdFrontier *state)
{
    g_autofree uint8_t *bytes = g_malloc0(AHEAD_SIZE);
    int rc = nrd_ahead_encode(state, 1, bytes);
    if (rc < 0)
        return rc;
    nrd_io_close(&store->ahead_fd);
    g_clear_pointer(&store->unproven, g_bytes_unref);
    g_clear_pointer(&store->window, g_free);
    store->anchor = NO_SLOT;
    /* The syncs are in there: a crash before its rename leaves the old file (or none) and consumer.offset, one after it
     * the new file. A failure after the rename leaves either; the next tick replaces it again. */
    rc = nrd_io_replace_file(store->root_fd, store->ahead_path, bytes, AHEAD_SIZE);
    if (rc < 0)
        return rc;
    store->anchor = 0;
    store->sequence = 1;
    store->offset_counts = false;
    return 0;
}

int nrd_offset_store_tick(NrdOffsetStore *store, const NrdFrontier *state)
{
    if (store->anchor == NO_SLOT || store->sequence >= NRD_AHEAD_SEQUENCE_MAX)
        return replace_ahead(store, state);
    int rc = prove_anchor(store);
    if (rc == 0)
        rc = open_ahead(store);
    if (rc == -ENOENT) /* taken away beneath us */
        return replace_ahead(store, state);
    if (rc < 0)
        return rc;
    g_autofree uint8_t *slot = g_malloc(NRD_AHEAD_SLOT_SIZE);
    rc = nrd_ahead_encode(state, store->sequence + 1, slot);
    if (rc < 0)
        return rc;
    store->sequence++;
    g_free(store->window);
    store->window = g_steal_pointer(&slot);
    rc = write_slot(store, window_slot(store), store->window);
    /* A failed write leaves the window torn; write-out writes it again from memory. */
    store->window_lost = rc < 0;
    return rc;
}

/* After it, what write_slot left in the window slot is nobody's: the anchor stands, and only a tick writes that slot. */
void nrd_offset_store_take_back(NrdOffsetStore *store)
{
    g_clear_pointer(&store->window, g_free);
    store->window_lost = false;
}

/* The file anew, with what the window holds, which is the whole state: durable at once, as in replace_ahead. */
static int replace_by_window(NrdOffsetStore *store)
{
    g_autofree uint8_t *bytes = g_malloc0(AHEAD_SIZE);
    memcpy(bytes, store->window, NRD_AHEAD_SLOT_SIZE);
    nrd_diag(NRD_LEVEL_WARNING, place(store), "%s was removed while the daemon runs, and not by it: written anew",
             store->ahead_path);
    nrd_io_close(&store->ahead_fd);
    g_clear_pointer(&store->window, g_free);
    store->anchor = NO_SLOT;
    int rc = nrd_io_replace_file(store->root_fd, store->ahead_path, bytes, AHEAD_SIZE);
    if (rc < 0)
        return rc; /* the next tick replaces it again */
    store->anchor = 0;
    store->offset_counts = false;
    return 0;
}

static int sync_window(NrdOffsetStore *store)
{
    /* After a failed sync the kernel may call the pages clean: only writing them again makes a later sync mean
     * something. */
    int rc = store->window_lost ? write_slot(store, window_slot(store), store->window) : 0;
    /* A crash before this sync or during it may leave the window old, new or torn, and the anchor whole: recovery takes
     * the window if its checksum holds, else the anchor. After it, the window counts, with the higher sequence. */
    if (rc == 0)
        rc = nrd_io->fdatasync(store->ahead_fd);
    store->window_lost = rc < 0;
    if (rc < 0)
        return rc;
    /* Of a file without a name the sync proves nothing. */
    rc = nrd_io_check_place(store->ahead_fd, NULL, -1, NULL, NULL);
    if (nrd_error_is_taken_away(rc))
        return replace_by_window(store);
    store->window_lost = rc < 0;
    if (rc < 0)
        return rc;
    store->anchor = window_slot(store);
    store->offset_counts = false;
    g_clear_pointer(&store->window, g_free);
    return 0;
}

/* ---- consumer.offset ---- */

static int overwrite_offset(NrdOffsetStore *store, const uint8_t *bytes)
{
    int fd = nrd_io->open(store->root_fd, store->offset_path, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = nrd_io_pwrite_full(fd, bytes, OFFSET_SIZE, 0);
    /* A crash before this sync leaves the old value or the new one (one sector). Recovery takes the larger of it and
     * consumer.ahead. */
    if (rc == 0)
        rc = nrd_io->fdatasync(fd);
    nrd_io_close(&fd);
    return rc;
}

static int write_offset(NrdOffsetStore *store, uint64_t frontier)
{
    uint8_t bytes[OFFSET_SIZE];
    nrd_put_be64(bytes, frontier - 1);
    if (frontier > 0 && store->offset_whole) {
        int rc = overwrite_offset(store, bytes);
        if (rc != -ENOENT)
            return rc;
    }
    /* A crash leaves the old file (or none) or the new one. An empty file says: nothing settled. */
    return nrd_io_replace_file(store->root_fd, store->offset_path, bytes, frontier > 0 ? OFFSET_SIZE : 0);
}

int nrd_offset_store_level(NrdOffsetStore *store, uint64_t frontier)
{
    if (frontier > NRD_AHEAD_FRONTIER_MAX)
        return -EINVAL;
    if (frontier == store->offset_frontier && !store->offset_unproven)
        return 0;
    int rc = write_offset(store, frontier);
    if (rc < 0) {
        /* Old or new, the file is not to be relied on: the next level writes it whatever it is given. */
        store->offset_unproven = true;
        return rc;
    }
    store->offset_frontier = frontier;
    store->offset_whole = frontier > 0;
    store->offset_unproven = store->offset_counts = false;
    return 0;
}

/* ---- both ---- */

static int make_durable(NrdOffsetStore *store)
{
    if (store->window)
        return sync_window(store);
    int rc = prove_anchor(store);
    /* What was recovered may stand in consumer.offset alone; the same bytes again, for the reason given above. */
    if (rc == 0 && store->offset_counts)
        rc = nrd_offset_store_level(store, store->offset_frontier);
    return rc;
}

bool nrd_offset_store_is_stale(const NrdOffsetStore *store, uint64_t end_offset)
{
    return store->damaged || nrd_offset_store_claims_beyond(store, end_offset);
}

bool nrd_offset_store_claims_beyond(const NrdOffsetStore *store, uint64_t end_offset)
{
    return store->claimed_below > end_offset;
}

int nrd_offset_store_write_out(NrdOffsetStore *store)
{
    int rc = make_durable(store);
    /* Nothing is on its way to the disk any more, and no failure of the kernel's own writing can be missed: an idle
     * partition holds no descriptor. */
    if (rc == 0)
        nrd_io_close(&store->ahead_fd);
    return rc;
}

int nrd_offset_store_mend(NrdOffsetStore *store, const NrdFrontier *state)
{
    store->offset_unproven = true;
    int rc = replace_ahead(store, state);
    /* A crash here leaves consumer.offset as it was: the next open finds it stale again. */
    if (rc == 0)
        rc = nrd_offset_store_level(store, state->frontier);
    if (rc == 0) {
        store->damaged = false;
        store->claimed_below = 0;
    }
    return rc;
}
