/* The oracle itself: a store that keeps its promises passes, and each way of breaking one is told. A small store is made, and
 * then either it or the journal is changed behind the other's back. */
#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"

#include "engine/base/diag.h"
#include "engine/base/endian.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define SIZE 50
#define N_RECORDS 6 /* in partition 0; one more is in partition 1 */
#define SEGMENT SIM_DATA "/topics/t/p00000/00000000000000000000.log"

typedef struct Store {
    SimImage *image;
    Oracle *oracle;
    SimDisk *disk;
    NrdEngine *engine;
    NrdTopic *topic;
} Store;

/* ---- the store ---- */

static void open_store(Store *store)
{
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = SIM_DATA, .cold_retention_ms = -1 };
    store->disk = sim_disk_new(NULL, store->image);
    sim_disk_install(store->disk);
    g_assert_cmpint(nrd_engine_open(&options, &store->engine, &why), ==, 0);
}

static void close_store(Store *store)
{
    nrd_engine_stop(store->engine);
    nrd_topic_unref(store->topic);
    store->topic = NULL;
    g_assert_cmpint(nrd_engine_close(store->engine), ==, 0);
    sim_image_unref(store->image);
    store->image = sim_disk_snapshot(store->disk);
    sim_disk_install(NULL);
    sim_disk_free(store->disk);
}

static void on_done(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static void append(Store *store, unsigned partition, const char *key, const void *bytes, size_t size)
{
    NrdProducer *producer = NULL;
    atomic_int error = 1;
    g_assert_cmpint(nrd_producer_open(nrd_topic_partition(store->topic, partition), false, &producer), ==, 0);
    nrd_producer_add(producer, key, strlen(key), bytes, size);
    nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &error);
    while (atomic_load(&error) == 1)
        g_usleep(100);
    g_assert_cmpint(atomic_load(&error), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
}

static void append_record(Store *store, unsigned partition, int id)
{
    const OracleRecord *record = &store->oracle->records[id];
    g_autofree uint8_t *bytes = oracle_payload(store->oracle->seed, id, record->size);
    append(store, partition, oracle_key(record->key), bytes, record->size);
}

/* Six records in the first partition, one in the second, all told and acknowledged. */
static Store *make_store(void)
{
    Store *store = g_new0(Store, 1);
    const char *config = "partitions=2\n";
    store->oracle = oracle_new(7);
    open_store(store);
    g_assert_cmpint(nrd_topic_create(store->engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &store->topic), ==, 0);
    g_assert_cmpint(nrd_topic_config_write(store->topic, config, strlen(config)), ==, 0);
    int t = oracle_add_topic(store->oracle, "t", 2);
    store->oracle->topics[t].state = ORACLE_THERE;
    g_strlcpy(store->oracle->topics[t].id, nrd_topic_incarnation(store->topic), sizeof store->oracle->topics[t].id);
    for (int i = 0; i <= N_RECORDS; i++) {
        int partition = i == N_RECORDS ? 1 : 0;
        int id = oracle_submit(store->oracle, t, partition, (uint8_t)(i % 3), SIZE);
        append_record(store, (unsigned)partition, id);
        g_assert_null(oracle_told(store->oracle, id, (unsigned)partition, (uint64_t)(partition == 1 ? 0 : i)));
        oracle_acked(store->oracle, id);
    }
    close_store(store);
    return store;
}

static void reopen_store(Store *store)
{
    open_store(store);
    g_assert_cmpint(nrd_topic_find(store->engine, "t", &store->topic), ==, 0);
}

/* ---- ways of breaking promises ---- */

static void nothing(Store *store)
{
    (void)store;
}

static void record_is_missing(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    oracle_acked(store->oracle, id);
}

static void record_is_doubled(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    reopen_store(store);
    append_record(store, 0, id);
    append_record(store, 0, id);
    close_store(store);
}

static void record_of_a_topic_is_doubled(Store *store)
{
    int id = oracle_submit(store->oracle, 0, ORACLE_TOPIC_LEVEL, 0, SIZE);
    reopen_store(store);
    append_record(store, 0, id);
    append_record(store, 1, id);
    close_store(store);
}

static void acknowledged_record_stands_twice(Store *store)
{
    reopen_store(store);
    append_record(store, 0, 2);
    close_store(store);
}

static void record_is_foreign(Store *store)
{
    reopen_store(store);
    append(store, 0, "", "nobody has produced this", 24);
    close_store(store);
}

static void record_is_torn(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    g_autofree uint8_t *bytes = oracle_payload(store->oracle->seed, id, SIZE);
    reopen_store(store);
    append(store, 0, "", bytes, SIZE - 1);
    close_store(store);
}

static void one_byte_is_wrong(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    g_autofree uint8_t *bytes = oracle_payload(store->oracle->seed, id, SIZE);
    bytes[SIZE - 3] ^= 1;
    reopen_store(store);
    append(store, 0, "", bytes, SIZE);
    close_store(store);
}

static void records_are_merged(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    g_autofree uint8_t *first = oracle_payload(store->oracle->seed, id, SIZE);
    uint8_t bytes[2 * SIZE];
    memcpy(bytes, first, SIZE);
    memcpy(bytes + SIZE, first, SIZE);
    reopen_store(store);
    append(store, 0, "", bytes, sizeof bytes);
    close_store(store);
}

static void key_is_wrong(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 2, SIZE);
    g_autofree uint8_t *bytes = oracle_payload(store->oracle->seed, id, SIZE);
    reopen_store(store);
    append(store, 0, oracle_key(1), bytes, SIZE);
    close_store(store);
}

static void partition_is_wrong(Store *store)
{
    int id = oracle_submit(store->oracle, 0, 0, 0, SIZE);
    reopen_store(store);
    append_record(store, 1, id);
    close_store(store);
}

static void offset_is_another(Store *store)
{
    store->oracle->records[1].offset = 4;
    store->oracle->records[4].offset = 1;
}

static void incarnation_is_another(Store *store)
{
    store->oracle->records[3].quarantined = true;
}

static void more_was_visible(Store *store)
{
    store->oracle->topics[0].partitions[0].hwm = N_RECORDS + 1;
}

static void hwm_file_is_low(Store *store)
{
    uint8_t bytes[8];
    nrd_put_be64(bytes, 3);
    SimImage *image = sim_image_with_file(store->image, SIM_DATA "/topics/t/p00000/hwm", bytes, sizeof bytes);
    sim_image_unref(store->image);
    store->image = image;
}

static void end_of_a_segment_is_lost(Store *store)
{
    GBytes *bytes = sim_image_read(store->image, SIM_CACHED, SEGMENT);
    gsize size = 0;
    const void *data = g_bytes_get_data(bytes, &size);
    SimImage *image = sim_image_with_file(store->image, SEGMENT, data, size - 10);
    g_bytes_unref(bytes);
    sim_image_unref(store->image);
    store->image = image;
}

static void segment_is_damaged(Store *store)
{
    GBytes *bytes = sim_image_read(store->image, SIM_CACHED, SEGMENT);
    gsize size = 0;
    g_autofree uint8_t *data = g_memdup2(g_bytes_get_data(bytes, &size), g_bytes_get_size(bytes));
    data[100] ^= 4;
    SimImage *image = sim_image_with_file(store->image, SEGMENT, data, g_bytes_get_size(bytes));
    g_bytes_unref(bytes);
    sim_image_unref(store->image);
    store->image = image;
}

static void segment_was_deleted(Store *store)
{
    reopen_store(store);
    g_assert_cmpint(nrd_partition_roll(nrd_topic_partition(store->topic, 0)), ==, 0);
    g_assert_cmpint(nrd_partition_trim(nrd_topic_partition(store->topic, 0), N_RECORDS), ==, 0);
    close_store(store);
}

static void trimmed_records_are_back(Store *store)
{
    OraclePartition *p = &store->oracle->topics[0].partitions[0];
    p->gone_below = p->trimmed = 3;
}

static void on_taken(void *user_data, int error, const NrdDelivery *delivery)
{
    NrdHold *hold = user_data;
    g_assert_cmpint(error, ==, 0);
    hold->offset = delivery->offset;
    hold->nonce = delivery->nonce;
}

static void unsettled_record_is_skipped(Store *store)
{
    NrdWaiter waiter;
    NrdHold hold = { 0 };
    int error = 0;
    reopen_store(store);
    NrdPartition *partition = nrd_topic_partition(store->topic, 0);
    g_assert_cmpint(nrd_partition_pin(partition), ==, 0);
    nrd_waiter_init(&waiter);
    nrd_partition_take(partition, &waiter, 0, on_taken, &hold);
    g_assert_cmpint(nrd_partition_settle_durably(partition, &hold, 1, &error), ==, 0);
    nrd_partition_unpin(partition);
    close_store(store);
}

static void settled_record_comes_again(Store *store)
{
    store->oracle->topics[0].partitions[0].settled[2] = ORACLE_DURABLE;
}

static void topic_is_lost(Store *store)
{
    int t = oracle_add_topic(store->oracle, "u", 1);
    store->oracle->topics[t].state = ORACLE_THERE;
}

static void topic_is_back(Store *store)
{
    store->oracle->topics[0].state = ORACLE_GONE;
}

static void topic_is_unknown(Store *store)
{
    g_strlcpy(store->oracle->topics[0].id, "0123456789abcdef", sizeof store->oracle->topics[0].id);
}

static void partition_is_lost(Store *store)
{
    store->oracle->topics[0].n_partitions = 3;
}

static void topic_record_is_damaged(Store *store)
{
    SimImage *image = sim_image_with_file(store->image, SIM_DATA "/meta/t.topic", "rubbish", 7);
    sim_image_unref(store->image);
    store->image = image;
}

static void partition_cannot_be_opened(Store *store)
{
    reopen_store(store);
    g_assert_cmpint(nrd_partition_roll(nrd_topic_partition(store->topic, 0)), ==, 0);
    append(store, 0, "", "", 0);
    close_store(store);
    GBytes *bytes = sim_image_read(store->image, SIM_CACHED, SEGMENT);
    gsize size = 0;
    const void *data = g_bytes_get_data(bytes, &size);
    SimImage *image =
        sim_image_with_file(store->image, SIM_DATA "/topics/t/p00000/00000000000000000006.log", data, size);
    g_bytes_unref(bytes);
    sim_image_unref(store->image);
    store->image = image;
}

static void copy_is_missing(Store *store)
{
    reopen_store(store);
    NrdTopic *child = NULL;
    g_assert_cmpint(nrd_topic_create(store->engine, "child", &(NrdAttr){ 0, 0, 0755 }, 022, &child), ==, 0);
    int c = oracle_add_topic(store->oracle, "child", 1);
    store->oracle->topics[c].state = ORACLE_THERE;
    g_strlcpy(store->oracle->topics[c].id, nrd_topic_incarnation(child), sizeof store->oracle->topics[c].id);
    store->oracle->topics[c].parent = 0;
    store->oracle->topics[c].attached = true;
    store->oracle->topics[c].first_id = 2;
    store->oracle->topics[c].end_id = 5;
    nrd_topic_unref(child);
    close_store(store);
}

typedef struct Case {
    const char *name;
    void (*breaks)(Store *store);
    const char *expected; /* the beginning of the violation; NULL: none */
} Case;

static const Case cases[] = {
    { "well", nothing, NULL },
    { "missing", record_is_missing, "I1: record" },
    { "doubled", record_is_doubled, "I4: record" },
    { "doubled-in-a-topic", record_of_a_topic_is_doubled, "I4: record" },
    { "twice", acknowledged_record_stands_twice, "I6: record" },
    { "foreign", record_is_foreign, "I2: offset" },
    { "torn", record_is_torn, "I2: offset" },
    { "byte", one_byte_is_wrong, "I2: offset" },
    { "merged", records_are_merged, "I2: offset" },
    { "key", key_is_wrong, "I2: record" },
    { "partition", partition_is_wrong, "I2: it belongs to another partition" },
    { "offset", offset_is_another, "I6: record" },
    { "incarnation", incarnation_is_another, "I2: record" },
    { "visible", more_was_visible, "I7: " },
    { "hwm-low", hwm_file_is_low, "I1: record" },
    { "end-lost", end_of_a_segment_is_lost, "I1: " },
    { "damaged", segment_is_damaged, "I1: offset" },
    { "deleted", segment_was_deleted, "I7: records" },
    { "trimmed", trimmed_records_are_back, "I7: a trim" },
    { "skipped", unsettled_record_is_skipped, "I8: offset" },
    { "again", settled_record_comes_again, "I8: offset" },
    { "topic-lost", topic_is_lost, "I1: topic" },
    { "topic-back", topic_is_back, "I6: topic" },
    { "topic-unknown", topic_is_unknown, "I2: topic" },
    { "partition-lost", partition_is_lost, "I1: partition" },
    { "record-damaged", topic_record_is_damaged, "I3: topic" },
    { "misnamed", partition_cannot_be_opened, "I3: t/p00000" },
    { "copy", copy_is_missing, "I1: record" },
};

static void test_case(gconstpointer data)
{
    const Case *c = data;
    Store *store = make_store();
    c->breaks(store);
    SimDisk *disk = sim_disk_new(NULL, store->image);
    sim_disk_install(disk);
    g_autofree char *why = oracle_check(store->oracle);
    sim_disk_install(NULL);
    sim_disk_free(disk);
    g_test_message("%s", why ? why : "no violation");
    if (c->expected)
        g_assert_true(why && g_str_has_prefix(why, c->expected));
    else
        g_assert_cmpstr(why, ==, NULL);
    sim_image_unref(store->image);
    oracle_free(store->oracle);
    g_free(store);
}

/* The journal refuses offsets that are told twice, or go down. */
static void test_told(void)
{
    Oracle *oracle = oracle_new(1);
    oracle_add_topic(oracle, "t", 1);
    int a = oracle_submit(oracle, 0, 0, 0, SIZE), b = oracle_submit(oracle, 0, 0, 0, SIZE);
    g_assert_null(oracle_told(oracle, a, 0, 5));
    g_autofree char *reused = oracle_told(oracle, b, 0, 5);
    g_assert_true(reused && g_str_has_prefix(reused, "I6"));
    g_autofree char *twice = oracle_told(oracle, a, 0, 6);
    g_assert_true(twice && g_str_has_prefix(twice, "I4"));
    oracle->topics[0].partitions[0].floor = 9;
    int c = oracle_submit(oracle, 0, 0, 0, SIZE);
    g_autofree char *lower = oracle_told(oracle, c, 0, 8);
    g_assert_true(lower && g_str_has_prefix(lower, "I6"));
    oracle_free(oracle);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level((NrdLevel)0);
    g_test_add_func("/oracle/told", test_told);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = g_strconcat("/oracle/", cases[i].name, NULL);
        g_test_add_data_func(path, &cases[i], test_case);
    }
    return g_test_run();
}
