/* Steps that produce, and what the dispatcher and the fan-out make of them. */
#include "world.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static const char *const keys[] = { "", "apple", "pear", "fig" };

static void on_done(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static void await(World *w, atomic_int *error)
{
    for (int i = 0; atomic_load(error) == 1 && i < PATIENCE_MS * 10; i++)
        g_usleep(100);
    WORLD_SAME(w, atomic_load(error), 0);
}

void world_add(NrdProducer *producer, const char *const *keys_of, const GPtrArray *payloads)
{
    g_autoptr(GArray) records = g_array_new(FALSE, TRUE, sizeof(NrdNewRecord));
    for (guint i = 0; i < payloads->len; i++) {
        const char *key = keys_of ? keys_of[i] : "", *payload = payloads->pdata[i];
        NrdNewRecord record = { (const uint8_t *)key, strlen(key), (const uint8_t *)payload, strlen(payload) };
        g_array_append_val(records, record);
    }
    nrd_producer_add_many(producer, (const NrdNewRecord *)(const void *)records->data, records->len);
}

static void add_expected(GPtrArray *expected, const char *key, const char *payload)
{
    g_ptr_array_add(expected, g_strconcat(key, "\n", payload, NULL));
}

static void produce(World *w, int topic)
{
    NrdPartition *partition;
    Partition *model = world_partition(w, topic, w->step.partition, &partition);
    NrdProducer *producer = NULL;
    atomic_int error = 1;
    uint64_t first = partition_hwm(model);
    char want[64], got[64];
    const char *keys_of[5];
    g_autoptr(GPtrArray) payloads = g_ptr_array_new_with_free_func(g_free);
    WORLD_SAME(w, nrd_producer_open(partition, true, &producer), 0);
    for (unsigned i = 0; i < 1 + w->step.n % 5; i++) {
        keys_of[i] = keys[(w->step.n + i) % G_N_ELEMENTS(keys)];
        g_ptr_array_add(payloads, world_payload(w));
        partition_append(model, keys_of[i], payloads->pdata[i], w->broker.now_ms);
    }
    world_add(producer, keys_of, payloads);
    nrd_producer_sync(producer, w->step.n % 2 ? NRD_SYNC_OWN : NRD_SYNC_FILE, on_done, &error);
    await(w, &error);
    int n = g_snprintf(want, sizeof want, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n",
                       nrd_partition_number(partition), first, partition_hwm(model) - 1);
    size_t n_got = nrd_producer_read_ranges(producer, got, sizeof got);
    WORLD_CHECK(w, n_got == (size_t)n && memcmp(got, want, n_got) == 0);
    nrd_producer_close(producer, NULL, NULL);
}

static void produce_to_topic(World *w, int topic)
{
    g_autoptr(GPtrArray) produced = g_ptr_array_new_with_free_func(g_free);
    NrdTopicProducer *producer = NULL;
    atomic_int error = 1;
    WORLD_SAME(w, nrd_topic_producer_open(w->topics[topic], false, &producer), 0);
    for (unsigned i = 0; i < 1 + w->step.n % 7; i++) {
        const char *key = keys[(w->step.n + i) % G_N_ELEMENTS(keys)];
        g_autofree char *payload = world_payload(w);
        nrd_topic_producer_add(producer, key, strlen(key), payload, strlen(payload));
        add_expected(produced, key, payload);
    }
    nrd_topic_producer_sync(producer, NRD_SYNC_OWN, on_done, &error);
    await(w, &error);
    nrd_topic_producer_close(producer, NULL, NULL);
    learn_records(w, topic, produced);
}

static uint64_t hwm_of(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    uint64_t hwm = info.hwm;
    nrd_partition_info_clear(&info);
    return hwm;
}

/* Records that the topic has and the model does not. */
static uint64_t n_unknown(World *w, int topic)
{
    const Topic *model = &w->broker.topics[topic];
    uint64_t n = 0;
    for (uint32_t i = 0; i < model->partitions->len; i++)
        n += hwm_of(nrd_topic_partition(w->topics[topic], i)) - partition_hwm(model->partitions->pdata[i]);
    return n;
}

static void learn_record(World *w, int topic, uint32_t number, GPtrArray *expected)
{
    const Topic *topic_model = &w->broker.topics[topic];
    Partition *model = topic_model->partitions->pdata[number];
    NrdRecord record;
    guint at = 0;
    int rc = nrd_partition_record(nrd_topic_partition(w->topics[topic], number), partition_hwm(model), &record);
    WORLD_SAME(w, rc, 0);
    g_autofree char *key = g_strndup((const char *)record.key, record.key_size);
    g_autofree char *payload = g_strndup((const char *)record.payload, record.payload_size);
    g_autofree char *text = g_strconcat(key, "\n", payload, NULL);
    if (!g_ptr_array_find_with_equal_func(expected, text, g_str_equal, &at))
        world_differs(w, "a record that nobody produced, or one twice", __FILE__, __LINE__, "%s", text);
    WORLD_CHECK(w, key[0] == '\0' || key_partition(key, topic_model->partitions->len) == number);
    g_ptr_array_remove_index(expected, at);
    partition_append(model, key, payload, w->broker.now_ms);
    nrd_record_clear(&record);
}

void learn_records(World *w, int topic, GPtrArray *expected)
{
    g_autoptr(GPtrArray) left = g_ptr_array_copy(expected, (GCopyFunc)(void (*)(void))g_strdup, NULL);
    const Topic *model = &w->broker.topics[topic];
    g_ptr_array_set_free_func(left, g_free);
    for (int i = 0; n_unknown(w, topic) < expected->len && i < PATIENCE_MS * 10; i++)
        g_usleep(100);
    WORLD_SAME(w, n_unknown(w, topic), expected->len);
    for (uint32_t i = 0; i < model->partitions->len; i++) {
        while (partition_hwm(model->partitions->pdata[i]) < hwm_of(nrd_topic_partition(w->topics[topic], i)))
            learn_record(w, topic, i, left);
    }
    WORLD_SAME(w, left->len, 0);
}

void learn_all_copies(World *w)
{
    for (int i = 0; i < N_TOPICS; i++) {
        g_autoptr(GPtrArray) due = g_ptr_array_new_with_free_func(g_free);
        if (!w->broker.topics[i].exists || w->broker.topics[i].parent == NO_TOPIC)
            continue;
        broker_take_due(&w->broker, i, due);
        w->n_late += broker_is_delayed(&w->broker, i) ? due->len : 0;
        learn_records(w, i, due);
    }
}

/* A child with a delay has what it gets from its parent alone. */
static void check_refused(World *w, int topic)
{
    NrdPartition *partition;
    NrdProducer *producer = NULL;
    NrdTopicProducer *topic_producer = NULL;
    (void)world_partition(w, topic, w->step.partition, &partition);
    WORLD_SAME(w, nrd_producer_open(partition, true, &producer), -EPERM);
    WORLD_SAME(w, nrd_topic_producer_open(w->topics[topic], false, &topic_producer), -EPERM);
}

void do_produce_step(World *w, int topic)
{
    if (broker_is_delayed(&w->broker, topic)) {
        check_refused(w, topic);
        return;
    }
    if ((w->step.kind == STEP_PRODUCE_SICK || w->step.kind == STEP_PRODUCE_TOPIC_SICK) &&
        w->broker.topics[topic].parent != NO_TOPIC)
        return; /* copies may come in between */
    if (w->step.kind == STEP_COPY_SICK && w->broker.topics[topic].parent == NO_TOPIC)
        return;
    w->done[w->step.kind]++;
    if (w->step.kind == STEP_PRODUCE)
        produce(w, topic);
    else if (w->step.kind == STEP_PRODUCE_TOPIC)
        produce_to_topic(w, topic);
    else if (w->step.kind == STEP_PRODUCE_SICK)
        produce_on_a_sick_disk(w, topic);
    else if (w->step.kind == STEP_PRODUCE_TOPIC_SICK)
        produce_to_topic_on_a_sick_disk(w, topic);
    else
        copy_to_a_sick_disk(w, topic);
    learn_all_copies(w);
}
