/* See broker.h. */
#include "broker.h"

#include <errno.h>
#include <string.h>

static void free_record(gpointer data)
{
    Record *record = data;
    g_free(record->key);
    g_free(record->payload);
    g_free(record);
}

static void free_partition(gpointer data)
{
    Partition *p = data;
    g_ptr_array_unref(p->records);
    g_array_unref(p->bases);
    g_free(p);
}

void topic_init(Topic *topic, const char *id)
{
    *topic = (Topic){ .exists = true,
                      .partitions = g_ptr_array_new_with_free_func(free_partition),
                      .parent = NO_TOPIC,
                      .copied = g_array_new(FALSE, TRUE, sizeof(uint64_t)),
                      .visibility_timeout_ms = 30000,
                      .max_in_flight = 1024,
                      .max_acked_ahead = 1024 };
    g_strlcpy(topic->id, id, sizeof topic->id);
    topic_grow(topic, 1);
}

void topic_clear(Topic *topic)
{
    if (topic->exists) {
        g_ptr_array_unref(topic->partitions);
        g_array_unref(topic->copied);
    }
    *topic = (Topic){ .parent = NO_TOPIC };
}

void topic_grow(Topic *topic, unsigned n_partitions)
{
    while (topic->partitions->len < n_partitions) {
        Partition *p = g_new0(Partition, 1);
        uint64_t zero = 0;
        p->records = g_ptr_array_new_with_free_func(free_record);
        p->bases = g_array_new(FALSE, FALSE, sizeof(uint64_t));
        g_array_append_val(p->bases, zero);
        g_ptr_array_add(topic->partitions, p);
    }
}

bool topic_is_empty(const Topic *topic)
{
    bool empty = true;
    for (guint i = 0; i < topic->partitions->len; i++)
        empty = empty && partition_oldest(topic->partitions->pdata[i]) == partition_hwm(topic->partitions->pdata[i]);
    return empty;
}

bool broker_has_children(const Broker *broker, int parent)
{
    bool has = false;
    for (int i = 0; i < N_TOPICS; i++)
        has = has || (broker->topics[i].exists && broker->topics[i].parent == parent);
    return has;
}

bool broker_is_delayed(const Broker *broker, int topic)
{
    return broker->topics[topic].parent != NO_TOPIC && broker->topics[topic].delay_ms > 0;
}

int64_t broker_max_delay_ms(const Broker *broker, int parent)
{
    int64_t max_ms = 0;
    for (int i = 0; i < N_TOPICS; i++)
        if (broker->topics[i].exists && broker->topics[i].parent == parent)
            max_ms = MAX(max_ms, broker->topics[i].delay_ms);
    return max_ms;
}

void broker_attach(Broker *broker, int child, int parent)
{
    Topic *topic = &broker->topics[child];
    const GPtrArray *partitions = broker->topics[parent].partitions;
    topic->parent = parent;
    g_array_set_size(topic->copied, 0);
    for (guint i = 0; i < partitions->len; i++) {
        uint64_t end = partition_hwm(partitions->pdata[i]);
        g_array_append_val(topic->copied, end);
    }
}

void broker_take_due(Broker *broker, int child, GPtrArray *due)
{
    Topic *topic = &broker->topics[child];
    const GPtrArray *partitions = broker->topics[topic->parent].partitions;
    g_array_set_size(topic->copied, partitions->len); /* a new partition is copied from its start */
    for (guint i = 0; i < partitions->len; i++) {
        const Partition *p = partitions->pdata[i];
        uint64_t *next = &g_array_index(topic->copied, uint64_t, i);
        *next = MAX(*next, partition_oldest(p));
        for (; *next < partition_hwm(p); ++*next) {
            const Record *record = partition_at(p, *next);
            if (topic->delay_ms > 0 && record->written_ms + topic->delay_ms > broker->now_ms)
                break;
            g_ptr_array_add(due, g_strconcat(record->key, "\n", record->payload, NULL));
        }
    }
}

void partition_append(Partition *p, const char *key, const char *payload, int64_t now_ms)
{
    Record *record = g_new0(Record, 1);
    record->key = g_strdup(key);
    record->payload = g_strdup(payload);
    record->written_ms = now_ms;
    g_ptr_array_add(p->records, record);
}

uint64_t partition_hwm(const Partition *p)
{
    return p->records->len;
}

uint64_t partition_oldest(const Partition *p)
{
    return g_array_index(p->bases, uint64_t, 0);
}

Record *partition_at(const Partition *p, uint64_t offset)
{
    return p->records->pdata[offset];
}

uint64_t partition_frontier(const Partition *p)
{
    uint64_t offset = 0;
    while (offset < partition_hwm(p) && partition_at(p, offset)->state == SETTLED)
        offset++;
    return offset;
}

unsigned partition_count(const Partition *p, State state)
{
    unsigned n = 0;
    for (uint64_t offset = partition_frontier(p); offset < partition_hwm(p); offset++)
        n += partition_at(p, offset)->state == state;
    return n;
}

static bool has_room(const Topic *topic, const Partition *p, uint64_t offset)
{
    return offset == partition_frontier(p) || partition_count(p, SETTLED) < topic->max_acked_ahead;
}

bool partition_next(const Topic *topic, const Partition *p, uint64_t *ret_offset)
{
    uint64_t offset = 0;
    if (partition_count(p, LEASED) >= topic->max_in_flight)
        return false;
    while (offset < partition_hwm(p) && partition_at(p, offset)->state != FREE)
        offset++;
    *ret_offset = offset;
    return offset < partition_hwm(p) && has_room(topic, p, offset);
}

void partition_lease(const Topic *topic, Partition *p, uint64_t offset, uint64_t nonce, int64_t now_ms)
{
    Record *record = partition_at(p, offset);
    record->state = LEASED;
    record->nonce = nonce;
    record->expiry_ms = now_ms + topic->visibility_timeout_ms;
}

bool partition_live(const Partition *p, uint64_t offset, uint64_t nonce)
{
    return offset < partition_hwm(p) && partition_at(p, offset)->state == LEASED &&
           partition_at(p, offset)->nonce == nonce;
}

int partition_ack_error(const Topic *topic, const Partition *p, uint64_t offset, uint64_t nonce)
{
    if (!partition_live(p, offset, nonce))
        return -ESTALE;
    return has_room(topic, p, offset) ? 0 : -EAGAIN;
}

void partition_seek(Partition *p, uint64_t frontier)
{
    for (uint64_t offset = 0; offset < partition_hwm(p); offset++)
        partition_at(p, offset)->state = offset < frontier ? SETTLED : FREE;
}

void partition_drop_leases(Partition *p)
{
    partition_expire(p, INT64_MAX);
}

void partition_expire(Partition *p, int64_t now_ms)
{
    for (uint64_t offset = 0; offset < partition_hwm(p); offset++) {
        Record *record = partition_at(p, offset);
        if (record->state == LEASED && record->expiry_ms <= now_ms)
            record->state = FREE;
    }
}

void partition_roll(Partition *p)
{
    uint64_t hwm = partition_hwm(p);
    if (hwm > g_array_index(p->bases, uint64_t, p->bases->len - 1))
        g_array_append_val(p->bases, hwm);
}

void partition_trim(Partition *p, uint64_t offset)
{
    while (p->bases->len > 1 && g_array_index(p->bases, uint64_t, 1) <= offset)
        g_array_remove_index(p->bases, 0);
    for (uint64_t i = 0; i < partition_oldest(p); i++)
        partition_at(p, i)->state = SETTLED;
}

/* When segment i was written last; the time of an empty one never comes. */
static int64_t last_written_ms(const Partition *p, guint i)
{
    uint64_t base = g_array_index(p->bases, uint64_t, i);
    uint64_t end = i + 1 < p->bases->len ? g_array_index(p->bases, uint64_t, i + 1) : partition_hwm(p);
    return end > base ? partition_at(p, end - 1)->written_ms : INT64_MAX;
}

void partition_expire_records(Partition *p, int64_t max_age_ms, int64_t now_ms)
{
    guint n = 0;
    if (last_written_ms(p, p->bases->len - 1) < now_ms - max_age_ms)
        partition_roll(p);
    while (n + 1 < p->bases->len && last_written_ms(p, n) < now_ms - max_age_ms)
        n++;
    partition_trim(p, g_array_index(p->bases, uint64_t, n));
}

void partition_expire_bytes(Partition *p, const GArray *sizes, uint64_t max_bytes)
{
    uint64_t total = 0;
    guint n = 0;
    for (guint i = 0; i < sizes->len; i++)
        total += g_array_index(sizes, uint64_t, i);
    for (; n + 1 < p->bases->len && total - g_array_index(sizes, uint64_t, n) >= max_bytes; n++)
        total -= g_array_index(sizes, uint64_t, n);
    partition_trim(p, g_array_index(p->bases, uint64_t, n));
}

unsigned key_partition(const char *key, unsigned n)
{
    uint32_t hash = 2166136261U;
    for (; *key; key++)
        hash = (hash ^ (uint8_t)*key) * 16777619U;
    return hash % n;
}
