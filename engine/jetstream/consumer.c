/* The consumer of a partition on the servers: one for all mounts, found by its name, made, set and replaced.
 *
 * Its name has a generation. What settles a delivery names its consumer: so a consumer that is put in the place of another one,
 * by a `seek` or because somebody has deleted it, gets a higher generation, and nothing that was leased before can settle what has
 * its offset afterwards, whoever leased it. A generation is the time at which it was made: who finds none, and knows of none,
 * cannot tell whether there was one that others have leases of.
 *
 * A replacement is made first, and what was before is deleted then: a crash in between leaves both, and whoever finds them
 * deletes the one that is not meant. A replacement has a start, and of several of those the highest generation is meant. One
 * without a start was made by who found none: it replaces nothing, and of several the one that the servers made first is
 * meant, since its mount may have settled records by now that the others would deliver again. Other mounts notice when nobody
 * answers under the name that they know.
 *
 * A shorter timeout is for the leases of all mounts that there are, as soon as the consumer has it. So it gets it some time after
 * the setting was written: by then each mount has seen that, and counts its leases by it. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define SEEK_TRIES 5  /* another mount may do the same */
#define FIND_TRIES 5  /* ... or replace what was listed */
#define LOWER_MS 4000 /* mounts look for new settings once a second */

/* ---- finding ---- */

/* Those of ours, the highest generation last. */
static int list(NrdPartition *partition, int64_t patience_ms, GArray *generations, char **ret_why)
{
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_js_consumer_names(partition->topic->engine->conn, partition->stream, patience_ms, &names, ret_why);
    for (guint i = 0; rc == 0 && i < names->len; i++) {
        uint64_t generation;
        guint at = 0;
        if (!nrd_js_parse_consumer(names->pdata[i], &generation))
            continue;
        while (at < generations->len && g_array_index(generations, uint64_t, at) < generation)
            at++;
        g_array_insert_val(generations, at, generation);
    }
    return rc;
}

static uint64_t highest(const GArray *generations)
{
    return g_array_index(generations, uint64_t, generations->len - 1);
}

static int delete_others(NrdPartition *partition, const GArray *generations, uint64_t but, char **ret_why)
{
    int rc = 0;
    for (guint i = 0; rc == 0 && i < generations->len; i++) {
        if (g_array_index(generations, uint64_t, i) == but)
            continue;
        g_autofree char *name = nrd_js_consumer_name(g_array_index(generations, uint64_t, i));
        rc = nrd_js_consumer_delete(partition->topic->engine->conn, partition->stream, name, ret_why);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

/* From now on deliveries are of that one. What was leased of another is void. */
static void adopt(NrdPartition *partition, uint64_t generation)
{
    if (!nrd_js_leases_adopt(partition, generation))
        return;
    nrd_js_pulls_forget(partition->topic->engine->pulls, partition, 0);
    nrd_js_partition_changed(partition);
}

static int info_of(NrdPartition *partition, uint64_t generation, int64_t patience_ms, NrdJsConsumerInfo *ret_info,
                   char **ret_why)
{
    g_autofree char *name = nrd_js_consumer_name(generation);
    return nrd_js_consumer_info(partition->topic->engine->conn, partition->stream, name, patience_ms, ret_info,
                                ret_why);
}

/* Whether of two, the later one of a higher generation, the later one is meant. */
static bool is_meant(const NrdJsConsumerInfo *info, const NrdJsConsumerInfo *later)
{
    if (info->start_seq > 0 || later->start_seq > 0)
        return later->start_seq > 0;
    return later->created_ms < info->created_ms;
}

/* The one of several that is meant. -ENOENT: one of them is gone by now. */
static int choose(NrdPartition *partition, const GArray *generations, int64_t patience_ms, uint64_t *ret_generation,
                  NrdJsConsumerInfo *ret_info, char **ret_why)
{
    int rc = 0;
    for (guint i = 0; rc == 0 && i < generations->len; i++) {
        NrdJsConsumerInfo info;
        uint64_t generation = g_array_index(generations, uint64_t, i);
        rc = info_of(partition, generation, patience_ms, &info, ret_why);
        if (rc < 0 || (i > 0 && !is_meant(ret_info, &info)))
            continue;
        *ret_generation = generation;
        *ret_info = info;
    }
    return rc;
}

/* -ENOENT: there is none; -EAGAIN: it was replaced meanwhile. */
static int find_once(NrdPartition *partition, int64_t patience_ms, NrdJsConsumerInfo *ret_info, char **ret_why)
{
    g_autoptr(GArray) generations = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int rc = list(partition, patience_ms, generations, ret_why);
    if (rc < 0 || generations->len == 0)
        return rc < 0 ? rc : -ENOENT;
    uint64_t generation = 0;
    rc = choose(partition, generations, patience_ms, &generation, ret_info, ret_why);
    if (rc == 0 && !partition->topic->engine->read_only)
        rc = delete_others(partition, generations, generation, ret_why);
    if (rc == 0)
        adopt(partition, generation);
    return rc == -ENOENT ? -EAGAIN : rc;
}

/* The one that is there, when it is another one than was known, or the first that is seen. */
static int find(NrdPartition *partition, int64_t patience_ms, NrdJsConsumerInfo *ret_info, char **ret_why)
{
    int rc = -EAGAIN;
    for (int i = 0; rc == -EAGAIN && i < FIND_TRIES; i++)
        rc = find_once(partition, patience_ms, ret_info, ret_why);
    return rc == -EAGAIN ? -EIO : rc;
}

int nrd_js_consumer_look(NrdPartition *partition, int64_t patience_ms, NrdJsConsumerInfo *ret_info, char **ret_why)
{
    int rc = -ENOENT;
    if (atomic_load(&partition->has_consumer))
        rc = info_of(partition, nrd_js_leases_generation(partition), patience_ms, ret_info, ret_why);
    if (rc == -ENOENT) {
        nrd_js_consumer_doubt(partition);
        rc = find(partition, patience_ms, ret_info, ret_why);
    }
    if (rc == 0)
        nrd_js_leases_limit_wait(partition, ret_info->ack_wait_ms);
    return rc;
}

/* ---- making ---- */

static NrdJsConsumerConfig config_of(NrdPartition *partition, uint64_t start_seq)
{
    NrdTopicConfig config = nrd_js_topic_config(partition->topic);
    return (NrdJsConsumerConfig){ .ack_wait_ms = config.visibility_timeout_ms,
                                  .max_ack_pending = config.max_in_flight,
                                  .start_seq = start_seq };
}

static int create(NrdPartition *partition, uint64_t generation, const NrdJsConsumerConfig *config, char **ret_why)
{
    g_autofree char *name = nrd_js_consumer_name(generation);
    int rc = nrd_js_consumer_create(partition->topic->engine->conn, partition->stream, name, config, ret_why);
    if (rc < 0)
        return rc;
    if (generation >= nrd_js_leases_generation(partition)) /* another thread may be ahead of this one */
        adopt(partition, generation);
    nrd_js_leases_know_wait(partition, config->ack_wait_ms);
    return 0;
}

/* The first one of the stream, or one in the place of `known`, which somebody has deleted: that begins where this mount knows
 * that everything before was settled. */
static int make(NrdPartition *partition, uint64_t known, char **ret_why)
{
    NrdJsStreamInfo stream;
    int rc =
        nrd_js_stream_info(partition->topic->engine->conn, partition->stream, NRD_JS_PATIENCE_MS, &stream, ret_why);
    if (rc < 0)
        return rc;
    g_mutex_lock(&partition->lock);
    bool floor_known = partition->floor_known && strcmp(partition->floor_created, stream.created) == 0;
    uint64_t floor_seq = MIN(partition->consumer.floor_seq, stream.last_seq);
    g_mutex_unlock(&partition->lock);
    uint64_t generation = MAX((uint64_t)nrd_clock_wall_ms(), known + 1);
    if (known > 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "its consumer on the servers was deleted; it is made again, from offset %" G_GUINT64_FORMAT,
                 floor_known ? floor_seq : 0);
    NrdJsConsumerConfig config = config_of(partition, floor_known ? floor_seq + 1 : 0);
    return create(partition, generation, &config, ret_why);
}

/* Unless another thread has done so since `known` was looked up. */
static int make_once(NrdPartition *partition, uint64_t known, char **ret_why)
{
    g_mutex_lock(&partition->making);
    int rc = nrd_js_leases_generation(partition) == known ? make(partition, known, ret_why) : 0;
    g_mutex_unlock(&partition->making);
    return rc;
}

/* Whether not all mounts may know yet of the timeout that it is to have: then it keeps its own for now, and leases here are
 * counted by the new one. */
static bool is_too_early(NrdPartition *partition, int64_t wait_ms, int64_t next_wait_ms)
{
    NrdTopic *topic = partition->topic;
    if (next_wait_ms >= wait_ms)
        return false;
    g_mutex_lock(&topic->lock);
    bool early = nrd_clock_mono_ms() - topic->timeout_ms < LOWER_MS;
    topic->lowers |= early;
    g_mutex_unlock(&topic->lock);
    if (early)
        atomic_store(&topic->engine->lowers, true);
    return early;
}

static void lower(NrdEngine *engine, NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    bool due = topic->lowers && nrd_clock_mono_ms() - topic->timeout_ms >= LOWER_MS;
    bool later = topic->lowers && !due;
    topic->lowers = later;
    g_mutex_unlock(&topic->lock);
    if (later)
        atomic_store(&engine->lowers, true);
    for (uint32_t i = 0; due && i < nrd_js_topic_n_partitions(topic); i++)
        nrd_js_consumer_doubt(nrd_js_topic_partition(topic, i));
}

void nrd_js_consumers_lower(NrdEngine *engine)
{
    if (!atomic_exchange(&engine->lowers, false))
        return;
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        lower(engine, topics->pdata[i]);
}

/* One that is there keeps its start, which cannot be changed. Before it is set to other settings this daemon looks whether its
 * own are the newest. */
static int set(NrdPartition *partition, const NrdJsConsumerInfo *info, char **ret_why)
{
    NrdEngine *engine = partition->topic->engine;
    NrdJsConsumerConfig config = config_of(partition, info->start_seq);
    nrd_js_leases_know_wait(partition, MIN(info->ack_wait_ms, config.ack_wait_ms));
    if (info->ack_wait_ms == config.ack_wait_ms && info->max_ack_pending == config.max_ack_pending)
        return 0;
    g_mutex_lock(&engine->admin);
    int rc = nrd_js_follow_admin_held(engine, ret_why);
    g_mutex_unlock(&engine->admin);
    if (rc < 0)
        return rc;
    config = config_of(partition, info->start_seq);
    int64_t wait_ms = config.ack_wait_ms;
    if (is_too_early(partition, info->ack_wait_ms, wait_ms))
        config.ack_wait_ms = info->ack_wait_ms;
    if (info->ack_wait_ms != config.ack_wait_ms || info->max_ack_pending != config.max_ack_pending)
        rc = create(partition, nrd_js_leases_generation(partition), &config, ret_why);
    nrd_js_leases_limit_wait(partition, wait_ms);
    return rc;
}

/* Another mount may have made one at the same time, which is then found, and one of them deleted. */
static int find_or_make_once(NrdPartition *partition, uint64_t known, char **ret_why)
{
    NrdJsConsumerInfo info;
    int rc = find(partition, NRD_JS_PATIENCE_MS, &info, ret_why);
    if (rc == -ENOENT) {
        rc = make_once(partition, known, ret_why);
        rc = rc < 0 ? rc : find(partition, NRD_JS_PATIENCE_MS, &info, ret_why);
    }
    return rc < 0 ? rc : set(partition, &info, ret_why);
}

/* Again when another thread has put another one in its place meanwhile. */
static int find_or_make(NrdPartition *partition, char **ret_why)
{
    int rc = -EIO;
    bool again = true;
    for (int i = 0; rc == -EIO && again && i < FIND_TRIES; i++) {
        uint64_t known = nrd_js_leases_generation(partition);
        rc = find_or_make_once(partition, known, ret_why);
        again = nrd_js_leases_generation(partition) != known;
    }
    return rc;
}

int nrd_js_partition_need_consumer(NrdPartition *partition)
{
    g_autofree char *why = NULL;
    if (atomic_load(&partition->has_consumer))
        return 0;
    unsigned n_doubts = atomic_load(&partition->n_doubts);
    int rc = nrd_js_partition_usable(partition);
    if (rc < 0)
        return rc; /* a stream that nobody has accepted gets none */
    rc = find_or_make(partition, &why);
    atomic_store(&partition->has_consumer, rc == 0);
    if (atomic_load(&partition->n_doubts) != n_doubts) /* since it was looked: once more by its next use */
        atomic_store(&partition->has_consumer, false);
    rc = nrd_js_partition_why(partition, rc);
    if (rc < 0 && rc != -EIDRM && rc != -ENODEV)
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_partition_place(partition), "its consumer could not be made: %s",
                 why ? why : g_strerror(-rc));
    return rc;
}

/* ---- nobody answers under its name ---- */

void nrd_js_consumer_doubt(NrdPartition *partition)
{
    atomic_fetch_add(&partition->n_doubts, 1);
    atomic_store(&partition->has_consumer, false);
}

static void look_again(void *user_data)
{
    NrdPartition *partition = user_data;
    NrdTopic *topic = partition->topic;
    (void)!nrd_js_partition_need_consumer(partition); /* a failure is told there */
    atomic_store(&partition->looks_for_consumer, false);
    nrd_js_topic_unref(topic);
}

void nrd_js_consumer_suspect(NrdPartition *partition)
{
    if (!nrd_js_conn_is_up(partition->topic->engine->conn) || atomic_exchange(&partition->looks_for_consumer, true))
        return;
    nrd_js_consumer_doubt(partition);
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, look_again, partition);
}

/* ---- replacing ---- */

/* One try. -EIO: perhaps because another mount has just made one of that name. */
static int replace(NrdPartition *partition, uint64_t start_seq, char **ret_why)
{
    g_autoptr(GArray) generations = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdJsConsumerConfig config = config_of(partition, start_seq);
    int rc = list(partition, NRD_JS_PATIENCE_MS, generations, ret_why);
    if (rc < 0)
        return rc;
    uint64_t before = generations->len > 0 ? highest(generations) : 0;
    uint64_t generation = MAX((uint64_t)nrd_clock_wall_ms(), MAX(before, nrd_js_leases_generation(partition)) + 1);
    rc = create(partition, generation, &config, ret_why);
    g_array_append_val(generations, generation);
    return rc < 0 ? rc : delete_others(partition, generations, generation, ret_why);
}

int nrd_js_consumer_replace(NrdPartition *partition, uint64_t start_seq)
{
    g_autofree char *why = NULL;
    int rc = -EIO;
    for (int i = 0; rc == -EIO && i < SEEK_TRIES; i++)
        rc = replace(partition, start_seq, &why);
    rc = nrd_js_partition_why(partition, rc);
    if (rc < 0 && rc != -EIDRM)
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_partition_place(partition), "the consumer could not be moved: %s",
                 why ? why : g_strerror(-rc));
    g_mutex_lock(&partition->lock);
    if (rc == 0)
        partition->consumer.floor_seq = start_seq - 1;
    partition->floor_known = rc == 0;
    g_strlcpy(partition->floor_created, partition->info.created, sizeof partition->floor_created);
    g_mutex_unlock(&partition->lock);
    if (rc <
        0) /* else what was before is void since the new one was adopted, and leases of that one are there already */
        nrd_js_leases_void(partition);
    nrd_js_partition_changed(partition);
    atomic_store(&partition->has_consumer, rc == 0);
    return rc;
}
