/* `consume.bin`: as many records as fit the buffer, the first of which a read waits for, as bin.h has them. Receipts are in
 * the records, so a lease is whoever's has them.
 *
 * A record that does not fit behind others is not leased: nobody has seen it, and the reader may never come
 * again. One that is longer than the whole buffer is handed over in parts; until its last byte its lease is the open
 * file's, and goes back with it. */
#include "fs/batch.h"
#include "fs/bin.h"
#include "fs/consume.h"
#include "fs/stream.h"

static size_t size_of(const NrdDelivery *delivery)
{
    return nrd_bin_size(delivery->key_size, delivery->payload_size);
}

static inline __attribute__((always_inline)) void put(char *at, const NrdDelivery *delivery)
{
    nrd_bin_put((uint8_t *)at, delivery->partition, delivery->offset, delivery->nonce, delivery->timestamp_ms,
                delivery->key, delivery->key_size, delivery->payload, delivery->payload_size);
}

static size_t copy_record(void *user_data, const NrdDelivery *delivery)
{
    NrdReplyBatch *reply = user_data;
    size_t size = size_of(delivery);
    if (size > reply->size - reply->used)
        return 0;
    put(reply->bytes + reply->used, delivery);
    reply->used += size;
    return size;
}

static void deliver_in_parts(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery)
{
    GString *bytes = g_string_sized_new(size_of(delivery) + 1);
    g_string_set_size(bytes, size_of(delivery));
    put(bytes->str, delivery);
    nrd_consume_hand_over(handle, req, size, delivery, bytes, true);
}

/* The others are only what is there now. What cannot be read is told by the read that finds it first. */
static void deliver_whole(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery)
{
    NrdHold lease = { .partition = delivery->partition, .offset = delivery->offset, .nonce = delivery->nonce };
    NrdReplyBatch reply;
    nrd_reply_batch_init(&reply, handle, size, copy_record, false);
    (void)copy_record(&reply, delivery);
    g_array_append_val(reply.batch.holds, lease);
    if (reply.size - reply.used >= NRD_BIN_HEAD_BYTES)
        (void)!nrd_reply_batch_fill(&reply);
    nrd_reply_batch_send(&reply, req);
    nrd_reply_batch_clear(&reply);
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
    if (!nrd_stream_reply_rest(handle, req, size, off, true))
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
