/* The life of a simulated disk. */
#include "tests/sim/disk_private.h"

#include <string.h>
#include <sys/mman.h>

static SimDisk *installed; /* changed only while no other thread uses nrd_io */

SimDisk *sim_disk_installed(void)
{
    g_assert_nonnull(installed);
    return installed;
}

void sim_disk_install(SimDisk *disk)
{
    installed = disk;
    nrd_io = disk != NULL ? &sim_io : &nrd_io_real;
}

static void free_mapping(gpointer p)
{
    SimMapping *mapping = p;
    munmap(mapping->addr, mapping->size);
    g_free(mapping);
}

/* After a start nothing is open: what has no name is gone. */
static void nothing_is_open(SimDisk *disk)
{
    GHashTableIter iter;
    gpointer value;
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(uint64_t));

    g_hash_table_remove_all(disk->open);
    g_hash_table_iter_init(&iter, disk->tree->inodes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        if (((SimInode *)value)->n_links == 0)
            g_array_append_val(numbers, ((SimInode *)value)->number);
    }
    for (guint i = 0; i < numbers->len; i++)
        sim_tree_release(disk->tree, g_array_index(numbers, uint64_t, i));
    sim_tree_collect(disk->tree, NULL);
}

static SimTree *fresh_tree(void)
{
    SimTree *tree = sim_tree_new();
    sim_tree_create(tree, SIM_ROOT, &SIM_DATA[1], true);
    sim_tree_sync_dir(tree, SIM_ROOT);
    return tree;
}

SimDisk *sim_disk_new(const SimDiskOptions *options, const SimImage *image)
{
    SimDisk *disk = g_new0(SimDisk, 1);
    g_rec_mutex_init(&disk->lock);
    if (options != NULL)
        disk->options = *options;
    SimDiskOptions *o = &disk->options;
    o->capacity_bytes = o->capacity_bytes != 0 ? o->capacity_bytes : (uint64_t)1 << 30;
    o->n_inodes = o->n_inodes != 0 ? o->n_inodes : 1000000;
    o->max_open = o->max_open != 0 ? o->max_open : 100000;
    disk->rand = g_rand_new_with_seed_array((guint32[]){ (guint32)o->seed, (guint32)(o->seed >> 32) }, 2);
    disk->open = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    disk->mappings = g_ptr_array_new_with_free_func(free_mapping);
    disk->paths = g_string_chunk_new(4096);
    disk->plans = g_ptr_array_new_with_free_func(sim_plan_free);
    disk->counts = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    sim_disk_set_capacity(disk, 0, 0);
    disk->tree = image != NULL ? sim_tree_copy(image->tree) : fresh_tree();
    nothing_is_open(disk);
    return disk;
}

void sim_disk_free(SimDisk *disk)
{
    if (disk == NULL)
        return;
    g_assert_true(installed != disk);
    g_hash_table_unref(disk->open);
    g_ptr_array_unref(disk->mappings);
    g_string_chunk_free(disk->paths);
    g_ptr_array_unref(disk->plans);
    g_hash_table_unref(disk->counts);
    g_rand_free(disk->rand);
    sim_tree_free(disk->tree);
    g_rec_mutex_clear(&disk->lock);
    g_free(disk);
}

void sim_disk_set_capacity(SimDisk *disk, uint64_t capacity_bytes, uint64_t n_inodes)
{
    g_rec_mutex_lock(&disk->lock);
    disk->capacity_sectors = (capacity_bytes != 0 ? capacity_bytes : disk->options.capacity_bytes) / SIM_SECTOR_BYTES;
    disk->max_inodes = n_inodes != 0 ? n_inodes : disk->options.n_inodes;
    g_rec_mutex_unlock(&disk->lock);
}

void sim_disk_drop_caches(SimDisk *disk)
{
    GHashTableIter iter;
    gpointer value;

    g_rec_mutex_lock(&disk->lock);
    g_autoptr(GArray) files = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_hash_table_iter_init(&iter, disk->tree->inodes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        if (!((SimInode *)value)->is_dir && !((SimInode *)value)->is_gone)
            g_array_append_val(files, ((SimInode *)value)->number);
    }
    for (guint i = 0; i < files->len; i++) {
        SimInode *inode = sim_tree_own(disk->tree, g_array_index(files, uint64_t, i));
        uint64_t before = inode->n_sectors;
        sim_inode_drop_clean(inode);
        sim_tree_account(disk->tree, inode, before);
        sim_disk_refresh_maps(disk, inode->number);
    }
    g_rec_mutex_unlock(&disk->lock);
}

unsigned sim_disk_n_open(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    unsigned n = g_hash_table_size(disk->open);
    g_rec_mutex_unlock(&disk->lock);
    return n;
}

unsigned sim_disk_n_mapped(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    unsigned n = disk->mappings->len;
    g_rec_mutex_unlock(&disk->lock);
    return n;
}

uint64_t sim_disk_n_bad(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    uint64_t n = disk->n_bad;
    g_rec_mutex_unlock(&disk->lock);
    return n;
}

void sim_disk_refresh_maps(SimDisk *disk, uint64_t number)
{
    for (guint i = 0; i < disk->mappings->len; i++) {
        const SimMapping *mapping = disk->mappings->pdata[i];
        if (mapping->inode != number)
            continue;
        size_t n = sim_inode_read(sim_tree_get(disk->tree, number), SIM_CACHED, mapping->addr, mapping->size, 0);
        memset(mapping->addr + n, 0, mapping->size - n);
    }
}

void sim_disk_watch(SimDisk *disk, SimWatchFn watch, void *user_data)
{
    g_rec_mutex_lock(&disk->lock);
    disk->watch = watch;
    disk->watch_data = user_data;
    g_rec_mutex_unlock(&disk->lock);
}

/* ---- power ---- */

void sim_disk_power_off_locked(SimDisk *disk)
{
    disk->is_off = true;
}

void sim_disk_power_off(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    sim_disk_power_off_locked(disk);
    g_rec_mutex_unlock(&disk->lock);
}

bool sim_disk_is_off(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    bool is_off = disk->is_off;
    g_rec_mutex_unlock(&disk->lock);
    return is_off;
}

void sim_disk_power_on(SimDisk *disk, const SimCrash *crash)
{
    g_rec_mutex_lock(&disk->lock);
    if (crash != NULL) {
        SimTree *after = sim_tree_after_cut(disk->tree, crash);
        sim_tree_free(disk->tree);
        disk->tree = after;
    }
    nothing_is_open(disk);
    disk->is_off = false;
    g_rec_mutex_unlock(&disk->lock);
}
