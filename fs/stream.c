/* What the handles of a consuming node hold, and records that were read in part. See stream.h. */
#include "fs/stream_private.h"

#include "fs/source.h"

#include <errno.h>
#include <poll.h>

typedef struct Rest {
    NrdHold lease;
    GString *text;
    size_t pos;
} Rest;

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
    stream->look_at = NRD_STREAM_LOOK_AT;
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

NrdHold *nrd_stream_find_locked(NrdStream *stream, NrdHold lease)
{
    NrdHold *held = nrd_held_find(stream->held, lease.partition, lease.offset);
    return held && held->nonce == lease.nonce ? held : NULL;
}

void nrd_stream_hold_locked(NrdStream *stream, NrdHold lease, uint32_t note)
{
    lease.note = note;
    nrd_held_put(stream->held, lease);
}

void nrd_stream_hold(NrdStream *stream, NrdHold lease)
{
    g_mutex_lock(&stream->lock);
    nrd_stream_hold_locked(stream, lease, NRD_DELIVERED);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_hold_all(NrdStream *stream, GArray *leases)
{
    NrdHold *holds = (NrdHold *)(void *)leases->data;
    for (guint i = 0; i < leases->len; i++)
        holds[i].note = NRD_DELIVERED;
    g_mutex_lock(&stream->lock);
    nrd_held_put_all(stream->held, holds, leases->len);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_hold_rest(NrdStream *stream, NrdHold lease, GString *text, size_t pos)
{
    Rest *rest = g_new(Rest, 1);
    *rest = (Rest){ lease, text, pos };
    g_mutex_lock(&stream->lock);
    nrd_stream_hold_locked(stream, lease, NRD_IN_PART);
    g_queue_push_tail(&stream->rests, rest);
    g_mutex_unlock(&stream->lock);
}

void nrd_stream_drop_locked(NrdStream *stream, NrdHold lease)
{
    if (nrd_stream_find_locked(stream, lease))
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
    NrdHold *held = nrd_stream_find_locked(stream, lease);
    if (held && receipts)
        nrd_held_remove(stream->held, lease.partition, lease.offset);
    else if (held)
        held->note = NRD_DELIVERED;
}

GString *nrd_stream_line(const NrdDelivery *delivery)
{
    GString *text = g_string_sized_new(delivery->payload_size + 2);
    g_string_append_len(text, (const char *)delivery->payload, (gssize)delivery->payload_size);
    return g_string_append_c(text, '\n');
}

bool nrd_stream_reply_rest(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, bool receipts)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    Rest *rest = g_queue_peek_head(&stream->rests);
    if (!rest) {
        g_mutex_unlock(&stream->lock);
        if (nrd_stream_goes_on(off))
            nrd_reply_empty(req);
        return nrd_stream_goes_on(off);
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

void nrd_stream_give_back_all(NrdHandle *handle, const GArray *leases)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    for (guint i = 0; i < leases->len; i++)
        nrd_stream_drop_locked(stream, g_array_index(leases, NrdHold, i));
    g_mutex_unlock(&stream->lock);
    nrd_stream_nack_all(handle, leases);
}

void nrd_stream_give_back(NrdHandle *handle, NrdHold lease)
{
    NrdStream *stream = nrd_handle_stream(handle);
    g_mutex_lock(&stream->lock);
    nrd_stream_drop_locked(stream, lease);
    g_mutex_unlock(&stream->lock);
    (void)!nrd_source_settle(handle, NRD_VERB_NACK, lease.partition, lease.offset, lease.nonce);
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
        nrd_stream_nack_all(handle, leases);
        g_array_unref(leases);
        unref(stream);
    }
    nrd_handle_unref(handle);
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
