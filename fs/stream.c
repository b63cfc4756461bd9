/* See stream.h. */
#include "fs/stream.h"

#include "fs/held.h"
#include "fs/source.h"

#include <errno.h>
#include <poll.h>

/* The note of a lease that is held: whether all of the record was delivered. */
enum { IN_PART, DELIVERED };

/* So many leases are kept before it is looked which of them have lapsed, and twice as many as lived then before the next
 * look: a delivery costs O(1) on average. */
#define LOOK_AT_LEASES 4096

typedef struct Rest {
    NrdHold lease;
    GString *text;
    size_t pos;
} Rest;

struct NrdStream {
    gint n_refs; /* atomic */
    /* guarded by lock */
    GMutex lock;
    NrdHeld *held; /* a newer lease replaces a lapsed one */
    GQueue rests;  /* Rest, oldest first */
    guint look_at; /* number of leases at which to look for lapsed ones */
    bool forgot;   /* lapsed leases were let go, and nobody has been told */
};

static void free_rest(void *data)
{
    Rest *rest = data;
    g_string_free(rest->text, TRUE);
    g_free(rest);
}

static NrdStream *new_stream(void)
{
    NrdStream *stream = g_new0(NrdStream, 1);
    stream->n_refs = 1;
    g_mutex_init(&stream->lock);
    stream->held = nrd_held_new();
    g_queue_init(&stream->rests);
    stream->look_at = LOOK_AT_LEASES;
    return stream;
}

static void unref(NrdStream *stream)
{
    if (!g_atomic_int_dec_and_test(&stream->n_refs))
        return;
    g_queue_clear_full(&stream->rests, free_rest);
    nrd_held_free(stream->held);
    g_mutex_clear(&stream->lock);
    g_free(stream);
}

/* The node has a reference of its own, from the first open to the last release. */
int nrd_stream_open(NrdHandle *handle)
{
    NrdNode *node = handle->node;
    NrdStreamHandle *state = g_new0(NrdStreamHandle, 1);
    g_mutex_lock(&node->lock);
    if (!node->stream)
        node->stream = new_stream();
    state->stream = node->stream;
    g_atomic_int_inc(&state->stream->n_refs);
    g_mutex_unlock(&node->lock);
    handle->state = state;
    return 0;
}

void nrd_stream_destroy(NrdHandle *handle)
{
    NrdStreamHandle *state = handle->state;
    if (!state)
        return;
    unref(state->stream);
    g_free(state);
}

static NrdHold *find_locked(NrdStream *stream, NrdHold lease)
{
    NrdHold *held = nrd_held_find(stream->held, lease.partition, lease.offset);
    return held && held->nonce == lease.nonce ? held : NULL;
}

static void hold_locked(NrdStream *stream, NrdHold lease, uint32_t note)
{
    lease.note = note;
    nrd_held_put(stream->held, lease);
}

void nrd_stream_hold(NrdStream *stream, NrdHold lease)
{
    g_mutex_lock(&stream->lock);
    hold_locked(stream, lease, DELIVERED);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_hold_all(NrdStream *stream, GArray *leases)
{
    NrdHold *holds = (NrdHold *)(void *)leases->data;
    for (guint i = 0; i < leases->len; i++)
        holds[i].note = DELIVERED;
    g_mutex_lock(&stream->lock);
    nrd_held_put_all(stream->held, holds, leases->len);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_hold_rest(NrdStream *stream, NrdHold lease, GString *text, size_t pos)
{
    Rest *rest = g_new(Rest, 1);
    *rest = (Rest){ lease, text, pos };
    g_mutex_lock(&stream->lock);
    hold_locked(stream, lease, IN_PART);
    g_queue_push_tail(&stream->rests, rest);
    g_mutex_unlock(&stream->lock);
}

static void drop_locked(NrdStream *stream, NrdHold lease)
{
    if (find_locked(stream, lease))
        nrd_held_remove(stream->held, lease.partition, lease.offset);
    for (GList *l = stream->rests.head; l; l = l->next) {
        Rest *rest = l->data;
        if (rest->lease.nonce != lease.nonce || rest->lease.partition != lease.partition ||
            rest->lease.offset != lease.offset)
            continue;
        free_rest(rest);
        g_queue_delete_link(&stream->rests, l);
        return;
    }
}

static void delivered_locked(NrdStream *stream, NrdHold lease, bool receipts)
{
    NrdHold *held = find_locked(stream, lease);
    if (held && receipts)
        nrd_held_remove(stream->held, lease.partition, lease.offset);
    else if (held)
        held->note = DELIVERED;
}

GString *nrd_stream_line(const NrdDelivery *delivery)
{
    GString *text = g_string_sized_new(delivery->payload_size + 2);
    g_string_append_len(text, (const char *)delivery->payload, (gssize)delivery->payload_size);
    return g_string_append_c(text, '\n');
}

bool nrd_stream_reply_rest(NrdHandle *handle, fuse_req_t req, size_t size, bool receipts)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    Rest *rest = g_queue_peek_head(&stream->rests);
    if (!rest) {
        g_mutex_unlock(&stream->lock);
        return false;
    }
    NrdHold lease = rest->lease;
    size_t n = MIN(size, rest->text->len - rest->pos);
    char *piece = g_memdup2(rest->text->str + rest->pos, n);
    rest->pos += n;
    if (rest->pos == rest->text->len) {
        free_rest(g_queue_pop_head(&stream->rests));
        delivered_locked(stream, lease, receipts);
    }
    g_mutex_unlock(&stream->lock);
    nrd_handle_ref(handle);
    if (fuse_reply_buf(req, piece, n) < 0)
        nrd_stream_give_back(handle, lease);
    nrd_handle_unref(handle);
    g_free(piece);
    return true;
}

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

/* The leases are given back whether they are still known here or not; one that has lapsed is nobody's loss. */
static void nack_all(NrdHandle *handle, const GArray *leases)
{
    (void)!settle_each(handle, NRD_VERB_NACK, leases, NULL);
}

void nrd_stream_give_back_all(NrdHandle *handle, const GArray *leases)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    for (guint i = 0; i < leases->len; i++)
        drop_locked(stream, g_array_index(leases, NrdHold, i));
    g_mutex_unlock(&stream->lock);
    nack_all(handle, leases);
}

void nrd_stream_give_back(NrdHandle *handle, NrdHold lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    (void)!nrd_source_settle(handle, NRD_VERB_NACK, lease.partition, lease.offset, lease.nonce);
}

/* What was delivered, in order of offset, so that the frontier moves with each ack; take: it is not held any more. */
static GArray *list_delivered(NrdStream *stream, bool take)
{
    g_mutex_lock(&stream->lock);
    GArray *leases = take ? nrd_held_take(stream->held) : nrd_held_list(stream->held);
    guint n = 0;
    for (guint i = 0; i < leases->len; i++) {
        NrdHold lease = g_array_index(leases, NrdHold, i);
        if (lease.note == DELIVERED)
            g_array_index(leases, NrdHold, n++) = lease;
        else if (take)
            nrd_held_put(stream->held, lease);
    }
    g_array_set_size(leases, n);
    g_mutex_unlock(&stream->lock);
    return leases;
}

static void forget_lapsed(NrdHandle *handle, NrdHold lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    if (nrd_source_settle(handle, NRD_VERB_LOOK, lease.partition, lease.offset, lease.nonce) == 0)
        return;
    g_mutex_lock(&stream->lock);
    stream->forgot = stream->forgot || find_locked(stream, lease) != NULL;
    drop_locked(stream, lease);
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
    stream->look_at = MAX(LOOK_AT_LEASES, 2 * nrd_held_count(stream->held));
    g_mutex_unlock(&stream->lock);
}

uint64_t nrd_stream_n_held(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    uint64_t n = nrd_held_count(stream->held);
    g_mutex_unlock(&stream->lock);
    return n;
}

void nrd_stream_release(NrdHandle *handle, bool last)
{
    NrdStream *stream = NULL;
    if (last) {
        g_mutex_lock(&handle->node->lock);
        if (handle->node->handles->len == 0)
            stream = g_steal_pointer(&handle->node->stream);
        g_mutex_unlock(&handle->node->lock);
    }
    if (stream) {
        g_mutex_lock(&stream->lock);
        GArray *leases = nrd_held_take(stream->held);
        g_mutex_unlock(&stream->lock);
        nack_all(handle, leases);
        g_array_unref(leases);
        unref(stream);
    }
    nrd_handle_unref(handle);
}

/* A lapsed lease is nobody's any more; everything else refuses for now only. */
static void ack_refused(NrdStream *stream, NrdHold lease, int error)
{
    g_mutex_lock(&stream->lock);
    if (error == -ESTALE)
        stream->forgot = true;
    else if (!nrd_held_find(stream->held, lease.partition, lease.offset))
        hold_locked(stream, lease, DELIVERED);
    g_mutex_unlock(&stream->lock);
}

static void extend_refused(NrdStream *stream, NrdHold lease, int error)
{
    g_mutex_lock(&stream->lock);
    if (error == -ESTALE) {
        stream->forgot = true;
        drop_locked(stream, lease);
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
    drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    return error;
}

void nrd_log_settle_refused(NrdPlace place, const char *line, size_t size, int error)
{
    NrdLevel level = error == -EINVAL ? NRD_LEVEL_WARNING : NRD_LEVEL_NOTICE;
    const char *why = NULL;
    if (error == -EINVAL)
        why = "it is malformed, names records of several partitions, or its receipt is of another partition";
    else if (error == -ESTALE)
        why = "its lease has lapsed, was settled, or never was";
    else if (error == -EAGAIN)
        why = "too many records are acked ahead of an open one";
    if (!why)
        return;
    g_autofree char *text = nrd_quote(line, size);
    nrd_diag(level, place, "the line %s was refused: %s", text, why);
}

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

uint32_t nrd_stream_poll(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    uint32_t events = handle->ops->write ? POLLOUT | POLLWRNORM : 0;
    g_mutex_lock(&stream->lock);
    bool readable = stream->rests.length > 0;
    g_mutex_unlock(&stream->lock);
    if (readable || nrd_source_readable(handle))
        events |= POLLIN | POLLRDNORM;
    return events;
}
