/* The look, soon after a start, at partitions that nobody has used yet. A start opens none of them, so what others have done
 * to their files would stay unknown until somebody comes. */
#include "engine/engine_private.h"

#include "engine/io/io.h"

#include <errno.h>

/* A crash while the topic was being made leaves that, and so does somebody who removes the folder. */
static void tell_missing_folder(NrdPartition *partition)
{
    struct stat st;
    if (nrd_io_stat(partition->topic->engine->root_fd, partition->dir, &st) == -ENOENT)
        nrd_diag(NRD_LEVEL_WARNING, nrd_partition_place(partition),
                 "%s is missing and is made anew, empty, by its next use: if records were in it they are lost; "
                 "put it back from a backup with the daemon stopped",
                 partition->dir);
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
        tell_missing_folder(partition);
    if (rc == 0 && trouble)
        (void)!nrd_partition_learn_guarded(partition); /* a failure was told */
    pthread_mutex_unlock(&topic->guard);
}
