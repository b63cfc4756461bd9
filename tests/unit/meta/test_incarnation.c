/* Markers: whose folder it is, what happens to a foreign one, and that nothing is deleted on doubt. */
#include "engine/meta/incarnation.h"

#include "engine/base/diag.h"
#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <string.h>

#define OURS "0123456789abcdef"
#define OTHER "fedcba9876543210" /* far from ours */
#define STALE "topics/orders.stale-" OTHER

static char *why;

static int claim(NrdClaim *ret_claim)
{
    g_clear_pointer(&why, g_free);
    return nrd_incarnation_claim(fix_fd, "orders", OURS, NULL, NULL, ret_claim, &why);
}

static void assert_claim(NrdClaim expected)
{
    NrdClaim got = NRD_CLAIM_MATCH;
    g_assert_cmpint(claim(&got), ==, 0);
    g_assert_cmpint(got, ==, expected);
    g_assert_null(why);
    fix_assert_text("topics/orders/incarnation", OURS);
}

static void assert_no_claim(int error)
{
    NrdClaim got = 4711;
    g_assert_cmpint(claim(&got), ==, error);
    g_assert_cmpint(got, ==, 4711);
    g_assert_nonnull(why);
}

/* topics/<name> with this marker (NULL: none) and a file in it. */
static void make_folder(const char *name, const char *marker)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    g_autofree char *file = g_strconcat(dir, "/p00000", NULL);
    g_autofree char *path = g_strconcat(dir, "/incarnation", NULL);
    fix_make_dir(dir);
    fix_make_dir(file);
    if (marker)
        fix_put_text(path, marker);
}

static void set_up(void)
{
    fix_set_up(true);
}

static void tear_down(void)
{
    g_clear_pointer(&why, g_free);
    fix_tear_down();
}

static void test_created_and_match(void)
{
    set_up();
    assert_claim(NRD_CLAIM_CREATED);
    fix_fail(FIX_WRITE, 1, INT_MAX, -EIO); /* a match writes nothing */
    assert_claim(NRD_CLAIM_MATCH);
    fix_heal();
    fix_put_text("topics/orders/incarnation", OURS "\n");
    NrdClaim got;
    g_assert_cmpint(claim(&got), ==, 0);
    g_assert_cmpint(got, ==, NRD_CLAIM_MATCH);
    struct stat st;
    g_assert_cmpint(nrd_io_stat(fix_fd, "topics/orders", &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0700);
    g_assert_cmpint(nrd_io_stat(fix_fd, "topics/orders/incarnation", &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0600);
    tear_down();
}

/* No marker, and every beginning of ours. */
static void test_adopted(void)
{
    set_up();
    make_folder("orders", NULL);
    assert_claim(NRD_CLAIM_ADOPTED);
    for (size_t n = 0; n < 16; n++) {
        fix_put("topics/orders/incarnation", OURS, n);
        assert_claim(NRD_CLAIM_ADOPTED);
        g_assert_true(fix_exists("topics/orders/p00000"));
    }
    tear_down();
}

static void assert_damaged(const void *marker, size_t size)
{
    fix_put("topics/orders/incarnation", marker, size);
    assert_no_claim(-EIO);
    g_assert_nonnull(strstr(why, "topics/orders/incarnation"));
    g_assert_nonnull(strstr(why, OURS));
    g_autoptr(GPtrArray) entries = NULL;
    g_assert_cmpint(nrd_io_list_dir(fix_fd, "topics", &entries), ==, 0);
    g_assert_cmpuint(entries->len, ==, 1); /* nothing renamed, nothing made */
    g_assert_true(fix_exists("topics/orders/p00000"));
}

static void test_damaged(void)
{
    static const char *const markers[] = {
        "x",    "0123456789abcdeF", "0123456789abcdeg", OURS "0",     OURS OURS,        OURS "\n\n", "123",
        "0124", "FEDCBA9876543210", " " OTHER,          OTHER "\r\n", "fedcba987654321"
    };
    char zeros[16] = { 0 };
    g_autofree char *huge = g_strnfill(100000, '0');
    set_up();
    make_folder("orders", NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(markers); i++)
        assert_damaged(markers[i], strlen(markers[i]));
    assert_damaged(zeros, sizeof zeros);
    fix_put("topics/orders/incarnation", huge, 100000);
    assert_no_claim(-EFBIG);
    tear_down();
}

/* No one or two flipped bits of our marker make it a foreign one. */
static void test_flipped_bits(void)
{
    set_up();
    make_folder("orders", NULL);
    for (size_t a = 0; a < 128; a++) {
        for (size_t b = a; b < 128; b += 7) {
            char marker[17] = OURS;
            marker[a / 8] ^= (char)(1U << (a % 8));
            if (b != a)
                marker[b / 8] ^= (char)(1U << (b % 8));
            fix_put("topics/orders/incarnation", marker, 16);
            NrdClaim got;
            g_assert_cmpint(claim(&got), ==, -EIO);
        }
    }
    g_autoptr(GPtrArray) entries = NULL;
    g_assert_cmpint(nrd_io_list_dir(fix_fd, "topics", &entries), ==, 0);
    g_assert_cmpuint(entries->len, ==, 1);
    tear_down();
}

static void after_rename(void *user_data)
{
    int *n = user_data;
    (*n)++;
    g_assert_true(fix_exists(STALE "/p00000"));
    g_assert_false(fix_exists("topics/orders"));
}

static void test_quarantined(void)
{
    set_up();
    int n = 0;
    NrdClaim got;
    uint64_t before = nrd_counter_get(NRD_COUNTER_QUARANTINED);
    make_folder("orders", OTHER);
    g_assert_cmpint(nrd_incarnation_claim(fix_fd, "orders", OURS, after_rename, &n, &got, &why), ==, 0);
    g_assert_cmpint(got, ==, NRD_CLAIM_QUARANTINED);
    g_assert_cmpint(n, ==, 1);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_QUARANTINED), ==, before + 1);
    fix_assert_text("topics/orders/incarnation", OURS);
    g_assert_false(fix_exists("topics/orders/p00000"));
    fix_assert_text(STALE "/incarnation", OTHER);
    assert_claim(NRD_CLAIM_MATCH);
    tear_down();
}

static void assert_untouched(void)
{
    fix_assert_text("topics/orders/incarnation", OTHER);
    g_assert_true(fix_exists("topics/orders/p00000"));
}

static void test_quarantine_refused(void)
{
    static const int errors[] = { -ENOSPC, -EACCES, -EPERM, -EIO, -EROFS };
    set_up();
    make_folder("orders", OTHER);
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        fix_fail(FIX_RENAME, 1, INT_MAX, errors[i]);
        assert_no_claim(errors[i]);
        assert_untouched();
    }
    fix_heal();
    make_folder("orders.stale-" OTHER, OTHER);
    assert_no_claim(-EEXIST); /* not merged */
    assert_untouched();
    fix_remove(STALE);
    fix_make_dir(STALE); /* an empty folder is not replaced either */
    assert_no_claim(-EEXIST);
    assert_untouched();
    fix_remove(STALE);
    assert_claim(NRD_CLAIM_QUARANTINED);
    tear_down();
}

/* Renamed but not synced: an error, and memory is told, since the next claim will not see it. */
static void test_quarantine_not_synced(void)
{
    set_up();
    int n = 0;
    NrdClaim got;
    make_folder("orders", OTHER);
    fix_fail(FIX_FSYNC, 1, INT_MAX, -EIO);
    g_assert_cmpint(nrd_incarnation_claim(fix_fd, "orders", OURS, after_rename, &n, &got, &why), ==, -EIO);
    g_assert_cmpint(n, ==, 1);
    fix_heal();
    assert_claim(NRD_CLAIM_CREATED);
    g_assert_true(fix_exists(STALE "/p00000"));
    tear_down();
}

/* Each call of making a fresh folder fails, once or for ever: nothing is served unstamped, and the next claim works. */
static void test_create_fails(void)
{
    static const FixCall calls[] = { FIX_MKDIR, FIX_FSYNC, FIX_WRITE, FIX_RENAME, FIX_OPEN };
    int n_failed = 0;
    for (size_t c = 0; c < G_N_ELEMENTS(calls); c++) {
        for (int nth = 1; nth < 8; nth++) {
            set_up();
            NrdClaim got;
            fix_fail(calls[c], nth, INT_MAX, -EIO);
            int rc = claim(&got);
            bool fired = fix_n_failed() > 0;
            fix_heal();
            g_assert_true((rc < 0) == fired);
            n_failed += fired;
            g_assert_cmpint(claim(&got), ==, 0);
            fix_assert_text("topics/orders/incarnation", OURS);
            tear_down();
        }
    }
    g_assert_cmpint(n_failed, >=, 8);
}

static void test_not_a_folder(void)
{
    set_up();
    fix_put_text("topics/orders", "a file");
    assert_no_claim(-ENOTDIR);
    fix_assert_text("topics/orders", "a file");
    fix_remove("topics/orders");
    make_folder("target", OTHER);
    fix_link("topics/orders", "target");
    assert_no_claim(-ELOOP);
    fix_assert_text("topics/target/incarnation", OTHER);
    fix_remove("topics/orders");
    make_folder("orders", NULL);
    fix_link("topics/orders/incarnation", "../target/incarnation");
    assert_no_claim(-ELOOP);
    fix_remove("topics/orders/incarnation");
    fix_make_dir("topics/orders/incarnation");
    assert_no_claim(-EINVAL);
    fix_remove("topics/orders/incarnation");
    fix_fifo("topics/orders/incarnation");
    assert_no_claim(-EINVAL);
    fix_remove("topics/orders/incarnation");
    make_folder("orders", OTHER);
    fix_fail(FIX_READ, 1, INT_MAX, -EIO); /* an error is not an empty marker */
    assert_no_claim(-EIO);
    fix_heal();
    assert_untouched();
    tear_down();
}

static int verify(void)
{
    g_clear_pointer(&why, g_free);
    return nrd_incarnation_verify(fix_fd, "orders", OURS, &why);
}

static void test_verify(void)
{
    set_up();
    fix_fail(FIX_WRITE, 1, INT_MAX, -EROFS);
    make_folder("orders", NULL);
    g_assert_cmpint(verify(), ==, 0);
    fix_heal();
    make_folder("orders", OURS);
    g_assert_cmpint(verify(), ==, 0);
    make_folder("orders", OTHER);
    g_assert_cmpint(verify(), ==, -EIO);
    g_assert_nonnull(strstr(why, OTHER));
    make_folder("orders", "damaged");
    g_assert_cmpint(verify(), ==, -EIO);
    tear_down();
}

/* ---- sweep and purge ---- */

static NrdMetastore *open_store(void)
{
    NrdMetastore *store = NULL;
    g_clear_pointer(&why, g_free);
    g_assert_cmpint(nrd_metastore_open(fix_fd, false, &store, &why), ==, 0);
    return store;
}

static int sweep(void)
{
    NrdMetastore *store = open_store();
    int rc = nrd_incarnation_sweep(fix_fd, store);
    nrd_metastore_free(store);
    return rc;
}

static void add_record(const char *name, const char *id)
{
    NrdMetastore *store = open_store();
    NrdTopicRecord *record = nrd_topic_record_new(name);
    g_strlcpy(record->id, id, sizeof record->id);
    g_assert_cmpint(nrd_metastore_create(store, record), ==, 0);
    nrd_topic_record_free(record);
    nrd_metastore_free(store);
}

static void test_sweep(void)
{
    set_up();
    uint64_t before = nrd_counter_get(NRD_COUNTER_RECLAIMED);
    add_record("orders", OURS);
    make_folder("orders", OURS);
    make_folder("orders.stale-" OTHER, OTHER); /* gone: reclaimed */
    make_folder("other.stale-" OURS, OURS);    /* some record carries the id: stays */
    make_folder("orphan", OTHER);              /* no record: reclaimed */
    make_folder("partly.stale-" OTHER, NULL);  /* a removal that was cut short: reclaimed */
    g_assert_cmpint(sweep(), ==, 3);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_RECLAIMED), ==, before + 3);
    g_assert_true(fix_exists("topics/orders/p00000"));
    g_assert_true(fix_exists("topics/other.stale-" OURS "/p00000"));
    g_assert_false(fix_exists(STALE));
    g_assert_false(fix_exists("topics/orphan"));
    g_assert_false(fix_exists("topics/orphan.stale-" OTHER));
    g_assert_false(fix_exists("topics/partly.stale-" OTHER));
    g_assert_cmpint(sweep(), ==, 0);
    tear_down();
}

/* What the sweep does not understand stays. */
static void test_sweep_doubt(void)
{
    static const char *const stay[] = { "topics/unmarked/p00000",
                                        "topics/damaged/p00000",
                                        "topics/half/p00000",
                                        "topics/known/p00000",
                                        "topics/a.stale-0123/p00000",
                                        "topics/a.stale-FEDCBA9876543210/p00000",
                                        "topics/.stale-" OTHER "/p00000",
                                        "topics/b.stale-" OTHER "/p00000",
                                        "topics/file",
                                        "topics/c.stale-" OTHER,
                                        "topics/d.stale-" OTHER,
                                        "topics/lost+found/p00000",
                                        "outside/p00000" };
    set_up();
    add_record("orders", OURS);
    make_folder("unmarked", NULL);
    make_folder("damaged", "fedcba987654321");
    make_folder("half", "");
    make_folder("known", OURS); /* not under its topic's name, but some record carries the id */
    make_folder("a.stale-0123", OTHER);
    make_folder("a.stale-FEDCBA9876543210", OTHER);
    make_folder(".stale-" OTHER, OTHER);
    make_folder("b.stale-" OTHER, OURS); /* its marker says otherwise */
    make_folder("lost+found", OTHER);
    fix_put_text("topics/file", "x");
    fix_put_text("topics/c.stale-" OTHER, "x");
    fix_make_dir("outside");
    fix_make_dir("outside/p00000");
    fix_link("topics/d.stale-" OTHER, "../outside");
    g_assert_cmpint(sweep(), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(stay); i++)
        g_assert_true(fix_exists(stay[i]));
    tear_down();
}

static void test_sweep_damaged_record(void)
{
    set_up();
    make_folder("orders", OURS);
    make_folder("orders.stale-" OTHER, OTHER);
    make_folder("orphan", OTHER);
    fix_put_text("meta/orders.topic", "damaged");
    g_assert_cmpint(sweep(), ==, 0);
    g_assert_true(fix_exists("topics/orders/p00000"));
    g_assert_true(fix_exists(STALE "/p00000"));
    g_assert_true(fix_exists("topics/orphan/p00000"));
    fix_remove("meta/orders.topic");
    add_record("orders", OURS);
    g_assert_cmpint(sweep(), ==, 2);
    tear_down();
}

static bool is_ours(void *user_data, const char *id)
{
    return strcmp(id, OURS) == 0;
}

static bool is_doubtful(void *user_data, const char *id)
{
    return true;
}

static void assert_fate(const char *entry, NrdKnowsFn knows, NrdFate expected, const char *expected_id)
{
    char id[NRD_INCARNATION_DIGITS + 1];
    g_autofree char *reason = NULL;
    g_assert_cmpint(nrd_incarnation_fate(fix_fd, entry, knows, NULL, id, &reason), ==, expected);
    g_assert_true((reason != NULL) == (expected == NRD_FATE_LEFT));
    if (expected_id)
        g_assert_cmpstr(id, ==, expected_id);
}

/* What is said of a folder before is what the sweep does with it. */
static void test_fate(void)
{
    set_up();
    make_folder("orphan", OTHER);
    make_folder("known", OURS);
    make_folder("unmarked", NULL);
    make_folder("half", "0123");
    make_folder("gone.stale-" OTHER, OTHER);
    make_folder("partly.stale-" OTHER, NULL);
    make_folder("kept.stale-" OURS, OURS);
    make_folder("lying.stale-" OTHER, OURS);
    fix_put_text("topics/file", "x");
    assert_fate("orphan", is_ours, NRD_FATE_REMOVED, OTHER);
    assert_fate("known", is_ours, NRD_FATE_KNOWN, OURS);
    assert_fate("unmarked", is_ours, NRD_FATE_LEFT, NULL);
    assert_fate("half", is_ours, NRD_FATE_LEFT, NULL);
    assert_fate("file", is_ours, NRD_FATE_LEFT, NULL);
    assert_fate("a.stale-0123", is_ours, NRD_FATE_LEFT, "");
    assert_fate("gone.stale-" OTHER, is_ours, NRD_FATE_REMOVED, OTHER);
    assert_fate("partly.stale-" OTHER, is_ours, NRD_FATE_REMOVED, OTHER);
    assert_fate("kept.stale-" OURS, is_ours, NRD_FATE_KNOWN, OURS);
    assert_fate("lying.stale-" OTHER, is_ours, NRD_FATE_LEFT, NULL);
    assert_fate("orphan", is_doubtful, NRD_FATE_KNOWN, OTHER);
    assert_fate("gone.stale-" OTHER, is_doubtful, NRD_FATE_KNOWN, OTHER);
    g_assert_true(fix_exists("topics/orphan/p00000")); /* nothing is changed by asking */
    tear_down();
}

static void test_sweep_fails(void)
{
    set_up();
    NrdMetastore *store = open_store();
    make_folder("orders.stale-" OTHER, OTHER);
    make_folder("zorders.stale-" OTHER, OTHER);
    fix_fail(FIX_LIST, 1, 1, -EIO);
    g_assert_cmpint(nrd_incarnation_sweep(fix_fd, store), ==, -EIO);
    g_assert_true(fix_exists(STALE "/p00000"));
    fix_fail(FIX_UNLINK, 1, 1, -EIO); /* one folder fails, the other goes */
    g_assert_cmpint(nrd_incarnation_sweep(fix_fd, store), ==, 1);
    fix_heal();
    g_assert_cmpint(nrd_incarnation_sweep(fix_fd, store), ==, 1);
    nrd_metastore_free(store);
    tear_down();
}

static int purge(void)
{
    return nrd_incarnation_purge(fix_fd, "orders", OURS);
}

static void test_purge(void)
{
    set_up();
    g_assert_cmpint(purge(), ==, 0); /* nothing there */
    make_folder("orders", OURS);
    g_assert_cmpint(purge(), ==, 0);
    g_assert_false(fix_exists("topics/orders"));
    g_assert_false(fix_exists("topics/orders.stale-" OURS));
    make_folder("orders", OTHER); /* a later topic of that name */
    g_assert_cmpint(purge(), ==, 0);
    assert_untouched();
    fix_put_text("topics/orders/incarnation", "damaged");
    g_assert_cmpint(purge(), ==, -EIO);
    g_assert_true(fix_exists("topics/orders/p00000"));
    tear_down();
}

/* A crash (here: an error) in the middle leaves the folder under the quarantine name, out of a new topic's way. */
static void test_purge_fails(void)
{
    set_up();
    make_folder("orders", OURS);
    fix_fail(FIX_UNLINK, 1, INT_MAX, -EIO);
    g_assert_cmpint(purge(), ==, -EIO);
    fix_heal();
    g_assert_false(fix_exists("topics/orders"));
    g_assert_true(fix_exists("topics/orders.stale-" OURS "/p00000"));
    g_assert_cmpint(sweep(), ==, 1);
    tear_down();
}

static void test_bad_reads(void)
{
    set_up();
    make_folder("orders", OURS);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        NrdClaim got = NRD_CLAIM_CREATED;
        g_assert_cmpint(claim(&got), ==, 0);
        bad_read_end(&bad);
        g_assert_cmpint(got, ==, NRD_CLAIM_MATCH);
    }
    tear_down();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    g_test_add_func("/incarnation/created-and-match", test_created_and_match);
    g_test_add_func("/incarnation/adopted", test_adopted);
    g_test_add_func("/incarnation/damaged", test_damaged);
    g_test_add_func("/incarnation/flipped-bits", test_flipped_bits);
    g_test_add_func("/incarnation/quarantined", test_quarantined);
    g_test_add_func("/incarnation/quarantine-refused", test_quarantine_refused);
    g_test_add_func("/incarnation/quarantine-not-synced", test_quarantine_not_synced);
    g_test_add_func("/incarnation/create-fails", test_create_fails);
    g_test_add_func("/incarnation/not-a-folder", test_not_a_folder);
    g_test_add_func("/incarnation/verify", test_verify);
    g_test_add_func("/incarnation/sweep", test_sweep);
    g_test_add_func("/incarnation/fate", test_fate);
    g_test_add_func("/incarnation/sweep-doubt", test_sweep_doubt);
    g_test_add_func("/incarnation/sweep-damaged-record", test_sweep_damaged_record);
    g_test_add_func("/incarnation/sweep-fails", test_sweep_fails);
    g_test_add_func("/incarnation/purge", test_purge);
    g_test_add_func("/incarnation/purge-fails", test_purge_fails);
    g_test_add_func("/incarnation/bad-reads", test_bad_reads);
    return g_test_run();
}
