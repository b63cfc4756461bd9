/* What is known of a partition's stream and of its consumer: asked for when somebody wants it and it is older than a second,
 * and moved on by what this daemon publishes. A stream that has become another one, or whose end has gone back, takes and
 * serves nothing until a person has looked (`reopen`). */
#include "engine/jetstream/partition.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/pull.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define LAG_MS 1000
#define NUDGE_MS 2000 /* records that were sent together are given up together */
#define MANY_NUDGES 6
#define REST_MS 30000 /* after so many: servers that are away for long leave others behind as well */
#define FEWEST_AT_ONCE 16u
#define MOST_AT_ONCE 1024u

NrdPlace nrd_js_partition_place(const NrdPartition *partition)
{
    return (NrdPlace){ partition->topic->name, partition->number, NRD_NO_OFFSET };
}

NrdPartition *nrd_js_partition_new(NrdTopic *topic, uint32_t number)
{
    NrdPartition *partition = g_new0(NrdPartition, 1);
    partition->table = &nrd_js_table;
    partition->topic = topic;
    partition->number = number;
    partition->stream = nrd_js_stream_name(topic->name, topic->id, number);
    partition->subject = nrd_js_subject(topic->name, topic->id, number);
    partition->leases = nrd_js_leases_new(partition);
    partition->outboxes = g_ptr_array_new();
    g_mutex_init(&partition->lock);
    g_mutex_init(&partition->making);
    return partition;
}

void nrd_js_partition_free(NrdPartition *partition)
{
    nrd_js_leases_free(partition->leases);
    g_ptr_array_unref(partition->outboxes);
    g_mutex_clear(&partition->lock);
    g_mutex_clear(&partition->making);
    g_free(partition->stream);
    g_free(partition->subject);
    g_free(partition->reason);
    g_free(partition->poison);
    nrd_js_acked_free(partition->acked);
    g_free(partition->apart);
    g_free(partition);
}

uint32_t nrd_js_partition_number(const NrdPartition *partition)
{
    return partition->number;
}

int nrd_js_partition_usable(NrdPartition *partition)
{
    int rc = nrd_js_topic_usable(partition->topic);
    g_mutex_lock(&partition->lock);
    bool poisoned = partition->poison != NULL;
    g_mutex_unlock(&partition->lock);
    return rc < 0 ? rc : poisoned ? -EIO : 0;
}

int nrd_js_partition_why(const NrdPartition *partition, int rc)
{
    if (rc < 0 && atomic_load(&partition->topic->deleted))
        return -EIDRM;
    return rc == -ENOENT ? -EIO : rc;
}

int nrd_js_partition_check_durable(NrdPartition *partition)
{
    uint64_t first, last;
    int rc = partition->topic->engine->require_fsync ? nrd_js_partition_last(partition, false, &first, &last) : 0;
    g_mutex_lock(&partition->lock);
    bool refused = partition->topic->engine->require_fsync && partition->info.in_memory;
    g_mutex_unlock(&partition->lock);
    if (rc < 0 || !refused)
        return rc;
    nrd_topic_refuse(
        partition->topic, partition->number,
        "producing refused: require_fsync, and the stream %s keeps its records in memory; make it anew with "
        "storage file, or mount without require_fsync",
        partition->stream);
    return -EIO;
}

/* It is poisoned: what was leased or waits is void, as its offsets may be other records' by now. */
void nrd_js_partition_end_service(NrdPartition *partition, const char *why)
{
    nrd_diag(NRD_LEVEL_ERROR, nrd_js_partition_place(partition),
             "%s; nothing is taken and nothing served until somebody has looked and written reopen to ctl", why);
    nrd_js_leases_void(partition);
    nrd_js_pulls_forget(partition->topic->engine->pulls, partition, -EIO);
}

/* ---- as this daemon moves it on ---- */

void nrd_js_partition_changed(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    partition->known_ms = 0;
    g_mutex_unlock(&partition->lock);
}

void nrd_js_partition_nudge(NrdPartition *partition)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->lock);
    int64_t pause_ms = partition->n_nudges < MANY_NUDGES ? NUDGE_MS : REST_MS;
    bool nudges = partition->nudged_ms == 0 || now_ms - partition->nudged_ms >= pause_ms;
    unsigned n = MIN(FEWEST_AT_ONCE << (2 * partition->n_nudges), MOST_AT_ONCE);
    if (nudges) {
        partition->nudged_ms = now_ms;
        partition->n_nudges = MIN(partition->n_nudges + 1, MANY_NUDGES);
    }
    g_mutex_unlock(&partition->lock);
    if (nudges)
        nrd_js_nudge(partition->topic->engine->conn, partition->subject, n);
}

void nrd_js_partition_grew(NrdPartition *partition, uint64_t sequence, bool published)
{
    g_mutex_lock(&partition->lock);
    if (published) {
        partition->grew_ms = nrd_clock_mono_ms();
        partition->gone_ms = 0;
        partition->n_nudges = 0;
        g_clear_pointer(&partition->reason, g_free); /* it answers */
    }
    NrdJsStreamInfo *info = &partition->info;
    if (partition->known && sequence > info->last_seq) {
        info->messages += sequence - info->last_seq;
        info->first_seq = MAX(info->first_seq, 1);
        info->last_seq = sequence;
        info->last_ms = nrd_clock_wall_ms();
    }
    g_mutex_unlock(&partition->lock);
}

bool nrd_js_partition_has_deliverable(NrdPartition *partition)
{
    uint64_t n_returned = nrd_js_leases_n_returned(partition, 0);
    uint64_t max_in_flight = (uint64_t)nrd_js_topic_config(partition->topic).max_in_flight;
    g_mutex_lock(&partition->lock);
    const NrdJsConsumerInfo *consumer = &partition->consumer;
    bool has =
        !partition->no_consumer && (n_returned > 0 || (consumer->pending > 0 && consumer->ack_pending < max_in_flight));
    g_mutex_unlock(&partition->lock);
    return has;
}

void nrd_js_partition_has_more(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    partition->grew_ms = nrd_clock_mono_ms();
    partition->known_ms = 0;
    g_mutex_unlock(&partition->lock);
}

bool nrd_js_partition_may_lag(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool lags = partition->grew_ms > 0 && nrd_clock_mono_ms() - partition->grew_ms < LAG_MS;
    g_mutex_unlock(&partition->lock);
    return lags;
}

int nrd_js_partition_last(NrdPartition *partition, bool fresh, uint64_t *ret_first, uint64_t *ret_last)
{
    int rc = nrd_js_partition_usable(partition);
    g_mutex_lock(&partition->lock);
    bool look = fresh || !partition->known;
    g_mutex_unlock(&partition->lock);
    if (rc == 0 && look)
        rc = nrd_js_partition_look(partition, NRD_JS_PATIENCE_MS);
    if (rc == 0)
        rc = nrd_js_partition_usable(partition); /* what was seen may have poisoned it */
    if (rc < 0)
        return nrd_js_partition_why(partition, rc);
    g_mutex_lock(&partition->lock);
    *ret_first = MAX(partition->info.first_seq, 1); /* 0 of a stream that never had a message */
    *ret_last = partition->info.last_seq;
    g_mutex_unlock(&partition->lock);
    return 0;
}

bool nrd_js_partition_committed(NrdPartition *partition, int error)
{
    g_mutex_lock(&partition->lock);
    bool news = partition->commit_errno != -error;
    partition->commit_errno = -error;
    partition->known_ms = 0;
    g_mutex_unlock(&partition->lock);
    return error < 0 && news;
}

/* ---- what fs/ is told ---- */

static uint64_t lag_of(const NrdPartition *partition)
{
    return partition->no_consumer ? partition->info.messages
                                  : partition->consumer.pending + partition->consumer.ack_pending;
}

static uint64_t in_flight_of(const NrdPartition *partition, uint64_t n_returned)
{
    uint64_t pending = partition->no_consumer ? 0 : partition->consumer.ack_pending;
    return pending - MIN(pending, n_returned);
}

void nrd_js_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info)
{
    g_mutex_lock(&partition->lock);
    uint64_t floor = partition->no_consumer ? 0 : partition->consumer.floor_seq;
    g_mutex_unlock(&partition->lock);
    uint64_t n_returned = nrd_js_leases_n_returned(partition, floor) + nrd_js_hand_count(partition);
    g_mutex_lock(&partition->lock);
    const NrdJsStreamInfo *stream = &partition->info;
    uint64_t oldest = stream->first_seq > 0 ? stream->first_seq - 1 : 0;
    uint64_t frontier = MAX(oldest, partition->no_consumer ? oldest : partition->consumer.floor_seq);
    uint64_t open = stream->last_seq - MIN(frontier, stream->last_seq);
    uint64_t lag = MIN(lag_of(partition), open);
    const char *reason = partition->poison ? partition->poison : partition->reason ? partition->reason : "";
    *ret_info = (NrdPartitionInfo){
        .oldest_offset = oldest,
        .hwm = stream->last_seq,
        .next_offset = stream->last_seq,
        .frontier = frontier,
        .lag = lag,
        .in_flight = in_flight_of(partition, n_returned),
        .acked_ahead = open - lag,
        .size_bytes = stream->bytes,
        .last_commit_ms = stream->last_ms,
        .oldest_ms = stream->first_ms,
        .durability = partition->known
                          ? nrd_js_durability_of(partition->topic->engine, stream->replicas, stream->in_memory)
                          : NULL,
        .poisoned = *reason != '\0',
        .passes = !partition->poison && partition->reason && partition->gone_ms == 0,
        .reason = g_strdup(reason),
        .apart = g_strdup(partition->apart),
        .commit_errno = partition->commit_errno,
        .open = true,
    };
    g_mutex_unlock(&partition->lock);
}

/* ---- pins: nothing is opened here ---- */

int nrd_js_partition_pin(NrdPartition *partition)
{
    int rc = nrd_js_topic_usable(partition->topic);
    return rc == 0 && atomic_load(&partition->topic->engine->stopping) ? -ENODEV : rc;
}

void nrd_js_partition_unpin(NrdPartition *partition)
{
}

bool nrd_js_partition_is_open(NrdPartition *partition)
{
    return true;
}
