/* The WAL on real files: what was acknowledged is found again, what was not is not, whatever fails. */
#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include "engine/base/diag.h"
#include "engine/base/errors.h"
#include "engine/io/io.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* Found payloads, one a line: "<sequence> <partition> <payload>". */
typedef struct Found {
    GString *text;
    uint32_t n;
} Found;

static uint32_t note(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    Found *found = user_data;
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        NrdEntryPart part;
        NrdEntryRecord record;
        nrd_entry_part(view, i, &part);
        while (nrd_entry_next_record(&part.records, &part.size, &record)) {
            g_string_append_len(found->text, (const char *)record.payload, (gssize)record.payload_size);
            g_string_append_c(found->text, '\n');
            found->n++;
        }
    }
    return view->head.n_parts;
}

static NrdWal *open_wal(Fixture *f, uint64_t segment_bytes, Found *found)
{
    NrdWal *wal = NULL;
    NrdWalOptions options = { .root_fd = f->root_fd, .segment_bytes = segment_bytes, .min_sequence = 1 };
    found->text = g_string_new(NULL);
    found->n = 0;
    g_assert_cmpint(nrd_wal_open(&options, note, found, &wal), ==, 0);
    return wal;
}

static void assert_found(Found *found, const char *expected)
{
    g_assert_cmpstr(found->text->str, ==, expected);
    g_string_free(found->text, TRUE);
}

static void assert_next_open(Fixture *f, const char *expected)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, expected);
    nrd_wal_close(wal, 0);
}

static int put(NrdWal *wal, const char *payload)
{
    return append_now(wal, "t", ID_A, 0, payload, NULL);
}

static void test_found_again(void)
{
    Fixture f;
    Found found;
    uint64_t first, second;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpuint(fixture_count(&f, ""), ==, 0); /* nothing is made before it is needed */
    g_assert_cmpint(append_now(wal, "t", ID_A, 0, "one", &first), ==, 0);
    g_assert_cmpint(append_now(wal, "t", ID_A, 3, "two", &second), ==, 0);
    g_assert_cmpuint(second, >, first);
    nrd_wal_close(wal, 0);
    wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "one\ntwo\n");
    g_assert_cmpuint(nrd_wal_next_sequence(wal), >, second);
    g_assert_cmpint(put(wal, "three"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(&f, "one\ntwo\nthree\n");
    fixture_tear_down(&f);
}

static void test_segments_come_and_go(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 100, &found);
    assert_found(&found, "");
    for (int i = 0; i < 5; i++)
        g_assert_cmpint(put(wal, "a payload that takes some room in its entry"), ==, 0);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 5);
    nrd_wal_sweep(wal, UINT64_MAX);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 5); /* all are live */
    nrd_wal_close(wal, 0);
    NrdWalOptions options = { .root_fd = f.root_fd, .segment_bytes = 100, .min_sequence = 1 };
    found.text = g_string_new(NULL);
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), ==, 0);
    g_string_free(found.text, TRUE);
    g_autoptr(GPtrArray) names = fixture_names(&f);
    for (guint i = 0; i < names->len; i++) {
        uint64_t first, salt;
        uint32_t number;
        g_assert_true(nrd_wal_segment_parse_name(names->pdata[i], &first, &number, &salt));
        g_assert_cmpuint(first, ==, i + 1);
    }
    nrd_wal_close(wal, UINT64_MAX);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 5); /* live still */
    fixture_tear_down(&f);
}

/* ---- damage ---- */

static void change_file(Fixture *f, void (*change)(GByteArray *bytes, gpointer data), gpointer data)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    g_autofree char *path = fixture_file(f, names->pdata[0]);
    char *text;
    gsize size;
    g_assert_true(g_file_get_contents(path, &text, &size, NULL));
    GByteArray *bytes = g_byte_array_new_take((guint8 *)text, size);
    change(bytes, data);
    g_assert_true(g_file_set_contents(path, (char *)bytes->data, bytes->len, NULL));
    g_byte_array_unref(bytes);
}

static void flip(GByteArray *bytes, gpointer pos)
{
    bytes->data[GPOINTER_TO_UINT(pos)] ^= 0x10;
}

static void cut(GByteArray *bytes, gpointer size)
{
    g_byte_array_set_size(bytes, GPOINTER_TO_UINT(size));
}

static guint file_size(Fixture *f)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    g_autofree char *path = fixture_file(f, names->pdata[0]);
    GStatBuf st;
    g_assert_cmpint(g_stat(path, &st), ==, 0);
    return (guint)st.st_size;
}

static void make_three(Fixture *f)
{
    Found found;
    fixture_set_up(f);
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpint(put(wal, "six"), ==, 0);
    nrd_wal_close(wal, 0);
}

/* The entry that was hit is passed over, and only that one; the same at every open. */
static void test_every_byte_flipped(void)
{
    static const char *const left[] = { "two\nsix\n", "one\nsix\n", "one\ntwo\n" };
    Fixture f;
    make_three(&f);
    guint size = file_size(&f), each = size / 3;
    g_assert_cmpuint(each * 3, ==, size);
    for (guint i = 0; i < size; i++) {
        change_file(&f, flip, GUINT_TO_POINTER(i));
        assert_next_open(&f, left[i / each]);
        if (i % 16 == 0)
            assert_next_open(&f, left[i / each]);
        change_file(&f, flip, GUINT_TO_POINTER(i));
    }
    assert_next_open(&f, "one\ntwo\nsix\n");
    fixture_tear_down(&f);
}

static void test_every_cut(void)
{
    static const char *const left[] = { "", "one\n", "one\ntwo\n", "one\ntwo\nsix\n" };
    Fixture f;
    make_three(&f);
    guint each = file_size(&f) / 3;
    for (guint size = each * 3; size > 0; size--) {
        change_file(&f, cut, GUINT_TO_POINTER(size));
        assert_next_open(&f, left[size / each]);
    }
    fixture_tear_down(&f);
}

/* ---- zeros ahead of the tail ---- */

/* Whether the only file is longer than what it holds, by zeros. */
static bool has_zeros_ahead(Fixture *f, guint held)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    g_autofree char *path = fixture_file(f, names->pdata[0]);
    g_autofree char *bytes = NULL;
    gsize size;
    g_assert_cmpuint(names->len, ==, 1);
    g_assert_true(g_file_get_contents(path, &bytes, &size, NULL));
    for (gsize i = held; i < size; i++)
        g_assert_cmpint(bytes[i], ==, 0);
    return size > held;
}

/* A kill leaves them; they are no damage, whatever stands before them, and no end of what is written later. */
static void test_zeros_ahead(void)
{
    Fixture f, killed;
    Found found;
    make_three(&f);
    guint each = file_size(&f) / 3;
    fixture_tear_down(&f);
    fixture_set_up(&f);
    fixture_make(&killed);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    g_assert_true(has_zeros_ahead(&f, each));
    int n_writes = atomic_load(&fault_calls[FAULT_PWRITEV]);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpint(atomic_load(&fault_calls[FAULT_PWRITEV]), ==, n_writes + 1); /* they are there already */
    fixture_copy(&f, &killed);
    g_assert_true(has_zeros_ahead(&killed, 2 * each));
    uint64_t damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), torn = nrd_counter_get(NRD_COUNTER_TORN_TAILS);
    assert_next_open(&killed, "one\ntwo\n");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), ==, damaged);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==, torn);
    change_file(&killed, flip, GUINT_TO_POINTER(each + 70)); /* a tail that is torn, and zeros behind */
    assert_next_open(&killed, "one\n");
    nrd_wal_close(wal, 0);
    g_assert_false(has_zeros_ahead(&f, 2 * each));
    assert_next_open(&f, "one\ntwo\n");
    fixture_remove(&killed);
    fixture_tear_down(&f);
}

/* The WAL goes on without them, and cuts what it wrote of them. */
static void test_zeros_fail(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    fault_set(FAULT_PWRITEV, 2, -ENOSPC, false); /* 1: the entry */
    g_assert_cmpint(put(wal, "one"), ==, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    fault_clear();
    g_assert_cmpint(put(wal, "two"), ==, 0);
    fault_set(FAULT_FTRUNCATE, 1, -EIO, false);
    nrd_wal_close(wal, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    fault_clear();
    assert_next_open(&f, "one\ntwo\n");
    fixture_tear_down(&f);
}

/* ---- what is damaged ---- */

static uint32_t take_none(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    return 0;
}

/* What was damaged is not thrown away with the rest: somebody may know more about it than we do. */
static void test_damaged_is_set_aside(void)
{
    Fixture f;
    make_three(&f);
    NrdWalOptions options = { .root_fd = f.root_fd, .segment_bytes = 100, .min_sequence = 1 };
    NrdWal *wal = NULL;
    change_file(&f, flip, GUINT_TO_POINTER(70));
    g_assert_cmpint(nrd_wal_open(&options, take_none, NULL, &wal), ==, 0);
    nrd_wal_close(wal, nrd_wal_next_sequence(wal));
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 0);
    g_assert_cmpuint(fixture_count(&f, ".wal.damaged"), ==, 1);
    assert_next_open(&f, "");
    fixture_tear_down(&f);
}

/* After a torn tail the WAL goes on, and nothing of the tail comes back. */
static void test_torn_tail_then_more(void)
{
    Fixture f;
    Found found;
    make_three(&f);
    change_file(&f, cut, GUINT_TO_POINTER(file_size(&f) - 1));
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "one\ntwo\n");
    g_assert_cmpint(put(wal, "four"), ==, 0);
    nrd_wal_close(wal, 0);
    /* no more than a torn tail, though it is not the last segment any more: no sequence is missing */
    uint64_t n_damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), n_torn = nrd_counter_get(NRD_COUNTER_TORN_TAILS);
    assert_next_open(&f, "one\ntwo\nfour\n");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), ==, n_damaged);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==, n_torn + 1);
    fixture_tear_down(&f);
}

/* In a segment that was left when it was full nothing is torn: what is missing at its end was acknowledged. */
static void test_damaged_tail_then_more(void)
{
    Fixture f;
    Found found;
    make_three(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "one\ntwo\nsix\n");
    g_assert_cmpint(put(wal, "four"), ==, 0);
    nrd_wal_close(wal, 0);
    change_file(&f, cut, GUINT_TO_POINTER(file_size(&f) - 1));
    uint64_t n_damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED);
    assert_next_open(&f, "one\ntwo\nfour\n");
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED), ==, n_damaged + 1);
    fixture_tear_down(&f);
}

/* A payload that holds the whole WAL file, and another that holds headers: neither becomes an entry. */
static void test_entry_inside_a_payload(void)
{
    Fixture f;
    Found found;
    g_autofree char *text = NULL;
    gsize size;
    make_three(&f);
    g_autoptr(GPtrArray) names = fixture_names(&f);
    g_autofree char *path = fixture_file(&f, names->pdata[0]);
    g_assert_true(g_file_get_contents(path, &text, &size, NULL));
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "one\ntwo\nsix\n");
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, text, size);
    NrdWalAppend append = { .n_parts = 1 };
    g_assert_cmpint(nrd_entry_encode(draft, "t", ID_A, &append.bytes, &append.size), ==, 0);
    nrd_entry_draft_free(draft);
    nrd_wal_close(wal, 0);
    /* as the second entry of a segment whose outer header is damaged */
    uint64_t first, salt;
    uint32_t number;
    g_assert_true(nrd_wal_segment_parse_name(names->pdata[0], &first, &number, &salt));
    nrd_entry_seal(append.bytes, append.size, salt + size, 99);
    append.bytes[20] ^= 1;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_byte_array_append(bytes, (guint8 *)text, (guint)size);
    g_byte_array_append(bytes, append.bytes, (guint)append.size);
    g_assert_true(g_file_set_contents(path, (char *)bytes->data, bytes->len, NULL));
    assert_next_open(&f, "one\ntwo\nsix\n");
    g_free(append.bytes);
    fixture_tear_down(&f);
}

static void test_something_else_in_its_place(void)
{
    Fixture f;
    make_three(&f);
    g_autoptr(GPtrArray) names = fixture_names(&f);
    g_autofree char *path = fixture_file(&f, names->pdata[0]), *kept = fixture_file(&f, "kept");
    NrdWalOptions options = { .root_fd = f.root_fd, .segment_bytes = 100, .min_sequence = 1 };
    NrdWal *wal = NULL;
    Found found = { .text = g_string_new(NULL) };
    g_assert_cmpint(g_rename(path, kept), ==, 0);
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), <, 0);
    g_assert_cmpint(g_rmdir(path), ==, 0);
    g_assert_cmpint(symlink("kept", path), ==, 0);
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), <, 0);
    g_assert_cmpint(g_unlink(path), ==, 0);
    g_assert_cmpint(g_rename(kept, path), ==, 0);
    fault_set(FAULT_PREAD, 1, -EIO, false);
    g_assert_cmpint(nrd_wal_open(&options, note, &found, &wal), ==, -EIO);
    fault_clear();
    g_string_free(found.text, TRUE);
    assert_next_open(&f, "one\ntwo\nsix\n");
    fixture_tear_down(&f);
}

/* ---- group commit ---- */

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

static void test_group_commit(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 8192, &found);
    assert_found(&found, "");
    int before = atomic_load(&fault_calls[FAULT_FDATASYNC]);
    run_workers(wal);
    int n_syncs = atomic_load(&fault_calls[FAULT_FDATASYNC]) - before;
    g_test_message("%d entries, %d syncs", N_THREADS * N_EACH, n_syncs);
    g_assert_cmpint(n_syncs, <, N_THREADS * N_EACH);
    nrd_wal_close(wal, 0);
    assert_all_there(&f);
    fixture_tear_down(&f);
}

/* ---- failures ---- */

static void test_write_fails(void)
{
    static const int errors[] = { -EIO, -ENOSPC, -EDQUOT, -EFBIG, -ENOENT };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        Fixture f;
        Found found;
        fixture_set_up(&f);
        NrdWal *wal = open_wal(&f, 1 << 20, &found);
        assert_found(&found, "");
        g_assert_cmpint(put(wal, "one"), ==, 0);
        fault_set(FAULT_PWRITEV, 1, errors[i], false);
        g_assert_cmpint(put(wal, "lost"), ==, nrd_error_is_full(errors[i]) ? errors[i] : -EIO);
        g_assert_cmpint(nrd_wal_error(wal), ==, nrd_error_is_full(errors[i]) ? errors[i] : -EIO);
        g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
        fault_clear();
        assert_next_open(&f, "one\n"); /* a look beside the one that is open: it changes nothing */
        g_assert_cmpint(put(wal, "two"), ==, 0);
        nrd_wal_close(wal, 0);
        assert_next_open(&f, "one\ntwo\n");
        fixture_tear_down(&f);
    }
}

/* The disk kept whole entries of a round that was taken back: the next segment's name makes them void. */
static void test_cut_fails(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    fault_set(FAULT_FTRUNCATE, 1, -EIO, false);
    atomic_store(&fault_also, FAULT_PWRITEV);
    g_assert_cmpint(put(wal, "lost"), ==, -EIO);
    fault_clear();
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 2);
    nrd_wal_close(wal, 0);
    assert_next_open(&f, "one\ntwo\n");
    fixture_tear_down(&f);
}

/* The entries are written once more, to a new segment, and count once though both files hold them. */
static void test_sync_fails_once(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    fault_clear();
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 2);
    g_assert_cmpint(put(wal, "six"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(&f, "one\ntwo\nsix\n");
    fixture_tear_down(&f);
}

/* The first round of all fails: the next segment has the same first sequence. */
static void test_first_sync_fails(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(put(wal, "one"), ==, 0);
    fault_clear();
    nrd_wal_close(wal, 0);
    assert_next_open(&f, "one\n");
    fixture_tear_down(&f);
}

/* Errors go to the callers as long as it lasts; what is put afterwards is there once. A crash at any time shows what was
 * acknowledged, and at most what was being tried last. */
static void test_sync_keeps_failing(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    fault_set(FAULT_FDATASYNC, 1, -EIO, true);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(put(wal, "two"), ==, -EIO);
    fault_clear();
    g_assert_cmpint(put(wal, "two"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(&f, "one\ntwo\n");
    fixture_tear_down(&f);
}

/* A sync that lied, or whose truth cannot be read back, is a failed one: written once more elsewhere, and counted once. */
static void test_proof_fails_once(void)
{
    static const FaultCall calls[] = { FAULT_LIE, FAULT_PREAD };
    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        Fixture f;
        Found found;
        fixture_set_up(&f);
        NrdWal *wal = open_wal(&f, 1 << 20, &found);
        assert_found(&found, "");
        g_assert_cmpint(put(wal, "one"), ==, 0);
        fault_set(calls[i], 1, -EIO, false);
        g_assert_cmpint(put(wal, "two"), ==, 0);
        g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
        fault_clear();
        g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 2);
        g_assert_cmpint(put(wal, "six"), ==, 0);
        nrd_wal_close(wal, 0);
        assert_next_open(&f, "one\ntwo\nsix\n");
        fixture_tear_down(&f);
    }
}

/* Nothing is acknowledged, however often it is tried. */
static void test_proof_keeps_failing(void)
{
    static const FaultCall calls[] = { FAULT_LIE, FAULT_PREAD };
    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        Fixture f;
        Found found;
        fixture_set_up(&f);
        NrdWal *wal = open_wal(&f, 1 << 20, &found);
        assert_found(&found, "");
        g_assert_cmpint(put(wal, "one"), ==, 0);
        fault_set(calls[i], 1, -EIO, true);
        for (int n = 0; n < 3; n++)
            g_assert_cmpint(put(wal, "two"), ==, -EIO);
        g_assert_cmpint(atomic_load(&fault_fired), ==, 6);
        fault_clear();
        g_assert_cmpint(put(wal, "two"), ==, 0);
        nrd_wal_close(wal, 0);
        assert_next_open(&f, "one\ntwo\n");
        fixture_tear_down(&f);
    }
}

/* Rounds that are longer than what is read back at once. */
static void test_proof_of_a_long_entry(void)
{
    Fixture f;
    Found found;
    g_autofree char *payload = g_strnfill(700 * 1024, 'x');
    g_autofree char *wanted = g_strconcat(payload, "\nsmall\n", NULL);
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 16 << 20, &found);
    assert_found(&found, "");
    fault_set(FAULT_PREAD, 3, -EIO, false);
    g_assert_cmpint(put(wal, payload), ==, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    g_assert_cmpuint(fixture_count(&f, ".wal"), ==, 2);
    fault_clear();
    g_assert_cmpint(put(wal, "small"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(&f, wanted);
    fixture_tear_down(&f);
}

static void test_new_segment_fails(void)
{
    static const FaultCall calls[] = { FAULT_OPEN, FAULT_FSYNC };
    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        Fixture f;
        Found found;
        fixture_set_up(&f);
        NrdWal *wal = open_wal(&f, 1 << 20, &found);
        assert_found(&found, "");
        fault_set(calls[i], 1, -ENOSPC, true);
        g_assert_cmpint(put(wal, "lost"), ==, -ENOSPC);
        g_assert_cmpint(atomic_load(&fault_fired), >=, 1);
        fault_clear();
        g_assert_cmpint(put(wal, "one"), ==, 0);
        nrd_wal_close(wal, 0);
        assert_next_open(&f, "one\n");
        fixture_tear_down(&f);
    }
}

/* ---- room that is given back ---- */

/* Takes the entries over that begin with 'k' and leaves the others. */
static uint32_t keep_some(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    NrdEntryPart part;
    nrd_entry_part(view, 0, &part);
    uint32_t n = note(user_data, segment, pos, view);
    return part.records[8] == 'k' ? n : 0;
}

static off_t blocks_of(Fixture *f)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    g_autofree char *path = fixture_file(f, names->pdata[0]);
    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    return st.st_blocks;
}

static void put_filled(NrdWal *wal, char first)
{
    char payload[20001];
    memset(payload, first, sizeof payload - 1);
    payload[sizeof payload - 1] = '\0';
    g_assert_cmpint(put(wal, payload), ==, 0);
}

/* Around what is kept everything becomes a hole, at the start, in the middle and at the end; the next open finds what is
 * kept, calls nothing damaged, and sets nothing aside. */
static void test_room_is_given_back(void)
{
    Fixture f;
    Found found;
    NrdWal *wal = NULL;
    fixture_set_up(&f);
    wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    for (const char *c = "aakbbkc"; *c; c++)
        put_filled(wal, *c);
    nrd_wal_close(wal, 0);
    off_t before = blocks_of(&f);
    NrdWalOptions options = { .root_fd = f.root_fd, .segment_bytes = 1 << 20, .min_sequence = 1 };
    found.text = g_string_new(NULL);
    g_assert_cmpint(nrd_wal_open(&options, keep_some, &found, &wal), ==, 0);
    g_string_free(found.text, TRUE);
    uint64_t size_bytes = nrd_wal_size_bytes(wal);
    g_assert_cmpuint(nrd_wal_litter_bytes(wal), >, 5 * 20000);
    g_assert_true(nrd_wal_make_room(wal));
    g_assert_false(nrd_wal_make_room(wal)); /* nothing new */
    g_assert_cmpuint(nrd_wal_litter_bytes(wal), ==, 0);
    g_assert_cmpuint(nrd_wal_size_bytes(wal), <, size_bytes - 5 * 20000);
    g_assert_cmpint(blocks_of(&f), <, before - 5 * 16000 / 512);
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
    fixture_tear_down(&f);
}

/* A failure is tried again; a file system without holes is not asked for the same twice. Nothing else depends on it. */
static void test_room_cannot_be_given_back(void)
{
    static const int errors[] = { -EIO, -ENOSPC, -EOPNOTSUPP };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        Fixture f;
        Found found;
        NrdWal *wal = NULL;
        NrdWalOptions options = { .segment_bytes = 1 << 20, .min_sequence = 1 };
        fixture_set_up(&f);
        wal = open_wal(&f, 1 << 20, &found);
        assert_found(&found, "");
        put_filled(wal, 'a');
        put_filled(wal, 'k');
        nrd_wal_close(wal, 0);
        options.root_fd = f.root_fd;
        found.text = g_string_new(NULL);
        g_assert_cmpint(nrd_wal_open(&options, keep_some, &found, &wal), ==, 0);
        g_string_free(found.text, TRUE);
        fault_set(FAULT_PUNCH, 1, errors[i], false);
        g_assert_false(nrd_wal_make_room(wal));
        g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
        fault_clear();
        g_assert_true(nrd_wal_make_room(wal) == (errors[i] != -EOPNOTSUPP));
        g_assert_cmpint(put(wal, "more"), ==, 0);
        nrd_wal_close(wal, 0);
        fixture_tear_down(&f);
    }
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

/* ---- crashes ---- */

/* Appends with faults at random; whatever the moment of a copy, what was acknowledged is in it, once, in order, and what
 * failed before the last success is not. */
static void test_random_faults_and_crashes(void)
{
    for (unsigned seed = 0; seed < 60; seed++) {
        Fixture f;
        Found found;
        g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
        g_autoptr(GString) acked = g_string_new(NULL);
        fixture_set_up(&f);
        NrdWal *wal = open_wal(&f, 300, &found);
        assert_found(&found, "");
        for (int i = 0; i < 30; i++) {
            static const FaultCall calls[] = { FAULT_PWRITEV,   FAULT_FDATASYNC, FAULT_FSYNC, FAULT_OPEN,
                                               FAULT_FTRUNCATE, FAULT_PREAD,     FAULT_LIE };
            g_autofree char *payload = g_strdup_printf("%d", i);
            bool faulty = g_rand_int_range(rand, 0, 3) == 0;
            if (faulty)
                fault_set(calls[g_rand_int_range(rand, 0, G_N_ELEMENTS(calls))], g_rand_int_range(rand, 1, 3), -EIO,
                          g_rand_boolean(rand));
            if (faulty && g_rand_int_range(rand, 0, 4) == 0)
                atomic_store(&fault_also, FAULT_FDATASYNC);
            int rc = put(wal, payload);
            fault_clear();
            if (rc == 0) {
                g_string_append_printf(acked, "%s\n", payload);
                assert_next_open(&f, acked->str);
            }
            if (g_rand_int_range(rand, 0, 8) == 0) { /* the process dies */
                nrd_wal_close(wal, 0);
                wal = open_wal(&f, 300, &found);
                g_assert_true(g_str_has_prefix(found.text->str, acked->str));
                g_string_assign(acked, found.text->str);
                g_string_free(found.text, TRUE);
            }
        }
        nrd_wal_close(wal, 0);
        fixture_tear_down(&f);
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

/* ---- a thread that writes for others ---- */

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
static void test_told_before_given_back(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_autoptr(GString) order = g_string_new(NULL);
    Told second = { .order = order, .name = "second", .wal = wal };
    Told third = { .order = order, .name = "third", .wal = wal };
    Told first = { .order = order, .name = "first", .wal = wal, .then = { &second, &third } };
    send_told(&first);
    g_assert_cmpstr(order->str, ==, "first told, first back, second told, third told, second back, third back, ");
    nrd_wal_close(wal, 0);
    fixture_tear_down(&f);
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

static void test_handed_over(void)
{
    Fixture f;
    Found found = { 0 };
    Chain chain = { .somebody = true };
    fixture_set_up(&f);
    start_chain(&f, &chain, &found);
    g_assert_cmpint(chain.n_done, <, CHAIN);
    while (chain.n_done < CHAIN) {
        int before = chain.n_done;
        nrd_wal_write_on(chain.wal);
        g_assert_cmpint(chain.n_done, >, before);
    }
    end_chain(&chain, &found);
    fixture_tear_down(&f);
}

/* No thread could be made: who waits for an answer gets it all the same. */
static void test_nobody_to_hand_over_to(void)
{
    Fixture f;
    Found found = { 0 };
    Chain chain = { .somebody = false };
    fixture_set_up(&f);
    start_chain(&f, &chain, &found);
    end_chain(&chain, &found);
    fixture_tear_down(&f);
}

/* One bad read at the start loses no entry, the last one included, and sets nothing aside. */
static void test_bad_reads(void)
{
    Fixture f;
    Found found;
    fixture_set_up(&f);
    NrdWal *wal = open_wal(&f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    nrd_wal_close(wal, 0);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        uint64_t damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED) + nrd_counter_get(NRD_COUNTER_TORN_TAILS);
        wal = open_wal(&f, 1 << 20, &found);
        bad_read_end(&bad);
        assert_found(&found, "one\ntwo\n");
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED) + nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==,
                         damaged);
        nrd_wal_close(wal, 0);
    }
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/wal/names", test_names);
    g_test_add_func("/ingress/wal/found-again", test_found_again);
    g_test_add_func("/ingress/wal/segments", test_segments_come_and_go);
    g_test_add_func("/ingress/wal/every-byte-flipped", test_every_byte_flipped);
    g_test_add_func("/ingress/wal/zeros-ahead", test_zeros_ahead);
    g_test_add_func("/ingress/wal/zeros-fail", test_zeros_fail);
    g_test_add_func("/ingress/wal/told-before-given-back", test_told_before_given_back);
    g_test_add_func("/ingress/wal/every-cut", test_every_cut);
    g_test_add_func("/ingress/wal/damaged-is-set-aside", test_damaged_is_set_aside);
    g_test_add_func("/ingress/wal/handed-over", test_handed_over);
    g_test_add_func("/ingress/wal/nobody-to-hand-over-to", test_nobody_to_hand_over_to);
    g_test_add_func("/ingress/wal/torn-tail-then-more", test_torn_tail_then_more);
    g_test_add_func("/ingress/wal/damaged-tail-then-more", test_damaged_tail_then_more);
    g_test_add_func("/ingress/wal/entry-inside-a-payload", test_entry_inside_a_payload);
    g_test_add_func("/ingress/wal/something-else", test_something_else_in_its_place);
    g_test_add_func("/ingress/wal/group-commit", test_group_commit);
    g_test_add_func("/ingress/wal/write-fails", test_write_fails);
    g_test_add_func("/ingress/wal/cut-fails", test_cut_fails);
    g_test_add_func("/ingress/wal/sync-fails-once", test_sync_fails_once);
    g_test_add_func("/ingress/wal/first-sync-fails", test_first_sync_fails);
    g_test_add_func("/ingress/wal/sync-keeps-failing", test_sync_keeps_failing);
    g_test_add_func("/ingress/wal/proof-fails-once", test_proof_fails_once);
    g_test_add_func("/ingress/wal/proof-keeps-failing", test_proof_keeps_failing);
    g_test_add_func("/ingress/wal/proof-of-a-long-entry", test_proof_of_a_long_entry);
    g_test_add_func("/ingress/wal/room-is-given-back", test_room_is_given_back);
    g_test_add_func("/ingress/wal/room-cannot-be-given-back", test_room_cannot_be_given_back);
    g_test_add_func("/ingress/wal/ranges-done-in-any-order", test_ranges_done_in_any_order);
    g_test_add_func("/ingress/wal/new-segment-fails", test_new_segment_fails);
    g_test_add_func("/ingress/wal/random-faults-and-crashes", test_random_faults_and_crashes);
    g_test_add_func("/ingress/wal/bad-reads", test_bad_reads);
    return g_test_run();
}
