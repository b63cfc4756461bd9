/* Settling what was delivered: all of it, or one record, by the words of `consume` and `ack`. See stream.h. */
#include "fs/stream_private.h"

#include "fs/source.h"

#include <errno.h>

/* Settles one after the other, whatever becomes of the others; what could not be is told to `refused`. Returns the first
 * error. */
static int settle_each(NrdHandle *handle, NrdVerb verb, const GArray *leases,
                       void (*refused)(NrdStream *stream, NrdHold lease, int error))
{
    const NrdHold *holds = (const NrdHold *)(const void *)leases->data;
    int first_error = 0, error = 0;
    for (size_t i = 0; i < leases->len; i += error < 0) {
        i += nrd_source_settle_many(handle, verb, holds + i, leases->len - i, &error);
        if (error < 0 && refused)
            refused(nrd_handle_stream(handle), holds[i], error);
        if (first_error == 0)
            first_error = error;
    }
    return first_error;
}

void nrd_stream_nack_all(NrdHandle *handle, const GArray *leases)
{
    (void)!settle_each(handle, NRD_VERB_NACK, leases, NULL);
}

/* What was delivered, in order of offset, so that the frontier moves with each ack; take: it is not held any more. */
static GArray *list_delivered(NrdStream *stream, bool take)
{
    g_mutex_lock(&stream->lock);
    GArray *leases = take ? nrd_held_take(stream->held) : nrd_held_list(stream->held);
    guint n = 0;
    for (guint i = 0; i < leases->len; i++) {
        NrdHold lease = g_array_index(leases, NrdHold, i);
        if (lease.note == NRD_DELIVERED)
            g_array_index(leases, NrdHold, n++) = lease;
        else if (take)
            nrd_held_put(stream->held, lease);
    }
    g_array_set_size(leases, n);
    g_mutex_unlock(&stream->lock);
    return leases;
}

/* ---- leases that have lapsed ---- */

static void forget_lapsed(NrdHandle *handle, NrdHold lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    if (nrd_source_settle(handle, NRD_VERB_LOOK, lease.partition, lease.offset, lease.nonce) == 0)
        return;
    g_mutex_lock(&stream->lock);
    stream->forgot = stream->forgot || nrd_stream_find_locked(stream, lease) != NULL;
    nrd_stream_drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_forget_lapsed(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    bool many = nrd_held_count(stream->held) >= stream->look_at;
    if (many)
        stream->look_at = G_MAXUINT; /* one looks */
    g_mutex_unlock(&stream->lock);
    if (!many)
        return;
    GArray *leases = list_delivered(stream, false);
    for (guint i = 0; i < leases->len; i++)
        forget_lapsed(handle, g_array_index(leases, NrdHold, i));
    g_array_unref(leases);
    g_mutex_lock(&stream->lock);
    stream->look_at = MAX(NRD_STREAM_LOOK_AT, 2 * nrd_held_count(stream->held));
    g_mutex_unlock(&stream->lock);
}

/* ---- all that was delivered ---- */

/* A lapsed lease is nobody's any more; everything else refuses for now only. */
static void ack_refused(NrdStream *stream, NrdHold lease, int error)
{
    g_mutex_lock(&stream->lock);
    if (error == -ESTALE)
        stream->forgot = true;
    else if (!nrd_held_find(stream->held, lease.partition, lease.offset))
        nrd_stream_hold_locked(stream, lease, NRD_DELIVERED);
    g_mutex_unlock(&stream->lock);
}

static void extend_refused(NrdStream *stream, NrdHold lease, int error)
{
    g_mutex_lock(&stream->lock);
    if (error == -ESTALE) {
        stream->forgot = true;
        nrd_stream_drop_locked(stream, lease);
    }
    g_mutex_unlock(&stream->lock);
}

/* What to say of all that was delivered. Of lapsed leases it is told once: now, unless there is another error to tell. */
static int tell(NrdStream *stream, int error)
{
    if (error < 0 && error != -ESTALE)
        return error;
    g_mutex_lock(&stream->lock);
    bool forgot = stream->forgot;
    stream->forgot = false;
    g_mutex_unlock(&stream->lock);
    return forgot ? -ESTALE : 0;
}

int nrd_stream_settle_delivered(NrdHandle *handle, NrdVerb verb)
{
    bool extend = verb == NRD_VERB_EXTEND;
    GArray *leases = list_delivered(nrd_handle_stream(handle), !extend);
    int error = settle_each(handle, verb, leases, extend ? extend_refused : ack_refused);
    g_array_unref(leases);
    return tell(nrd_handle_stream(handle), error);
}

/* Whoever else uses the file finds nothing held meanwhile. */
int nrd_stream_settle_durably(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    GArray *leases = list_delivered(stream, true);
    const NrdHold *holds = (const NrdHold *)(const void *)leases->data;
    g_autofree int *errors = g_new(int, leases->len);
    int error = nrd_source_settle_durably(handle, holds, leases->len, errors);
    for (guint i = 0; i < leases->len; i++) {
        if (errors[i] < 0)
            ack_refused(stream, holds[i], errors[i]);
        if (error == 0 && errors[i] != -ESTALE)
            error = errors[i];
    }
    g_array_unref(leases);
    return tell(stream, error);
}

/* ---- one record ---- */

/* The one record held with that offset, whatever its partition; -EINVAL when there are several. */
static int find_offset_locked(NrdStream *stream, uint64_t offset, NrdHold *ret_lease)
{
    guint n = nrd_held_find_offset(stream->held, offset, ret_lease);
    return n == 1 ? 0 : n == 0 ? -ESTALE : -EINVAL;
}

static int find_record(NrdStream *stream, int64_t partition, uint64_t offset, NrdHold *ret_lease)
{
    int error = 0;
    g_mutex_lock(&stream->lock);
    const NrdHold *held =
        partition == NRD_NO_PARTITION ? NULL : nrd_held_find(stream->held, (uint32_t)partition, offset);
    if (held)
        *ret_lease = *held;
    else
        error = partition == NRD_NO_PARTITION ? find_offset_locked(stream, offset, ret_lease) : -ESTALE;
    g_mutex_unlock(&stream->lock);
    return error;
}

int nrd_stream_settle_record(NrdHandle *handle, NrdVerb verb, int64_t partition, uint64_t offset)
{
    NrdStream *stream = nrd_handle_stream(handle);
    NrdHold lease;
    if (handle->partition && partition == NRD_NO_PARTITION)
        partition = nrd_partition_number(handle->partition);
    int error = find_record(stream, partition, offset, &lease);
    if (error < 0)
        return error;
    error = nrd_source_settle(handle, verb, lease.partition, lease.offset, lease.nonce);
    if (error == -EAGAIN || (error != -ESTALE && verb == NRD_VERB_EXTEND)) /* it is held as before */
        return error;
    g_mutex_lock(&stream->lock);
    nrd_stream_drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    return error;
}

/* NULL: that is told where it was found. */
static const char *why_refused(int error)
{
    switch (error) {
    case -EINVAL:
        return "it is malformed, names records of several partitions, or its receipt is of another partition";
    case -ESTALE:
        return "its lease has lapsed, was settled, or never was";
    case -EAGAIN:
        return "too many records are acked ahead of an open one";
    case -EACCES:
        return "whoever opened the file may not write ack";
    default:
        return NULL;
    }
}

void nrd_log_sync_refused(NrdPlace place, int error)
{
    const char *why = why_refused(error);
    if (why)
        nrd_diag(NRD_LEVEL_NOTICE, place, "fsync left a record unsettled: %s", why);
}

void nrd_log_settle_refused(NrdPlace place, const char *line, size_t size, int error)
{
    NrdLevel level = error == -EINVAL ? NRD_LEVEL_WARNING : NRD_LEVEL_NOTICE;
    const char *why = why_refused(error);
    if (!why)
        return;
    g_autofree char *text = nrd_quote(line, size);
    nrd_diag(level, place, "the line %s was refused: %s", text, why);
}

/* ---- making it durable ---- */

typedef struct FrontierWait {
    fuse_req_t req;
    NrdHandle *handle; /* referenced */
    int before;
} FrontierWait;

static void frontier_synced(void *user_data, int error)
{
    FrontierWait *wait = user_data;
    nrd_reply_error(wait->req, wait->before < 0 ? wait->before : error);
    nrd_handle_unref(wait->handle);
    g_free(wait);
}

void nrd_stream_reply_synced(NrdHandle *handle, fuse_req_t req, int before)
{
    FrontierWait *wait = g_new(FrontierWait, 1);
    *wait = (FrontierWait){ req, nrd_handle_ref(handle), before };
    nrd_source_sync(handle, frontier_synced, wait);
}
