/* What can be asked of a closed partition without opening it: its picture, taken at the close, or read from what a clean close
 * left (seed: High watermark). When there is none only an open can tell. */
#include "engine/offsets.h"
#include "engine/partition.h"
#include "engine/topic.h"

#include <errno.h>

NrdPicture *nrd_partition_take_picture(NrdPartition *partition)
{
    NrdPicture *picture = g_new0(NrdPicture, 1);
    nrd_log_stats(atomic_load(&partition->log), &picture->stats);
    g_autoptr(GArray) gaps = nrd_log_gaps(atomic_load(&partition->log));
    g_mutex_lock(&partition->queue_lock);
    picture->frontier = nrd_queue_frontier(partition->queue);
    picture->n_acked_ahead = nrd_queue_acked_ahead(partition->queue);
    picture->n_lost = nrd_partition_lost_in_lag_locked(partition, gaps);
    g_mutex_unlock(&partition->queue_lock);
    return picture;
}

void nrd_partition_set_picture(NrdPartition *partition, NrdPicture *picture)
{
    g_mutex_lock(&partition->state_lock);
    NrdPicture *old = partition->picture;
    partition->picture = picture;
    g_mutex_unlock(&partition->state_lock);
    g_free(old);
}

bool nrd_local_partition_known(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    bool known = partition->picture || partition->state != NRD_PARTITION_CLOSED;
    g_mutex_unlock(&partition->state_lock);
    return known || atomic_load(&partition->closed);
}

bool nrd_partition_picture(NrdPartition *partition, NrdPicture *ret_picture)
{
    g_mutex_lock(&partition->state_lock);
    bool there = partition->picture != NULL && partition->state != NRD_PARTITION_OPEN;
    if (there)
        *ret_picture = *partition->picture;
    g_mutex_unlock(&partition->state_lock);
    return there;
}

/* ---- looking ---- */

/* The picture that a clean close left on disk, or NULL when only an open can tell. */
static NrdPicture *peek(NrdPartition *partition)
{
    NrdPicture picture = { 0 };
    bool known = false;
    int rc = nrd_log_peek(partition->topic->engine->root_fd, partition->dir, &picture.stats, &known);
    if (rc == 0 && known)
        rc = nrd_offsets_peek(partition, picture.stats.hwm, &picture.frontier, &picture.n_acked_ahead);
    return rc == 0 && known ? g_memdup2(&picture, sizeof picture) : NULL;
}

int nrd_partition_learn_guarded(NrdPartition *partition)
{
    if (nrd_partition_known(partition))
        return 0;
    if (partition->topic->lost)
        return -EIO;
    int rc = nrd_topic_check_marker(partition->topic);
    if (rc < 0)
        return rc;
    nrd_partition_look_for_note(partition);
    NrdPicture *picture = atomic_load(&partition->closed) ? NULL : peek(partition);
    if (picture) {
        nrd_partition_set_picture(partition, picture);
        return 0;
    }
    rc = nrd_partition_pin_guarded(partition);
    if (rc == 0)
        nrd_partition_unpin(partition);
    return nrd_partition_known(partition) ? 0 : rc; /* a failure may be the partition's fault from now on */
}

int nrd_local_partition_learn(NrdPartition *partition)
{
    if (nrd_partition_known(partition))
        return 0;
    pthread_mutex_lock(&partition->topic->guard);
    int rc = nrd_partition_learn_guarded(partition);
    pthread_mutex_unlock(&partition->topic->guard);
    return rc;
}

/* A failure is known, or shown as what is not known. */
void nrd_local_topic_learn(NrdTopic *topic)
{
    for (uint32_t i = 0; i < nrd_topic_n_partitions(topic); i++)
        (void)!nrd_partition_learn(nrd_topic_partition(topic, i));
}
