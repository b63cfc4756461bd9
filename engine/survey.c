/* The look, soon after a start, at partitions that nobody has used yet. A start opens none of them, so what others have done
 * to their files would stay unknown until somebody comes. */
#include "engine/partition.h"

/* Whether what stands in the place of a consumer's file is none: an open says so. */
static bool has_foreign_file(NrdPartition *partition)
{
    g_autofree char *path = NULL, *kind = NULL;
    return nrd_offset_store_foreign(partition->topic->engine->root_fd, partition->dir, &path, &kind);
}

void nrd_partition_survey(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    bool trouble = false;
    if (nrd_partition_known(partition))
        return;
    pthread_mutex_lock(&topic->guard);
    bool look = !topic->fault && !topic->lost && !nrd_partition_known(partition);
    int rc = look ? nrd_log_peek_trouble(topic->engine->root_fd, partition->dir, &trouble) : 0;
    if (look && rc == 0 && !trouble)
        trouble = has_foreign_file(partition);
    if (look && rc == 0)
        nrd_partition_look_for_note(partition);
    if (rc == 0 && trouble)
        (void)!nrd_partition_learn_guarded(partition); /* a failure was told */
    pthread_mutex_unlock(&topic->guard);
}
