/* WAL, checkpoint and dispatcher together: crashes at any moment, syncs that fail, and what cannot be written or removed. */
#include "store.h"

#include "engine/base/diag.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct Producer {
    NrdIngress *ingress;
    int number;
    unsigned seed;
    pthread_mutex_t *lock;
    GHashTable *acked; /* of char*; guarded by lock */
    atomic_bool *stop;
    pthread_t thread;
} Producer;

static void *keep_producing(void *data)
{
    Producer *p = data;
    g_autoptr(GRand) rand = g_rand_new_with_seed(p->seed);
    for (int i = 0; !atomic_load(p->stop); i++) {
        NrdEntryDraft *draft = nrd_entry_draft_new();
        g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
        for (int n = g_rand_int_range(rand, 1, 4); n > 0; n--) {
            char *payload = g_strdup_printf("%d-%d-%d", p->number, i, n);
            g_ptr_array_add(names, payload);
            nrd_entry_draft_add(draft, (uint32_t)g_rand_int_range(rand, 0, N_PARTITIONS), NULL, 0, payload,
                                strlen(payload));
        }
        if (put_draft(p->ingress, draft, NULL) < 0)
            continue;
        pthread_mutex_lock(p->lock);
        for (guint n = 0; n < names->len; n++)
            g_hash_table_add(p->acked, g_strdup(names->pdata[n]));
        pthread_mutex_unlock(p->lock);
    }
    return NULL;
}

static void copy_store(Store *from, Store *to)
{
    for (int p = 0; p < N_PARTITIONS; p++) {
        for (guint i = 0; i < from->records[p]->len; i++)
            g_ptr_array_add(to->records[p], g_strdup(from->records[p]->pdata[i]));
    }
}

static GPtrArray *copy_acked(GHashTable *acked, pthread_mutex_t *lock)
{
    GPtrArray *copy = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter iter;
    gpointer key;
    pthread_mutex_lock(lock);
    g_hash_table_iter_init(&iter, acked);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        g_ptr_array_add(copy, g_strdup(key));
    pthread_mutex_unlock(lock);
    return copy;
}

/* Each record once; those that were acknowledged all there. */
static void assert_exactly_once(Store *s, GPtrArray *acked)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    for (int p = 0; p < N_PARTITIONS; p++) {
        for (guint i = 0; i < s->records[p]->len; i++) {
            if (!g_hash_table_add(seen, s->records[p]->pdata[i]))
                g_error("%s is there twice", (char *)s->records[p]->pdata[i]);
        }
    }
    for (guint i = 0; i < acked->len; i++) {
        if (!g_hash_table_contains(seen, acked->pdata[i]))
            g_error("%s was acknowledged and is lost", (char *)acked->pdata[i]);
    }
}

static void crash_and_check(Fixture *f, Store *s, GHashTable *acked_now, pthread_mutex_t *lock)
{
    Fixture crashed;
    Store after;
    fixture_make(&crashed);
    store_init(&after);
    after.cold = true;
    g_autoptr(GPtrArray) acked = copy_acked(acked_now, lock);
    pthread_mutex_lock(&s->lock); /* no commit while the picture is taken */
    fixture_copy(f, &crashed);
    copy_store(s, &after);
    pthread_mutex_unlock(&s->lock);
    NrdIngress *ingress = start(&crashed, &after);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_exactly_once(&after, acked);
    store_clear(&after);
    fixture_remove(&crashed);
}

static guint n_acked(GHashTable *acked, pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    guint n = g_hash_table_size(acked);
    pthread_mutex_unlock(lock);
    return n;
}

static void run_with_crashes(bool moves, bool faults)
{
    enum { N_ROUNDS = 25, N_RECORDS = 50 };
    Fixture f;
    Store s;
    Producer producers[4];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    atomic_bool stop = false;
    g_autoptr(GHashTable) acked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    fixture_set_up(&f);
    store_init(&s);
    s.cold = true;
    NrdIngress *ingress = start_with(&f, &s, 4096, 2000);
    for (int i = 0; i < 4; i++) {
        producers[i] = (Producer){ ingress, i, (unsigned)i, &lock, acked, &stop, 0 };
        pthread_create(&producers[i].thread, NULL, keep_producing, &producers[i]);
    }
    for (int i = 0; i < N_ROUNDS || (n_acked(acked, &lock) <= N_RECORDS && i < WAIT_MS / 7); i++) {
        g_usleep(7000);
        s.poisoned[1] = moves && i % 3 == 0;
        s.fail[2] = moves && i % 4 == 0 ? 3 : 0;
        if (faults && i % 5 == 0)
            fault_set(FAULT_FDATASYNC, 2, -EIO, i % 2 == 0);
        else
            fault_clear();
        if (!faults)
            crash_and_check(&f, &s, acked, &lock);
    }
    fault_clear();
    s.poisoned[1] = false;
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(producers[i].thread, NULL);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    g_autoptr(GPtrArray) all = copy_acked(acked, &lock);
    g_test_message("%u records acknowledged", all->len);
    g_assert_cmpuint(all->len, >, N_RECORDS);
    assert_exactly_once(&s, all);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void test_crashes(void)
{
    run_with_crashes(false, false);
}

static void test_crashes_with_moves(void)
{
    run_with_crashes(true, false);
}

static void test_syncs_that_fail(void)
{
    run_with_crashes(true, true);
}

static void test_checkpoint_fails(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start_with(&rig->f, &rig->s, 0, 50);
    fault_set(FAULT_RENAME, 1, -EIO, true);
    for (int i = 0; i < 5; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, 0, payload), ==, 0);
    }
    wait_until_dispatched(ingress);
    for (int i = 0; atomic_load(&fault_fired) == 0 && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpint(atomic_load(&fault_fired), >, 0);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), >=, 1); /* the last keeps the sequences */
    nrd_ingress_close(ingress, 1000);
    fault_clear();
    ingress = start(&rig->f, &rig->s); /* what is left is looked up and found */
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&rig->s, 0, "0 1 2 3 4");
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 0);
    g_assert_cmpuint(count(&rig->s, "3"), ==, 1);
}

static void test_segments_that_cannot_be_removed(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start_with(&rig->f, &rig->s, 0, 50);
    fault_set(FAULT_UNLINK, 1, -EPERM, true);
    for (int i = 0; i < 5; i++)
        g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 5);
    fault_clear();
    ingress = start(&rig->f, &rig->s);
    g_assert_false(nrd_ingress_holds(ingress, ID_A)); /* the checkpoint knows them as done */
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(rig->s.records[0]->len, ==, 5);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 0);
}

/* One test of the rig. */
#define ADD(name, test) g_test_add("/ingress/dispatch/" name, Rig, NULL, rig_set_up, test, rig_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    g_test_add_func("/ingress/dispatch/crashes", test_crashes);
    g_test_add_func("/ingress/dispatch/crashes-with-moves", test_crashes_with_moves);
    g_test_add_func("/ingress/dispatch/syncs-that-fail", test_syncs_that_fail);
    ADD("checkpoint-fails", test_checkpoint_fails);
    ADD("segments-that-cannot-be-removed", test_segments_that_cannot_be_removed);
    return g_test_run();
}
