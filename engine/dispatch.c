/* What the ingress needs of the engine: commits to partitions, a look at what is there already, and whether a topic is
 * gone. The dispatcher commits through the same rounds as everybody who produces to the partition, so it shares their
 * syncs. */
#include "engine/dispatch.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/pool.h"
#include "engine/ingress/ingress.h"

#include <errno.h>

#define FIRST_RETRY_MS                                                                                                 \
    100 /* of a WAL that could not be read, when somebody asks for it; each attempt reads all of it */
#define MAX_RETRY_MS 30000
#define DRAIN_MS 1500 /* at a stop: what is not dispatched by then, the next start replays */

/* The topic is not there under this incarnation: only the metastore says whether that is for good. */
static NrdIngressResult gone_or_away(NrdEngine *engine, const NrdIngressTarget *target)
{
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    int rc = nrd_metastore_get(engine->meta, target->topic, &record, &why);
    bool gone = rc == -ENOENT || (rc == 0 && strcmp(record->id, target->id) != 0);
    nrd_topic_record_free(record);
    return gone ? NRD_INGRESS_GONE : NRD_INGRESS_AWAY;
}

/* The topic, if it is this incarnation and in service; the caller unrefs it. */
static NrdTopic *find_topic(NrdEngine *engine, const NrdIngressTarget *target)
{
    NrdTopic *topic = NULL;
    if (nrd_topic_find(engine, target->topic, &topic) < 0)
        return NULL;
    if (strcmp(topic->id, target->id) == 0 && !nrd_topic_deleted(topic))
        return topic;
    nrd_topic_unref(topic);
    return NULL;
}

/* Whether an error of a partition is only that its topic, or the engine, goes away. */
static bool goes_away(int rc)
{
    return rc == -EIDRM || rc == -ENODEV;
}

/* Pins the partition. DONE: the caller unpins it and unrefs its topic. */
static NrdIngressResult enter(NrdEngine *engine, const NrdIngressTarget *target, NrdPartition **ret_partition)
{
    NrdTopic *topic = find_topic(engine, target);
    if (!topic)
        return gone_or_away(engine, target);
    NrdPartition *partition = nrd_topic_partition(topic, target->partition);
    NrdIngressResult result = nrd_topic_lost(topic) ? NRD_INGRESS_AWAY
                              : partition           ? NRD_INGRESS_DONE
                                                    : NRD_INGRESS_POISONED;
    if (result == NRD_INGRESS_DONE) {
        int rc = nrd_partition_pin(partition);
        g_autofree char *fault = rc < 0 ? nrd_topic_fault(topic) : NULL; /* then a sibling is no better */
        if (rc < 0)
            result = goes_away(rc)           ? gone_or_away(engine, target)
                     : fault                 ? NRD_INGRESS_AWAY
                     : nrd_error_is_full(rc) ? NRD_INGRESS_NO_ROOM
                                             : NRD_INGRESS_FAILED;
    }
    if (result == NRD_INGRESS_DONE)
        *ret_partition = partition;
    else
        nrd_topic_unref(topic);
    return result;
}

static void leave(NrdPartition *partition)
{
    nrd_partition_unpin(partition);
    nrd_topic_unref(partition->topic);
}

static void add_records(NrdRecordBatch *batch, NrdIngressSlice slice)
{
    NrdEntryRecord record;
    while (nrd_entry_next_record(&slice.records, &slice.size, &record))
        nrd_record_batch_add(batch, record.key, record.key_size, record.payload, record.payload_size);
}

static NrdIngressResult commit(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slices,
                               size_t n_slices, uint64_t *ret_first)
{
    NrdPartition *partition = NULL;
    NrdIngressResult result = enter(user_data, target, &partition);
    if (result != NRD_INGRESS_DONE)
        return result;
    NrdRecordBatch *batch = nrd_record_batch_new();
    for (size_t i = 0; i < n_slices; i++)
        add_records(batch, slices[i]);
    int rc = nrd_produce_commit(partition, batch, ret_first);
    if (rc < 0 && (atomic_load(&partition->closed) || goes_away(rc)))
        result = gone_or_away(user_data, target); /* if not gone, the next pass finds what was made in its place */
    else if (nrd_error_is_full(rc))
        result = NRD_INGRESS_NO_ROOM;
    else if (rc < 0)
        result = nrd_log_check(atomic_load(&partition->log)) < 0 ? NRD_INGRESS_POISONED : NRD_INGRESS_FAILED;
    leave(partition);
    return result;
}

/* ---- what is there ---- */

/* Damage counts as not there: committing it again brings it back. What retention has taken was there. */
static NrdIngressResult compare(NrdLog *log, NrdIngressSlice slice, uint64_t offset, bool *ret_same)
{
    NrdLogCursor *cursor = nrd_log_cursor_new(log);
    NrdEntryRecord record;
    bool same = true;
    int rc = 0;
    for (; same && rc == 0 && nrd_entry_next_record(&slice.records, &slice.size, &record); offset++) {
        NrdRecordView view;
        uint64_t next;
        if (offset < nrd_log_oldest(log))
            continue;
        rc = nrd_log_cursor_read(cursor, offset, &view, &next);
        same = rc == 0 && view.key_size == record.key_size && view.payload_size == record.payload_size &&
               (view.key_size == 0 || memcmp(view.key, record.key, view.key_size) == 0) &&
               (view.payload_size == 0 || memcmp(view.payload, record.payload, view.payload_size) == 0);
    }
    nrd_log_cursor_free(cursor);
    if (rc < 0 && rc != -ENOENT && rc != -EBADMSG)
        return NRD_INGRESS_FAILED;
    *ret_same = same;
    return NRD_INGRESS_DONE;
}

static void warm(void *user_data, const NrdIngressTarget *target)
{
    NrdPartition *partition = NULL;
    if (enter(user_data, target, &partition) == NRD_INGRESS_DONE)
        leave(partition);
}

/* A crash in the middle of a commit may have left the records above the high watermark: they are there, since the next
 * commit would expose them. */
static NrdIngressResult look_for(NrdPartition *partition, const NrdIngressSlice *slice, uint64_t offset,
                                 bool *ret_present)
{
    if (nrd_produce_expose(partition) < 0)
        return NRD_INGRESS_FAILED;
    NrdLog *log = atomic_load(&partition->log);
    uint64_t hwm = nrd_log_hwm(log);
    if (hwm >= slice->n_records && hwm - slice->n_records >= offset)
        return compare(log, *slice, offset, ret_present);
    *ret_present = false;
    return NRD_INGRESS_DONE;
}

static NrdIngressResult present(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slice,
                                uint64_t offset, bool *ret_present)
{
    NrdPartition *partition = NULL;
    NrdIngressResult result = enter(user_data, target, &partition);
    if (result != NRD_INGRESS_DONE)
        return result;
    result = look_for(partition, slice, offset, ret_present);
    leave(partition);
    return result;
}

/* ---- memory only ---- */

bool nrd_partition_seems_well(NrdPartition *partition)
{
    if (!nrd_partition_pin_if_open(partition))
        return !nrd_partition_is_out(partition);
    bool well = nrd_log_check(atomic_load(&partition->log)) == 0;
    nrd_partition_unpin_quietly(partition);
    return well;
}

bool nrd_topic_well_sibling(NrdTopic *topic, uint32_t number, uint32_t *ret_number)
{
    uint32_t n = nrd_topic_n_partitions(topic);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t other = (number + i) % n;
        if (!nrd_partition_seems_well(nrd_topic_partition(topic, other)))
            continue;
        *ret_number = other;
        return true;
    }
    return false;
}

static bool sibling(void *user_data, const NrdIngressTarget *target, uint32_t *ret_partition)
{
    NrdTopic *topic = find_topic(user_data, target);
    bool found = topic && nrd_topic_well_sibling(topic, target->partition, ret_partition);
    nrd_topic_unref(topic);
    return found;
}

static bool next_offset(void *user_data, const NrdIngressTarget *target, uint64_t *ret_offset)
{
    NrdTopic *topic = find_topic(user_data, target);
    NrdPartition *partition = topic ? nrd_topic_partition(topic, target->partition) : NULL;
    NrdPicture picture;
    bool known = false;
    if (partition && nrd_partition_pin_if_open(partition)) {
        nrd_log_stats(atomic_load(&partition->log), &picture.stats);
        nrd_partition_unpin_quietly(partition);
        known = true;
    } else if (partition) {
        known = nrd_partition_picture(partition, &picture);
    }
    if (known)
        *ret_offset = picture.stats.next_offset;
    nrd_topic_unref(topic);
    return known;
}

/* ---- life ---- */

/* A WAL that cannot be read takes producing to whole topics out of service, and nothing else; it changes nothing on the
 * disk. Producers of partitions that were opened since the first attempt have claimed nothing: no offset can be named. */
static int try_open(NrdEngine *engine, bool again)
{
    NrdIngress *ingress = NULL;
    NrdIngressOptions options = {
        .root_fd = engine->root_fd,
        .ops = { commit, warm, present, sibling, next_offset, engine },
        .nameless = again,
    };
    int rc = nrd_ingress_open(&options, &ingress);
    if (rc < 0)
        return rc;
    engine->ingress = ingress; /* before a worker runs */
    if (atomic_load(&engine->started))
        nrd_ingress_start(ingress);
    if (again)
        nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "the ingress WAL could be read now: topics can be produced to again");
    return 0;
}

int nrd_dispatch_open(NrdEngine *engine)
{
    int rc = engine->read_only ? 0 : try_open(engine, false);
    if (rc == 0 || rc == -EAGAIN)
        return rc;
    engine->ingress_delay_ms = FIRST_RETRY_MS;
    engine->ingress_retry_ms = nrd_clock_mono_ms() + FIRST_RETRY_MS;
    return 0;
}

void nrd_dispatch_start(NrdEngine *engine)
{
    pthread_mutex_lock(&engine->ingress_open);
    atomic_store(&engine->started, true);
    if (engine->ingress)
        nrd_ingress_start(engine->ingress);
    pthread_mutex_unlock(&engine->ingress_open);
}

static void try_again(NrdEngine *engine)
{
    int rc = try_open(engine, true);
    if (rc == 0)
        return;
    if (rc == -EAGAIN) { /* the rest is told by the ingress */
        g_autofree char *why = nrd_pool_why_none("records that topics are produced to", NRD_START_THREADS);
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "%s", why);
    }
    engine->ingress_delay_ms = MIN(engine->ingress_delay_ms * 2, MAX_RETRY_MS);
    engine->ingress_retry_ms = nrd_clock_mono_ms() + engine->ingress_delay_ms;
}

NrdIngress *nrd_dispatch_ingress(NrdEngine *engine)
{
    if (engine->ingress || engine->read_only)
        return engine->ingress;
    pthread_mutex_lock(&engine->ingress_open);
    if (!engine->ingress && nrd_clock_mono_ms() >= engine->ingress_retry_ms)
        try_again(engine);
    pthread_mutex_unlock(&engine->ingress_open);
    return engine->ingress;
}

int nrd_dispatch_close(NrdEngine *engine)
{
    NrdIngress *ingress = engine->ingress;
    engine->ingress = NULL;
    return nrd_ingress_close(ingress, DRAIN_MS);
}

int nrd_local_topic_produce_error(NrdTopic *topic)
{
    NrdIngress *ingress = topic->engine->ingress;
    NrdIngressStats stats;
    if (!ingress)
        return 0;
    nrd_ingress_stats(ingress, &stats);
    return stats.error < 0 ? stats.error : nrd_ingress_refusal(ingress, topic->id);
}
