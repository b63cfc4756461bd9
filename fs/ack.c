/* `ack`: lines `[ack|nack|extend] <receipt>` from whoever has the receipt. See lines.h for lines without newline. state
 * is an NrdLines, guarded by the handle's lock. */
#include "fs/lines.h"
#include "fs/source.h"
#include "fs/stream.h"

#include <errno.h>

static int ack_open(NrdHandle *handle)
{
    handle->state = g_new0(NrdLines, 1);
    return 0;
}

static void ack_destroy(NrdHandle *handle)
{
    g_free(handle->state);
}

static void ack_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    nrd_reply_empty(req);
}

static int settle(NrdHandle *handle, NrdVerb verb, const char *receipt, size_t size, NrdPlace *place)
{
    uint32_t partition;
    uint64_t offset, nonce;
    int error = nrd_receipt_read(receipt, size, &partition, &offset, &nonce);
    if (error < 0)
        return -EINVAL;
    place->offset = (int64_t)offset;
    return nrd_source_settle(handle, verb, partition, offset, nonce);
}

static int run_line(void *user_data, const char *line, size_t size)
{
    NrdHandle *handle = user_data;
    NrdVerb verb = NRD_VERB_ACK;
    const char *receipt = line;
    size_t receipt_size = size;
    if (nrd_word_match(line, size, "nack", &receipt, &receipt_size))
        verb = NRD_VERB_NACK;
    else if (nrd_word_match(line, size, "extend", &receipt, &receipt_size))
        verb = NRD_VERB_EXTEND;
    else
        nrd_word_match(line, size, "ack", &receipt, &receipt_size);

    NrdPlace place = nrd_handle_place(handle);
    int error = settle(handle, verb, receipt, receipt_size, &place);
    nrd_log_settle_refused(place, error);
    return error;
}

/* Works on a copy of the state: see consume_write. */
static int feed(NrdHandle *handle, const char *buf, size_t size, size_t *ret_taken)
{
    g_mutex_lock(&handle->lock);
    NrdLines lines = *(NrdLines *)handle->state;
    g_mutex_unlock(&handle->lock);
    int error = buf ? nrd_lines_feed(&lines, buf, size, run_line, handle, ret_taken)
                    : nrd_lines_flush(&lines, run_line, handle);
    g_mutex_lock(&handle->lock);
    *(NrdLines *)handle->state = lines;
    g_mutex_unlock(&handle->lock);
    return error;
}

static void ack_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    size_t taken;
    int error = feed(handle, buf, size, &taken);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_write(req, taken);
}

/* Not at every close: see consume_release. */
static void ack_release(NrdHandle *handle, bool last)
{
    (void)!feed(handle, NULL, 0, NULL); /* nobody is there to be told; it was logged */
    nrd_handle_unref(handle);
}

static void ack_fsync(NrdHandle *handle, fuse_req_t req)
{
    nrd_stream_reply_synced(handle, req, feed(handle, NULL, 0, NULL));
}

const NrdFileOps nrd_ack_ops = {
    .open = ack_open,
    .read = ack_read,
    .write = ack_write,
    .fsync = ack_fsync,
    .release = ack_release,
    .destroy = ack_destroy,
};
