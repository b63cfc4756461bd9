/* What a topic is set to: its record in the bucket, owner and modes, settings, and how a change comes into force. */
#include "engine/jetstream/store.h"
#include "engine/jetstream/streams.h"
#include "engine/jetstream/topic.h"

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
 * can be made again on top of it. *revision becomes that of the record. Guard held. Blocks. */
static int replace_record(NrdTopic *topic, const NrdTopicRecord *record, uint64_t *revision, bool *ret_open,
                          char **ret_why)
{
    int rc = nrd_js_store_put(topic->engine, record, *revision, revision, ret_open, ret_why);
    if (rc == 0)
        nrd_js_topic_put_record(topic, nrd_topic_record_copy(record), *revision);
    if (rc != -EBUSY)
        return rc;
    g_mutex_lock(&topic->engine->admin);
    (void)!nrd_js_follow_admin_held(topic->engine, NULL);
    g_mutex_unlock(&topic->engine->admin);
    return rc;
}

typedef struct Change {
    /* Changes the copy; *ret_same: there is nothing to write. */
    int (*apply)(NrdTopic *topic, NrdTopicRecord *record, const struct Change *change, bool *ret_same);
    /* What is done when the record is stored, at that revision, or NULL. */
    int (*finish)(NrdTopic *topic, const struct Change *change, const NrdTopicRecord *before,
                  const NrdTopicRecord *record, uint64_t revision);
    const char *path;
    int what;
    uint32_t base_mode;
    const NrdAttr *attr;
    const char *text;
    size_t size;
    uint32_t *ret_made; /* streams up to that partition */
} Change;

#define LONGEST_KEY 48000 /* the servers take headers of 64 KiB */
#define HEADER_BYTES ((LONGEST_KEY + 2) / 3 * 4 + 512)
#define MAX_TRIES 10 /* against daemons that keep changing the same topic */

/* What was sent and not answered may be written all the same. */
static void tell_not_written(NrdTopic *topic, int rc, bool open, const char *why)
{
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "the topic's record could not be written: %s; %s",
                     why ? why : g_strerror(-rc),
                     open ? "once the servers answer, its config shows whether it was" : "nothing was changed");
}

/* Once. -EBUSY: see replace_record. Guard held. */
static int try_change(NrdTopic *topic, const Change *change)
{
    NrdTopicRecord *before = NULL, *record;
    uint64_t revision;
    bool same = false, open = false;
    g_autofree char *why = NULL;
    int rc = copy_record(topic, &before, &revision);
    if (rc < 0)
        return rc;
    record = nrd_topic_record_copy(before);
    rc = change->apply(topic, record, change, &same);
    bool writes = rc == 0 && !same;
    if (writes)
        rc = replace_record(topic, record, &revision, &open, &why);
    if (writes && rc < 0 && rc != -EBUSY)
        tell_not_written(topic, rc, open, why);
    if (rc == 0 && change->finish)
        rc = change->finish(topic, change, before, record, revision);
    nrd_topic_record_free(before);
    nrd_topic_record_free(record);
    return rc;
}

static int change_record(NrdTopic *topic, const Change *change)
{
    int rc = -EBUSY;
    g_mutex_lock(&topic->guard);
    for (int i = 0; rc == -EBUSY && i < MAX_TRIES; i++)
        rc = try_change(topic, change);
    g_mutex_unlock(&topic->guard);
    return rc;
}

/* ---- owner and modes ---- */

void nrd_js_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr)
{
    g_mutex_lock(&topic->lock);
    *ret_attr = nrd_attr_of_record(topic->record, path, base_mode);
    g_mutex_unlock(&topic->lock);
}

static int apply_attr(NrdTopic *topic, NrdTopicRecord *record, const Change *change, bool *ret_same)
{
    *ret_same = !nrd_attr_change_record(record, change->path, change->base_mode, change->what, change->attr);
    return 0;
}

int nrd_js_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    return change_record(
        topic, &(Change){ .apply = apply_attr, .path = path, .base_mode = base_mode, .what = what, .attr = attr });
}

/* ---- settings ---- */

bool nrd_js_topic_get_config(NrdTopic *topic, NrdTopicConfig *ret_config)
{
    g_mutex_lock(&topic->lock);
    bool whole = topic->record != NULL;
    if (whole)
        *ret_config = topic->record->config;
    g_mutex_unlock(&topic->lock);
    return whole;
}

/* A key whose value would change, and means nothing here; NULL: none. */
static const char *meaningless(const NrdTopicConfig *old, const NrdTopicConfig *next)
{
    return old->segment_bytes != next->segment_bytes       ? "segment_bytes"
           : old->codec != next->codec                     ? "codec"
           : old->zstd_level != next->zstd_level           ? "zstd_level"
           : old->max_acked_ahead != next->max_acked_ahead ? "max_acked_ahead"
                                                           : NULL;
}

static int refuse(NrdTopic *topic, int rc, const char *why)
{
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "config refused: %s; nothing was changed", why);
    return rc;
}

char *nrd_js_config_why_not(const NrdTopicConfig *old, const NrdTopicConfig *next)
{
    const char *key = meaningless(old, next);
    if (old->fanout_delay_ms != next->fanout_delay_ms)
        return g_strdup("fanout_delay_ms: " NRD_JS_NO_FANOUT);
    return key ? g_strdup_printf("%s means nothing in JetStream, whose servers keep records as they will", key) : NULL;
}

/* Of a record that fits a message with its headers. */
static int64_t most_bytes(NrdTopic *topic)
{
    return (int64_t)nrd_js_conn_max_payload(topic->engine->conn) - HEADER_BYTES;
}

static int check_config(NrdTopic *topic, const NrdTopicConfig *old, const NrdTopicConfig *next)
{
    g_autofree char *none = nrd_js_config_why_not(old, next);
    if (none)
        return refuse(topic, -EOPNOTSUPP, none);
    int64_t limit = most_bytes(topic);
    if (next->max_record_bytes > MAX(limit, old->max_record_bytes)) {
        g_autofree char *why =
            g_strdup_printf("max_record_bytes can be up to %" G_GINT64_FORMAT " here: the servers' max_payload is %zu",
                            limit, nrd_js_conn_max_payload(topic->engine->conn));
        return refuse(topic, -EINVAL, why);
    }
    if (next->partitions < old->partitions) {
        g_autofree char *why =
            g_strdup_printf("partitions can only grow, from %" G_GINT64_FORMAT " up", old->partitions);
        return refuse(topic, -EINVAL, why);
    }
    return 0;
}

/* New streams come before the record: a record says what is there. */
static int apply_config(NrdTopic *topic, NrdTopicRecord *record, const Change *change, bool *ret_same)
{
    g_autofree char *why = NULL;
    NrdTopicConfig old = record->config;
    int rc = nrd_topic_config_apply(&record->config, change->text, change->size, &why);
    if (rc < 0)
        return refuse(topic, rc, why ? why : g_strerror(-rc));
    rc = check_config(topic, &old, &record->config);
    if (rc == 0 && old.partitions < record->config.partitions)
        *change->ret_made = (uint32_t)record->config.partitions;
    if (rc < 0)
        return rc;
    rc = nrd_js_topic_make_streams(topic->engine, record, (uint32_t)old.partitions, &why);
    return rc < 0 && rc != -EBUSY ? refuse(topic, rc, why) : rc;
}

/* The topic was removed meanwhile, by who did not know of them. */
static void unmake_streams(NrdTopic *topic, uint32_t n)
{
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *record = nrd_topic_record_copy(topic->record);
    g_mutex_unlock(&topic->lock);
    record->config.partitions = n;
    g_mutex_lock(&topic->engine->admin);
    nrd_js_streams_abandon_admin_held(topic->engine, record);
    g_mutex_unlock(&topic->engine->admin);
    nrd_topic_record_free(record);
}

/* The streams first: see apply_retention. A record that another mount has changed since stays. */
static int put_back(NrdTopic *topic, const NrdTopicRecord *before, uint64_t revision, char **ret_why)
{
    int rc = nrd_js_topic_update_streams(topic->engine, before, (uint32_t)before->config.partitions, ret_why);
    if (rc == 0)
        rc = replace_record(topic, before, &revision, NULL, ret_why);
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup(rc == -EBUSY ? "another mount has changed them since" : g_strerror(-rc));
    return rc;
}

/* Retention reaches the streams behind the record: a stream that deletes more than the record says would take records that
 * nobody gave up. One that still keeps more harms nobody, and the next write that names a retention sets it right. */
static int apply_retention(NrdTopic *topic, const Change *change, const NrdTopicRecord *before,
                           const NrdTopicRecord *record, uint64_t revision)
{
    g_autofree char *why = NULL, *why_not_back = NULL;
    if (!g_strstr_len(change->text, (gssize)change->size, "retention_"))
        return 0;
    int rc = nrd_js_topic_update_streams(topic->engine, record, (uint32_t)before->config.partitions, &why);
    if (rc == 0)
        return 0;
    if (put_back(topic, before, revision, &why_not_back) == 0)
        nrd_topic_refuse(topic, NRD_NO_PARTITION,
                         "config refused: the servers have not taken the retention: %s; nothing was changed", why);
    else
        nrd_topic_refuse(topic, NRD_NO_PARTITION,
                         "the servers have not taken the retention in every partition: %s; the settings from before "
                         "could not be put back: %s; write the retention again",
                         why, why_not_back);
    return rc == -ENOENT ? -EIO : rc;
}

int nrd_js_topic_config_write(NrdTopic *topic, const char *text, size_t size)
{
    uint32_t n_made = 0;
    int rc = change_record(
        topic,
        &(Change){ .apply = apply_config, .finish = apply_retention, .text = text, .size = size, .ret_made = &n_made });
    if (rc == -EIDRM && n_made > 0)
        unmake_streams(topic, n_made);
    return rc;
}

NrdTopicConfig nrd_js_topic_config(NrdTopic *topic)
{
    NrdTopicConfig config;
    if (!nrd_js_topic_get_config(topic, &config))
        nrd_topic_config_defaults(&config);
    return config;
}

/* A key is refused by the write for the same reason. */
int64_t nrd_js_topic_max_key_bytes(NrdTopic *topic)
{
    return LONGEST_KEY;
}

/* A message has to fit the servers' limit with its headers: its id, and its key in base64. What does
 * not fit is refused by the write; by the time the servers refuse it, its writer may have been told that it is stored. */
int64_t nrd_js_topic_max_record_bytes(NrdTopic *topic)
{
    return MIN(nrd_js_topic_config(topic).max_record_bytes, most_bytes(topic));
}

int64_t nrd_js_topic_consume_wait_ms(NrdTopic *topic)
{
    return nrd_js_topic_config(topic).consume_wait_ms;
}
