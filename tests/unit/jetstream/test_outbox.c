/* What an outbox does without servers. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/topic.h"

/* A timer that fires while the last reference goes finds records that a close could not store: it begins nothing, as there
 * is nobody left for whom, and an answer would come to freed memory. */
static void test_timer_after_close(void)
{
    NrdEngine engine = { .timers = nrd_timers_new() };
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", nrd_topic_record_new("t"), 1, NULL);
    NrdJsOutbox *outbox = NULL;
    NrdNewRecord record = { .payload = (const uint8_t *)"x", .payload_size = 1 };
    nrd_js_topic_partition(topic, 0)->known = true; /* it is not looked at */
    g_assert_cmpint(nrd_js_outbox_open(topic, nrd_js_topic_partition(topic, 0), false, &outbox), ==, 0);
    nrd_js_outbox_add(outbox, &record, 1);
    g_assert_cmpint(nrd_js_outbox_wrote(outbox), ==, NRD_URGENCY_LATER);
    g_assert_cmpuint(outbox->timer.heap_index, !=, 0);
    g_mutex_lock(&outbox->lock);
    nrd_js_outbox_stop_locked(outbox);
    g_assert_cmpuint(outbox->timer.heap_index, ==, 0);
    nrd_js_outbox_unlock(outbox);
    nrd_js_outbox_on_timer(outbox);
    g_assert_false(outbox->running);
    nrd_js_outbox_flush(outbox);
    g_assert_true(!outbox->running && outbox->n_refs == 1 && nrd_js_outbox_n_locked(outbox) == 1);
    nrd_js_outbox_free(outbox);
    g_assert_cmpuint(engine.outbox_bytes, ==, 0);
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

/* Only a new record proves anything, and only against what was known since the
 * last reopening. */
static void test_what_an_acknowledgement_proves(void)
{
    NrdEngine engine = { .timers = nrd_timers_new() };
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", nrd_topic_record_new("t"), 1, NULL);
    NrdPartition *partition = nrd_js_topic_partition(topic, 0);
    NrdJsEnd none = nrd_js_partition_end(partition);
    g_assert_cmpuint(none.sequence, ==, 0);
    nrd_js_partition_published(partition, 7, 7, false, none);
    nrd_js_partition_published(partition, 5, 5, false, none); /* of a window that is answered out of order */
    g_assert_null(partition->poison);
    NrdJsEnd end = nrd_js_partition_end(partition);
    g_assert_cmpuint(end.sequence, ==, 7);
    nrd_js_partition_published(partition, 7, 7, true, end); /* there already */
    nrd_js_partition_published(partition, 8, 8, false, end);
    partition->n_reopened++;
    nrd_js_partition_published(partition, 3, 3, false, end);
    g_assert_null(partition->poison);
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/outbox/timer-after-close", test_timer_after_close);
    g_test_add_func("/jetstream/outbox/what-an-acknowledgement-proves", test_what_an_acknowledgement_proves);
    return g_test_run();
}
