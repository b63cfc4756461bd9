/* One topic: its record and settings, its partitions, who holds it. */
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"

NrdPlace nrd_js_topic_place(const NrdTopic *topic)
{
    return (NrdPlace){ topic->name, NRD_NO_PARTITION, NRD_NO_OFFSET };
}

/* ---- life ---- */

static void add_partitions_locked(NrdTopic *topic)
{
    uint32_t n = topic->record ? (uint32_t)topic->record->config.partitions : 0;
    for (uint32_t number = topic->partitions->len; number < n; number++)
        g_ptr_array_add(topic->partitions, nrd_js_partition_new(topic, number));
}

NrdTopic *nrd_js_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, uint64_t revision, char *fault)
{
    NrdTopic *topic = g_new0(NrdTopic, 1);
    topic->table = &nrd_js_table;
    topic->refs = 1;
    topic->engine = engine;
    topic->name = g_strdup(name);
    topic->record = record;
    topic->revision = revision;
    topic->fault = fault;
    if (record)
        g_strlcpy(topic->id, record->id, sizeof topic->id);
    topic->partitions = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_js_partition_free);
    topic->outboxes = g_ptr_array_new();
    g_mutex_init(&topic->guard);
    g_mutex_init(&topic->lock);
    add_partitions_locked(topic);
    return topic;
}

NrdTopic *nrd_js_topic_ref(NrdTopic *topic)
{
    g_atomic_int_inc(&topic->refs);
    return topic;
}

void nrd_js_topic_unref(NrdTopic *topic)
{
    if (!topic || !g_atomic_int_dec_and_test(&topic->refs))
        return;
    g_ptr_array_unref(topic->partitions);
    g_ptr_array_unref(topic->outboxes);
    nrd_topic_record_free(topic->record);
    g_mutex_clear(&topic->guard);
    g_mutex_clear(&topic->lock);
    g_free(topic->fault);
    g_free(topic->refusal);
    g_free(topic->name);
    g_free(topic);
}

void nrd_js_topic_put_record(NrdTopic *topic, NrdTopicRecord *record, uint64_t revision)
{
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *old = topic->record;
    bool consumers_change = old && (old->config.visibility_timeout_ms != record->config.visibility_timeout_ms ||
                                    old->config.max_in_flight != record->config.max_in_flight);
    topic->record = record;
    topic->revision = revision;
    add_partitions_locked(topic);
    for (guint i = 0; consumers_change && i < topic->partitions->len; i++)
        atomic_store(&((NrdPartition *)topic->partitions->pdata[i])->has_consumer,
                     false); /* set anew by its next use */
    g_mutex_unlock(&topic->lock);
    nrd_topic_record_free(old);
}

static void add_outboxes(GPtrArray *all, GPtrArray *some)
{
    for (guint i = 0; i < some->len; i++)
        g_ptr_array_add(all, nrd_js_outbox_ref(some->pdata[i]));
}

void nrd_js_topic_gone(NrdTopic *topic)
{
    if (atomic_exchange(&topic->deleted, true))
        return;
    GPtrArray *outboxes = g_ptr_array_new();
    g_mutex_lock(&topic->lock);
    add_outboxes(outboxes, topic->outboxes);
    for (guint i = 0; i < topic->partitions->len; i++) {
        NrdPartition *partition = topic->partitions->pdata[i];
        g_mutex_lock(&partition->lock);
        add_outboxes(outboxes, partition->outboxes);
        g_mutex_unlock(&partition->lock);
    }
    g_mutex_unlock(&topic->lock);
    nrd_js_outboxes_fail(outboxes, -EIDRM);
    nrd_js_pulls_interrupt(topic->engine->pulls, topic, -EIDRM);
    nrd_diag(NRD_LEVEL_NOTICE, nrd_js_topic_place(topic), "incarnation %s is gone", topic->id);
}

int nrd_js_topic_usable(NrdTopic *topic)
{
    if (atomic_load(&topic->deleted))
        return -EIDRM;
    g_mutex_lock(&topic->lock);
    bool damaged = topic->record == NULL;
    g_mutex_unlock(&topic->lock);
    return damaged ? -EIO : 0;
}

int nrd_js_topic_hold(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    int rc = atomic_load(&topic->deleted) ? -EIDRM : 0;
    topic->n_holds += rc == 0;
    g_mutex_unlock(&topic->lock);
    return rc;
}

void nrd_js_topic_release(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    topic->n_holds--;
    g_mutex_unlock(&topic->lock);
}

/* ---- what it is ---- */

const char *nrd_js_topic_name(const NrdTopic *topic)
{
    return topic->name;
}

const char *nrd_js_topic_incarnation(const NrdTopic *topic)
{
    return topic->id;
}

bool nrd_js_topic_deleted(NrdTopic *topic)
{
    return atomic_load(&topic->deleted);
}

char *nrd_js_topic_fault(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    char *fault = g_strdup(topic->fault);
    g_mutex_unlock(&topic->lock);
    return fault;
}

int nrd_js_topic_produce_error(NrdTopic *topic)
{
    return 0;
}

bool nrd_js_topic_lost(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    bool lost = topic->record == NULL;
    g_mutex_unlock(&topic->lock);
    return lost;
}

uint32_t nrd_js_topic_n_partitions(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    uint32_t n = topic->partitions->len;
    g_mutex_unlock(&topic->lock);
    return n;
}

NrdPartition *nrd_js_topic_partition(NrdTopic *topic, uint32_t number)
{
    g_mutex_lock(&topic->lock);
    NrdPartition *partition = number < topic->partitions->len ? topic->partitions->pdata[number] : NULL;
    g_mutex_unlock(&topic->lock);
    return partition;
}

int64_t nrd_js_topic_created_ms(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->created_ms : 0;
    g_mutex_unlock(&topic->lock);
    return ms;
}

void nrd_js_topic_keep_refusal(NrdTopic *topic, char *text)
{
    g_mutex_lock(&topic->lock);
    char *old = topic->refusal;
    topic->refusal = text;
    topic->refused_ms = nrd_clock_wall_ms();
    g_mutex_unlock(&topic->lock);
    g_free(old);
}

char *nrd_js_topic_refusal(NrdTopic *topic, int64_t *ret_ms)
{
    g_mutex_lock(&topic->lock);
    char *text = g_strdup(topic->refusal);
    *ret_ms = topic->refused_ms;
    g_mutex_unlock(&topic->lock);
    return text;
}

/* ---- streams ---- */

static NrdJsStreamConfig stream_config(NrdEngine *engine, const NrdTopicRecord *record)
{
    return (NrdJsStreamConfig){
        .replicas = engine->replicas,
        .max_age_ms = record->config.retention_ms,
        .max_bytes = record->config.retention_bytes,
        .description = "a partition of naradfs",
    };
}

typedef int (*StreamFn)(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                        char **ret_why);

/* Does it to the streams of partitions [from, end), up to the first failure, which is told. */
static int each_stream(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from, uint32_t end, StreamFn fn)
{
    NrdJsStreamConfig config = stream_config(engine, record);
    int rc = 0;
    for (uint32_t number = from; rc == 0 && number < end; number++) {
        g_autofree char *stream = nrd_js_stream_name(record->name, record->id, number);
        g_autofree char *subject = nrd_js_subject(record->name, record->id, number);
        g_autofree char *why = NULL;
        rc = fn(engine->conn, stream, subject, &config, &why);
        if (rc < 0)
            nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ record->name, number, NRD_NO_OFFSET }, "the stream %s: %s", stream,
                     why ? why : g_strerror(-rc));
    }
    return rc;
}

int nrd_js_topic_make_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from)
{
    return each_stream(engine, record, from, (uint32_t)record->config.partitions, nrd_js_stream_create);
}

void nrd_js_topic_delete_streams(NrdEngine *engine, const NrdTopicRecord *record, uint32_t from)
{
    for (uint32_t number = from; number < (uint32_t)record->config.partitions; number++) {
        g_autofree char *stream = nrd_js_stream_name(record->name, record->id, number);
        g_autofree char *why = NULL;
        int rc = nrd_js_stream_delete(engine->conn, stream, &why);
        if (rc < 0 && rc != -ENOENT)
            nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ record->name, number, NRD_NO_OFFSET },
                     "the stream %s stays, and may be deleted by hand: %s", stream, why ? why : g_strerror(-rc));
    }
}

/* ---- changing the record ---- */

/* A copy to change, and its revision. Guard held. */
static int copy_record(NrdTopic *topic, NrdTopicRecord **ret_record, uint64_t *ret_revision)
{
    if (topic->engine->read_only)
        return -EROFS;
    int rc = nrd_js_topic_usable(topic);
    if (rc < 0)
        return rc;
    g_mutex_lock(&topic->lock);
    *ret_record = nrd_topic_record_copy(topic->record);
    *ret_revision = topic->revision;
    g_mutex_unlock(&topic->lock);
    return 0;
}

/* Another daemon that changed the topic at the same time was faster: its change is there when this returns -EBUSY, and ours
 * can be made again on top of it. record is taken over. Guard held. Blocks. */
static int replace_record(NrdTopic *topic, NrdTopicRecord *record, uint64_t revision)
{
    g_autofree char *why = NULL;
    int rc = nrd_js_store_put(topic->engine, record, revision, &revision, &why);
    if (rc == 0)
        nrd_js_topic_put_record(topic, g_steal_pointer(&record), revision);
    nrd_topic_record_free(record);
    if (rc == -EBUSY) {
        g_mutex_lock(&topic->engine->admin);
        (void)!nrd_js_follow_admin_held(topic->engine, NULL);
        g_mutex_unlock(&topic->engine->admin);
    } else if (rc < 0) {
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_topic_place(topic), "the topic's record could not be written: %s",
                 why ? why : g_strerror(-rc));
    }
    return rc;
}

typedef struct Change {
    /* Changes the copy; *ret_same: there is nothing to write. */
    int (*apply)(NrdTopic *topic, NrdTopicRecord *record, const struct Change *change, bool *ret_same);
    const char *path;
    int what;
    uint32_t base_mode;
    const NrdAttr *attr;
    const char *text;
    size_t size;
} Change;

#define MAX_TRIES 10 /* against daemons that keep changing the same topic */

static int change_record(NrdTopic *topic, const Change *change)
{
    int rc = -EBUSY;
    g_mutex_lock(&topic->guard);
    for (int i = 0; rc == -EBUSY && i < MAX_TRIES; i++) {
        NrdTopicRecord *record = NULL;
        uint64_t revision;
        bool same = false;
        rc = copy_record(topic, &record, &revision);
        if (rc == 0)
            rc = change->apply(topic, record, change, &same);
        if (rc == 0 && !same)
            rc = replace_record(topic, g_steal_pointer(&record), revision);
        nrd_topic_record_free(record);
    }
    g_mutex_unlock(&topic->guard);
    return rc;
}

/* ---- owner and modes ---- */

void nrd_js_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr)
{
    NrdFileAttr attr = { 0, 0, base_mode & 0500 };
    g_mutex_lock(&topic->lock);
    if (topic->record)
        attr = nrd_topic_record_attr(topic->record, path, base_mode);
    g_mutex_unlock(&topic->lock);
    *ret_attr = (NrdAttr){ attr.uid, attr.gid, attr.mode };
}

static int apply_attr(NrdTopic *topic, NrdTopicRecord *record, const Change *change, bool *ret_same)
{
    NrdFileAttr attr = nrd_topic_record_attr(record, change->path, change->base_mode);
    attr.uid = change->what & NRD_ATTR_UID ? change->attr->uid : attr.uid;
    attr.gid = change->what & NRD_ATTR_GID ? change->attr->gid : attr.gid;
    attr.mode = change->what & NRD_ATTR_MODE ? change->attr->mode : attr.mode;
    *ret_same = !nrd_topic_record_set_attr(record, change->path, &attr);
    return 0;
}

int nrd_js_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    return change_record(
        topic, &(Change){ .apply = apply_attr, .path = path, .base_mode = base_mode, .what = what, .attr = attr });
}

/* ---- settings ---- */

char *nrd_js_topic_config_value(NrdTopic *topic, const char *key)
{
    g_mutex_lock(&topic->lock);
    char *value = topic->record ? nrd_topic_config_get(&topic->record->config, key) : NULL;
    g_mutex_unlock(&topic->lock);
    return value;
}

char *nrd_js_topic_config_lines(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    char *text = topic->record ? nrd_topic_config_text(&topic->record->config) : g_strdup("");
    g_mutex_unlock(&topic->lock);
    return text;
}

/* A key whose value would change, and means nothing here; NULL: none. */
static const char *meaningless(const NrdTopicConfig *old, const NrdTopicConfig *next)
{
    return old->segment_bytes != next->segment_bytes       ? "segment_bytes"
           : old->codec != next->codec                     ? "codec"
           : old->zstd_level != next->zstd_level           ? "zstd_level"
           : old->max_acked_ahead != next->max_acked_ahead ? "max_acked_ahead"
           : old->fanout_delay_ms != next->fanout_delay_ms ? "fanout_delay_ms"
                                                           : NULL;
}

static int refuse(NrdTopic *topic, int rc, const char *why)
{
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "config refused: %s; nothing was changed", why);
    return rc;
}

static int check_config(NrdTopic *topic, const NrdTopicConfig *old, const NrdTopicConfig *next)
{
    const char *key = meaningless(old, next);
    if (key) {
        g_autofree char *why = g_strdup_printf("%s means nothing in JetStream", key);
        return refuse(topic, -EOPNOTSUPP, why);
    }
    if (next->partitions < old->partitions) {
        g_autofree char *why =
            g_strdup_printf("partitions can only grow, from %" G_GINT64_FORMAT " up", old->partitions);
        return refuse(topic, -EINVAL, why);
    }
    return 0;
}

/* Streams first: a record says what is there. Those of retention are changed before it, too: a crash leaves a limit that the
 * next write of the settings sets right. */
static int apply_to_streams(NrdTopic *topic, const NrdTopicConfig *old, const NrdTopicRecord *record)
{
    int rc = 0;
    if (old->retention_ms != record->config.retention_ms || old->retention_bytes != record->config.retention_bytes)
        rc = each_stream(topic->engine, record, 0, (uint32_t)old->partitions, nrd_js_stream_update);
    return rc < 0 ? rc : nrd_js_topic_make_streams(topic->engine, record, (uint32_t)old->partitions);
}

static int apply_config(NrdTopic *topic, NrdTopicRecord *record, const Change *change, bool *ret_same)
{
    g_autofree char *why = NULL;
    NrdTopicConfig old = record->config;
    int rc = nrd_topic_config_apply(&record->config, change->text, change->size, &why);
    if (rc < 0)
        return refuse(topic, rc, why ? why : g_strerror(-rc));
    rc = check_config(topic, &old, &record->config);
    return rc < 0 ? rc : apply_to_streams(topic, &old, record);
}

int nrd_js_topic_config_write(NrdTopic *topic, const char *text, size_t size)
{
    return change_record(topic, &(Change){ .apply = apply_config, .text = text, .size = size });
}

NrdTopicConfig nrd_js_topic_config(NrdTopic *topic)
{
    NrdTopicConfig config;
    nrd_topic_config_defaults(&config);
    g_mutex_lock(&topic->lock);
    if (topic->record)
        config = topic->record->config;
    g_mutex_unlock(&topic->lock);
    return config;
}

/* A message has to fit the servers' limit with its headers: its id, and its key in base64. */
int64_t nrd_js_topic_max_record_bytes(NrdTopic *topic)
{
    int64_t limit = (int64_t)nrd_js_conn_max_payload(topic->engine->conn) - 512;
    return MIN(nrd_js_topic_config(topic).max_record_bytes, limit);
}

int64_t nrd_js_topic_consume_wait_ms(NrdTopic *topic)
{
    return nrd_js_topic_config(topic).consume_wait_ms;
}
