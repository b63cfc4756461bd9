/* Steps that lease and settle. */
#include "world.h"

#include <errno.h>
#include <string.h>

#define BATCH_MAX 8

typedef struct Got {
    int error; /* 1: not called back */
    uint32_t partition;
    uint64_t offset, nonce;
    char *key, *payload;
} Got;

static void on_delivery(void *user_data, int error, const NrdDelivery *d)
{
    Got *got = user_data;
    got->error = error;
    if (error < 0)
        return;
    got->partition = d->partition;
    got->offset = d->offset;
    got->nonce = d->nonce;
    got->key = g_strndup((const char *)d->key, d->key_size);
    got->payload = g_strndup((const char *)d->payload, d->payload_size);
}

static void clear_got(Got *got)
{
    g_free(got->key);
    g_free(got->payload);
}

/* A delivery is what the model would hand out next. */
static void check_got(World *w, int topic, const Got *got)
{
    Topic *model = &w->broker.topics[topic];
    WORLD_CHECK(w, got->partition < model->partitions->len);
    Partition *p = model->partitions->pdata[got->partition];
    uint64_t next = UINT64_MAX;
    WORLD_CHECK(w, partition_next(model, p, &next));
    WORLD_SAME(w, got->offset, next);
    WORLD_CHECK(w, strcmp(partition_at(p, next)->key, got->key) == 0);
    WORLD_CHECK(w, strcmp(partition_at(p, next)->payload, got->payload) == 0);
    partition_lease(model, p, next, got->nonce, w->broker.now_ms);
    world_remember(w, topic, got->partition, got->offset, got->nonce);
}

static void take(World *w, int topic)
{
    NrdPartition *partition;
    Partition *model = world_partition(w, topic, w->step.partition, &partition);
    NrdWaiter waiter;
    Got got = { .error = 1 };
    uint64_t next;
    nrd_waiter_init(&waiter);
    nrd_partition_take(partition, &waiter, 0, on_delivery, &got);
    WORLD_SAME(w, got.error, partition_next(&w->broker.topics[topic], model, &next) ? 0 : -EAGAIN);
    if (got.error == 0)
        check_got(w, topic, &got);
    clear_got(&got);
}

static bool any_next(const Topic *model)
{
    uint64_t next;
    bool any = false;
    for (guint i = 0; i < model->partitions->len; i++)
        any = any || partition_next(model, model->partitions->pdata[i], &next);
    return any;
}

static void take_from_topic(World *w, int topic)
{
    NrdTopicConsumer *consumer = NULL;
    NrdWaiter waiter;
    Got got = { .error = 1 };
    bool any = any_next(&w->broker.topics[topic]);
    WORLD_SAME(w, nrd_topic_consumer_open(w->topics[topic], &consumer), 0);
    WORLD_SAME(w, nrd_topic_readable(w->topics[topic]), any);
    nrd_waiter_init(&waiter);
    nrd_topic_take(consumer, &waiter, 0, on_delivery, &got);
    WORLD_SAME(w, got.error, any ? 0 : -EAGAIN);
    if (got.error == 0)
        check_got(w, topic, &got);
    clear_got(&got);
    nrd_topic_consumer_close(consumer);
}

/* A batch keeps copies until its leases are there. */
typedef struct Batch {
    unsigned n, max;
    Got got[BATCH_MAX];
} Batch;

static size_t copy_one(void *user_data, const NrdDelivery *delivery)
{
    Batch *batch = user_data;
    if (batch->n == batch->max)
        return 0;
    on_delivery(&batch->got[batch->n++], 0, delivery);
    return 1;
}

static void uncopy(void *user_data, size_t size)
{
    Batch *batch = user_data;
    for (; size > 0; size--)
        clear_got(&batch->got[--batch->n]);
}

static void take_batch(World *w, int topic)
{
    NrdPartition *partition;
    Partition *model = world_partition(w, topic, w->step.partition, &partition);
    Batch kept = { .max = 1 + w->step.n % BATCH_MAX };
    g_autoptr(GArray) holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
    NrdBatch batch = { .copy = copy_one, .uncopy = uncopy, .user_data = &kept, .holds = holds };
    uint64_t next;
    WORLD_SAME(w, nrd_partition_take_batch(partition, &batch), 0);
    WORLD_SAME(w, holds->len, kept.n);
    for (unsigned i = 0; i < kept.n; i++) {
        const NrdHold *hold = &g_array_index(holds, NrdHold, i);
        kept.got[i].nonce = hold->nonce;
        WORLD_SAME(w, hold->offset, kept.got[i].offset);
        check_got(w, topic, &kept.got[i]);
        clear_got(&kept.got[i]);
    }
    if (kept.n < kept.max)
        WORLD_CHECK(w, !partition_next(&w->broker.topics[topic], model, &next));
}

/* ---- settling ---- */

static void apply(World *w, const Topic *topic, Partition *p, NrdVerb verb, uint64_t offset)
{
    Record *record = partition_at(p, offset);
    if (verb == NRD_VERB_ACK)
        record->state = SETTLED;
    else if (verb == NRD_VERB_NACK)
        record->state = FREE;
    else if (verb == NRD_VERB_EXTEND)
        record->expiry_ms = w->broker.now_ms + topic->visibility_timeout_ms;
}

static int expected_error(const Topic *topic, const Partition *p, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    if (verb == NRD_VERB_ACK)
        return partition_ack_error(topic, p, offset, nonce);
    return partition_live(p, offset, nonce) ? 0 : -ESTALE;
}

/* A lease that was seen some time, of whatever topic: its numbers are tried on the topic that is there now. */
static void settle_one(World *w, NrdVerb verb)
{
    const Seen *seen = &w->seen[w->step.n % N_SEEN];
    const Topic *topic = &w->broker.topics[seen->topic];
    if (w->n_seen <= w->step.n % N_SEEN || !topic->exists)
        return;
    w->done[w->step.kind]++;
    if (seen->partition >= topic->partitions->len) {
        WORLD_SAME(w, nrd_topic_settle(w->topics[seen->topic], seen->partition, verb, seen->offset, seen->nonce),
                   -EINVAL);
        return;
    }
    Partition *p = topic->partitions->pdata[seen->partition];
    int expected = expected_error(topic, p, verb, seen->offset, seen->nonce);
    int rc = w->step.partition % 2
                 ? nrd_topic_settle(w->topics[seen->topic], seen->partition, verb, seen->offset, seen->nonce)
                 : nrd_partition_settle(nrd_topic_partition(w->topics[seen->topic], seen->partition), verb,
                                        seen->offset, seen->nonce);
    WORLD_SAME(w, rc, expected);
    if (rc == 0)
        apply(w, topic, p, verb, seen->offset);
}

/* All that is leased in a partition, and something that is not. */
static size_t collect(const Partition *p, uint32_t number, uint32_t n, NrdHold holds[BATCH_MAX])
{
    size_t n_holds = 0;
    for (uint64_t offset = 0; offset < partition_hwm(p) && n_holds < BATCH_MAX - 1; offset++)
        if (partition_at(p, offset)->state == LEASED)
            holds[n_holds++] = (NrdHold){ number, 0, offset, partition_at(p, offset)->nonce };
    if (n % 3 == 0)
        holds[n_holds++] = (NrdHold){ number, 0, n, n };
    return n_holds;
}

static void settle_many(World *w, int topic)
{
    NrdPartition *partition;
    Topic *model = &w->broker.topics[topic];
    Partition *p = world_partition(w, topic, w->step.partition, &partition);
    NrdHold holds[BATCH_MAX];
    NrdVerb verb = w->step.n % 4 == 1 ? NRD_VERB_NACK : NRD_VERB_ACK;
    size_t n = collect(p, nrd_partition_number(partition), w->step.n, holds), n_done = 0;
    int error = 0, expected = 0;
    for (; n_done < n; n_done++) {
        expected = expected_error(model, p, verb, holds[n_done].offset, holds[n_done].nonce);
        if (expected < 0)
            break;
        apply(w, model, p, verb, holds[n_done].offset);
    }
    WORLD_SAME(w, nrd_partition_settle_many(partition, verb, holds, n, &error), n_done);
    WORLD_SAME(w, error, expected);
    w->done[w->step.kind]++;
}

static void settle_durably(World *w, int topic)
{
    NrdPartition *partition;
    Topic *model = &w->broker.topics[topic];
    Partition *p = world_partition(w, topic, w->step.partition, &partition);
    NrdHold holds[BATCH_MAX];
    int errors[BATCH_MAX] = { 0 };
    size_t n = collect(p, nrd_partition_number(partition), w->step.n, holds);
    WORLD_SAME(w, nrd_partition_settle_durably(partition, holds, n, errors), 0);
    for (size_t i = 0; i < n; i++) {
        int expected = partition_ack_error(model, p, holds[i].offset, holds[i].nonce);
        WORLD_SAME(w, errors[i], expected);
        if (expected == 0)
            apply(w, model, p, NRD_VERB_ACK, holds[i].offset);
    }
    w->done[w->step.kind]++;
}

static void on_synced(void *user_data, int error)
{
    *(int *)user_data = error;
}

void do_consume_step(World *w, int topic)
{
    NrdPartition *partition;
    int error = 1;
    switch (w->step.kind) {
    case STEP_ACK:
        settle_one(w, NRD_VERB_ACK);
        return;
    case STEP_NACK:
        settle_one(w, NRD_VERB_NACK);
        return;
    case STEP_EXTEND:
        settle_one(w, NRD_VERB_EXTEND);
        return;
    case STEP_LOOK:
        settle_one(w, NRD_VERB_LOOK);
        return;
    case STEP_SETTLE_MANY:
        settle_many(w, topic);
        return;
    case STEP_SETTLE_DURABLY:
        settle_durably(w, topic);
        return;
    case STEP_SETTLE_SICK:
        settle_on_a_sick_disk(w, topic);
        learn_all_copies(w); /* of what the others got meanwhile */
        break;
    case STEP_TAKE:
        take(w, topic);
        break;
    case STEP_TAKE_BATCH:
        take_batch(w, topic);
        break;
    case STEP_TAKE_TOPIC:
        take_from_topic(w, topic);
        break;
    default:
        (void)world_partition(w, topic, w->step.partition, &partition);
        nrd_partition_sync_frontier(partition, on_synced, &error);
        WORLD_SAME(w, error, 0);
    }
    w->done[w->step.kind]++;
}
