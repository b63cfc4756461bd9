/* `consume.bin`: as many records as fit the buffer, the first of which a read waits for. Receipts are in the records, so
 * a lease is whoever's has them.
 *
 *   u32 length      of what follows it
 *   u32 partition
 *   u64 offset
 *   u64 nonce       with the two above the receipt for `ack`
 *   u64 timestamp   commit time, Unix milliseconds
 *   u32 key length  0: no key
 *   key, payload
 *
 * Big-endian. A record that does not fit behind others goes back at once: nobody has seen it, and the reader may never
 * come again. One that is longer than the whole buffer is handed over in parts; until its last byte its lease is the open
 * file's, and goes back with it. */
#include "engine/base/endian.h"
#include "fs/consume.h"
#include "fs/source.h"
#include "fs/stream.h"

#define HEAD_BYTES ((size_t)36)

/* The records of one reply; belongs to the thread that makes it. */
typedef struct Batch {
    NrdHandle *handle;
    size_t size;
    GString *bytes;
    GArray *leases;
    bool full;
} Batch;

static size_t size_of(const NrdDelivery *delivery)
{
    return HEAD_BYTES + delivery->key_size + delivery->payload_size;
}

static NrdStreamLease lease_of(const NrdDelivery *delivery)
{
    return (NrdStreamLease){ delivery->partition, delivery->offset, delivery->nonce };
}

static void append(GString *bytes, const NrdDelivery *delivery)
{
    uint8_t head[HEAD_BYTES];
    nrd_put_be32(head, (uint32_t)(size_of(delivery) - 4));
    nrd_put_be32(head + 4, delivery->partition);
    nrd_put_be64(head + 8, delivery->offset);
    nrd_put_be64(head + 16, delivery->nonce);
    nrd_put_be64(head + 24, (uint64_t)delivery->timestamp_ms);
    nrd_put_be32(head + 32, (uint32_t)delivery->key_size);
    g_string_append_len(bytes, (const char *)head, sizeof head);
    g_string_append_len(bytes, (const char *)delivery->key, (gssize)delivery->key_size);
    g_string_append_len(bytes, (const char *)delivery->payload, (gssize)delivery->payload_size);
}

static void add(Batch *batch, const NrdDelivery *delivery)
{
    NrdStreamLease lease = lease_of(delivery);
    append(batch->bytes, delivery);
    g_array_append_val(batch->leases, lease);
}

/* The next record: only what is there now. What cannot be read is told by the read that finds it first. */
static void add_next(void *user_data, int error, const NrdDelivery *delivery)
{
    Batch *batch = user_data;
    batch->full = error < 0 || size_of(delivery) > batch->size - batch->bytes->len;
    if (error == 0 && batch->full)
        nrd_stream_give_back(batch->handle, lease_of(delivery));
    else if (error == 0)
        add(batch, delivery);
}

static void fill(Batch *batch)
{
    while (!batch->full && batch->size - batch->bytes->len >= HEAD_BYTES) {
        NrdWaiter waiter;
        nrd_waiter_init(&waiter);
        nrd_source_take(batch->handle, &waiter, 0, add_next, batch);
    }
}

static void reply(const Batch *batch, fuse_req_t req)
{
    nrd_handle_ref(batch->handle); /* after the reply it may be closed */
    if (fuse_reply_buf(req, batch->bytes->str, batch->bytes->len) < 0)
        for (guint i = 0; i < batch->leases->len; i++)
            nrd_stream_give_back(batch->handle, g_array_index(batch->leases, NrdStreamLease, i));
    nrd_handle_unref(batch->handle);
}

static void deliver_in_parts(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery)
{
    GString *bytes = g_string_sized_new(size_of(delivery) + 1);
    append(bytes, delivery);
    nrd_consume_hand_over(handle, req, size, delivery, bytes, true);
}

static void deliver_whole(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery)
{
    Batch batch = { .handle = handle, .size = size };
    batch.bytes = g_string_new(NULL);
    batch.leases = g_array_new(FALSE, FALSE, sizeof(NrdStreamLease));
    add(&batch, delivery);
    fill(&batch);
    reply(&batch, req);
    g_string_free(batch.bytes, TRUE);
    g_array_unref(batch.leases);
}

static void deliver(NrdHandle *handle, fuse_req_t req, size_t size, int error, const NrdDelivery *delivery)
{
    if (error < 0)
        nrd_reply_error(req, error);
    else if (size_of(delivery) > size)
        deliver_in_parts(handle, req, size, delivery);
    else
        deliver_whole(handle, req, size, delivery);
}

static void bin_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    if (!nrd_stream_reply_rest(handle, req, size, true))
        nrd_consume_park(handle, req, size, flags, deliver);
}

static void bin_fsync(NrdHandle *handle, fuse_req_t req)
{
    nrd_stream_reply_synced(handle, req, 0);
}

const NrdFileOps nrd_consume_bin_ops = {
    .open = nrd_stream_open,
    .read = bin_read,
    .fsync = bin_fsync,
    .release = nrd_stream_release,
    .destroy = nrd_stream_destroy,
    .poll = nrd_stream_poll,
    .watch = true,
    .takes = true,
};
