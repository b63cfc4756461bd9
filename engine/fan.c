/* What the fan-out needs of the engine: reading a partition of the parent, committing to one of the child, and who
 * tells it that there is something. Copies are committed through the same rounds as everybody's who produces to the
 * partition, so they share their syncs. */
#include "engine/fan.h"
#include "engine/dispatch.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/errors.h"
#include "engine/fanout/fanout.h"
#include "engine/ingress/ingress.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(NRD_FANOUT_MAX_PARTITIONS >= 1024, "as many partitions as a topic may have");

/* ---- the parent ---- */

static void release(void *topic)
{
    nrd_topic_unref(topic);
}

static uint32_t n_partitions(void *topic)
{
    return nrd_topic_n_partitions(topic);
}

/* A partition that was retired stays allocated as long as its topic: its address is no other one's. */
static uintptr_t identity(void *parent, uint32_t number)
{
    return (uintptr_t)nrd_topic_partition(parent, number);
}

static bool bounds_if_open(NrdPartition *partition, uint64_t *ret_oldest, uint64_t *ret_hwm)
{
    if (!nrd_partition_pin_if_open(partition))
        return false;
    NrdLog *log = atomic_load(&partition->log);
    *ret_hwm = nrd_log_hwm(log);
    *ret_oldest = nrd_log_oldest(log);
    nrd_partition_unpin_quietly(partition);
    return true;
}

static bool bounds_in_memory(NrdPartition *partition, uint64_t *ret_oldest, uint64_t *ret_hwm)
{
    NrdPicture picture;
    if (bounds_if_open(partition, ret_oldest, ret_hwm))
        return true;
    if (!nrd_partition_picture(partition, &picture))
        return false;
    *ret_oldest = picture.stats.oldest_offset;
    *ret_hwm = picture.stats.hwm;
    return true;
}

/* A partition that was closed is not opened to see that there is nothing; one that could not be opened is tried again. */
static int bounds(void *parent, uint32_t number, bool may_block, uint64_t *ret_oldest, uint64_t *ret_hwm)
{
    NrdPartition *partition = nrd_topic_partition(parent, number);
    if (!partition)
        return -EAGAIN;
    if (bounds_in_memory(partition, ret_oldest, ret_hwm))
        return 0;
    if (!may_block)
        return -EAGAIN;
    int rc = nrd_partition_learn(partition);
    if (rc < 0 || bounds_in_memory(partition, ret_oldest, ret_hwm))
        return rc;
    rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    bool open = bounds_if_open(partition, ret_oldest, ret_hwm); /* unless it was closed for good meanwhile */
    nrd_partition_unpin_quietly(partition);
    return open ? 0 : nrd_partition_closed_error(partition);
}

typedef struct Source {
    NrdPartition *partition; /* pinned */
    NrdLogCursor *cursor;
} Source;

static int open_source(void *parent, uint32_t number, void **ret_source)
{
    NrdPartition *partition = nrd_topic_partition(parent, number);
    int rc = partition ? nrd_partition_pin(partition) : -EIO;
    if (rc < 0)
        return rc;
    Source *source = g_new(Source, 1);
    *source = (Source){ partition, nrd_log_cursor_new(atomic_load(&partition->log)) };
    *ret_source = source;
    return 0;
}

static void close_source(void *data)
{
    Source *source = data;
    nrd_log_cursor_free(source->cursor);
    nrd_partition_unpin(source->partition);
    g_free(source);
}

static int read_record(void *data, uint64_t offset, NrdFanoutRecord *ret_record, uint64_t *ret_next)
{
    NrdRecordView view;
    int rc = nrd_log_cursor_read(((Source *)data)->cursor, offset, &view, ret_next);
    if (rc == 0)
        *ret_record = (NrdFanoutRecord){ view.commit_ms, view.key, view.key_size, view.payload, view.payload_size };
    return rc;
}

static int find_time(void *data, int64_t time_ms, uint64_t *ret_offset)
{
    return nrd_log_find_time(atomic_load(&((Source *)data)->partition->log), time_ms, ret_offset);
}

/* ---- the child ---- */

static bool well(void *child, uint32_t number)
{
    NrdPartition *partition = nrd_topic_partition(child, number);
    return partition && nrd_partition_seems_well(partition);
}

static bool sibling(void *child, uint32_t number, uint32_t *ret_number)
{
    return nrd_topic_well_sibling(child, number, ret_number);
}

/* Whoever commits beside the dispatcher says so first: see engine/ingress/ingress.h. */
static int claim(void *child, uint32_t number)
{
    const NrdTopic *topic = child;
    return topic->engine->ingress ? nrd_ingress_claim(topic->engine->ingress, topic->id, number) : 0;
}

static void unclaim(void *child, uint32_t number)
{
    const NrdTopic *topic = child;
    if (topic->engine->ingress)
        nrd_ingress_unclaim(topic->engine->ingress, topic->id, number);
}

static void *batch_new(void)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    batch->copies = true;
    return batch;
}

static void batch_free(void *batch)
{
    nrd_record_batch_free(batch);
}

static void batch_add(void *batch, const NrdFanoutRecord *record)
{
    nrd_record_batch_add(batch, record->key, record->key_size, record->payload, record->payload_size);
}

static int commit(void *child, uint32_t number, void *batch)
{
    NrdPartition *partition = nrd_topic_partition(child, number);
    uint64_t first;
    int rc = partition ? nrd_partition_pin(partition) : -EIO;
    if (rc < 0) {
        nrd_record_batch_free(batch);
        return rc;
    }
    rc = nrd_produce_commit(partition, batch, &first);
    nrd_partition_unpin(partition);
    return rc;
}

/* ---- life ---- */

int nrd_fan_open(NrdEngine *engine)
{
    NrdFanoutOptions options = {
        .root_fd = engine->root_fd,
        .frozen = engine->read_only,
        .ops = {
            .release = release,
            .n_partitions = n_partitions,
            .identity = identity,
            .bounds = bounds,
            .open = open_source,
            .close = close_source,
            .read = read_record,
            .find_time = find_time,
            .key_partition = nrd_key_partition,
            .well = well,
            .sibling = sibling,
            .claim = claim,
            .unclaim = unclaim,
            .batch_new = batch_new,
            .batch_free = batch_free,
            .batch_add = batch_add,
            .commit = commit,
        },
    };
    engine->fanout = nrd_fanout_new(&options);
    return engine->fanout ? 0 : -EAGAIN;
}

void nrd_fan_close(NrdEngine *engine)
{
    nrd_fanout_close(engine->fanout);
}

/* ---- links ---- */

static NrdCursorOwner owner_of(const NrdChildRecord *child)
{
    return (NrdCursorOwner){ child->epoch, g_ascii_strtoull(child->id, NULL, 16) };
}

/* A partition that cannot be opened now gets no cursor, and so starts with what was committed since the attach. */
static int prepare_partition(NrdTopic *parent, const NrdChildRecord *child, NrdPartition *partition)
{
    uint64_t oldest = 0, hwm = 0;
    NrdCursorOwner owner = owner_of(child);
    int rc = nrd_partition_learn_guarded(partition);
    if (nrd_error_is_shortage(rc) || rc == -EIDRM || rc == -ENODEV)
        return rc;
    if (rc < 0 || !bounds_in_memory(partition, &oldest, &hwm)) {
        nrd_diag(NRD_LEVEL_WARNING, nrd_partition_place(partition),
                 "the partition is out of service; what is committed to it from now on will be copied to %s",
                 child->name);
        return 0;
    }
    return nrd_fanout_prepare(parent->engine->fanout, parent, parent->name, partition->number, child->name, &owner,
                              hwm);
}

int nrd_fan_prepare(NrdTopic *parent, const NrdChildRecord *child)
{
    int rc = 0;
    for (guint i = 0; rc == 0 && i < parent->partitions->len; i++)
        rc = prepare_partition(parent, child, parent->partitions->pdata[i]);
    return rc;
}

void nrd_fan_start(NrdTopic *parent, NrdTopic *child, const NrdChildRecord *link, int64_t delay_ms)
{
    NrdFanoutLink options = {
        .parent = nrd_topic_ref(parent),
        .child = nrd_topic_ref(child),
        .parent_name = parent->name,
        .child_name = link->name,
        .owner = owner_of(link),
        .attached_ms = link->attached_ms,
        .delay_ms = delay_ms,
    };
    atomic_fetch_add(&parent->n_links, 1); /* before its cursors look, so that no commit goes unseen */
    nrd_fanout_add(parent->engine->fanout, &options);
}

void nrd_fan_stop(NrdTopic *parent, const char *child)
{
    if (nrd_fanout_stop(parent->engine->fanout, parent, child))
        atomic_fetch_sub(&parent->n_links, 1);
    else
        nrd_fan_forget(parent, child);
}

void nrd_fan_forget(NrdTopic *parent, const char *child)
{
    if (!parent->engine->read_only)
        nrd_fanout_forget(parent->engine->fanout, parent, parent->name, nrd_topic_n_partitions(parent), child);
}

/* ---- news ---- */

void nrd_fan_committed(NrdPartition *partition)
{
    uint64_t oldest = 0, hwm = 0;
    NrdTopic *topic = partition->topic;
    if (atomic_load(&topic->n_links) == 0)
        return;
    (void)!bounds_in_memory(partition, &oldest, &hwm);
    nrd_fanout_notify(topic->engine->fanout, topic, partition->number, hwm);
}

void nrd_fan_well(NrdPartition *partition)
{
    nrd_fan_committed(partition);
    nrd_fanout_kick(partition->topic->engine->fanout, partition->topic);
}

int nrd_local_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info)
{
    NrdFanoutInfo info;
    if (!nrd_fanout_info(parent->engine->fanout, parent, child, &info))
        return -ENOENT;
    *ret_info = (NrdChildInfo){ info.delay_ms, info.attached_ms, info.lag, info.n_copied, info.n_dropped, NULL };
    ret_info->rows = g_array_sized_new(FALSE, FALSE, sizeof(NrdChildRow), info.rows->len);
    for (guint i = 0; i < info.rows->len; i++) {
        const NrdFanoutRow *from = &g_array_index(info.rows, NrdFanoutRow, i);
        NrdChildRow row = { from->partition, from->cursor, from->hwm, from->due_ms, from->n_failed, from->error };
        g_array_append_val(ret_info->rows, row);
    }
    g_array_unref(info.rows);
    return 0;
}

void nrd_child_info_clear(NrdChildInfo *info)
{
    g_clear_pointer(&info->rows, g_array_unref);
}
