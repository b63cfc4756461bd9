/* WAL, checkpoint and dispatcher together: what is acknowledged is dispatched, with little memory, on full disks, without threads. */
#include "store.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "tests/unit/few_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int open_plainly(Fixture *f, Store *s, NrdIngress **ret_ingress)
{
    NrdIngressOptions options = {
        .root_fd = f->root_fd,
        .ops = { commit, warm, present, sibling, next_offset, s },
        .n_workers = 4,
    };
    return nrd_ingress_open(&options, ret_ingress);
}

typedef struct Lines {
    pthread_mutex_t lock;
    GString *text;
    int n_released;
} Lines;

static void on_committed(void *user_data, uint32_t partition, uint64_t first, uint64_t last)
{
    Lines *lines = user_data;
    pthread_mutex_lock(&lines->lock);
    g_string_append_printf(lines->text, "%u:%u-%u ", partition, (unsigned)first, (unsigned)last);
    pthread_mutex_unlock(&lines->lock);
}

static void on_release(void *user_data)
{
    ((Lines *)user_data)->n_released++;
}

static void test_dispatched(Rig *rig, gconstpointer data)
{
    Lines lines = { PTHREAD_MUTEX_INITIALIZER, g_string_new(NULL), 0 };
    NrdIngressSink sink = { on_committed, on_release, &lines };
    NrdIngress *ingress = start(&rig->f, &rig->s);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 2, "k", 1, "a", 1);
    nrd_entry_draft_add(draft, 2, NULL, 0, "b", 1);
    g_assert_cmpint(put_draft(ingress, draft, &sink), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 2, "c"), ==, 0);
    g_assert_cmpint(put(ingress, 0, "d"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 2, "a b c");
    assert_store(&rig->s, 0, "d");
    g_assert_cmpstr(lines.text->str, ==, "2:0-1 ");
    g_assert_cmpint(lines.n_released, ==, 1);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 0); /* all is done: nothing is kept */
    ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 2, "e"), ==, 0);
    nrd_ingress_close(ingress, 1000);
    assert_store(&rig->s, 2, "a b c e");
    g_string_free(lines.text, TRUE);
}

static atomic_bool sync_waits, sync_begun;
static NrdIo slow_io;

static int slow_fdatasync(int fd)
{
    atomic_store(&sync_begun, true);
    while (atomic_load(&sync_waits))
        g_usleep(500);
    return nrd_io_real.fdatasync(fd);
}

static void *put_in_thread(void *ingress)
{
    g_assert_cmpint(put(ingress, 1, "late"), ==, 0);
    return NULL;
}

static void *let_sync_end(void *data)
{
    g_usleep(100000);
    atomic_store(&sync_waits, false);
    return NULL;
}

/* A close that finds an append on its way to the disk: it is acknowledged, so it is dispatched, now or by the next start. */
static void test_closed_during_an_append(Rig *rig, gconstpointer data)
{
    pthread_t writer, waker;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    const NrdIo *before = nrd_io;
    slow_io = *nrd_io;
    slow_io.fdatasync = slow_fdatasync;
    nrd_io = &slow_io;
    atomic_store(&sync_begun, false);
    atomic_store(&sync_waits, true);
    g_assert_cmpint(pthread_create(&writer, NULL, put_in_thread, ingress), ==, 0);
    while (!atomic_load(&sync_begun))
        g_usleep(500);
    g_assert_cmpint(pthread_create(&waker, NULL, let_sync_end, NULL), ==, 0);
    nrd_ingress_close(ingress, 1000);
    pthread_join(writer, NULL);
    pthread_join(waker, NULL);
    nrd_io = before;
    ingress = start(&rig->f, &rig->s);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "late");
    nrd_ingress_close(ingress, 1000);
}

/* What gathers while a commit runs is committed at once. */
static void test_batches(Rig *rig, gconstpointer data)
{
    rig->s.slow_us = 20000;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    for (int i = 0; i < 50; i++)
        g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(rig->s.records[1]->len, ==, 50);
    g_assert_cmpuint(rig->s.n_commits, <, 25);
    nrd_ingress_close(ingress, 1000);
}

/* Flips a bit of these bytes in the only segment. */
static void damage(Fixture *f, const char *bytes)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *path = fixture_file(f, names->pdata[i]);
        g_autofree char *text = NULL;
        gsize size;
        if (!g_str_has_suffix(path, ".wal"))
            continue;
        g_assert_true(g_file_get_contents(path, &text, &size, NULL));
        const char *at = memmem(text, size, bytes, strlen(bytes));
        g_assert_nonnull(at);
        FILE *file = fopen(path, "r+");
        g_assert_nonnull(file);
        g_assert_cmpint(fseek(file, at - text, SEEK_SET), ==, 0);
        g_assert_cmpint(fputc(at[0] ^ 1, file), !=, EOF);
        g_assert_cmpint(fclose(file), ==, 0);
    }
}

/* What is damaged before it could be read back is lost, told and counted: alone, whatever was to be committed with it. */
static void test_damaged_before_its_commit(void)
{
    static const char *const lost[] = { "first", "middle", "last" };
    static const char *const left[] = { "middle last", "first last", "first middle" };
    for (size_t i = 0; i < G_N_ELEMENTS(lost); i++) {
        Fixture f;
        Store s;
        fixture_set_up(&f);
        store_init(&s);
        s.fail[0] = -1;
        for (int k = 1; k < N_PARTITIONS; k++)
            s.poisoned[k] = true;
        uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_LOST);
        NrdIngress *ingress = start_with(&f, &s, 1, 0);
        for (size_t k = 0; k < G_N_ELEMENTS(lost); k++)
            g_assert_cmpint(put(ingress, 0, lost[k]), ==, 0);
        damage(&f, lost[i]);
        s.fail[0] = 0;
        nrd_ingress_kick(ingress);
        wait_until_dispatched(ingress);
        assert_store(&s, 0, left[i]);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_LOST), ==, before + 1);
        nrd_ingress_close(ingress, 1000);
        store_clear(&s);
        fixture_tear_down(&f);
    }
}

/* What does not fit in memory is read from the WAL again. */
static void test_little_memory(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = start_with(&rig->f, &rig->s, 1, 300);
    for (int i = 0; i < 40; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, (uint32_t)i % 2, payload), ==, 0);
    }
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 0, "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38");
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&rig->f, ".wal"), ==, 0);
}

static void test_commits_fail_for_a_while(Rig *rig, gconstpointer data)
{
    rig->s.fail[1] = 2;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "a b");
    nrd_ingress_close(ingress, 1000);
}

static void test_goes_to_a_sibling(Rig *rig, gconstpointer data)
{
    rig->s.fail[1] = -1;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    wait_until_dispatched(ingress); /* after three passes */
    assert_store(&rig->s, 2, "a");
    rig->s.poisoned[1] = true; /* at once */
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 2, "a b");
    assert_store(&rig->s, 1, "");
    nrd_ingress_close(ingress, 1000);
}

static NrdIngress *open_nameless(Fixture *f, Store *s)
{
    NrdIngress *ingress = NULL;
    NrdIngressOptions options = { .root_fd = f->root_fd,
                                  .ops = { commit, warm, present, sibling, next_offset, s },
                                  .nameless = true };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    return ingress;
}

/* Somebody has put the same bytes where an entry names its own: they are not taken for it, now or by the next start. */
static void test_opened_late(void)
{
    for (int crash = 0; crash < 2; crash++) {
        Fixture f, after;
        Store s;
        fixture_set_up(&f);
        store_init(&s);
        s.away = true;
        NrdIngress *ingress = start(&f, &s);
        g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
        nrd_ingress_close(ingress, 10);
        g_ptr_array_add(s.records[1], g_strdup("a"));
        ingress = open_nameless(&f, &s);
        fixture_make(&after);
        fixture_copy(&f, &after); /* as a crash would leave it before anything is dispatched */
        if (crash) {
            nrd_ingress_close(ingress, 0);
            s.away = false;
            ingress = start(&after, &s);
        } else {
            s.away = false;
            nrd_ingress_start(ingress);
        }
        g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0); /* a claim of no consequence */
        nrd_ingress_unclaim(ingress, ID_A, 1);
        wait_until_dispatched(ingress);
        assert_store(&s, 1, "a a");
        nrd_ingress_close(ingress, 1000);
        fixture_remove(&after);
        store_clear(&s);
        fixture_tear_down(&f);
    }
}

/* What is acknowledged waits where it is, however often it fails, since a sibling has no more room; then it goes on. */
static void test_full_disk_moves_nothing(Rig *rig, gconstpointer data)
{
    rig->s.full = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    for (int i = 0; i < 5; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, 1, payload), ==, 0);
    }
    wait_for_failures(5);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED), ==, rerouted);
    rig->s.full = false;
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 1, "0 1 2 3 4");
    g_assert_cmpuint(rig->s.n_commits, >, 5); /* the first ones go alone: all at once may not fit */
    nrd_ingress_close(ingress, 1000);
}

/* Refused before the records that wait have no room any more. */
static void test_append_leaves_room(Rig *rig, gconstpointer data)
{
    g_autofree char *payload = g_strnfill(100000, 'x');
    rig->s.away = true;
    NrdIngress *ingress = start(&rig->f, &rig->s);
    atomic_store(&fault_free_bytes, (1 << 20) + 3 * 100000);
    g_assert_cmpint(put(ingress, 1, payload), ==, 0);
    g_assert_cmpint(put(ingress, 1, payload), ==, -ENOSPC); /* 100000 wait, and this would be there twice */
    g_assert_cmpint(put(ingress, 1, "small"), ==, 0);
    atomic_store(&fault_free_bytes, 1 << 20);
    g_assert_cmpint(put(ingress, 1, "small"), ==, -ENOSPC);
    rig->s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 1, "small"), ==, -ENOSPC);
    atomic_store(&fault_free_bytes, -1);
    g_assert_cmpint(put(ingress, 1, "last"), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(rig->s.records[1]->len, ==, 3);
    nrd_ingress_close(ingress, 1000);
}

/* Bytes are bounded as parts are, and one topic has a quarter. */
static void test_bytes_are_bounded(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = NULL;
    g_autofree char *payload = g_strnfill(10000, 'x');
    rig->s.away = true;
    NrdIngressOptions options = { .root_fd = rig->f.root_fd,
                                  .ops = { commit, warm, present, sibling, next_offset, &rig->s },
                                  .max_bytes = 100000 };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(put(ingress, 1, payload), ==, 0);
    g_assert_cmpint(put(ingress, 1, payload), ==, -EAGAIN);
    g_assert_cmpint(nrd_ingress_refusal(ingress, ID_A), ==, -EAGAIN);
    g_assert_cmpint(nrd_ingress_refusal(ingress, ID_B), ==, 0);
    nrd_ingress_forget(ingress, ID_A);
    g_assert_cmpint(nrd_ingress_refusal(ingress, ID_A), ==, 0);
    g_assert_cmpint(put(ingress, 1, payload), ==, -EAGAIN);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 1, NULL, 0, payload, 10000);
    g_assert_cmpint(put_draft_of(ingress, draft, ID_B, NULL), ==, 0);
    nrd_ingress_close(ingress, 10);
}

/* Without a thread there is no ingress. With the one that it begins with everything is dispatched, and checkpointed. */
static void test_few_threads(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = NULL;
    atomic_store(&n_threads_left, 0);
    g_assert_cmpint(open_plainly(&rig->f, &rig->s, &ingress), ==, -EAGAIN);
    atomic_store(&n_threads_left, 1);
    g_assert_cmpint(open_plainly(&rig->f, &rig->s, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        g_assert_cmpint(put(ingress, i, "a"), ==, 0);
    wait_until_dispatched(ingress);
    rig->s.fail[0] = 2;
    g_assert_cmpint(put(ingress, 0, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 0, "a b");
    g_assert_cmpint(atomic_load(&n_threads_left), ==, 0);
    atomic_store(&n_threads_left, -1);
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS), ==, 0);
}

/* Who opens it may yet give up: until the start nothing is dispatched, and a close leaves it to the next run at once. */
static void test_held(Rig *rig, gconstpointer data)
{
    NrdIngress *ingress = NULL;
    g_assert_cmpint(open_plainly(&rig->f, &rig->s, &ingress), ==, 0);
    g_assert_cmpint(put(ingress, 0, "a"), ==, 0);
    g_usleep(100000);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    assert_store(&rig->s, 0, "");
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS * 1000), ==, 0);
    assert_store(&rig->s, 0, "");
    ingress = start(&rig->f, &rig->s);
    wait_until_dispatched(ingress);
    assert_store(&rig->s, 0, "a");
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS), ==, 0);
}

/* One test of the rig. */
#define ADD(name, test) g_test_add("/ingress/dispatch/" name, Rig, NULL, rig_set_up, test, rig_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("few-threads", test_few_threads);
    ADD("held", test_held);
    g_test_add_func("/ingress/dispatch/opened-late", test_opened_late);
    ADD("full-disk-moves-nothing", test_full_disk_moves_nothing);
    ADD("append-leaves-room", test_append_leaves_room);
    ADD("bytes-are-bounded", test_bytes_are_bounded);
    ADD("dispatched", test_dispatched);
    ADD("closed-during-an-append", test_closed_during_an_append);
    ADD("batches", test_batches);
    ADD("little-memory", test_little_memory);
    g_test_add_func("/ingress/dispatch/damaged-before-its-commit", test_damaged_before_its_commit);
    ADD("commits-fail-for-a-while", test_commits_fail_for_a_while);
    ADD("goes-to-a-sibling", test_goes_to_a_sibling);
    return g_test_run();
}
