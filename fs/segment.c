/* `segments/<20 digits>.log`: a segment file as another reader of the format may have it, up to its last committed frame.
 * A sealed one never changes: the kernel may keep its content. state is an NrdSegmentReader. */
#include "fs/fs_private.h"

#include <errno.h>

static NrdSeen seen_of(const NrdSegmentView *view)
{
    return (NrdSeen){ .size_bytes = view->size_bytes, .ms = view->last_ms, .final = view->sealed };
}

static int segment_visit(NrdNode *node)
{
    GArray *views;
    int error = nrd_partition_segments(node->partition, &views);
    if (error < 0)
        return error;
    error = -ENOENT;
    for (guint i = 0; i < views->len && error < 0; i++) {
        const NrdSegmentView *view = &g_array_index(views, NrdSegmentView, i);
        if (view->base != node->arg)
            continue;
        NrdSeen seen = seen_of(view);
        nrd_node_set_seen(node, &seen);
        error = 0;
    }
    g_array_unref(views);
    return error;
}

static int segment_open(NrdHandle *handle)
{
    NrdSegmentReader *reader;
    NrdSegmentView view;
    int error = nrd_segment_reader_open(handle->partition, handle->node->arg, &reader);
    if (error < 0)
        return error;
    nrd_segment_reader_view(reader, &view);
    NrdSeen seen = seen_of(&view);
    nrd_node_set_seen(handle->node, &seen);
    handle->cached = view.sealed;
    handle->state = reader;
    return 0;
}

static void segment_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    size_t n;
    char *buf = g_malloc(size);
    int error = nrd_segment_reader_read(handle->state, (uint64_t)off, buf, size, &n);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_buf(req, buf, n);
    g_free(buf);
}

static void segment_destroy(NrdHandle *handle)
{
    if (handle->state)
        nrd_segment_reader_close(handle->state);
}

/* An open one may have grown since it was visited. */
static uint64_t segment_size(NrdNode *node)
{
    NrdHandle *handle = nrd_node_any_handle(node);
    if (handle) {
        NrdSegmentView view;
        nrd_segment_reader_view(handle->state, &view);
        NrdSeen seen = seen_of(&view);
        nrd_node_set_seen(node, &seen);
        nrd_handle_unref(handle);
    }
    return nrd_node_seen(node).size_bytes;
}

const NrdFileOps nrd_segment_ops = {
    .visit = segment_visit,
    .open = segment_open,
    .read = segment_read,
    .destroy = segment_destroy,
    .size = segment_size,
};
