/* poll, select, epoll. One poll handle per open file: each blocking poll brings a new one, which replaces the old.
 *
 * A NrdPoll is counted: the open file has a reference, and so has the watch while it is set. Whoever ends the watch
 * gives that one back: the notification, or, when it comes first, who clears the watch. So a notification that is still
 * running while the file is released finds its NrdPoll, with nothing left in it to notify. */
#include "fs/source.h"

#include <errno.h>
#include <poll.h>

struct NrdPoll {
    NrdPartition *partition; /* NULL: the file consumes the topic */
    NrdTopic *topic;         /* referenced: the partition lives as long */
    gint n_refs;             /* atomic */
    /* guarded by arming: one request at a time sets or clears the watch */
    GMutex arming;
    NrdWatch watch;
    /* guarded by lock, taken after arming */
    GMutex lock;
    GCond idle;
    struct fuse_pollhandle *ph;
    uint32_t n_notifying; /* notifications using a poll handle */
};

static void unref(NrdPoll *poll)
{
    if (!g_atomic_int_dec_and_test(&poll->n_refs))
        return;
    nrd_topic_unref(poll->topic);
    g_mutex_clear(&poll->arming);
    g_mutex_clear(&poll->lock);
    g_cond_clear(&poll->idle);
    g_free(poll);
}

void nrd_poll_register(NrdHandle *handle)
{
    if (!handle->ops->watch)
        return;
    NrdPoll *poll = g_new0(NrdPoll, 1);
    poll->partition = handle->partition;
    poll->topic = nrd_topic_ref(handle->topic);
    poll->n_refs = 1;
    g_mutex_init(&poll->arming);
    g_mutex_init(&poll->lock);
    g_cond_init(&poll->idle);
    handle->poll = poll;
}

/* The connection may go away after the last file is released: a notification that is using it is waited for. */
static void swap_handle(NrdPoll *poll, struct fuse_pollhandle *ph, bool wait)
{
    g_mutex_lock(&poll->lock);
    struct fuse_pollhandle *old = poll->ph;
    poll->ph = ph;
    while (wait && poll->n_notifying > 0)
        g_cond_wait(&poll->idle, &poll->lock);
    g_mutex_unlock(&poll->lock);
    if (old)
        fuse_pollhandle_destroy(old);
}

void nrd_poll_unregister(NrdHandle *handle)
{
    NrdPoll *poll = g_steal_pointer(&handle->poll);
    if (!poll)
        return;
    if (nrd_source_watch_clear(poll->topic, poll->partition, &poll->watch))
        unref(poll);
    swap_handle(poll, NULL, true);
    unref(poll);
}

static void notify(void *user_data)
{
    NrdPoll *poll = user_data;
    g_mutex_lock(&poll->lock);
    struct fuse_pollhandle *ph = g_steal_pointer(&poll->ph);
    poll->n_notifying += ph != NULL;
    g_mutex_unlock(&poll->lock);
    if (ph) {
        fuse_lowlevel_notify_poll(ph);
        fuse_pollhandle_destroy(ph);
        g_mutex_lock(&poll->lock);
        poll->n_notifying--;
        g_cond_broadcast(&poll->idle);
        g_mutex_unlock(&poll->lock);
    }
    unref(poll);
}

/* Keeps ph for the next notification, which is arranged before readability is looked at: nothing is missed. */
static void arm(NrdPoll *poll, struct fuse_pollhandle *ph)
{
    swap_handle(poll, ph, false);
    g_mutex_lock(&poll->arming);
    if (!nrd_source_watch_clear(poll->topic, poll->partition, &poll->watch))
        g_atomic_int_inc(&poll->n_refs); /* it was not set; else it keeps the reference it had */
    nrd_source_watch_set(poll->topic, poll->partition, &poll->watch, notify, poll);
    g_mutex_unlock(&poll->arming);
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
    if (ph && handle->poll)
        arm(handle->poll, ph);
    else if (ph)
        fuse_pollhandle_destroy(ph); /* always ready */
    fuse_reply_poll(req, poll_events(handle));
}
