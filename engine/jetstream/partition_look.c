/* What the servers say of a partition's stream and of its consumer, when somebody has them asked. See partition.c. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/kept.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/streams.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define FRESH_MS 1000
#define SILENT_MS 5000 /* who looks at many files is not to wait for each */
#define BRIEF_MS 250   /* for an answer, while others do not come */
#define SUSPECT_MS 5000
#define GONE_MS 1000     /* servers that have just started may not know of it yet */
#define ANSWERED_MS 2000 /* for acks on their way: some ten thousand of them take a second */

/* ---- what they answer ---- */

/* Why the stream is not the one that was known, or NULL (g_free). before: the end that was known when the servers were asked;
 * what was published meanwhile is no evidence. */
static char *suspect_locked(NrdPartition *partition, const NrdJsStreamInfo *next, uint64_t before)
{
    if (!partition->known)
        return NULL;
    if (strcmp(partition->info.created, next->created) != 0)
        return g_strdup_printf("the stream %s was made anew at %s: it is not the one that was here", partition->stream,
                               next->created);
    if (next->last_seq < before)
        return g_strdup_printf("the stream %s ends at offset %" G_GUINT64_FORMAT ", and did at %" G_GUINT64_FORMAT
                               ": the servers have lost records that they had acknowledged",
                               partition->stream, next->last_seq, before);
    return NULL;
}

static void accept_locked(NrdPartition *partition, const NrdJsStreamInfo *info)
{
    uint64_t last_seq = partition->known ? partition->info.last_seq : 0;
    partition->info = *info;
    partition->info.last_seq = MAX(info->last_seq, last_seq); /* it has grown since they were asked */
    partition->known = true;
    partition->suspect_ms = 0;
    partition->gone_ms = 0;
}

/* A suspicion holds for a while before it is believed: a new leader may be behind for a moment. What was known stays
 * meanwhile. */
static void take_stream_info(NrdPartition *partition, const NrdJsStreamInfo *info, uint64_t before)
{
    bool told = false;
    g_mutex_lock(&partition->lock);
    int64_t now_ms = nrd_clock_mono_ms();
    g_autofree char *why = suspect_locked(partition, info, before);
    partition->known_ms = now_ms;
    if (!partition->poison && !why)
        accept_locked(partition, info);
    if (why && partition->suspect_ms == 0)
        partition->suspect_ms = now_ms;
    if (why && !partition->poison && now_ms - partition->suspect_ms >= SUSPECT_MS) {
        partition->poison = g_strdup(why);
        told = true;
    }
    g_mutex_unlock(&partition->lock);
    if (told)
        nrd_js_partition_end_service(partition, why);
}

static void take_consumer_info(NrdPartition *partition, int rc, const NrdJsConsumerInfo *info)
{
    g_mutex_lock(&partition->lock);
    partition->no_consumer = rc == -ENOENT;
    if (rc == 0) {
        partition->consumer = *info;
        partition->floor_known = true;
        g_strlcpy(partition->floor_created, partition->info.created, sizeof partition->floor_created);
    }
    g_clear_pointer(&partition->reason, g_free);
    partition->known_ms = nrd_clock_mono_ms();
    g_mutex_unlock(&partition->lock);
}

static const char gone[] =
    "its stream is gone: restore it on the servers, or let reopen make an empty one in its place";

static void note_silence(NrdPartition *partition, int rc, const char *why)
{
    const char *reason = rc == -ENOENT ? gone : why ? why : g_strerror(-rc);
    g_mutex_lock(&partition->lock);
    bool first = g_strcmp0(partition->reason, reason) != 0 && (!partition->reason || rc == -ENOENT);
    g_free(partition->reason);
    partition->reason = g_strdup(reason);
    partition->known_ms = nrd_clock_mono_ms();
    if (rc != -ENOENT)
        partition->gone_ms = 0;
    else if (partition->gone_ms == 0)
        partition->gone_ms = partition->known_ms;
    g_mutex_unlock(&partition->lock);
    if (first)
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_partition_place(partition), "the stream %s: %s", partition->stream, reason);
}

/* ---- asking them ---- */

/* Of a topic that another mount has removed just now the streams are gone, too. */
static void follow_removals(NrdPartition *partition)
{
    NrdEngine *engine = partition->topic->engine;
    g_mutex_lock(&engine->admin);
    (void)!nrd_js_follow_admin_held(engine, NULL);
    g_mutex_unlock(&engine->admin);
}

int nrd_js_partition_look(NrdPartition *partition, int64_t patience_ms)
{
    NrdEngine *engine = partition->topic->engine;
    NrdJsStreamInfo info;
    NrdJsConsumerInfo consumer = { .pending = 0 };
    g_autofree char *why = NULL;
    g_mutex_lock(&partition->lock);
    uint64_t before = partition->known ? partition->info.last_seq : 0;
    g_mutex_unlock(&partition->lock);
    int rc = nrd_js_stream_info(engine->conn, partition->stream, patience_ms, &info, &why);
    if (rc == -ENOENT && !atomic_load(&partition->topic->deleted))
        follow_removals(partition);
    if (rc < 0) {
        if (!atomic_load(&partition->topic->deleted) && rc != -ENODEV)
            note_silence(partition, rc, why);
        return rc;
    }
    take_stream_info(partition, &info, before);
    nrd_js_stream_seen(partition, &info);
    nrd_js_kept_seen(partition, &info);
    nrd_js_acks_wait_answered(partition, ANSWERED_MS);
    rc = nrd_js_consumer_look(partition, patience_ms, &consumer, &why);
    if (rc == 0 || rc == -ENOENT)
        take_consumer_info(partition, rc, &consumer);
    else if (rc != -ENODEV)
        note_silence(partition, rc, why);
    return 0;
}

/* A stream that does not answer is known by that. Who looks at many waits for one of them. */
int nrd_js_partition_learn(NrdPartition *partition)
{
    NrdEngine *engine = partition->topic->engine;
    int rc = nrd_js_topic_usable(partition->topic);
    if (rc < 0)
        return rc;
    bool brief = !nrd_js_conn_is_up(engine->conn) || nrd_clock_mono_ms() < atomic_load(&engine->silent_until_ms);
    rc = nrd_js_partition_look(partition, brief ? BRIEF_MS : NRD_JS_GLANCE_MS);
    if (!brief && rc != -ENOENT && nrd_js_partition_is_silent(partition))
        atomic_store(&engine->silent_until_ms, nrd_clock_mono_ms() + SILENT_MS);
    return rc == -ENODEV ? rc : 0;
}

static int learn_one(void *user_data, uint32_t number)
{
    NrdPartition *partition = nrd_js_topic_partition(user_data, number);
    if (!nrd_js_partition_known(partition))
        (void)!nrd_js_partition_learn(partition);
    return 0;
}

void nrd_js_topic_learn(NrdTopic *topic)
{
    (void)!nrd_js_each(topic->engine->conn, 0, nrd_js_topic_n_partitions(topic), learn_one, topic);
}

/* ---- again, while nobody reads ---- */

/* What was seen of it is no news any more. What is poisoned for good does not pass. */
static bool wants_look(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool silent = partition->reason && !partition->poison;
    g_mutex_unlock(&partition->lock);
    return silent && !nrd_js_partition_known(partition);
}

static int look_again_at_one(void *user_data, uint32_t number)
{
    NrdPartition *partition = nrd_js_topic_partition(user_data, number);
    if (wants_look(partition))
        (void)!nrd_js_partition_learn(partition);
    return 0;
}

static bool topic_wants_look(NrdTopic *topic)
{
    for (uint32_t p = 0; p < nrd_js_topic_n_partitions(topic); p++)
        if (wants_look(nrd_js_topic_partition(topic, p)))
            return true;
    return false;
}

static void run_look_again(void *user_data)
{
    NrdEngine *engine = user_data;
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len && nrd_js_conn_is_up(engine->conn); i++)
        if (topic_wants_look(topics->pdata[i]))
            (void)!nrd_js_each(engine->conn, 0, nrd_js_topic_n_partitions(topics->pdata[i]), look_again_at_one,
                               topics->pdata[i]);
    atomic_store(&engine->looks_again, false);
}

/* Looks are as far apart as those of who reads (SILENT_MS), and while they are not answered none but the first of them waits
 * for long (nrd_js_partition_learn). */
void nrd_js_silent_watch(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    bool wants = false;
    for (guint i = 0; i < topics->len && !wants; i++)
        wants = topic_wants_look(topics->pdata[i]);
    if (wants && !atomic_exchange(&engine->looks_again, true))
        nrd_js_later(engine->conn, run_look_again, engine);
}

/* ---- what came of it ---- */

bool nrd_js_partition_is_silent(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool silent = partition->reason != NULL;
    g_mutex_unlock(&partition->lock);
    return silent;
}

bool nrd_js_partition_is_gone(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool is_gone = partition->gone_ms > 0 && nrd_clock_mono_ms() - partition->gone_ms >= GONE_MS;
    g_mutex_unlock(&partition->lock);
    return is_gone;
}

bool nrd_js_partition_known(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    int64_t fresh_ms = partition->reason ? SILENT_MS : FRESH_MS;
    bool known = partition->known_ms > 0 && nrd_clock_mono_ms() - partition->known_ms < fresh_ms;
    g_mutex_unlock(&partition->lock);
    return known;
}
