/* poll, select, epoll. One poll handle per open file: each blocking poll brings a new one, which replaces the old.
 *
 * The engine's notification names the open file by a number, not by address: it may still be running when the file is
 * released, and finds nothing then. A notification that has found its file holds the release back until it is done. */
#include "fs/fs_private.h"

#include <errno.h>
#include <poll.h>

typedef struct Poller {
    NrdPartition *partition; /* NULL: nothing to wait for */
    NrdWatch watch;
    /* guarded by pollers_lock */
    struct fuse_pollhandle *ph;
    uint32_t n_notifying;
} Poller;

static GMutex pollers_lock;
static GCond pollers_idle;
/* guarded by pollers_lock */
static GHashTable *pollers; /* id -> Poller */
static uint64_t last_id;

void nrd_poll_register(NrdHandle *handle)
{
    if (!handle->ops->watch)
        return;
    Poller *poller = g_new0(Poller, 1);
    poller->partition = handle->partition;
    g_mutex_lock(&pollers_lock);
    if (!pollers)
        pollers = g_hash_table_new(g_direct_hash, g_direct_equal);
    handle->poll_id = ++last_id;
    g_hash_table_insert(pollers, GSIZE_TO_POINTER(handle->poll_id), poller);
    g_mutex_unlock(&pollers_lock);
}

void nrd_poll_unregister(NrdHandle *handle)
{
    if (!handle->poll_id)
        return;
    g_mutex_lock(&pollers_lock);
    Poller *poller = g_hash_table_lookup(pollers, GSIZE_TO_POINTER(handle->poll_id));
    g_hash_table_remove(pollers, GSIZE_TO_POINTER(handle->poll_id));
    while (poller->n_notifying > 0)
        g_cond_wait(&pollers_idle, &pollers_lock);
    g_mutex_unlock(&pollers_lock);
    nrd_watch_clear(poller->partition, &poller->watch);
    if (poller->ph)
        fuse_pollhandle_destroy(poller->ph);
    g_free(poller);
}

static void notify(void *user_data)
{
    g_mutex_lock(&pollers_lock);
    Poller *poller = g_hash_table_lookup(pollers, user_data);
    struct fuse_pollhandle *ph = poller ? g_steal_pointer(&poller->ph) : NULL;
    if (poller)
        poller->n_notifying++;
    g_mutex_unlock(&pollers_lock);
    if (!poller)
        return;
    if (ph) {
        fuse_lowlevel_notify_poll(ph);
        fuse_pollhandle_destroy(ph);
    }
    g_mutex_lock(&pollers_lock);
    poller->n_notifying--;
    g_cond_broadcast(&pollers_idle);
    g_mutex_unlock(&pollers_lock);
}

/* Keeps ph for the next notification, which is arranged before readability is looked at: nothing is missed. */
static void arm(NrdHandle *handle, struct fuse_pollhandle *ph)
{
    g_mutex_lock(&pollers_lock);
    Poller *poller = g_hash_table_lookup(pollers, GSIZE_TO_POINTER(handle->poll_id));
    struct fuse_pollhandle *old = poller->ph;
    poller->ph = ph;
    g_mutex_unlock(&pollers_lock);
    if (old)
        fuse_pollhandle_destroy(old);
    nrd_watch_set(poller->partition, &poller->watch, notify, GSIZE_TO_POINTER(handle->poll_id));
}

static uint32_t poll_events(NrdHandle *handle)
{
    if (handle->topic && nrd_topic_deleted(handle->topic))
        return POLLERR | POLLHUP;
    if (handle->ops->poll)
        return handle->ops->poll(handle);
    return POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
}

void nrd_op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    if (ph && handle->poll_id)
        arm(handle, ph);
    else if (ph)
        fuse_pollhandle_destroy(ph); /* always ready: nothing to notify, but for a deletion */
    fuse_reply_poll(req, poll_events(handle));
}
