/* A batch: what a worker takes from a lane at once, read, and tried. */
#include "engine/ingress/batch_private.h"

#include "engine/base/errors.h"

#include <errno.h>

#define BATCH_BYTES (4 * NRD_MIB)
#define BATCH_RECORDS 16384

/* ---- taking ---- */

static bool fits(const NrdIngressBatch *batch, const NrdPart *part, size_t n_bytes, uint64_t n_records)
{
    return batch->parts->len == 0 || (!batch->lane->no_room && n_bytes + part->size <= BATCH_BYTES &&
                                      n_records + part->n_records <= BATCH_RECORDS);
}

/* What a replay has to look up comes before any commit to the partition: a commit could put the same bytes where the name
 * of another part points to. Lock held. */
static NrdPart *first_to_verify(NrdLane *lane)
{
    for (GList *l = lane->may_verify ? lane->parts.head : NULL; l; l = l->next) {
        if (((const NrdPart *)l->data)->verify)
            return l->data;
    }
    lane->may_verify = false;
    return NULL;
}

/* Lock held. */
static void batch_take_part_locked(NrdLane *lane, NrdIngressBatch *batch, NrdPart *part)
{
    g_queue_unlink(&lane->parts, &part->link);
    part->taken = true;
    g_ptr_array_add(batch->parts, part);
    batch->verify = part->verify;
    batch->expected = part->expected;
    batch->note = MAX(batch->note, part->note);
}

void nrd_ingress_batch_take_locked(NrdDispatcher *d, NrdLane *lane, NrdIngressBatch *batch)
{
    size_t n_bytes = 0;
    uint64_t n_records = 0;
    *batch =
        (NrdIngressBatch){ .lane = lane, .target = { g_strdup(lane->topic), g_strdup(lane->id), lane->partition } };
    batch->dead = g_ptr_array_new();
    batch->parts = g_ptr_array_new();
    batch->entries = g_ptr_array_new_with_free_func(g_free);
    batch->slices = g_array_new(FALSE, FALSE, sizeof(NrdIngressSlice));
    NrdPart *to_verify = first_to_verify(lane);
    if (to_verify)
        batch_take_part_locked(lane, batch, to_verify);
    for (uint32_t i = 0; !to_verify && i < lane->n_ready; i++) {
        NrdPart *part = lane->parts.head->data;
        if (!fits(batch, part, n_bytes, n_records))
            break;
        batch_take_part_locked(lane, batch, part);
        n_bytes += part->size;
        n_records += part->n_records;
    }
    lane->n_running = batch->parts->len;
    lane->verifying = batch->verify;
}

/* ---- giving back ---- */

/* Those from index n on, to the head of the lane. Lock held. */
static void give_back_locked(NrdIngressBatch *batch, guint n)
{
    NrdLane *lane = batch->lane;
    GList *last = NULL;
    for (guint i = batch->parts->len; i > n; i--) {
        NrdPart *part = batch->parts->pdata[i - 1];
        if (batch->verify)
            nrd_lane_insert(lane, part, &last);
        else
            g_queue_push_head_link(&lane->parts, &part->link);
        part->taken = false;
    }
    g_ptr_array_set_size(batch->parts, (gint)n);
    lane->n_running = n;
}

void nrd_ingress_batch_put_back_locked(NrdIngressBatch *batch)
{
    give_back_locked(batch, 0);
}

/* ---- reading ---- */

/* The bytes of the part's entry: what is in memory stays there as long as the entry has parts. */
static int entry_bytes(NrdDispatcher *d, NrdIngressBatch *batch, const NrdPart *part, const uint8_t **ret_bytes)
{
    NrdPending *entry = part->entry;
    uint8_t *bytes = NULL;
    pthread_mutex_lock(&d->lock);
    *ret_bytes = entry->bytes;
    pthread_mutex_unlock(&d->lock);
    if (*ret_bytes)
        return 0;
    int rc = nrd_wal_read(d->options.wal, entry->segment, entry->pos, entry->size, &bytes);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&d->lock);
    if (!entry->bytes && d->memory_bytes + entry->size <= d->options.memory_bytes) {
        entry->bytes = bytes;
        d->memory_bytes += entry->size;
    } else {
        g_ptr_array_add(batch->entries, bytes);
    }
    pthread_mutex_unlock(&d->lock);
    *ret_bytes = bytes;
    return 0;
}

/* The lane has all but the first n parts back. */
static void keep_first(NrdDispatcher *d, NrdIngressBatch *batch, guint n)
{
    pthread_mutex_lock(&d->lock);
    give_back_locked(batch, n);
    pthread_mutex_unlock(&d->lock);
}

static int load_part(NrdDispatcher *d, NrdIngressBatch *batch, const NrdPart *part)
{
    const uint8_t *bytes = NULL;
    NrdEntryView view;
    NrdEntryPart data;
    int rc = entry_bytes(d, batch, part, &bytes);
    if (rc < 0)
        return rc;
    nrd_entry_view_own(bytes, &view);
    nrd_entry_part(&view, part->index, &data);
    NrdIngressSlice slice = { data.records, data.size, data.n_records };
    g_array_append_val(batch->slices, slice);
    return 0;
}

static void tell_loss(const NrdIngressBatch *batch, const NrdPart *part)
{
    nrd_counter_add(NRD_COUNTER_INGRESS_LOST, part->n_records);
    nrd_diag(NRD_LEVEL_ERROR, nrd_ingress_batch_place(batch),
             "%u record%s lost, damaged on disk before being committed: in %s", part->n_records,
             nrd_plural(part->n_records), part->entry->segment->path);
}

/* Damage is told, and the part is done with, alone: nobody will ever read it. Those before it are committed first, those
 * behind it are for the next batches. */
static int load(NrdDispatcher *d, NrdIngressBatch *batch)
{
    for (guint i = 0; i < batch->parts->len; i++) {
        const NrdPart *part = batch->parts->pdata[i];
        int rc = load_part(d, batch, part);
        if (rc < 0 && rc != -EBADMSG)
            return rc;
        if (rc == 0)
            continue;
        batch->damaged = i == 0;
        keep_first(d, batch, MAX(i, 1));
        if (batch->damaged)
            tell_loss(batch, part);
    }
    return 0;
}

/* ---- a pass ---- */

static NrdIngressResult look_up(NrdDispatcher *d, NrdIngressBatch *batch)
{
    const NrdIngressOps *ops = &d->options.ops;
    bool there = false;
    NrdIngressResult result = ops->present(ops->user_data, &batch->target,
                                           &g_array_index(batch->slices, NrdIngressSlice, 0), batch->expected, &there);
    pthread_mutex_lock(&d->lock);
    /* the name may have been taken back meanwhile */
    batch->was_there = there && ((NrdPart *)batch->parts->pdata[0])->verify;
    pthread_mutex_unlock(&d->lock);
    return result;
}

NrdIngressResult nrd_ingress_batch_pass(NrdDispatcher *d, NrdIngressBatch *batch)
{
    const NrdIngressOps *ops = &d->options.ops;
    int rc = load(d, batch);
    if (rc < 0) {
        nrd_diag(NRD_LEVEL_WARNING, nrd_ingress_batch_place(batch),
                 "records could not be read back from the ingress WAL: %s", g_strerror(-rc));
        return NRD_INGRESS_FAILED;
    }
    if (batch->damaged)
        return NRD_INGRESS_DONE;
    if (batch->note > 0)
        rc = d->options.checkpoint(d->options.user_data, batch->note);
    if (rc < 0)
        return nrd_error_is_full(rc) ? NRD_INGRESS_NO_ROOM : NRD_INGRESS_FAILED;
    NrdIngressResult result = batch->verify ? look_up(d, batch) : NRD_INGRESS_DONE;
    if (result != NRD_INGRESS_DONE)
        return result;
    if (batch->verify && !batch->was_there) {
        batch->again = true;
        return NRD_INGRESS_DONE;
    }
    if (batch->was_there) {
        batch->first = batch->expected;
        nrd_counter_add(NRD_COUNTER_INGRESS_RECOGNIZED, 1);
        return NRD_INGRESS_DONE;
    }
    return ops->commit(ops->user_data, &batch->target, (const NrdIngressSlice *)(const void *)batch->slices->data,
                       batch->slices->len, &batch->first);
}

void nrd_ingress_batch_clear(NrdIngressBatch *batch)
{
    for (guint i = 0; i < batch->dead->len; i++)
        nrd_pending_free(batch->dead->pdata[i]);
    g_ptr_array_unref(batch->dead);
    g_free((char *)batch->target.topic);
    g_free((char *)batch->target.id);
    g_ptr_array_unref(batch->parts);
    g_ptr_array_unref(batch->entries);
    g_array_unref(batch->slices);
}
