/* A partition whose folder is gone, though its topic's record knows it, begins anew: somebody has removed it, or a crash came
 * in the middle of making the topic, which looks the same. Whoever looks after it has to be told, and not only the process
 * that met it: before the folder is made again, by an open or a reopen, a note is left beside it, an empty file
 * topics/<topic>/pNNNNN.lost, that goes when `reopen` is written to the partition's ctl after that was told. A folder that was
 * seen missing and is put back before it is made again leaves no note, and is as good as it was. */
#include "engine/partition.h"

#include "engine/io/io.h"

#include <errno.h>

static char *note_path(const NrdPartition *partition)
{
    return g_strconcat(partition->dir, ".lost", NULL);
}

static void tell(NrdPartition *partition)
{
    nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
             "%s is missing and is made anew, empty, by its next use: if records were in it they are lost; put it "
             "back from a backup with the daemon stopped, or write `reopen` to the partition's ctl to say that it is "
             "known",
             partition->dir);
}

/* Whether it was news. */
static bool set_lost(NrdPartition *partition, bool lost)
{
    return atomic_exchange(&partition->folder_lost, lost) != lost;
}

/* The folder is there: whether it is one that was made again. A note that cannot be looked at leaves it as it is known. */
static void look_beside(NrdPartition *partition, const char *path)
{
    struct stat st;
    int rc = nrd_io_stat(partition->topic->engine->root_fd, path, &st);
    if (rc == 0 || rc == -ENOENT)
        (void)set_lost(partition, rc == 0);
}

/* Leaves a note when there is no folder, and learns of one that was left. */
static int note_missing(NrdPartition *partition)
{
    g_autofree char *path = note_path(partition);
    int root_fd = partition->topic->engine->root_fd;
    struct stat st;
    int rc = nrd_io_stat(root_fd, partition->dir, &st);
    if (rc == -ENOENT) {
        /* A crash before this is durable leaves neither note nor folder: the next open is here again. */
        rc = nrd_io_replace_file(root_fd, path, "", 0);
        if (rc == 0 && set_lost(partition, true))
            tell(partition);
    } else if (rc == 0) {
        look_beside(partition, path);
    }
    return rc == -ENOENT ? 0 : rc;
}

int nrd_partition_make_folder(NrdPartition *partition)
{
    int root_fd = partition->topic->engine->root_fd;
    int rc = note_missing(partition);
    if (rc == 0)
        rc = nrd_io_make_dir(root_fd, partition->dir);
    /* What is acknowledged from here on may stand in a file that an earlier process has created, or others have put in the
     * place of another, without getting to sync the folder. */
    return rc < 0 ? rc : nrd_io_sync_dir(root_fd, partition->dir);
}

void nrd_partition_look_for_note(NrdPartition *partition)
{
    g_autofree char *path = note_path(partition);
    int root_fd = partition->topic->engine->root_fd;
    struct stat st;
    if (nrd_io_stat(root_fd, partition->dir, &st) != -ENOENT)
        look_beside(partition, path);
    else if (set_lost(partition, true))
        tell(partition);
}

int nrd_partition_forget_note(NrdPartition *partition)
{
    g_autofree char *path = note_path(partition);
    if (!atomic_load(&partition->folder_lost))
        return 0;
    int rc = nrd_io_unlink(partition->topic->engine->root_fd, path);
    if (rc == 0)
        (void)set_lost(partition, false);
    else
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition), "cannot remove %s: %s", path, g_strerror(-rc));
    return rc;
}
