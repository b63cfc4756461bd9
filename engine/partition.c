/* A partition: the joint of a log, a queue and producers. What `ctl` and the attributes ask of it; life.c opens and closes
 * it. */
#include "engine/partition.h"
#include "engine/consume.h"
#include "engine/fan.h"
#include "engine/offsets.h"
#include "engine/produce.h"

#include "engine/base/errors.h"
#include "engine/ingress/ingress.h"
#include "engine/io/io.h"
#include "engine/meta/incarnation.h"

#include <errno.h>

NrdLogSettings nrd_partition_log_settings(const NrdPartition *partition, const NrdTopicConfig *config)
{
    return (NrdLogSettings){
        .segment_bytes = (uint64_t)config->segment_bytes,
        .codec = (NrdCodec)config->codec,
        .zstd_level = (int)config->zstd_level,
        .roll_age_ms = config->retention_ms,
        /* A partition that gets one record now and then is better off without: zeros pay from the second commit on. */
        .prealloc_bytes = atomic_load(&partition->warm) ? NRD_LOG_PREALLOC_BYTES : 0,
    };
}

void nrd_partition_configure(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdLog *log = atomic_load(&partition->log);
    NrdLogSettings settings = nrd_partition_log_settings(partition, config);
    nrd_log_configure(log, &settings);
    nrd_consume_configure(partition, config);
    atomic_store(&partition->retention_ms, config->retention_ms);
    atomic_store(&partition->retention_bytes, config->retention_bytes);
    atomic_store(&partition->retention_due_ms, 0);
}

int nrd_partition_usable(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->deleted) || atomic_load(&partition->closed))
        return nrd_partition_closed_error(partition);
    return atomic_load(&partition->log) ? 0 : -EIO;
}

uint32_t nrd_local_partition_number(const NrdPartition *partition)
{
    return partition->number;
}

static void info_from_stats(const NrdLogStats *stats, NrdPartitionInfo *info)
{
    info->oldest_offset = stats->oldest_offset;
    info->hwm = stats->hwm;
    info->next_offset = stats->next_offset;
    info->segments = stats->n_segments;
    info->size_bytes = stats->size_bytes;
    info->text_bytes = stats->text_bytes;
    info->last_commit_ms = stats->last_commit_ms;
    info->oldest_ms = stats->next_offset > stats->oldest_offset ? stats->oldest_first_ms : 0;
    info->n_damaged = stats->damage.n_frames;
    info->n_lost = stats->damage.n_records;
    info->first_lost = stats->damage.first_offset;
    info->n_holes = stats->damage.n_holes;
    info->n_missing = stats->damage.n_missing;
    info->first_missing = stats->damage.first_missing;
    info->last_missing = stats->damage.n_holes > 0 ? stats->damage.missing_end - 1 : 0;
    info->n_hidden = stats->n_hidden;
    info->commit_errno = stats->commit_errno;
    info->n_unreadable = stats->n_unreadable;
    info->unreadable = stats->unreadable;
    info->unreadable_errno = stats->unreadable_errno;
    info->poisoned = stats->poison_errno != 0;
    info->by_others = stats->by_others;
}

uint64_t nrd_partition_lost_in_lag_locked(NrdPartition *partition, const GArray *gaps)
{
    uint64_t frontier = nrd_queue_frontier(partition->queue), n = 0;
    uint64_t hwm = nrd_log_hwm(atomic_load(&partition->log));
    for (guint i = 0; i < gaps->len; i++) {
        const NrdGap *gap = &g_array_index(gaps, NrdGap, i);
        uint64_t from = MAX(gap->offset, frontier), end = MIN(gap->end_offset, hwm);
        if (from < end) /* what a consumer has passed over is acked ahead */
            n += end - from - nrd_queue_acked_ahead_in(partition->queue, from, end);
    }
    return n;
}

/* Puts the frontier where it counts, too. */
static uint64_t lag(NrdPartitionInfo *info, uint64_t n_lost)
{
    info->frontier = MIN(MAX(info->frontier, info->oldest_offset), info->hwm);
    uint64_t behind = info->hwm - info->frontier;
    return behind - MIN(behind, info->acked_ahead + n_lost);
}

static void info_of_open(NrdPartition *partition, NrdPartitionInfo *info)
{
    NrdLog *log = atomic_load(&partition->log);
    NrdLogStats stats;
    nrd_log_stats(log, &stats);
    g_autoptr(GArray) gaps = nrd_log_gaps(log);
    info_from_stats(&stats, info);
    info->open = true;
    if (info->poisoned)
        info->reason = nrd_log_poison_reason(log);
    g_mutex_lock(&partition->queue_lock);
    info->frontier = nrd_queue_frontier(partition->queue);
    info->in_flight = nrd_queue_in_flight(partition->queue);
    info->acked_ahead = nrd_queue_acked_ahead(partition->queue);
    info->lag = lag(info, nrd_partition_lost_in_lag_locked(partition, gaps));
    g_mutex_unlock(&partition->queue_lock);
}

static void info_of_closed(NrdPartition *partition, NrdPartitionInfo *info)
{
    NrdPicture picture = { 0 };
    if (nrd_partition_picture(partition, &picture)) {
        info_from_stats(&picture.stats, info);
        info->frontier = picture.frontier;
        info->acked_ahead = picture.n_acked_ahead;
        info->lag = lag(info, picture.n_lost);
    }
    g_mutex_lock(&partition->state_lock);
    info->fault = partition->state == NRD_PARTITION_FAULT;
    if (info->fault)
        info->reason = g_strdup(partition->fault_why ? partition->fault_why : "the partition could not be opened");
    g_mutex_unlock(&partition->state_lock);
}

void nrd_local_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info)
{
    NrdPartitionInfo info = { 0 };
    if (nrd_partition_pin_if_open(partition)) {
        info_of_open(partition, &info);
        nrd_partition_unpin_quietly(partition);
    } else {
        info_of_closed(partition, &info);
    }
    info.anew = atomic_load(&partition->folder_lost);
    info.unsaved = nrd_offsets_why_not(partition);
    if (!info.reason)
        info.reason = g_strdup("");
    *ret_info = info;
}

#define N G_GUINT64_FORMAT

static char *missing_in_words(const NrdPartitionInfo *info)
{
    if (info->n_missing == 1)
        return g_strdup_printf("record %" N " is missing", info->first_missing);
    if (info->n_holes == 1)
        return g_strdup_printf("records %" N " to %" N " are missing (%" N " records)", info->first_missing,
                               info->last_missing, info->n_missing);
    return g_strdup_printf("%" N " records are missing in %" N " places, the first at offset %" N ", the last at %" N,
                           info->n_missing, info->n_holes, info->first_missing, info->last_missing);
}

char *nrd_partition_info_damage(const NrdPartitionInfo *info)
{
    if (info->n_damaged == 0 && info->n_holes == 0)
        return NULL;
    GString *text = g_string_new(NULL);
    if (info->n_holes > 0) {
        g_autofree char *missing = missing_in_words(info);
        g_string_append_printf(text, "%s%s", missing, info->n_damaged > 0 ? "; " : "");
    }
    if (info->n_damaged > 0)
        g_string_append_printf(text, "%" N " damaged frame%s, %" N " record%s lost, the first at offset %" N,
                               info->n_damaged, nrd_plural(info->n_damaged), info->n_lost, nrd_plural(info->n_lost),
                               info->first_lost);
    return g_string_free(text, FALSE);
}

char *nrd_partition_info_unreadable(const NrdPartitionInfo *info)
{
    if (info->n_unreadable == 0)
        return NULL;
    if (info->n_unreadable == 1)
        return g_strdup_printf("segment %020" N ".log cannot be read: %s", info->unreadable,
                               g_strerror(info->unreadable_errno));
    return g_strdup_printf("%" N " segments cannot be read, the first is %020" N ".log: %s", info->n_unreadable,
                           info->unreadable, g_strerror(info->unreadable_errno));
}

const char *nrd_partition_info_anew(const NrdPartitionInfo *info)
{
    return info->anew ? "its folder was missing and was made anew, empty: if records were in it they are lost" : NULL;
}

char *nrd_partition_info_hidden(const NrdPartitionInfo *info)
{
    if (info->n_hidden == 0)
        return NULL;
    if (info->n_hidden == 1)
        return g_strdup_printf("record %" N " is there and not served: the hwm file ends before it", info->hwm);
    return g_strdup_printf("records %" N " to %" N " (%" N
                           " records) are there and not served: the hwm file ends before them",
                           info->hwm, info->hwm + info->n_hidden - 1, info->n_hidden);
}

void nrd_partition_info_clear(NrdPartitionInfo *info)
{
    g_clear_pointer(&info->reason, g_free);
    g_clear_pointer(&info->unsaved, g_free);
    g_clear_pointer(&info->apart, g_free);
}

/* ---- the verbs of ctl ---- */

/* Pins the partition and takes the committer role if it can be changed; leave_change gives both back. */
static int enter_for_change(NrdPartition *partition)
{
    if (partition->topic->engine->read_only)
        return -EROFS;
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    rc = nrd_produce_enter(partition);
    if (rc == 0 && atomic_load(&partition->topic->deleted)) {
        nrd_produce_leave(partition);
        rc = -EIDRM;
    }
    if (rc < 0)
        nrd_partition_unpin(partition);
    return rc;
}

static void leave_change(NrdPartition *partition)
{
    nrd_produce_leave(partition);
    nrd_partition_unpin(partition);
}

/* Says so in the log, and in the topic's status. */
static int refuse_reopen(NrdPartition *partition, const char *why)
{
    nrd_topic_refuse(partition->topic, partition->number, "ctl: \"reopen\" refused: %s", why);
    return -EIO;
}

/* Whether the topic's folder is this incarnation's. It may be gone. Guard held. */
static int verify_folder(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    g_autofree char *why = NULL;
    int rc = nrd_incarnation_verify(topic->engine->root_fd, topic->name, topic->id, &why);
    if (rc == 0 || rc == -ENOENT)
        return 0;
    return refuse_reopen(partition, why ? why : g_strerror(-rc));
}

/* Without its folder the log goes on in a new one, above all offsets that it has given out: what was in the old one is told
 * as missing. Should the topic's be gone as well, only a start can tell whose it was. Guard held. */
static int find_folder(NrdPartition *partition)
{
    int rc = nrd_partition_usable(partition);
    if (rc < 0)
        return rc;
    rc = verify_folder(partition);
    if (rc < 0)
        return rc;
    rc = nrd_partition_make_folder(partition);
    if (rc == 0)
        return 0;
    g_autofree char *why =
        g_strdup_printf("%s is gone and cannot be made anew, or cannot be used: %s; put topics/%s back "
                        "from a backup, or start the daemon again",
                        partition->dir, g_strerror(-rc), partition->topic->name);
    return refuse_reopen(partition, why);
}

static int reopen_log(NrdPartition *partition)
{
    pthread_mutex_lock(&partition->topic->guard);
    int rc = find_folder(partition);
    pthread_mutex_unlock(&partition->topic->guard);
    if (rc == 0)
        rc = nrd_produce_enter(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_reopen(atomic_load(&partition->log));
    if (rc == -EIO)
        rc = refuse_reopen(partition, nrd_log_why(atomic_load(&partition->log)));
    nrd_produce_leave(partition);
    return rc;
}

static int refuse_reopen_of_fault(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    int rc = refuse_reopen(partition, info.reason[0] ? info.reason : g_strerror(EIO));
    nrd_partition_info_clear(&info);
    return rc;
}

int nrd_local_partition_reopen(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->deleted))
        return -EIDRM;
    if (partition->topic->engine->read_only)
        return -EROFS;
    bool told = atomic_load(&partition->folder_lost); /* what this call finds is nothing that anybody knows */
    bool was_open = nrd_partition_pin_if_open(partition);
    int rc = was_open ? reopen_log(partition) : nrd_partition_pin(partition); /* which recovers it */
    if (rc < 0 && !was_open)
        return rc == -EIO ? refuse_reopen_of_fault(partition) : rc;
    if (rc == 0 && told)
        rc = nrd_partition_forget_note(partition);
    if (rc == 0) {
        atomic_store(&partition->failing_until_ms, 0); /* who consumes the whole topic need not pass it over any more */
        nrd_consume_wake(partition);
    }
    if (rc == 0 && partition->topic->engine->ingress)
        nrd_ingress_kick(partition->topic->engine->ingress);
    if (rc == 0)
        nrd_fan_well(partition);
    nrd_partition_unpin(partition);
    return rc;
}

int nrd_local_partition_roll(NrdPartition *partition)
{
    int rc = enter_for_change(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_roll(atomic_load(&partition->log));
    leave_change(partition);
    return nrd_error_unless_taken_away(rc);
}

/* The segments leave the log under the role; their files go after it, so that no commit waits for an unlink. */
int nrd_local_partition_trim(NrdPartition *partition, uint64_t offset)
{
    uint64_t n_detached = 0, n_left = 0;
    int rc = enter_for_change(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_trim(atomic_load(&partition->log), offset, &n_detached);
    nrd_produce_leave(partition);
    if (rc == 0) {
        nrd_diag(NRD_LEVEL_NOTICE, nrd_partition_place(partition),
                 "trimmed below offset %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT " segment%s deleted", offset,
                 n_detached, nrd_plural(n_detached));
        rc = nrd_log_remove_detached(atomic_load(&partition->log), &n_left);
        if (rc < 0 || n_left > 0)
            atomic_store(&partition->retention_due_ms, 0); /* the sweeps remove what readers still need, or failed */
        nrd_consume_wake(partition);
    }
    nrd_partition_unpin(partition);
    return nrd_error_unless_taken_away(rc);
}
