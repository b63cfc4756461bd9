/* One topic: its partitions, who holds it. settings.c has its record, streams.c its streams. */
#include "engine/jetstream/topic.h"
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/outbox.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/pull.h"

#include "engine/base/clock.h"

NrdPlace nrd_js_topic_place(const NrdTopic *topic)
{
    return (NrdPlace){ topic->name, NRD_NO_PARTITION, NRD_NO_OFFSET };
}

/* ---- life ---- */

static void add_partitions_locked(NrdTopic *topic)
{
    uint32_t n = topic->record ? (uint32_t)topic->record->config.partitions : 0;
    for (uint32_t number = topic->partitions->len; number < n; number++)
        g_ptr_array_add(topic->partitions, nrd_js_partition_new(topic, number));
}

NrdTopic *nrd_js_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, uint64_t revision, char *fault)
{
    NrdTopic *topic = g_new0(NrdTopic, 1);
    topic->table = &nrd_js_table;
    topic->refs = 1;
    topic->engine = engine;
    topic->name = g_strdup(name);
    topic->record = record;
    topic->revision = revision;
    topic->fault = fault;
    topic->timeout_ms = nrd_clock_mono_ms();
    if (record)
        g_strlcpy(topic->id, record->id, sizeof topic->id);
    topic->partitions = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_js_partition_free);
    topic->outboxes = g_ptr_array_new();
    g_mutex_init(&topic->guard);
    g_mutex_init(&topic->lock);
    add_partitions_locked(topic);
    return topic;
}

NrdTopic *nrd_js_topic_ref(NrdTopic *topic)
{
    g_atomic_int_inc(&topic->refs);
    return topic;
}

void nrd_js_topic_unref(NrdTopic *topic)
{
    if (!topic || !g_atomic_int_dec_and_test(&topic->refs))
        return;
    g_ptr_array_unref(topic->partitions);
    g_ptr_array_unref(topic->outboxes);
    nrd_topic_record_free(topic->record);
    g_mutex_clear(&topic->guard);
    g_mutex_clear(&topic->lock);
    g_free(topic->fault);
    g_free(topic->refusal);
    g_free(topic->name);
    g_free(topic);
}

void nrd_js_topic_put_record(NrdTopic *topic, NrdTopicRecord *record, uint64_t revision)
{
    g_mutex_lock(&topic->lock);
    if (revision <= topic->revision) { /* who wrote it, and who follows the bucket, may come here in either order */
        g_mutex_unlock(&topic->lock);
        nrd_topic_record_free(record);
        return;
    }
    NrdTopicRecord *old = topic->record;
    bool consumers_change = old && (old->config.visibility_timeout_ms != record->config.visibility_timeout_ms ||
                                    old->config.max_in_flight != record->config.max_in_flight);
    topic->record = record;
    topic->revision = revision;
    add_partitions_locked(topic);
    int64_t wait_ms = record->config.visibility_timeout_ms;
    if (old && old->config.visibility_timeout_ms != wait_ms)
        topic->timeout_ms = nrd_clock_mono_ms();
    g_mutex_unlock(&topic->lock);
    for (uint32_t i = 0; consumers_change && i < nrd_js_topic_n_partitions(topic); i++) {
        NrdPartition *partition = nrd_js_topic_partition(topic, i);
        nrd_js_consumer_doubt(partition);
        nrd_js_leases_limit_wait(partition, wait_ms); /* a longer one counts when the consumer has it */
    }
    nrd_topic_record_free(old);
}

static void add_outboxes(GPtrArray *all, GPtrArray *some)
{
    for (guint i = 0; i < some->len; i++)
        g_ptr_array_add(all, nrd_js_outbox_ref(some->pdata[i]));
}

void nrd_js_topic_gone(NrdTopic *topic)
{
    if (atomic_exchange(&topic->deleted, true))
        return;
    GPtrArray *outboxes = g_ptr_array_new();
    g_mutex_lock(&topic->lock);
    add_outboxes(outboxes, topic->outboxes);
    for (guint i = 0; i < topic->partitions->len; i++) {
        NrdPartition *partition = topic->partitions->pdata[i];
        g_mutex_lock(&partition->lock);
        add_outboxes(outboxes, partition->outboxes);
        g_mutex_unlock(&partition->lock);
    }
    g_mutex_unlock(&topic->lock);
    nrd_js_outboxes_fail(outboxes, -EIDRM);
    nrd_js_pulls_interrupt(topic->engine->pulls, topic, -EIDRM);
    nrd_diag(NRD_LEVEL_NOTICE, nrd_js_topic_place(topic), "incarnation %s is gone", topic->id);
}

int nrd_js_topic_usable(NrdTopic *topic)
{
    if (atomic_load(&topic->deleted))
        return -EIDRM;
    g_mutex_lock(&topic->lock);
    bool damaged = topic->record == NULL;
    g_mutex_unlock(&topic->lock);
    return damaged ? -EIO : 0;
}

int nrd_js_topic_hold(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    int rc = atomic_load(&topic->deleted) ? -EIDRM : 0;
    topic->n_holds += rc == 0;
    g_mutex_unlock(&topic->lock);
    return rc;
}

void nrd_js_topic_release(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    topic->n_holds--;
    g_mutex_unlock(&topic->lock);
}

/* ---- what it is ---- */

const char *nrd_js_topic_name(const NrdTopic *topic)
{
    return topic->name;
}

const char *nrd_js_topic_incarnation(const NrdTopic *topic)
{
    return topic->id;
}

bool nrd_js_topic_deleted(NrdTopic *topic)
{
    return atomic_load(&topic->deleted);
}

char *nrd_js_topic_fault(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    char *fault = g_strdup(topic->fault);
    g_mutex_unlock(&topic->lock);
    return fault;
}

int nrd_js_topic_produce_error(NrdTopic *topic)
{
    return 0;
}

bool nrd_js_topic_lost(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    bool lost = topic->record == NULL;
    g_mutex_unlock(&topic->lock);
    return lost;
}

uint32_t nrd_js_topic_n_partitions(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    uint32_t n = topic->partitions->len;
    g_mutex_unlock(&topic->lock);
    return n;
}

NrdPartition *nrd_js_topic_partition(NrdTopic *topic, uint32_t number)
{
    g_mutex_lock(&topic->lock);
    NrdPartition *partition = number < topic->partitions->len ? topic->partitions->pdata[number] : NULL;
    g_mutex_unlock(&topic->lock);
    return partition;
}

int64_t nrd_js_topic_created_ms(NrdTopic *topic)
{
    g_mutex_lock(&topic->lock);
    int64_t ms = topic->record ? topic->record->created_ms : 0;
    g_mutex_unlock(&topic->lock);
    return ms;
}

void nrd_js_topic_keep_refusal(NrdTopic *topic, char *text)
{
    g_mutex_lock(&topic->lock);
    char *old = topic->refusal;
    topic->refusal = text;
    topic->refused_ms = nrd_clock_wall_ms();
    g_mutex_unlock(&topic->lock);
    g_free(old);
}

char *nrd_js_topic_refusal(NrdTopic *topic, int64_t *ret_ms)
{
    g_mutex_lock(&topic->lock);
    char *text = g_strdup(topic->refusal);
    *ret_ms = topic->refused_ms;
    g_mutex_unlock(&topic->lock);
    return text;
}
