/* What a topic is set to: its record, owner and modes of its files, its settings, and how a change comes into force. */
#include "engine/consume.h"
#include "engine/fan.h"
#include "engine/housekeeping.h"
#include "engine/partition.h"
#include "engine/topic.h"

#include <errno.h>

/* ---- changing the record ---- */

void nrd_topic_swap_record(NrdTopic *topic, NrdTopicRecord *next)
{
    pthread_mutex_lock(&topic->lock);
    NrdTopicRecord *old = topic->record;
    topic->record = next;
    atomic_store(&topic->delayed, nrd_topic_record_is_delayed(next));
    pthread_mutex_unlock(&topic->lock);
    nrd_topic_record_free(old);
}

int nrd_topic_replace_record(NrdTopic *topic, NrdTopicRecord *next)
{
    int rc = nrd_metastore_update(topic->engine->meta, next);
    if (rc == -ENOENT || rc == -ESTALE) { /* a deletion was faster */
        nrd_topic_record_free(next);
        return -EIDRM;
    }
    if (rc < 0) {
        g_autofree char *why = nrd_metastore_why_not(topic->engine->meta, topic->name, rc);
        nrd_topic_refuse(topic, NRD_NO_PARTITION, "%s; nothing was changed", why);
        nrd_topic_record_free(next);
        return rc;
    }
    nrd_topic_swap_record(topic, next);
    return 0;
}

int nrd_topic_copy_record(NrdTopic *topic, NrdTopicRecord **ret_record)
{
    if (topic->engine->read_only)
        return -EROFS;
    pthread_mutex_lock(&topic->lock);
    int rc = atomic_load(&topic->deleted) ? -EIDRM : topic->record ? 0 : -EIO;
    if (rc == 0)
        *ret_record = nrd_topic_record_copy(topic->record);
    pthread_mutex_unlock(&topic->lock);
    return rc;
}

void nrd_local_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr)
{
    pthread_mutex_lock(&topic->lock);
    *ret_attr = nrd_attr_of_record(topic->record, path, base_mode);
    pthread_mutex_unlock(&topic->lock);
}

int nrd_local_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_topic_copy_record(topic, &next);
    if (rc == 0) {
        if (nrd_attr_change_record(next, path, base_mode, what, attr))
            rc = nrd_topic_replace_record(topic, next);
        else
            nrd_topic_record_free(next); /* `chown -R` says the same of each record that is listed */
    }
    pthread_mutex_unlock(&topic->guard);
    return rc;
}

/* ---- settings ---- */

bool nrd_local_topic_get_config(NrdTopic *topic, NrdTopicConfig *ret_config)
{
    pthread_mutex_lock(&topic->lock);
    bool whole = topic->record != NULL;
    if (whole)
        *ret_config = topic->record->config;
    pthread_mutex_unlock(&topic->lock);
    return whole;
}

static int apply_lines(NrdTopic *topic, NrdTopicRecord *next, const char *text, size_t size)
{
    g_autofree char *why = NULL;
    int64_t partitions = next->config.partitions;
    int rc = nrd_topic_config_apply(&next->config, text, size, &why);
    if (rc == 0 && next->config.partitions < partitions) {
        why = g_strdup_printf("partitions can only grow, from %" G_GINT64_FORMAT " up", partitions);
        rc = -EINVAL;
    }
    if (rc == 0)
        return nrd_family_check_config(topic, &next->config);
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "config refused: %s; nothing was changed", why ? why : g_strerror(-rc));
    return rc;
}

/* Brings what is in memory in line with the record. Topic guard held. */
static void put_in_force(NrdTopic *topic)
{
    const NrdTopicConfig config = topic->record->config; /* only changed under the guard */
    guint n_before = topic->partitions->len;
    for (guint i = 0; i < topic->partitions->len; i++) {
        NrdPartition *partition = topic->partitions->pdata[i];
        if (!nrd_partition_pin_if_open(partition))
            continue; /* it takes its settings when it is opened */
        nrd_partition_configure(partition, &config);
        nrd_partition_unpin_quietly(partition);
    }
    nrd_topic_add_partitions(topic, &config);
    /* The record has changed: the folder is compared with it, also for partitions that are open. A failure is told and
     * kept as the topic's fault. */
    (void)!nrd_topic_check_marker(topic);
    for (guint i = n_before; i < topic->partitions->len; i++)
        nrd_fan_committed(topic->partitions->pdata[i]);
    nrd_housekeeping_kick_retention(topic->engine->housekeeping);
}

int nrd_local_topic_config_write(NrdTopic *topic, const char *text, size_t size)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_topic_copy_record(topic, &next);
    if (rc == 0 && topic->fault && !topic->lost)
        (void)!nrd_topic_check_marker(topic); /* the settings are changed in any case */
    if (rc == 0) {
        rc = apply_lines(topic, next, text, size);
        if (rc == 0 && !topic->fault)
            rc = nrd_topic_make_folders(topic, &next->config);
        if (rc == 0)
            rc = nrd_topic_replace_record(topic, next);
        else
            nrd_topic_record_free(next);
    }
    /* A topic whose folder could not be claimed keeps its partitions closed. */
    if (rc == 0 && !topic->fault)
        put_in_force(topic);
    pthread_mutex_unlock(&topic->guard);
    for (uint32_t i = 0; rc == 0 && i < nrd_topic_n_partitions(topic); i++)
        nrd_consume_wake(nrd_topic_partition(topic, i)); /* a higher cap frees slots */
    return rc;
}

int64_t nrd_local_topic_max_key_bytes(NrdTopic *topic)
{
    return INT64_MAX;
}

int64_t nrd_local_topic_max_record_bytes(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t bytes = topic->record ? topic->record->config.max_record_bytes : 0;
    pthread_mutex_unlock(&topic->lock);
    return bytes;
}

int64_t nrd_local_topic_consume_wait_ms(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->config.consume_wait_ms : 0;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}
