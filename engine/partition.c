/* A partition: the joint of a log, a queue and producers. Opening, closing, and what `ctl` and the attributes ask. */
#include "engine/engine_private.h"

#include "engine/io/io.h"

#include <errno.h>

NrdPartition *nrd_partition_new(NrdTopic *topic, uint32_t number)
{
    NrdPartition *partition = g_new0(NrdPartition, 1);
    NrdTopicConfig defaults;
    nrd_topic_config_defaults(&defaults);
    partition->topic = topic;
    partition->number = number;
    partition->dir = g_strdup_printf("topics/%s/p%05u", topic->name, number);
    nrd_produce_init(partition);
    nrd_consume_init(partition, &defaults);
    nrd_offsets_init(partition);
    return partition;
}

/* A call that looked just before the close may have set one after it. */
static void drain_timers(NrdPartition *partition)
{
    NrdTimer *timers[] = { &partition->linger_timer, &partition->lease_timer, &partition->wait_timer,
                           &partition->tick_timer,   &partition->write_timer, &partition->level_timer };
    for (size_t i = 0; i < G_N_ELEMENTS(timers); i++)
        nrd_timer_drain(partition->topic->engine->timers, timers[i]);
}

void nrd_partition_free(NrdPartition *partition)
{
    drain_timers(partition);
    nrd_produce_clear(partition);
    nrd_log_cursor_free(partition->cursor);
    nrd_consume_clear(partition);
    nrd_offsets_clear(partition);
    nrd_log_free(atomic_load(&partition->log));
    g_free(partition->dir);
    g_free(partition);
}

static NrdLogSettings log_settings(const NrdTopicConfig *config)
{
    return (NrdLogSettings){
        .segment_bytes = (uint64_t)config->segment_bytes,
        .codec = (NrdCodec)config->codec,
        .zstd_level = (int)config->zstd_level,
    };
}

static int open_log(NrdPartition *partition, const NrdTopicConfig *config, NrdLog **ret_log)
{
    NrdEngine *engine = partition->topic->engine;
    if (!engine->read_only) {
        int rc = nrd_io_make_dir(engine->root_fd, partition->dir);
        if (rc < 0)
            return rc;
    }
    NrdLogOptions options = {
        .root_fd = engine->root_fd,
        .dir = partition->dir,
        .topic = partition->topic->name,
        .partition = partition->number,
        .read_only = engine->read_only,
        .settings = log_settings(config),
    };
    return nrd_log_open(&options, ret_log);
}

int nrd_partition_open(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdLog *log = NULL;
    nrd_partition_configure(partition, config);
    int rc = open_log(partition, config, &log);
    if (rc == 0)
        rc = nrd_offsets_open(partition, nrd_log_hwm(log));
    if (rc < 0) {
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
                 "the partition could not be opened: %s; it is out of service until `reopen` is written to its ctl",
                 g_strerror(-rc));
        if (log)
            (void)!nrd_log_close(log);
        nrd_log_free(log);
        partition->open_errno = rc;
        return rc;
    }
    partition->open_errno = 0;
    atomic_store(&partition->log, log);
    return 0;
}

int nrd_partition_close(NrdPartition *partition)
{
    NrdTimers *timers = partition->topic->engine->timers;
    if (nrd_produce_enter(partition) < 0)
        return 0; /* closed already */
    nrd_produce_shut(partition);
    int error = nrd_partition_usable(partition);
    nrd_produce_fail_waiters(partition, error);
    nrd_consume_interrupt(partition, error);
    nrd_timer_drain(timers, &partition->lease_timer);
    nrd_timer_drain(timers, &partition->wait_timer);
    int rc = nrd_offsets_close(partition);
    NrdLog *log = atomic_load(&partition->log);
    if (log) {
        int log_rc = nrd_log_close(log);
        rc = rc < 0 ? rc : log_rc;
    }
    return rc;
}

void nrd_partition_configure(NrdPartition *partition, const NrdTopicConfig *config)
{
    NrdLog *log = atomic_load(&partition->log);
    NrdLogSettings settings = log_settings(config);
    if (log)
        nrd_log_configure(log, &settings);
    nrd_consume_configure(partition, config);
}

int nrd_partition_usable(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->deleted) || atomic_load(&partition->closed))
        return nrd_partition_closed_error(partition);
    return atomic_load(&partition->log) ? 0 : -EIO;
}

uint32_t nrd_partition_number(const NrdPartition *partition)
{
    return partition->number;
}

static void info_from_log(NrdLog *log, NrdPartitionInfo *info)
{
    NrdLogStats stats;
    nrd_log_stats(log, &stats);
    info->oldest_offset = stats.oldest_offset;
    info->hwm = stats.hwm;
    info->next_offset = stats.next_offset;
    info->segments = stats.n_segments;
    info->size_bytes = stats.size_bytes;
    info->text_bytes = stats.text_bytes;
    info->last_commit_ms = stats.last_commit_ms;
    info->poisoned = stats.poison_errno != 0;
    if (info->poisoned)
        info->reason = nrd_log_poison_reason(log);
}

void nrd_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info)
{
    NrdPartitionInfo info = { 0 };
    NrdLog *log = atomic_load(&partition->log);
    if (log)
        info_from_log(log, &info);
    info.fault = log == NULL;
    if (info.fault)
        info.reason = g_strdup("the partition could not be opened; the daemon's log says which file stops it");
    else if (!info.reason)
        info.reason = g_strdup("");
    pthread_mutex_lock(&partition->queue_lock);
    info.frontier = MAX(nrd_queue_frontier(partition->queue), info.oldest_offset);
    info.in_flight = nrd_queue_in_flight(partition->queue);
    info.acked_ahead = nrd_queue_acked_ahead(partition->queue);
    pthread_mutex_unlock(&partition->queue_lock);
    info.frontier = MIN(info.frontier, info.hwm);
    uint64_t behind = info.hwm - info.frontier;
    info.lag = behind - MIN(behind, info.acked_ahead);
    *ret_info = info;
}

void nrd_partition_info_clear(NrdPartitionInfo *info)
{
    g_clear_pointer(&info->reason, g_free);
}

/* ---- the verbs of ctl ---- */

static void copy_config(NrdTopic *topic, NrdTopicConfig *ret_config)
{
    pthread_mutex_lock(&topic->lock);
    *ret_config = topic->record->config;
    pthread_mutex_unlock(&topic->lock);
}

/* Takes the committer role if the partition can be changed; nrd_produce_leave gives it back. */
static int enter_for_change(NrdPartition *partition)
{
    if (partition->topic->engine->read_only)
        return -EROFS;
    int rc = nrd_produce_enter(partition);
    if (rc == 0 && atomic_load(&partition->topic->deleted)) {
        nrd_produce_leave(partition);
        rc = -EIDRM;
    }
    return rc;
}

int nrd_partition_reopen(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->deleted))
        return -EIDRM;
    int rc = enter_for_change(partition);
    if (rc < 0)
        return rc;
    NrdLog *log = atomic_load(&partition->log);
    if (log) {
        rc = nrd_log_reopen(log);
    } else {
        NrdTopicConfig config;
        copy_config(partition->topic, &config);
        rc = nrd_partition_open(partition, &config);
    }
    nrd_produce_leave(partition);
    if (rc == 0)
        nrd_consume_wake(partition);
    return rc;
}

int nrd_partition_roll(NrdPartition *partition)
{
    int rc = nrd_partition_usable(partition);
    if (rc == 0)
        rc = enter_for_change(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_roll(atomic_load(&partition->log));
    nrd_produce_leave(partition);
    return rc;
}

int nrd_partition_trim(NrdPartition *partition, uint64_t offset)
{
    uint64_t n_deleted = 0;
    int rc = nrd_partition_usable(partition);
    if (rc == 0)
        rc = enter_for_change(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_trim(atomic_load(&partition->log), offset, &n_deleted);
    nrd_produce_leave(partition);
    if (rc == 0)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_partition_place(partition),
                 "trimmed below offset %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT " segments deleted", offset,
                 n_deleted);
    nrd_consume_wake(partition);
    return rc;
}

/* ---- reading ---- */

struct NrdReader {
    NrdPartition *partition; /* holds a reference to its topic */
    NrdText *text;
};

static int reader_error(NrdPartition *partition, int rc)
{
    if (rc != -ESHUTDOWN)
        return rc;
    return nrd_partition_closed_error(partition);
}

int nrd_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader)
{
    NrdText *text = NULL;
    int rc = nrd_partition_usable(partition);
    if (rc == 0)
        rc = nrd_text_open(atomic_load(&partition->log), &text);
    if (rc < 0)
        return reader_error(partition, rc);
    NrdReader *reader = g_new(NrdReader, 1);
    *reader = (NrdReader){ partition, text };
    nrd_topic_ref(partition->topic);
    *ret_reader = reader;
    return 0;
}

uint64_t nrd_reader_size(NrdReader *reader)
{
    return nrd_text_size(reader->text);
}

int nrd_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    int rc = nrd_partition_usable(reader->partition);
    if (rc == 0)
        rc = nrd_text_read(reader->text, pos, buf, size, ret_size);
    return reader_error(reader->partition, rc);
}

void nrd_reader_close(NrdReader *reader)
{
    NrdTopic *topic = reader->partition->topic;
    nrd_text_close(reader->text);
    g_free(reader);
    nrd_topic_unref(topic);
}
