/* The engine as a whole: its start and end, and the table of topics. Creating and removing them is in admin.c.
 *
 * There is one way for a topic into the table and out of it, whoever made or removed it: the bucket is followed, entry by
 * entry, once a second and after each change of this daemon's own. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/kept.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/pull_private.h"
#include "engine/jetstream/store.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"
#include "engine/base/names.h"
#include "engine/base/pool.h"

#define FOLLOW_MS 1000
#define MAX_REPLICAS_BY_ITSELF 3
#define LOST_STOP_MS 2000 /* how long a daemon that stops tries to send, without a connection and without an answer */
#define STOP_MS 5000      /* ... and with one */
#define STOP_LOOK_MS 250

static void unref_topic(gpointer topic)
{
    nrd_js_topic_unref(topic);
}

/* ---- following the bucket ---- */

static NrdTopic *lookup(NrdEngine *engine, const char *name)
{
    g_mutex_lock(&engine->topics_lock);
    NrdTopic *topic = g_hash_table_lookup(engine->topics, name);
    if (topic)
        nrd_js_topic_ref(topic);
    g_mutex_unlock(&engine->topics_lock);
    return topic;
}

static void drop(NrdEngine *engine, NrdTopic *topic)
{
    g_mutex_lock(&engine->topics_lock);
    g_hash_table_remove(engine->topics, topic->name);
    g_mutex_unlock(&engine->topics_lock);
    nrd_js_topic_gone(topic);
}

static void add(NrdEngine *engine, NrdTopic *topic)
{
    g_mutex_lock(&engine->topics_lock);
    g_hash_table_replace(engine->topics, topic->name, topic);
    g_mutex_unlock(&engine->topics_lock);
}

static NrdTopic *topic_of_entry(NrdEngine *engine, const NrdJsEntry *entry)
{
    NrdTopicRecord *record = NULL;
    char *why = NULL;
    gsize size;
    const void *text = g_bytes_get_data(entry->text, &size);
    if (nrd_topic_record_decode(entry->name, text, size, &record, &why) < 0)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ entry->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "the topic is out of service: %s; put the key right in the bucket " NRD_JS_BUCKET, why);
    return nrd_js_topic_new(engine, entry->name, record, entry->revision, why);
}

/* A record of the same incarnation changes the topic that is there; another one is another topic. */
static void apply_entry(NrdEngine *engine, const NrdJsEntry *entry)
{
    if (nrd_topic_name_check(entry->name) < 0)
        return;
    NrdTopic *now = lookup(engine, entry->name);
    NrdTopic *next = entry->removed ? NULL : topic_of_entry(engine, entry);
    if (now && next && next->record && strcmp(now->id, next->id) == 0) {
        nrd_js_topic_put_record(now, g_steal_pointer(&next->record), entry->revision);
        nrd_js_topic_unref(next);
        next = NULL;
    } else if (now) {
        drop(engine, now);
    }
    if (next)
        add(engine, next);
    nrd_js_topic_unref(now);
}

int nrd_js_follow_admin_held(NrdEngine *engine, char **ret_why)
{
    for (;;) {
        NrdJsEntry entry;
        int rc = nrd_js_store_next(engine, engine->followed + 1, &entry, ret_why);
        if (rc < 0) {
            if (rc == -ENOENT && ret_why)
                g_clear_pointer(ret_why, g_free);
            return rc == -ENOENT ? 0 : rc;
        }
        apply_entry(engine, &entry);
        engine->followed = entry.revision;
        nrd_js_entry_clear(&entry);
    }
}

/* Failures are told by whoever needs something. */
static void on_follow(void *user_data)
{
    NrdEngine *engine = user_data;
    nrd_js_conn_watch(engine->conn);
    if (nrd_js_conn_is_up(engine->conn)) {
        g_mutex_lock(&engine->admin);
        if (nrd_js_bucket_look_admin_held(engine, NRD_JS_GLANCE_MS, NULL) == 0) {
            (void)!nrd_js_follow_admin_held(engine, NULL);
            nrd_js_orphans_sweep_admin_held(engine);
        }
        g_mutex_unlock(&engine->admin);
        nrd_js_consumers_lower(engine);
        nrd_js_kept_watch(engine);
        nrd_js_silent_watch(engine);
    }
    nrd_timer_set(engine->timers, &engine->follow_timer, nrd_clock_mono_ms() + FOLLOW_MS);
}

/* ---- start and end ---- */

static void on_reconnected(void *user_data)
{
    NrdEngine *engine = user_data;
    if (engine->pulls)
        nrd_js_pulls_reconnected(engine->pulls);
    nrd_js_kept_reconnected(engine);
}

const char *nrd_js_durability_of(const NrdEngine *engine, int replicas, bool in_memory)
{
    if (in_memory)
        return replicas > 1 ? "quorum+memory" : "server+memory";
    if (replicas > 1)
        return engine->fsync_asserted ? "quorum+fsync" : "quorum";
    return engine->fsync_asserted ? "server+fsync" : "server";
}

static int check_options(const NrdEngineOptions *options, NrdTopicConfig *ret_defaults, char **ret_why)
{
    nrd_topic_config_defaults(ret_defaults);
    if (options->require_fsync && !options->fsync_asserted) {
        *ret_why =
            g_strdup("require_fsync: by themselves NATS servers acknowledge what is only in memory. If all of them run "
                     "with sync_interval: always (2.10.23 or later), or on file systems mounted sync, say so with "
                     "fsync=asserted");
        return -EINVAL;
    }
    if (!options->topic_defaults)
        return 0;
    NrdTopicConfig plain = *ret_defaults;
    int rc = nrd_topic_config_apply(ret_defaults, options->topic_defaults, strlen(options->topic_defaults), ret_why);
    if (rc == 0)
        *ret_why = nrd_js_config_why_not(&plain, ret_defaults);
    return *ret_why ? -EINVAL : rc;
}

/* While answers still come: nobody takes any more, then what is leased goes back. */
static void give_back_leases(NrdEngine *engine)
{
    nrd_js_pulls_end(engine->pulls);
    nrd_js_asked_wait_ended(engine->pulls);
    nrd_js_each_partition(engine, nrd_js_leases_give_back);
    if (nrd_js_conn_is_up(engine->conn))
        nrd_js_each_partition(engine, nrd_js_give_back_wait);
}

static void engine_free(NrdEngine *engine)
{
    if (engine->pulls)
        give_back_leases(engine);
    if (engine->conn)
        nrd_js_conn_stop(engine->conn);
    nrd_timer_drain(engine->timers, &engine->stop_timer);
    nrd_timer_drain(engine->timers, &engine->follow_timer);
    nrd_js_orphans_free(engine);
    if (engine->pulls)
        nrd_js_pulls_stop(engine->pulls);
    nrd_js_conn_close(engine->conn);
    nrd_js_pulls_free(engine->pulls);
    g_hash_table_unref(engine->topics);
    nrd_timers_free(engine->timers);
    g_free(engine->bucket_fault);
    g_mutex_clear(&engine->admin);
    g_mutex_clear(&engine->topics_lock);
    g_free(engine);
}

static int start(NrdEngine *engine, const NrdEngineOptions *options, char **ret_why)
{
    int rc = check_options(options, &engine->defaults, ret_why);
    if (rc == 0)
        rc = nrd_js_conn_open(options, engine->timers, on_reconnected, engine, &engine->conn, ret_why);
    if (rc < 0)
        return rc;
    engine->replicas =
        options->replicas > 0 ? options->replicas : MIN(nrd_js_conn_n_servers(engine->conn), MAX_REPLICAS_BY_ITSELF);
    if (engine->replicas > nrd_js_conn_n_servers(engine->conn))
        nrd_diag(
            NRD_LEVEL_WARNING, NRD_NOWHERE,
            "replicas=%d, and %d server%s known: no topic can be made unless there are more of them in the cluster",
            engine->replicas, nrd_js_conn_n_servers(engine->conn),
            nrd_js_conn_n_servers(engine->conn) == 1 ? " is" : "s are");
    engine->durability = nrd_js_durability_of(engine, engine->replicas, false);
    engine->pulls = nrd_js_pulls_new(engine);
    rc = nrd_js_check_jetstream(engine->conn, ret_why);
    if (rc == 0)
        rc = nrd_js_bucket_ensure(engine, ret_why);
    g_mutex_lock(&engine->admin);
    if (rc == 0)
        rc = nrd_js_bucket_look_admin_held(engine, NRD_JS_PATIENCE_MS, ret_why);
    if (rc == 0)
        rc = nrd_js_follow_admin_held(engine, ret_why);
    g_mutex_unlock(&engine->admin);
    return rc;
}

/* What writers have handed over goes on being sent for as long as the servers take it; then nobody waits any more. */
static void on_stop(void *user_data)
{
    NrdEngine *engine = user_data;
    int64_t now_ms = nrd_clock_mono_ms();
    int64_t limit_ms = nrd_js_conn_is_up(engine->conn) ? STOP_MS : LOST_STOP_MS;
    if (now_ms - atomic_load(&engine->progress_ms) >= limit_ms)
        nrd_js_conn_stop(engine->conn);
    else
        nrd_timer_set(engine->timers, &engine->stop_timer, now_ms + STOP_LOOK_MS);
}

int nrd_js_engine_open(const NrdEngineOptions *options, NrdEngine **ret_engine, char **ret_why)
{
    NrdTimers *timers = nrd_timers_new();
    if (!timers) {
        *ret_why = nrd_pool_why_none("the timers", NRD_START_THREADS);
        return -EAGAIN;
    }
    NrdEngine *engine = g_new0(NrdEngine, 1);
    engine->table = &nrd_js_table;
    engine->read_only = options->read_only;
    engine->fsync_asserted = options->fsync_asserted;
    engine->require_fsync = options->require_fsync;
    engine->timers = timers;
    engine->topics = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, unref_topic);
    g_mutex_init(&engine->admin);
    g_mutex_init(&engine->topics_lock);
    nrd_timer_init(&engine->follow_timer, on_follow, engine, true);
    nrd_timer_init(&engine->stop_timer, on_stop, engine, false);
    engine->orphans = g_ptr_array_new();
    *ret_why = NULL;
    int rc = start(engine, options, ret_why);
    if (rc < 0) {
        if (!*ret_why)
            *ret_why = g_strdup_printf("the NATS servers could not be used: %s", g_strerror(-rc));
        engine_free(engine);
        return rc;
    }
    nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "records are in NATS JetStream, %d cop%s of each; durability %s",
             engine->replicas, engine->replicas == 1 ? "y" : "ies", engine->durability);
    nrd_timer_set(engine->timers, &engine->follow_timer, nrd_clock_mono_ms() + FOLLOW_MS);
    *ret_engine = engine;
    return 0;
}

/* What another run has left to be sent goes on from the open, which has talked to the servers by then. */
void nrd_js_engine_start(NrdEngine *engine)
{
}

/* It may be called once more: who was about to wait the first time is told then. */
void nrd_js_engine_stop(NrdEngine *engine)
{
    if (!atomic_exchange(&engine->stopping, true)) {
        atomic_store(&engine->progress_ms, nrd_clock_mono_ms());
        nrd_js_conn_hurry(engine->conn);
        nrd_timer_set(engine->timers, &engine->stop_timer, nrd_clock_mono_ms() + STOP_LOOK_MS);
    }
    nrd_js_pulls_end(engine->pulls);
}

int nrd_js_engine_close(NrdEngine *engine)
{
    engine_free(engine);
    return 0;
}

/* The servers' disks are not this machine's: no blocks, as of file systems without a disk. */
int nrd_js_engine_statvfs(NrdEngine *engine, struct statvfs *ret_st)
{
    *ret_st = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096 };
    return 0;
}

bool nrd_js_engine_read_only(const NrdEngine *engine)
{
    return engine->read_only;
}

const char *nrd_js_engine_durability(NrdEngine *engine)
{
    return engine->durability;
}

/* ---- topics ---- */

GPtrArray *nrd_js_topics(NrdEngine *engine)
{
    GPtrArray *topics = g_ptr_array_new_with_free_func(unref_topic);
    GHashTableIter iter;
    gpointer topic;
    g_mutex_lock(&engine->topics_lock);
    g_hash_table_iter_init(&iter, engine->topics);
    while (g_hash_table_iter_next(&iter, NULL, &topic))
        g_ptr_array_add(topics, nrd_js_topic_ref(topic));
    g_mutex_unlock(&engine->topics_lock);
    return topics;
}

void nrd_js_each_partition(NrdEngine *engine, void (*fn)(NrdPartition *partition))
{
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        for (uint32_t p = 0; p < nrd_js_topic_n_partitions(topics->pdata[i]); p++)
            fn(nrd_js_topic_partition(topics->pdata[i], p));
}

GPtrArray *nrd_js_engine_topic_names(NrdEngine *engine)
{
    g_mutex_lock(&engine->topics_lock);
    GPtrArray *names = nrd_names_sorted(engine->topics);
    g_mutex_unlock(&engine->topics_lock);
    return names;
}

int nrd_js_topic_find(NrdEngine *engine, const char *name, NrdTopic **ret_topic)
{
    NrdTopic *topic = lookup(engine, name);
    if (!topic)
        return -ENOENT;
    *ret_topic = topic;
    return 0;
}
