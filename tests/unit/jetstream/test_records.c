/* What a topic knows of its record, when it is told of changes in another order than they were made. */
#include "engine/jetstream/topic.h"

static NrdTopicRecord *record_with(int64_t retention_ms)
{
    NrdTopicRecord *record = nrd_topic_record_new("t");
    record->config.retention_ms = retention_ms;
    return record;
}

/* Who has written one, and who follows the bucket, meet in either order. */
static void test_stale(void)
{
    NrdEngine engine = { .timers = nrd_timers_new() };
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", record_with(5000), 5, NULL);
    nrd_js_topic_put_record(topic, record_with(7000), 7);
    nrd_js_topic_put_record(topic, record_with(6000), 6);
    g_assert_cmpint(nrd_js_topic_config(topic).retention_ms, ==, 7000);
    nrd_js_topic_put_record(topic, record_with(7001), 7);
    g_assert_cmpint(nrd_js_topic_config(topic).retention_ms, ==, 7000);
    nrd_js_topic_put_record(topic, record_with(8000), 8);
    g_assert_cmpint(nrd_js_topic_config(topic).retention_ms, ==, 8000);
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/records/stale", test_stale);
    return g_test_run();
}
