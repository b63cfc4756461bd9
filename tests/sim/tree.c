/* Folders, and the whole state of a disk: inodes by number, and the changes of names that are not durable.
 *
 * Trees share inodes; whoever changes one owns it first (sim_tree_own), which copies it when it is shared. */
#include "tests/sim/disk_private.h"

#include "engine/base/clock.h"

#include <string.h>

/* ---- life ---- */

static void free_change(gpointer p)
{
    SimChange *change = p;
    g_free(change->name);
    g_free(change->to_name);
    g_free(change);
}

static void free_inode(gpointer inode)
{
    sim_inode_unref(inode);
}

static SimTree *tree_alloc(void)
{
    SimTree *tree = g_new0(SimTree, 1);
    tree->inodes = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_inode);
    tree->changes = g_ptr_array_new_with_free_func(free_change);
    return tree;
}

static void put_inode(SimTree *tree, SimInode *inode)
{
    g_hash_table_replace(tree->inodes, &inode->number, inode);
}

SimTree *sim_tree_new(void)
{
    SimTree *tree = tree_alloc();
    tree->next_number = SIM_ROOT + 1;
    tree->n_inodes = 1;
    SimInode *root = sim_inode_new(SIM_ROOT, true, SIM_ROOT);
    root->n_links = 1;
    put_inode(tree, root);
    return tree;
}

static SimChange *copy_change(const SimChange *change)
{
    SimChange *copy = g_memdup2(change, sizeof *change);
    copy->name = g_strdup(change->name);
    copy->to_name = g_strdup(change->to_name);
    return copy;
}

SimTree *sim_tree_copy(const SimTree *tree)
{
    SimTree *copy = tree_alloc();
    GHashTableIter iter;
    gpointer inode;

    g_hash_table_iter_init(&iter, tree->inodes);
    while (g_hash_table_iter_next(&iter, NULL, &inode))
        put_inode(copy, sim_inode_ref(inode));
    for (guint i = 0; i < tree->changes->len; i++)
        g_ptr_array_add(copy->changes, copy_change(tree->changes->pdata[i]));
    copy->sequence = tree->sequence;
    copy->next_number = tree->next_number;
    copy->n_sectors = tree->n_sectors;
    copy->n_inodes = tree->n_inodes;
    return copy;
}

void sim_tree_free(SimTree *tree)
{
    g_hash_table_unref(tree->inodes);
    g_ptr_array_unref(tree->changes);
    g_free(tree);
}

SimInode *sim_tree_get(const SimTree *tree, uint64_t number)
{
    return g_hash_table_lookup(tree->inodes, &number);
}

SimInode *sim_tree_own(SimTree *tree, uint64_t number)
{
    SimInode *inode = sim_tree_get(tree, number);
    g_assert_nonnull(inode);
    if (g_atomic_int_get(&inode->refs) == 1)
        return inode;
    inode = sim_inode_copy(inode);
    put_inode(tree, inode);
    return inode;
}

/* ---- room ---- */

void sim_tree_account(SimTree *tree, SimInode *owned, uint64_t n_sectors_before)
{
    tree->n_sectors += owned->n_sectors - n_sectors_before;
}

void sim_tree_release(SimTree *tree, uint64_t number)
{
    SimInode *inode = sim_tree_get(tree, number);
    if (inode == NULL || inode->n_links > 0 || inode->is_gone)
        return;
    inode = sim_tree_own(tree, number);
    inode->is_gone = true;
    tree->n_inodes--;
    tree->n_sectors -= inode->n_sectors;
}

static void mark_names(GHashTable *alive, GTree *names)
{
    for (GTreeNode *node = g_tree_node_first(names); node != NULL; node = g_tree_node_next(node))
        g_hash_table_add(alive, g_tree_node_value(node));
}

void sim_tree_collect(SimTree *tree, GHashTable *open)
{
    g_autoptr(GHashTable) alive = g_hash_table_new(g_int64_hash, g_int64_equal);
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, tree->inodes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        SimInode *inode = value;
        if (inode->number == SIM_ROOT || inode->n_links > 0)
            g_hash_table_add(alive, &inode->number);
        if (inode->is_dir)
            mark_names(alive, inode->disk_names);
    }
    for (guint i = 0; i < tree->changes->len; i++)
        g_hash_table_add(alive, &((SimChange *)tree->changes->pdata[i])->inode);
    if (open != NULL) {
        g_hash_table_iter_init(&iter, open);
        while (g_hash_table_iter_next(&iter, NULL, &value))
            g_hash_table_add(alive, &((SimOpen *)value)->inode);
    }
    g_autoptr(GArray) dead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_hash_table_iter_init(&iter, tree->inodes);
    while (g_hash_table_iter_next(&iter, &value, NULL)) {
        if (!g_hash_table_contains(alive, value))
            g_array_append_val(dead, *(uint64_t *)value);
    }
    for (guint i = 0; i < dead->len; i++)
        g_hash_table_remove(tree->inodes, &g_array_index(dead, uint64_t, i));
}

/* ---- changes of names ---- */

static SimChange *add_change(SimTree *tree, SimChangeKind kind, uint64_t dir, const char *name, uint64_t inode)
{
    SimChange *change = g_new0(SimChange, 1);
    change->sequence = ++tree->sequence;
    change->kind = kind;
    change->dir = change->to_dir = dir;
    change->waits = true;
    change->inode = inode;
    change->name = g_strdup(name);
    g_ptr_array_add(tree->changes, change);
    return change;
}

static SimInode *own_dir(SimTree *tree, uint64_t number)
{
    SimInode *dir = sim_tree_own(tree, number);
    dir->mtime_ns = nrd_clock_wall_ms() * 1000000;
    return dir;
}

uint64_t sim_tree_create(SimTree *tree, uint64_t dir, const char *name, bool is_dir)
{
    SimInode *inode = sim_inode_new(tree->next_number++, is_dir, dir);
    inode->n_links = 1;
    inode->mtime_ns = inode->disk_mtime_ns = nrd_clock_wall_ms() * 1000000;
    put_inode(tree, inode);
    sim_names_set(own_dir(tree, dir)->names, name, inode->number);
    tree->n_inodes++;
    add_change(tree, SIM_LINKED, dir, name, inode->number);
    return inode->number;
}

void sim_tree_unlink(SimTree *tree, uint64_t dir, const char *name)
{
    SimInode *owned = own_dir(tree, dir);
    uint64_t number = sim_names_get(owned->names, name);
    sim_names_set(owned->names, name, 0);
    sim_tree_own(tree, number)->n_links--;
    add_change(tree, SIM_UNLINKED, dir, name, number);
}

void sim_tree_rename(SimTree *tree, uint64_t dir, const char *name, uint64_t to_dir, const char *to_name)
{
    SimInode *from = own_dir(tree, dir), *to = own_dir(tree, to_dir);
    uint64_t number = sim_names_get(from->names, name), old = sim_names_get(to->names, to_name);

    if (old != 0)
        sim_tree_own(tree, old)->n_links--;
    sim_names_set(from->names, name, 0);
    sim_names_set(to->names, to_name, number);
    SimInode *moved = sim_tree_own(tree, number);
    if (moved->is_dir)
        moved->parent = to_dir;
    SimChange *change = add_change(tree, SIM_RENAMED, dir, name, number);
    change->to_name = g_strdup(to_name);
    change->to_dir = to_dir;
    change->to_waits = to_dir != dir;
}

bool sim_tree_is_below(const SimTree *tree, uint64_t number, uint64_t ancestor)
{
    while (number != ancestor && number != SIM_ROOT)
        number = sim_tree_get(tree, number)->parent;
    return number == ancestor;
}

void sim_tree_apply(SimTree *tree, const SimChange *change)
{
    /* a folder that is gone for good has nothing to keep */
    SimInode *dir = sim_tree_get(tree, change->dir) != NULL ? sim_tree_own(tree, change->dir) : NULL;
    if (change->kind == SIM_LINKED) {
        if (dir != NULL)
            sim_names_set(dir->disk_names, change->name, change->inode);
        return;
    }
    if (dir != NULL && sim_names_get(dir->disk_names, change->name) == change->inode)
        sim_names_set(dir->disk_names, change->name, 0);
    if (change->kind == SIM_RENAMED && sim_tree_get(tree, change->to_dir) != NULL)
        sim_names_set(sim_tree_own(tree, change->to_dir)->disk_names, change->to_name, change->inode);
}

void sim_tree_sync_dir(SimTree *tree, uint64_t dir)
{
    for (guint i = 0; i < tree->changes->len;) {
        SimChange *change = tree->changes->pdata[i];
        if (change->dir == dir)
            change->waits = false;
        if (change->to_dir == dir)
            change->to_waits = false;
        if (change->waits || change->to_waits) {
            i++;
            continue;
        }
        sim_tree_apply(tree, change);
        g_ptr_array_remove_index(tree->changes, i);
    }
}

void sim_tree_forget_dir(SimTree *tree, uint64_t dir)
{
    for (guint i = 0; i < tree->changes->len;) {
        const SimChange *change = tree->changes->pdata[i];
        if (change->dir == dir || change->to_dir == dir)
            g_ptr_array_remove_index(tree->changes, i);
        else
            i++;
    }
}

void sim_tree_sync_names_of(SimTree *tree, uint64_t number)
{
    guint n = 0;
    for (guint i = 0; i < tree->changes->len; i++) {
        const SimChange *change = tree->changes->pdata[i];
        if (change->kind == SIM_LINKED && change->inode == number)
            n = i + 1; /* one journal: what came before it comes with it */
    }
    for (guint i = 0; i < n; i++)
        sim_tree_apply(tree, tree->changes->pdata[i]);
    if (n > 0)
        g_ptr_array_remove_range(tree->changes, 0, n);
}

/* ---- paths ---- */

uint64_t sim_tree_find(const SimTree *tree, SimLayer layer, const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    uint64_t number = SIM_ROOT;

    for (guint i = 0; parts[i] != NULL; i++) {
        if (parts[i][0] == '\0')
            continue;
        const SimInode *dir = sim_tree_get(tree, number);
        if (dir == NULL || !dir->is_dir)
            return 0;
        number = sim_names_get(layer == SIM_CACHED ? dir->names : dir->disk_names, parts[i]);
        if (number == 0)
            return 0;
    }
    return number;
}
