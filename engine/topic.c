/* Topics: their life (create, open, remove, delete), settings, attributes, and the handles that hold them. */
#include "engine/engine_private.h"

#include "engine/base/clock.h"
#include "engine/ingress/ingress.h"
#include "engine/io/io.h"
#include "engine/meta/incarnation.h"

#include <errno.h>

#define RELEASE_WAIT_MS 200 /* how long a removal waits for handles that are being released */

static NrdPlace place_of(const NrdTopic *topic)
{
    return (NrdPlace){ topic->name, NRD_NO_PARTITION, NRD_NO_OFFSET };
}

static bool is_delayed(const NrdTopicRecord *record)
{
    return record && record->parent && record->config.fanout_delay_ms > 0;
}

NrdTopic *nrd_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, char *fault)
{
    NrdTopic *topic = g_new0(NrdTopic, 1);
    topic->refs = 1;
    topic->engine = engine;
    topic->name = g_strdup(name);
    topic->record = record;
    topic->fault = fault;
    atomic_init(&topic->delayed, is_delayed(record));
    topic->lost = fault != NULL;
    if (record)
        g_strlcpy(topic->id, record->id, sizeof topic->id);
    topic->partitions = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_partition_free);
    topic->retired = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_partition_free);
    nrd_topic_line_init(topic);
    pthread_mutex_init(&topic->guard, NULL);
    pthread_mutex_init(&topic->lock, NULL);
    pthread_mutex_init(&topic->produce_lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&topic->released, &attr);
    pthread_condattr_destroy(&attr);
    return topic;
}

NrdTopic *nrd_topic_ref(NrdTopic *topic)
{
    g_atomic_int_inc(&topic->refs);
    return topic;
}

void nrd_topic_unref(NrdTopic *topic)
{
    if (!topic || !g_atomic_int_dec_and_test(&topic->refs))
        return;
    g_ptr_array_unref(topic->partitions);
    g_ptr_array_unref(topic->retired);
    nrd_topic_record_free(topic->record);
    nrd_line_clear(&topic->line);
    pthread_cond_destroy(&topic->released);
    pthread_mutex_destroy(&topic->lock);
    pthread_mutex_destroy(&topic->produce_lock);
    pthread_mutex_destroy(&topic->guard);
    g_free(topic->fault);
    g_free(topic->name);
    g_free(topic);
}

/* ---- opening and closing ---- */

/* What can fail for want of space or descriptors comes before the record is changed. Empty folders harm nobody. */
static int make_partition_folders(NrdTopic *topic, const NrdTopicConfig *config)
{
    int rc = 0;
    for (uint32_t number = topic->partitions->len; rc == 0 && number < (uint32_t)config->partitions; number++) {
        g_autofree char *dir = g_strdup_printf("topics/%s/p%05u", topic->name, number);
        rc = nrd_io_make_dir(topic->engine->root_fd, dir);
    }
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, place_of(topic), "folders for new partitions could not be made: %s", g_strerror(-rc));
    return rc;
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
        rc = make_partition_folders(topic, &topic->record->config);
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
        nrd_diag(NRD_LEVEL_ERROR, place_of(topic), "its folder could not be removed: %s; the next start tries again",
                 g_strerror(-rc));
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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RELEASE_WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
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
    int rc = nrd_incarnation_purge(topic->engine->root_fd, topic->name, topic->id);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, place_of(topic),
                 "the topic is deleted, but its files could not be removed: %s; tried again later", g_strerror(-rc));
    if (rc < 0)
        nrd_housekeeping_note_leftovers(topic->engine->housekeeping);
    else
        nrd_diag(NRD_LEVEL_NOTICE, place_of(topic), "deleted incarnation %s", topic->id);
    nrd_topic_unref(topic);
}

/* A record that is neither there nor gone takes its topic out of service. Engine admin held. */
static int remove_record(NrdTopic *topic)
{
    NrdMetastore *meta = topic->engine->meta;
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    int rc = nrd_metastore_remove(meta, topic->name, topic->id);
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

int nrd_topic_remove(NrdTopic *topic)
{
    NrdEngine *engine = topic->engine;
    if (engine->read_only)
        return -EROFS;
    pthread_mutex_lock(&engine->admin);
    int rc = remove_admin_held(topic);
    pthread_mutex_unlock(&engine->admin);
    return rc;
}

int nrd_topic_delete(NrdTopic *topic, const char *id)
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

int nrd_topic_hold(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int rc = atomic_load(&topic->deleted) ? -EIDRM : 0;
    if (rc == 0)
        topic->n_holds++;
    pthread_mutex_unlock(&topic->lock);
    return rc;
}

void nrd_topic_release(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    g_assert(topic->n_holds > 0);
    if (--topic->n_holds == 0)
        pthread_cond_signal(&topic->released);
    pthread_mutex_unlock(&topic->lock);
}

/* ---- what it is ---- */

const char *nrd_topic_name(const NrdTopic *topic)
{
    return topic->name;
}

const char *nrd_topic_incarnation(const NrdTopic *topic)
{
    return topic->id;
}

bool nrd_topic_deleted(NrdTopic *topic)
{
    return atomic_load(&topic->deleted);
}

uint32_t nrd_topic_n_partitions(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    uint32_t n = topic->partitions->len;
    pthread_mutex_unlock(&topic->lock);
    return n;
}

NrdPartition *nrd_topic_partition(NrdTopic *topic, uint32_t number)
{
    pthread_mutex_lock(&topic->lock);
    NrdPartition *partition = number < topic->partitions->len ? topic->partitions->pdata[number] : NULL;
    pthread_mutex_unlock(&topic->lock);
    return partition;
}

int64_t nrd_topic_created_ms(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->created_ms : 0;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}

/* ---- changing the record ---- */

void nrd_topic_swap_record(NrdTopic *topic, NrdTopicRecord *next)
{
    pthread_mutex_lock(&topic->lock);
    NrdTopicRecord *old = topic->record;
    topic->record = next;
    atomic_store(&topic->delayed, is_delayed(next));
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
        nrd_diag(NRD_LEVEL_ERROR, place_of(topic), "the topic record could not be written: %s", g_strerror(-rc));
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

void nrd_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr)
{
    NrdAttr attr = { 0, 0, base_mode & 0500 };
    pthread_mutex_lock(&topic->lock);
    const NrdTopicRecord *record = topic->record;
    if (record) {
        const NrdFileAttr *own = g_hash_table_lookup(record->file_attrs, path);
        bool is_topic = path[0] == '\0' || base_mode == 0777;
        attr =
            (NrdAttr){ record->attr.uid, record->attr.gid, is_topic ? record->attr.mode : base_mode & ~record->umask };
        if (own && path[0] != '\0')
            attr = (NrdAttr){ own->uid, own->gid, own->mode };
    }
    pthread_mutex_unlock(&topic->lock);
    *ret_attr = attr;
}

int nrd_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    NrdTopicRecord *next = NULL;
    NrdAttr now;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_topic_copy_record(topic, &next);
    if (rc == 0) {
        nrd_topic_get_attr(topic, path, base_mode, &now); /* only changed under the guard */
        NrdFileAttr file_attr = {
            .uid = what & NRD_ATTR_UID ? attr->uid : now.uid,
            .gid = what & NRD_ATTR_GID ? attr->gid : now.gid,
            .mode = what & NRD_ATTR_MODE ? attr->mode : now.mode,
        };
        if (path[0] == '\0')
            next->attr = file_attr;
        else
            g_hash_table_replace(next->file_attrs, g_strdup(path), g_memdup2(&file_attr, sizeof file_attr));
        rc = nrd_topic_replace_record(topic, next);
    }
    pthread_mutex_unlock(&topic->guard);
    return rc;
}

/* ---- settings ---- */

const char *const *nrd_config_keys(void)
{
    return nrd_topic_config_keys();
}

char *nrd_topic_config_value(NrdTopic *topic, const char *key)
{
    pthread_mutex_lock(&topic->lock);
    char *value = topic->record ? nrd_topic_config_get(&topic->record->config, key) : NULL;
    pthread_mutex_unlock(&topic->lock);
    return value;
}

char *nrd_topic_config_lines(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    char *text = topic->record ? nrd_topic_config_text(&topic->record->config) : g_strdup("");
    pthread_mutex_unlock(&topic->lock);
    return text;
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
    nrd_diag(NRD_LEVEL_WARNING, place_of(topic), "config refused: %s; nothing was changed",
             why ? why : g_strerror(-rc));
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

int nrd_topic_config_write(NrdTopic *topic, const char *text, size_t size)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_topic_copy_record(topic, &next);
    if (rc == 0 && topic->fault && !topic->lost)
        (void)!nrd_topic_check_marker(topic); /* the settings are changed in any case */
    if (rc == 0) {
        rc = apply_lines(topic, next, text, size);
        if (rc == 0 && !topic->fault)
            rc = make_partition_folders(topic, &next->config);
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

int64_t nrd_topic_max_record_bytes(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t bytes = topic->record ? topic->record->config.max_record_bytes : 0;
    pthread_mutex_unlock(&topic->lock);
    return bytes;
}

int64_t nrd_topic_consume_wait_ms(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->config.consume_wait_ms : 0;
    pthread_mutex_unlock(&topic->lock);
    return ms;
}
