/* Batches: records taken many at a time, and settled so. */
#include "fixture.h"

#include <errno.h>
#include <string.h>

typedef struct Taker {
    NrdBatch batch;
    GString *text;
    size_t room;
} Taker;

static size_t copy(void *user_data, const NrdDelivery *delivery)
{
    Taker *taker = user_data;
    if (delivery->payload_size + 1 > taker->room - taker->text->len)
        return 0;
    g_string_append_len(taker->text, (const char *)delivery->payload, (gssize)delivery->payload_size);
    g_string_append_c(taker->text, ' ');
    return delivery->payload_size + 1;
}

static void uncopy(void *user_data, size_t size)
{
    Taker *taker = user_data;
    g_string_truncate(taker->text, taker->text->len - size);
}

static void taker_init(Taker *taker, size_t room)
{
    *taker = (Taker){ .text = g_string_new(NULL), .room = room };
    taker->batch = (NrdBatch){ .copy = copy, .uncopy = uncopy, .user_data = taker };
    taker->batch.holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
}

static void taker_clear(Taker *taker)
{
    g_string_free(taker->text, TRUE);
    g_array_unref(taker->batch.holds);
}

static const NrdHold *holds_of(const Taker *taker)
{
    return (const NrdHold *)(const void *)taker->batch.holds->data;
}

static void assert_taken(NrdPartition *partition, Taker *taker, const char *expected, guint n, bool full)
{
    g_assert_cmpint(nrd_partition_take_batch(partition, &taker->batch), ==, 0);
    g_assert_cmpstr(taker->text->str, ==, expected);
    g_assert_cmpuint(taker->batch.holds->len, ==, n);
    g_assert_true(taker->batch.full == full);
}

static uint64_t in_flight(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    uint64_t n = info.in_flight;
    nrd_partition_info_clear(&info);
    return n;
}

static uint64_t frontier(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    uint64_t offset = info.frontier;
    nrd_partition_info_clear(&info);
    return offset;
}

/* What has no room is not leased, and comes next. */
static void test_room(Fixture *f, gconstpointer data)
{
    Taker first, second, third;
    for (int i = 0; i < 5; i++)
        produce(f->partition, (const char *[]){ "a0", "a1", "a2", "a3", "a4" }[i]);
    taker_init(&first, 10);
    assert_taken(f->partition, &first, "a0 a1 a2 ", 3, true);
    g_assert_cmpuint(in_flight(f->partition), ==, 3);
    g_assert_cmpuint(holds_of(&first)[2].offset, ==, 2);
    g_assert_cmpuint(holds_of(&first)[2].note, ==, 3);
    taker_init(&second, 100);
    assert_taken(f->partition, &second, "a3 a4 ", 2, false);
    taker_init(&third, 100);
    assert_taken(f->partition, &third, "", 0, false);
    taker_clear(&first);
    taker_clear(&second);
    taker_clear(&third);
}

/* What came back is served first, and a run goes on where nobody has the next record. */
static void test_returned(Fixture *f, gconstpointer data)
{
    Taker first, second;
    for (int i = 0; i < 5; i++)
        produce(f->partition, (const char *[]){ "a0", "a1", "a2", "a3", "a4" }[i]);
    taker_init(&first, 9);
    assert_taken(f->partition, &first, "a0 a1 a2 ", 3, true);
    NrdHold back[] = { holds_of(&first)[0], holds_of(&first)[2] };
    int error = 1;
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_NACK, back, 2, &error), ==, 2);
    g_assert_cmpint(error, ==, 0);
    taker_init(&second, 100);
    assert_taken(f->partition, &second, "a0 a2 a3 a4 ", 4, false);
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_ACK, back, 1, &error), ==, 0);
    g_assert_cmpint(error, ==, -ESTALE);
    taker_clear(&first);
    taker_clear(&second);
}

/* Settling stops at the first that cannot be, and says which. */
static void test_settle_many(Fixture *f, gconstpointer data)
{
    Taker taker;
    for (int i = 0; i < 5; i++)
        produce(f->partition, "x");
    taker_init(&taker, 100);
    assert_taken(f->partition, &taker, "x x x x x ", 5, false);
    NrdHold holds[5];
    memcpy(holds, holds_of(&taker), sizeof holds);
    holds[2].nonce ^= 1;
    int error;
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_ACK, holds, 5, &error), ==, 2);
    g_assert_cmpint(error, ==, -ESTALE);
    g_assert_cmpuint(frontier(f->partition), ==, 2);
    holds[2].nonce ^= 1;
    holds[3].partition = 1;
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_ACK, holds + 2, 3, &error), ==, 1);
    g_assert_cmpint(error, ==, -EINVAL);
    g_assert_cmpuint(frontier(f->partition), ==, 3);
    holds[3].partition = 0;
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_EXTEND, holds + 3, 2, &error), ==, 2);
    g_assert_cmpuint(nrd_partition_settle_many(f->partition, NRD_VERB_ACK, holds + 3, 2, &error), ==, 2);
    g_assert_cmpint(error, ==, 0);
    g_assert_cmpuint(frontier(f->partition), ==, 5);
    g_assert_cmpuint(in_flight(f->partition), ==, 0);
    taker_clear(&taker);
}

/* While a batch copies, somebody else leases its first record: that one is not in the batch, though it was copied. */
typedef struct Rival {
    Taker taker; /* first: copy gets it */
    NrdPartition *partition;
    GThread *thread;
    Got got;
} Rival;

static gpointer take_first(gpointer user_data)
{
    Rival *rival = user_data;
    take(rival->partition, &rival->got, 0);
    return NULL;
}

static size_t copy_beside_rival(void *user_data, const NrdDelivery *delivery)
{
    Rival *rival = user_data;
    if (!rival->thread) {
        rival->thread = g_thread_new("rival", take_first, rival);
        while (in_flight(rival->partition) == 0)
            g_thread_yield();
    }
    return copy(user_data, delivery);
}

static void test_rival(Fixture *f, gconstpointer data)
{
    Rival rival = { .partition = f->partition };
    for (int i = 0; i < 3; i++)
        produce(f->partition, (const char *[]){ "a0", "a1", "a2" }[i]);
    taker_init(&rival.taker, 100);
    rival.taker.batch.copy = copy_beside_rival;
    assert_taken(f->partition, &rival.taker, "a1 a2 ", 2, false);
    g_assert_cmpuint(holds_of(&rival.taker)[0].offset, ==, 1);
    g_thread_join(rival.thread);
    g_assert_cmpstr(rival.got.payload, ==, "a0");
    g_assert_cmpuint(in_flight(f->partition), ==, 3);
    taker_clear(&rival.taker);
}

/* Takers and settlers side by side: each record is leased once, and settled; what a batch copied but was not quick enough
 * to lease is not in it. */
enum { N_TAKERS = 4, N_RECORDS = 4000 };

typedef struct Race {
    NrdPartition *partition;
    gint *n_seen; /* atomic, by record */
    gint n_settled;
} Race;

/* Until the set of what is acked ahead has room: a taker that sleeps holds the frontier back. */
static void settle_all(Race *race, const NrdHold *holds, size_t n)
{
    int error = 0;
    for (size_t i = 0; i < n;) {
        i += nrd_partition_settle_many(race->partition, NRD_VERB_ACK, holds + i, n - i, &error);
        g_assert_true(error == 0 || error == -EAGAIN);
        if (error < 0)
            g_thread_yield();
    }
    g_atomic_int_add(&race->n_settled, (gint)n);
}

static void count_alone(void *user_data, int error, const NrdDelivery *delivery)
{
    Race *race = user_data;
    if (error < 0)
        return;
    g_atomic_int_inc(&race->n_seen[delivery->offset]);
    NrdHold hold = { .offset = delivery->offset, .nonce = delivery->nonce };
    settle_all(race, &hold, 1);
}

static void take_alone(Race *race)
{
    NrdWaiter waiter;
    nrd_waiter_init(&waiter);
    nrd_partition_take(race->partition, &waiter, 0, count_alone, race);
}

static void take_many(Race *race)
{
    Taker taker;
    taker_init(&taker, 97);
    g_assert_cmpint(nrd_partition_take_batch(race->partition, &taker.batch), ==, 0);
    guint n = taker.batch.holds->len;
    const char *at = taker.text->str;
    for (guint i = 0; i < n; i++) {
        const NrdHold *hold = &holds_of(&taker)[i];
        g_atomic_int_inc(&race->n_seen[hold->offset]);
        g_assert_cmpuint(g_ascii_strtoull(at, NULL, 10), ==, hold->offset); /* its copy is the one that stands */
        at += hold->note;
    }
    g_assert_cmpstr(at, ==, "");
    settle_all(race, holds_of(&taker), n);
    taker_clear(&taker);
}

static gpointer race(gpointer user_data)
{
    Race *race = user_data;
    while (g_atomic_int_get(&race->n_settled) < N_RECORDS) {
        take_many(race);
        take_alone(race);
    }
    return NULL;
}

static void test_race(Fixture *f, gconstpointer data)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(f->partition, false, &producer), ==, 0);
    for (int i = 0; i < N_RECORDS; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        nrd_producer_add(producer, NULL, 0, payload, strlen(payload));
    }
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
    Race shared = { .partition = f->partition, .n_seen = g_new0(gint, N_RECORDS) };
    GThread *threads[N_TAKERS];
    for (int i = 0; i < N_TAKERS; i++)
        threads[i] = g_thread_new("taker", race, &shared);
    for (int i = 0; i < N_TAKERS; i++)
        g_thread_join(threads[i]);
    for (int i = 0; i < N_RECORDS; i++)
        g_assert_cmpint(shared.n_seen[i], ==, 1);
    g_assert_cmpuint(frontier(f->partition), ==, N_RECORDS);
    g_free(shared.n_seen);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/batch/" name, Fixture, NULL, fixture_set_up, test, fixture_tear_down)
    ADD("room", test_room);
    ADD("returned", test_returned);
    ADD("settle-many", test_settle_many);
    ADD("rival", test_rival);
    ADD("race", test_race);
    return g_test_run();
}
