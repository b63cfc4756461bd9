/* The WAL on real files: what was acknowledged is found again, what was not is not, whatever fails. */
#include "wal_fixture.h"

#include "engine/base/errors.h"

#include <errno.h>

static void test_write_fails(void)
{
    static const int errors[] = { -EIO, -ENOSPC, -EDQUOT, -EFBIG, -ENOENT };
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        Fixture f;
        fixture_set_up(&f);
        NrdWal *wal = open_with_one(&f);
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
static void test_cut_fails(Fixture *f, gconstpointer data)
{
    NrdWal *wal = open_with_one(f);
    fault_set(FAULT_FTRUNCATE, 1, -EIO, false);
    atomic_store(&fault_also, FAULT_PWRITEV);
    g_assert_cmpint(put(wal, "lost"), ==, -EIO);
    fault_clear();
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 2);
    nrd_wal_close(wal, 0);
    assert_next_open(f, "one\ntwo\n");
}

/* The entries are written once more, to a new segment, and count once though both files hold them. */
static void test_sync_fails_once(Fixture *f, gconstpointer data)
{
    NrdWal *wal = open_with_one(f);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(put(wal, "two"), ==, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    fault_clear();
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 2);
    g_assert_cmpint(put(wal, "six"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(f, "one\ntwo\nsix\n");
}

/* The first round of all fails: the next segment has the same first sequence. */
static void test_first_sync_fails(Fixture *f, gconstpointer data)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(put(wal, "one"), ==, 0);
    fault_clear();
    nrd_wal_close(wal, 0);
    assert_next_open(f, "one\n");
}

/* Errors go to the callers as long as it lasts; what is put afterwards is there once. A crash at any time shows what was
 * acknowledged, and at most what was being tried last. */
static void test_sync_keeps_failing(Fixture *f, gconstpointer data)
{
    NrdWal *wal = open_with_one(f);
    fault_set(FAULT_FDATASYNC, 1, -EIO, true);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(put(wal, "two"), ==, -EIO);
    fault_clear();
    g_assert_cmpint(put(wal, "two"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(f, "one\ntwo\n");
}

/* A sync that lied, or whose truth cannot be read back, is a failed one: written once more elsewhere, and counted once. */
static void test_proof_fails_once(void)
{
    static const FaultCall calls[] = { FAULT_LIE, FAULT_PREAD };
    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        Fixture f;
        fixture_set_up(&f);
        NrdWal *wal = open_with_one(&f);
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
        fixture_set_up(&f);
        NrdWal *wal = open_with_one(&f);
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
static void test_proof_of_a_long_entry(Fixture *f, gconstpointer data)
{
    Found found;
    g_autofree char *payload = g_strnfill(700 * 1024, 'x');
    g_autofree char *wanted = g_strconcat(payload, "\nsmall\n", NULL);
    NrdWal *wal = open_wal(f, 16 << 20, &found);
    assert_found(&found, "");
    fault_set(FAULT_PREAD, 3, -EIO, false);
    g_assert_cmpint(put(wal, payload), ==, 0);
    g_assert_cmpint(atomic_load(&fault_fired), ==, 1);
    g_assert_cmpuint(fixture_count(f, ".wal"), ==, 2);
    fault_clear();
    g_assert_cmpint(put(wal, "small"), ==, 0);
    nrd_wal_close(wal, 0);
    assert_next_open(f, wanted);
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

#define ADD(name, test) g_test_add("/ingress/wal/" name, Fixture, NULL, fixture_before, test, fixture_after)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/wal/write-fails", test_write_fails);
    ADD("cut-fails", test_cut_fails);
    ADD("sync-fails-once", test_sync_fails_once);
    ADD("first-sync-fails", test_first_sync_fails);
    ADD("sync-keeps-failing", test_sync_keeps_failing);
    g_test_add_func("/ingress/wal/proof-fails-once", test_proof_fails_once);
    g_test_add_func("/ingress/wal/proof-keeps-failing", test_proof_keeps_failing);
    ADD("proof-of-a-long-entry", test_proof_of_a_long_entry);
    g_test_add_func("/ingress/wal/room-cannot-be-given-back", test_room_cannot_be_given_back);
    g_test_add_func("/ingress/wal/new-segment-fails", test_new_segment_fails);
    g_test_add_func("/ingress/wal/random-faults-and-crashes", test_random_faults_and_crashes);
    return g_test_run();
}
