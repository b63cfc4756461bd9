/* WAL, checkpoint and dispatcher together: who commits beside the dispatcher, and what a replay recognizes. */
#include "store.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <pthread.h>

/* Somebody else commits the very same bytes where an entry named its offset: not taken for its part. */
static void test_claim_takes_names_back(Rig *rig, gconstpointer data)
{
    rig->s.away = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0); /* expects offset 0 */
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    pthread_mutex_lock(&rig->s.lock);
    g_ptr_array_add(rig->s.records[1], g_strdup("tick")); /* the other one */
    pthread_mutex_unlock(&rig->s.lock);
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 50);
    rig->s.away = false;
    ingress = start(&rig->f, &rig->s);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "tick tick");
    nrd_ingress_close(ingress, 1000);
}

static void *claim_it(void *ingress)
{
    return GINT_TO_POINTER(nrd_ingress_claim(ingress, ID_A, 1));
}

/* What has been committed when somebody claims, and is not done with yet, keeps the name that it got: after a crash it is
 * recognized. */
static void test_claim_beside_a_commit(Rig *rig, gconstpointer data)
{
    rig->s.lingers = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    while (rig->s.n_commits == 0)
        g_usleep(500);
    pthread_t claimer;
    g_assert_cmpint(pthread_create(&claimer, NULL, claim_it, ingress), ==, 0);
    g_usleep(50000); /* for one who does not wait */
    rig->s.lingers = false;
    void *result;
    pthread_join(claimer, &result);
    g_assert_cmpint(GPOINTER_TO_INT(result), ==, 0);
    fixture_copy(&rig->f, &rig->crashed);
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
    ingress = start(&rig->crashed, &rig->s);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "tick");
    nrd_ingress_close(ingress, 1000);
}

/* A commit that hangs is waited for by the time that the wait can tell, which stands still while a machine is suspended. */
static void test_claim_after_a_suspend(Rig *rig, gconstpointer data)
{
    rig->s.lingers = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    while (rig->s.n_commits == 0)
        g_usleep(500);
    nrd_clock_shift_mono_ms(DAY_MS);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    nrd_clock_shift_mono_ms(-DAY_MS);
    rig->s.lingers = false;
    nrd_ingress_unclaim(ingress, ID_A, 1);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "tick");
    nrd_ingress_close(ingress, 1000);
}

/* Beside producers of the partition, one after the other, all that waits is committed. */
static void test_claims_of_a_busy_partition(Rig *rig, gconstpointer data)
{
    enum { N = 200 };
    NrdIngress *ingress = start(&rig->f, &rig->s);
    for (int i = 0; i < N; i++) {
        g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
        g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
        g_assert_cmpint(put(ingress, 1, "tock"), ==, 0);
        nrd_ingress_unclaim(ingress, ID_A, 1);
    }
    wait_until_dispatched(ingress);
    g_assert_cmpuint(rig->s.records[1]->len, ==, 2 * N);
    nrd_ingress_close(ingress, 1000);
}

/* Beside another one a claim takes nothing back: it waits for no commit that hangs, and writes nothing. */
static void test_claim_beside_another(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    rig->s.hangs = true;
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    fault_set(FAULT_RENAME, 1, -EIO, true);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    fault_clear();
    nrd_ingress_unclaim(ingress, ID_A, 1);
    rig->s.hangs = false;
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "tick");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
}

/* After a crash somebody claims the partition before the replay has looked: he waits until it has. */
static void test_claim_waits_for_the_replay(Rig *rig, gconstpointer data)
{
    rig->s.away = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0); /* names offset 0, and is not committed */
    fixture_copy(&rig->f, &rig->crashed);
    nrd_ingress_close(ingress, 10);
    rig->s.away = false;
    rig->s.slow_us = 50000;
    ingress = start(&rig->crashed, &rig->s);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    pthread_mutex_lock(&rig->s.lock);
    g_ptr_array_add(rig->s.records[1], g_strdup("tick"));
    pthread_mutex_unlock(&rig->s.lock);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "tick tick");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
}

static void wait_until_somewhere(Store *s, const char *record)
{
    for (int i = 0; i < WAIT_MS; i++) {
        pthread_mutex_lock(&s->lock);
        unsigned n = count(s, record);
        pthread_mutex_unlock(&s->lock);
        if (n > 0)
            return;
        g_usleep(1000);
    }
    g_assert_not_reached();
}

/* As a crash left it whose last commit was of "a", to partition 1, and behind it an entry of "b" that was not committed. The
 * checkpoint knows neither. */
static void crash_after_a_commit(Fixture *f, Fixture *crashed, Store *s)
{
    s->away = true;
    NrdIngress *ingress = start(f, s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    g_usleep(20000);
    fixture_copy(f, crashed);
    nrd_ingress_close(ingress, 10);
    pthread_mutex_lock(&s->lock);
    g_ptr_array_add(s->records[1], g_strdup("a"));
    pthread_mutex_unlock(&s->lock);
    s->away = false;
}

/* What may be committed already in a partition that cannot be looked into is not committed a second time somewhere else: it
 * waits, in the place of nothing that is new. */
static void test_replay_waits_for_its_partition(Rig *rig, gconstpointer data)
{
    crash_after_a_commit(&rig->f, &rig->crashed, &rig->s);
    rig->s.fail[1] = -1;
    NrdIngress *ingress = start(&rig->crashed, &rig->s);
    wait_for_failures(5);
    for (int i = 2; i < N_PARTITIONS; i++)
        g_assert_cmpuint(rig->s.records[i]->len, ==, 0);
    g_assert_cmpint(put(ingress, 1, "new"), ==, 0); /* goes to a sibling */
    wait_until_somewhere(&rig->s, "new");
    assert_store(&rig->s, 1, "a");
    rig->s.fail[1] = 0;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a b");
    g_assert_cmpuint(rig->s.log->len, ==, 2); /* b and new, once each */
    nrd_ingress_close(ingress, 1000);
}

static void kick_often(NrdIngress *ingress)
{
    for (int i = 0; i < 20; i++) {
        nrd_ingress_kick(ingress);
        g_usleep(5000);
    }
}

/* What stands aside waits itself for what was before it and went to a sibling; when that is done it goes on. */
static void test_what_stands_aside_waits_no_longer_than_it_must(Rig *rig, gconstpointer data)
{
    rig->s.poisoned[1] = true;
    rig->s.out[2] = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0); /* to 2 */
    wait_rerouted(rerouted);
    rig->s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    nrd_ingress_close(ingress, 50);
    rig->s.readable = true;
    rig->s.shut[1] = true; /* `second` cannot be looked up there */
    rig->s.poisoned[2] = rig->s.poisoned[3] = true;
    rig->s.out[2] = false;
    rig->s.out[0] = true;
    rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    ingress = start(&rig->f, &rig->s);
    wait_rerouted(rerouted); /* `first`, from 2 to 0, which does not take it either */
    rig->s.poisoned[3] = false;
    kick_often(ingress); /* `second` finds a sibling, and stands aside */
    rig->s.shut[1] = false;
    kick_often(ingress); /* it is not there, so it waits for `first` */
    assert_store(&rig->s, 1, "");
    rig->s.out[0] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(at_in_log(&rig->s, "first"), <, at_in_log(&rig->s, "second"));
    assert_store(&rig->s, 0, "first");
    assert_store(&rig->s, 1, "second");
    nrd_ingress_close(ingress, 1000);
}

/* As test_replay_waits_for_its_partition, when somebody has opened the partition again, and claims it. */
static void test_claim_of_a_partition_that_comes_back(Rig *rig, gconstpointer data)
{
    crash_after_a_commit(&rig->f, &rig->crashed, &rig->s);
    rig->s.fail[1] = -1;
    NrdIngress *ingress = start(&rig->crashed, &rig->s);
    wait_for_failures(5);
    rig->s.fail[1] = 0;
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a b");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
}

/* Without a claim the records at the named offset are its own. */
static void test_recognized(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start(&rig->f, &rig->s);
    rig->s.away = true;
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_usleep(20000);
    fixture_copy(&rig->f, &rig->crashed); /* in the WAL, not committed */
    rig->s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&rig->s, 1, "a");
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED);
    ingress = start(&rig->crashed, &rig->s); /* as if the commit had been the last that was done */
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&rig->s, 1, "a");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED), ==, before + 1);
}

/* One test of the rig. */
#define ADD(name, test) g_test_add("/ingress/dispatch/" name, Rig, NULL, rig_set_up, test, rig_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("claim-takes-names-back", test_claim_takes_names_back);
    ADD("replay-waits-for-its-partition", test_replay_waits_for_its_partition);
    ADD("aside-waits-no-longer-than-it-must", test_what_stands_aside_waits_no_longer_than_it_must);
    ADD("claim-beside-a-commit", test_claim_beside_a_commit);
    ADD("claim-beside-another", test_claim_beside_another);
    ADD("claim-after-a-suspend", test_claim_after_a_suspend);
    ADD("claims-of-a-busy-partition", test_claims_of_a_busy_partition);
    ADD("claim-of-a-partition-that-comes-back", test_claim_of_a_partition_that_comes_back);
    ADD("claim-waits-for-the-replay", test_claim_waits_for_the_replay);
    ADD("recognized", test_recognized);
    return g_test_run();
}
