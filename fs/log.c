/* `log`: the committed records as text, seekable. Each look-up makes a node, so each open has a size of its own, which
 * starts at the oldest record of that moment and grows. state is an NrdReader. */
#include "fs/fs_private.h"

static int log_open(NrdHandle *handle)
{
    NrdReader *reader;
    int error = nrd_reader_open(handle->partition, NRD_FROM_START, 0, &reader);
    if (error < 0)
        return error;
    handle->state = reader;
    return 0;
}

static void log_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    size_t n;
    char *buf = g_malloc(size);
    int error = nrd_reader_read(handle->state, (uint64_t)off, buf, size, &n);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_buf(req, buf, n);
    g_free(buf);
}

static void log_destroy(NrdHandle *handle)
{
    if (handle->state)
        nrd_reader_close(handle->state);
}

/* An open one has the size of its reader; else what a reader opened now would have. */
static uint64_t log_size(NrdNode *node)
{
    NrdHandle *handle = NULL;
    g_mutex_lock(&node->lock);
    if (node->handles->len > 0)
        handle = nrd_handle_ref(node->handles->pdata[0]);
    g_mutex_unlock(&node->lock);
    if (handle) {
        uint64_t size = nrd_reader_size(handle->state);
        nrd_handle_unref(handle);
        return size;
    }
    NrdPartitionInfo info;
    nrd_partition_info(node->partition, &info);
    uint64_t size = info.text_bytes;
    nrd_partition_info_clear(&info);
    return size;
}

const NrdFileOps nrd_log_ops = {
    .open = log_open,
    .read = log_read,
    .destroy = log_destroy,
    .size = log_size,
};
