/* The metastore: what a start makes of whatever lies in meta/, and what a failing disk leaves of a change. */
#include "engine/meta/metastore.h"

#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <string.h>

static NrdMetastore *store;

static int reopen(void)
{
    g_autofree char *why = NULL;
    nrd_metastore_free(g_steal_pointer(&store));
    int rc = nrd_metastore_open(fix_fd, false, &store, &why);
    g_assert_true((rc < 0) == (why != NULL));
    return rc;
}

static void set_up(void)
{
    fix_set_up(true);
    g_assert_cmpint(reopen(), ==, 0);
}

static void tear_down(void)
{
    nrd_metastore_free(g_steal_pointer(&store));
    fix_tear_down();
}

static NrdTopicRecord *create(const char *name)
{
    NrdTopicRecord *record = nrd_topic_record_new(name);
    g_assert_cmpint(nrd_metastore_create(store, record), ==, 0);
    return record;
}

/* linger_ms of the record in memory: what the tests change to tell the old from the new; -1 when there is none. */
static int64_t linger(const char *name)
{
    NrdTopicRecord *record = NULL;
    int rc = nrd_metastore_get(store, name, &record, NULL);
    if (rc == -ENOENT)
        return -1;
    g_assert_cmpint(rc, ==, 0);
    int64_t linger_ms = record->config.linger_ms;
    nrd_topic_record_free(record);
    return linger_ms;
}

static void assert_out_of_service(const char *name)
{
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_metastore_get(store, name, &record, &why), ==, -EIO);
    g_assert_null(record);
    g_assert_nonnull(strstr(why, name));
    g_assert_cmpint(nrd_metastore_get(store, name, &record, NULL), ==, -EIO);
    g_assert_true(nrd_metastore_may_know(store, "0123456789abcdef"));
}

static void test_life(void)
{
    set_up();
    NrdTopicRecord *b = create("b"), *a = create("a");
    g_assert_cmpint(nrd_metastore_create(store, a), ==, -EEXIST);
    b->config.linger_ms = 7;
    g_assert_cmpint(linger("b"), ==, 100); /* it was copied */
    g_assert_cmpint(nrd_metastore_update(store, b), ==, 0);
    g_assert_cmpint(linger("b"), ==, 7);
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger("b"), ==, 7);
    g_autoptr(GPtrArray) names = nrd_metastore_names(store);
    g_assert_cmpuint(names->len, ==, 2);
    g_assert_cmpstr(names->pdata[0], ==, "a");
    g_assert_cmpstr(names->pdata[1], ==, "b");
    g_assert_true(nrd_metastore_may_know(store, a->id));
    g_assert_cmpint(nrd_metastore_remove(store, "a", b->id), ==, -ESTALE);
    g_assert_cmpint(nrd_metastore_remove(store, "a", a->id), ==, 0);
    g_assert_cmpint(nrd_metastore_remove(store, "a", a->id), ==, -ENOENT);
    g_assert_cmpint(nrd_metastore_update(store, a), ==, -ENOENT);
    g_assert_false(nrd_metastore_may_know(store, a->id));
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger("a"), ==, -1);
    g_assert_false(fix_exists("meta/a.topic"));
    nrd_topic_record_free(a);
    nrd_topic_record_free(b);
    tear_down();
}

static void test_other_incarnation(void)
{
    set_up();
    NrdTopicRecord *old = create("a"), *new = nrd_topic_record_new("a");
    g_assert_cmpint(nrd_metastore_update(store, new), ==, -ESTALE);
    g_assert_cmpint(nrd_metastore_remove(store, "a", old->id), ==, 0);
    g_assert_cmpint(nrd_metastore_create(store, new), ==, 0);
    g_assert_cmpint(nrd_metastore_update(store, old), ==, -ESTALE);
    g_assert_cmpint(nrd_metastore_remove(store, "a", old->id), ==, -ESTALE);
    nrd_topic_record_free(old);
    nrd_topic_record_free(new);
    tear_down();
}

static void test_longest_name(void)
{
    set_up();
    g_autofree char *name = g_strnfill(200, 'n');
    nrd_topic_record_free(create(name));
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger(name), ==, 100);
    tear_down();
}

/* Names that end as our own files do. */
static void test_awkward_names(void)
{
    static const char *const awkward[] = { "a.topic", "a.tmp", "a.topic.tmp", "topic", "tmp" };
    set_up();
    for (size_t i = 0; i < G_N_ELEMENTS(awkward); i++)
        nrd_topic_record_free(create(awkward[i]));
    g_assert_cmpint(reopen(), ==, 0);
    g_autoptr(GPtrArray) names = nrd_metastore_names(store);
    g_assert_cmpuint(names->len, ==, G_N_ELEMENTS(awkward));
    tear_down();
}

static void test_foreign_files(void)
{
    set_up();
    nrd_topic_record_free(create("a"));
    fix_put_text("meta/README", "hello");
    fix_put_text("meta/b.topic~", "hello");
    fix_put_text("meta/.topic", "hello");
    fix_put_text("meta/.hidden.topic", "hello");
    fix_put_text("meta/a.stale-0123456789abcdef.topic", "hello");
    fix_put_text("meta/a.topic.tmp", "half a reco");
    fix_make_dir("meta/folder");
    g_assert_cmpint(reopen(), ==, 0);
    g_autoptr(GPtrArray) names = nrd_metastore_names(store);
    g_assert_cmpuint(names->len, ==, 1);
    g_assert_true(fix_exists("meta/README"));
    g_assert_true(fix_exists("meta/b.topic~"));
    g_assert_true(fix_exists("meta/folder"));
    g_assert_false(fix_exists("meta/a.topic.tmp"));
    tear_down();
}

static void test_read_only(void)
{
    set_up();
    fix_put_text("meta/a.topic.tmp", "half a reco");
    nrd_metastore_free(store);
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_metastore_open(fix_fd, true, &store, &why), ==, 0);
    g_assert_true(fix_exists("meta/a.topic.tmp"));
    tear_down();
}

static void test_out_of_service(void)
{
    g_autofree char *huge = g_strnfill((1 << 20) + 1, 'x');
    set_up();
    nrd_topic_record_free(create("well"));
    nrd_topic_record_free(create("moved"));
    g_autofree char *moved = fix_text("meta/moved.topic");
    fix_put_text("meta/empty.topic", "");
    fix_put_text("meta/garbage.topic", "[topic]\nname=garbage\n");
    fix_put_text("meta/huge.topic", huge);
    fix_put_text("meta/renamed.topic", moved); /* a record under another's name */
    fix_make_dir("meta/folder.topic");
    fix_fifo("meta/fifo.topic");
    fix_link("meta/link.topic", "well.topic");
    g_assert_cmpint(reopen(), ==, 0);
    assert_out_of_service("empty");
    assert_out_of_service("garbage");
    assert_out_of_service("huge");
    assert_out_of_service("renamed");
    assert_out_of_service("folder");
    assert_out_of_service("fifo");
    assert_out_of_service("link");
    g_assert_cmpint(linger("well"), ==, 100);
    g_autoptr(GPtrArray) names = nrd_metastore_names(store);
    g_assert_cmpuint(names->len, ==, 9);
    NrdTopicRecord *record = nrd_topic_record_new("empty");
    g_assert_cmpint(nrd_metastore_create(store, record), ==, -EEXIST);
    g_assert_cmpint(nrd_metastore_update(store, record), ==, -EIO);
    g_assert_cmpint(nrd_metastore_remove(store, "empty", record->id), ==, -EIO);
    fix_assert_text("meta/empty.topic", "");
    nrd_topic_record_free(record);
    tear_down();
}

static void test_listing_fails(void)
{
    set_up();
    nrd_topic_record_free(create("a"));
    fix_fail(FIX_LIST, 1, 1, -EIO);
    g_assert_cmpint(reopen(), ==, -EIO);
    fix_heal();
    g_assert_cmpint(reopen(), ==, 0);
    fix_remove("meta");
    g_assert_cmpint(reopen(), ==, -ENOENT);
    tear_down();
}

/* A read error takes one topic out of service; a shortage of descriptors says nothing about any. */
static void test_reading_fails(void)
{
    set_up();
    nrd_topic_record_free(create("a"));
    fix_fail(FIX_READ, 1, INT_MAX, -EIO);
    g_assert_cmpint(reopen(), ==, 0);
    assert_out_of_service("a");
    fix_fail(FIX_OPEN, 2, INT_MAX, -EMFILE);
    g_assert_cmpint(reopen(), ==, -EMFILE);
    fix_heal();
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger("a"), ==, 100);
    tear_down();
}

/* Every call of a change fails, once or from then on: memory has the old record, and the disk has the old or the new
 * one, whole; when the disk works again for the rest, the old one. */
static void each_fault(int (*change)(NrdTopicRecord *record), bool existed)
{
    static const FixCall calls[] = { FIX_FSYNC, FIX_RENAME, FIX_UNLINK, FIX_WRITE, FIX_OPEN, FIX_READ };
    int n_fired = 0;
    for (size_t c = 0; c < G_N_ELEMENTS(calls); c++) {
        for (int nth = 1; nth <= 4; nth++) {
            for (int once = 0; once < 2; once++) {
                set_up();
                NrdTopicRecord *record = nrd_topic_record_new("a");
                if (existed)
                    g_assert_cmpint(nrd_metastore_create(store, record), ==, 0);
                fix_fail(calls[c], nth, once ? nth : INT_MAX, -EIO);
                int rc = change(record);
                int fired = fix_n_failed();
                fix_heal();
                n_fired += rc < 0;
                g_assert_true(rc == 0 || fired > 0);
                if (rc < 0)
                    g_assert_cmpint(linger("a"), ==, existed ? 100 : -1);
                g_assert_cmpint(reopen(), ==, 0);
                int64_t found = linger("a"); /* not damaged, whatever happened */
                if (rc < 0 && (once || calls[c] != FIX_FSYNC))
                    g_assert_cmpint(found, ==, existed ? 100 : -1);
                nrd_topic_record_free(record);
                tear_down();
            }
        }
    }
    g_assert_cmpint(n_fired, >, 8);
}

static int do_create(NrdTopicRecord *record)
{
    return nrd_metastore_create(store, record);
}

static int do_update(NrdTopicRecord *record)
{
    record->config.linger_ms = 7;
    return nrd_metastore_update(store, record);
}

static int do_remove(NrdTopicRecord *record)
{
    return nrd_metastore_remove(store, record->name, record->id);
}

static void test_create_fails(void)
{
    each_fault(do_create, false);
}

static void test_update_fails(void)
{
    each_fault(do_update, true);
}

/* The unlink and its sync are the only calls that change something. */
static void test_remove_fails(void)
{
    set_up();
    NrdTopicRecord *record = create("a");
    fix_fail(FIX_UNLINK, 1, 1, -EIO);
    g_assert_cmpint(do_remove(record), ==, -EIO);
    fix_fail(FIX_FSYNC, 1, 1, -EIO);
    g_assert_cmpint(do_remove(record), ==, -EIO);
    g_assert_cmpint(linger("a"), ==, 100);
    fix_heal();
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger("a"), ==, 100); /* put back */
    g_assert_cmpint(do_remove(record), ==, 0);
    g_assert_cmpint(linger("a"), ==, -1);
    nrd_topic_record_free(record);
    tear_down();
}

/* A record that a start would refuse to read is not written. */
static void test_too_large(void)
{
    static const NrdFileAttr attr = { 1, 2, 0600 };
    set_up();
    NrdTopicRecord *record = create("a");
    for (int i = 0; i < 40000; i++)
        g_hash_table_insert(record->file_attrs, g_strdup_printf("p00000/produce@%020d", i),
                            g_memdup2(&attr, sizeof attr));
    g_assert_cmpint(nrd_metastore_update(store, record), ==, -EFBIG);
    g_assert_cmpint(reopen(), ==, 0);
    g_assert_cmpint(linger("a"), ==, 100);
    nrd_topic_record_free(record);
    tear_down();
}

static void test_bad_reads(void)
{
    set_up();
    nrd_topic_record_free(create("orders"));
    int64_t right = linger("orders");
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        g_assert_cmpint(reopen(), ==, 0);
        bad_read_end(&bad);
        g_assert_cmpint(linger("orders"), ==, right);
    }
    tear_down();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/metastore/life", test_life);
    g_test_add_func("/metastore/other-incarnation", test_other_incarnation);
    g_test_add_func("/metastore/longest-name", test_longest_name);
    g_test_add_func("/metastore/awkward-names", test_awkward_names);
    g_test_add_func("/metastore/foreign-files", test_foreign_files);
    g_test_add_func("/metastore/read-only", test_read_only);
    g_test_add_func("/metastore/out-of-service", test_out_of_service);
    g_test_add_func("/metastore/listing-fails", test_listing_fails);
    g_test_add_func("/metastore/reading-fails", test_reading_fails);
    g_test_add_func("/metastore/create-fails", test_create_fails);
    g_test_add_func("/metastore/update-fails", test_update_fails);
    g_test_add_func("/metastore/remove-fails", test_remove_fails);
    g_test_add_func("/metastore/too-large", test_too_large);
    g_test_add_func("/metastore/bad-reads", test_bad_reads);
    return g_test_run();
}
