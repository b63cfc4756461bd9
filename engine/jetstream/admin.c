/* Creating and removing topics, and the streams that were left over on the way.
 *
 * A topic is there when its record is. Its streams are made before and deleted after it, so a failure, or servers that do not
 * answer, can leave streams of an incarnation that no topic has: orphans. Those that this daemon has made or whose topic it
 * has removed it knows to be nobody's, and tries again to delete them, once a second, until it ends; others are left alone.
 * Of a record whose writing was not answered it is not known whether it is there. It may even come yet, from a server that
 * hangs; so first a removal is written in its place, at the same revision: then either that or the record is what came. */
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"

#define REMOVE_WAIT_MS 200 /* how long a removal waits for handles that are being released */

#define CLOSED_MS 30000 /* a removal that has kept streams closed for longer is given up: see partition.c */

/* ---- orphans ---- */

/* What is not known of the record. */
typedef enum Doubt {
    DOUBT_NONE,    /* it is gone, or never was */
    DOUBT_CREATED, /* it may have been written, or come yet, behind the revision */
    DOUBT_REMOVED, /* so may its removal, and the streams are closed */
} Doubt;

/* Streams that are nobody's, or will be known to be. */
typedef struct Orphan {
    NrdTopicRecord *record;
    Doubt doubt;
    uint64_t revision;
} Orphan;

static void add_orphan(NrdEngine *engine, const NrdTopicRecord *record, Doubt doubt, uint64_t revision)
{
    Orphan *orphan = g_new(Orphan, 1);
    *orphan = (Orphan){ nrd_topic_record_copy(record), doubt, revision };
    g_ptr_array_add(engine->orphans, orphan);
}

static void free_orphan(Orphan *orphan)
{
    nrd_topic_record_free(orphan->record);
    g_free(orphan);
}

/* The opposite of what may come yet, at the same revision: one of the two is there then, and the other never will be. */
static int fence(NrdEngine *engine, const Orphan *orphan)
{
    uint64_t revision;
    int rc = orphan->doubt == DOUBT_CREATED
                 ? nrd_js_store_remove(engine, orphan->record->name, orphan->revision, NULL)
                 : nrd_js_store_put(engine, orphan->record, orphan->revision, &revision, NULL);
    return rc == -EBUSY ? 0 : rc;
}

/* Whether the topic is there, for good. */
static int clear_doubt(NrdEngine *engine, const Orphan *orphan, bool *ret_alive)
{
    NrdJsEntry entry = { .name = NULL };
    *ret_alive = false;
    if (orphan->doubt == DOUBT_NONE)
        return 0;
    int rc = fence(engine, orphan);
    if (rc == 0)
        rc = nrd_js_store_get(engine, orphan->record->name, &entry, NULL);
    *ret_alive = rc == 0 && nrd_js_entry_has_id(&entry, orphan->record->id);
    nrd_js_entry_clear(&entry);
    return rc == -ENOENT ? 0 : rc;
}

/* true: nothing is left to do. */
static bool sweep_orphan(NrdEngine *engine, const Orphan *orphan)
{
    bool alive;
    int rc = clear_doubt(engine, orphan, &alive);
    if (rc == 0 && !alive)
        rc = nrd_js_topic_delete_streams(engine, orphan->record, NULL);
    else if (rc == 0 && orphan->doubt == DOUBT_REMOVED)
        rc = nrd_js_topic_open_streams(engine, orphan->record);
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

/* Now, or later. */
static void delete_streams(NrdEngine *engine, const NrdTopicRecord *record)
{
    g_autofree char *why = NULL;
    int rc = nrd_js_topic_delete_streams(engine, record, &why);
    if (rc == 0)
        return;
    nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ record->name, NRD_NO_PARTITION, NRD_NO_OFFSET },
             "streams of incarnation %s stay for now, and their deletion is tried again: %s", record->id,
             why ? why : g_strerror(-rc));
    add_orphan(engine, record, DOUBT_NONE, 0);
}

/* ---- creating ---- */

/* Streams first: a record whose streams are missing would be a topic that has lost them. */
static int create_admin_held(NrdEngine *engine, const NrdTopicRecord *record, NrdTopic **ret_topic, char **ret_why)
{
    uint64_t revision = 0, written;
    int rc = nrd_js_store_vacancy(engine, record->name, &revision, ret_why);
    if (rc < 0)
        return rc;
    rc = nrd_js_topic_make_streams(engine, record, 0);
    if (rc < 0) {
        delete_streams(engine, record);
        return rc;
    }
    rc = nrd_js_store_put(engine, record, revision, &written, ret_why);
    if (rc == -EBUSY) { /* another daemon was faster; for certain, as no other failure is */
        delete_streams(engine, record);
        rc = -EEXIST;
    } else if (rc < 0) {
        add_orphan(engine, record, DOUBT_CREATED, revision);
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
    int rc = nrd_js_store_remove(engine, topic->name, revision, &why);
    (void)!nrd_js_follow_admin_held(engine, NULL);
    if (rc == 0)
        delete_streams(engine, record);
    else
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_topic_place(topic), "the topic could not be removed: %s",
                 why ? why : g_strerror(-rc));
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

static int check_empty_one(void *user_data, uint32_t number)
{
    NrdPartition *partition = nrd_js_topic_partition(user_data, number);
    int rc = nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS);
    g_mutex_lock(&partition->lock);
    bool empty = partition->info.messages == 0;
    g_mutex_unlock(&partition->lock);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    return empty ? 0 : -ENOTEMPTY;
}

static int check_removable(NrdTopic *topic)
{
    if (topic->engine->read_only)
        return -EROFS;
    return atomic_load(&topic->deleted) ? -EIDRM : 0;
}

/* Where each of its streams ended when check_empty_one looked. */
static uint64_t *last_sequences(NrdTopic *topic, uint32_t n)
{
    uint64_t *lasts = g_new0(uint64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        NrdPartition *partition = nrd_js_topic_partition(topic, i);
        g_mutex_lock(&partition->lock);
        lasts[i] = partition->info.last_seq;
        g_mutex_unlock(&partition->lock);
    }
    return lasts;
}

/* Its streams take records again, now or later. in_doubt: the removal may have been written. */
static void undo(NrdTopic *topic, const NrdTopicRecord *record, uint64_t revision, bool in_doubt)
{
    NrdEngine *engine = topic->engine;
    if (!in_doubt && nrd_js_topic_open_streams(engine, record) == 0)
        return;
    nrd_diag(NRD_LEVEL_WARNING, nrd_js_topic_place(topic),
             "its removal has failed; until the servers answer again it takes no records");
    add_orphan(engine, record, DOUBT_REMOVED, revision);
}

/* Nobody of another mount can add a record between the last look and the removal: the streams are closed meanwhile. */
static int remove_admin_held(NrdTopic *topic)
{
    uint64_t revision;
    NrdTopicRecord *record = copy_record(topic, &revision);
    if (!record)
        return -EIO;
    g_autofree uint64_t *lasts = last_sequences(topic, (uint32_t)record->config.partitions);
    int64_t until_ms = nrd_clock_mono_ms() + CLOSED_MS;
    bool asked = false;
    int rc = nrd_js_topic_close_streams(topic->engine, record, lasts);
    if (rc == 0 && nrd_clock_mono_ms() > until_ms)
        rc = -EIO;
    if (rc == 0) {
        rc = remove_record_admin_held(topic, record, revision);
        asked = rc < 0 && rc != -EBUSY;
    }
    if (rc < 0)
        undo(topic, record, revision, asked);
    nrd_topic_record_free(record);
    return rc;
}

int nrd_js_topic_remove(NrdTopic *topic)
{
    uint32_t n = nrd_js_topic_n_partitions(topic);
    int rc = check_removable(topic);
    if (rc == 0)
        rc = nrd_js_each(topic->engine->conn, 0, n, check_empty_one, topic);
    if (rc == 0 && !wait_for_holds(topic))
        rc = -EBUSY;
    nrd_topic_refuse_removal(topic, rc, topic->id);
    if (rc < 0)
        return rc == -EIDRM ? -ENOENT : rc;
    g_mutex_lock(&topic->engine->admin);
    rc = remove_admin_held(topic);
    g_mutex_unlock(&topic->engine->admin);
    return rc;
}

int nrd_js_topic_delete(NrdTopic *topic, const char *id)
{
    uint64_t revision;
    int rc = check_removable(topic);
    if (rc == 0 && strcmp(id, topic->id) != 0)
        rc = -EINVAL;
    if (rc < 0)
        return rc;
    NrdTopicRecord *record = copy_record(topic, &revision);
    if (!record)
        return -EIO;
    g_mutex_lock(&topic->engine->admin);
    rc = remove_record_admin_held(topic, record, revision);
    g_mutex_unlock(&topic->engine->admin);
    nrd_topic_record_free(record);
    return rc;
}
