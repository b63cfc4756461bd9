/* Retention of one partition: what the housekeeping's loops do with each.
 *
 * Segments leave the log under the committer role, which takes as long as the change of a list; their files are removed
 * after it was given back, so a backlog of a thousand expired segments never holds up a commit (seed: Retention). A
 * partition that is closed is judged by its picture, or, when it has none, by the sizes and times of its files; only when
 * something has to go is it opened, swept and closed again. */
#include "engine/consume.h"
#include "engine/housekeeping.h"
#include "engine/partition.h"
#include "engine/produce.h"

#include "engine/base/clock.h"
#include "engine/io/io.h"

#include <errno.h>

#define LEFT_ALONE_MS ((int64_t)30 * 60 * 1000) /* after a failed walk (seed: Retention) */

static NrdRetention bounds(NrdPartition *partition, int64_t now_ms)
{
    return (NrdRetention){
        .max_age_ms = atomic_load(&partition->retention_ms),
        .max_bytes = (uint64_t)atomic_load(&partition->retention_bytes),
        .now_ms = now_ms,
    };
}

bool nrd_retention_due(NrdPartition *partition, int64_t now_ms)
{
    NrdRetention retention = bounds(partition, now_ms);
    return nrd_log_has_expired(atomic_load(&partition->log), &retention);
}

/* The part with the role. */
static int detach(NrdPartition *partition, int64_t now_ms)
{
    NrdRetention retention = bounds(partition, now_ms);
    uint64_t n_detached = 0;
    if (!nrd_log_has_expired(atomic_load(&partition->log), &retention))
        return 0;
    int rc = nrd_produce_enter(partition);
    if (rc < 0)
        return 0; /* closed for good meanwhile: nothing to sweep */
    rc = nrd_log_expire(atomic_load(&partition->log), &retention, &n_detached);
    nrd_produce_leave(partition);
    if (n_detached > 0)
        nrd_diag(NRD_LEVEL_INFO, nrd_partition_place(partition), "retention deletes %" G_GUINT64_FORMAT " segment%s",
                 n_detached, nrd_plural(n_detached));
    return rc == -ESHUTDOWN ? 0 : rc;
}

/* The partition is pinned. */
static int sweep_pinned(NrdPartition *partition, int64_t now_ms)
{
    uint64_t n_left = 0;
    int rc = detach(partition, now_ms);
    int remove_rc = nrd_log_remove_detached(atomic_load(&partition->log), &n_left); /* also what an earlier one left */
    nrd_consume_wake(partition);
    return rc < 0 ? rc : remove_rc;
}

void nrd_retention_sweep(NrdPartition *partition, int64_t now_ms)
{
    /* Ten thousand partitions in which nothing can have expired cost a load each. A bound on bytes is looked at when
     * something is committed, which asks for a sweep. */
    if (now_ms < atomic_load(&partition->retention_due_ms) || !nrd_partition_pin_if_open(partition))
        return;
    (void)!sweep_pinned(partition, now_ms); /* what failed was told where it failed, and is tried by the next sweep */
    /* A commit that passes the bound meanwhile, a trim, or another bound either says so after this, which stays, or is seen by
     * the looks that follow. */
    int64_t none = INT64_MAX;
    atomic_store(&partition->retention_due_ms, none);
    NrdRetention retention = bounds(partition, now_ms);
    (void)!atomic_compare_exchange_strong(&partition->retention_due_ms, &none,
                                          nrd_log_next_expiry_ms(atomic_load(&partition->log), &retention));
    if (nrd_log_has_expired(atomic_load(&partition->log), &retention) ||
        nrd_log_has_detached(atomic_load(&partition->log)))
        atomic_store(&partition->retention_due_ms, 0);
    nrd_partition_unpin_quietly(partition);
}

/* ---- closed partitions ---- */

/* What stat tells of a folder whose log was not closed cleanly. */
typedef struct Files {
    char *oldest; /* name of the segment with the lowest base */
    uint64_t size_bytes;
    uint64_t oldest_bytes;
    uint32_t n_segments;
    int64_t oldest_ms; /* mtime */
} Files;

static int add_file(Files *files, int root_fd, const char *dir, const char *name)
{
    struct stat st;
    g_autofree char *path = g_strdup_printf("%s/%s", dir, name);
    int rc = nrd_io_stat(root_fd, path, &st);
    if (rc < 0)
        return rc;
    files->size_bytes += (uint64_t)st.st_size;
    files->n_segments++;
    if (files->oldest && strcmp(files->oldest, name) < 0)
        return 0;
    g_free(files->oldest);
    files->oldest = g_strdup(name);
    files->oldest_bytes = (uint64_t)st.st_size;
    files->oldest_ms = (int64_t)st.st_mtim.tv_sec * 1000;
    return 0;
}

/* *ret_due is only a reason to look closer: the records decide. */
static int files_due(NrdPartition *partition, const NrdRetention *retention, bool *ret_due)
{
    int root_fd = partition->topic->engine->root_fd;
    g_autoptr(GPtrArray) names = NULL;
    Files files = { 0 };
    int rc = nrd_io_list_dir(root_fd, partition->dir, &names);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc; /* never used: opening it would make it */
    for (guint i = 0; rc == 0 && i < names->len; i++) {
        if (g_str_has_suffix(names->pdata[i], ".log"))
            rc = add_file(&files, root_fd, partition->dir, names->pdata[i]);
    }
    bool old = retention->max_age_ms > 0 && files.oldest_ms < retention->now_ms - retention->max_age_ms;
    bool large = retention->max_bytes > 0 && files.n_segments > 1 &&
                 files.size_bytes - files.oldest_bytes >= retention->max_bytes;
    if (rc == 0)
        *ret_due = files.n_segments > 0 && files.size_bytes > 0 && (old || large);
    g_free(files.oldest);
    return rc;
}

static int due_when_closed(NrdPartition *partition, const NrdRetention *retention, bool *ret_due)
{
    NrdPicture picture;
    *ret_due = false;
    if (nrd_partition_picture(partition, &picture)) {
        *ret_due = nrd_log_stats_expired(&picture.stats, retention);
        return 0;
    }
    return files_due(partition, retention, ret_due);
}

/* Opens, sweeps, closes: under the guard, so that nothing removes the folder in between. */
static int sweep_closed(NrdPartition *partition, int64_t now_ms)
{
    NrdTopic *topic = partition->topic;
    struct stat st;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_io_stat(topic->engine->root_fd, partition->dir, &st);
    if (rc == 0)
        rc = nrd_partition_pin_guarded(partition);
    pthread_mutex_unlock(&topic->guard);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    rc = sweep_pinned(partition, now_ms);
    nrd_partition_unpin_quietly(partition);
    (void)!nrd_partition_close_idle(partition, 0, true); /* somebody may have begun to use it */
    if (rc == 0)
        nrd_counter_add(NRD_COUNTER_COLD_SWEPT, 1);
    return rc;
}

/* A closed partition's bounds may never have been in force. */
static NrdRetention cold_bounds(NrdPartition *partition, int64_t now_ms)
{
    NrdTopic *topic = partition->topic;
    NrdRetention retention = { .now_ms = now_ms };
    pthread_mutex_lock(&topic->lock);
    if (topic->record && !topic->fault) {
        retention.max_age_ms = topic->record->config.retention_ms;
        retention.max_bytes = (uint64_t)topic->record->config.retention_bytes;
    }
    pthread_mutex_unlock(&topic->lock);
    return retention;
}

/* One that could not be opened counts: it is tried again, at the walk's pace. */
static bool is_closed(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    NrdPartitionState state = partition->state;
    bool closed = (state == NRD_PARTITION_CLOSED || state == NRD_PARTITION_FAULT) && !atomic_load(&partition->closed);
    g_mutex_unlock(&partition->state_lock);
    return closed;
}

void nrd_retention_walk(NrdPartition *partition, int64_t now_ms)
{
    NrdRetention retention = cold_bounds(partition, now_ms);
    bool due = false;
    if ((retention.max_age_ms == 0 && retention.max_bytes == 0) || !is_closed(partition) ||
        nrd_clock_mono_ms() < atomic_load(&partition->left_alone_until_ms))
        return;
    int rc = due_when_closed(partition, &retention, &due);
    if (rc == 0 && due)
        rc = sweep_closed(partition, now_ms);
    if (rc == 0 || atomic_load(&partition->topic->deleted))
        return;
    nrd_counter_add(NRD_COUNTER_COLD_FAILED, 1);
    nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
             "retention of the closed partition failed: %s; it is left alone for 30 minutes", g_strerror(-rc));
    atomic_store(&partition->left_alone_until_ms, nrd_clock_mono_ms() + LEFT_ALONE_MS);
}
