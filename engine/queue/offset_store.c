/* See offset_store.h. consumer.offset: 8 bytes big-endian, frontier - 1, overwritten in place (within one sector, so a
 * power cut leaves the old or the new number); empty or missing: nothing settled. consumer.ahead: ahead.h. */
#include "engine/queue/offset_store.h"

#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"

#include <errno.h>
#include <fcntl.h>

#define N_SLOTS 2
#define NO_SLOT (-1)
#define AHEAD_FILE_BYTES ((size_t)N_SLOTS * NRD_AHEAD_SLOT_SIZE)

struct NrdOffsetStore {
    int root_fd;
    char *dir;
    char *ahead_path;
    char *offset_path;
    char *topic;
    uint32_t partition;
    int fd;            /* consumer.ahead, opened by the first tick */
    int anchor;        /* the slot that is known durable, or NO_SLOT */
    uint64_t sequence; /* the highest that was read or written */
    bool ticked;       /* the window holds something that the anchor does not */
    bool level_known;  /* consumer.offset holds leveled */
    uint64_t leveled;
};

static NrdPlace place_of(const NrdOffsetStore *store)
{
    return (NrdPlace){ store->topic, store->partition, NRD_NO_OFFSET };
}

static int window(const NrdOffsetStore *store)
{
    return store->anchor == 0 ? 1 : 0;
}

/* ---- recovery ---- */

static int read_offset(NrdOffsetStore *store, uint64_t *ret_frontier)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(store->root_fd, store->offset_path, AHEAD_FILE_BYTES, &bytes);
    *ret_frontier = 0;
    if (rc == -ENOENT) {
        store->level_known = true; /* no file is frontier 0 */
        return 0;
    }
    if (rc < 0 && rc != -EFBIG)
        return rc;
    gsize size = 0;
    const void *data = rc == 0 ? g_bytes_get_data(bytes, &size) : NULL;
    uint64_t last = size == sizeof last ? nrd_get_be64(data) : UINT64_MAX;
    if (last < NRD_AHEAD_FRONTIER_MAX) {
        *ret_frontier = last + 1;
    } else if (rc < 0 || size > 0) {
        nrd_diag(NRD_LEVEL_WARNING, place_of(store), "%s is damaged: taken as nothing settled", store->offset_path);
        return 0; /* not level_known: the next level writes it anew */
    }
    store->level_known = true;
    store->leveled = *ret_frontier;
    return 0;
}

/* Takes the valid slot of the higher sequence into *ret_state; *ret_anchor is NO_SLOT when there is none. */
static void pick_slot(const uint8_t *data, gsize size, NrdFrontier *ret_state, uint64_t *ret_sequence, int *ret_anchor)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    *ret_anchor = NO_SLOT;
    *ret_sequence = 0;
    for (int slot = 0; slot < N_SLOTS && size >= (gsize)(slot + 1) * NRD_AHEAD_SLOT_SIZE; slot++) {
        uint64_t sequence;
        if (nrd_ahead_decode(data + (size_t)slot * NRD_AHEAD_SLOT_SIZE, &state, &sequence) < 0 ||
            sequence <= *ret_sequence)
            continue;
        *ret_sequence = sequence;
        *ret_anchor = slot;
        ret_state->frontier = state.frontier;
        g_array_set_size(ret_state->ahead, 0);
        if (state.ahead->len > 0)
            g_array_append_vals(ret_state->ahead, state.ahead->data, state.ahead->len);
    }
    g_array_unref(state.ahead);
}

static int read_ahead(NrdOffsetStore *store, NrdFrontier *state)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(store->root_fd, store->ahead_path, AHEAD_FILE_BYTES, &bytes);
    state->frontier = 0;
    g_array_set_size(state->ahead, 0);
    store->anchor = NO_SLOT;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0 && rc != -EFBIG)
        return rc;
    gsize size = 0;
    const uint8_t *data = rc == 0 ? g_bytes_get_data(bytes, &size) : NULL;
    pick_slot(data, size, state, &store->sequence, &store->anchor);
    if (store->anchor == NO_SLOT && (rc < 0 || size > 0))
        nrd_diag(NRD_LEVEL_WARNING, place_of(store), "%s has no valid slot: consumer.offset alone counts",
                 store->ahead_path);
    return 0;
}

/* The larger frontier wins; what it covers leaves the set. */
static void merge(NrdFrontier *state, uint64_t frontier)
{
    if (frontier <= state->frontier)
        return;
    guint n = 0;
    while (n < state->ahead->len && g_array_index(state->ahead, uint64_t, n) <= frontier) {
        if (g_array_index(state->ahead, uint64_t, n) == frontier)
            frontier++;
        n++;
    }
    state->frontier = frontier;
    g_array_remove_range(state->ahead, 0, n);
}

static NrdOffsetStore *store_new(int root_fd, const char *dir, const char *topic, uint32_t partition)
{
    NrdOffsetStore *store = g_new0(NrdOffsetStore, 1);
    store->root_fd = root_fd;
    store->dir = g_strdup(dir);
    store->ahead_path = g_strconcat(dir, "/consumer.ahead", NULL);
    store->offset_path = g_strconcat(dir, "/consumer.offset", NULL);
    store->topic = g_strdup(topic);
    store->partition = partition;
    store->fd = -1;
    store->anchor = NO_SLOT;
    return store;
}

int nrd_offset_store_open(int root_fd, const char *dir, const char *topic, uint32_t partition, NrdFrontier *ret_state,
                          NrdOffsetStore **ret_store)
{
    NrdOffsetStore *store = store_new(root_fd, dir, topic, partition);
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    uint64_t frontier = 0;
    int rc = read_offset(store, &frontier);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, place_of(store), "%s cannot be read: %s", store->offset_path, g_strerror(-rc));
    if (rc == 0) {
        rc = read_ahead(store, &state);
        if (rc < 0)
            nrd_diag(NRD_LEVEL_ERROR, place_of(store), "%s cannot be read: %s", store->ahead_path, g_strerror(-rc));
    }
    if (rc < 0) {
        g_array_unref(state.ahead);
        nrd_offset_store_free(store);
        return rc;
    }
    merge(&state, frontier);
    ret_state->frontier = state.frontier;
    g_array_set_size(ret_state->ahead, 0);
    if (state.ahead->len > 0)
        g_array_append_vals(ret_state->ahead, state.ahead->data, state.ahead->len);
    g_array_unref(state.ahead);
    *ret_store = store;
    return 0;
}

void nrd_offset_store_free(NrdOffsetStore *store)
{
    if (!store)
        return;
    nrd_io_close(&store->fd);
    g_free(store->dir);
    g_free(store->ahead_path);
    g_free(store->offset_path);
    g_free(store->topic);
    g_free(store);
}

/* ---- consumer.ahead ---- */

/* The slot that was read at open may stand in the page cache only, or (its write-back failed once) not even be going to
 * the disk; the other slot may be the durable one. Overwriting either on trust could leave none after a power cut. So
 * before the first write: sync, drop the cached pages, and look again: what is read now is on the disk, and the slot
 * that is not the newest of that may be overwritten. */
static int prove_anchor(NrdOffsetStore *store)
{
    g_autofree uint8_t *data = g_malloc(AHEAD_FILE_BYTES);
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    uint64_t sequence = 0;
    size_t size = 0;
    int anchor = NO_SLOT;
    int rc = nrd_io->fdatasync(store->fd);
    if (rc == 0)
        rc = nrd_io->drop_cache(store->fd);
    if (rc == 0)
        rc = nrd_io_pread_full(store->fd, data, AHEAD_FILE_BYTES, 0, &size);
    if (rc == 0) {
        pick_slot(data, size, &state, &sequence, &anchor);
        store->anchor = anchor; /* the sequence stays the highest seen: the next write must beat both */
    }
    g_array_unref(state.ahead);
    return rc;
}

static int open_ahead(NrdOffsetStore *store)
{
    if (store->fd >= 0)
        return 0;
    bool created = false;
    int fd = nrd_io->open(store->root_fd, store->ahead_path, O_RDWR, 0);
    if (fd == -ENOENT) {
        created = true;
        fd = nrd_io->open(store->root_fd, store->ahead_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    if (fd < 0)
        return fd;
    store->fd = fd;
    /* Durable create: a crash before this loses the file with acks that nobody was promised yet. */
    int rc = created ? nrd_io_sync_dir(store->root_fd, store->dir) : prove_anchor(store);
    if (rc < 0)
        nrd_io_close(&store->fd);
    return rc;
}

int nrd_offset_store_tick(NrdOffsetStore *store, const NrdFrontier *state)
{
    uint8_t slot[NRD_AHEAD_SLOT_SIZE];
    int rc = open_ahead(store);
    if (rc == 0)
        rc = nrd_ahead_encode(state, store->sequence + 1, slot);
    if (rc == 0)
        rc = nrd_io_pwrite_full(store->fd, slot, sizeof slot, (int64_t)window(store) * NRD_AHEAD_SLOT_SIZE);
    if (rc < 0)
        return rc;
    store->sequence++;
    store->ticked = true;
    return 0;
}

int nrd_offset_store_write_out(NrdOffsetStore *store)
{
    if (!store->ticked)
        return 0;
    /* A crash before it: the anchor stands. After it: the window is newer and durable, and becomes the anchor. */
    int rc = nrd_io->fdatasync(store->fd);
    if (rc < 0)
        return rc;
    store->anchor = window(store);
    store->ticked = false;
    return 0;
}

/* ---- consumer.offset ---- */

static int write_offset(NrdOffsetStore *store, int fd, uint64_t frontier)
{
    uint8_t bytes[8];
    int rc;
    if (frontier == 0) {
        rc = nrd_io->ftruncate(fd, 0);
    } else {
        nrd_put_be64(bytes, frontier - 1);
        rc = nrd_io_pwrite_full(fd, bytes, sizeof bytes, 0);
        if (rc == 0)
            rc = nrd_io->ftruncate(fd, sizeof bytes); /* a file of another size was damage */
    }
    /* A crash before this: the old frontier or the new one; consumer.ahead has it anyway. */
    return rc < 0 ? rc : nrd_io->fdatasync(fd);
}

int nrd_offset_store_level(NrdOffsetStore *store, uint64_t frontier)
{
    if (store->level_known && store->leveled == frontier)
        return 0;
    bool created = false;
    int fd = nrd_io->open(store->root_fd, store->offset_path, O_RDWR, 0);
    if (fd == -ENOENT) {
        created = true;
        fd = nrd_io->open(store->root_fd, store->offset_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    if (fd < 0)
        return fd;
    store->level_known = false; /* until it is written whole */
    int rc = write_offset(store, fd, frontier);
    nrd_io_close(&fd);
    if (rc == 0 && created)
        rc = nrd_io_sync_dir(store->root_fd, store->dir);
    if (rc < 0)
        return rc;
    store->level_known = true;
    store->leveled = frontier;
    return 0;
}
