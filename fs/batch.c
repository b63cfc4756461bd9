/* See batch.h. */
#include "fs/batch.h"

#include "fs/source.h"
#include "fs/stream.h"

static void uncopy(void *user_data, size_t size)
{
    NrdReplyBatch *reply = user_data;
    reply->used -= size;
}

void nrd_reply_batch_init(NrdReplyBatch *reply, NrdHandle *handle, size_t size,
                          size_t (*copy)(void *user_data, const NrdDelivery *delivery), bool sure)
{
    *reply = (NrdReplyBatch){ .handle = handle, .size = size };
    reply->bytes = g_malloc(size);
    reply->batch = (NrdBatch){ .copy = copy, .uncopy = uncopy, .user_data = reply, .sure = sure };
    reply->batch.holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
}

void nrd_reply_batch_clear(NrdReplyBatch *reply)
{
    g_array_unref(reply->batch.holds);
    g_free(reply->bytes);
}

int nrd_reply_batch_fill(NrdReplyBatch *reply)
{
    return nrd_source_take_batch(reply->handle, &reply->batch);
}

void nrd_reply_batch_send(NrdReplyBatch *reply, fuse_req_t req)
{
    nrd_handle_ref(reply->handle); /* after the reply it may be closed */
    if (fuse_reply_buf(req, reply->bytes, reply->used) < 0)
        nrd_stream_give_back_all(reply->handle, reply->batch.holds);
    nrd_handle_unref(reply->handle);
}
