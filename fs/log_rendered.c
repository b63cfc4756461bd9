/* `log.jsonl`, the committed records as JSON, one object a line, and `log.bin`, the same in binary (bin.h); seekable, and
 * otherwise as `log` (log.c). How long a record is in them only tells who makes it: the engine measures the log once and
 * remembers (nrd_reader_open_rendered; one rendering at a time for each segment), so a stat may have to read, and runs on
 * the threads of defer.c, also while the file is open. Nobody but a program that reads `log.bin` to its end asks for it,
 * and that needs no size: a stat tells 0, and costs nothing. state is an NrdReader. */
#include "fs/bin.h"
#include "fs/defer.h"
#include "fs/fs_private.h"
#include "fs/jsonl.h"

#include <errno.h>

static NrdJsonlRecord line_of(const NrdRenderRecord *record)
{
    return (NrdJsonlRecord){
        .partition = record->partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .key = record->key,
        .key_size = record->key_size,
        .payload = record->payload,
        .payload_size = record->payload_size,
    };
}

static uint64_t line_length(const NrdRenderRecord *record)
{
    NrdJsonlRecord line = line_of(record);
    return nrd_jsonl_length(&line);
}

static void append_line(GString *out, const NrdRenderRecord *record)
{
    NrdJsonlRecord line = line_of(record);
    nrd_jsonl_append(out, &line);
}

static const NrdRendering jsonl = { .name = "jsonl", .version = 2, .length = line_length, .append = append_line };

static int open_rendered(NrdHandle *handle, const NrdRendering *rendering)
{
    NrdReader *reader;
    int error = nrd_reader_open_rendered(handle->partition, rendering, &reader);
    if (error < 0)
        return error;
    handle->state = reader;
    return 0;
}

static int jsonl_open(NrdHandle *handle)
{
    return open_rendered(handle, &jsonl);
}

static int bin_open(NrdHandle *handle)
{
    return open_rendered(handle, &nrd_bin_rendering);
}

/* The size of an open one is its reader's, else what a reader opened now would have. */
static int jsonl_visit(NrdNode *node)
{
    NrdSeen seen = { .size_bytes = 0 };
    NrdHandle *handle = nrd_node_any_handle(node);
    int error = handle ? nrd_reader_measure(handle->state, &seen.size_bytes)
                       : nrd_partition_rendered_bytes(node->partition, &jsonl, &seen.size_bytes);
    if (handle)
        nrd_handle_unref(handle);
    if (error == 0)
        nrd_node_set_seen(node, &seen);
    return error;
}

static uint64_t jsonl_size(NrdNode *node)
{
    return nrd_node_seen(node).size_bytes;
}

static void read_now(NrdHandle *handle, fuse_req_t req, size_t size, uint64_t off)
{
    size_t n;
    char *buf = g_malloc(size);
    int error = nrd_reader_read(handle->state, off, buf, size, &n);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_buf(req, buf, n);
    g_free(buf);
}

/* A READ that waits. */
typedef struct Reading {
    NrdHandle *handle; /* referenced */
    size_t size;
    uint64_t off;
} Reading;

static void read_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    Reading *reading = data;
    if (error < 0)
        nrd_reply_error(req, error);
    else
        read_now(reading->handle, req, reading->size, reading->off);
    nrd_handle_unref(reading->handle);
    g_free(reading);
}

static void rendered_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    if (!nrd_reader_waits(handle->state, (uint64_t)off)) {
        read_now(handle, req, size, (uint64_t)off);
        return;
    }
    Reading *reading = g_new(Reading, 1);
    *reading = (Reading){ nrd_handle_ref(handle), size, (uint64_t)off };
    nrd_defer(handle->node, req, read_later, reading);
}

static void rendered_destroy(NrdHandle *handle)
{
    if (handle->state)
        nrd_reader_close(handle->state);
}

const NrdFileOps nrd_log_jsonl_ops = {
    .visit = jsonl_visit,
    .visit_open = true,
    .open = jsonl_open,
    .read = rendered_read,
    .destroy = rendered_destroy,
    .size = jsonl_size,
};

const NrdFileOps nrd_log_bin_ops = {
    .open = bin_open,
    .read = rendered_read,
    .destroy = rendered_destroy,
};
