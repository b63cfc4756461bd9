/* Records of topics in a key-value bucket: their text is that of engine/meta/topic_record.h, their key the topic's name. A
 * change names the revision that it follows, so of two daemons that change one topic at once one is refused and looks again. */
#include "engine/jetstream/js_private.h"

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
    int rc = nrd_js_message_get(engine->conn, NRD_JS_KV_STREAM, sequence, subject, &message, ret_why);
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

int nrd_js_store_put(NrdEngine *engine, const NrdTopicRecord *record, uint64_t revision, uint64_t *ret_revision,
                     char **ret_why)
{
    size_t size;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_autofree char *subject = subject_of(record->name);
    return nrd_js_put(engine->conn, subject, text, size, false, revision, ret_revision, ret_why);
}

int nrd_js_store_remove(NrdEngine *engine, const char *name, uint64_t revision, char **ret_why)
{
    uint64_t sequence;
    g_autofree char *subject = subject_of(name);
    return nrd_js_put(engine->conn, subject, "", 0, true, revision, &sequence, ret_why);
}

int nrd_js_store_get(NrdEngine *engine, const char *name, NrdJsEntry *ret_entry, char **ret_why)
{
    g_autofree char *subject = subject_of(name);
    return get_entry(engine, 1, subject, ret_entry, ret_why);
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
        if (*ret_there) {
            gsize size;
            const void *text = g_bytes_get_data(entry.text, &size);
            g_autofree char *subject = subject_of(name);
            uint64_t revision;
            rc = nrd_js_put(engine->conn, subject, text, size, false, entry.revision, &revision, NULL);
        }
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
