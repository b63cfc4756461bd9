/* What a power cut leaves of what is not durable; images, and walks over everything that it can leave.
 *
 * Each decision goes through one chooser: how many of a folder's changes are kept, which of its sizes a file has, which of
 * its contents each sector has. The options stand from the oldest, which is durable, to the newest. A chooser takes them
 * at random, the first, the last, or, in a walk, one combination after the other. */
#include "tests/sim/disk_private.h"

#include <string.h>

typedef struct Chooser {
    SimKeep keep;
    GRand *rand;      /* SIM_KEEP_RANDOM */
    gint32 per_mille; /* with which the newest is kept, in the file or folder at hand */
    GArray *digits;   /* of a walk: what was taken at each decision, else NULL */
    GArray *radices;
    guint at;
} Chooser;

/* A new file or folder: at times all of it has come, or nothing, or nearly so. */
static void choose_mood(Chooser *chooser)
{
    static const gint32 moods[] = { 0, 100, 300, 500, 700, 900, 1000 };
    if (chooser->rand != NULL)
        chooser->per_mille = moods[g_rand_int_range(chooser->rand, 0, G_N_ELEMENTS(moods))];
}

static guint choose_walking(Chooser *chooser, guint n)
{
    guint digit = 0;
    if (chooser->at < chooser->digits->len)
        digit = g_array_index(chooser->digits, guint, chooser->at);
    else
        g_array_append_val(chooser->digits, digit);
    if (chooser->at < chooser->radices->len)
        g_array_index(chooser->radices, guint, chooser->at) = n;
    else
        g_array_append_val(chooser->radices, n);
    chooser->at++;
    return digit;
}

/* One of n, from the oldest, 0. */
static guint choose(Chooser *chooser, guint n)
{
    if (n <= 1)
        return 0;
    if (chooser->digits != NULL)
        return choose_walking(chooser, n);
    if (chooser->rand == NULL)
        return chooser->keep == SIM_KEEP_ALL ? n - 1 : 0;
    if (g_rand_int_range(chooser->rand, 0, 1000) < chooser->per_mille)
        return n - 1;
    return (guint)g_rand_int_range(chooser->rand, 0, (gint32)n - 1);
}

/* ---- names ---- */

static bool touches(const SimChange *change, uint64_t dir)
{
    return change->dir == dir || change->to_dir == dir;
}

/* Gives each folder a point up to which its changes are kept; a rename between two needs both. */
static void choose_in_order(Chooser *chooser, GPtrArray *changes, bool *kept)
{
    g_autoptr(GHashTable) done = g_hash_table_new(g_int64_hash, g_int64_equal);
    for (guint i = 0; i < changes->len; i++)
        kept[i] = true;
    for (guint i = 0; i < changes->len; i++) {
        SimChange *first = changes->pdata[i];
        uint64_t *dirs[] = { &first->dir, &first->to_dir };
        for (guint side = 0; side < 2; side++) {
            guint n = 0;
            if (!g_hash_table_add(done, dirs[side]))
                continue;
            choose_mood(chooser);
            for (guint k = i; k < changes->len; k++)
                n += touches(changes->pdata[k], *dirs[side]);
            guint point = choose(chooser, n + 1);
            for (guint k = i; k < changes->len; k++) {
                if (touches(changes->pdata[k], *dirs[side]) && point-- == 0) {
                    kept[k] = false;
                    break;
                }
            }
        }
    }
}

/* What follows a lost change in one of its folders is lost as well. */
static void lose_what_follows(GPtrArray *changes, bool *kept)
{
    for (guint i = 0; i < changes->len; i++) {
        const SimChange *lost = changes->pdata[i];
        for (guint k = i + 1; !kept[i] && k < changes->len; k++) {
            if (touches(changes->pdata[k], lost->dir) || touches(changes->pdata[k], lost->to_dir))
                kept[k] = false;
        }
    }
}

static void resolve_names(Chooser *chooser, SimTree *tree, SimNames names)
{
    GPtrArray *changes = tree->changes;
    g_autofree bool *kept = g_new0(bool, changes->len + 1);

    if (names == SIM_NAMES_ORDERED) {
        choose_in_order(chooser, changes, kept);
        lose_what_follows(changes, kept);
    } else {
        choose_mood(chooser);
        for (guint i = 0; i < changes->len; i++)
            kept[i] = choose(chooser, 2) == 1;
    }
    for (guint i = 0; i < changes->len; i++) {
        if (kept[i])
            sim_tree_apply(tree, changes->pdata[i]);
    }
    g_ptr_array_set_size(changes, 0);
}

/* ---- files ---- */

typedef struct SizeOption {
    uint64_t sequence; /* 0: the durable one */
    int64_t size;
} SizeOption;

static GArray *size_options(const SimInode *inode)
{
    GArray *options = g_array_new(FALSE, FALSE, sizeof(SizeOption));
    SizeOption option = { 0, inode->disk_size };
    g_array_append_val(options, option);
    for (guint i = 0; i < inode->sizes->len; i++) {
        SimSize next = g_array_index(inode->sizes, SimSize, i);
        int64_t sector_end = option.size / SIM_SECTOR_BYTES * SIM_SECTOR_BYTES + SIM_SECTOR_BYTES;
        option.sequence = next.sequence;
        for (; !next.by_ftruncate && sector_end < next.size; sector_end += SIM_SECTOR_BYTES) {
            option.size = sector_end;
            g_array_append_val(options, option);
        }
        option.size = next.size;
        g_array_append_val(options, option);
    }
    return options;
}

/* The sequence of the first cut that the size does not include. */
static uint64_t next_cut(const SimInode *inode, uint64_t sequence)
{
    for (guint i = 0; i < inode->sizes->len; i++) {
        SimSize entry = g_array_index(inode->sizes, SimSize, i);
        if (entry.is_cut && entry.sequence > sequence)
            return entry.sequence;
    }
    return UINT64_MAX;
}

static SimSector *resolve_sector(Chooser *chooser, SimSector *durable, const GArray *versions, uint64_t sequence,
                                 uint64_t end)
{
    guint first = 0, n = 1; /* option 0 is the durable one, i + 1 is version i */
    for (guint i = 0; i < versions->len; i++) {
        SimVersion version = g_array_index(versions, SimVersion, i);
        if (version.is_cut && version.sequence <= sequence)
            first = i + 1;
        if (version.sequence < end)
            n = i + 2;
    }
    guint option = first + choose(chooser, n > first ? n - first : 1);
    return sim_sector_ref(option == 0 ? durable : g_array_index(versions, SimVersion, option - 1).sector);
}

static void set_clean(SimInode *inode)
{
    g_ptr_array_unref(inode->cache);
    inode->cache = sim_sectors_copy(inode->disk);
    inode->size = inode->disk_size;
    inode->mtime_ns = inode->disk_mtime_ns;
    g_array_set_size(inode->sizes, 0);
    while (g_tree_node_first(inode->dirty) != NULL)
        g_tree_remove(inode->dirty, g_tree_node_key(g_tree_node_first(inode->dirty)));
    inode->n_sectors = 0;
    for (guint i = 0; i < inode->cache->len; i++)
        inode->n_sectors += inode->cache->pdata[i] != NULL;
}

static bool is_dirty(const SimInode *inode)
{
    return g_tree_nnodes(inode->dirty) > 0 || inode->sizes->len > 0;
}

static void resolve_file(Chooser *chooser, SimInode *inode)
{
    choose_mood(chooser);
    g_autoptr(GArray) options = size_options(inode);
    SizeOption taken = g_array_index(options, SizeOption, choose(chooser, options->len));
    uint64_t end = next_cut(inode, taken.sequence);
    for (GTreeNode *node = g_tree_node_first(inode->dirty); node != NULL; node = g_tree_node_next(node)) {
        uint64_t number = (guintptr)g_tree_node_key(node);
        if ((int64_t)number * SIM_SECTOR_BYTES >= taken.size)
            continue; /* beyond the end: no matter */
        sim_sectors_set(inode->disk, number,
                        resolve_sector(chooser, sim_sectors_get(inode->disk, number), g_tree_node_value(node),
                                       taken.sequence, end));
    }
    inode->disk_size = taken.size;
    for (guint i = 0; i < inode->disk->len; i++)
        sim_sectors_set(inode->disk, i, sim_sector_cut(inode->disk->pdata[i], i, taken.size));
    if (chooser->digits == NULL && choose(chooser, 2) == 1)
        inode->disk_mtime_ns = inode->mtime_ns;
    set_clean(inode);
}

/* ---- the whole tree ---- */

static bool same_sectors(GPtrArray *a, GPtrArray *b)
{
    for (guint i = 0; i < MAX(a->len, b->len); i++) {
        if (sim_sectors_get(a, i) != sim_sectors_get(b, i))
            return false;
    }
    return true;
}

static bool same_names(GTree *a, GTree *b)
{
    if (g_tree_nnodes(a) != g_tree_nnodes(b))
        return false;
    GTreeNode *other = g_tree_node_first(b);
    for (GTreeNode *node = g_tree_node_first(a); node != NULL; node = g_tree_node_next(node)) {
        if (strcmp(g_tree_node_key(node), g_tree_node_key(other)) != 0 ||
            *(uint64_t *)g_tree_node_value(node) != *(uint64_t *)g_tree_node_value(other))
            return false;
        other = g_tree_node_next(other);
    }
    return true;
}

/* Whether the cache has what the disk has, so that the inode need not be copied. A failed sync may have left the cache
 * better than the disk, without being dirty. */
static bool is_settled(const SimInode *inode, uint64_t parent)
{
    if (inode->is_gone || inode->n_links != 1 || inode->mtime_ns != inode->disk_mtime_ns)
        return false;
    if (inode->is_dir)
        return inode->parent == parent && same_names(inode->names, inode->disk_names);
    return !is_dirty(inode) && inode->size == inode->disk_size && same_sectors(inode->cache, inode->disk);
}

static void adopt_file(Chooser *chooser, SimInode *inode)
{
    if (is_dirty(inode))
        resolve_file(chooser, inode);
    else
        set_clean(inode);
}

static void adopt_dir(SimInode *inode, uint64_t parent)
{
    inode->parent = parent;
    inode->mtime_ns = inode->disk_mtime_ns;
    g_tree_unref(inode->names);
    inode->names = sim_names_copy(inode->disk_names);
}

/* Takes over what the disk has, from a folder downwards. */
static void adopt(Chooser *chooser, SimTree *tree, uint64_t number, uint64_t parent, GHashTable *seen)
{
    SimInode *inode = sim_tree_get(tree, number);
    if (g_hash_table_contains(seen, &number)) {
        sim_tree_own(tree, number)->n_links++;
        return;
    }
    if (!is_settled(inode, parent)) {
        inode = sim_tree_own(tree, number);
        inode->is_gone = false;
        inode->n_links = 1;
        if (inode->is_dir)
            adopt_dir(inode, parent);
        else
            adopt_file(chooser, inode);
    }
    g_hash_table_add(seen, g_memdup2(&number, sizeof number));
    tree->n_inodes++;
    tree->n_sectors += inode->n_sectors;
    if (!inode->is_dir)
        return;
    for (GTreeNode *node = g_tree_node_first(inode->names); node != NULL; node = g_tree_node_next(node))
        adopt(chooser, tree, *(uint64_t *)g_tree_node_value(node), number, seen);
}

static SimTree *resolve(Chooser *chooser, const SimTree *from, SimNames names)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    SimTree *tree = sim_tree_copy(from);
    GHashTableIter iter;
    gpointer key;

    resolve_names(chooser, tree, names);
    tree->n_inodes = 0;
    tree->n_sectors = 0;
    adopt(chooser, tree, SIM_ROOT, SIM_ROOT, seen);
    g_hash_table_iter_init(&iter, tree->inodes);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        if (!g_hash_table_contains(seen, key))
            g_hash_table_iter_remove(&iter);
    }
    return tree;
}

SimTree *sim_tree_after_cut(const SimTree *tree, const SimCrash *crash)
{
    Chooser chooser = { .keep = crash->keep };
    guint32 seed[2] = { (guint32)crash->seed, (guint32)(crash->seed >> 32) };
    if (crash->keep == SIM_KEEP_RANDOM)
        chooser.rand = g_rand_new_with_seed_array(seed, 2);
    SimTree *after = resolve(&chooser, tree, crash->names);
    if (chooser.rand != NULL)
        g_rand_free(chooser.rand);
    return after;
}

/* ---- walks ---- */

struct SimWalk {
    SimImage *image;
    SimNames names;
    Chooser chooser;
    bool is_over;
};

static SimImage *image_new(SimTree *tree)
{
    SimImage *image = g_new0(SimImage, 1);
    image->refs = 1;
    image->tree = tree;
    return image;
}

SimWalk *sim_walk_new(SimImage *image, SimNames names)
{
    SimWalk *walk = g_new0(SimWalk, 1);
    walk->image = sim_image_ref(image);
    walk->names = names;
    walk->chooser.digits = g_array_new(FALSE, FALSE, sizeof(guint));
    walk->chooser.radices = g_array_new(FALSE, FALSE, sizeof(guint));
    return walk;
}

SimImage *sim_walk_next(SimWalk *walk)
{
    GArray *digits = walk->chooser.digits;
    if (walk->is_over)
        return NULL;
    walk->chooser.at = 0;
    SimImage *state = image_new(resolve(&walk->chooser, walk->image->tree, walk->names));
    while (digits->len > 0) {
        guint *last = &g_array_index(digits, guint, digits->len - 1);
        if (++*last < g_array_index(walk->chooser.radices, guint, digits->len - 1))
            return state;
        g_array_set_size(digits, digits->len - 1);
    }
    walk->is_over = true;
    return state;
}

void sim_walk_free(SimWalk *walk)
{
    if (walk == NULL)
        return;
    sim_image_unref(walk->image);
    g_array_unref(walk->chooser.digits);
    g_array_unref(walk->chooser.radices);
    g_free(walk);
}

/* ---- images ---- */

SimImage *sim_disk_snapshot(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    SimImage *image = image_new(sim_tree_copy(disk->tree));
    g_rec_mutex_unlock(&disk->lock);
    return image;
}

SimImage *sim_image_ref(SimImage *image)
{
    g_atomic_int_inc(&image->refs);
    return image;
}

void sim_image_unref(SimImage *image)
{
    if (image == NULL || !g_atomic_int_dec_and_test(&image->refs))
        return;
    sim_tree_free(image->tree);
    g_free(image);
}

SimImage *sim_image_power_cut(const SimImage *image, const SimCrash *crash)
{
    return image_new(sim_tree_after_cut(image->tree, crash));
}

uint64_t sim_image_n_undecided(const SimImage *image)
{
    uint64_t n = image->tree->changes->len;
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, image->tree->inodes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const SimInode *inode = value;
        if (!inode->is_dir)
            n += (uint64_t)g_tree_nnodes(inode->dirty) + inode->sizes->len;
    }
    return n;
}

typedef void (*EachFn)(const char *path, const SimInode *inode, void *user_data);

static void each_below(const SimTree *tree, SimLayer layer, const char *path, uint64_t number, EachFn f, void *data)
{
    const SimInode *dir = sim_tree_get(tree, number);
    GTree *names = layer == SIM_CACHED ? dir->names : dir->disk_names;
    for (GTreeNode *node = g_tree_node_first(names); node != NULL; node = g_tree_node_next(node)) {
        const SimInode *inode = sim_tree_get(tree, *(uint64_t *)g_tree_node_value(node));
        g_autofree char *below =
            g_strconcat(path, "/", (const char *)g_tree_node_key(node), inode->is_dir ? "/" : "", NULL);
        f(below, inode, data);
        if (!inode->is_dir)
            continue;
        below[strlen(below) - 1] = '\0';
        each_below(tree, layer, below, inode->number, f, data);
    }
}

static void add_path(const char *path, const SimInode *inode, void *paths)
{
    g_ptr_array_add(paths, g_strdup(path));
}

GPtrArray *sim_image_paths(const SimImage *image, SimLayer layer)
{
    GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
    each_below(image->tree, layer, "", SIM_ROOT, add_path, paths);
    return paths;
}

static GBytes *read_inode(const SimInode *inode, SimLayer layer)
{
    size_t size = (size_t)(layer == SIM_CACHED ? inode->size : inode->disk_size);
    uint8_t *bytes = g_malloc(size + 1);
    size = sim_inode_read(inode, layer, bytes, size, 0);
    return g_bytes_new_take(bytes, size);
}

GBytes *sim_image_read(const SimImage *image, SimLayer layer, const char *path)
{
    uint64_t number = sim_tree_find(image->tree, layer, path);
    const SimInode *inode = number != 0 ? sim_tree_get(image->tree, number) : NULL;
    return inode != NULL && !inode->is_dir ? read_inode(inode, layer) : NULL;
}

static void mix(uint64_t *hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, MIN(sizeof word, size - i));
        *hash = (*hash ^ word) * 0x9e3779b97f4a7c15u;
        *hash ^= *hash >> 32;
    }
}

static void mix_inode(const char *path, const SimInode *inode, void *hash)
{
    mix(hash, path, strlen(path) + 1);
    mix(hash, &inode->size, sizeof inode->size);
    for (guint i = 0; !inode->is_dir && i < inode->cache->len; i++) {
        const SimSector *sector = inode->cache->pdata[i];
        uint64_t number = i;
        if (memcmp(sim_sector_bytes(sector), sim_sector_bytes(NULL), SIM_SECTOR_BYTES) == 0)
            continue; /* a hole and zeros are the same */
        mix(hash, &number, sizeof number);
        mix(hash, sector->bytes, SIM_SECTOR_BYTES);
    }
}

uint64_t sim_image_digest(const SimImage *image)
{
    uint64_t hash = 1;
    each_below(image->tree, SIM_CACHED, "", SIM_ROOT, mix_inode, &hash);
    return hash;
}

SimImage *sim_image_with_file(const SimImage *image, const char *path, const void *data, size_t size)
{
    SimTree *tree = sim_tree_copy(image->tree);
    uint64_t number = sim_tree_find(tree, SIM_CACHED, path);
    g_assert_cmpint(number, !=, 0);
    SimInode *inode = sim_tree_own(tree, number);
    uint64_t before = inode->n_sectors;
    int64_t mtime_ns = inode->mtime_ns;
    sim_inode_resize(inode, ++tree->sequence, 0);
    sim_inode_write(inode, ++tree->sequence, data, size, 0);
    inode->mtime_ns = mtime_ns;
    sim_inode_sync(inode, true);
    sim_tree_account(tree, inode, before);
    return image_new(tree);
}
