/* WAL, checkpoint and dispatcher together: order around partitions that fail, hang or go, and who has to wait for them. */
#include "store.h"

#include "engine/base/diag.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void wait_for_record(Store *s, uint32_t partition, const char *record)
{
    bool there = false;
    for (int i = 0; !there && i < WAIT_MS; i++) {
        g_usleep(1000);
        pthread_mutex_lock(&s->lock);
        const GPtrArray *records = s->records[partition];
        there = records->len > 0 && strcmp(records->pdata[records->len - 1], record) == 0;
        pthread_mutex_unlock(&s->lock);
    }
    g_assert_true(there);
}

/* Sent to a sibling that fails then: what is behind it does not pass when its partition is well again. */
static void test_nothing_overtakes_what_was_moved(Rig *rig, gconstpointer data)
{
    rig->s.poisoned[1] = true;
    rig->s.out[2] = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0);
    wait_rerouted(rerouted);
    rig->s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "third"), ==, 0);
    g_assert_cmpint(put(ingress, 3, "other"), ==, 0);
    wait_for_record(&rig->s, 3, "other");
    g_usleep(20000); /* time to do it wrongly */
    assert_store(&rig->s, 1, "");
    /* what is in the failing sibling's lane for others is not held up by it */
    rig->s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(at_in_log(&rig->s, "first"), <, at_in_log(&rig->s, "second"));
    assert_store(&rig->s, 2, "first");
    assert_store(&rig->s, 1, "second third");
    nrd_ingress_close(ingress, 1000);
}

/* The same over a restart: the checkpoint says that the first is with the sibling, the others are with their partition. */
static void test_order_over_a_restart(Rig *rig, gconstpointer data)
{
    rig->s.poisoned[1] = true;
    rig->s.out[2] = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0);
    wait_rerouted(rerouted);
    rig->s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    nrd_ingress_close(ingress, 50);
    ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "third"), ==, 0);
    g_assert_cmpint(put(ingress, 3, "other"), ==, 0);
    wait_for_record(&rig->s, 3, "other");
    g_usleep(20000);
    assert_store(&rig->s, 1, "");
    rig->s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 2, "first");
    assert_store(&rig->s, 1, "second third");
    nrd_ingress_close(ingress, 1000);
}

/* A later part that may go is before those that wait; what a replay looks up meanwhile comes back to its place among them. */
static void test_order_after_looking_up(Rig *rig, gconstpointer data)
{
    rig->s.poisoned[1] = true;
    rig->s.out[2] = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "w"), ==, 0);
    wait_rerouted(rerouted);
    rig->s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "z"), ==, 0);
    rig->s.poisoned[0] = true;
    rig->s.out[1] = true;
    g_assert_cmpint(put(ingress, 0, "y"), ==, 0);
    wait_rerouted(rerouted + 1);
    nrd_ingress_close(ingress, 50);
    rig->s.out[1] = false;
    ingress = start(&rig->f, &rig->s);
    wait_for_record(&rig->s, 1, "y");
    rig->s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 2, "w");
    assert_store(&rig->s, 1, "y x z");
    nrd_ingress_close(ingress, 1000);
}

/* Siblings that fail as well, which nobody knew: the part tries the next ones without a rest. */
static void test_siblings_that_fail_too(Rig *rig, gconstpointer data)
{
    for (int i = 0; i < N_PARTITIONS - 1; i++)
        rig->s.fail[i] = -1;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t failures = nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT);
    g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    wait_for_record(&rig->s, N_PARTITIONS - 1, "x");
    /* three passes each; while it rests it goes on failing */
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT), <=, failures + 3 * (N_PARTITIONS - 1));
    nrd_ingress_close(ingress, 1000);
}

static void check_order(Store *s, const char *home, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++) {
        g_autofree char *record = g_strdup_printf("%s-%d", home, i);
        int at = at_in_log(s, record);
        g_assert_cmpint(at, >, last);
        last = at;
    }
}

/* Partitions fail, are poisoned and get well at random, and the process is started again now and then: what names one
 * partition is committed in its order, wherever. */
static void test_order_at_random(void)
{
    for (unsigned seed = 0; seed < 6; seed++) {
        Fixture f;
        Store s;
        int n[2] = { 0, 0 };
        g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
        fixture_set_up(&f);
        store_init(&s);
        s.readable = true; /* else what is looked up loses its place: test_replay_waits_for_its_partition */
        NrdIngress *ingress = start_with(&f, &s, 0, 2000);
        for (int i = 0; i < 200; i++) {
            uint32_t home = (uint32_t)g_rand_int_range(rand, 0, 2);
            int sick = g_rand_int_range(rand, 0, N_PARTITIONS);
            g_autofree char *payload = g_strdup_printf("%c-%d", home ? 'b' : 'a', n[home]++);
            g_assert_cmpint(put(ingress, home, payload), ==, 0);
            s.poisoned[sick] = g_rand_int_range(rand, 0, 3) == 0;
            s.fail[sick] = g_rand_int_range(rand, 0, 3) == 0 ? 3 : 0;
            if (g_rand_int_range(rand, 0, 10) == 0)
                nrd_ingress_kick(ingress);
            if (g_rand_int_range(rand, 0, 50) == 0) {
                nrd_ingress_close(ingress, 5);
                ingress = start_with(&f, &s, 0, 2000);
            }
        }
        for (int i = 0; i < N_PARTITIONS; i++) {
            s.poisoned[i] = false;
            s.fail[i] = 0;
        }
        nrd_ingress_kick(ingress);
        wait_until_dispatched(ingress);
        g_assert_cmpuint(s.log->len, ==, 200);
        check_order(&s, "a", n[0]);
        check_order(&s, "b", n[1]);
        nrd_ingress_close(ingress, 1000);
        store_clear(&s);
        fixture_tear_down(&f);
    }
}

/* Nowhere to go: kept, over a restart too, until it is well again. */
static void test_nowhere_to_go(Rig *rig, gconstpointer data)
{
    for (int i = 0; i < N_PARTITIONS; i++)
        rig->s.poisoned[i] = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    nrd_ingress_close(ingress, 100);
    ingress = start(&rig->f, &rig->s);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    for (int i = 0; i < N_PARTITIONS; i++)
        rig->s.poisoned[i] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a b");
    nrd_ingress_close(ingress, 1000);
}

static void test_gone_and_away(Rig *rig, gconstpointer data)
{
    rig->s.away = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_usleep(50000);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    rig->s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a");
    rig->s.gone = true;
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_DISCARDED);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DISCARDED), ==, before + 1);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 0);
}

/* A part that never gets anywhere pins its own segment only, and what is done stays done. */
static void test_one_stuck_partition(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start_with(&rig->f, &rig->s, 0, 200);
    rig->s.away = true;
    g_assert_cmpint(put(ingress, 3, "stuck"), ==, 0);
    g_usleep(50000);
    rig->s.away = false; /* the lane waits seconds by now or is soon tried; the others go on */
    for (int i = 0; i < 40; i++)
        g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(rig->s.records[0]->len, ==, 40);
    g_assert_cmpuint(rig->s.records[3]->len, ==, 1);
    nrd_ingress_close(ingress, 1000);
}

/* A disk that hangs under every partition of one topic leaves workers to the others. */
static void test_one_topic_hangs(Rig *rig, gconstpointer data)
{
    atomic_store(&rig->s.hangs, true);
    NrdIngress *ingress = start(&rig->f, &rig->s);
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        g_assert_cmpint(put(ingress, i, "slow"), ==, 0);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, "other", 5);
    g_assert_cmpint(put_draft_of(ingress, draft, ID_B, NULL), ==, 0);
    for (int i = 0; nrd_ingress_holds(ingress, ID_B) && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_false(nrd_ingress_holds(ingress, ID_B));
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    atomic_store(&rig->s.hangs, false);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 0, "other slow");
    nrd_ingress_close(ingress, 1000);
}

/* However much a stuck topic's producers write, the others' are taken. */
static void test_one_topic_fills_its_share(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = NULL;
    atomic_store(&rig->s.hangs, true);
    NrdIngressOptions options = {
        .root_fd = rig->f.root_fd,
        .ops = { commit, warm, present, sibling, next_offset, &rig->s },
        .max_parts = 16,
    };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    for (int i = 0; i < 20; i++)
        g_assert_cmpint(put(ingress, 1, "x"), ==, i < 5 ? 0 : -EAGAIN);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, "other", 5);
    g_assert_cmpint(put_draft_of(ingress, draft, ID_B, NULL), ==, 0);
    atomic_store(&rig->s.hangs, false);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    nrd_ingress_close(ingress, 1000);
    assert_store(&rig->s, 0, "other");
    assert_store(&rig->s, 1, "x x x x x x");
}

/* One test of the rig. */
#define ADD(name, test) g_test_add("/ingress/dispatch/" name, Rig, NULL, rig_set_up, test, rig_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("nothing-overtakes-what-was-moved", test_nothing_overtakes_what_was_moved);
    ADD("order-over-a-restart", test_order_over_a_restart);
    ADD("order-after-looking-up", test_order_after_looking_up);
    g_test_add_func("/ingress/dispatch/order-at-random", test_order_at_random);
    ADD("nowhere-to-go", test_nowhere_to_go);
    ADD("gone-and-away", test_gone_and_away);
    ADD("one-stuck-partition", test_one_stuck_partition);
    ADD("one-topic-hangs", test_one_topic_hangs);
    ADD("one-topic-fills-its-share", test_one_topic_fills_its_share);
    ADD("siblings-that-fail-too", test_siblings_that_fail_too);
    return g_test_run();
}
