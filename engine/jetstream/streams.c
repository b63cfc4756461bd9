/* The streams of a topic: all of them at once, as far as that goes.
 *
 * Before a topic without records is removed its streams are closed: from then on they take nothing on the subject that
 * records are published to, but on another one, of this removal alone. There something is published that the servers refuse
 * and say where the stream ends, which shows that it has been closed: servers take one message after the other, so a record
 * that was under way meanwhile is before that end, which is another one then than was seen, or is refused, and its writer
 * tries again. Nothing is stored that a reader could meet.
 *
 * Of two who remove a topic at once, or of one who opens the streams while another removes it, each has written the topic's
 * record before (admin.c): the removal of who was slower fails, as the record is at another revision. */
#include "engine/jetstream/streams.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/store.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define DEAD_MS 120000 /* four times as long as a removal keeps streams closed */
#define PROBE_MS 2000  /* before it is looked why nobody answers */

static NrdJsStreamConfig stream_config(NrdEngine *engine, const NrdTopicRecord *record)
{
    return (NrdJsStreamConfig){
        .replicas = engine->replicas,
        .max_age_ms = record->config.retention_ms,
        .max_bytes = record->config.retention_bytes,
        .description = "a partition of naradfs",
    };
}

/* What is done to each stream. */
typedef struct Work Work;
typedef int (*StreamFn)(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why);
struct Work {
    NrdEngine *engine;
    const NrdTopicRecord *record;
    NrdJsStreamConfig config;
    StreamFn fn;
    const char *remover;
    const uint64_t *lasts;
    bool quiet;
    GMutex lock;
    char *why; /* guarded by lock: of the first failure */
};

static int do_one(void *user_data, uint32_t number)
{
    Work *work = user_data;
    const NrdTopicRecord *record = work->record;
    g_autofree char *stream = nrd_js_stream_name(record->name, record->id, number);
    g_autofree char *subject = nrd_js_subject(record->name, record->id, number);
    g_autofree char *why = NULL;
    int rc = work->fn(work, number, stream, subject, &why);
    if (rc >= 0)
        return 0;
    if (!work->quiet && rc != -ENOTEMPTY && rc != -EBUSY)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ record->name, number, NRD_NO_OFFSET }, "the stream %s: %s", stream,
                 why ? why : g_strerror(-rc));
    g_mutex_lock(&work->lock);
    if (!work->why)
        work->why = g_strdup_printf("the stream %s: %s", stream, why ? why : g_strerror(-rc));
    g_mutex_unlock(&work->lock);
    return rc;
}

/* Of partitions [from, end). */
static int do_all(Work *work, uint32_t from, uint32_t end, char **ret_why)
{
    work->config = stream_config(work->engine, work->record);
    g_mutex_init(&work->lock);
    int rc = nrd_js_each(work->engine->conn, from, end, do_one, work);
    g_mutex_clear(&work->lock);
    if (ret_why)
        *ret_why = g_steal_pointer(&work->why);
    g_free(work->why);
    return rc;
}

static uint32_t n_partitions(const NrdTopicRecord *record)
{
    return (uint32_t)record->config.partitions;
}

/* ---- making, changing, deleting ---- */

/* One that was made for a topic that did not become that large. With copies as it has them it may be as the topic is by now;
 * else it is set so. A removal may have closed it: that fails by the touch, and opens it again. */
static int adopt_one(const Work *work, const char *stream, const char *subject, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    NrdJsStreamConfig own = work->config;
    NrdJsStreamInfo info;
    bool there;
    int rc = nrd_js_stream_keep_copies(conn, stream, &own, ret_why);
    if (rc < 0)
        return rc;
    rc = nrd_js_stream_create(conn, stream, subject, &own, ret_why);
    if (rc != -EEXIST)
        return rc;
    g_clear_pointer(ret_why, g_free);
    rc = nrd_js_store_touch(work->engine, work->record->name, work->record->id, &there);
    if (rc == 0)
        rc = there ? nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why) : -EEXIST;
    if (rc == 0 && info.closed)
        return -EBUSY;
    return rc < 0 ? rc : nrd_js_stream_update(conn, stream, subject, &work->config, ret_why);
}

static int make_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    int rc = nrd_js_stream_create(work->engine->conn, stream, subject, &work->config, ret_why);
    return rc == -EEXIST ? adopt_one(work, stream, subject, ret_why) : rc;
}

int nrd_js_topic_make_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from, char **ret_why)
{
    Work work = { .engine = engine, .record = record, .fn = make_one };
    return do_all(&work, from, n_partitions(record), ret_why);
}

int nrd_js_topic_make_stream(NrdEngine *engine, const NrdTopicRecord *record, uint32_t number)
{
    Work work = { .engine = engine, .record = record, .fn = make_one };
    return do_all(&work, number, number + 1, NULL);
}

static int update_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    return nrd_js_stream_update(work->engine->conn, stream, subject, &work->config, ret_why);
}

int nrd_js_topic_update_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t end, char **ret_why)
{
    Work work = { .engine = engine, .record = record, .fn = update_one };
    return do_all(&work, 0, end, ret_why);
}

static int delete_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    int rc = nrd_js_stream_delete(work->engine->conn, stream, ret_why);
    return rc == -ENOENT ? 0 : rc;
}

int nrd_js_topic_delete_streams(NrdEngine *engine, const NrdTopicRecord *record, char **ret_why)
{
    Work work = { .engine = engine, .record = record, .fn = delete_one, .quiet = true };
    return do_all(&work, 0, n_partitions(record), ret_why);
}

/* ---- closing and opening ---- */

static bool is_closed_for(const NrdJsStreamInfo *info, const char *remover)
{
    return info->closed && strcmp(info->closed_by, remover) == 0;
}

/* Unless another remover has: what it has closed stays so. */
static int set_closed(const Work *work, const char *stream, const char *closed, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why);
    if (rc == 0 && info.closed)
        return -EBUSY;
    if (rc == 0)
        rc = nrd_js_stream_update(conn, stream, closed, &work->config, ret_why);
    if (rc == 0)
        rc = nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why);
    return rc == 0 && !is_closed_for(&info, work->remover) ? -EBUSY : rc;
}

/* Where the stream ends, now that it is closed. Nobody answers when another remover has closed it for himself in the same moment,
 * or has deleted it: that is looked at, as waiting does not help. */
static int probe(const Work *work, const char *stream, const char *closed, uint64_t *ret_last, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    unsigned n_nudges = 0;
    for (;;) {
        NrdJsStreamInfo info;
        int64_t asked_ms = nrd_clock_mono_ms();
        int rc = nrd_js_probe_last(conn, closed, PROBE_MS, &n_nudges, ret_last, ret_why);
        bool answered = rc != -EIO || nrd_clock_mono_ms() - asked_ms < PROBE_MS / 2;
        if (answered || nrd_clock_mono_ms() >= until_ms)
            return rc;
        rc = nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why);
        if (rc < 0)
            return rc;
        if (!is_closed_for(&info, work->remover))
            return -EBUSY;
    }
}

static int close_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    g_autofree char *closed = nrd_js_closed_subject(subject, work->remover);
    uint64_t last;
    int rc = set_closed(work, stream, closed, ret_why);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc; /* it is gone, and takes nothing */
    rc = probe(work, stream, closed, &last, ret_why);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    return last != work->lasts[number] ? -ENOTEMPTY : 0;
}

int nrd_js_topic_close_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover,
                               const uint64_t *lasts)
{
    Work work = { .engine = engine, .record = record, .fn = close_one, .remover = remover, .lasts = lasts };
    return do_all(&work, 0, n_partitions(record), NULL);
}

static int open_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why);
    if (rc == 0 && is_closed_for(&info, work->remover))
        rc = nrd_js_stream_update(conn, stream, subject, &work->config, ret_why);
    return rc == -ENOENT ? 0 : rc;
}

int nrd_js_topic_open_streams(NrdEngine *engine, const NrdTopicRecord *record, const char *remover)
{
    Work work = { .engine = engine, .record = record, .fn = open_one, .remover = remover };
    return do_all(&work, 0, n_partitions(record), NULL);
}

/* ---- of a removal that has died ---- */

/* Should it live, and only be slow, it fails by the touch. */
static void run_open(void *user_data)
{
    NrdPartition *partition = user_data;
    NrdTopic *topic = partition->topic;
    NrdEngine *engine = topic->engine;
    char remover[NRD_JS_REMOVER_BYTES];
    bool there = false;
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *record = topic->record ? nrd_topic_record_copy(topic->record) : NULL;
    g_mutex_unlock(&topic->lock);
    g_mutex_lock(&partition->lock);
    memcpy(remover, partition->closed_by, sizeof remover);
    g_mutex_unlock(&partition->lock);
    Work work = { .engine = engine, .record = record, .fn = open_one, .remover = remover };
    if (record && nrd_js_topic_usable(topic) == 0 && nrd_js_store_touch(engine, topic->name, topic->id, &there) == 0 &&
        there && do_all(&work, partition->number, partition->number + 1, NULL) == 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "the stream was closed for a removal that has not come: it takes records again");
    nrd_topic_record_free(record);
    nrd_js_topic_unref(topic);
}

void nrd_js_stream_seen(NrdPartition *partition, const NrdJsStreamInfo *info)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->lock);
    if (!info->closed || partition->closed_ms == 0 || strcmp(partition->closed_by, info->closed_by) != 0)
        partition->closed_ms = info->closed ? now_ms : 0;
    memcpy(partition->closed_by, info->closed_by, sizeof partition->closed_by);
    bool dead = info->closed && now_ms - partition->closed_ms >= DEAD_MS && !partition->topic->engine->read_only;
    if (dead)
        partition->closed_ms = now_ms;
    g_mutex_unlock(&partition->lock);
    if (!dead)
        return;
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, run_open, partition);
}

static void run_look(void *user_data)
{
    NrdPartition *partition = user_data;
    (void)!nrd_js_partition_look(partition, NRD_JS_GLANCE_MS);
    nrd_js_topic_unref(partition->topic);
}

void nrd_js_stream_look_later(NrdPartition *partition)
{
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, run_look, partition);
}

static void run_suspect(void *user_data)
{
    NrdPartition *partition = user_data;
    (void)!nrd_js_partition_look(partition, NRD_JS_GLANCE_MS);
    atomic_store(&partition->looks_for_stream, false);
    nrd_js_topic_unref(partition->topic);
}

void nrd_js_stream_suspect(NrdPartition *partition)
{
    if (!nrd_js_conn_is_up(partition->topic->engine->conn) || atomic_exchange(&partition->looks_for_stream, true))
        return;
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, run_suspect, partition);
}
