/* `drain`: as many lines as fit the buffer, never waiting. A read, also the one that finds the end, settles what the
 * one before it delivered; closing without another read gives that back. */
#include "fs/source.h"
#include "fs/stream.h"

#include <errno.h>
#include <poll.h>

/* The lines of one read; belongs to the thread that reads. */
typedef struct Batch {
    NrdHandle *handle;
    size_t size;
    GString *text;
    GArray *leases;       /* of the records in text */
    NrdStreamLease begun; /* of a record of which text is the beginning; nonce 0: none */
    bool full;
    int error; /* of the last take */
} Batch;

/* A line that does not fit after others waits for the next read; one that would never fit is handed over in parts. */
static void add(void *user_data, int error, const NrdDelivery *delivery)
{
    Batch *batch = user_data;
    batch->error = error;
    if (error < 0)
        return;
    NrdStreamLease lease = { delivery->partition, delivery->offset, delivery->nonce };
    size_t room = batch->size - batch->text->len;
    if (delivery->payload_size + 1 <= room) {
        g_string_append_len(batch->text, (const char *)delivery->payload, (gssize)delivery->payload_size);
        g_string_append_c(batch->text, '\n');
        g_array_append_val(batch->leases, lease);
        return;
    }
    batch->full = true;
    size_t n = batch->text->len > 0 ? 0 : room;
    if (n > 0)
        batch->begun = lease;
    GString *text = nrd_stream_line(delivery);
    g_string_append_len(batch->text, text->str, (gssize)n);
    nrd_stream_hold_rest(nrd_handle_stream(batch->handle), lease, text, n);
}

static void take_batch(Batch *batch)
{
    while (!batch->full && batch->error == 0 && batch->text->len < batch->size)
        nrd_source_take_sure(batch->handle, add, batch);
    for (guint i = 0; i < batch->leases->len; i++)
        nrd_stream_hold(nrd_handle_stream(batch->handle), g_array_index(batch->leases, NrdStreamLease, i));
}

static void reply_batch(Batch *batch, fuse_req_t req)
{
    if (batch->text->len == 0 && batch->error < 0 && batch->error != -EAGAIN) {
        nrd_reply_error(req, batch->error);
        return;
    }
    nrd_handle_ref(batch->handle);
    if (fuse_reply_buf(req, batch->text->str, batch->text->len) < 0) {
        for (guint i = 0; i < batch->leases->len; i++)
            nrd_stream_give_back(batch->handle, g_array_index(batch->leases, NrdStreamLease, i));
        if (batch->begun.nonce != 0)
            nrd_stream_give_back(batch->handle, batch->begun);
    }
    nrd_handle_unref(batch->handle);
}

static void drain_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    /* A lapsed lease means that its record comes again; one that cannot be acked yet stays held. */
    int error = nrd_stream_settle_delivered(handle, NRD_VERB_ACK);
    if (error == -EIDRM) {
        nrd_reply_error(req, error);
        return;
    }
    if (nrd_stream_reply_rest(handle, req, size, false))
        return;
    Batch batch = { .handle = handle, .size = size };
    batch.text = g_string_new(NULL);
    batch.leases = g_array_new(FALSE, FALSE, sizeof(NrdStreamLease));
    take_batch(&batch);
    reply_batch(&batch, req);
    g_string_free(batch.text, TRUE);
    g_array_unref(batch.leases);
}

static void drain_fsync(NrdHandle *handle, fuse_req_t req)
{
    nrd_stream_reply_synced(handle, req, 0);
}

static uint32_t drain_poll(NrdHandle *handle)
{
    return POLLIN | POLLRDNORM; /* it never waits */
}

const NrdFileOps nrd_drain_ops = {
    .open = nrd_stream_open,
    .read = drain_read,
    .fsync = drain_fsync,
    .release = nrd_stream_release,
    .destroy = nrd_stream_destroy,
    .poll = drain_poll,
    .takes = true,
};
