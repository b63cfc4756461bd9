/* `consume` and `consume.jsonl`: one record a read, waiting for one. They differ in the form of a record, and in whose
 * the lease is after the record has been handed over: the handle's (consume), or whoever has the receipt (jsonl). */
#include "fs/consume.h"

#include "fs/jsonl.h"
#include "fs/stream.h"

#include <errno.h>
#include <fcntl.h>

/* The kernel's limit on a request's time: the wait ends with a tenth of it left. */
static int64_t wait_limit_ms(const NrdFs *fs)
{
    int64_t limit = fs->options.request_timeout_ms;
    return limit > 0 ? limit - limit / 10 : INT64_MAX;
}

void nrd_consume_park(NrdHandle *handle, fuse_req_t req, size_t size, int flags, NrdParkFn done)
{
    int64_t wait_ms = nrd_topic_consume_wait_ms(handle->topic);
    int64_t limit_ms = wait_limit_ms(handle->fs);
    int timeout_error = 0;
    if (flags & O_NONBLOCK) {
        wait_ms = 0;
        timeout_error = -EAGAIN;
    } else if (limit_ms != INT64_MAX && (wait_ms < 0 || wait_ms > limit_ms)) {
        wait_ms = limit_ms;
        timeout_error = -EINTR;
    }
    nrd_park_read(handle, req, size, wait_ms, timeout_error, done);
}

static GString *jsonl_text(const NrdDelivery *delivery)
{
    char receipt[NRD_RECEIPT_MAX];
    size_t length = nrd_receipt_write(delivery->partition, delivery->offset, delivery->nonce, receipt);
    char *handle = g_strndup(receipt, length);
    GString *text = g_string_sized_new(delivery->payload_size + 160);
    NrdJsonlRecord record = {
        .receipt = handle,
        .partition = delivery->partition,
        .offset = delivery->offset,
        .timestamp_ms = delivery->timestamp_ms,
        .key = delivery->key,
        .key_size = delivery->key_size,
        .payload = delivery->payload,
        .payload_size = delivery->payload_size,
    };
    nrd_jsonl_append(text, &record);
    g_free(handle);
    return text;
}

static void reply_held(NrdHandle *handle, fuse_req_t req, const char *bytes, size_t size, NrdHold lease)
{
    nrd_handle_ref(handle); /* after the reply it may be closed */
    if (fuse_reply_buf(req, bytes, size) < 0)
        nrd_stream_give_back(handle, lease);
    nrd_handle_unref(handle);
}

/* The reply is of a copy: from the moment it is the stream's, the text belongs to whichever read comes for the rest. */
static void hand_over_begin(NrdHandle *handle, fuse_req_t req, size_t size, NrdHold lease, GString *text)
{
    g_autofree char *piece = g_memdup2(text->str, size);
    nrd_stream_hold_rest(nrd_handle_stream(handle), lease, text, size);
    reply_held(handle, req, piece, size, lease);
}

/* Held before the reply: the reader may act on it at once. */
void nrd_consume_hand_over(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery, GString *text,
                           bool receipts)
{
    NrdHold lease = { .partition = delivery->partition, .offset = delivery->offset, .nonce = delivery->nonce };
    if (!receipts)
        nrd_stream_forget_lapsed(handle);
    if (size < text->len) {
        hand_over_begin(handle, req, size, lease, text);
        return;
    }
    if (!receipts)
        nrd_stream_hold(nrd_handle_stream(handle), lease);
    reply_held(handle, req, text->str, text->len, lease);
    g_string_free(text, TRUE);
}

static void deliver_line(NrdHandle *handle, fuse_req_t req, size_t size, int error, const NrdDelivery *delivery)
{
    if (error < 0)
        nrd_reply_error(req, error);
    else
        nrd_consume_hand_over(handle, req, size, delivery, nrd_stream_line(delivery), false);
}

static void deliver_jsonl(NrdHandle *handle, fuse_req_t req, size_t size, int error, const NrdDelivery *delivery)
{
    if (error < 0)
        nrd_reply_error(req, error);
    else
        nrd_consume_hand_over(handle, req, size, delivery, jsonl_text(delivery), true);
}

static void consume_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    if (!nrd_stream_reply_rest(handle, req, size, off, false))
        nrd_consume_park(handle, req, size, flags, deliver_line);
}

static void jsonl_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    if (!nrd_stream_reply_rest(handle, req, size, off, true))
        nrd_consume_park(handle, req, size, flags, deliver_jsonl);
}

/* `offset` or, since offsets of a topic's partitions are alike, `partition:offset`. */
static int parse_record(const char *text, size_t size, int64_t *ret_partition, uint64_t *ret_offset)
{
    const char *colon = memchr(text, ':', size);
    uint64_t partition = 0;
    if (!colon) {
        *ret_partition = NRD_NO_PARTITION;
        return nrd_number_parse(text, size, INT64_MAX, ret_offset);
    }
    int error = nrd_number_parse(text, (size_t)(colon - text), UINT32_MAX, &partition);
    if (error == 0)
        error = nrd_number_parse(colon + 1, size - (size_t)(colon + 1 - text), INT64_MAX, ret_offset);
    *ret_partition = (int64_t)partition;
    return error;
}

static int settle(NrdHandle *handle, const char *line, size_t size, NrdPlace *place)
{
    static const char *const words[] = { "ack", "nack", "extend" };
    static const NrdVerb verbs[] = { NRD_VERB_ACK, NRD_VERB_NACK, NRD_VERB_EXTEND };
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        const char *rest;
        size_t rest_size;
        uint64_t offset;
        int64_t partition;
        if (!nrd_word_match(line, size, words[i], &rest, &rest_size))
            continue;
        if (verbs[i] != NRD_VERB_NACK && !handle->may_settle) /* to give back is what every close does */
            return -EACCES;
        if (size == strlen(words[i]))
            return nrd_stream_settle_delivered(handle, verbs[i]);
        if (parse_record(rest, rest_size, &partition, &offset) < 0)
            return -EINVAL;
        place->offset = (int64_t)offset;
        return nrd_stream_settle_record(handle, verbs[i], partition, offset);
    }
    return -EINVAL;
}

/* `ack|nack|extend [offset | partition:offset]` */
static int run_line(void *user_data, const char *line, size_t size)
{
    NrdHandle *handle = user_data;
    NrdPlace place = nrd_handle_place(handle);
    int error = settle(handle, line, size, &place);
    nrd_log_settle_refused(place, line, size, error);
    return error;
}

/* Works on a copy of the lines' state, since settling may serve parked reads: the kernel sends the writes of one inode
 * one at a time. */
static void consume_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    NrdStreamHandle *state = handle->state;
    size_t taken;
    g_mutex_lock(&handle->lock);
    NrdLines lines = state->lines;
    g_mutex_unlock(&handle->lock);
    int error = nrd_lines_feed(&lines, buf, size, run_line, handle, &taken);
    g_mutex_lock(&handle->lock);
    state->lines = lines;
    g_mutex_unlock(&handle->lock);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_write(req, taken);
}

static int finish_line(NrdHandle *handle)
{
    NrdStreamHandle *state = handle->state;
    g_mutex_lock(&handle->lock);
    NrdLines lines = state->lines;
    g_mutex_unlock(&handle->lock);
    int error = nrd_lines_flush(&lines, run_line, handle);
    g_mutex_lock(&handle->lock);
    state->lines = lines;
    g_mutex_unlock(&handle->lock);
    return error;
}

/* What is kept of a line that never ended is no line: whoever dies in the middle of writing `ack 12` has not said `ack`,
 * which would settle all that he holds, nor `ack 1`. A forked child that closes its copy of the descriptor ends nothing. */
static void consume_release(NrdHandle *handle, bool last)
{
    NrdStreamHandle *state = handle->state;
    g_mutex_lock(&handle->lock);
    bool unfinished = state->lines.kept_size > 0;
    g_mutex_unlock(&handle->lock);
    if (unfinished)
        nrd_diag(NRD_LEVEL_WARNING, nrd_handle_place(handle), "a line that never ended was dropped");
    nrd_stream_release(handle, last);
}

static int settle_by_sync(NrdHandle *handle)
{
    int error = handle->may_settle ? nrd_stream_settle_durably(handle) : -EACCES;
    nrd_log_sync_refused(nrd_handle_place(handle), error);
    return error;
}

/* With a kept line that cannot take effect nothing is settled: whoever undoes his work when an fsync fails must not find
 * it settled. */
static void consume_fsync(NrdHandle *handle, fuse_req_t req)
{
    int error = finish_line(handle);
    nrd_reply_error(req, error == 0 ? settle_by_sync(handle) : error);
}

static void jsonl_fsync(NrdHandle *handle, fuse_req_t req)
{
    nrd_stream_reply_synced(handle, req, 0);
}

const NrdFileOps nrd_consume_ops = {
    .open = nrd_stream_open,
    .read = consume_read,
    .write = consume_write,
    .fsync = consume_fsync,
    .release = consume_release,
    .destroy = nrd_stream_destroy,
    .poll = nrd_stream_poll,
    .watch = true,
    .takes = true,
};

const NrdFileOps nrd_consume_jsonl_ops = {
    .open = nrd_stream_open,
    .read = jsonl_read,
    .fsync = jsonl_fsync,
    .release = nrd_stream_release,
    .destroy = nrd_stream_destroy,
    .poll = nrd_stream_poll,
    .watch = true,
    .takes = true,
};
