/* The WAL on real files that were damaged, cut or filled by somebody else. */
#include "wal_fixture.h"

#include "engine/base/diag.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <unistd.h>

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
    fixture_set_up(f);
    NrdWal *wal = open_with_one(f);
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
    make_three(&f);
    guint each = file_size(&f) / 3;
    fixture_tear_down(&f);
    fixture_set_up(&f);
    fixture_make(&killed);
    NrdWal *wal = open_with_one(&f);
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
static void test_zeros_fail(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
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
    assert_next_open(f, "one\ntwo\n");
}

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

/* One bad read at the start loses no entry, the last one included, and sets nothing aside. */
static void test_bad_reads(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    nrd_wal_close(wal, 0);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        uint64_t damaged = nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED) + nrd_counter_get(NRD_COUNTER_TORN_TAILS);
        wal = open_wal(f, 1 << 20, &found);
        bad_read_end(&bad);
        assert_found(&found, "one\ntwo\n");
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_DAMAGED) + nrd_counter_get(NRD_COUNTER_TORN_TAILS), ==,
                         damaged);
        nrd_wal_close(wal, 0);
    }
}

#define ADD(name, test) g_test_add("/ingress/wal/" name, Fixture, NULL, fixture_before, test, fixture_after)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/wal/every-byte-flipped", test_every_byte_flipped);
    g_test_add_func("/ingress/wal/zeros-ahead", test_zeros_ahead);
    ADD("zeros-fail", test_zeros_fail);
    g_test_add_func("/ingress/wal/every-cut", test_every_cut);
    g_test_add_func("/ingress/wal/damaged-is-set-aside", test_damaged_is_set_aside);
    g_test_add_func("/ingress/wal/torn-tail-then-more", test_torn_tail_then_more);
    g_test_add_func("/ingress/wal/damaged-tail-then-more", test_damaged_tail_then_more);
    g_test_add_func("/ingress/wal/entry-inside-a-payload", test_entry_inside_a_payload);
    g_test_add_func("/ingress/wal/something-else", test_something_else_in_its_place);
    ADD("bad-reads", test_bad_reads);
    return g_test_run();
}
