/* See cursor_store.h. */
#include "engine/fanout/cursor_store.h"

#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define READ_MAX 65536 /* of a file that is not ours any more */

char *nrd_cursor_path(const char *parent, uint32_t partition, const char *child)
{
    return g_strdup_printf("topics/%s/p%05u/fanout-%s.offset", parent, partition, child);
}

void nrd_cursor_store_init(NrdCursorStore *store, int root_fd, const char *parent, uint32_t partition,
                           const char *child, const NrdCursorOwner *owner)
{
    *store = (NrdCursorStore){ .root_fd = root_fd, .owner = *owner, .fd = -1 };
    store->path = nrd_cursor_path(parent, partition, child);
}

void nrd_cursor_store_rest(NrdCursorStore *store)
{
    nrd_io_close(&store->fd);
}

void nrd_cursor_store_clear(NrdCursorStore *store)
{
    nrd_io_close(&store->fd);
    g_clear_pointer(&store->path, g_free);
}

/* Whether an error of opening says that the name stands for no regular file, or for nothing. */
static bool is_no_file(int rc)
{
    return rc == -ENOENT || rc == -ELOOP || rc == -EINVAL || rc == -EISDIR || rc == -ENXIO || rc == -ENODEV;
}

/* Each slot is somebody's, or was never written. What is torn is read twice for nothing, and no more. */
static bool is_whole(const uint8_t *bytes, size_t size, void *data)
{
    static const uint8_t unwritten[NRD_CURSOR_SLOT_BYTES];
    for (size_t i = 0; i < 2; i++) {
        size_t pos = i * NRD_CURSOR_SLOT_GAP;
        NrdCursorSlot slot;
        if (size < pos + NRD_CURSOR_SLOT_BYTES || (nrd_cursor_slot_decode(bytes + pos, &slot) < 0 &&
                                                   memcmp(bytes + pos, unwritten, NRD_CURSOR_SLOT_BYTES) != 0))
            return false;
    }
    return true;
}

int nrd_cursor_store_load(NrdCursorStore *store, NrdCursorFound *ret_found, uint64_t *ret_offset, bool *ret_missing)
{
    g_autoptr(GBytes) bytes = NULL;
    gsize size = 0;
    nrd_io_close(&store->fd);
    store->latest.sequence = 0;
    store->proven = store->dirty = false;
    int rc = nrd_io_read_checked(store->root_fd, store->path, READ_MAX, is_whole, NULL, &bytes);
    bool missing = rc == -ENOENT;
    bool no_file = !missing && is_no_file(rc);
    if (rc < 0 && !missing && !no_file && rc != -EFBIG) /* the last: it cannot be ours */
        return rc;
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    *ret_found = no_file ? NRD_CURSOR_NO_FILE
                 : data  ? nrd_cursor_file_decode(data, size, &store->owner, &store->latest, &store->anchor)
                         : NRD_CURSOR_DAMAGED;
    *ret_missing = missing;
    if (*ret_found == NRD_CURSOR_VALID)
        *ret_offset = store->latest.offset;
    return 0;
}

/* Both slots at once, the second one empty; a crash leaves the old file or this one. */
static int replace(NrdCursorStore *store, uint64_t offset)
{
    uint8_t bytes[NRD_CURSOR_FILE_BYTES] = { 0 };
    NrdCursorSlot slot = { store->owner, 1, offset };
    nrd_io_close(&store->fd);
    nrd_cursor_slot_encode(&slot, bytes);
    int rc = nrd_io_replace_file(store->root_fd, store->path, bytes, sizeof bytes);
    if (rc < 0)
        return rc;
    store->latest = slot;
    store->anchor = 0;
    store->proven = true;
    store->dirty = false;
    return 0;
}

static int open_file(NrdCursorStore *store)
{
    if (store->fd >= 0)
        return 0;
    struct stat st;
    int fd = nrd_io->open(store->root_fd, store->path, O_RDWR | O_NONBLOCK | O_NOCTTY, 0); /* it may be a pipe */
    if (fd < 0)
        return fd;
    int rc = nrd_io->fstat(fd, &st);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -EINVAL;
    if (rc < 0)
        nrd_io_close(&fd);
    else
        store->fd = fd;
    return rc;
}

static int write_slot(NrdCursorStore *store, unsigned index, const NrdCursorSlot *slot)
{
    uint8_t bytes[NRD_CURSOR_SLOT_BYTES];
    nrd_cursor_slot_encode(slot, bytes);
    return nrd_io_pwrite_full(store->fd, bytes, sizeof bytes, (int64_t)index * NRD_CURSOR_SLOT_GAP);
}

/* The recovered slot, with the bytes it has: whatever a power cut leaves of this, it is either slot. */
static int prove(NrdCursorStore *store)
{
    int rc = store->proven ? 0 : write_slot(store, store->anchor, &store->latest);
    if (rc == 0 && !store->proven)
        rc = nrd_io->fdatasync(store->fd);
    store->proven = rc == 0;
    return rc;
}

int nrd_cursor_store_write(NrdCursorStore *store, uint64_t offset)
{
    if (store->latest.sequence == 0)
        return replace(store, offset);
    int rc = open_file(store);
    if (rc < 0 && is_no_file(rc)) { /* somebody took the file away, or put something else in its place */
        store->latest.sequence = 0;
        return replace(store, offset);
    }
    if (rc == 0)
        rc = prove(store);
    if (rc < 0)
        return rc;
    NrdCursorSlot slot = { store->owner, store->latest.sequence + 1, offset };
    store->dirty = true; /* even when it fails: something may have been written */
    rc = write_slot(store, 1 - store->anchor, &slot);
    if (rc == 0)
        store->latest = slot;
    return rc;
}

int nrd_cursor_store_sync(NrdCursorStore *store)
{
    if (!store->dirty)
        return 0;
    int rc = open_file(store);
    if (rc == 0)
        rc = nrd_io->fdatasync(store->fd);
    if (rc < 0)
        return rc; /* the anchor stays; the window is written again */
    store->anchor = 1 - store->anchor;
    store->dirty = false;
    return 0;
}

int nrd_cursor_store_remove(NrdCursorStore *store)
{
    g_autoptr(GBytes) bytes = NULL;
    gsize size = 0;
    NrdCursorSlot slot;
    unsigned index;
    nrd_io_close(&store->fd);
    int rc = nrd_io_read_checked(store->root_fd, store->path, READ_MAX, is_whole, NULL, &bytes);
    const uint8_t *data = rc == 0 ? g_bytes_get_data(bytes, &size) : NULL;
    if (data && nrd_cursor_file_decode(data, size, &store->owner, &slot, &index) == NRD_CURSOR_OTHERS)
        return 0; /* of an attachment that came after */
    return nrd_cursor_file_remove(store->root_fd, store->path);
}

int nrd_cursor_file_remove(int root_fd, const char *path)
{
    struct stat st;
    int rc = nrd_io_stat(root_fd, path, &st); /* a sync of the folder for nothing is not wanted */
    return rc == -ENOENT ? 0 : nrd_io_unlink(root_fd, path);
}
