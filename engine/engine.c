/* The engine: the data directory, the table of topics, start and stop. */
#include "engine/dispatch.h"
#include "engine/fan.h"
#include "engine/housekeeping.h"
#include "engine/produce.h"
#include "engine/topic.h"

#include "engine/base/errors.h"
#include "engine/base/names.h"
#include "engine/base/pool.h"
#include "engine/fanout/fanout.h"
#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"
#include "engine/meta/incarnation.h"
#include "engine/queue/receipt.h"

#include <errno.h>

static void unref_topic(gpointer topic)
{
    nrd_topic_unref(topic);
}

static NrdEngine *engine_new(const NrdEngineOptions *options)
{
    NrdEngine *engine = g_new0(NrdEngine, 1);
    engine->table = &nrd_local_table;
    engine->root_fd = -1;
    engine->read_only = options->read_only;
    engine->options = *options;
    engine->options.data_path = engine->options.topic_defaults = NULL;
    if (options->cache_bytes > 0)
        nrd_frame_cache_set_limit(options->cache_bytes);
    nrd_topic_config_defaults(&engine->defaults);
    pthread_mutex_init(&engine->admin, NULL);
    pthread_mutex_init(&engine->ingress_open, NULL);
    pthread_mutex_init(&engine->topics_lock, NULL);
    /* The key is the topic's own name; the value's reference is the table's. */
    engine->topics = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, unref_topic);
    return engine;
}

static void engine_free(NrdEngine *engine)
{
    nrd_fanout_free(engine->fanout);
    nrd_lingers_free(engine->lingers);
    g_hash_table_unref(engine->topics); /* the last of each topic: partitions clear their timers */
    nrd_housekeeping_free(engine->housekeeping);
    nrd_timers_free(engine->timers);
    nrd_metastore_free(engine->meta);
    nrd_data_dir_close(engine->data_dir);
    pthread_mutex_destroy(&engine->topics_lock);
    pthread_mutex_destroy(&engine->ingress_open);
    pthread_mutex_destroy(&engine->admin);
    g_free(engine);
}

static void add_topic(NrdEngine *engine, NrdTopic *topic)
{
    pthread_mutex_lock(&engine->topics_lock);
    g_hash_table_insert(engine->topics, topic->name, topic);
    pthread_mutex_unlock(&engine->topics_lock);
}

static void load_topic(NrdEngine *engine, const char *name)
{
    NrdTopicRecord *record = NULL;
    char *why = NULL;
    int rc = nrd_metastore_get(engine->meta, name, &record, &why);
    if (rc < 0) {
        if (!why)
            why = g_strdup_printf("its record could not be read: %s", g_strerror(-rc));
        add_topic(engine, nrd_topic_new(engine, name, NULL, why)); /* the metastore has logged it */
        return;
    }
    NrdTopic *topic = nrd_topic_new(engine, name, record, NULL);
    (void)!nrd_topic_open(topic, false); /* it is out of service then, alone, and has said why */
    add_topic(engine, topic);
}

/* What an earlier run left of deleted topics. Failing to clean up is no reason not to serve. */
static void sweep(NrdEngine *engine)
{
    int rc = nrd_incarnation_sweep(engine->root_fd, engine->meta);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "looking for what deleted topics left behind failed: %s",
                 g_strerror(-rc));
}

/* All that the engine needs to get on with one thing after another, before anything begins to act. */
static int open_threads(NrdEngine *engine, char **ret_why)
{
    const char *what = NULL;
    if (nrd_housekeeping_open(engine->housekeeping) < 0)
        what = "the retention of records"; /* a daemon whose records never expire fills the disk */
    else if (nrd_dispatch_open(engine) < 0)
        what = "records that topics are produced to";
    else if (nrd_fan_open(engine) < 0)
        what = "copies for children of topics";
    if (!what)
        return 0;
    *ret_why = nrd_pool_why_none(what, NRD_START_THREADS);
    return -EAGAIN;
}

int nrd_local_engine_open(const NrdEngineOptions *options, NrdEngine **ret_engine, char **ret_why)
{
    NrdEngine *engine = engine_new(options);
    int rc = 0;
    if (options->topic_defaults)
        rc = nrd_topic_config_apply(&engine->defaults, options->topic_defaults, strlen(options->topic_defaults),
                                    ret_why);
    if (rc == 0)
        rc = nrd_data_dir_open(options->data_path, options->read_only, &engine->data_dir, ret_why);
    if (rc == 0) {
        engine->root_fd = nrd_data_dir_fd(engine->data_dir);
        rc = nrd_metastore_open(engine->root_fd, options->read_only, &engine->meta, ret_why);
    }
    if (rc == 0 && !(engine->timers = nrd_timers_new())) {
        *ret_why = nrd_pool_why_none("the timers", NRD_START_THREADS);
        rc = -EAGAIN;
    }
    if (rc < 0) {
        engine_free(engine);
        return rc;
    }
    engine->housekeeping = nrd_housekeeping_new(engine);
    engine->lingers = nrd_lingers_new(engine->timers);
    g_autoptr(GPtrArray) names = nrd_metastore_names(engine->meta);
    for (guint i = 0; i < names->len; i++)
        load_topic(engine, names->pdata[i]);
    /* After the claims: they quarantine what the sweep then reclaims. */
    if (!options->read_only)
        sweep(engine);
    rc = open_threads(engine, ret_why);
    if (rc < 0) {
        (void)!nrd_local_engine_close(engine);
        return rc;
    }
    nrd_family_open(engine);
    if (!options->held)
        nrd_local_engine_start(engine);
    *ret_engine = engine;
    return 0;
}

void nrd_local_engine_start(NrdEngine *engine)
{
    nrd_dispatch_start(engine);
    nrd_fanout_start(engine->fanout);
    nrd_housekeeping_start(engine->housekeeping);
}

GPtrArray *nrd_engine_topics(NrdEngine *engine)
{
    GPtrArray *topics = g_ptr_array_new_with_free_func(unref_topic);
    GHashTableIter iter;
    gpointer topic;
    pthread_mutex_lock(&engine->topics_lock);
    g_hash_table_iter_init(&iter, engine->topics);
    while (g_hash_table_iter_next(&iter, NULL, &topic))
        g_ptr_array_add(topics, nrd_topic_ref(topic));
    pthread_mutex_unlock(&engine->topics_lock);
    return topics;
}

void nrd_local_engine_stop(NrdEngine *engine)
{
    atomic_store(&engine->stopping, true);
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        nrd_topic_interrupt(topics->pdata[i]);
}

/* Nobody produces any more, but a flush may still be at its claim, which is the ingress's. */
static void wait_for_flushes(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++) {
        for (uint32_t n = 0; n < nrd_topic_n_partitions(topics->pdata[i]); n++)
            nrd_timer_drain(engine->timers, &nrd_topic_partition(topics->pdata[i], n)->linger_timer);
    }
}

int nrd_local_engine_close(NrdEngine *engine)
{
    wait_for_flushes(engine);
    nrd_fan_close(engine);                        /* it claims what the ingress keeps */
    int first_error = nrd_dispatch_close(engine); /* while partitions can still be opened */
    nrd_housekeeping_stop(engine->housekeeping);  /* before what the loops walk through */
    GPtrArray *topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++) {
        int rc = nrd_topic_close(topics->pdata[i], true);
        if (rc < 0 && first_error == 0)
            first_error = rc;
    }
    g_ptr_array_unref(topics);
    int rc = engine->read_only ? 0 : nrd_metastore_mend(engine->meta, true);
    engine_free(engine);
    return first_error < 0 ? first_error : rc;
}

int nrd_local_engine_statvfs(NrdEngine *engine, struct statvfs *ret_st)
{
    return nrd_io->fstatvfs(engine->root_fd, ret_st);
}

bool nrd_local_engine_read_only(const NrdEngine *engine)
{
    return engine->read_only;
}

const char *nrd_local_engine_durability(NrdEngine *engine)
{
    return "fsync";
}

/* ---- topics ---- */

GPtrArray *nrd_local_engine_topic_names(NrdEngine *engine)
{
    pthread_mutex_lock(&engine->topics_lock);
    GPtrArray *names = nrd_names_sorted(engine->topics);
    pthread_mutex_unlock(&engine->topics_lock);
    return names;
}

int nrd_local_topic_find(NrdEngine *engine, const char *name, NrdTopic **ret_topic)
{
    pthread_mutex_lock(&engine->topics_lock);
    NrdTopic *topic = g_hash_table_lookup(engine->topics, name);
    if (topic)
        nrd_topic_ref(topic);
    pthread_mutex_unlock(&engine->topics_lock);
    if (!topic)
        return -ENOENT;
    *ret_topic = topic;
    return 0;
}

/* The record first: it is what makes a topic. A crash after it leaves a topic without a folder, which the next start
 * makes. *ret_why, more than the errno says, is set or left alone. Engine admin held. */
static int create_admin_held(NrdEngine *engine, NrdTopicRecord *record, NrdTopic **ret_topic, char **ret_why)
{
    int rc = nrd_metastore_create(engine->meta, record);
    if (rc < 0) {
        if (rc != -EEXIST)
            *ret_why = nrd_metastore_why_not(engine->meta, record->name, rc);
        return rc;
    }
    NrdTopic *topic = nrd_topic_new(engine, record->name, nrd_topic_record_copy(record), NULL);
    topic->making = true;
    rc = nrd_topic_open(topic, true);
    topic->making = false;
    if (rc < 0) {
        int undo_rc = nrd_metastore_remove(engine->meta, record->name, record->id);
        if (undo_rc == 0) {
            nrd_topic_unmake(topic);
            nrd_topic_unref(topic);
            return rc;
        }
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ record->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "the topic could not be made, nor its record taken back: %s; it stays, out of service",
                 g_strerror(-undo_rc));
    }
    add_topic(engine, topic);
    if (rc == 0)
        *ret_topic = nrd_topic_ref(topic);
    return rc;
}

int nrd_local_topic_create(NrdEngine *engine, const char *name, const NrdAttr *attr, uint32_t umask,
                           NrdTopic **ret_topic)
{
    int rc = nrd_topic_check_new(engine, name);
    if (rc < 0)
        return rc;
    g_autofree char *why = NULL;
    NrdTopicRecord *record =
        nrd_topic_record_make(name, &engine->defaults, (NrdFileAttr){ attr->uid, attr->gid, attr->mode }, umask);
    pthread_mutex_lock(&engine->admin);
    rc = create_admin_held(engine, record, ret_topic, &why);
    pthread_mutex_unlock(&engine->admin);
    nrd_topic_record_free(record);
    if (rc == 0 || rc == -EEXIST)
        return rc;
    nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ name, NRD_NO_PARTITION, NRD_NO_OFFSET }, "the topic could not be created: %s",
             why ? why : g_strerror(-rc));
    return nrd_error_of_disk(rc);
}

/* ---- receipts ---- */

_Static_assert(NRD_RECEIPT_MAX == NRD_RECEIPT_TEXT_MAX, "one length for both headers");

size_t nrd_receipt_write(uint32_t partition, uint64_t offset, uint64_t nonce, char buf[NRD_RECEIPT_MAX])
{
    return nrd_receipt_format(&(NrdReceipt){ partition, offset, nonce }, buf);
}

size_t nrd_receipt_read_lines(const char *text, size_t size, NrdHold *holds, size_t max)
{
    NrdReceiptReader reader = { .text = NULL };
    size_t n = 0;
    for (size_t pos = 0; n < max && pos < size; n++) {
        size_t length = nrd_receipt_reader_next(&reader, text + pos, size - pos);
        if (length == 0 || length == size - pos || text[pos + length] != '\n')
            break;
        pos += length + 1;
        holds[n] =
            (NrdHold){ reader.receipt.partition, (uint32_t)length + 1, reader.receipt.offset, reader.receipt.nonce };
    }
    return n;
}

int nrd_receipt_read(const char *text, size_t size, uint32_t *ret_partition, uint64_t *ret_offset, uint64_t *ret_nonce)
{
    NrdReceipt receipt;
    int rc = nrd_receipt_parse(text, size, &receipt);
    if (rc < 0)
        return rc;
    *ret_partition = receipt.partition;
    *ret_offset = receipt.offset;
    *ret_nonce = receipt.nonce;
    return 0;
}
