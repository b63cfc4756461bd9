/* `log` and the files of `from/`: the committed records as text, seekable. Each look-up makes a node, so each open has a
 * size of its own, which starts where its name says at that moment and grows. state is an NrdReader. */
#include "fs/fs_private.h"

static int open_reader(NrdHandle *handle, NrdFrom from)
{
    NrdReader *reader;
    int error = nrd_reader_open(handle->partition, from, handle->node->arg, &reader);
    if (error < 0)
        return error;
    handle->state = reader;
    return 0;
}

static int start_open(NrdHandle *handle)
{
    return open_reader(handle, NRD_FROM_START);
}

static int end_open(NrdHandle *handle)
{
    return open_reader(handle, NRD_FROM_END);
}

static int offset_open(NrdHandle *handle)
{
    return open_reader(handle, NRD_FROM_OFFSET);
}

/* Of an offset only a reader can tell how much there is to read. */
static int offset_visit(NrdNode *node)
{
    NrdReader *reader;
    int error = nrd_reader_open(node->partition, NRD_FROM_OFFSET, node->arg, &reader);
    if (error < 0)
        return error;
    NrdSeen seen = { .size_bytes = nrd_reader_size(reader) };
    nrd_reader_close(reader);
    nrd_node_set_seen(node, &seen);
    return 0;
}

static void log_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    size_t n;
    void *buf = g_malloc(size);
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

NrdHandle *nrd_node_any_handle(NrdNode *node)
{
    g_mutex_lock(&node->lock);
    NrdHandle *handle = node->handles->len > 0 ? nrd_handle_ref(node->handles->pdata[0]) : NULL;
    g_mutex_unlock(&node->lock);
    return handle;
}

/* The size of an open one is its reader's. */
static bool open_size(NrdNode *node, uint64_t *ret_size)
{
    NrdHandle *handle = nrd_node_any_handle(node);
    if (!handle)
        return false;
    *ret_size = nrd_reader_size(handle->state);
    nrd_handle_unref(handle);
    return true;
}

/* What a reader opened now would have. */
static uint64_t start_size(NrdNode *node)
{
    uint64_t size;
    if (open_size(node, &size))
        return size;
    NrdPartitionInfo info;
    nrd_partition_info(node->partition, &info);
    size = info.text_bytes;
    nrd_partition_info_clear(&info);
    return size;
}

static uint64_t end_size(NrdNode *node)
{
    uint64_t size;
    return open_size(node, &size) ? size : 0;
}

static uint64_t offset_size(NrdNode *node)
{
    uint64_t size;
    return open_size(node, &size) ? size : nrd_node_seen(node).size_bytes;
}

const NrdFileOps nrd_log_ops = {
    .open = start_open,
    .read = log_read,
    .destroy = log_destroy,
    .size = start_size,
};

const NrdFileOps nrd_from_start_ops = {
    .open = start_open,
    .read = log_read,
    .destroy = log_destroy,
    .size = start_size,
};

const NrdFileOps nrd_from_end_ops = {
    .open = end_open,
    .read = log_read,
    .destroy = log_destroy,
    .size = end_size,
};

const NrdFileOps nrd_from_offset_ops = {
    .visit = offset_visit,
    .open = offset_open,
    .read = log_read,
    .destroy = log_destroy,
    .size = offset_size,
};
