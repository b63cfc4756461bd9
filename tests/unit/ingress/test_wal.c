/* The WAL on real files: what was acknowledged is found again, by whoever waits for it, and gives its room back. */
#include "wal_fixture.h"

#include "engine/base/diag.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

static void test_found_again(Fixture *f, gconstpointer data)
{
    Found found;
    uint64_t first, second;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpuint(fixture_count(f, ""), ==, 0); /* nothing is made before it is needed */
    g_assert_cmpint(append_now(wal, "t", ID_A, 0, "one", &first), ==, 0);
    g_assert_cmpint(append_now(wal, "t", ID_A, 3, "two", &second), ==, 0);
    g_assert_cmpuint(second, >, first);
    nrd_wal_close(wal, 0);
    wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "one\ntwo\n");
    g_assert_cmpuint(nrd_wal_next_sequence(wal), >, second);
    g_assert_cmpint(put(wal, "three"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(f, "one\ntwo\nthree\n");
}

static void test_segments_come_and_go(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 100, &found);
    assert_found(&found, "");
    for (int i = 0; i < 5; i++)
        g_assert_cmpint(put(wal, "a payload that takes some room in its entry"), ==, 0);
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 5);
    nrd_wal_sweep(wal, UINT64_MAX);
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 5); /* all are live */
    nrd_wal_close(wal, 0);
    NrdWalOptions options = { .root_fd = f->root_fd, .segment_bytes = 100, .min_sequence = 1 };
    found.text = g_string_new(NULL);
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), ==, 0);
    g_string_free(found.text, TRUE);
    g_autoptr(GPtrArray) names = fixture_names(f);
    for (guint i = 0; i < names->len; i++) {
        uint64_t first, salt;
        uint32_t number;
        g_assert_true(nrd_wal_segment_parse_name(names->pdata[i], &first, &number, &salt));
        g_assert_cmpuint(first, ==, i + 1);
    }
    nrd_wal_close(wal, UINT64_MAX);
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 5); /* live still */
}

#define N_THREADS 16
#define N_EACH 40

typedef struct Worker {
    NrdWal *wal;
    int number;
    pthread_t thread;
} Worker;

static void *append_many(void *data)
{
    Worker *w = data;
    for (int i = 0; i < N_EACH; i++) {
        g_autofree char *payload = g_strdup_printf("%d-%d", w->number, i);
        g_assert_cmpint(put(w->wal, payload), ==, 0);
    }
    return NULL;
}

static void run_workers(NrdWal *wal)
{
    Worker workers[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (Worker){ wal, i, 0 };
        pthread_create(&workers[i].thread, NULL, append_many, &workers[i]);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

/* Everybody's entries are there once, each thread's in order. */
static void assert_all_there(Fixture *f)
{
    Found found;
    int next[N_THREADS] = { 0 };
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    g_auto(GStrv) lines = g_strsplit(found.text->str, "\n", -1);
    g_assert_cmpuint(found.n, ==, N_THREADS * N_EACH);
    for (uint32_t i = 0; i < found.n; i++) {
        int number = (int)g_ascii_strtoll(lines[i], NULL, 10);
        int nth = (int)g_ascii_strtoll(strchr(lines[i], '-') + 1, NULL, 10);
        g_assert_cmpint(nth, ==, next[number]++);
    }
    g_string_free(found.text, TRUE);
    nrd_wal_close(wal, 0);
}

static void test_group_commit(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 8192, &found);
    assert_found(&found, "");
    int before = atomic_load(&fault_calls[FAULT_FDATASYNC]);
    run_workers(wal);
    int n_syncs = atomic_load(&fault_calls[FAULT_FDATASYNC]) - before;
    g_test_message("%d entries, %d syncs", N_THREADS * N_EACH, n_syncs);
    g_assert_cmpint(n_syncs, <, N_THREADS * N_EACH);
    nrd_wal_close(wal, 0);
    assert_all_there(f);
}

static off_t blocks_of(Fixture *f)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    g_autofree char *path = fixture_file(f, names->pdata[0]);
    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    return st.st_blocks;
}

/* Around what is kept everything becomes a hole, at the start, in the middle and at the end; the next open finds what is
 * kept, calls nothing damaged, and sets nothing aside. */
static void test_room_is_given_back(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = NULL;
    wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    for (const char *c = "aakbbkc"; *c; c++)
        put_filled(wal, *c);
    nrd_wal_close(wal, 0);
    off_t before = blocks_of(f);
    NrdWalOptions options = { .root_fd = f->root_fd, .segment_bytes = 1 << 20, .min_sequence = 1 };
    found.text = g_string_new(NULL);
    g_assert_cmpint(nrd_wal_open(&options, keep_some, &found, &wal), ==, 0);
    g_string_free(found.text, TRUE);
    uint64_t size_bytes = nrd_wal_size_bytes(wal);
    g_assert_cmpuint(nrd_wal_litter_bytes(wal), >, 5 * 20000);
    g_assert_true(nrd_wal_make_room(wal));
    g_assert_false(nrd_wal_make_room(wal)); /* nothing new */
    g_assert_cmpuint(nrd_wal_litter_bytes(wal), ==, 0);
    g_assert_cmpuint(nrd_wal_size_bytes(wal), <, size_bytes - 5 * 20000);
    g_assert_cmpint(blocks_of(f), <, before - 5 * 16000 / 512);
    nrd_wal_close(wal, 0);
    uint64_t damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), torn = nrd_counter_get(NRD_COUNTER_TORN_TAILS);
    found.text = g_string_new(NULL);
    found.n = 0;
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), ==, 0);
    g_assert_cmpuint(found.n, ==, 2);
    g_assert_true(found.text->str[0] == 'k' && found.text->str[20001] == 'k');
    g_string_free(found.text, TRUE);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), ==, damaged);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==, torn);
    nrd_wal_close(wal, UINT64_MAX);
}

static void test_ranges_done_in_any_order(void)
{
    static const guint orders[][5] = { { 0, 1, 2, 3, 4 }, { 4, 3, 2, 1, 0 }, { 2, 0, 4, 1, 3 }, { 0, 2, 4, 3, 1 } };
    for (size_t n = 0; n < G_N_ELEMENTS(orders); n++) {
        NrdWalSegment *segment = nrd_wal_segment_new(1, 1, 1);
        for (guint i = 0; i < 5; i++) {
            nrd_wal_segment_note_done(segment, orders[n][i] * 10, 10);
            for (guint k = 1; k < segment->done->len; k++)
                g_assert_cmpuint(g_array_index(segment->done, NrdWalRange, k - 1).end, <,
                                 g_array_index(segment->done, NrdWalRange, k).pos);
        }
        g_assert_cmpuint(segment->done->len, ==, 1);
        g_assert_cmpuint(g_array_index(segment->done, NrdWalRange, 0).pos, ==, 0);
        g_assert_cmpuint(g_array_index(segment->done, NrdWalRange, 0).end, ==, 50);
        g_assert_cmpuint(segment->done_bytes, ==, 50);
        nrd_wal_segment_unref(segment);
    }
}

static void test_names(void)
{
    static const char *const bad[] = {
        "",
        "checkpoint",
        "00000000000000000001.00000001.0123456789abcdef.wa",
        "0000000000000000001.00000001.0123456789abcdef.wal",
        "00000000000000000001.00000001.0123456789ABCDEF.wal",
        "00000000000000000001.00000001.0123456789abcdef.wal.damaged",
        "00000000000000000000.00000001.0123456789abcdef.wal",
        "99999999999999999999.00000001.0123456789abcdef.wal",
        "-0000000000000000001.00000001.0123456789abcdef.wal",
        "00000000000000000001.1.0123456789abcdef.wal",
        "00000000000000000001.00000001.wal",
    };
    uint64_t first, salt;
    uint32_t number;
    g_assert_true(
        nrd_wal_segment_parse_name("00000000000000000007.0000001f.0123456789abcdef.wal", &first, &number, &salt));
    g_assert_cmpuint(first, ==, 7);
    g_assert_cmpuint(number, ==, 31);
    g_assert_cmpuint(salt, ==, 0x0123456789abcdef);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        g_assert_false(nrd_wal_segment_parse_name(bad[i], &first, &number, &salt));
}

#define CHAIN 100

typedef struct Chain {
    NrdWalAppend append;
    NrdWal *wal;
    int n_done;
    unsigned n_asked;
    bool somebody; /* takes over */
} Chain;

static bool ask(void *user_data)
{
    Chain *chain = user_data;
    chain->n_asked++;
    return chain->somebody;
}

typedef struct Told {
    NrdWalAppend append;
    GString *order;
    const char *name;
    struct Told *then[2]; /* appended when it is told */
    NrdWal *wal;
} Told;

static void send_told(Told *told);

static void on_told(NrdWalAppend *append, int error)
{
    const Told *told = (Told *)append;
    g_assert_cmpint(error, ==, 0);
    nrd_wal_segment_unref(append->segment);
    g_string_append_printf(told->order, "%s told, ", told->name);
    for (int i = 0; i < 2 && told->then[i]; i++)
        send_told(told->then[i]);
}

static void on_answered(NrdWalAppend *append)
{
    const Told *told = (Told *)append;
    g_string_append_printf(told->order, "%s back, ", told->name);
    g_free(append->bytes);
}

static void send_told(Told *told)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    told->append = (NrdWalAppend){ .n_parts = 1, .done = on_told, .answered = on_answered };
    nrd_entry_draft_add(draft, 0, NULL, 0, "x", 1);
    g_assert_cmpint(nrd_entry_encode(draft, "t", ID_A, &told->append.bytes, &told->append.size), ==, 0);
    nrd_entry_draft_free(draft);
    nrd_wal_append(told->wal, &told->append);
}

/* All of a round are told before the first of them is given back. */
static void test_told_before_given_back(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    g_autoptr(GString) order = g_string_new(NULL);
    Told second = { .order = order, .name = "second", .wal = wal };
    Told third = { .order = order, .name = "third", .wal = wal };
    Told first = { .order = order, .name = "first", .wal = wal, .then = { &second, &third } };
    send_told(&first);
    g_assert_cmpstr(order->str, ==, "first told, first back, second told, third told, second back, third back, ");
    nrd_wal_close(wal, 0);
}

/* There is always one more. */
static void append_another(NrdWalAppend *append, int error)
{
    Chain *chain = (Chain *)append;
    g_assert_cmpint(error, ==, 0);
    nrd_wal_segment_unref(append->segment);
    if (++chain->n_done < CHAIN)
        nrd_wal_append(chain->wal, append);
}

static void start_chain(Fixture *f, Chain *chain, Found *found)
{
    NrdWalOptions options = {
        .root_fd = f->root_fd, .segment_bytes = 1 << 20, .min_sequence = 1, .hand_over = ask, .user_data = chain
    };
    NrdEntryDraft *draft = nrd_entry_draft_new();
    found->text = g_string_new(NULL);
    g_assert_cmpint(nrd_wal_open(&options, note, found, &chain->wal), ==, 0);
    nrd_entry_draft_add(draft, 0, NULL, 0, "x", 1);
    g_assert_cmpint(nrd_entry_encode(draft, "t", ID_A, &chain->append.bytes, &chain->append.size), ==, 0);
    nrd_entry_draft_free(draft);
    chain->append.n_parts = 1;
    chain->append.done = append_another;
    nrd_wal_append(chain->wal, &chain->append);
}

static void end_chain(Chain *chain, Found *found)
{
    g_assert_cmpint(chain->n_done, ==, CHAIN);
    g_assert_cmpuint(chain->n_asked, >, 1);
    assert_found(found, "");
    g_free(chain->append.bytes);
    nrd_wal_close(chain->wal, 0);
}

static void test_handed_over(Fixture *f, gconstpointer data)
{
    Found found = { 0 };
    Chain chain = { .somebody = true };
    start_chain(f, &chain, &found);
    g_assert_cmpint(chain.n_done, <, CHAIN);
    while (chain.n_done < CHAIN) {
        int before = chain.n_done;
        nrd_wal_write_on(chain.wal);
        g_assert_cmpint(chain.n_done, >, before);
    }
    end_chain(&chain, &found);
}

/* No thread could be made: who waits for an answer gets it all the same. */
static void test_nobody_to_hand_over_to(Fixture *f, gconstpointer data)
{
    Found found = { 0 };
    Chain chain = { .somebody = false };
    start_chain(f, &chain, &found);
    end_chain(&chain, &found);
}

#define ADD(name, test) g_test_add("/ingress/wal/" name, Fixture, NULL, fixture_before, test, fixture_after)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/wal/names", test_names);
    ADD("found-again", test_found_again);
    ADD("segments", test_segments_come_and_go);
    ADD("told-before-given-back", test_told_before_given_back);
    ADD("handed-over", test_handed_over);
    ADD("nobody-to-hand-over-to", test_nobody_to_hand_over_to);
    ADD("group-commit", test_group_commit);
    ADD("room-is-given-back", test_room_is_given_back);
    g_test_add_func("/ingress/wal/ranges-done-in-any-order", test_ranges_done_in_any_order);
    return g_test_run();
}
