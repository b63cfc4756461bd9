/* The streams of a topic: all of them at once, as far as that goes.
 *
 * Before a topic without records is removed its streams are closed: from then on they take nothing on the subject that
 * records are published to, but on another one, and there a mark that is stored only if the last sequence is still the one
 * that was seen. Servers store one message after the other, so a record that was under way meanwhile is before the mark, which
 * is refused then, or is refused itself, and its writer tries again. */
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"

#define DEAD_MS 120000 /* four times as long as a removal keeps streams closed */

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
    if (!work->quiet && rc != -ENOTEMPTY)
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

static int make_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    return nrd_js_stream_create(work->engine->conn, stream, subject, &work->config, ret_why);
}

int nrd_js_topic_make_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from)
{
    Work work = { .engine = engine, .record = record, .fn = make_one };
    return do_all(&work, from, n_partitions(record), NULL);
}

static int update_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    return nrd_js_stream_update(work->engine->conn, stream, subject, &work->config, ret_why);
}

int nrd_js_topic_update_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t end)
{
    Work work = { .engine = engine, .record = record, .fn = update_one };
    return do_all(&work, 0, end, NULL);
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

static int close_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    g_autofree char *closed = nrd_js_closed_subject(subject);
    uint64_t sequence;
    int rc = nrd_js_stream_update(conn, stream, closed, &work->config, ret_why);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc; /* it is gone, and takes nothing */
    rc = nrd_js_put_after(conn, closed, work->lasts[number], &sequence, ret_why);
    return rc == -EBUSY ? -ENOTEMPTY : rc;
}

int nrd_js_topic_close_streams(NrdEngine *engine, const NrdTopicRecord *record, const uint64_t *lasts)
{
    Work work = { .engine = engine, .record = record, .fn = close_one, .lasts = lasts };
    return do_all(&work, 0, n_partitions(record), NULL);
}

/* The mark goes, and nothing else: it is told by its subject. */
static int open_one(const Work *work, uint32_t number, const char *stream, const char *subject, char **ret_why)
{
    NrdJsConn *conn = work->engine->conn;
    g_autofree char *closed = nrd_js_closed_subject(subject);
    int rc = nrd_js_stream_purge(conn, stream, closed, ret_why);
    if (rc == 0)
        rc = nrd_js_stream_update(conn, stream, subject, &work->config, ret_why);
    return rc == -ENOENT ? 0 : rc;
}

int nrd_js_topic_open_streams(NrdEngine *engine, const NrdTopicRecord *record)
{
    Work work = { .engine = engine, .record = record, .fn = open_one };
    return do_all(&work, 0, n_partitions(record), NULL);
}

/* ---- of a removal that has died ---- */

static void run_open(void *user_data)
{
    NrdPartition *partition = user_data;
    NrdTopic *topic = partition->topic;
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *record = topic->record ? nrd_topic_record_copy(topic->record) : NULL;
    g_mutex_unlock(&topic->lock);
    Work work = { .engine = topic->engine, .record = record, .fn = open_one };
    if (record && nrd_js_topic_usable(topic) == 0 && do_all(&work, partition->number, partition->number + 1, NULL) == 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "the stream was closed for a removal that has not come: it takes records again");
    nrd_topic_record_free(record);
    nrd_js_topic_unref(topic);
}

void nrd_js_stream_seen(NrdPartition *partition, bool closed)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->lock);
    if (!closed || partition->closed_ms == 0)
        partition->closed_ms = closed ? now_ms : 0;
    bool dead = closed && now_ms - partition->closed_ms >= DEAD_MS && !partition->topic->engine->read_only;
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
