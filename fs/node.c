/* See node.h. Two hash tables: by id, and the shared nodes by what they stand for. */
#include "fs/node.h"

#include "fs/hash.h"
#include "fs/prune.h"

struct NrdNodes {
    NrdFs *fs;
    /* guarded by lock */
    GMutex lock;
    uint64_t next_id;
    GHashTable *by_id;  /* &node->id -> node */
    GHashTable *shared; /* node -> node, by kind, topic, partition, child and arg */
    GQueue by_age;      /* node->age, but the root's: who was looked up longest ago comes first */
};

static guint shared_hash(gconstpointer key)
{
    const NrdNode *node = key;
    uint64_t parts[] = { node->info->kind, (uintptr_t)node->topic, (uintptr_t)node->partition, (uintptr_t)node->child,
                         node->arg };
    return (guint)nrd_hash(0, parts, sizeof parts);
}

static gboolean shared_equal(gconstpointer a, gconstpointer b)
{
    const NrdNode *x = a, *y = b;
    return x->info == y->info && x->topic == y->topic && x->partition == y->partition && x->child == y->child &&
           x->arg == y->arg;
}

static uint64_t hash_topic(uint64_t hash, NrdTopic *topic)
{
    const char *id = nrd_topic_incarnation(topic);
    if (*id == '\0')
        id = nrd_topic_name(topic);
    return nrd_hash(hash, id, strlen(id));
}

uint64_t nrd_node_ino(const NrdNodeKey *key)
{
    uint64_t hash = key->info->kind;
    if (key->topic)
        hash = hash_topic(hash, key->topic);
    if (key->child)
        hash = hash_topic(hash, key->child);
    if (key->partition) {
        uint32_t number = nrd_partition_number(key->partition);
        hash = nrd_hash(hash, &number, sizeof number);
    }
    if (key->arg)
        hash = nrd_hash(hash, &key->arg, sizeof key->arg);
    hash = nrd_hash_mix(hash + 1);
    return hash <= FUSE_ROOT_ID ? hash + 2 : hash;
}

static NrdNode *new_node(NrdNodes *nodes, const NrdNodeKey *key)
{
    NrdNode *node = g_new0(NrdNode, 1);
    node->fs = nodes->fs;
    node->age.data = node;
    node->info = key->info;
    node->topic = key->topic ? nrd_topic_ref(key->topic) : NULL;
    node->partition = key->partition;
    node->child = key->child ? nrd_topic_ref(key->child) : NULL;
    node->arg = key->arg;
    node->handles = g_ptr_array_new();
    g_mutex_init(&node->lock);
    return node;
}

static void free_node(NrdNode *node)
{
    nrd_topic_unref(node->topic);
    nrd_topic_unref(node->child);
    g_ptr_array_unref(node->handles);
    g_mutex_clear(&node->lock);
    g_free(node);
}

static void insert_locked(NrdNodes *nodes, NrdNode *node)
{
    node->id = nodes->next_id++;
    g_hash_table_insert(nodes->by_id, &node->id, node);
    if (node->id != FUSE_ROOT_ID)
        g_queue_push_tail_link(&nodes->by_age, &node->age);
    if (!node->info->fresh)
        g_hash_table_add(nodes->shared, node);
}

static void become_youngest_locked(NrdNodes *nodes, NrdNode *node)
{
    g_queue_unlink(&nodes->by_age, &node->age);
    g_queue_push_tail_link(&nodes->by_age, &node->age);
}

/* Takes the node out of the tables when nobody knows it any more; the caller frees it after unlocking. */
static NrdNode *take_if_idle_locked(NrdNodes *nodes, NrdNode *node)
{
    if (node->n_lookups > 0 || node->n_refs > 0 || node->id == FUSE_ROOT_ID)
        return NULL;
    g_hash_table_remove(nodes->by_id, &node->id);
    g_queue_unlink(&nodes->by_age, &node->age);
    if (!node->info->fresh)
        g_hash_table_remove(nodes->shared, node);
    return node;
}

NrdNodes *nrd_nodes_new(NrdFs *fs)
{
    NrdNodes *nodes = g_new0(NrdNodes, 1);
    nodes->fs = fs;
    nodes->next_id = FUSE_ROOT_ID;
    nodes->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    nodes->shared = g_hash_table_new(shared_hash, shared_equal);
    g_mutex_init(&nodes->lock);
    NrdNode *root = new_node(nodes, &(NrdNodeKey){ .info = nrd_kind_info(NRD_KIND_ROOT) });
    root->ino = FUSE_ROOT_ID;
    insert_locked(nodes, root);
    return nodes;
}

void nrd_nodes_clear(NrdNodes *nodes)
{
    g_mutex_lock(&nodes->lock);
    GList *all = g_hash_table_get_values(nodes->by_id);
    g_hash_table_remove_all(nodes->shared);
    g_hash_table_remove_all(nodes->by_id);
    g_queue_init(&nodes->by_age); /* its links are in the nodes */
    g_mutex_unlock(&nodes->lock);
    for (GList *l = all; l; l = l->next)
        free_node(l->data);
    g_list_free(all);
}

void nrd_nodes_free(NrdNodes *nodes)
{
    if (!nodes)
        return;
    nrd_nodes_clear(nodes);
    g_hash_table_unref(nodes->shared);
    g_hash_table_unref(nodes->by_id);
    g_mutex_clear(&nodes->lock);
    g_free(nodes);
}

NrdNode *nrd_nodes_get(NrdNodes *nodes, uint64_t id)
{
    g_mutex_lock(&nodes->lock);
    NrdNode *node = g_hash_table_lookup(nodes->by_id, &id);
    g_mutex_unlock(&nodes->lock);
    return node;
}

NrdNode *nrd_nodes_lookup(NrdNodes *nodes, const NrdNodeKey *key)
{
    uint64_t ino = nrd_node_ino(key);
    NrdNode *made = new_node(nodes, key);
    made->ino = ino;
    g_mutex_lock(&nodes->lock);
    NrdNode *node = key->info->fresh ? NULL : g_hash_table_lookup(nodes->shared, made);
    if (!node) {
        node = g_steal_pointer(&made);
        insert_locked(nodes, node);
    } else {
        become_youngest_locked(nodes, node);
    }
    node->n_lookups++;
    uint64_t n_nodes = g_hash_table_size(nodes->by_id);
    g_mutex_unlock(&nodes->lock);
    if (made)
        free_node(made);
    nrd_prune_note(nodes->fs->prune, n_nodes);
    return node;
}

void nrd_nodes_forget(NrdNodes *nodes, uint64_t id, uint64_t n_lookups)
{
    NrdNode *idle = NULL;
    g_mutex_lock(&nodes->lock);
    NrdNode *node = g_hash_table_lookup(nodes->by_id, &id);
    if (node) {
        node->n_lookups -= MIN(node->n_lookups, n_lookups);
        idle = take_if_idle_locked(nodes, node);
    }
    g_mutex_unlock(&nodes->lock);
    if (idle)
        free_node(idle);
}

uint64_t nrd_nodes_count(NrdNodes *nodes)
{
    g_mutex_lock(&nodes->lock);
    uint64_t n = g_hash_table_size(nodes->by_id);
    g_mutex_unlock(&nodes->lock);
    return n;
}

void nrd_nodes_list_oldest(NrdNodes *nodes, uint64_t n, GArray *ids)
{
    g_mutex_lock(&nodes->lock);
    for (uint64_t n_left = MIN(n, nodes->by_age.length); n_left > 0; n_left--) {
        NrdNode *node = g_queue_peek_head(&nodes->by_age);
        become_youngest_locked(nodes, node);
        if (node->n_refs == 0)
            g_array_append_val(ids, node->id);
    }
    g_mutex_unlock(&nodes->lock);
}

void nrd_node_ref(NrdNode *node)
{
    NrdNodes *nodes = node->fs->nodes;
    g_mutex_lock(&nodes->lock);
    node->n_refs++;
    g_mutex_unlock(&nodes->lock);
}

void nrd_node_unref(NrdNode *node)
{
    NrdNodes *nodes = node->fs->nodes;
    g_mutex_lock(&nodes->lock);
    g_assert(node->n_refs > 0);
    node->n_refs--;
    NrdNode *idle = take_if_idle_locked(nodes, node);
    g_mutex_unlock(&nodes->lock);
    if (idle)
        free_node(idle);
}

void nrd_nodes_drop_cached(NrdFs *fs, NrdTopic *topic)
{
    GHashTableIter iter;
    gpointer value;
    GArray *ids = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_mutex_lock(&fs->nodes->lock);
    g_hash_table_iter_init(&iter, fs->nodes->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        NrdNode *node = value;
        if (node->topic == topic && node->info->kind == NRD_KIND_SEGMENT)
            g_array_append_val(ids, node->id);
    }
    g_mutex_unlock(&fs->nodes->lock);
    for (guint i = 0; i < ids->len && fs->session; i++)
        fuse_lowlevel_notify_inval_inode(fs->session, g_array_index(ids, uint64_t, i), 0, 0); /* forgotten: no matter */
    g_array_unref(ids);
}
