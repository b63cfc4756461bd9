/* Records of topics in a key-value bucket: their text is that of engine/meta/topic_record.h, their key the topic's name. A
 * change names the revision that it follows, so of two daemons that change one topic at once one is refused and looks again.
 *
 * The servers compare the revision of a key when a message reaches their leader, and not once more when they store it: of two that
 * are under way at once both may pass (2.9). The end of the whole stream they compare when they store. So a write is stored only
 * where the bucket ended before its key was looked at: what has that revision then has it still. Whoever changes another topic in
 * between makes it look again. */
#include "engine/jetstream/store.h"

#include "engine/base/clock.h"

/* ---- entries ---- */

void nrd_js_entry_clear(NrdJsEntry *entry)
{
    g_clear_pointer(&entry->name, g_free);
    g_clear_pointer(&entry->text, g_bytes_unref);
}

static char *subject_of(const char *topic)
{
    g_autofree char *key = nrd_js_encode_topic(topic);
    return g_strconcat(NRD_JS_KV_SUBJECT, key, NULL);
}

static int get_entry(NrdEngine *engine, uint64_t sequence, const char *subject, NrdJsEntry *ret_entry, char **ret_why)
{
    NrdJsMessage message;
    int rc = nrd_js_bucket_usable(engine, ret_why);
    if (rc == 0)
        rc = nrd_js_message_get(engine->conn, NRD_JS_KV_STREAM, sequence, subject, &message, ret_why);
    if (rc < 0)
        return rc;
    size_t prefix = strlen(NRD_JS_KV_SUBJECT);
    bool ours = message.subject && strlen(message.subject) > prefix;
    *ret_entry = (NrdJsEntry){
        .name = nrd_js_decode_topic(ours ? message.subject + prefix : ""),
        .revision = message.sequence,
        .removed = message.headers && g_hash_table_contains(message.headers, "KV-Operation"),
        .text = g_bytes_ref(message.data),
    };
    nrd_js_message_clear(&message);
    return 0;
}

int nrd_js_store_next(NrdEngine *engine, uint64_t sequence, NrdJsEntry *ret_entry, char **ret_why)
{
    return get_entry(engine, sequence, NRD_JS_KV_SUBJECT ">", ret_entry, ret_why);
}

int nrd_js_store_get(NrdEngine *engine, const char *name, NrdJsEntry *ret_entry, char **ret_why)
{
    g_autofree char *subject = subject_of(name);
    return get_entry(engine, 1, subject, ret_entry, ret_why);
}

/* Of a key as it is now; 0: it has never been there. */
static int revision_of(NrdEngine *engine, const char *name, uint64_t *ret_revision, char **ret_why)
{
    NrdJsEntry entry = { .name = NULL };
    int rc = nrd_js_store_get(engine, name, &entry, ret_why);
    if (rc == 0 || rc == -ENOENT)
        *ret_revision = rc == 0 ? entry.revision : 0;
    nrd_js_entry_clear(&entry);
    return rc == -ENOENT ? 0 : rc;
}

/* One try. -EAGAIN: the bucket has grown meanwhile, perhaps by something of another key. */
static int try_write(NrdEngine *engine, const char *name, GBytes *text, uint64_t revision, uint64_t *ret_revision,
                     bool *ret_open, char **ret_why)
{
    NrdJsStreamInfo bucket;
    uint64_t now = 0;
    gsize size = 0;
    g_autofree char *subject = subject_of(name);
    int rc = nrd_js_bucket_usable(engine, ret_why);
    if (rc == 0)
        rc = nrd_js_stream_info(engine->conn, NRD_JS_KV_STREAM, NRD_JS_PATIENCE_MS, &bucket, ret_why);
    if (rc == -ENOENT && ret_why) {
        g_free(*ret_why);
        *ret_why = g_strdup(NRD_JS_BUCKET_IS_GONE);
    }
    if (rc == 0)
        rc = revision_of(engine, name, &now, ret_why);
    if (rc < 0)
        return rc == -ENOENT ? -EIO : rc;
    if (now != revision)
        return -EBUSY;
    const void *data = text ? g_bytes_get_data(text, &size) : "";
    NrdJsPut how = { .last_seq = bucket.last_seq, .first = revision == 0, .tombstone = !text };
    rc = nrd_js_put(engine->conn, subject, data, size, &how, ret_revision, ret_open, ret_why);
    return rc == -EBUSY ? -EAGAIN : rc;
}

#define PAUSE_MS 20 /* at most, against daemons that change other topics at the same time */

/* text NULL: a removal. */
static int write_entry(NrdEngine *engine, const char *name, GBytes *text, uint64_t revision, uint64_t *ret_revision,
                       bool *ret_open, char **ret_why)
{
    bool open = false;
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    int rc = -EAGAIN;
    for (int i = 0; rc == -EAGAIN && nrd_clock_mono_ms() < until_ms; i++) {
        if (i > 0 && !nrd_js_pause(engine->conn, g_random_int_range(0, MIN(i, PAUSE_MS) + 1)))
            return -ENODEV; /* no try is open */
        rc = try_write(engine, name, text, revision, ret_revision, &open, ret_why);
    }
    if (ret_open)
        *ret_open = open;
    return rc == -EAGAIN ? -EBUSY : rc;
}

int nrd_js_store_put(NrdEngine *engine, const NrdTopicRecord *record, uint64_t revision, uint64_t *ret_revision,
                     bool *ret_open, char **ret_why)
{
    size_t size;
    char *text = nrd_topic_record_encode(record, &size);
    g_autoptr(GBytes) bytes = g_bytes_new_take(text, size);
    return write_entry(engine, record->name, bytes, revision, ret_revision, ret_open, ret_why);
}

int nrd_js_store_remove(NrdEngine *engine, const char *name, uint64_t revision, bool *ret_open, char **ret_why)
{
    uint64_t sequence;
    return write_entry(engine, name, NULL, revision, &sequence, ret_open, ret_why);
}

bool nrd_js_entry_has_id(const NrdJsEntry *entry, const char *id)
{
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    gsize size;
    const void *text = g_bytes_get_data(entry->text, &size);
    bool same = !entry->removed && nrd_topic_record_decode(entry->name, text, size, &record, &why) == 0 &&
                strcmp(record->id, id) == 0;
    nrd_topic_record_free(record);
    return same;
}

#define MAX_TRIES 10 /* against daemons that keep changing the same topic */

int nrd_js_store_touch(NrdEngine *engine, const char *name, const char *id, bool *ret_there)
{
    int rc = -EBUSY;
    *ret_there = false;
    for (int i = 0; rc == -EBUSY && i < MAX_TRIES; i++) {
        NrdJsEntry entry = { .name = NULL };
        rc = nrd_js_store_get(engine, name, &entry, NULL);
        *ret_there = rc == 0 && nrd_js_entry_has_id(&entry, id);
        uint64_t revision;
        if (*ret_there)
            rc = write_entry(engine, name, entry.text, entry.revision, &revision, NULL, NULL);
        nrd_js_entry_clear(&entry);
    }
    return rc == -ENOENT ? 0 : rc;
}

int nrd_js_store_vacancy(NrdEngine *engine, const char *name, uint64_t *ret_revision, char **ret_why)
{
    NrdJsEntry entry = { .name = NULL };
    int rc = nrd_js_store_get(engine, name, &entry, ret_why);
    if (rc == 0 && !entry.removed)
        rc = -EEXIST;
    if (rc == 0 || rc == -ENOENT)
        *ret_revision = rc == 0 ? entry.revision : 0;
    nrd_js_entry_clear(&entry);
    return rc == -ENOENT ? 0 : rc;
}
