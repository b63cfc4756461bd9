/* Copies that differ: what is told of them, and for how long. */
#include "engine/jetstream/copies.h"
#include "engine/jetstream/kept.h"
#include "engine/jetstream/topic.h"

static bool is_apart(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool apart = partition->apart != NULL;
    g_mutex_unlock(&partition->lock);
    return apart;
}

static void note(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    g_assert_true(nrd_js_kept_note_locked(partition, sequence, nrd_js_acked_hash("id")));
    g_mutex_unlock(&partition->lock);
}

/* What there is was accepted by hand between the look at a copy and the word about it: nobody would look again, and take it
 * back. */
static void test_reopened_meanwhile(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("t");
    NrdEngine engine = { .timers = nrd_timers_new() };
    record->config.partitions = 1;
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", record, 1, NULL);
    NrdPartition *partition = nrd_js_topic_partition(topic, 0);
    note(partition, 5);
    nrd_js_copies_apart(partition, 5);
    g_assert_true(is_apart(partition));
    g_mutex_lock(&partition->lock);
    nrd_js_kept_forget_locked(partition);
    g_mutex_unlock(&partition->lock);
    g_assert_false(is_apart(partition));
    nrd_js_copies_apart(partition, 5);
    g_assert_false(is_apart(partition));
    note(partition, 9);
    nrd_js_copies_apart(partition, 5);
    g_assert_false(is_apart(partition));
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

static bool is_known(NrdPartition *partition, uint64_t sequence)
{
    return !nrd_js_kept_agrees(partition, sequence, "another");
}

/* What was found stays known behind a window of other records, until no copy differs any more, or the servers have deleted it. */
static void test_held(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("t");
    NrdEngine engine = { .timers = nrd_timers_new() };
    record->config.partitions = 1;
    NrdTopic *topic = nrd_js_topic_new(&engine, "t", record, 1, NULL);
    NrdPartition *partition = nrd_js_topic_partition(topic, 0);
    for (uint64_t sequence = 1; sequence <= 9; sequence++)
        note(partition, sequence);
    nrd_js_copies_apart(partition, 5);
    nrd_js_copies_apart(partition, 6);
    nrd_js_copies_apart(partition, 7);
    nrd_js_kept_gone(partition, 5); /* it is one of the last: that is for who compares the leader's */
    for (uint64_t sequence = 10; sequence <= 9 + NRD_JS_ACKED_MAX; sequence++)
        note(partition, sequence);
    g_assert_true(is_known(partition, 5) && is_known(partition, 6) && is_known(partition, 7));
    g_assert_false(is_known(partition, 8));
    nrd_js_kept_gone(partition, 6);
    g_assert_false(is_known(partition, 6));
    g_assert_true(is_apart(partition));
    nrd_js_copies_same(partition);
    g_assert_false(is_known(partition, 5) || is_known(partition, 7) || is_apart(partition));
    nrd_js_topic_unref(topic);
    nrd_timers_free(engine.timers);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/copies/reopened-meanwhile", test_reopened_meanwhile);
    g_test_add_func("/jetstream/copies/held", test_held);
    return g_test_run();
}
