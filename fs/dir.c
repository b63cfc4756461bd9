/* Listings. The names are taken when the directory is opened, so an offset means the same entry as long as it stays
 * open, however small the buffers; a rewind to offset 0 does not see newer names. */
#include "fs/namespace.h"
#include "fs/node.h"

#include <errno.h>
#include <stdio.h>

typedef struct Entry {
    char *name;
    const NrdKindInfo *info;
    NrdTopic *topic; /* referenced, of an entry that is a topic */
    NrdPartition *partition;
    uint64_t ino;
} Entry;

typedef struct Listing {
    NrdNode *dir; /* referenced */
    GArray *entries;
} Listing;

static void clear_entry(void *data)
{
    Entry *entry = data;
    g_free(entry->name);
    nrd_topic_unref(entry->topic);
}

static void add(Listing *listing, const char *name, const NrdKindInfo *info, NrdTopic *topic, NrdPartition *partition)
{
    Entry entry = { .name = g_strdup(name), .info = info, .partition = partition };
    entry.topic = topic ? nrd_topic_ref(topic) : NULL;
    entry.ino = nrd_node_ino(info, topic, partition, NULL);
    g_array_append_val(listing->entries, entry);
}

static void add_dots(Listing *listing)
{
    NrdNode *dir = listing->dir;
    const NrdKindInfo *up = nrd_kind_info(dir->info->parent);
    bool up_in_topic = up->kind == NRD_KIND_TOPIC || up->kind == NRD_KIND_PARTITION;
    Entry entry = { .name = g_strdup("."), .info = dir->info, .ino = dir->ino };
    g_array_append_val(listing->entries, entry);
    entry.name = g_strdup("..");
    entry.info = up;
    entry.ino = FUSE_ROOT_ID;
    if (up->kind != NRD_KIND_ROOT)
        entry.ino = nrd_node_ino(up, up_in_topic ? dir->topic : NULL,
                                 up->kind == NRD_KIND_PARTITION ? dir->partition : NULL, NULL);
    g_array_append_val(listing->entries, entry);
}

static void add_fixed(Listing *listing, bool only_status)
{
    NrdNode *dir = listing->dir;
    for (NrdKind kind = NRD_KIND_ROOT + 1; kind < NRD_N_KINDS; kind++) {
        const NrdKindInfo *info = nrd_kind_info(kind);
        if (info->parent != dir->info->kind || !info->listed || !info->name)
            continue;
        if (!only_status || kind == NRD_KIND_TOPIC_STATUS)
            add(listing, info->name, info, dir->topic, dir->partition);
    }
}

static void add_topics(Listing *listing)
{
    GPtrArray *names = nrd_engine_topic_names(listing->dir->fs->engine);
    for (guint i = 0; i < names->len; i++) {
        NrdTopic *topic;
        if (nrd_topic_find(listing->dir->fs->engine, names->pdata[i], &topic) < 0)
            continue; /* deleted in between */
        add(listing, names->pdata[i], nrd_kind_info(NRD_KIND_TOPIC), topic, NULL);
        nrd_topic_unref(topic);
    }
    g_ptr_array_unref(names);
}

static void add_partitions(Listing *listing)
{
    NrdTopic *topic = listing->dir->topic;
    uint32_t n = nrd_topic_n_partitions(topic);
    for (uint32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%05u", i);
        NrdPartition *partition = nrd_topic_partition(topic, i);
        if (partition)
            add(listing, name, nrd_kind_info(NRD_KIND_PARTITION), topic, partition);
    }
}

static void fill(Listing *listing)
{
    NrdNode *dir = listing->dir;
    add_dots(listing);
    if (dir->topic && nrd_topic_deleted(dir->topic))
        return;
    char *fault = dir->topic ? nrd_topic_fault(dir->topic) : NULL;
    add_fixed(listing, fault != NULL);
    if (dir->info->kind == NRD_KIND_TOPICS)
        add_topics(listing);
    if (dir->info->kind == NRD_KIND_TOPIC && !fault)
        add_partitions(listing);
    g_free(fault);
}

static Listing *new_listing(NrdNode *dir)
{
    NrdFs *fs = dir->fs;
    Listing *listing = g_new0(Listing, 1);
    listing->dir = dir;
    nrd_node_ref(dir);
    listing->entries = g_array_new(FALSE, FALSE, sizeof(Entry));
    g_array_set_clear_func(listing->entries, clear_entry);
    g_mutex_lock(&fs->lock);
    g_hash_table_add(fs->listings, listing);
    g_mutex_unlock(&fs->lock);
    return listing;
}

static void free_listing(Listing *listing)
{
    NrdFs *fs = listing->dir->fs;
    g_mutex_lock(&fs->lock);
    g_hash_table_remove(fs->listings, listing);
    g_mutex_unlock(&fs->lock);
    g_array_unref(listing->entries);
    nrd_node_unref(listing->dir);
    g_free(listing);
}

void nrd_listings_close_all(NrdFs *fs)
{
    g_mutex_lock(&fs->lock);
    GList *open = g_hash_table_get_keys(fs->listings);
    g_mutex_unlock(&fs->lock);
    for (GList *l = open; l; l = l->next)
        free_listing(l->data);
    g_list_free(open);
}

void nrd_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdNode *dir = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (!dir) {
        fuse_reply_err(req, ESTALE);
        return;
    }
    Listing *listing = new_listing(dir);
    fill(listing);
    fi->fh = (uintptr_t)listing;
    if (fuse_reply_open(req, fi) < 0)
        free_listing(listing);
}

void nrd_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    Listing *listing = (Listing *)(uintptr_t)fi->fh;
    char *buf = g_malloc(size);
    size_t used = 0;
    for (size_t i = (size_t)off; off >= 0 && i < listing->entries->len; i++) {
        const Entry *entry = &g_array_index(listing->entries, Entry, i);
        struct stat st = { .st_ino = entry->ino, .st_mode = entry->info->mode };
        size_t need = fuse_add_direntry(req, buf + used, size - used, entry->name, &st, (off_t)i + 1);
        if (need > size - used)
            break;
        used += need;
    }
    fuse_reply_buf(req, buf, used);
    g_free(buf);
}

/* Files with fresh nodes, and the two dots, get node id 0: no look-up is counted and the kernel asks when it needs to
 * know. */
static void fill_plus(Listing *listing, size_t i, const Entry *entry, struct fuse_entry_param *ret_param)
{
    *ret_param = (struct fuse_entry_param){ .attr = { .st_ino = entry->ino, .st_mode = entry->info->mode } };
    if (i < 2 || entry->info->fresh)
        return;
    NrdNode *node = nrd_nodes_lookup(listing->dir->fs->nodes, entry->info, entry->topic, entry->partition, NULL);
    nrd_entry_fill(node, ret_param);
}

void nrd_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    NrdFs *fs = nrd_req_fs(req);
    Listing *listing = (Listing *)(uintptr_t)fi->fh;
    char *buf = g_malloc(size);
    size_t used = 0;
    GArray *looked_up = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (size_t i = (size_t)off; off >= 0 && i < listing->entries->len; i++) {
        const Entry *entry = &g_array_index(listing->entries, Entry, i);
        struct fuse_entry_param param;
        /* Ask for the size first: the look-up counts only if the entry fits. */
        if (fuse_add_direntry_plus(req, NULL, 0, entry->name, NULL, 0) > size - used)
            break;
        fill_plus(listing, i, entry, &param);
        if (param.ino != 0)
            g_array_append_val(looked_up, param.ino);
        used += fuse_add_direntry_plus(req, buf + used, size - used, entry->name, &param, (off_t)i + 1);
    }
    if (fuse_reply_buf(req, buf, used) < 0) { /* interrupted: the kernel counts none of the look-ups */
        for (guint i = 0; i < looked_up->len; i++)
            nrd_nodes_forget(fs->nodes, g_array_index(looked_up, uint64_t, i), 1);
    }
    g_array_unref(looked_up);
    g_free(buf);
}

void nrd_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    free_listing((Listing *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

void nrd_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    fuse_reply_err(req, 0); /* names are durable when mkdir and rmdir return */
}
