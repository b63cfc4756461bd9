/* fsync and flush of `produce` and its like: of what one handle holds, or of all that the handles of the file hold. */
#include "fs/produce_private.h"

#include <errno.h>

/* An fsync or a flush waiting for the producers of a node. */
typedef struct SyncWait {
    fuse_req_t req;
    gint n_pending; /* atomic */
    gint error;     /* atomic: the first one */
} SyncWait;

/* One producer of a SyncWait. */
typedef struct SyncPart {
    SyncWait *wait;
    NrdHandle *handle; /* referenced */
    uint64_t n_writes;
    NrdSyncScope scope;
    int unfinished; /* what a sync says about the record that it could not end, or 0 */
} SyncPart;

static void sync_wait_done(SyncWait *wait)
{
    if (!g_atomic_int_dec_and_test(&wait->n_pending))
        return;
    nrd_reply_error(wait->req, g_atomic_int_get(&wait->error));
    g_free(wait);
}

static void part_synced(void *user_data, int error)
{
    SyncPart *part = user_data;
    NrdProduceFile *produce = part->handle->state;
    if (error < 0 || part->unfinished < 0)
        g_atomic_int_compare_and_exchange(&part->wait->error, 0, error < 0 ? error : part->unfinished);
    g_mutex_lock(&part->handle->lock);
    if (error == 0 && part->scope != NRD_SYNC_BESIDE)
        produce->n_synced = MAX(produce->n_synced, part->n_writes);
    g_mutex_unlock(&part->handle->lock);
    sync_wait_done(part->wait);
    nrd_handle_unref(part->handle);
    g_free(part);
}

/* Syncs what a handle holds, as a part of wait. An fsync ends its records and is about the whole file (FILE), of the other
 * handles too (BESIDE), whose programs are still told themselves of what was dropped. A handle that was closed meanwhile has
 * handed its records to that close, and only counts the part off. */
static void sync_part(NrdHandle *handle, SyncWait *wait, NrdSyncScope scope)
{
    NrdProduceFile *produce = handle->state;
    SyncPart *part = g_new0(SyncPart, 1);
    part->wait = wait;
    part->handle = nrd_handle_ref(handle);
    part->scope = scope;
    g_mutex_lock(&handle->lock);
    NrdSink sink = nrd_sink_ref(produce->sink);
    if (nrd_sink_is_open(sink))
        part->unfinished =
            nrd_produce_file_end_locked(handle, scope == NRD_SYNC_OWN ? NRD_FRAMING_FLUSH : NRD_FRAMING_SYNC, sink);
    g_autofree char *why = part->unfinished < 0 ? nrd_produce_file_why(handle) : NULL;
    if (why)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_handle_place(handle), "an fsync found a record that has not ended: %s", why);
    part->n_writes = produce->n_writes;
    g_mutex_unlock(&handle->lock);
    if (!nrd_sink_is_open(sink)) {
        part_synced(part, 0);
        return;
    }
    nrd_sink_sync(sink, scope, part_synced, part);
    nrd_sink_unref(sink);
}

void nrd_produce_file_flush(NrdHandle *handle, fuse_req_t req)
{
    NrdProduceFile *produce = handle->state;
    g_mutex_lock(&handle->lock);
    bool clean = produce->n_writes == produce->n_synced;
    g_mutex_unlock(&handle->lock);
    if (clean) {
        fuse_reply_err(req, 0);
        return;
    }
    SyncWait *wait = g_new0(SyncWait, 1);
    wait->req = req;
    wait->n_pending = 1;
    sync_part(handle, wait, NRD_SYNC_OWN);
}

/* `sync FILE` opens for reading: what the other handles of the partition hold is committed through a producer of its
 * own. */
static int ensure_sink(NrdHandle *handle)
{
    NrdProduceFile *produce = handle->state;
    NrdSink sink;
    g_mutex_lock(&handle->lock);
    bool there = nrd_sink_is_open(produce->sink);
    g_mutex_unlock(&handle->lock);
    if (there)
        return 0;
    int error = nrd_sink_open(handle, false, &sink);
    if (error < 0)
        return error;
    g_mutex_lock(&handle->lock);
    bool surplus = nrd_sink_is_open(produce->sink);
    if (!surplus)
        produce->sink = sink;
    g_mutex_unlock(&handle->lock);
    if (surplus)
        nrd_sink_close(sink, NULL, NULL);
    return 0;
}

/* Handles of the same node, the calling one included, that have a producer; each referenced. */
static GPtrArray *producing_handles(NrdNode *node)
{
    GPtrArray *found = g_ptr_array_new();
    g_mutex_lock(&node->lock);
    for (guint i = 0; i < node->handles->len; i++) {
        NrdHandle *handle = node->handles->pdata[i];
        NrdProduceFile *produce = handle->state;
        g_mutex_lock(&handle->lock);
        if (nrd_sink_is_open(produce->sink))
            g_ptr_array_add(found, nrd_handle_ref(handle));
        g_mutex_unlock(&handle->lock);
    }
    g_mutex_unlock(&node->lock);
    return found;
}

void nrd_produce_file_fsync(NrdHandle *handle, fuse_req_t req)
{
    int error = ensure_sink(handle);
    if (error == -EPERM) { /* a delayed child: handles from before it was one may hold records, nobody else does */
        nrd_sink_flush(handle);
        error = 0;
    }
    if (error < 0) {
        nrd_reply_error(req, error == -EROFS ? 0 : error);
        return;
    }
    GPtrArray *handles = producing_handles(handle->node);
    SyncWait *wait = g_new0(SyncWait, 1);
    wait->req = req;
    wait->n_pending = (gint)handles->len + 1;
    for (guint i = 0; i < handles->len; i++) {
        NrdHandle *each = handles->pdata[i];
        sync_part(each, wait, each == handle ? NRD_SYNC_FILE : NRD_SYNC_BESIDE);
        nrd_handle_unref(each);
    }
    g_ptr_array_unref(handles);
    sync_wait_done(wait);
}
