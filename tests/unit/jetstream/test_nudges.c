/* How often, and with how much, a leader that gives no answers is helped on. */
#include "engine/jetstream/partition.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

static unsigned n_sent;

void __wrap_nrd_js_nudge(NrdJsConn *conn, const char *subject, unsigned n);

void __wrap_nrd_js_nudge(NrdJsConn *conn, const char *subject, unsigned n)
{
    n_sent = n;
}

/* Of a record that was not answered, so much later. */
static unsigned nudge(NrdPartition *partition, int64_t later_ms)
{
    n_sent = 0;
    nrd_clock_shift_mono_ms(later_ms);
    nrd_js_partition_nudge(partition);
    return n_sent;
}

/* More each time, then as much now and then for as long as nothing is stored, and from the beginning when something was. */
static void test_nudges(void)
{
    const unsigned first[] = { 16, 64, 256, 1024, 1024, 1024 };
    NrdTopicRecord *record = nrd_topic_record_new("t");
    NrdEngine engine = { .timers = nrd_timers_new() };
    record->config.partitions = 1;
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", record, 1, NULL);
    NrdPartition *partition = nrd_js_topic_partition(topic, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(first); i++) {
        g_assert_cmpuint(nudge(partition, 5000), ==, first[i]);
        g_assert_cmpuint(nudge(partition, 0), ==, 0); /* others that were sent with it */
    }
    for (int i = 0; i < 20; i++) {
        g_assert_cmpuint(nudge(partition, 5000), ==, 0);
        g_assert_cmpuint(nudge(partition, 30000), ==, 1024);
    }
    nrd_js_partition_grew(partition, 1, true);
    g_assert_cmpuint(nudge(partition, 5000), ==, 16);
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/nudges", test_nudges);
    return g_test_run();
}
