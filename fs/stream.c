/* See stream.h. */
#include "fs/stream.h"

#include "fs/hash.h"
#include "fs/source.h"

#include <errno.h>
#include <poll.h>

/* So many leases are kept before it is looked which of them have lapsed, and twice as many as lived then before the next
 * look: a delivery costs O(1) on average. */
#define LOOK_AT_LEASES 4096

typedef struct Held {
    NrdStreamLease lease;
    bool delivered; /* all of it */
} Held;

typedef struct Rest {
    NrdStreamLease lease;
    GString *text;
    size_t pos;
} Rest;

struct NrdStream {
    gint n_refs; /* atomic */
    /* guarded by lock */
    GMutex lock;
    GHashTable *held; /* &held->lease -> Held, by partition and offset; a newer lease replaces a lapsed one */
    GQueue rests;     /* Rest, oldest first */
    guint look_at;    /* number of leases at which to look for lapsed ones */
    bool forgot;      /* lapsed leases were let go, and nobody has been told */
};

static void free_rest(void *data)
{
    Rest *rest = data;
    g_string_free(rest->text, TRUE);
    g_free(rest);
}

static guint record_hash(gconstpointer key)
{
    const NrdStreamLease *lease = key;
    return (guint)nrd_hash_mix(lease->offset ^ (uint64_t)lease->partition << 48);
}

static gboolean record_equal(gconstpointer a, gconstpointer b)
{
    const NrdStreamLease *x = a, *y = b;
    return x->partition == y->partition && x->offset == y->offset;
}

static NrdStream *new_stream(void)
{
    NrdStream *stream = g_new0(NrdStream, 1);
    stream->n_refs = 1;
    g_mutex_init(&stream->lock);
    stream->held = g_hash_table_new_full(record_hash, record_equal, NULL, g_free);
    g_queue_init(&stream->rests);
    stream->look_at = LOOK_AT_LEASES;
    return stream;
}

static void unref(NrdStream *stream)
{
    if (!g_atomic_int_dec_and_test(&stream->n_refs))
        return;
    g_queue_clear_full(&stream->rests, free_rest);
    g_hash_table_unref(stream->held);
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

static void hold_locked(NrdStream *stream, NrdStreamLease lease, bool delivered)
{
    Held *held = g_new(Held, 1);
    *held = (Held){ lease, delivered };
    g_hash_table_replace(stream->held, &held->lease, held);
}

static Held *find_locked(NrdStream *stream, NrdStreamLease lease)
{
    Held *held = g_hash_table_lookup(stream->held, &lease);
    return held && held->lease.nonce == lease.nonce ? held : NULL;
}

void nrd_stream_hold(NrdStream *stream, NrdStreamLease lease)
{
    g_mutex_lock(&stream->lock);
    hold_locked(stream, lease, true);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_hold_rest(NrdStream *stream, NrdStreamLease lease, GString *text, size_t pos)
{
    Rest *rest = g_new(Rest, 1);
    *rest = (Rest){ lease, text, pos };
    g_mutex_lock(&stream->lock);
    hold_locked(stream, lease, false);
    g_queue_push_tail(&stream->rests, rest);
    g_mutex_unlock(&stream->lock);
}

static void drop_locked(NrdStream *stream, NrdStreamLease lease)
{
    if (find_locked(stream, lease))
        g_hash_table_remove(stream->held, &lease);
    for (GList *l = stream->rests.head; l; l = l->next) {
        Rest *rest = l->data;
        if (rest->lease.nonce != lease.nonce || !record_equal(&rest->lease, &lease))
            continue;
        free_rest(rest);
        g_queue_delete_link(&stream->rests, l);
        return;
    }
}

static void delivered_locked(NrdStream *stream, NrdStreamLease lease, bool receipts)
{
    Held *held = find_locked(stream, lease);
    if (held)
        held->delivered = true;
    if (held && receipts)
        g_hash_table_remove(stream->held, &lease);
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
    NrdStreamLease lease = rest->lease;
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

/* The lease is given back whether it is still known here or not; one that has lapsed is nobody's loss. */
static void nack(NrdHandle *handle, NrdStreamLease lease)
{
    (void)!nrd_source_settle(handle, NRD_VERB_NACK, lease.partition, lease.offset, lease.nonce);
}

void nrd_stream_give_back(NrdHandle *handle, NrdStreamLease lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    nack(handle, lease);
}

static int by_place(const void *a, const void *b)
{
    const NrdStreamLease *x = a, *y = b;
    if (x->partition != y->partition)
        return x->partition < y->partition ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Leases in order of offset, so that the frontier moves with each ack. take: they are not held any more. */
static GArray *list_held(NrdStream *stream, bool only_delivered, bool take)
{
    GArray *leases = g_array_new(FALSE, FALSE, sizeof(NrdStreamLease));
    GHashTableIter iter;
    void *value;
    g_mutex_lock(&stream->lock);
    g_hash_table_iter_init(&iter, stream->held);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        Held *held = value;
        if (only_delivered && !held->delivered)
            continue;
        g_array_append_val(leases, held->lease);
        if (take)
            g_hash_table_iter_remove(&iter);
    }
    g_mutex_unlock(&stream->lock);
    g_array_sort(leases, by_place);
    return leases;
}

static void forget_lapsed(NrdHandle *handle, NrdStreamLease lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    if (nrd_source_settle(handle, NRD_VERB_LOOK, lease.partition, lease.offset, lease.nonce) == 0)
        return;
    g_mutex_lock(&stream->lock);
    stream->forgot = stream->forgot || find_locked(stream, lease);
    drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_forget_lapsed(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    bool many = g_hash_table_size(stream->held) >= stream->look_at;
    if (many)
        stream->look_at = G_MAXUINT; /* one looks */
    g_mutex_unlock(&stream->lock);
    if (!many)
        return;
    GArray *leases = list_held(stream, true, false);
    for (guint i = 0; i < leases->len; i++)
        forget_lapsed(handle, g_array_index(leases, NrdStreamLease, i));
    g_array_unref(leases);
    g_mutex_lock(&stream->lock);
    stream->look_at = MAX(LOOK_AT_LEASES, 2 * g_hash_table_size(stream->held));
    g_mutex_unlock(&stream->lock);
}

uint64_t nrd_stream_n_held(NrdHandle *handle)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    uint64_t n = g_hash_table_size(stream->held);
    g_mutex_unlock(&stream->lock);
    return n;
}

/* Whether lapsed leases were let go since the last time: who settles all that was delivered is told. */
static bool take_forgot(NrdStream *stream)
{
    g_mutex_lock(&stream->lock);
    bool forgot = stream->forgot;
    stream->forgot = false;
    g_mutex_unlock(&stream->lock);
    return forgot;
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
        GArray *leases = list_held(stream, false, true);
        for (guint i = 0; i < leases->len; i++)
            nack(handle, g_array_index(leases, NrdStreamLease, i));
        g_array_unref(leases);
        unref(stream);
    }
    nrd_handle_unref(handle);
}

static void put_back(NrdStream *stream, NrdStreamLease lease)
{
    g_mutex_lock(&stream->lock);
    if (!g_hash_table_contains(stream->held, &lease))
        hold_locked(stream, lease, true);
    g_mutex_unlock(&stream->lock);
}

int nrd_stream_settle_delivered(NrdHandle *handle, NrdVerb verb)
{
    NrdStream *stream = nrd_handle_stream(handle);
    int first_error = 0;
    GArray *leases = list_held(stream, true, verb != NRD_VERB_EXTEND);
    for (guint i = 0; i < leases->len; i++) {
        NrdStreamLease lease = g_array_index(leases, NrdStreamLease, i);
        int error = nrd_source_settle(handle, verb, lease.partition, lease.offset, lease.nonce);
        if (error == -EAGAIN)
            put_back(stream, lease);
        if (error == -ESTALE && verb == NRD_VERB_EXTEND) {
            g_mutex_lock(&stream->lock);
            drop_locked(stream, lease);
            g_mutex_unlock(&stream->lock);
        }
        if (error < 0 && first_error == 0)
            first_error = error;
    }
    g_array_unref(leases);
    bool forgot = take_forgot(stream);
    return first_error == 0 && forgot ? -ESTALE : first_error;
}

/* The one record held with that offset, whatever its partition; -EINVAL when there are several. */
static int find_offset_locked(NrdStream *stream, uint64_t offset, NrdStreamLease *ret_lease)
{
    GHashTableIter iter;
    void *value;
    int error = -ESTALE;
    g_hash_table_iter_init(&iter, stream->held);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Held *held = value;
        if (held->lease.offset != offset)
            continue;
        error = error == -ESTALE ? 0 : -EINVAL;
        *ret_lease = held->lease;
    }
    return error;
}

static int find_record(NrdStream *stream, int64_t partition, uint64_t offset, NrdStreamLease *ret_lease)
{
    NrdStreamLease key = { .partition = (uint32_t)partition, .offset = offset };
    int error = 0;
    g_mutex_lock(&stream->lock);
    const Held *held = partition == NRD_NO_PARTITION ? NULL : g_hash_table_lookup(stream->held, &key);
    if (held)
        *ret_lease = held->lease;
    else
        error = partition == NRD_NO_PARTITION ? find_offset_locked(stream, offset, ret_lease) : -ESTALE;
    g_mutex_unlock(&stream->lock);
    return error;
}

int nrd_stream_settle_record(NrdHandle *handle, NrdVerb verb, int64_t partition, uint64_t offset)
{
    NrdStream *stream = nrd_handle_stream(handle);
    NrdStreamLease lease;
    if (handle->partition && partition == NRD_NO_PARTITION)
        partition = nrd_partition_number(handle->partition);
    int error = find_record(stream, partition, offset, &lease);
    if (error < 0)
        return error;
    error = nrd_source_settle(handle, verb, lease.partition, lease.offset, lease.nonce);
    if (error == -EAGAIN || (error == 0 && verb == NRD_VERB_EXTEND))
        return error;
    g_mutex_lock(&stream->lock);
    drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    return error;
}

void nrd_log_settle_refused(NrdPlace place, int error)
{
    if (error == -EINVAL)
        nrd_diag(
            NRD_LEVEL_WARNING, place,
            "a line was refused: it is malformed, names records of several partitions, or its receipt is of another "
            "partition");
    else if (error == -ESTALE)
        nrd_diag(NRD_LEVEL_NOTICE, place, "a receipt was refused: its lease has lapsed, was settled, or never was");
    else if (error == -EAGAIN)
        nrd_diag(NRD_LEVEL_NOTICE, place, "an ack was refused: too many records are acked ahead of an open one");
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
