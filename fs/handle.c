/* Handles: one for each OPEN, known to their node and to the file system. One that works with the engine pins its
 * partition until its last reference is gone, which is after the last callback of its release. */
#include "fs/node.h"

#include <errno.h>
#include <fcntl.h>

static void register_handle(NrdHandle *handle)
{
    NrdFs *fs = handle->fs;
    g_mutex_lock(&handle->node->lock);
    g_ptr_array_add(handle->node->handles, handle);
    g_mutex_unlock(&handle->node->lock);
    g_mutex_lock(&fs->lock);
    g_hash_table_add(fs->handles, handle);
    fs->n_handles++;
    g_mutex_unlock(&fs->lock);
}

static NrdHandle *new_handle(NrdFs *fs, NrdNode *node, int flags)
{
    NrdHandle *handle = g_new0(NrdHandle, 1);
    handle->fs = fs;
    handle->node = node;
    handle->topic = node->topic;
    handle->partition = node->partition;
    handle->ops = node->info->ops;
    handle->flags = flags;
    handle->n_refs = 1;
    g_mutex_init(&handle->lock);
    nrd_node_ref(node);
    return handle;
}

static void free_handle(NrdHandle *handle)
{
    if (handle->ops->destroy)
        handle->ops->destroy(handle);
    nrd_topic_consumer_close(handle->consumer);
    if (handle->pinned)
        nrd_partition_unpin(handle->partition);
    if (handle->topic)
        nrd_topic_release(handle->topic);
    nrd_node_unref(handle->node);
    g_mutex_clear(&handle->lock);
    g_free(handle);
}

/* Keeps open what the file works with: its partition, or, of a file that consumes a topic, all of them. */
static int pin(NrdHandle *handle)
{
    const NrdNode *node = handle->node;
    if (!node->partition)
        return handle->ops->takes ? nrd_topic_consumer_open(node->topic, &handle->consumer) : 0;
    int error = node->info->pins ? nrd_partition_pin(node->partition) : 0;
    handle->pinned = node->info->pins && error == 0;
    return error;
}

int nrd_handle_open(NrdFs *fs, NrdNode *node, int flags, NrdHandle **ret_handle)
{
    int error = node->topic ? nrd_topic_hold(node->topic) : 0;
    if (error < 0)
        return error;
    NrdHandle *handle = new_handle(fs, node, flags);
    error = pin(handle);
    if (error == 0 && handle->ops->open)
        error = handle->ops->open(handle);
    if (error < 0) {
        free_handle(handle);
        return error;
    }
    register_handle(handle);
    nrd_poll_register(handle);
    *ret_handle = handle;
    return 0;
}

/* The caller has taken the handle out of fs->handles. */
static void finish(NrdHandle *handle)
{
    NrdNode *node = handle->node;
    nrd_poll_unregister(handle);
    g_mutex_lock(&node->lock);
    g_ptr_array_remove(node->handles, handle);
    bool last = node->handles->len == 0;
    g_mutex_unlock(&node->lock);
    if (handle->ops->release)
        handle->ops->release(handle, last);
    else
        nrd_handle_unref(handle);
}

void nrd_handle_close(NrdHandle *handle)
{
    NrdFs *fs = handle->fs;
    g_mutex_lock(&fs->lock);
    bool open = g_hash_table_remove(fs->handles, handle);
    g_mutex_unlock(&fs->lock);
    if (open)
        finish(handle);
}

NrdHandle *nrd_handle_ref(NrdHandle *handle)
{
    g_atomic_int_inc(&handle->n_refs);
    return handle;
}

void nrd_handle_unref(NrdHandle *handle)
{
    if (!g_atomic_int_dec_and_test(&handle->n_refs))
        return;
    NrdFs *fs = handle->fs;
    free_handle(handle);
    g_mutex_lock(&fs->lock);
    fs->n_handles--;
    g_cond_broadcast(&fs->handle_gone);
    g_mutex_unlock(&fs->lock);
}

void nrd_handles_close_all(NrdFs *fs)
{
    g_mutex_lock(&fs->lock);
    GList *open = g_hash_table_get_keys(fs->handles);
    g_hash_table_remove_all(fs->handles);
    g_mutex_unlock(&fs->lock);
    for (GList *l = open; l; l = l->next)
        finish(l->data);
    g_list_free(open);

    g_mutex_lock(&fs->lock);
    while (fs->n_handles > 0)
        g_cond_wait(&fs->handle_gone, &fs->lock);
    g_mutex_unlock(&fs->lock);
}

#define PAGE_BYTES 4096

bool nrd_may_be_cut(const NrdHandle *handle, size_t size)
{
    return size + PAGE_BYTES > handle->fs->max_write;
}

int nrd_refuse_writing(const NrdNode *node, const char *what)
{
    const char *name = node->info->name ? node->info->name : nrd_kind_info(node->info->parent)->name;
    nrd_diag(NRD_LEVEL_WARNING, nrd_node_place(node), "%s was %s: it can only be read", name, what);
    return -EPERM;
}

NrdPlace nrd_node_place(const NrdNode *node)
{
    NrdPlace place = NRD_NOWHERE;
    if (node->topic)
        place.topic = nrd_topic_name(node->topic);
    if (node->partition)
        place.partition = nrd_partition_number(node->partition);
    return place;
}

NrdPlace nrd_handle_place(NrdHandle *handle)
{
    return nrd_node_place(handle->node);
}
