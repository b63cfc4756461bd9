/* `produce`, `produce.jsonl` and `produce.bin`: every handle is a producer with a framing of its own.
 *
 * The handle's lock guards its NrdProduceFile: it keeps the requests of one handle in order while they are framed and added to
 * the producer's buffer, and is let go before anything waits for the disk. */
#include "fs/produce_private.h"

#include "fs/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

/* A write waiting for a sync. */
typedef struct WriteWait {
    fuse_req_t req;
    NrdHandle *handle; /* referenced */
    size_t taken;
    bool synchronous;
    size_t size;
    uint64_t hash;
    uint64_t n_writes;
} WriteWait;

static NrdFramingKind framing_of(const NrdHandle *handle)
{
    switch (handle->node->info->kind) {
    case NRD_KIND_PRODUCE_JSONL:
    case NRD_KIND_TOPIC_PRODUCE_JSONL:
        return NRD_FRAMING_JSONL;
    case NRD_KIND_PRODUCE_BIN:
    case NRD_KIND_TOPIC_PRODUCE_BIN:
        return NRD_FRAMING_BIN;
    default:
        return NRD_FRAMING_LINES;
    }
}

static int produce_open(NrdHandle *handle)
{
    int access = handle->flags & O_ACCMODE;
    NrdSink sink = { NULL, NULL };
    if (access != O_RDONLY) {
        int error = nrd_sink_open(handle, access == O_RDWR, &sink);
        if (error < 0)
            return error;
    }
    NrdProduceFile *produce = g_new0(NrdProduceFile, 1);
    produce->sink = sink;
    nrd_framing_init(&produce->framing, framing_of(handle), &handle->fs->partials);
    produce->framing.max_key = (size_t)MIN(nrd_topic_max_key_bytes(handle->topic), (int64_t)NRD_KEY_MAX);
    handle->state = produce;
    return 0;
}

static void produce_destroy(NrdHandle *handle)
{
    NrdProduceFile *produce = handle->state;
    if (!produce)
        return;
    nrd_framing_clear(&produce->framing);
    g_free(produce);
}

static void produce_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    NrdProduceFile *produce = handle->state;
    if ((handle->flags & O_ACCMODE) == O_RDONLY) {
        nrd_reply_empty(req);
        return;
    }
    char *buf = g_malloc(size);
    fuse_reply_buf(req, buf, nrd_sink_read_ranges(produce->sink, buf, size));
    g_free(buf);
}

static void add_records(void *user_data, const NrdNewRecord *records, size_t n_records)
{
    nrd_sink_add(*(NrdSink *)user_data, records, n_records);
}

/* How much of a synchronous request to look at. It ends the line at its end, so one that the kernel may have cut off in
 * the middle of a line is taken up to that line, and the program sends the rest by itself. Other framings are not ended
 * by it: see nrd_produce_file_end_locked. */
static size_t synchronous_size(NrdHandle *handle, const char *buf, size_t size, bool *ret_ends)
{
    *ret_ends = true;
    if (!nrd_may_be_cut(handle, size) || framing_of(handle) != NRD_FRAMING_LINES)
        return size;
    const char *newline = memrchr(buf, '\n', size);
    *ret_ends = newline != NULL;
    return newline ? (size_t)(newline - buf) + 1 : size;
}

/* A program that gives way sends the same again and again: told once, not each time. */
static void log_too_much(NrdHandle *handle)
{
    NrdFs *fs = handle->fs;
    if (nrd_partial_budget_tell(&fs->partials))
        nrd_diag(NRD_LEVEL_WARNING, nrd_handle_place(handle),
                 "the unfinished records of all producers take the %" G_GUINT64_FORMAT
                 " bytes of partial_bytes: writes that do not end their record get EAGAIN until some are finished or "
                 "closed",
                 (guint64)fs->partials.limit_bytes);
}

/* The limit may be the engine's, and less than what is set. */
char *nrd_produce_file_why(NrdHandle *handle)
{
    const NrdFraming *framing = &((NrdProduceFile *)handle->state)->framing;
    if (!framing->why_limit)
        return g_strdup(framing->why);
    g_autofree char *set = nrd_topic_config_value(handle->topic, "max_record_bytes");
    int64_t longest = nrd_topic_max_record_bytes(handle->topic);
    if (set && g_ascii_strtoll(set, NULL, 10) > longest)
        return g_strdup_printf("%s: the servers take no more than %" G_GINT64_FORMAT
                               " bytes, though max_record_bytes is %s",
                               framing->why, MAX(longest, 0), set);
    return g_strdup_printf("%s: max_record_bytes is %s", framing->why, set ? set : "not known");
}

/* Told once for a record: not when the kernel hid the failure and the program sends it again. */
static void log_refused(NrdHandle *handle, int error)
{
    NrdPlace place = nrd_handle_place(handle);
    if (handle->partition) {
        NrdPartitionInfo info;
        nrd_partition_info(handle->partition, &info);
        place.offset = (int64_t)info.next_offset;
        nrd_partition_info_clear(&info);
    }
    g_autofree char *why = nrd_produce_file_why(handle);
    nrd_diag(NRD_LEVEL_WARNING, place, "a record was refused: %s: %s", why, g_strerror(-error));
}

static int feed_locked(NrdHandle *handle, const char *buf, size_t size, WriteWait *wait)
{
    NrdProduceFile *produce = handle->state;
    size_t max_record = (size_t)nrd_topic_max_record_bytes(handle->topic);
    NrdFramingRequest request = { (const uint8_t *)buf, size, nrd_may_be_cut(handle, size) };
    bool resent = nrd_framing_resent(&produce->framing, request.data, size);
    int error = nrd_framing_feed(&produce->framing, request, max_record, add_records, &produce->sink, &wait->taken);
    if (error == -EAGAIN)
        log_too_much(handle);
    else if (error < 0 && !resent)
        log_refused(handle, error);
    return error;
}

int nrd_produce_file_end_locked(NrdHandle *handle, NrdFramingEnd when, NrdSink sink)
{
    NrdProduceFile *produce = handle->state;
    size_t max_record = (size_t)nrd_topic_max_record_bytes(handle->topic);
    return nrd_framing_end(&produce->framing, when, max_record, add_records, &sink);
}

/* Frames a request into the producer's buffer. */
static int take_locked(NrdHandle *handle, const char *buf, WriteWait *wait)
{
    NrdProduceFile *produce = handle->state;
    size_t size = wait->size;
    bool ends = false;
    if (wait->synchronous) {
        wait->hash = nrd_hash(0, buf, size);
        if (produce->failed && produce->failed_size == size && produce->failed_hash == wait->hash) {
            wait->taken = produce->failed_taken;
            return 0;
        }
        size = synchronous_size(handle, buf, size, &ends);
    }
    produce->failed = false;
    int error = feed_locked(handle, buf, size, wait);
    if (error < 0)
        return error;
    /* An object in pieces is no error here: programs with buffers write so. What is unfinished is no record, and its
     * bytes are durable with the write that finishes it. */
    if (ends && wait->taken == size)
        (void)!nrd_produce_file_end_locked(handle, NRD_FRAMING_SYNC, produce->sink);
    produce->n_writes++;
    return 0;
}

static void write_synced(void *user_data, int error)
{
    WriteWait *wait = user_data;
    NrdProduceFile *produce = wait->handle->state;
    g_mutex_lock(&wait->handle->lock);
    if (wait->synchronous) {
        if (error == 0)
            produce->n_synced = MAX(produce->n_synced, wait->n_writes);
        produce->failed = error < 0;
        produce->failed_size = wait->size;
        produce->failed_hash = wait->hash;
        produce->failed_taken = wait->taken;
    }
    g_mutex_unlock(&wait->handle->lock);
    if (wait->synchronous && error < 0)
        nrd_reply_error(wait->req, error);
    else /* of another one the failure is told by the next write, fsync or close */
        fuse_reply_write(wait->req, wait->taken);
    nrd_handle_unref(wait->handle);
    g_free(wait);
}

static void sync_write(NrdHandle *handle, const WriteWait *template)
{
    NrdProduceFile *produce = handle->state;
    WriteWait *wait = g_memdup2(template, sizeof *template);
    wait->handle = nrd_handle_ref(handle);
    nrd_sink_sync(produce->sink, wait->synchronous ? NRD_SYNC_OWN : NRD_SYNC_BESIDE, write_synced, wait);
}

static void produce_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    NrdProduceFile *produce = handle->state;
    WriteWait wait = { .req = req, .size = size, .synchronous = flags & O_DSYNC };
    NrdUrgency urgency = NRD_URGENCY_LATER;

    g_mutex_lock(&handle->lock);
    /* A synchronous write tells its own failure, and its repetition has to reach the sync. */
    int error = wait.synchronous && produce->failed ? 0 : nrd_sink_check(produce->sink);
    if (error == 0)
        error = take_locked(handle, buf, &wait);
    if (error == 0)
        urgency = nrd_sink_wrote(produce->sink, nrd_may_be_cut(handle, size));
    wait.n_writes = produce->n_writes;
    g_mutex_unlock(&handle->lock);

    if (error < 0) {
        nrd_reply_error(req, error);
    } else if (wait.synchronous || urgency == NRD_URGENCY_FULL) {
        sync_write(handle, &wait);
    } else if (urgency == NRD_URGENCY_NOW) {
        nrd_handle_ref(handle); /* after the reply the handle may be closed */
        fuse_reply_write(req, wait.taken);
        nrd_sink_flush(handle);
        nrd_handle_unref(handle);
    } else {
        fuse_reply_write(req, wait.taken);
    }
}

static void closed(void *user_data, int error)
{
    nrd_handle_unref(user_data);
}

static void produce_release(NrdHandle *handle, bool last)
{
    NrdProduceFile *produce = handle->state;
    g_mutex_lock(&handle->lock);
    NrdSink sink = produce->sink;
    produce->sink = (NrdSink){ NULL, NULL };
    int dropped = nrd_sink_is_open(sink) ? nrd_produce_file_end_locked(handle, NRD_FRAMING_CLOSE, sink) : 0;
    g_autofree char *why = dropped < 0 ? nrd_produce_file_why(handle) : NULL;
    g_mutex_unlock(&handle->lock);
    if (why)
        nrd_diag(NRD_LEVEL_WARNING, nrd_handle_place(handle), "a record that never ended was dropped: %s", why);
    if (nrd_sink_is_open(sink))
        nrd_sink_close(sink, closed, handle);
    else
        nrd_handle_unref(handle);
}

static uint32_t produce_poll(NrdHandle *handle)
{
    return POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
}

const NrdFileOps nrd_produce_ops = {
    .open = produce_open,
    .read = produce_read,
    .write = produce_write,
    .flush = nrd_produce_file_flush,
    .fsync = nrd_produce_file_fsync,
    .release = produce_release,
    .destroy = produce_destroy,
    .poll = produce_poll,
};
