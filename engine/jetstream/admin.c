/* Creating and removing topics, and the streams that were left over on the way.
 *
 * A topic is there when its record is. Its streams are made before and deleted after it, so a failure, or servers that do not
 * answer, can leave streams of an incarnation that no topic has: orphans. Those that this daemon has made or whose topic it
 * has removed it knows to be nobody's, and tries again to delete them, once a second, until it ends; others are left alone.
 * Of a record whose writing was not answered it is not known whether it is there. It may even come yet, from a server that
 * hangs; so first a removal is written in its place, at the same revision: then either that or the record is what came.
 *
 * Two who remove a topic at once are told apart by its record, too: each writes it, as it is, before it closes the streams,
 * and before it opens them again, and removes only what it has written itself. */
#include "engine/jetstream/partition.h"
#include "engine/jetstream/store.h"
#include "engine/jetstream/streams.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define REMOVE_WAIT_MS 200 /* how long a removal waits for handles that are being released */

#define CLOSED_MS 30000 /* a removal that has kept streams closed for longer is given up: see partition.c */

/* ---- orphans ---- */

/* What is not known of the record. */
typedef enum Doubt {
    DOUBT_NONE,     /* it is gone, or never was */
    DOUBT_UNWANTED, /* it may be there, or come yet, behind the revision, and is not to be: of a creation, or a deletion */
    DOUBT_REMOVED, /* it may be there or not, and its streams are closed for this remover */
} Doubt;

/* Streams that are nobody's, or will be known to be. */
typedef struct Orphan {
    NrdTopicRecord *record;
    Doubt doubt;
    uint64_t revision;
    char *remover;
} Orphan;

static void add_orphan(NrdEngine *engine, const NrdTopicRecord *record, Doubt doubt, uint64_t revision,
                       const char *remover)
{
    Orphan *orphan = g_new(Orphan, 1);
    *orphan = (Orphan){ nrd_topic_record_copy(record), doubt, revision, g_strdup(remover) };
    g_ptr_array_add(engine->orphans, orphan);
}

static void free_orphan(Orphan *orphan)
{
    nrd_topic_record_free(orphan->record);
    g_free(orphan->remover);
    g_free(orphan);
}

/* A removal in the place of what may come yet, at the same revision: one of the two is there then, and the other never will
 * be. */
static int fence(NrdEngine *engine, const Orphan *orphan, bool *ret_alive)
{
    NrdJsEntry entry = { .name = NULL };
    int rc = nrd_js_store_remove(engine, orphan->record->name, orphan->revision, NULL, NULL);
    if (rc == 0 || rc == -EBUSY)
        rc = nrd_js_store_get(engine, orphan->record->name, &entry, NULL);
    *ret_alive = rc == 0 && nrd_js_entry_has_id(&entry, orphan->record->id);
    nrd_js_entry_clear(&entry);
    return rc == -ENOENT ? 0 : rc;
}

/* Whether the topic is there, for good. */
static int clear_doubt(NrdEngine *engine, const Orphan *orphan, bool *ret_alive)
{
    *ret_alive = false;
    if (orphan->doubt == DOUBT_NONE)
        return 0;
    return orphan->doubt == DOUBT_REMOVED
               ? nrd_js_store_touch(engine, orphan->record->name, orphan->record->id, ret_alive)
               : fence(engine, orphan, ret_alive);
}

/* 0: nothing is left to do. */
static int settle_orphan(NrdEngine *engine, const Orphan *orphan, bool *ret_alive)
{
    int rc = clear_doubt(engine, orphan, ret_alive);
    if (rc == 0 && !*ret_alive)
        rc = nrd_js_topic_delete_streams(engine, orphan->record, NULL);
    else if (rc == 0 && orphan->doubt == DOUBT_REMOVED)
        rc = nrd_js_topic_open_streams(engine, orphan->record, orphan->remover);
    return rc;
}

static bool sweep_orphan(NrdEngine *engine, const Orphan *orphan)
{
    bool alive;
    int rc = settle_orphan(engine, orphan, &alive);
    if (rc == 0)
        nrd_diag(NRD_LEVEL_NOTICE, (NrdPlace){ orphan->record->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 alive ? "the topic of incarnation %s is there, after all"
                       : "what was left of streams of incarnation %s is deleted",
                 orphan->record->id);
    return rc == 0;
}

void nrd_js_orphans_sweep_admin_held(NrdEngine *engine)
{
    while (engine->orphans->len > 0 && !atomic_load(&engine->stopping)) {
        Orphan *orphan = engine->orphans->pdata[0];
        if (!sweep_orphan(engine, orphan))
            return; /* the servers do not answer, and the others would wait for that, too */
        g_ptr_array_remove_index(engine->orphans, 0);
        free_orphan(orphan);
    }
}

void nrd_js_orphans_free(NrdEngine *engine)
{
    for (guint i = 0; i < engine->orphans->len; i++) {
        Orphan *orphan = engine->orphans->pdata[i];
        nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ orphan->record->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "streams of incarnation %s are left on the servers, and may be deleted by hand if no topic has it",
                 orphan->record->id);
        free_orphan(orphan);
    }
    g_ptr_array_unref(engine->orphans);
}

void nrd_js_streams_abandon_admin_held(NrdEngine *engine, const NrdTopicRecord *record)
{
    g_autofree char *why = NULL;
    int rc = nrd_js_topic_delete_streams(engine, record, &why);
    if (rc == 0)
        return;
    nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ record->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
             "streams of incarnation %s stay for now, and their deletion is tried again: %s", record->id,
             why ? why : g_strerror(-rc));
    add_orphan(engine, record, DOUBT_NONE, 0, NULL);
}

/* ---- creating ---- */

/* Streams first: a record whose streams are missing would be a topic that has lost them. */
static int create_admin_held(NrdEngine *engine, const NrdTopicRecord *record, NrdTopic **ret_topic, char **ret_why)
{
    uint64_t revision = 0, written;
    int rc = nrd_js_bucket_look_admin_held(engine, NRD_JS_GLANCE_MS, ret_why);
    if (rc == 0)
        rc = nrd_js_store_vacancy(engine, record->name, &revision, ret_why);
    if (rc < 0)
        return rc;
    rc = nrd_js_topic_make_streams(engine, record, 0, ret_why);
    if (rc < 0) {
        nrd_js_streams_abandon_admin_held(engine, record);
        return rc;
    }
    rc = nrd_js_store_put(engine, record, revision, &written, NULL, ret_why);
    if (rc == -EBUSY) { /* another daemon was faster; for certain, as no other failure is */
        nrd_js_streams_abandon_admin_held(engine, record);
        rc = -EEXIST;
    } else if (rc < 0) {
        add_orphan(engine, record, DOUBT_UNWANTED, revision, NULL);
    }
    int follow_rc = nrd_js_follow_admin_held(engine, NULL);
    if (rc == 0)
        rc = follow_rc;
    return rc < 0 ? rc : nrd_js_topic_find(engine, record->name, ret_topic);
}

int nrd_js_topic_create(NrdEngine *engine, const char *name, const NrdAttr *attr, uint32_t umask, NrdTopic **ret_topic)
{
    int rc = nrd_topic_check_new(engine, name);
    if (rc < 0)
        return rc;
    g_autofree char *why = NULL;
    NrdTopicRecord *record =
        nrd_topic_record_make(name, &engine->defaults, (NrdFileAttr){ attr->uid, attr->gid, attr->mode }, umask);
    g_mutex_lock(&engine->admin);
    rc = create_admin_held(engine, record, ret_topic, &why);
    g_mutex_unlock(&engine->admin);
    nrd_topic_record_free(record);
    if (rc < 0 && rc != -EEXIST)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "the topic could not be created: %s", why ? why : g_strerror(-rc));
    return rc;
}

/* ---- removing ---- */

static NrdTopicRecord *copy_record(NrdTopic *topic, uint64_t *ret_revision)
{
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *record = topic->record ? nrd_topic_record_copy(topic->record) : NULL;
    *ret_revision = topic->revision;
    g_mutex_unlock(&topic->lock);
    return record;
}

/* The record first, as it is what makes a topic. */
static int remove_record_admin_held(NrdTopic *topic, const NrdTopicRecord *record, uint64_t revision)
{
    NrdEngine *engine = topic->engine;
    g_autofree char *why = NULL;
    bool open;
    int rc = nrd_js_store_remove(engine, topic->name, revision, &open, &why);
    (void)!nrd_js_follow_admin_held(engine, NULL);
    if (rc == 0)
        nrd_js_streams_abandon_admin_held(engine, record);
    else
        nrd_topic_refuse(topic, NRD_NO_PARTITION, "the topic was not deleted: %s%s", why ? why : g_strerror(-rc),
                         open ? "; if that has come to the servers all the same, it is soon gone" : "");
    return rc;
}

static bool wait_for_holds(NrdTopic *topic)
{
    bool held = true;
    for (int waited_ms = 0; held && waited_ms <= REMOVE_WAIT_MS; waited_ms += 10) {
        if (waited_ms > 0 && !nrd_js_pause(topic->engine->conn, 10))
            return false;
        g_mutex_lock(&topic->lock);
        held = topic->n_holds > 0;
        g_mutex_unlock(&topic->lock);
    }
    return !held;
}

/* A removal of a topic that is empty. */
typedef struct Removal {
    NrdTopic *topic;
    char *id;        /* its own */
    uint32_t n;      /* partitions that were looked at */
    uint64_t *lasts; /* where their streams ended, by the answer that showed them empty */
} Removal;

/* Of a stream that may not be the one that was here nothing is known. */
static bool is_sound(NrdPartition *partition, const NrdJsStreamInfo *info)
{
    g_mutex_lock(&partition->lock);
    bool sound = partition->known && !partition->poison && partition->suspect_ms == 0 &&
                 strcmp(partition->info.created, info->created) == 0 && info->last_seq >= partition->info.last_seq;
    g_mutex_unlock(&partition->lock);
    return sound;
}

/* What others have learned of the stream meanwhile does not mix with this answer. */
static int check_empty_one(void *user_data, uint32_t number)
{
    Removal *removal = user_data;
    NrdPartition *partition = nrd_js_topic_partition(removal->topic, number);
    NrdJsStreamInfo info;
    int rc = nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS);
    if (rc == 0)
        rc = nrd_js_stream_info(removal->topic->engine->conn, partition->stream, NRD_JS_PATIENCE_MS, &info, NULL);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    removal->lasts[number] = info.last_seq;
    if (info.messages > 0 || !is_sound(partition, &info))
        return -ENOTEMPTY;
    return info.closed ? -EBUSY : 0;
}

static int check_removable(NrdTopic *topic)
{
    if (topic->engine->read_only)
        return -EROFS;
    return atomic_load(&topic->deleted) ? -EIDRM : 0;
}

/* Its streams take records again, now or later. in_doubt: the servers have not answered, and would be waited for. */
static void undo(const Removal *removal, const NrdTopicRecord *record, bool in_doubt)
{
    NrdEngine *engine = removal->topic->engine;
    Orphan orphan = { (NrdTopicRecord *)record, DOUBT_REMOVED, 0, removal->id };
    bool alive;
    if (!in_doubt && settle_orphan(engine, &orphan, &alive) == 0)
        return;
    nrd_diag(NRD_LEVEL_WARNING, nrd_js_topic_place(removal->topic),
             "its removal has failed; until the servers answer again it takes no records");
    add_orphan(engine, record, DOUBT_REMOVED, 0, removal->id);
}

/* From now on a removal or change that another mount has begun fails, and this one does when another begins. */
static int claim(NrdTopic *topic, const NrdTopicRecord *record, uint64_t *revision)
{
    int rc = nrd_js_store_put(topic->engine, record, *revision, revision, NULL, NULL);
    if (rc == 0)
        nrd_js_topic_put_record(topic, nrd_topic_record_copy(record), *revision);
    return rc;
}

static int remove_closed(const Removal *removal, const NrdTopicRecord *record, uint64_t revision)
{
    int64_t until_ms = nrd_clock_mono_ms() + CLOSED_MS;
    int rc = nrd_js_topic_close_streams(removal->topic->engine, record, removal->id, removal->lasts);
    if (rc == 0 && nrd_clock_mono_ms() > until_ms)
        rc = -EIO;
    if (rc == 0)
        rc = remove_record_admin_held(removal->topic, record, revision);
    if (rc < 0)
        undo(removal, record, rc != -EBUSY && rc != -ENOTEMPTY);
    return rc;
}

/* Nobody of another mount can add a record between the last look and the removal: the streams are closed meanwhile. */
static int remove_admin_held(const Removal *removal)
{
    uint64_t revision;
    NrdTopicRecord *record = copy_record(removal->topic, &revision);
    if (!record)
        return -EIO;
    int rc = (uint32_t)record->config.partitions == removal->n ? claim(removal->topic, record, &revision) : -EBUSY;
    if (rc == 0)
        rc = remove_closed(removal, record, revision);
    nrd_topic_record_free(record);
    return rc;
}

static int remove_empty(const Removal *removal)
{
    NrdTopic *topic = removal->topic;
    int rc = check_removable(topic);
    if (rc == 0)
        rc = nrd_js_each(topic->engine->conn, 0, removal->n, check_empty_one, (void *)removal);
    bool busy = rc == -EBUSY;
    if (rc == 0 && !wait_for_holds(topic))
        rc = -EBUSY;
    if (!busy)
        nrd_topic_refuse_removal(topic, rc, topic->id);
    if (rc == 0) {
        g_mutex_lock(&topic->engine->admin);
        rc = atomic_load(&topic->deleted) ? -EIDRM : remove_admin_held(removal);
        g_mutex_unlock(&topic->engine->admin);
        busy = rc == -EBUSY;
    }
    if (busy)
        nrd_topic_refuse(topic, NRD_NO_PARTITION,
                         "rmdir refused: another mount is removing the topic or changing its settings; try again");
    return rc == -EIDRM ? -ENOENT : rc;
}

int nrd_js_topic_remove(NrdTopic *topic)
{
    uint32_t n = nrd_js_topic_n_partitions(topic);
    g_autofree char *id = g_uuid_string_random();
    g_autofree uint64_t *lasts = g_new0(uint64_t, n);
    return remove_empty(&(Removal){ topic, id, n, lasts });
}

/* Whatever is in it. A deletion that was not answered is made sure of later. */
static int delete_admin_held(NrdTopic *topic)
{
    uint64_t revision;
    if (atomic_load(&topic->deleted))
        return -EIDRM;
    NrdTopicRecord *record = copy_record(topic, &revision);
    if (!record)
        return -EIO;
    int rc = remove_record_admin_held(topic, record, revision);
    if (rc < 0 && rc != -EBUSY)
        add_orphan(topic->engine, record, DOUBT_UNWANTED, revision, NULL);
    nrd_topic_record_free(record);
    return rc;
}

int nrd_js_topic_delete(NrdTopic *topic, const char *id)
{
    int rc = check_removable(topic);
    if (rc == 0 && strcmp(id, topic->id) != 0)
        rc = -EINVAL;
    if (rc < 0)
        return rc;
    g_mutex_lock(&topic->engine->admin);
    rc = delete_admin_held(topic);
    g_mutex_unlock(&topic->engine->admin);
    return rc;
}
