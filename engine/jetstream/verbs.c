/* Verbs of a partition's `ctl`: accepting what its stream has become, and moving its consumers. Those about segments have nothing
 * to work on. They block, as whoever asks the servers. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/kept.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/store.h"
#include "engine/jetstream/streams.h"
#include "engine/jetstream/topic.h"

/* A stream that has lost records is the same, and so is its consumer: another one takes its place, which begins where that was,
 * or at the new end. A stream that was made anew has another consumer, or none. */
static int accept_rewound(NrdPartition *partition, const char *created)
{
    g_mutex_lock(&partition->lock);
    bool same = strcmp(partition->info.created, created) == 0 && !partition->no_consumer;
    uint64_t start_seq = MIN(partition->consumer.floor_seq, partition->info.last_seq) + 1;
    g_mutex_unlock(&partition->lock);
    return same ? nrd_js_consumer_replace(partition, start_seq) : 0;
}

static int make_admin_held(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    bool there = false;
    int rc = nrd_js_follow_admin_held(topic->engine, NULL);
    if (rc == 0)
        rc = nrd_js_topic_usable(topic);
    if (rc < 0)
        return rc;
    g_mutex_lock(&topic->lock);
    NrdTopicRecord *record = nrd_topic_record_copy(topic->record);
    g_mutex_unlock(&topic->lock);
    rc = nrd_js_topic_make_stream(topic->engine, record, partition->number);
    if (rc == 0)
        rc = nrd_js_store_touch(topic->engine, topic->name, topic->id, &there);
    nrd_topic_record_free(record);
    if (rc == 0 && !there) { /* another mount has removed the topic, and what it found of streams */
        (void)!nrd_js_stream_delete(topic->engine->conn, partition->stream, NULL);
        rc = -EIDRM;
    }
    (void)!nrd_js_follow_admin_held(topic->engine, NULL); /* the record has another revision */
    return rc;
}

/* What is there now is nothing: an empty stream, so that the partition is one again. */
static int make_anew(NrdPartition *partition)
{
    NrdEngine *engine = partition->topic->engine;
    if (engine->read_only)
        return -EROFS;
    g_mutex_lock(&engine->admin);
    int rc = make_admin_held(partition);
    g_mutex_unlock(&engine->admin);
    if (rc == 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "the stream %s was gone, and an empty one is in its place, as reopen was written: offsets begin at 0",
                 partition->stream);
    return rc == 0 ? nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS) : rc;
}

static const char *why_not_reopened(int rc)
{
    return rc == -EROFS ? "the servers have no such stream, and a read-only mount makes none"
                        : "the stream cannot be looked at, or made anew: the log says why; write it again then";
}

int nrd_js_partition_reopen(NrdPartition *partition)
{
    int rc = nrd_js_topic_usable(partition->topic);
    if (rc < 0)
        return rc;
    g_mutex_lock(&partition->lock);
    g_autofree char *poison = g_steal_pointer(&partition->poison);
    g_autofree char *created = g_strdup(partition->info.created);
    partition->floor_known = partition->floor_known && !poison;
    partition->known = false; /* what is there now is what it is */
    partition->published_seq = 0;
    partition->n_reopened++;
    nrd_js_kept_forget_locked(partition);
    partition->info = (NrdJsStreamInfo){ .first_seq = 0 };
    partition->commit_errno = 0;
    g_mutex_unlock(&partition->lock);
    nrd_js_consumer_doubt(partition);
    nrd_js_leases_void(partition);
    nrd_js_pulls_forget(partition->topic->engine->pulls, partition, 0);
    if (poison)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_js_partition_place(partition), "accepted by hand: %s", poison);
    rc = nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS);
    if (rc == -ENOENT)
        rc = make_anew(partition);
    if (rc == 0 && poison)
        rc = accept_rewound(partition, created);
    rc = nrd_js_partition_why(partition, rc);
    if (rc < 0 && rc != -EIDRM && rc != -ENODEV) {
        nrd_topic_refuse(partition->topic, partition->number, "ctl: \"reopen\" refused: %s", why_not_reopened(rc));
        rc = rc == -EROFS ? rc : -EIO;
    }
    return rc;
}

static int refuse_of_segments(NrdPartition *partition, const char *verb)
{
    nrd_topic_refuse(
        partition->topic, partition->number,
        "ctl: %s refused: there are no segments in JetStream; retention_ms and retention_bytes say how long "
        "records are kept",
        verb);
    return -EOPNOTSUPP;
}

int nrd_js_partition_roll(NrdPartition *partition)
{
    return refuse_of_segments(partition, "roll");
}

int nrd_js_partition_trim(NrdPartition *partition, uint64_t offset)
{
    return refuse_of_segments(partition, "trim");
}

static int start_of(NrdPartition *partition, NrdSeek to, uint64_t offset, uint64_t *ret_start)
{
    uint64_t first, last;
    int rc = nrd_js_partition_last(partition, true, &first, &last);
    if (rc < 0)
        return rc;
    if (to == NRD_SEEK_OFFSET && offset > last)
        return -EINVAL;
    *ret_start = to == NRD_SEEK_START ? first : to == NRD_SEEK_END ? last + 1 : MAX(offset + 1, first);
    return 0;
}

/* A consumer does not move: it is replaced by another one, and its leases are gone with it. */
int nrd_js_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset)
{
    uint64_t start_seq = 0;
    int rc = partition->topic->engine->read_only ? -EROFS : start_of(partition, to, offset, &start_seq);
    return rc < 0 ? rc : nrd_js_consumer_replace(partition, start_seq);
}
