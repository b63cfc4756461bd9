/* `drain`: as many lines as fit the buffer, never waiting. A read, also the one that finds the end, settles what the
 * one before it delivered; closing without another read gives that back. */
#include "fs/batch.h"
#include "fs/consume.h"
#include "fs/source.h"
#include "fs/stream.h"

#include <errno.h>
#include <poll.h>

static size_t copy_line(void *user_data, const NrdDelivery *delivery)
{
    NrdReplyBatch *reply = user_data;
    size_t size = delivery->payload_size + 1;
    if (size > reply->size - reply->used)
        return 0;
    char *line = reply->bytes + reply->used;
    memcpy(line, delivery->payload, delivery->payload_size);
    line[delivery->payload_size] = '\n';
    reply->used += size;
    return size;
}

/* A read that gets the beginning of a line longer than its buffer. */
typedef struct Begin {
    NrdHandle *handle;
    fuse_req_t req;
    size_t size;
    bool withheld;
} Begin;

/* The end of the file says that nothing is deliverable, so it does not come while records are that cannot be had. */
static void reply_end(fuse_req_t req, bool withheld)
{
    if (withheld)
        nrd_reply_error(req, -EIO);
    else
        nrd_reply_empty(req);
}

static void deliver_begin(void *user_data, int error, const NrdDelivery *delivery)
{
    Begin *begin = user_data;
    if (error == -EAGAIN) /* somebody else was faster */
        reply_end(begin->req, begin->withheld);
    else if (error < 0)
        nrd_reply_error(begin->req, error);
    else
        nrd_consume_hand_over(begin->handle, begin->req, begin->size, delivery, nrd_stream_line(delivery), false);
}

/* A line that does not fit behind others waits, unleased; one that would never fit is handed over in parts. */
static void reply_lines(NrdHandle *handle, fuse_req_t req, size_t size)
{
    NrdReplyBatch reply;
    nrd_reply_batch_init(&reply, handle, size, copy_line, true);
    int error = nrd_reply_batch_fill(&reply);
    Begin begin = { handle, req, size, reply.batch.withheld };
    if (reply.used > 0) {
        nrd_stream_hold_all(nrd_handle_stream(handle), reply.batch.holds); /* the reader may come again at once */
        nrd_reply_batch_send(&reply, req);
    } else if (error < 0) {
        nrd_reply_error(req, error);
    } else if (reply.batch.full) {
        nrd_source_take_sure(handle, deliver_begin, &begin);
    } else {
        reply_end(req, reply.batch.withheld);
    }
    nrd_reply_batch_clear(&reply);
}

static void drain_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    /* A lapsed lease means that its record comes again; one that cannot be acked yet stays held. */
    int error = nrd_stream_goes_on(off) ? 0 : nrd_stream_settle_delivered(handle, NRD_VERB_ACK);
    if (error == -EIDRM)
        nrd_reply_error(req, error);
    else if (!nrd_stream_reply_rest(handle, req, size, off, false))
        reply_lines(handle, req, size);
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
