/* Topics: their life (open, close, remove, delete), and the handles that hold them. topic_settings.c has what they are set to. */
#include "engine/topic.h"
#include "engine/consume.h"
#include "engine/fan.h"
#include "engine/housekeeping.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/cond.h"
#include "engine/base/errors.h"
#include "engine/ingress/ingress.h"
#include "engine/io/io.h"
#include "engine/meta/incarnation.h"

#include <errno.h>

#define RELEASE_WAIT_MS 200 /* how long a removal waits for handles that are being released */

NrdTopic *nrd_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, char *fault)
{
    NrdTopic *topic = g_new0(NrdTopic, 1);
    topic->table = &nrd_local_table;
    topic->refs = 1;
    topic->engine = engine;
    topic->name = g_strdup(name);
    topic->record = record;
    topic->fault = fault;
    atomic_init(&topic->delayed, nrd_topic_record_is_delayed(record));
    topic->lost = fault != NULL;
    if (record)
        g_strlcpy(topic->id, record->id, sizeof topic->id);
    topic->partitions = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_partition_free);
    topic->retired = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_partition_free);
    nrd_topic_line_init(topic);
    pthread_mutex_init(&topic->guard, NULL);
    pthread_mutex_init(&topic->lock, NULL);
    g_mutex_init(&topic->produce_lock);
    nrd_cond_init(&topic->released);
    return topic;
}

NrdTopic *nrd_local_topic_ref(NrdTopic *topic)
{
    g_atomic_int_inc(&topic->refs);
    return topic;
}

void nrd_local_topic_unref(NrdTopic *topic)
{
    if (!topic || !g_atomic_int_dec_and_test(&topic->refs))
        return;
    g_ptr_array_unref(topic->partitions);
    g_ptr_array_unref(topic->retired);
    nrd_topic_record_free(topic->record);
    nrd_line_clear(&topic->line);
    pthread_cond_destroy(&topic->released);
    pthread_mutex_destroy(&topic->lock);
    g_mutex_clear(&topic->produce_lock);
    pthread_mutex_destroy(&topic->guard);
    g_free(topic->fault);
    g_free(topic->refusal);
    g_free(topic->name);
    g_free(topic);
}

/* ---- opening and closing ---- */

int nrd_topic_make_folders(NrdTopic *topic, const NrdTopicConfig *config)
{
    int rc = 0;
    for (uint32_t number = topic->partitions->len; rc == 0 && number < (uint32_t)config->partitions; number++) {
        g_autofree char *dir = g_strdup_printf("topics/%s/p%05u", topic->name, number);
        rc = nrd_io_make_dir(topic->engine->root_fd, dir);
    }
    if (rc < 0)
        nrd_topic_refuse(topic, NRD_NO_PARTITION,
                         "folders for new partitions could not be made in topics/%s of the data directory: %s; nothing "
                         "was changed",
                         topic->name, rc == -ENOENT ? "it is missing: put it back" : g_strerror(-rc));
    return nrd_error_of_disk(rc);
}

void nrd_topic_add_partitions(NrdTopic *topic, const NrdTopicConfig *config)
{
    for (uint32_t number = topic->partitions->len; number < (uint32_t)config->partitions; number++) {
        NrdPartition *partition = nrd_partition_new(topic, number);
        pthread_mutex_lock(&topic->lock);
        g_ptr_array_add(topic->partitions, partition);
        pthread_mutex_unlock(&topic->lock);
    }
}

int nrd_topic_open(NrdTopic *topic, bool make_folders)
{
    bool fresh;
    int rc = nrd_topic_claim(topic, &fresh); /* no partition is in memory yet: nothing to retire */
    if (rc == 0 && make_folders)
        rc = nrd_topic_make_folders(topic, &topic->record->config);
    nrd_topic_add_partitions(topic,
                             &topic->record->config); /* also when it is out of service: their next use tries again */
    return rc;
}

int nrd_topic_close(NrdTopic *topic, bool commit)
{
    int first_error = 0;
    pthread_mutex_lock(&topic->guard);
    for (guint i = 0; i < topic->partitions->len; i++) {
        NrdPartition *partition = topic->partitions->pdata[i];
        if (commit)
            nrd_produce_flush_all(partition);
        int rc = nrd_partition_close(partition);
        if (rc < 0 && first_error == 0)
            first_error = rc;
    }
    pthread_mutex_unlock(&topic->guard);
    return first_error;
}

void nrd_topic_unmake(NrdTopic *topic)
{
    atomic_store(&topic->deleted, true);
    (void)!nrd_topic_close(topic, false);
    int rc = nrd_incarnation_purge(topic->engine->root_fd, topic->name, topic->id);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(topic),
                 "its folder could not be removed: %s; the next start tries again", g_strerror(-rc));
}

void nrd_topic_interrupt(NrdTopic *topic)
{
    nrd_line_interrupt(&topic->line, nrd_topic_deleted(topic) ? -EIDRM : -ENODEV);
    for (uint32_t i = 0; i < nrd_topic_n_partitions(topic); i++)
        nrd_consume_interrupt(nrd_topic_partition(topic, i), nrd_topic_deleted(topic) ? -EIDRM : -ENODEV);
}

/* ---- removing ---- */

/* -ENOTEMPTY when there are records, or nobody can tell; another error when a partition cannot be looked at now: what is
 * not known is never taken as empty. May open a partition to see. Blocks. */
static int check_empty(NrdTopic *topic)
{
    if (topic->engine->ingress && nrd_ingress_holds(topic->engine->ingress, topic->id))
        return -ENOTEMPTY; /* acknowledged, on their way to a partition */
    for (uint32_t i = 0; i < nrd_topic_n_partitions(topic); i++) {
        NrdPartitionInfo info;
        int rc = nrd_partition_learn(nrd_topic_partition(topic, i));
        if (rc < 0)
            return rc;
        nrd_partition_info(nrd_topic_partition(topic, i), &info);
        bool retains = info.fault || info.next_offset > info.oldest_offset;
        nrd_partition_info_clear(&info);
        if (retains)
            return -ENOTEMPTY;
    }
    return 0;
}

/* Marks the topic deleted unless handles are open, so that none can be opened any more. */
static int mark_unless_held(NrdTopic *topic)
{
    struct timespec until = nrd_cond_end(RELEASE_WAIT_MS);
    pthread_mutex_lock(&topic->lock);
    int rc = 0;
    while (topic->n_holds > 0 && rc == 0)
        rc = pthread_cond_timedwait(&topic->released, &topic->lock, &until);
    rc = topic->n_holds > 0 ? -EBUSY : 0;
    if (rc == 0 && atomic_exchange(&topic->deleted, true))
        rc = -EIDRM;
    pthread_mutex_unlock(&topic->lock);
    return rc;
}

static void forget(NrdTopic *topic)
{
    NrdEngine *engine = topic->engine;
    pthread_mutex_lock(&engine->topics_lock);
    bool known = g_hash_table_lookup(engine->topics, topic->name) == topic;
    if (known)
        g_hash_table_steal(engine->topics, topic->name);
    pthread_mutex_unlock(&engine->topics_lock);
    if (known)
        nrd_topic_unref(topic);
}

/* After the record is durably gone: nothing of the topic is served any more, whatever fails from here on. What a crash
 * leaves of the folder the next start sweeps. Engine admin held. */
static void bury(NrdTopic *topic)
{
    nrd_topic_ref(topic);
    forget(topic);
    nrd_topic_interrupt(topic); /* nobody waits for the closes */
    (void)!nrd_topic_close(topic, false);
    if (topic->engine->ingress)
        nrd_ingress_forget(topic->engine->ingress, topic->id);
    int rc = nrd_incarnation_purge(topic->engine->root_fd, topic->name, topic->id);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(topic),
                 "the topic is deleted, but its files could not be removed: %s; tried again later", g_strerror(-rc));
    if (rc < 0)
        nrd_housekeeping_note_leftovers(topic->engine->housekeeping);
    else
        nrd_diag(NRD_LEVEL_NOTICE, nrd_topic_place(topic), "deleted incarnation %s", topic->id);
    nrd_topic_unref(topic);
}

static void tell_why_record_stays(NrdTopic *topic, int error)
{
    g_autofree char *fault = nrd_topic_lost(topic) ? nrd_topic_fault(topic) : NULL;
    g_autofree char *why = fault ? NULL : nrd_metastore_why_not(topic->engine->meta, topic->name, error);
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "the topic was not deleted: %s", fault ? fault : why);
}

/* A record that is neither there nor gone takes its topic out of service. Engine admin held. */
static int remove_record(NrdTopic *topic)
{
    NrdMetastore *meta = topic->engine->meta;
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    int rc = nrd_metastore_remove(meta, topic->name, topic->id);
    if (rc < 0)
        tell_why_record_stays(topic, rc);
    if (rc < 0 && nrd_metastore_get(meta, topic->name, &record, &why) == -EIO) {
        pthread_mutex_lock(&topic->guard);
        nrd_topic_set_fault(topic, why, true);
        pthread_mutex_unlock(&topic->guard);
        (void)!nrd_topic_close(topic, false);
    }
    nrd_topic_record_free(record);
    return rc;
}

static int remove_admin_held(NrdTopic *topic)
{
    if (nrd_topic_deleted(topic))
        return -ENOENT;
    int rc = nrd_topic_retry(topic);
    if (rc == 0)
        rc = check_empty(topic);
    if (rc == 0)
        rc = mark_unless_held(topic);
    if (rc < 0)
        return rc;
    /* Nobody can produce any more; somebody may have, between the look above and the mark. */
    rc = check_empty(topic);
    if (rc == 0)
        rc = remove_record(topic);
    if (rc < 0) {
        atomic_store(&topic->deleted, false);
        return rc;
    }
    nrd_family_leave(topic);
    bury(topic);
    return 0;
}

int nrd_local_topic_remove(NrdTopic *topic)
{
    NrdEngine *engine = topic->engine;
    if (engine->read_only)
        return -EROFS;
    pthread_mutex_lock(&engine->admin);
    int rc = remove_admin_held(topic);
    pthread_mutex_unlock(&engine->admin);
    nrd_topic_refuse_removal(topic, rc, topic->id);
    return rc;
}

int nrd_local_topic_delete(NrdTopic *topic, const char *id)
{
    NrdEngine *engine = topic->engine;
    if (engine->read_only)
        return -EROFS;
    if (topic->id[0] == '\0' || strcmp(id, topic->id) != 0)
        return -EINVAL;
    pthread_mutex_lock(&engine->admin);
    int rc = nrd_topic_deleted(topic) ? -EIDRM : remove_record(topic);
    if (rc == 0) {
        atomic_store(&topic->deleted, true);
        nrd_family_leave(topic);
        bury(topic);
    }
    pthread_mutex_unlock(&engine->admin);
    return rc;
}

int nrd_local_topic_hold(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int rc = atomic_load(&topic->deleted) ? -EIDRM : 0;
    if (rc == 0)
        topic->n_holds++;
    pthread_mutex_unlock(&topic->lock);
    return rc;
}

void nrd_local_topic_release(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    g_assert(topic->n_holds > 0);
    if (--topic->n_holds == 0)
        pthread_cond_signal(&topic->released);
    pthread_mutex_unlock(&topic->lock);
}

/* ---- what it is ---- */

const char *nrd_local_topic_name(const NrdTopic *topic)
{
    return topic->name;
}

const char *nrd_local_topic_incarnation(const NrdTopic *topic)
{
    return topic->id;
}

bool nrd_local_topic_deleted(NrdTopic *topic)
{
    return atomic_load(&topic->deleted);
}

uint32_t nrd_local_topic_n_partitions(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    uint32_t n = topic->partitions->len;
    pthread_mutex_unlock(&topic->lock);
    return n;
}

NrdPartition *nrd_local_topic_partition(NrdTopic *topic, uint32_t number)
{
    pthread_mutex_lock(&topic->lock);
    NrdPartition *partition = number < topic->partitions->len ? topic->partitions->pdata[number] : NULL;
    pthread_mutex_unlock(&topic->lock);
    return partition;
}

int64_t nrd_local_topic_created_ms(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->created_ms : 0;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}
