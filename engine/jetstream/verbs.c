/* Verbs of a partition's `ctl`: accepting what its stream has become, and moving its consumers. Those about segments have nothing
 * to work on. They block, as whoever asks the servers. */
#include "engine/jetstream/js_private.h"

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
    partition->info = (NrdJsStreamInfo){ .first_seq = 0 };
    partition->commit_errno = 0;
    g_mutex_unlock(&partition->lock);
    nrd_js_consumer_doubt(partition);
    nrd_js_leases_void(partition);
    nrd_js_pulls_forget(partition->topic->engine->pulls, partition, 0);
    if (poison)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_js_partition_place(partition), "accepted by hand: %s", poison);
    rc = nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS);
    if (rc == 0 && poison)
        rc = accept_rewound(partition, created);
    bool gone = rc == -ENOENT;
    rc = nrd_js_partition_why(partition, rc);
    if (rc == -EIO)
        nrd_topic_refuse(partition->topic, partition->number, "ctl: \"reopen\" refused: %s",
                         gone ? "the servers have no such stream" : "the stream cannot be looked at");
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
