/* Listings. The names are taken when the directory is opened, so an offset means the same entry as long as it stays
 * open, however small the buffers; a rewind to offset 0 does not see newer names. */
#include "fs/defer.h"
#include "fs/namespace.h"
#include "fs/node.h"

#include <errno.h>
#include <stdio.h>

/* The newest records only: a listing has an end, however many there are. */
#define MAX_RECORDS 1000

typedef struct Entry {
    char *name;
    NrdNodeKey key; /* its topic and child are referenced */
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
    nrd_topic_unref(entry->key.topic);
    nrd_topic_unref(entry->key.child);
}

static void add(Listing *listing, const char *name, const NrdNodeKey *key)
{
    Entry entry = { .name = g_strdup(name), .key = *key, .ino = nrd_node_ino(key) };
    if (key->topic)
        nrd_topic_ref(key->topic);
    if (key->child)
        nrd_topic_ref(key->child);
    g_array_append_val(listing->entries, entry);
}

/* An entry of the folder's own topic, partition and child. */
static void add_here(Listing *listing, const char *name, const NrdKindInfo *info, uint64_t arg)
{
    NrdNode *dir = listing->dir;
    add(listing, name,
        &(NrdNodeKey){
            .info = info, .topic = dir->topic, .partition = dir->partition, .child = dir->child, .arg = arg });
}

static void add_dots(Listing *listing)
{
    NrdNode *dir = listing->dir;
    const NrdKindInfo *up = nrd_kind_info(dir->info->parent);
    bool up_in_topic = up->kind == NRD_KIND_TOPIC || up->kind == NRD_KIND_PARTITION || up->kind == NRD_KIND_CHILDREN;
    NrdNodeKey above = { .info = up };
    if (up_in_topic)
        above.topic = dir->topic;
    if (up->kind == NRD_KIND_PARTITION)
        above.partition = dir->partition;
    add_here(listing, ".", dir->info, 0);
    add(listing, "..", &above);
    Entry *entries = (Entry *)listing->entries->data;
    entries[0].ino = dir->ino;
    if (up->kind == NRD_KIND_ROOT)
        entries[1].ino = FUSE_ROOT_ID;
}

static void add_fixed(Listing *listing, bool only_status)
{
    NrdNode *dir = listing->dir;
    for (NrdKind kind = NRD_KIND_ROOT + 1; kind < NRD_N_KINDS; kind++) {
        const NrdKindInfo *info = nrd_kind_info(kind);
        if (info->parent != dir->info->kind || !info->listed || !info->name)
            continue;
        if (!only_status || kind == NRD_KIND_TOPIC_STATUS)
            add_here(listing, info->name, info, 0);
    }
}

static void add_topics(Listing *listing)
{
    GPtrArray *names = nrd_engine_topic_names(listing->dir->fs->engine);
    for (guint i = 0; i < names->len; i++) {
        NrdTopic *topic;
        if (nrd_topic_find(listing->dir->fs->engine, names->pdata[i], &topic) < 0)
            continue; /* deleted in between */
        add(listing, names->pdata[i], &(NrdNodeKey){ .info = nrd_kind_info(NRD_KIND_TOPIC), .topic = topic });
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
        NrdNodeKey key = { .info = nrd_kind_info(NRD_KIND_PARTITION), .topic = topic, .partition = partition };
        if (partition)
            add(listing, name, &key);
    }
}

static void add_children(Listing *listing)
{
    NrdNode *dir = listing->dir;
    GPtrArray *names = nrd_topic_children(dir->topic);
    for (guint i = 0; i < names->len; i++) {
        NrdTopic *child;
        if (nrd_topic_find(dir->fs->engine, names->pdata[i], &child) < 0)
            continue; /* deleted in between */
        NrdNodeKey key = { .info = nrd_kind_info(NRD_KIND_CHILD), .topic = dir->topic, .child = child };
        add(listing, names->pdata[i], &key);
        nrd_topic_unref(child);
    }
    g_ptr_array_unref(names);
}

/* The first offset from `offset` on that is in none of the runs: NULL or NrdLostRange, ascending. *at: the run looked at;
 * offsets ascend from call to call. */
static uint64_t pass_lost(const GArray *lost, guint *at, uint64_t offset)
{
    for (; lost && *at < lost->len && g_array_index(lost, NrdLostRange, *at).offset <= offset; (*at)++)
        offset = MAX(offset, g_array_index(lost, NrdLostRange, *at).end_offset);
    return offset;
}

/* Where the newest MAX_RECORDS begin that are not known to be lost. lost: NULL or NrdLostRange, ascending. */
static uint64_t first_listed(const NrdPartitionInfo *info, const GArray *lost)
{
    uint64_t end = info->hwm, left = MAX_RECORDS;
    for (guint i = lost ? lost->len : 0; i > 0 && end > info->oldest_offset; i--) {
        const NrdLostRange *range = &g_array_index(lost, NrdLostRange, i - 1);
        uint64_t from = MIN(MAX(range->end_offset, info->oldest_offset), end);
        if (end - from >= left)
            return end - left;
        left -= end - from;
        end = MIN(MAX(range->offset, info->oldest_offset), end);
    }
    return end - MIN(left, end - info->oldest_offset);
}

/* Records that are known to be lost have no name in the listing, so that a walk goes by without an error for each; who
 * asks for one by its offset gets EBADMSG, and `status` tells of them. */
static int add_records(Listing *listing)
{
    NrdPartitionInfo info;
    g_autoptr(GArray) lost = NULL;
    guint at = 0;
    nrd_partition_info(listing->dir->partition, &info);
    int error = info.n_damaged + info.n_holes > 0 ? nrd_partition_lost_ranges(listing->dir->partition, &lost) : 0;
    uint64_t offset = pass_lost(lost, &at, first_listed(&info, lost));
    for (; error == 0 && offset < info.hwm; offset = pass_lost(lost, &at, offset + 1)) {
        char name[24];
        snprintf(name, sizeof name, "%" G_GUINT64_FORMAT, offset);
        add_here(listing, name, nrd_kind_info(NRD_KIND_RECORD), offset);
    }
    nrd_partition_info_clear(&info);
    return error;
}

static int add_segments(Listing *listing)
{
    GArray *views;
    int error = nrd_partition_segments(listing->dir->partition, &views);
    if (error < 0)
        return error;
    for (guint i = 0; i < views->len; i++) {
        char name[32];
        uint64_t base = g_array_index(views, NrdSegmentView, i).base;
        snprintf(name, sizeof name, "%020" G_GUINT64_FORMAT ".log", base);
        add_here(listing, name, nrd_kind_info(NRD_KIND_SEGMENT), base);
    }
    g_array_unref(views);
    return 0;
}

static int fill(Listing *listing)
{
    NrdNode *dir = listing->dir;
    int error = 0;
    add_dots(listing);
    if (dir->topic && nrd_topic_deleted(dir->topic))
        return 0;
    bool lost = dir->topic && nrd_topic_lost(dir->topic);
    add_fixed(listing, lost);
    if (dir->info->kind == NRD_KIND_TOPICS)
        add_topics(listing);
    if (dir->info->kind == NRD_KIND_TOPIC && !lost)
        add_partitions(listing);
    if (dir->info->kind == NRD_KIND_CHILDREN && !lost)
        add_children(listing);
    if (dir->info->kind == NRD_KIND_RECORDS && !lost)
        error = add_records(listing);
    if (dir->info->kind == NRD_KIND_SEGMENTS && !lost)
        error = add_segments(listing);
    return error == -EIDRM ? 0 : error;
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

static void open_listing(NrdNode *dir, fuse_req_t req)
{
    Listing *listing = new_listing(dir);
    struct fuse_file_info fi = { .fh = (uintptr_t)listing };
    int error = fill(listing);
    if (error < 0)
        nrd_reply_error(req, error);
    if (error < 0 || fuse_reply_open(req, &fi) < 0)
        free_listing(listing);
}

static void open_listing_later(NrdNode *dir, fuse_req_t req, void *data, int error)
{
    if (error == 0)
        error = nrd_node_learn(dir);
    if (error == 0)
        open_listing(dir, req);
    else
        nrd_reply_error(req, error == -EIDRM ? -ENOENT : error);
}

/* Whether a listing may have to open the partition. */
static bool listing_waits(NrdNode *dir)
{
    NrdPartitionInfo info;
    if (dir->info->kind != NRD_KIND_RECORDS || nrd_node_unknown(dir))
        return dir->info->kind == NRD_KIND_SEGMENTS || dir->info->kind == NRD_KIND_RECORDS;
    nrd_partition_info(dir->partition, &info);
    bool waits = info.n_damaged + info.n_holes > 0 && !info.open;
    nrd_partition_info_clear(&info);
    return waits;
}

void nrd_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdNode *dir = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (!dir)
        fuse_reply_err(req, ESTALE);
    else if (listing_waits(dir))
        nrd_defer(dir, req, open_listing_later, NULL);
    else
        open_listing(dir, req);
}

void nrd_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    Listing *listing = (Listing *)(uintptr_t)fi->fh;
    char *buf = g_malloc(size);
    size_t used = 0;
    for (size_t i = (size_t)off; off >= 0 && i < listing->entries->len; i++) {
        const Entry *entry = &g_array_index(listing->entries, Entry, i);
        struct stat st = { .st_ino = entry->ino, .st_mode = entry->key.info->mode };
        size_t need = fuse_add_direntry(req, buf + used, size - used, entry->name, &st, (off_t)i + 1);
        if (need > size - used)
            break;
        used += need;
    }
    fuse_reply_buf(req, buf, used);
    g_free(buf);
}

/* Files with fresh nodes, what waits for the disk, and the two dots, get node id 0: no look-up is counted and the kernel
 * asks when it needs to know. */
static void fill_plus(Listing *listing, size_t i, const Entry *entry, struct fuse_entry_param *ret_param)
{
    *ret_param = (struct fuse_entry_param){ .attr = { .st_ino = entry->ino, .st_mode = entry->key.info->mode } };
    const NrdKindInfo *info = entry->key.info;
    if (i < 2 || info->fresh || (info->ops && info->ops->visit) || nrd_key_unknown(&entry->key))
        return;
    nrd_entry_fill(nrd_nodes_lookup(listing->dir->fs->nodes, &entry->key), ret_param);
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
