/* Files: what reads see (the cache), which of it is dirty and what it was before, and what the disk has. */
#include "tests/sim/disk_private.h"

#include <string.h>

/* ---- life ---- */

static gint compare_numbers(gconstpointer a, gconstpointer b, gpointer data)
{
    guintptr x = (guintptr)a, y = (guintptr)b;
    return x < y ? -1 : x > y;
}

static gint compare_names(gconstpointer a, gconstpointer b, gpointer data)
{
    return strcmp(a, b);
}

static void clear_version(gpointer version)
{
    sim_sector_unref(((SimVersion *)version)->sector);
}

static void free_versions(gpointer versions)
{
    g_array_unref(versions);
}

static GArray *versions_new(void)
{
    GArray *versions = g_array_new(FALSE, FALSE, sizeof(SimVersion));
    g_array_set_clear_func(versions, clear_version);
    return versions;
}

static GTree *dirty_new(void)
{
    return g_tree_new_full(compare_numbers, NULL, NULL, free_versions);
}

GTree *sim_names_new(void)
{
    return g_tree_new_full(compare_names, NULL, g_free, g_free);
}

void sim_names_set(GTree *names, const char *name, uint64_t number)
{
    if (number == 0)
        g_tree_remove(names, name);
    else
        g_tree_replace(names, g_strdup(name), g_memdup2(&number, sizeof number));
}

uint64_t sim_names_get(GTree *names, const char *name)
{
    const uint64_t *number = g_tree_lookup(names, name);
    return number != NULL ? *number : 0;
}

GTree *sim_names_copy(GTree *names)
{
    GTree *copy = sim_names_new();
    for (GTreeNode *node = g_tree_node_first(names); node != NULL; node = g_tree_node_next(node))
        sim_names_set(copy, g_tree_node_key(node), *(const uint64_t *)g_tree_node_value(node));
    return copy;
}

SimInode *sim_inode_new(uint64_t number, bool is_dir, uint64_t parent)
{
    SimInode *inode = g_new0(SimInode, 1);
    inode->refs = 1;
    inode->number = number;
    inode->is_dir = is_dir;
    inode->parent = parent;
    if (is_dir) {
        inode->names = sim_names_new();
        inode->disk_names = sim_names_new();
    } else {
        inode->cache = sim_sectors_copy(NULL);
        inode->disk = sim_sectors_copy(NULL);
        inode->dirty = dirty_new();
        inode->sizes = g_array_new(FALSE, FALSE, sizeof(SimSize));
    }
    return inode;
}

static GTree *copy_dirty(GTree *dirty)
{
    GTree *copy = dirty_new();
    for (GTreeNode *node = g_tree_node_first(dirty); node != NULL; node = g_tree_node_next(node)) {
        const GArray *versions = g_tree_node_value(node);
        GArray *same = versions_new();
        g_array_append_vals(same, versions->data, versions->len);
        for (guint i = 0; i < same->len; i++)
            sim_sector_ref(g_array_index(same, SimVersion, i).sector);
        g_tree_insert(copy, g_tree_node_key(node), same);
    }
    return copy;
}

SimInode *sim_inode_copy(const SimInode *inode)
{
    SimInode *copy = g_memdup2(inode, sizeof *inode);
    copy->refs = 1;
    if (inode->is_dir) {
        copy->names = sim_names_copy(inode->names);
        copy->disk_names = sim_names_copy(inode->disk_names);
    } else {
        copy->cache = sim_sectors_copy(inode->cache);
        copy->disk = sim_sectors_copy(inode->disk);
        copy->dirty = copy_dirty(inode->dirty);
        copy->sizes = g_array_copy(inode->sizes);
    }
    return copy;
}

SimInode *sim_inode_ref(SimInode *inode)
{
    g_atomic_int_inc(&inode->refs);
    return inode;
}

void sim_inode_unref(SimInode *inode)
{
    if (!g_atomic_int_dec_and_test(&inode->refs))
        return;
    if (inode->is_dir) {
        g_tree_unref(inode->names);
        g_tree_unref(inode->disk_names);
    } else {
        g_ptr_array_unref(inode->cache);
        g_ptr_array_unref(inode->disk);
        g_tree_unref(inode->dirty);
        g_array_unref(inode->sizes);
    }
    g_free(inode);
}

/* ---- bytes ---- */

size_t sim_inode_read(const SimInode *inode, SimLayer layer, void *buf, size_t size, int64_t pos)
{
    GPtrArray *sectors = layer == SIM_CACHED ? inode->cache : inode->disk;
    int64_t end = layer == SIM_CACHED ? inode->size : inode->disk_size;
    size_t done = 0;

    if (pos >= end)
        return 0;
    size = MIN(size, (uint64_t)(end - pos));
    while (done < size) {
        uint64_t at = (uint64_t)pos + done;
        size_t skip = at % SIM_SECTOR_BYTES, n = MIN(SIM_SECTOR_BYTES - skip, size - done);
        memcpy((uint8_t *)buf + done, sim_sector_bytes(sim_sectors_get(sectors, at / SIM_SECTOR_BYTES)) + skip, n);
        done += n;
    }
    return size;
}

/* Gives a sector a new content, in the cache, which is dirty then. Takes the reference. */
static void put_version(SimInode *inode, uint64_t number, SimVersion version)
{
    GArray *versions = g_tree_lookup(inode->dirty, (gpointer)(guintptr)number);
    if (versions == NULL) {
        versions = versions_new();
        g_tree_insert(inode->dirty, (gpointer)(guintptr)number, versions);
    }
    g_array_append_val(versions, version);
    inode->n_sectors -= sim_sectors_get(inode->cache, number) != NULL;
    inode->n_sectors += version.sector != NULL;
    sim_sectors_set(inode->cache, number, sim_sector_ref(version.sector));
}

static void put_size(SimInode *inode, uint64_t sequence, int64_t size, bool by_ftruncate)
{
    SimSize entry = { sequence, size < inode->size, by_ftruncate, size };
    if (size == inode->size)
        return;
    g_array_append_val(inode->sizes, entry);
    inode->size = size;
}

/* bytes NULL: zeros. */
static SimSector *changed(const SimInode *inode, uint64_t number, size_t skip, const uint8_t *bytes, size_t n)
{
    uint8_t fresh[SIM_SECTOR_BYTES];
    memcpy(fresh, sim_sector_bytes(sim_sectors_get(inode->cache, number)), sizeof fresh);
    if (bytes != NULL)
        memcpy(fresh + skip, bytes, n);
    else
        memset(fresh + skip, 0, n);
    return sim_sector_new(fresh);
}

void sim_inode_write(SimInode *inode, uint64_t sequence, const uint8_t *bytes, size_t size, int64_t pos)
{
    for (size_t done = 0; done < size;) {
        uint64_t at = (uint64_t)pos + done, number = at / SIM_SECTOR_BYTES;
        size_t skip = at % SIM_SECTOR_BYTES, n = MIN(SIM_SECTOR_BYTES - skip, size - done);
        put_version(inode, number, (SimVersion){ sequence, false, changed(inode, number, skip, bytes + done, n) });
        done += n;
    }
    if (size > 0)
        put_size(inode, sequence, MAX(inode->size, pos + (int64_t)size), false);
}

uint64_t sim_inode_room_needed(const SimInode *inode, size_t size, int64_t pos)
{
    uint64_t needed = 0;
    if (size == 0)
        return 0;
    uint64_t first = (uint64_t)pos / SIM_SECTOR_BYTES, last = ((uint64_t)pos + size - 1) / SIM_SECTOR_BYTES;
    for (uint64_t number = first; number <= last; number++)
        needed += sim_sectors_get(inode->cache, number) == NULL;
    return needed;
}

/* Zeros from pos to end; whole sectors become holes. */
static void clear_bytes(SimInode *inode, uint64_t sequence, int64_t pos, int64_t end, bool is_cut)
{
    while (pos < end) {
        uint64_t number = (uint64_t)pos / SIM_SECTOR_BYTES;
        if (number >= inode->cache->len)
            return; /* holes from here on */
        size_t skip = (uint64_t)pos % SIM_SECTOR_BYTES;
        size_t n = (size_t)MIN((int64_t)(SIM_SECTOR_BYTES - skip), end - pos);
        bool whole = n == SIM_SECTOR_BYTES;
        if (sim_sectors_get(inode->cache, number) != NULL)
            put_version(inode, number,
                        (SimVersion){ sequence, is_cut, whole ? NULL : changed(inode, number, skip, NULL, n) });
        pos += (int64_t)n;
    }
}

void sim_inode_resize(SimInode *inode, uint64_t sequence, int64_t size)
{
    if (size < inode->size) {
        int64_t end = (inode->size + SIM_SECTOR_BYTES - 1) / SIM_SECTOR_BYTES * SIM_SECTOR_BYTES;
        clear_bytes(inode, sequence, size, end, true);
    }
    put_size(inode, sequence, size, true);
}

void sim_inode_punch(SimInode *inode, uint64_t sequence, int64_t pos, int64_t size)
{
    int64_t end = MIN(pos + size, (inode->size + SIM_SECTOR_BYTES - 1) / SIM_SECTOR_BYTES * SIM_SECTOR_BYTES);
    clear_bytes(inode, sequence, pos, end, false);
}

/* ---- the way to the disk ---- */

static void all_clean(SimInode *inode)
{
    g_tree_unref(inode->dirty);
    inode->dirty = dirty_new();
    g_array_set_size(inode->sizes, 0);
}

static SimSector *newest(const GArray *versions)
{
    return sim_sector_ref(g_array_index(versions, SimVersion, versions->len - 1).sector);
}

static int64_t newest_size(const SimInode *inode)
{
    return g_array_index(inode->sizes, SimSize, inode->sizes->len - 1).size;
}

void sim_inode_sync(SimInode *inode, bool with_time)
{
    for (GTreeNode *node = g_tree_node_first(inode->dirty); node != NULL; node = g_tree_node_next(node))
        sim_sectors_set(inode->disk, (guintptr)g_tree_node_key(node), newest(g_tree_node_value(node)));
    if (with_time || inode->sizes->len > 0)
        inode->disk_mtime_ns = inode->mtime_ns;
    if (inode->sizes->len > 0)
        inode->disk_size = newest_size(inode);
    all_clean(inode);
}

static void keep_cuts(GTree *dirty, gpointer number, const GArray *versions)
{
    GArray *cuts = versions_new();
    for (guint i = 0; i < versions->len; i++) {
        SimVersion version = g_array_index(versions, SimVersion, i);
        if (!version.is_cut)
            continue;
        sim_sector_ref(version.sector);
        g_array_append_val(cuts, version);
    }
    if (cuts->len > 0)
        g_tree_insert(dirty, number, cuts);
    else
        g_array_unref(cuts);
}

static bool has_cut(const GArray *versions)
{
    for (guint i = 0; i < versions->len; i++) {
        if (g_array_index(versions, SimVersion, i).is_cut)
            return true;
    }
    return false;
}

static void fail_size(SimInode *inode, bool is_reached)
{
    GArray *kept = g_array_new(FALSE, FALSE, sizeof(SimSize));
    if (is_reached && inode->sizes->len > 0)
        inode->disk_size = newest_size(inode);
    for (guint i = 0; !is_reached && i < inode->sizes->len; i++) {
        SimSize entry = g_array_index(inode->sizes, SimSize, i);
        if (entry.by_ftruncate)
            g_array_append_val(kept, entry);
    }
    g_array_unref(inode->sizes);
    inode->sizes = kept;
}

void sim_inode_fail_sync(SimInode *inode, SimReached reached, GRand *rand)
{
    GTree *kept = dirty_new();
    bool some = reached == SIM_REACHED_SOME;

    if (reached == SIM_REACHED_ALL) {
        g_tree_unref(kept);
        sim_inode_sync(inode, true);
        return;
    }
    fail_size(inode, some && g_rand_boolean(rand));
    for (GTreeNode *node = g_tree_node_first(inode->dirty); node != NULL; node = g_tree_node_next(node)) {
        GArray *versions = g_tree_node_value(node);
        uint64_t number = (guintptr)g_tree_node_key(node);
        if (!some || has_cut(versions) || !g_rand_boolean(rand)) {
            keep_cuts(kept, g_tree_node_key(node), versions);
            continue;
        }
        /* a size that has not come takes along what is beyond it */
        g_autoptr(SimSector) sector = newest(versions);
        sim_sectors_set(inode->disk, number, sim_sector_cut(sector, number, inode->disk_size));
    }
    g_tree_unref(inode->dirty);
    inode->dirty = kept;
}

static bool page_is_dirty(const SimInode *inode, uint64_t first)
{
    for (uint64_t i = 0; i < SECTORS_PER_PAGE; i++) {
        if (g_tree_lookup(inode->dirty, (gpointer)(guintptr)(first + i)) != NULL)
            return true;
    }
    return false;
}

void sim_inode_drop_clean(SimInode *inode)
{
    uint64_t n = MAX(inode->cache->len, inode->disk->len);
    for (uint64_t first = 0; first < n; first += SECTORS_PER_PAGE) {
        if (page_is_dirty(inode, first))
            continue;
        for (uint64_t number = first; number < first + SECTORS_PER_PAGE; number++) {
            SimSector *sector =
                sim_sector_cut(sim_sectors_get(inode->disk, number), number, MIN(inode->size, inode->disk_size));
            inode->n_sectors -= sim_sectors_get(inode->cache, number) != NULL;
            inode->n_sectors += sector != NULL;
            sim_sectors_set(inode->cache, number, sector);
        }
    }
}
