/* `records/<offset>`: one record, its payload exactly. A committed record never changes, so what the look-up found holds
 * for as long as the kernel knows the node; the payload is read by OPEN into the handle. state is an NrdRecord. */
#include "fs/fs_private.h"

static int record_visit(NrdNode *node)
{
    NrdRecord record;
    int error = nrd_partition_record(node->partition, node->arg, &record);
    if (error < 0)
        return error;
    NrdSeen seen = {
        .size_bytes = record.payload_size,
        .ms = record.timestamp_ms,
        .keyed = record.key_size > 0,
        .final = true,
    };
    nrd_node_set_seen(node, &seen);
    nrd_record_clear(&record);
    return 0;
}

static int record_open(NrdHandle *handle)
{
    NrdRecord record;
    int error = nrd_partition_record(handle->partition, handle->node->arg, &record);
    if (error < 0)
        return error;
    handle->state = g_memdup2(&record, sizeof record);
    return 0;
}

/* The record of an open handle never changes: no lock. The reader may close the file before the reply's call is over. */
static void record_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    const NrdRecord *record = handle->state;
    if ((uint64_t)off >= record->payload_size) {
        nrd_reply_empty(req);
        return;
    }
    nrd_handle_ref(handle);
    fuse_reply_buf(req, (const char *)record->payload + off, MIN(size, record->payload_size - (size_t)off));
    nrd_handle_unref(handle);
}

static void record_destroy(NrdHandle *handle)
{
    if (!handle->state)
        return;
    nrd_record_clear(handle->state);
    g_free(handle->state);
}

static uint64_t record_size(NrdNode *node)
{
    return nrd_node_seen(node).size_bytes;
}

const NrdFileOps nrd_record_ops = {
    .visit = record_visit,
    .open = record_open,
    .read = record_read,
    .destroy = record_destroy,
    .size = record_size,
};
