/* Steps in which the disk fails: below one partition, below a topic's children, the ingress log, or the topics' records.
 * What is asked for meanwhile fails or succeeds, and nobody else notices.
 *
 * While calls on some files fail, all other partitions have to answer as the model does. What was not acknowledged may be
 * there after a restart, whole, or not at all; a retry in the same process leaves one copy, at the offsets that the failed
 * attempt had. What a settling could not write is not settled; a setting that could not be written is the old one. */
#include "disk.h"
#include "world.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define WHOLE_TOPIC UINT32_MAX

/* One of the kinds of failure, by the step's number. */
static void fall_ill(const World *w, const char *folder)
{
    uint32_t n = w->step.n;
    Call call = (Call)(n % N_CALLS);
    int error = call == CALL_PWRITEV && n % 2 ? ENOSPC : call == CALL_OPEN && n % 2 ? EMFILE : EIO;
    disk_fail(folder, call, error, n / N_CALLS % 8 == 7 ? 1 : 0, n / N_CALLS % 2);
}

static void partition_falls_ill(const World *w, int topic, uint32_t number)
{
    g_autofree char *folder = g_strdup_printf("topics/%s/p%05u/", world_topic_name(topic), number);
    fall_ill(w, folder);
}

/* ---- a commit meanwhile ---- */

static void on_done(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static int await(World *w, atomic_int *error)
{
    for (int i = 0; atomic_load(error) == 1 && i < PATIENCE_MS * 10; i++)
        g_usleep(100);
    WORLD_CHECK(w, atomic_load(error) <= 0);
    return atomic_load(error);
}

static int sync_now(World *w, NrdProducer *producer)
{
    atomic_int error = 1;
    nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &error);
    return await(w, &error);
}

/* What is left is tried once more, and given up. */
static void close_producer(World *w, NrdProducer *producer)
{
    atomic_int error = 1;
    nrd_producer_close(producer, on_done, &error);
    (void)await(w, &error);
}

static void expect_range(World *w, NrdProducer *producer, uint32_t number, uint64_t first, uint64_t end)
{
    char want[64], got[64];
    int n =
        g_snprintf(want, sizeof want, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", number, first, end - 1);
    size_t n_got = nrd_producer_read_ranges(producer, got, sizeof got);
    WORLD_CHECK(w, n_got == (size_t)n && memcmp(got, want, n_got) == 0);
}

static void produce_one(World *w, int topic, uint32_t number)
{
    Partition *p = w->broker.topics[topic].partitions->pdata[number];
    NrdProducer *producer = NULL;
    g_autofree char *payload = world_payload(w);
    uint64_t first = partition_hwm(p);
    WORLD_SAME(w, nrd_producer_open(nrd_topic_partition(w->topics[topic], number), true, &producer), 0);
    nrd_producer_add(producer, "", 0, payload, strlen(payload));
    WORLD_SAME(w, sync_now(w, producer), 0);
    expect_range(w, producer, number, first, first + 1);
    partition_append(p, "", payload, w->broker.now_ms);
    close_producer(w, producer);
}

/* The others do meanwhile what they do at any time: take a record, and answer whatever can be asked. Children get copies
 * of that, and are compared when these have come. */
static void others_are_well(World *w, int sick_topic, uint32_t sick_number)
{
    for (int topic = 0; topic < N_TOPICS; topic++) {
        const Topic *model = &w->broker.topics[topic];
        for (uint32_t i = 0; model->exists && model->parent == NO_TOPIC && i < model->partitions->len; i++) {
            if (topic == sick_topic && (i == sick_number || sick_number == WHOLE_TOPIC))
                continue;
            produce_one(w, topic, i);
            compare_partition(w, topic, i);
        }
    }
}

/* The disk is well again: poison stays until it is reopened, everything else is over. */
static void retry(World *w, NrdPartition *partition, NrdProducer *producer, uint64_t first, unsigned n_records)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    WORLD_SAME(w, info.hwm, first);
    bool poisoned = info.poisoned;
    w->n_poisoned += poisoned;
    nrd_partition_info_clear(&info);
    if (poisoned) {
        WORLD_CHECK(w, sync_now(w, producer) == -EIO);
        WORLD_SAME(w, nrd_partition_reopen(partition), 0);
    }
    WORLD_SAME(w, sync_now(w, producer), 0);
    expect_range(w, producer, nrd_partition_number(partition), first, first + n_records);
}

/* Nobody was promised the records: after a restart all of them are there, or none; or they come with the next commit. */
static bool are_there_after_restart(World *w, int topic, uint32_t number, uint64_t first, unsigned n_records,
                                    bool *ret_hidden)
{
    NrdPartitionInfo info;
    world_restart(w);
    nrd_partition_info(nrd_topic_partition(w->topics[topic], number), &info);
    uint64_t hwm = info.hwm, next = info.next_offset;
    nrd_partition_info_clear(&info);
    WORLD_CHECK(w, hwm == first || hwm == next);
    WORLD_CHECK(w, next == first || next == first + n_records);
    *ret_hidden = hwm < next;
    return next > first;
}

void produce_on_a_sick_disk(World *w, int topic)
{
    NrdPartition *partition;
    Partition *model = world_partition(w, topic, w->step.partition, &partition);
    uint32_t number = nrd_partition_number(partition);
    unsigned n_records = 1 + w->step.n % 3;
    uint64_t first = partition_hwm(model);
    g_autoptr(GPtrArray) payloads = g_ptr_array_new_with_free_func(g_free);
    NrdProducer *producer = NULL;
    bool there = true, hidden = false;
    WORLD_SAME(w, nrd_producer_open(partition, true, &producer), 0);
    for (unsigned i = 0; i < n_records; i++)
        g_ptr_array_add(payloads, world_payload(w));
    partition_falls_ill(w, topic, number);
    world_add(producer, NULL, payloads);
    int rc = sync_now(w, producer);
    WORLD_CHECK(w, rc == 0 || disk_n_failed() > 0);
    others_are_well(w, topic, number);
    w->n_sick += rc < 0;
    bool restart = rc < 0 && w->step.n % 5 == 0;
    if (!restart)
        disk_heal();
    if (rc < 0 && !restart)
        retry(w, partition, producer, first, n_records);
    else if (rc == 0)
        expect_range(w, producer, number, first, first + n_records);
    close_producer(w, producer);
    disk_heal();
    if (restart)
        there = are_there_after_restart(w, topic, number, first, n_records, &hidden);
    for (unsigned i = 0; there && i < n_records; i++)
        partition_append(model, "", payloads->pdata[i], w->broker.now_ms);
    if (hidden)
        produce_one(w, topic, number);
    if (there)
        compare_log(w, topic, number);
}

/* ---- the ingress log ---- */

static int sync_topic_now(World *w, NrdTopicProducer *producer)
{
    atomic_int error = 1;
    nrd_topic_producer_sync(producer, NRD_SYNC_OWN, on_done, &error);
    return await(w, &error);
}

void produce_to_topic_on_a_sick_disk(World *w, int topic)
{
    g_autoptr(GPtrArray) produced = g_ptr_array_new_with_free_func(g_free);
    NrdTopicProducer *producer = NULL;
    WORLD_SAME(w, nrd_topic_producer_open(w->topics[topic], false, &producer), 0);
    for (unsigned i = 0; i < 1 + w->step.n % 4; i++) {
        g_autofree char *payload = world_payload(w);
        const char *key = i % 2 ? "pear" : "";
        nrd_topic_producer_add(producer, key, strlen(key), payload, strlen(payload));
        g_ptr_array_add(produced, g_strconcat(key, "\n", payload, NULL));
    }
    fall_ill(w, "ingress/");
    int rc = sync_topic_now(w, producer);
    WORLD_CHECK(w, rc == 0 || disk_n_failed() > 0);
    w->n_sick_topics += rc < 0;
    others_are_well(w, topic, WHOLE_TOPIC); /* what was acknowledged is on its way there */
    disk_heal();
    WORLD_SAME(w, sync_topic_now(w, producer), 0);
    nrd_topic_producer_close(producer, NULL, NULL);
    learn_records(w, topic, produced);
}

/* ---- copies ---- */

static void reopen_poisoned(World *w, int topic)
{
    for (uint32_t i = 0; i < w->broker.topics[topic].partitions->len; i++) {
        NrdPartition *partition = nrd_topic_partition(w->topics[topic], i);
        NrdPartitionInfo info;
        nrd_partition_info(partition, &info);
        if (info.poisoned)
            WORLD_SAME(w, nrd_partition_reopen(partition), 0);
        w->n_sick_copies += info.poisoned;
        nrd_partition_info_clear(&info);
    }
}

/* The disk below a child fails while its parent gets records: each comes once, when the child is well. */
void copy_to_a_sick_disk(World *w, int child)
{
    g_autofree char *folder = g_strdup_printf("topics/%s/", world_topic_name(child));
    int parent = w->broker.topics[child].parent;
    fall_ill(w, folder);
    for (uint32_t i = 0; i < w->broker.topics[parent].partitions->len; i++)
        produce_one(w, parent, i);
    for (int i = 0; disk_n_failed() == 0 && i < 50; i++)
        g_usleep(1000); /* it need not fail: the copies may be late, or need no such call */
    w->n_sick_copies += disk_n_failed() > 0;
    disk_heal();
    g_usleep(2000); /* a commit that is under way may poison yet */
    reopen_poisoned(w, child);
}

/* ---- settling ---- */

static size_t leases_of(const Partition *p, uint32_t number, NrdHold *holds, size_t max)
{
    size_t n = 0;
    for (uint64_t offset = partition_frontier(p); offset < partition_hwm(p) && n < max; offset++)
        if (partition_at(p, offset)->state == LEASED)
            holds[n++] = (NrdHold){ number, 0, offset, partition_at(p, offset)->nonce };
    return n;
}

static void expect_settled(World *w, const Topic *topic, Partition *p, const NrdHold *holds, const int *errors,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int expected = partition_ack_error(topic, p, holds[i].offset, holds[i].nonce);
        WORLD_SAME(w, errors[i], expected);
        if (expected == 0)
            partition_at(p, holds[i].offset)->state = SETTLED;
    }
}

static void settle_durably(World *w, int topic, NrdPartition *partition, Partition *p)
{
    enum { MAX = 8 };
    uint32_t number = nrd_partition_number(partition);
    NrdHold holds[MAX];
    int errors[MAX] = { 0 };
    size_t n = leases_of(p, number, holds, MAX);
    partition_falls_ill(w, topic, number);
    int rc = nrd_partition_settle_durably(partition, holds, n, errors);
    WORLD_CHECK(w, rc == 0 || disk_n_failed() > 0);
    for (size_t i = 0; rc < 0 && i < n; i++)
        WORLD_SAME(w, errors[i], rc);
    others_are_well(w, topic, number);
    if (rc < 0)
        compare_partition(w, topic, number);
    disk_heal();
    w->n_sick_settlings += rc < 0;
    if (rc < 0 && w->step.n % 4 == 0) { /* written down as not settled, whatever the failed attempt has left */
        world_restart(w);
        return;
    }
    if (rc < 0)
        rc = nrd_partition_settle_durably(partition, holds, n, errors);
    WORLD_SAME(w, rc, 0);
    expect_settled(w, &w->broker.topics[topic], p, holds, errors, n);
}

static int sync_frontier(NrdPartition *partition)
{
    atomic_int error = 1;
    nrd_partition_sync_frontier(partition, on_done, &error);
    return atomic_load(&error);
}

/* What is settled in memory stays so, and is written when it can be. */
static void settle_and_sync(World *w, int topic, NrdPartition *partition, Partition *p)
{
    enum { MAX = 4 };
    NrdHold holds[MAX];
    size_t n = leases_of(p, nrd_partition_number(partition), holds, MAX);
    for (size_t i = 0; i < n; i++) {
        int expected = partition_ack_error(&w->broker.topics[topic], p, holds[i].offset, holds[i].nonce);
        int rc = nrd_partition_settle(partition, NRD_VERB_ACK, holds[i].offset, holds[i].nonce);
        WORLD_SAME(w, rc, expected);
        if (rc == 0)
            partition_at(p, holds[i].offset)->state = SETTLED;
    }
    partition_falls_ill(w, topic, nrd_partition_number(partition));
    int rc = sync_frontier(partition);
    WORLD_CHECK(w, rc == 0 || (rc < 0 && disk_n_failed() > 0));
    others_are_well(w, topic, nrd_partition_number(partition));
    disk_heal();
    w->n_sick_settlings += rc < 0;
    WORLD_SAME(w, sync_frontier(partition), 0);
    if (w->step.n % 4 == 1)
        world_restart(w);
}

void settle_on_a_sick_disk(World *w, int topic)
{
    NrdPartition *partition;
    Partition *p = world_partition(w, topic, w->step.partition, &partition);
    if (w->step.n % 2)
        settle_and_sync(w, topic, partition, p);
    else
        settle_durably(w, topic, partition, p);
}

/* ---- records of topics ---- */

static int64_t max_in_flight_of(NrdTopic *topic)
{
    g_autofree char *text = nrd_topic_config_value(topic, "max_in_flight");
    return g_ascii_strtoll(text, NULL, 10);
}

void configure_on_a_sick_disk(World *w, int topic)
{
    Topic *model = &w->broker.topics[topic];
    int64_t before = model->max_in_flight, value = before == 1000 ? 5 : 1000;
    g_autofree char *line = g_strdup_printf("max_in_flight=%" G_GINT64_FORMAT "\n", value);
    fall_ill(w, "meta/");
    int rc = nrd_topic_config_write(w->topics[topic], line, strlen(line));
    WORLD_CHECK(w, rc == 0 || disk_n_failed() > 0);
    model->max_in_flight = rc == 0 ? value : before;
    WORLD_SAME(w, max_in_flight_of(w->topics[topic]), model->max_in_flight);
    others_are_well(w, NO_TOPIC, 0);
    disk_heal();
    w->n_sick_settings += rc < 0;
    if (disk_n_failed() > 0 && w->step.n % 4 == 0) {
        world_restart(w); /* of what has failed the old one or the new one */
        model->max_in_flight = max_in_flight_of(w->topics[topic]);
        WORLD_CHECK(w, model->max_in_flight == value || (rc < 0 && model->max_in_flight == before));
        return;
    }
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], line, strlen(line)), 0);
    model->max_in_flight = value;
}
