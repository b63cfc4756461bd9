/* The whole engine on the simulated disk. */
#include "engine/engine.h"
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static NrdEngine *engine_open(void)
{
    NrdEngineOptions options = { .data_path = SIM_DATA, .cold_retention_ms = -1 };
    g_autofree char *why = NULL;
    NrdEngine *engine = NULL;
    if (nrd_engine_open(&options, &engine, &why) < 0)
        g_error("%s", why);
    return engine;
}

static NrdTopic *topic_open(NrdEngine *engine)
{
    NrdTopic *topic = NULL;
    int rc = nrd_topic_find(engine, "t", &topic);
    if (rc == -ENOENT)
        rc = nrd_topic_create(engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &topic);
    g_assert_cmpint(rc, ==, 0);
    return topic;
}

static void keep_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

/* The error of the commit. */
static int produce(NrdTopic *topic, const char *payload)
{
    atomic_int error = 1;
    NrdProducer *producer = NULL;
    NrdPartition *partition = nrd_topic_partition(topic, 0);
    int rc =
        partition != NULL ? nrd_producer_open(partition, false, &producer) : -EIO; /* the topic is out of service */
    if (rc < 0)
        return rc;
    nrd_producer_add(producer, NULL, 0, payload, strlen(payload));
    nrd_producer_sync(producer, NRD_SYNC_OWN, keep_error, &error);
    while (atomic_load(&error) == 1)
        g_usleep(1000);
    nrd_producer_close(producer, NULL, NULL);
    return atomic_load(&error);
}

static int engine_close(NrdEngine *engine, NrdTopic *topic)
{
    nrd_engine_stop(engine);
    nrd_topic_unref(topic);
    return nrd_engine_close(engine);
}

static void add_payload(void *user_data, int error, const NrdDelivery *delivery)
{
    if (error == 0)
        g_string_append_printf(user_data, "%.*s ", (int)delivery->payload_size, (const char *)delivery->payload);
    else
        g_assert_cmpint(error, ==, -EAGAIN);
}

/* Everything that the topic delivers, each followed by a space; g_free. */
static char *take_all(NrdTopic *topic)
{
    NrdPartition *partition = nrd_topic_partition(topic, 0);
    GString *text = g_string_new(NULL);
    g_assert_cmpint(nrd_partition_pin(partition), ==, 0);
    for (gsize before = G_MAXSIZE; before != text->len;) {
        NrdWaiter waiter;
        before = text->len;
        nrd_waiter_init(&waiter);
        nrd_partition_take(partition, &waiter, 0, add_payload, text);
    }
    nrd_partition_unpin(partition);
    return g_string_free(text, FALSE);
}

static void assert_records(const char *expected)
{
    NrdEngine *engine = engine_open();
    NrdTopic *topic = topic_open(engine);
    g_autofree char *text = take_all(topic);
    g_assert_cmpstr(text, ==, expected);
    g_assert_cmpint(engine_close(engine, topic), ==, 0);
}

static void test_restart(Fixture *f, gconstpointer data)
{
    NrdEngine *engine = engine_open();
    NrdTopic *topic = topic_open(engine);
    g_assert_cmpint(produce(topic, "one"), ==, 0);
    g_assert_cmpint(produce(topic, "two"), ==, 0);
    g_assert_cmpint(engine_close(engine, topic), ==, 0);
    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, 1); /* the fixture's */
    g_assert_cmpuint(sim_disk_n_bad(f->disk), ==, 0);
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_ANY_SYNC, SIM_SEGMENTS), >=, 2);
    assert_records("one two ");
}

/* Nothing of the engine goes past the table: on a new disk its data directory is made, and the host has none. */
static void test_new_folder(Fixture *f, gconstpointer data)
{
    NrdEngineOptions options = { .data_path = "/sim-new", .cold_retention_ms = -1 };
    g_autofree char *why = NULL;
    NrdEngine *engine = NULL;
    g_assert_cmpint(nrd_engine_open(&options, &engine, &why), ==, 0);
    g_assert_cmpint(nrd_engine_close(engine), ==, 0);
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    g_autofree char *format = image_text(image, SIM_DURABLE, "/sim-new/format");
    g_assert_nonnull(format);
    g_assert_false(g_file_test("/sim-new", G_FILE_TEST_EXISTS));
}

/* The power is cut at a call of a run: what was acknowledged is there. Whether there was such a call. */
static bool crash_at(Fixture *f, uint64_t nth, const SimImage *start, unsigned *ret_n_acked)
{
    static const char *const expected[] = { "", "one ", "one two " };
    unsigned n_acked = 0;

    fixture_load(f, start);
    int id = sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_CRASH, .call = SIM_ANY_CALL, .nth = nth });
    NrdEngineOptions options = { .data_path = SIM_DATA, .cold_retention_ms = -1 };
    g_autofree char *why = NULL;
    NrdEngine *engine = NULL;
    NrdTopic *topic = NULL;
    if (nrd_engine_open(&options, &engine, &why) == 0) {
        g_assert_cmpint(nrd_topic_find(engine, "t", &topic), ==, 0);
        n_acked += produce(topic, "one") == 0;
        n_acked += n_acked == 1 && produce(topic, "two") == 0;
        (void)!engine_close(engine, topic);
    }
    SimFired fired;
    sim_disk_fired(f->disk, id, &fired);
    g_assert_cmpuint(fired.n_fired, ==, sim_disk_is_off(f->disk));
    *ret_n_acked = n_acked;
    sim_disk_unplan_all(f->disk);
    fixture_power_cycle(f, &(SimCrash){ .keep = SIM_KEEP_NONE });
    NrdEngine *next = engine_open();
    NrdTopic *found = topic_open(next);
    g_autofree char *text = take_all(found);
    if (!g_str_has_prefix(text, expected[n_acked])) {
        sim_disk_print_trace(f->disk, stderr);
        g_error("crash at call %d: %u were acknowledged, delivered is '%s'", (int)nth, n_acked, text);
    }
    g_assert_cmpint(engine_close(next, found), ==, 0);
    return fired.n_fired > 0;
}

static void test_crashes(Fixture *f, gconstpointer data)
{
    NrdEngine *engine = engine_open();
    NrdTopic *topic = topic_open(engine);
    g_assert_cmpint(engine_close(engine, topic), ==, 0);
    fixture_power_cycle(f, &(SimCrash){ .keep = SIM_KEEP_NONE });
    g_autoptr(SimImage) start = sim_disk_snapshot(f->disk);
    unsigned n_acked = 0, n_kinds[3] = { 0 };
    for (uint64_t nth = 1; crash_at(f, nth, start, &n_acked); nth++)
        n_kinds[n_acked]++;
    for (int i = 0; i < 3; i++)
        g_assert_cmpuint(n_kinds[i], >, 0);
}

#define ADD(name, options, test)                                                                                       \
    g_test_add("/sim/engine/" name, Fixture, options, fixture_set_up, test, fixture_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ADD("restart", NULL, test_restart);
    ADD("new-folder", NULL, test_new_folder);
    ADD("crashes", NULL, test_crashes);
    return g_test_run();
}
