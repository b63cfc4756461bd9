/* Records that wait to be sent lie packed, and are taken up one after the other, as they were added. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/topic.h"

typedef struct Bed {
    NrdEngine engine;
    NrdTopic *topic;
    NrdJsOutbox *outbox;
} Bed;

/* Of a topic's first partition, or of all of it. Nothing of it is looked at. */
static void begin(Bed *bed, uint32_t n_partitions, bool whole)
{
    NrdTopicRecord *record = nrd_topic_record_new("t");
    record->config.partitions = n_partitions;
    bed->engine = (NrdEngine){ .timers = nrd_timers_new() };
    bed->topic = nrd_js_topic_new(&bed->engine, "t", record, 1, NULL);
    for (uint32_t i = 0; i < n_partitions; i++)
        nrd_js_topic_partition(bed->topic, i)->known = true;
    NrdPartition *partition = whole ? NULL : nrd_js_topic_partition(bed->topic, 0);
    g_assert_cmpint(nrd_js_outbox_open(bed->topic, partition, false, &bed->outbox), ==, 0);
}

static void end(Bed *bed)
{
    nrd_js_outbox_free(bed->outbox);
    g_assert_cmpuint(bed->engine.outbox_bytes, ==, 0);
    nrd_js_topic_unref(bed->topic);
    nrd_timers_free(bed->engine.timers);
}

static NrdNewRecord record_of(const char *key, size_t key_size, const char *payload, size_t size)
{
    return (NrdNewRecord){ (const uint8_t *)key, key_size, (const uint8_t *)payload, size };
}

static void check_taken(Bed *bed, uint64_t number, const NrdNewRecord *added)
{
    const NrdJsOut *record = nrd_js_outbox_take_up_locked(bed->outbox);
    g_autofree char *key = added->key_size > 0 ? g_base64_encode(added->key, added->key_size) : NULL;
    g_assert_cmpuint(record->number, ==, number);
    g_assert_cmpmem(record->payload, record->size, added->payload, added->payload_size);
    g_assert_cmpstr(record->key, ==, key);
    g_assert_true(record->state == NRD_JS_OUT_HELD && record->link.data == record);
    g_assert_true(g_queue_peek_tail(&bed->outbox->records) == record);
}

static void test_round_trip(void)
{
    char longest[3000];
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = (char)i;
    const NrdNewRecord records[] = {
        record_of(NULL, 0, "plain", 5),   record_of("k", 1, "", 0),        record_of(NULL, 0, NULL, 0),
        record_of("\0k\0", 3, "\0\0", 2), record_of(longest, 300, "x", 1), record_of("odd", 3, longest, sizeof longest),
        record_of(NULL, 0, "last", 4),
    };
    const size_t n = G_N_ELEMENTS(records), n_first = 4;
    Bed bed;
    begin(&bed, 1, false);
    nrd_js_outbox_add(bed.outbox, records, n_first);
    nrd_js_outbox_add(bed.outbox, records, 0); /* adds nothing */
    nrd_js_outbox_add(bed.outbox, records + n_first, n - n_first);
    g_assert_cmpuint(nrd_js_outbox_n_locked(bed.outbox), ==, n);
    for (size_t i = 0; i < n; i++) {
        g_assert_cmpuint(bed.outbox->pending.length, ==, i < n_first ? 2 : 1); /* it goes with its last record */
        check_taken(&bed, i, &records[i]);
    }
    g_assert_true(g_queue_is_empty(&bed.outbox->pending));
    g_assert_cmpuint(nrd_js_outbox_n_locked(bed.outbox), ==, n); /* until they are stored */
    end(&bed);
}

static size_t cost_of(const NrdJsOutbox *outbox)
{
    size_t cost = 0;
    for (const GList *l = outbox->records.head; l; l = l->next)
        cost += ((const NrdJsOut *)l->data)->cost;
    for (const GList *l = outbox->pending.head; l; l = l->next)
        cost += ((const NrdJsPending *)l->data)->cost;
    return cost;
}

/* What bounds an outbox is its memory, and that is the engine's as well; a record that waits takes its bytes and eight more. */
static void test_what_they_cost(void)
{
    const NrdNewRecord empty = record_of(NULL, 0, NULL, 0), keyed = record_of("key", 3, "payload", 7);
    const size_t n = 1000;
    g_autofree NrdNewRecord *many = g_new(NrdNewRecord, n);
    Bed bed;
    begin(&bed, 1, false);
    for (size_t i = 0; i < n; i++)
        many[i] = empty;
    nrd_js_outbox_add(bed.outbox, many, n);
    g_assert_cmpuint(bed.outbox->bytes, ==, sizeof(NrdJsPending) + n * 8);
    nrd_js_outbox_add(bed.outbox, &keyed, 1);
    g_assert_cmpuint(bed.outbox->bytes, ==, 2 * sizeof(NrdJsPending) + n * 8 + 8 + 3 + 7);
    for (size_t i = 0; i <= n; i++) {
        (void)nrd_js_outbox_take_up_locked(bed.outbox);
        g_assert_cmpuint(bed.outbox->bytes, ==, cost_of(bed.outbox));
        g_assert_cmpuint(bed.engine.outbox_bytes, ==, bed.outbox->bytes);
    }
    end(&bed);
}

/* Keys choose the partition, and records without one take turns, when they are taken up and not before. */
static void test_where_they_go(void)
{
    const uint32_t n = 5;
    const NrdNewRecord plain = record_of(NULL, 0, "x", 1), keyed = record_of("key", 3, "x", 1);
    uint32_t times[5] = { 0 };
    Bed bed;
    begin(&bed, n, true);
    for (uint32_t i = 0; i < 2 * n; i++)
        nrd_js_outbox_add(bed.outbox, &plain, 1);
    for (uint32_t i = 0; i < 2 * n; i++)
        times[nrd_js_outbox_take_up_locked(bed.outbox)->partition->number]++;
    for (uint32_t i = 0; i < n; i++)
        g_assert_cmpuint(times[i], ==, 2);
    for (uint32_t i = 0; i < 3; i++) {
        nrd_js_outbox_add(bed.outbox, &keyed, 1);
        g_assert_cmpuint(nrd_js_outbox_take_up_locked(bed.outbox)->partition->number, ==,
                         nrd_key_partition("key", 3, n));
    }
    end(&bed);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/pending/round-trip", test_round_trip);
    g_test_add_func("/jetstream/pending/cost", test_what_they_cost);
    g_test_add_func("/jetstream/pending/partitions", test_where_they_go);
    return g_test_run();
}
