/* WAL, checkpoint and dispatcher together, over partitions that are lists in memory: order, retries, siblings, topics
 * that go, and crashes at any moment. */
#include "fixture.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/ingress/ingress.h"
#include "engine/io/io.h"
#include "tests/unit/few_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define N_PARTITIONS 4
#define WAIT_MS 20000
#define DAY_MS ((int64_t)24 * 3600 * 1000)

/* A topic that lives in memory: what it holds is what a disk would. */
typedef struct Store {
    pthread_mutex_t lock;
    GPtrArray *records[N_PARTITIONS]; /* of char* */
    /* set by the test while commits are under way */
    atomic_int fail[N_PARTITIONS]; /* passes that will fail; -1: all */
    atomic_bool poisoned[N_PARTITIONS];
    atomic_bool out[N_PARTITIONS]; /* of service: what is there waits, and goes to no sibling */
    atomic_bool gone, away, cold, full;
    atomic_bool warmed[N_PARTITIONS];
    atomic_bool readable;           /* partitions that fail can be looked into, as poisoned ones always can */
    atomic_bool shut[N_PARTITIONS]; /* ... but for those that cannot be opened */
    atomic_int slow_us;
    atomic_bool hangs;   /* commits of incarnation ID_A do not return */
    atomic_bool lingers; /* ... when they have been made */
    atomic_uint n_commits;
    GPtrArray *log; /* of char*: the records of all partitions as they were committed */
} Store;

static void store_init(Store *s)
{
    *s = (Store){ 0 };
    pthread_mutex_init(&s->lock, NULL);
    s->log = g_ptr_array_new_with_free_func(g_free);
    for (int i = 0; i < N_PARTITIONS; i++)
        s->records[i] = g_ptr_array_new_with_free_func(g_free);
}

static void store_clear(Store *s)
{
    for (int i = 0; i < N_PARTITIONS; i++)
        g_ptr_array_unref(s->records[i]);
    g_ptr_array_unref(s->log);
    pthread_mutex_destroy(&s->lock);
}

static char *record_text(const NrdEntryRecord *record)
{
    return g_strndup((const char *)record->payload, record->payload_size);
}

static NrdIngressResult may_commit(Store *s, uint32_t partition)
{
    if (s->gone)
        return NRD_INGRESS_GONE;
    if (s->away || s->out[partition])
        return NRD_INGRESS_AWAY;
    if (s->full)
        return NRD_INGRESS_NO_ROOM;
    if (s->poisoned[partition])
        return NRD_INGRESS_POISONED;
    if (s->shut[partition])
        return NRD_INGRESS_FAILED;
    if (s->fail[partition] != 0) {
        s->fail[partition] -= s->fail[partition] > 0;
        return NRD_INGRESS_FAILED;
    }
    return NRD_INGRESS_DONE;
}

static NrdIngressResult commit(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slices,
                               size_t n_slices, uint64_t *ret_first)
{
    Store *s = user_data;
    g_assert_cmpstr(target->topic, ==, "t");
    if (s->slow_us > 0)
        g_usleep((gulong)s->slow_us);
    while (atomic_load(&s->hangs) && strcmp(target->id, ID_A) == 0)
        g_usleep(500);
    pthread_mutex_lock(&s->lock);
    NrdIngressResult result = may_commit(s, target->partition);
    *ret_first = s->records[target->partition]->len;
    for (size_t i = 0; result == NRD_INGRESS_DONE && i < n_slices; i++) {
        NrdIngressSlice slice = slices[i];
        NrdEntryRecord record;
        while (nrd_entry_next_record(&slice.records, &slice.size, &record)) {
            g_ptr_array_add(s->records[target->partition], record_text(&record));
            g_ptr_array_add(s->log, record_text(&record));
        }
    }
    s->n_commits++;
    pthread_mutex_unlock(&s->lock);
    while (atomic_load(&s->lingers) && strcmp(target->id, ID_A) == 0)
        g_usleep(500);
    return result;
}

static NrdIngressResult present(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slice,
                                uint64_t offset, bool *ret_present)
{
    Store *s = user_data;
    NrdIngressSlice left = *slice;
    NrdEntryRecord record;
    bool same = true;
    if (s->slow_us > 0)
        g_usleep((gulong)s->slow_us);
    pthread_mutex_lock(&s->lock);
    NrdIngressResult result = may_commit(s, target->partition);
    if (result == NRD_INGRESS_POISONED || (s->readable && !s->shut[target->partition] && result == NRD_INGRESS_FAILED))
        result = NRD_INGRESS_DONE;
    const GPtrArray *records = s->records[target->partition];
    for (uint64_t at = offset; same && nrd_entry_next_record(&left.records, &left.size, &record); at++) {
        g_autofree char *text = record_text(&record);
        same = at < records->len && strcmp(records->pdata[at], text) == 0;
    }
    pthread_mutex_unlock(&s->lock);
    *ret_present = same;
    return result;
}

static bool sibling(void *user_data, const NrdIngressTarget *target, uint32_t *ret_partition)
{
    Store *s = user_data;
    for (uint32_t i = 1; i < N_PARTITIONS; i++) {
        uint32_t partition = (target->partition + i) % N_PARTITIONS;
        if (s->poisoned[partition])
            continue;
        *ret_partition = partition;
        return true;
    }
    return false;
}

static bool next_offset(void *user_data, const NrdIngressTarget *target, uint64_t *ret_offset)
{
    Store *s = user_data;
    pthread_mutex_lock(&s->lock);
    *ret_offset = s->records[target->partition]->len;
    bool known = !s->cold || s->warmed[target->partition];
    pthread_mutex_unlock(&s->lock);
    return known;
}

static void warm(void *user_data, const NrdIngressTarget *target)
{
    Store *s = user_data;
    pthread_mutex_lock(&s->lock);
    s->warmed[target->partition] = true;
    pthread_mutex_unlock(&s->lock);
}

static int open_plainly(Fixture *f, Store *s, NrdIngress **ret_ingress)
{
    NrdIngressOptions options = {
        .root_fd = f->root_fd,
        .ops = { commit, warm, present, sibling, next_offset, s },
        .n_workers = 4,
    };
    return nrd_ingress_open(&options, ret_ingress);
}

static NrdIngress *start_with(Fixture *f, Store *s, uint64_t memory_bytes, uint64_t segment_bytes)
{
    NrdIngress *ingress = NULL;
    NrdIngressOptions options = {
        .root_fd = f->root_fd,
        .ops = { commit, warm, present, sibling, next_offset, s },
        .n_workers = 4,
        .checkpoint_ms = 5,
        .memory_bytes = memory_bytes,
        .segment_bytes = segment_bytes,
    };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    return ingress;
}

static NrdIngress *start(Fixture *f, Store *s)
{
    return start_with(f, s, 0, 0);
}

static void store_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

/* One entry with a record for each partition named in `partitions`: "<partition> <payload>"... */
static int put_draft_of(NrdIngress *ingress, NrdEntryDraft *draft, const char *id, const NrdIngressSink *sink)
{
    static const NrdIngressSink none = { 0 };
    atomic_int error = 1;
    nrd_ingress_append(ingress, draft, "t", id, sink ? sink : &none, store_error, &error);
    for (int i = 0; atomic_load(&error) == 1 && i < WAIT_MS * 5; i++)
        g_usleep(200);
    g_assert_cmpint(atomic_load(&error), !=, 1);
    nrd_entry_draft_free(draft);
    return atomic_load(&error);
}

static int put_draft(NrdIngress *ingress, NrdEntryDraft *draft, const NrdIngressSink *sink)
{
    return put_draft_of(ingress, draft, ID_A, sink);
}

static int put(NrdIngress *ingress, uint32_t partition, const char *payload)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, partition, NULL, 0, payload, strlen(payload));
    return put_draft(ingress, draft, NULL);
}

static void wait_until_dispatched(NrdIngress *ingress)
{
    for (int i = 0; nrd_ingress_holds(ingress, ID_A) && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_false(nrd_ingress_holds(ingress, ID_A));
}

static void assert_store(Store *s, uint32_t partition, const char *expected)
{
    g_autoptr(GString) text = g_string_new(NULL);
    pthread_mutex_lock(&s->lock);
    for (guint i = 0; i < s->records[partition]->len; i++)
        g_string_append_printf(text, "%s%s", i > 0 ? " " : "", (char *)s->records[partition]->pdata[i]);
    pthread_mutex_unlock(&s->lock);
    g_assert_cmpstr(text->str, ==, expected);
}

/* How often the record is there, in all partitions. */
static unsigned count(Store *s, const char *record)
{
    unsigned n = 0;
    for (int p = 0; p < N_PARTITIONS; p++) {
        for (guint i = 0; i < s->records[p]->len; i++)
            n += strcmp(s->records[p]->pdata[i], record) == 0;
    }
    return n;
}

/* ---- */

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

static void test_dispatched(void)
{
    Fixture f;
    Store s;
    Lines lines = { PTHREAD_MUTEX_INITIALIZER, g_string_new(NULL), 0 };
    NrdIngressSink sink = { on_committed, on_release, &lines };
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start(&f, &s);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 2, "k", 1, "a", 1);
    nrd_entry_draft_add(draft, 2, NULL, 0, "b", 1);
    g_assert_cmpint(put_draft(ingress, draft, &sink), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 2, "c"), ==, 0);
    g_assert_cmpint(put(ingress, 0, "d"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 2, "a b c");
    assert_store(&s, 0, "d");
    g_assert_cmpstr(lines.text->str, ==, "2:0-1 ");
    g_assert_cmpint(lines.n_released, ==, 1);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0); /* all is done: nothing is kept */
    ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 2, "e"), ==, 0);
    nrd_ingress_close(ingress, 1000);
    assert_store(&s, 2, "a b c e");
    g_string_free(lines.text, TRUE);
    store_clear(&s);
    fixture_tear_down(&f);
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
static void test_closed_during_an_append(void)
{
    Fixture f;
    Store s;
    pthread_t writer, waker;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start(&f, &s);
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
    ingress = start(&f, &s);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "late");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* What gathers while a commit runs is committed at once. */
static void test_batches(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.slow_us = 20000;
    NrdIngress *ingress = start(&f, &s);
    for (int i = 0; i < 50; i++)
        g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(s.records[1]->len, ==, 50);
    g_assert_cmpuint(s.n_commits, <, 25);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
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
static void test_little_memory(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start_with(&f, &s, 1, 300);
    for (int i = 0; i < 40; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, (uint32_t)i % 2, payload), ==, 0);
    }
    wait_until_dispatched(ingress);
    assert_store(&s, 0, "0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38");
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void test_commits_fail_for_a_while(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.fail[1] = 2;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a b");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void test_goes_to_a_sibling(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.fail[1] = -1;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    wait_until_dispatched(ingress); /* after three passes */
    assert_store(&s, 2, "a");
    s.poisoned[1] = true; /* at once */
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 2, "a b");
    assert_store(&s, 1, "");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* ---- opened late ---- */

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

/* ---- full disks ---- */

static void wait_for_failures(uint64_t n)
{
    uint64_t wanted = nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT) + n;
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT) < wanted && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT), >=, wanted);
}

/* What is acknowledged waits where it is, however often it fails, since a sibling has no more room; then it goes on. */
static void test_full_disk_moves_nothing(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.full = true;
    NrdIngress *ingress = start(&f, &s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    for (int i = 0; i < 5; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, 1, payload), ==, 0);
    }
    wait_for_failures(5);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED), ==, rerouted);
    s.full = false;
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "0 1 2 3 4");
    g_assert_cmpuint(s.n_commits, >, 5); /* the first ones go alone: all at once may not fit */
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Refused before the records that wait have no room any more. */
static void test_append_leaves_room(void)
{
    Fixture f;
    Store s;
    g_autofree char *payload = g_strnfill(100000, 'x');
    fixture_set_up(&f);
    store_init(&s);
    s.away = true;
    NrdIngress *ingress = start(&f, &s);
    atomic_store(&fault_free_bytes, (1 << 20) + 3 * 100000);
    g_assert_cmpint(put(ingress, 1, payload), ==, 0);
    g_assert_cmpint(put(ingress, 1, payload), ==, -ENOSPC); /* 100000 wait, and this would be there twice */
    g_assert_cmpint(put(ingress, 1, "small"), ==, 0);
    atomic_store(&fault_free_bytes, 1 << 20);
    g_assert_cmpint(put(ingress, 1, "small"), ==, -ENOSPC);
    s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 1, "small"), ==, -ENOSPC);
    atomic_store(&fault_free_bytes, -1);
    g_assert_cmpint(put(ingress, 1, "last"), ==, 0);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(s.records[1]->len, ==, 3);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Bytes are bounded as parts are, and one topic has a quarter. */
static void test_bytes_are_bounded(void)
{
    Fixture f;
    Store s;
    NrdIngress *ingress = NULL;
    g_autofree char *payload = g_strnfill(10000, 'x');
    fixture_set_up(&f);
    store_init(&s);
    s.away = true;
    NrdIngressOptions options = { .root_fd = f.root_fd,
                                  .ops = { commit, warm, present, sibling, next_offset, &s },
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
    store_clear(&s);
    fixture_tear_down(&f);
}

/* ---- order around failures ---- */

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

static int at_in_log(Store *s, const char *record)
{
    for (guint i = 0; i < s->log->len; i++) {
        if (strcmp(s->log->pdata[i], record) == 0)
            return (int)i;
    }
    g_assert_not_reached();
}

/* Sent to a sibling that fails then: what is behind it does not pass when its partition is well again. */
static void test_nothing_overtakes_what_was_moved(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.poisoned[1] = true;
    s.out[2] = true;
    NrdIngress *ingress = start(&f, &s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0);
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED) == rerouted && i < WAIT_MS; i++)
        g_usleep(1000);
    s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "third"), ==, 0);
    g_assert_cmpint(put(ingress, 3, "other"), ==, 0);
    wait_for_record(&s, 3, "other");
    g_usleep(20000); /* time to do it wrongly */
    assert_store(&s, 1, "");
    /* what is in the failing sibling's lane for others is not held up by it */
    s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(at_in_log(&s, "first"), <, at_in_log(&s, "second"));
    assert_store(&s, 2, "first");
    assert_store(&s, 1, "second third");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* The same over a restart: the checkpoint says that the first is with the sibling, the others are with their partition. */
static void test_order_over_a_restart(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.poisoned[1] = true;
    s.out[2] = true;
    NrdIngress *ingress = start(&f, &s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0);
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED) == rerouted && i < WAIT_MS; i++)
        g_usleep(1000);
    s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    nrd_ingress_close(ingress, 50);
    ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "third"), ==, 0);
    g_assert_cmpint(put(ingress, 3, "other"), ==, 0);
    wait_for_record(&s, 3, "other");
    g_usleep(20000);
    assert_store(&s, 1, "");
    s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&s, 2, "first");
    assert_store(&s, 1, "second third");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void wait_rerouted(uint64_t before)
{
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED) == before && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED), >, before);
}

/* A later part that may go is before those that wait; what a replay looks up meanwhile comes back to its place among them. */
static void test_order_after_looking_up(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.poisoned[1] = true;
    s.out[2] = true;
    NrdIngress *ingress = start(&f, &s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "w"), ==, 0);
    wait_rerouted(rerouted);
    s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "z"), ==, 0);
    s.poisoned[0] = true;
    s.out[1] = true;
    g_assert_cmpint(put(ingress, 0, "y"), ==, 0);
    wait_rerouted(rerouted + 1);
    nrd_ingress_close(ingress, 50);
    s.out[1] = false;
    ingress = start(&f, &s);
    wait_for_record(&s, 1, "y");
    s.out[2] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&s, 2, "w");
    assert_store(&s, 1, "y x z");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Siblings that fail as well, which nobody knew: the part tries the next ones without a rest. */
static void test_siblings_that_fail_too(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    for (int i = 0; i < N_PARTITIONS - 1; i++)
        s.fail[i] = -1;
    NrdIngress *ingress = start(&f, &s);
    uint64_t failures = nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT);
    g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    wait_for_record(&s, N_PARTITIONS - 1, "x");
    /* three passes each; while it rests it goes on failing */
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT), <=, failures + 3 * (N_PARTITIONS - 1));
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
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

/* ---- */

/* Nowhere to go: kept, over a restart too, until it is well again. */
static void test_nowhere_to_go(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    for (int i = 0; i < N_PARTITIONS; i++)
        s.poisoned[i] = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    nrd_ingress_close(ingress, 100);
    ingress = start(&f, &s);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    for (int i = 0; i < N_PARTITIONS; i++)
        s.poisoned[i] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a b");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void test_gone_and_away(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.away = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_usleep(50000);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a");
    s.gone = true;
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_DISCARDED);
    g_assert_cmpint(put(ingress, 1, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DISCARDED), ==, before + 1);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* A part that never gets anywhere pins its own segment only, and what is done stays done. */
static void test_one_stuck_partition(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start_with(&f, &s, 0, 200);
    s.away = true;
    g_assert_cmpint(put(ingress, 3, "stuck"), ==, 0);
    g_usleep(50000);
    s.away = false; /* the lane waits seconds by now or is soon tried; the others go on */
    for (int i = 0; i < 40; i++)
        g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpuint(s.records[0]->len, ==, 40);
    g_assert_cmpuint(s.records[3]->len, ==, 1);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* A disk that hangs under every partition of one topic leaves workers to the others. */
static void test_one_topic_hangs(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    atomic_store(&s.hangs, true);
    NrdIngress *ingress = start(&f, &s);
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        g_assert_cmpint(put(ingress, i, "slow"), ==, 0);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, "other", 5);
    g_assert_cmpint(put_draft_of(ingress, draft, ID_B, NULL), ==, 0);
    for (int i = 0; nrd_ingress_holds(ingress, ID_B) && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_false(nrd_ingress_holds(ingress, ID_B));
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    atomic_store(&s.hangs, false);
    wait_until_dispatched(ingress);
    assert_store(&s, 0, "other slow");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* However much a stuck topic's producers write, the others' are taken. */
static void test_one_topic_fills_its_share(void)
{
    Fixture f;
    Store s;
    NrdIngress *ingress = NULL;
    fixture_set_up(&f);
    store_init(&s);
    atomic_store(&s.hangs, true);
    NrdIngressOptions options = {
        .root_fd = f.root_fd,
        .ops = { commit, warm, present, sibling, next_offset, &s },
        .max_parts = 16,
    };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    for (int i = 0; i < 20; i++)
        g_assert_cmpint(put(ingress, 1, "x"), ==, i < 5 ? 0 : -EAGAIN);
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, "other", 5);
    g_assert_cmpint(put_draft_of(ingress, draft, ID_B, NULL), ==, 0);
    atomic_store(&s.hangs, false);
    wait_until_dispatched(ingress);
    g_assert_cmpint(put(ingress, 1, "x"), ==, 0);
    nrd_ingress_close(ingress, 1000);
    assert_store(&s, 0, "other");
    assert_store(&s, 1, "x x x x x x");
    store_clear(&s);
    fixture_tear_down(&f);
}

/* ---- claims ---- */

/* Somebody else commits the very same bytes where an entry named its offset: not taken for its part. */
static void test_claim_takes_names_back(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.away = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0); /* expects offset 0 */
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    pthread_mutex_lock(&s.lock);
    g_ptr_array_add(s.records[1], g_strdup("tick")); /* the other one */
    pthread_mutex_unlock(&s.lock);
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 50);
    s.away = false;
    ingress = start(&f, &s);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "tick tick");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void *claim_it(void *ingress)
{
    return GINT_TO_POINTER(nrd_ingress_claim(ingress, ID_A, 1));
}

/* What has been committed when somebody claims, and is not done with yet, keeps the name that it got: after a crash it is
 * recognized. */
static void test_claim_beside_a_commit(void)
{
    Fixture f, crashed;
    Store s;
    fixture_set_up(&f);
    fixture_make(&crashed);
    store_init(&s);
    s.lingers = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    while (s.n_commits == 0)
        g_usleep(500);
    pthread_t claimer;
    g_assert_cmpint(pthread_create(&claimer, NULL, claim_it, ingress), ==, 0);
    g_usleep(50000); /* for one who does not wait */
    s.lingers = false;
    void *result;
    pthread_join(claimer, &result);
    g_assert_cmpint(GPOINTER_TO_INT(result), ==, 0);
    fixture_copy(&f, &crashed);
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
    ingress = start(&crashed, &s);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "tick");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_remove(&crashed);
    fixture_tear_down(&f);
}

/* A commit that hangs is waited for by the time that the wait can tell, which stands still while a machine is suspended. */
static void test_claim_after_a_suspend(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.lingers = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    while (s.n_commits == 0)
        g_usleep(500);
    nrd_clock_shift_mono_ms(DAY_MS);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    nrd_clock_shift_mono_ms(-DAY_MS);
    s.lingers = false;
    nrd_ingress_unclaim(ingress, ID_A, 1);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "tick");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Beside producers of the partition, one after the other, all that waits is committed. */
static void test_claims_of_a_busy_partition(void)
{
    enum { N = 200 };
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start(&f, &s);
    for (int i = 0; i < N; i++) {
        g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
        g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
        g_assert_cmpint(put(ingress, 1, "tock"), ==, 0);
        nrd_ingress_unclaim(ingress, ID_A, 1);
    }
    wait_until_dispatched(ingress);
    g_assert_cmpuint(s.records[1]->len, ==, 2 * N);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Beside another one a claim takes nothing back: it waits for no commit that hangs, and writes nothing. */
static void test_claim_beside_another(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    s.hangs = true;
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0);
    fault_set(FAULT_RENAME, 1, -EIO, true);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    fault_clear();
    nrd_ingress_unclaim(ingress, ID_A, 1);
    s.hangs = false;
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "tick");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* After a crash somebody claims the partition before the replay has looked: he waits until it has. */
static void test_claim_waits_for_the_replay(void)
{
    Fixture f, crashed;
    Store s;
    fixture_set_up(&f);
    fixture_make(&crashed);
    store_init(&s);
    s.away = true;
    NrdIngress *ingress = start(&f, &s);
    g_assert_cmpint(put(ingress, 1, "tick"), ==, 0); /* names offset 0, and is not committed */
    fixture_copy(&f, &crashed);
    nrd_ingress_close(ingress, 10);
    s.away = false;
    s.slow_us = 50000;
    ingress = start(&crashed, &s);
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    pthread_mutex_lock(&s.lock);
    g_ptr_array_add(s.records[1], g_strdup("tick"));
    pthread_mutex_unlock(&s.lock);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "tick tick");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_remove(&crashed);
    fixture_tear_down(&f);
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
static void test_replay_waits_for_its_partition(void)
{
    Fixture f, crashed;
    Store s;
    fixture_set_up(&f);
    fixture_make(&crashed);
    store_init(&s);
    crash_after_a_commit(&f, &crashed, &s);
    s.fail[1] = -1;
    NrdIngress *ingress = start(&crashed, &s);
    wait_for_failures(5);
    for (int i = 2; i < N_PARTITIONS; i++)
        g_assert_cmpuint(s.records[i]->len, ==, 0);
    g_assert_cmpint(put(ingress, 1, "new"), ==, 0); /* goes to a sibling */
    wait_until_somewhere(&s, "new");
    assert_store(&s, 1, "a");
    s.fail[1] = 0;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a b");
    g_assert_cmpuint(s.log->len, ==, 2); /* b and new, once each */
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_remove(&crashed);
    fixture_tear_down(&f);
}

static void kick_often(NrdIngress *ingress)
{
    for (int i = 0; i < 20; i++) {
        nrd_ingress_kick(ingress);
        g_usleep(5000);
    }
}

/* What stands aside waits itself for what was before it and went to a sibling; when that is done it goes on. */
static void test_what_stands_aside_waits_no_longer_than_it_must(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    s.poisoned[1] = true;
    s.out[2] = true;
    NrdIngress *ingress = start(&f, &s);
    uint64_t rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    g_assert_cmpint(put(ingress, 1, "first"), ==, 0); /* to 2 */
    wait_rerouted(rerouted);
    s.poisoned[1] = false;
    g_assert_cmpint(put(ingress, 1, "second"), ==, 0);
    nrd_ingress_close(ingress, 50);
    s.readable = true;
    s.shut[1] = true; /* `second` cannot be looked up there */
    s.poisoned[2] = s.poisoned[3] = true;
    s.out[2] = false;
    s.out[0] = true;
    rerouted = nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED);
    ingress = start(&f, &s);
    wait_rerouted(rerouted); /* `first`, from 2 to 0, which does not take it either */
    s.poisoned[3] = false;
    kick_often(ingress); /* `second` finds a sibling, and stands aside */
    s.shut[1] = false;
    kick_often(ingress); /* it is not there, so it waits for `first` */
    assert_store(&s, 1, "");
    s.out[0] = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    g_assert_cmpint(at_in_log(&s, "first"), <, at_in_log(&s, "second"));
    assert_store(&s, 0, "first");
    assert_store(&s, 1, "second");
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* As test_replay_waits_for_its_partition, when somebody has opened the partition again, and claims it. */
static void test_claim_of_a_partition_that_comes_back(void)
{
    Fixture f, crashed;
    Store s;
    fixture_set_up(&f);
    fixture_make(&crashed);
    store_init(&s);
    crash_after_a_commit(&f, &crashed, &s);
    s.fail[1] = -1;
    NrdIngress *ingress = start(&crashed, &s);
    wait_for_failures(5);
    s.fail[1] = 0;
    g_assert_cmpint(nrd_ingress_claim(ingress, ID_A, 1), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 1, "a b");
    nrd_ingress_unclaim(ingress, ID_A, 1);
    nrd_ingress_close(ingress, 1000);
    store_clear(&s);
    fixture_remove(&crashed);
    fixture_tear_down(&f);
}

/* Without a claim the records at the named offset are its own. */
static void test_recognized(void)
{
    Fixture f, crashed;
    Store s;
    fixture_set_up(&f);
    fixture_make(&crashed);
    store_init(&s);
    NrdIngress *ingress = start(&f, &s);
    s.away = true;
    g_assert_cmpint(put(ingress, 1, "a"), ==, 0);
    g_usleep(20000);
    fixture_copy(&f, &crashed); /* in the WAL, not committed */
    s.away = false;
    nrd_ingress_kick(ingress);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&s, 1, "a");
    uint64_t before = nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED);
    ingress = start(&crashed, &s); /* as if the commit had been the last that was done */
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&s, 1, "a");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_RECOGNIZED), ==, before + 1);
    store_clear(&s);
    fixture_remove(&crashed);
    fixture_tear_down(&f);
}

/* ---- crashes ---- */

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

/* ---- the checkpoint cannot be written ---- */

static void test_checkpoint_fails(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start_with(&f, &s, 0, 50);
    fault_set(FAULT_RENAME, 1, -EIO, true);
    for (int i = 0; i < 5; i++) {
        g_autofree char *payload = g_strdup_printf("%d", i);
        g_assert_cmpint(put(ingress, 0, payload), ==, 0);
    }
    wait_until_dispatched(ingress);
    for (int i = 0; atomic_load(&fault_fired) == 0 && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpint(atomic_load(&fault_fired), >, 0);
    g_assert_cmpuint(fixture_count(&f, ".wal"), >=, 1); /* the last keeps the sequences */
    nrd_ingress_close(ingress, 1000);
    fault_clear();
    ingress = start(&f, &s); /* what is left is looked up and found */
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    assert_store(&s, 0, "0 1 2 3 4");
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0);
    g_assert_cmpuint(count(&s, "3"), ==, 1);
    store_clear(&s);
    fixture_tear_down(&f);
}

static void test_segments_that_cannot_be_removed(void)
{
    Fixture f;
    Store s;
    fixture_set_up(&f);
    store_init(&s);
    NrdIngress *ingress = start_with(&f, &s, 0, 50);
    fault_set(FAULT_UNLINK, 1, -EPERM, true);
    for (int i = 0; i < 5; i++)
        g_assert_cmpint(put(ingress, 0, "x"), ==, 0);
    wait_until_dispatched(ingress);
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 5);
    fault_clear();
    ingress = start(&f, &s);
    g_assert_false(nrd_ingress_holds(ingress, ID_A)); /* the checkpoint knows them as done */
    nrd_ingress_close(ingress, 1000);
    g_assert_cmpuint(s.records[0]->len, ==, 5);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Without a thread there is no ingress. With the one that it begins with everything is dispatched, and checkpointed. */
static void test_few_threads(void)
{
    Fixture f;
    Store s;
    NrdIngress *ingress = NULL;
    fixture_set_up(&f);
    store_init(&s);
    atomic_store(&n_threads_left, 0);
    g_assert_cmpint(open_plainly(&f, &s, &ingress), ==, -EAGAIN);
    atomic_store(&n_threads_left, 1);
    g_assert_cmpint(open_plainly(&f, &s, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    for (uint32_t i = 0; i < N_PARTITIONS; i++)
        g_assert_cmpint(put(ingress, i, "a"), ==, 0);
    wait_until_dispatched(ingress);
    s.fail[0] = 2;
    g_assert_cmpint(put(ingress, 0, "b"), ==, 0);
    wait_until_dispatched(ingress);
    assert_store(&s, 0, "a b");
    g_assert_cmpint(atomic_load(&n_threads_left), ==, 0);
    atomic_store(&n_threads_left, -1);
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS), ==, 0);
    store_clear(&s);
    fixture_tear_down(&f);
}

/* Who opens it may yet give up: until the start nothing is dispatched, and a close leaves it to the next run at once. */
static void test_held(void)
{
    Fixture f;
    Store s;
    NrdIngress *ingress = NULL;
    fixture_set_up(&f);
    store_init(&s);
    g_assert_cmpint(open_plainly(&f, &s, &ingress), ==, 0);
    g_assert_cmpint(put(ingress, 0, "a"), ==, 0);
    g_usleep(100000);
    g_assert_true(nrd_ingress_holds(ingress, ID_A));
    assert_store(&s, 0, "");
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS * 1000), ==, 0);
    assert_store(&s, 0, "");
    ingress = start(&f, &s);
    wait_until_dispatched(ingress);
    assert_store(&s, 0, "a");
    g_assert_cmpint(nrd_ingress_close(ingress, WAIT_MS), ==, 0);
    store_clear(&s);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    g_test_add_func("/ingress/dispatch/few-threads", test_few_threads);
    g_test_add_func("/ingress/dispatch/held", test_held);
    g_test_add_func("/ingress/dispatch/opened-late", test_opened_late);
    g_test_add_func("/ingress/dispatch/full-disk-moves-nothing", test_full_disk_moves_nothing);
    g_test_add_func("/ingress/dispatch/append-leaves-room", test_append_leaves_room);
    g_test_add_func("/ingress/dispatch/bytes-are-bounded", test_bytes_are_bounded);
    g_test_add_func("/ingress/dispatch/nothing-overtakes-what-was-moved", test_nothing_overtakes_what_was_moved);
    g_test_add_func("/ingress/dispatch/order-over-a-restart", test_order_over_a_restart);
    g_test_add_func("/ingress/dispatch/order-after-looking-up", test_order_after_looking_up);
    g_test_add_func("/ingress/dispatch/order-at-random", test_order_at_random);
    g_test_add_func("/ingress/dispatch/dispatched", test_dispatched);
    g_test_add_func("/ingress/dispatch/closed-during-an-append", test_closed_during_an_append);
    g_test_add_func("/ingress/dispatch/batches", test_batches);
    g_test_add_func("/ingress/dispatch/little-memory", test_little_memory);
    g_test_add_func("/ingress/dispatch/damaged-before-its-commit", test_damaged_before_its_commit);
    g_test_add_func("/ingress/dispatch/commits-fail-for-a-while", test_commits_fail_for_a_while);
    g_test_add_func("/ingress/dispatch/goes-to-a-sibling", test_goes_to_a_sibling);
    g_test_add_func("/ingress/dispatch/nowhere-to-go", test_nowhere_to_go);
    g_test_add_func("/ingress/dispatch/gone-and-away", test_gone_and_away);
    g_test_add_func("/ingress/dispatch/one-stuck-partition", test_one_stuck_partition);
    g_test_add_func("/ingress/dispatch/one-topic-hangs", test_one_topic_hangs);
    g_test_add_func("/ingress/dispatch/one-topic-fills-its-share", test_one_topic_fills_its_share);
    g_test_add_func("/ingress/dispatch/claim-takes-names-back", test_claim_takes_names_back);
    g_test_add_func("/ingress/dispatch/siblings-that-fail-too", test_siblings_that_fail_too);
    g_test_add_func("/ingress/dispatch/replay-waits-for-its-partition", test_replay_waits_for_its_partition);
    g_test_add_func("/ingress/dispatch/aside-waits-no-longer-than-it-must",
                    test_what_stands_aside_waits_no_longer_than_it_must);
    g_test_add_func("/ingress/dispatch/claim-beside-a-commit", test_claim_beside_a_commit);
    g_test_add_func("/ingress/dispatch/claim-beside-another", test_claim_beside_another);
    g_test_add_func("/ingress/dispatch/claim-after-a-suspend", test_claim_after_a_suspend);
    g_test_add_func("/ingress/dispatch/claims-of-a-busy-partition", test_claims_of_a_busy_partition);
    g_test_add_func("/ingress/dispatch/claim-of-a-partition-that-comes-back",
                    test_claim_of_a_partition_that_comes_back);
    g_test_add_func("/ingress/dispatch/claim-waits-for-the-replay", test_claim_waits_for_the_replay);
    g_test_add_func("/ingress/dispatch/recognized", test_recognized);
    g_test_add_func("/ingress/dispatch/crashes", test_crashes);
    g_test_add_func("/ingress/dispatch/crashes-with-moves", test_crashes_with_moves);
    g_test_add_func("/ingress/dispatch/syncs-that-fail", test_syncs_that_fail);
    g_test_add_func("/ingress/dispatch/checkpoint-fails", test_checkpoint_fails);
    g_test_add_func("/ingress/dispatch/segments-that-cannot-be-removed", test_segments_that_cannot_be_removed);
    return g_test_run();
}
