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
#include "engine/queue/offset_store_private.h"

#include "engine/base/endian.h"
#include "engine/base/errors.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

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
    nrd_offset_slot_unpack(store->unproven, slot);
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
    g_autofree uint8_t *bytes = g_malloc0(NRD_OFFSET_AHEAD_SIZE);
    int rc = nrd_ahead_encode(state, 1, bytes);
    if (rc < 0)
        return rc;
    nrd_io_close(&store->ahead_fd);
    g_clear_pointer(&store->unproven, g_bytes_unref);
    g_clear_pointer(&store->window, g_free);
    store->anchor = NRD_OFFSET_NO_SLOT;
    /* The syncs are in there: a crash before its rename leaves the old file (or none) and consumer.offset, one after it
     * the new file. A failure after the rename leaves either; the next tick replaces it again. */
    rc = nrd_io_replace_file(store->root_fd, store->ahead_path, bytes, NRD_OFFSET_AHEAD_SIZE);
    if (rc < 0)
        return rc;
    store->anchor = 0;
    store->sequence = 1;
    store->offset_counts = false;
    return 0;
}

int nrd_offset_store_tick(NrdOffsetStore *store, const NrdFrontier *state)
{
    if (store->anchor == NRD_OFFSET_NO_SLOT || store->sequence >= NRD_AHEAD_SEQUENCE_MAX)
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
    g_autofree uint8_t *bytes = g_malloc0(NRD_OFFSET_AHEAD_SIZE);
    memcpy(bytes, store->window, NRD_AHEAD_SLOT_SIZE);
    nrd_diag(NRD_LEVEL_WARNING, nrd_offset_store_place(store),
             "%s was removed while the daemon runs, and not by it: written anew", store->ahead_path);
    nrd_io_close(&store->ahead_fd);
    g_clear_pointer(&store->window, g_free);
    store->anchor = NRD_OFFSET_NO_SLOT;
    int rc = nrd_io_replace_file(store->root_fd, store->ahead_path, bytes, NRD_OFFSET_AHEAD_SIZE);
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
    int rc = nrd_io_pwrite_full(fd, bytes, NRD_OFFSET_SIZE, 0);
    /* A crash before this sync leaves the old value or the new one (one sector). Recovery takes the larger of it and
     * consumer.ahead. */
    if (rc == 0)
        rc = nrd_io->fdatasync(fd);
    nrd_io_close(&fd);
    return rc;
}

static int write_offset(NrdOffsetStore *store, uint64_t frontier)
{
    uint8_t bytes[NRD_OFFSET_SIZE];
    nrd_put_be64(bytes, frontier - 1);
    if (frontier > 0 && store->offset_whole) {
        int rc = overwrite_offset(store, bytes);
        if (rc != -ENOENT)
            return rc;
    }
    /* A crash leaves the old file (or none) or the new one. An empty file says: nothing settled. */
    return nrd_io_replace_file(store->root_fd, store->offset_path, bytes, frontier > 0 ? NRD_OFFSET_SIZE : 0);
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
