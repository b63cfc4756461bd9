/* Who is whose child: every refusal, both records, failures of the disk between them, deletions, and what a start makes of
 * records that do not agree. */
#include "tests/unit/engine/fixture.h"

#include "engine/engine_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define HOUR_MS 3600000

/* ---- helpers ---- */

static NrdTopic *make(Fixture *f, const char *name, const char *config)
{
    NrdTopic *topic = NULL;
    g_assert_cmpint(nrd_topic_create(f->engine, name, &(NrdAttr){ 0, 0, 0755 }, 022, &topic), ==, 0);
    if (config)
        g_assert_cmpint(nrd_topic_config_write(topic, config, strlen(config)), ==, 0);
    nrd_topic_unref(topic); /* the engine has it */
    return topic;
}

static NrdTopic *find(Fixture *f, const char *name)
{
    NrdTopic *topic = NULL;
    g_assert_cmpint(nrd_topic_find(f->engine, name, &topic), ==, 0);
    nrd_topic_unref(topic);
    return topic;
}

static int configure(NrdTopic *topic, const char *config)
{
    return nrd_topic_config_write(topic, config, strlen(config));
}

static void assert_children(NrdTopic *topic, const char *expected)
{
    g_autoptr(GPtrArray) names = nrd_topic_children(topic);
    g_ptr_array_add(names, NULL);
    g_autofree char *text = g_strjoinv(" ", (char **)names->pdata);
    g_assert_cmpstr(text, ==, expected);
}

static void assert_parent(NrdTopic *topic, const char *expected)
{
    g_autofree char *parent = nrd_topic_parent(topic);
    g_assert_cmpstr(parent, ==, expected);
}

/* What is on the disk. */
static NrdTopicRecord *read_record(Fixture *f, const char *name)
{
    g_autofree char *path = g_strdup_printf("%s/meta/%s.topic", f->path, name);
    g_autofree char *text = NULL;
    g_autofree char *why = NULL;
    gsize size = 0;
    NrdTopicRecord *record = NULL;
    g_assert_true(g_file_get_contents(path, &text, &size, NULL));
    g_assert_cmpint(nrd_topic_record_decode(name, text, size, &record, &why), ==, 0);
    return record;
}

static void write_record(Fixture *f, NrdTopicRecord *record)
{
    g_autofree char *path = g_strdup_printf("%s/meta/%s.topic", f->path, record->name);
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_assert_true(g_file_set_contents(path, text, (gssize)size, NULL));
    nrd_topic_record_free(record);
}

static void assert_on_disk(Fixture *f, const char *name, const char *parent, const char *child)
{
    NrdTopicRecord *record = read_record(f, name);
    g_assert_cmpstr(record->parent, ==, parent);
    g_assert_cmpuint(record->children->len, ==, child != NULL);
    if (child)
        g_assert_cmpstr(((NrdChildRecord *)record->children->pdata[0])->name, ==, child);
    nrd_topic_record_free(record);
}

/* Flips the last byte of a record, or flips it back. */
static void damage(Fixture *f, const char *name)
{
    g_autofree char *path = g_strdup_printf("%s/meta/%s.topic", f->path, name);
    g_autofree char *text = NULL;
    gsize size = 0;
    g_assert_true(g_file_get_contents(path, &text, &size, NULL));
    text[size - 2] ^= 1;
    g_assert_true(g_file_set_contents(path, text, (gssize)size, NULL));
}

static bool copies(NrdTopic *parent, const char *child)
{
    NrdChildInfo info;
    if (nrd_topic_child_info(parent, child, &info) < 0)
        return false;
    nrd_child_info_clear(&info);
    return true;
}

static void set_parent(Fixture *f, const char *name, const char *parent)
{
    NrdTopicRecord *record = read_record(f, name);
    g_free(record->parent);
    record->parent = g_strdup(parent);
    write_record(f, record);
}

static void add_child(Fixture *f, const char *parent, const char *name, const char *id)
{
    NrdTopicRecord *record = read_record(f, parent);
    NrdChildRecord child = { .name = (char *)name, .epoch = 7, .attached_ms = 8 };
    g_strlcpy(child.id, id, sizeof child.id);
    nrd_topic_record_add_child(record, &child);
    write_record(f, record);
}

/* ---- attach and detach ---- */

static void test_attach_and_detach(Fixture *f, gconstpointer data)
{
    NrdChildInfo info;
    make(f, "c", "fanout_delay_ms=5000");
    make(f, "b", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(f->topic, "b"), ==, 0);
    for (int start = 0; start < 2; start++) { /* a restart changes nothing */
        assert_children(f->topic, "b c");
        assert_parent(find(f, "b"), "t");
        assert_parent(find(f, "c"), "t");
        assert_parent(f->topic, NULL);
        g_assert_true(nrd_topic_is_delayed(find(f, "c")));
        g_assert_false(nrd_topic_is_delayed(find(f, "b")));
        g_assert_false(nrd_topic_is_delayed(f->topic));
        g_assert_cmpint(nrd_topic_child_info(f->topic, "c", &info), ==, 0);
        g_assert_cmpint(info.delay_ms, ==, 5000);
        g_assert_cmpint(info.attached_ms, >, 1700000000000);
        nrd_child_info_clear(&info);
        g_assert_true(copies(f->topic, "b"));
        fixture_stop(f);
        fixture_start(f);
    }
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, -ENOENT);
    assert_children(f->topic, "b");
    assert_parent(find(f, "c"), NULL);
    assert_on_disk(f, "t", NULL, "b");
    assert_on_disk(f, "c", NULL, NULL);
    g_assert_false(nrd_topic_is_delayed(find(f, "c")));
    g_assert_false(copies(f->topic, "c"));
    fixture_stop(f);
    fixture_start(f);
    assert_children(f->topic, "b");
    g_assert_false(copies(f->topic, "c"));
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
}

static void test_refusals(Fixture *f, gconstpointer data)
{
    NrdTopic *other = make(f, "other", NULL), *child = make(f, "child", NULL);
    make(f, "late", "fanout_delay_ms=1000");
    g_assert_cmpint(nrd_topic_attach(f->topic, "none"), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_attach(f->topic, "../x"), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_attach(f->topic, "t"), ==, -EINVAL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "child"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(f->topic, "child"), ==, -EEXIST);
    g_assert_cmpint(nrd_topic_attach(other, "child"), ==, -EBUSY);
    g_assert_cmpint(nrd_topic_attach(other, "t"), ==, -EINVAL);     /* it has children */
    g_assert_cmpint(nrd_topic_attach(child, "other"), ==, -EINVAL); /* it has a parent */
    g_assert_cmpint(configure(other, "retention_ms=3600999"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(other, "late"), ==, -EINVAL);
    assert_parent(find(f, "late"), NULL);
    g_assert_cmpint(configure(other, "retention_ms=3601000"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(other, "late"), ==, 0);
    g_assert_cmpint(nrd_topic_detach(other, "child"), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_detach(other, "none"), ==, -ENOENT);
    g_assert_cmpint(nrd_topic_detach(other, "late"), ==, 0);
    g_assert_cmpint(configure(other, "retention_ms=0"), ==, 0); /* keeps everything: long enough for any delay */
    g_assert_cmpint(configure(find(f, "late"), "fanout_delay_ms=31536000000"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(other, "late"), ==, 0);
}

static void test_108(Fixture *f, gconstpointer data)
{
    for (int i = 0; i <= NRD_MAX_CHILDREN; i++) {
        g_autofree char *name = g_strdup_printf("c%d", i);
        make(f, name, NULL);
        g_assert_cmpint(nrd_topic_attach(f->topic, name), ==, i < NRD_MAX_CHILDREN ? 0 : -EMLINK);
    }
    assert_parent(find(f, "c108"), NULL);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c50"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c108"), ==, 0);
    fixture_stop(f);
    fixture_start(f);
    g_autoptr(GPtrArray) names = nrd_topic_children(f->topic);
    g_assert_cmpuint(names->len, ==, NRD_MAX_CHILDREN);
}

static void test_settings(Fixture *f, gconstpointer data)
{
    NrdTopic *child = make(f, "c", "fanout_delay_ms=1000"), *longer = make(f, "d", "fanout_delay_ms=2000");
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(f->topic, "d"), ==, 0);
    g_assert_cmpint(configure(child, "fanout_delay_ms=0"), ==, -EBUSY);
    g_assert_cmpint(configure(child, "linger_ms=7\nfanout_delay_ms=1001"), ==, -EBUSY);
    g_assert_cmpint(configure(child, "fanout_delay_ms=-1"), ==, -EINVAL);
    g_assert_cmpint(configure(child, "linger_ms=8\nfanout_delay_ms=1000"), ==, 0);
    g_assert_cmpint(configure(f->topic, "fanout_delay_ms=50"), ==, 0); /* of the parent it means nothing */
    g_assert_cmpint(configure(f->topic, "retention_ms=3601999"), ==, -EINVAL);
    g_assert_cmpint(configure(f->topic, "retention_ms=3602000"), ==, 0);
    g_assert_cmpint(configure(f->topic, "retention_ms=0"), ==, 0);
    g_assert_cmpint(nrd_topic_detach(f->topic, "d"), ==, 0);
    g_assert_cmpint(configure(f->topic, "retention_ms=3601000"), ==, 0);
    g_assert_cmpint(configure(longer, "fanout_delay_ms=0"), ==, 0);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
    g_assert_cmpint(configure(f->topic, "retention_ms=1000"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(f->topic, "d"), ==, -EINVAL); /* an hour, also without a delay */
}

/* ---- producing ---- */

static void test_delayed_child_is_not_produced_to(Fixture *f, gconstpointer data)
{
    NrdTopic *child = make(f, "c", "fanout_delay_ms=1000");
    NrdPartition *partition = nrd_topic_partition(child, 0);
    NrdProducer *producer = NULL, *other = NULL;
    NrdTopicProducer *whole = NULL, *another = NULL;
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    g_assert_cmpint(nrd_topic_producer_open(child, false, &whole), ==, 0);
    nrd_producer_add(producer, NULL, 0, "before", 6);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    g_assert_cmpint(nrd_producer_check(producer), ==, -EPERM);
    g_assert_cmpint(nrd_topic_producer_check(whole), ==, -EPERM);
    g_assert_cmpint(sync_now(producer), ==, 0); /* what was taken is kept */
    g_assert_cmpint(nrd_producer_open(partition, false, &other), ==, -EPERM);
    g_assert_cmpint(nrd_topic_producer_open(child, false, &another), ==, -EPERM);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
    g_assert_cmpint(nrd_producer_check(producer), ==, 0);
    g_assert_cmpint(nrd_topic_producer_check(whole), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
    nrd_topic_producer_close(whole, NULL, NULL);
    g_assert_cmpint(nrd_partition_pin(partition), ==, 0);
    assert_log(partition, "before\n");
    nrd_partition_unpin(partition);
    make(f, "at-once", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "at-once"), ==, 0);
    produce(nrd_topic_partition(find(f, "at-once"), 0), "beside what is copied");
}

/* ---- the disk fails ---- */

static void test_attach_fails(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    atomic_store(&fail_fsync, 1);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), <, 0);
    atomic_store(&fail_fsync, 0);
    assert_children(f->topic, "");
    assert_parent(find(f, "c"), NULL);
    g_assert_false(nrd_topic_is_delayed(find(f, "c")));
    g_assert_false(copies(f->topic, "c"));
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    atomic_store(&fail_fsync, 1);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), <, 0);
    atomic_store(&fail_fsync, 0);
    assert_children(f->topic, "c");
    assert_parent(find(f, "c"), "t");
    g_assert_true(copies(f->topic, "c"));
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
}

/* Is the child's record written, and the cursor too, but not the parent's record, nor the child's taken back, then the
 * child is none: in memory at once, on the disk from the next start on. */
static void test_attach_fails_half_way(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    for (int n_written = 1; n_written <= 2; n_written++) {
        atomic_store(&renames_left, n_written);
        g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, -ENOSPC);
        atomic_store(&renames_left, INT_MAX);
        assert_children(f->topic, "");
        assert_parent(find(f, "c"), NULL);
        g_assert_false(nrd_topic_is_delayed(find(f, "c")));
        g_assert_cmpuint(count_files(f, ".offset"), ==, 0);
        assert_on_disk(f, "c", "t", NULL);
        fixture_stop(f);
        fixture_start(f);
        assert_parent(find(f, "c"), NULL);
        assert_on_disk(f, "c", NULL, NULL);
        assert_on_disk(f, "t", NULL, NULL);
    }
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
}

/* The parent's record is written, the child's is not: detached. */
static void test_detach_fails_half_way(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    atomic_store(&renames_left, 1);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
    atomic_store(&renames_left, INT_MAX);
    assert_children(f->topic, "");
    assert_parent(find(f, "c"), NULL);
    assert_on_disk(f, "c", "t", NULL);
    NrdTopic *other = make(f, "other", NULL);
    g_assert_cmpint(nrd_topic_attach(other, "c"), ==, 0); /* nothing of it is left */
    assert_on_disk(f, "c", "other", NULL);
}

/* ---- deletions ---- */

static void test_deleted_child(Fixture *f, gconstpointer data)
{
    for (int by_rmdir = 0; by_rmdir < 2; by_rmdir++) {
        NrdTopic *child = make(f, "c", NULL);
        g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
        int rc = by_rmdir ? nrd_topic_remove(child) : nrd_topic_delete(child, nrd_topic_incarnation(child));
        g_assert_cmpint(rc, ==, 0);
        assert_children(f->topic, "");
        assert_on_disk(f, "t", NULL, NULL);
        g_assert_false(copies(f->topic, "c"));
    }
    assert_parent(make(f, "c", NULL), NULL);
}

static void test_deleted_parent(Fixture *f, gconstpointer data)
{
    for (int by_rmdir = 0; by_rmdir < 2; by_rmdir++) {
        NrdTopic *parent = make(f, "p", NULL);
        if (!by_rmdir)
            make(f, "c", "fanout_delay_ms=1000");
        g_assert_cmpint(nrd_topic_attach(parent, "c"), ==, 0);
        int rc = by_rmdir ? nrd_topic_remove(parent) : nrd_topic_delete(parent, nrd_topic_incarnation(parent));
        g_assert_cmpint(rc, ==, 0);
        assert_parent(find(f, "c"), NULL);
        assert_on_disk(f, "c", NULL, NULL);
        g_assert_false(nrd_topic_is_delayed(find(f, "c")));
    }
    assert_children(make(f, "p", NULL), "");
}

/* The record of the deleted one is gone, the other's cannot be written: the deletion stands, and the start heals. */
static void test_deletion_on_a_full_disk(Fixture *f, gconstpointer data)
{
    NrdTopic *child = make(f, "c", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    atomic_store(&renames_left, 0);
    g_assert_cmpint(nrd_topic_delete(child, nrd_topic_incarnation(child)), ==, 0);
    atomic_store(&renames_left, INT_MAX);
    assert_children(f->topic, "");
    assert_on_disk(f, "t", NULL, "c");
    make(f, "c", NULL); /* as the crash would have it: the same name, another incarnation */
    fixture_stop(f);
    fixture_start(f);
    assert_children(f->topic, "");
    assert_parent(find(f, "c"), NULL);
    assert_on_disk(f, "t", NULL, NULL);
}

/* ---- starts ---- */

static void restart_with(Fixture *f, void (*change)(Fixture *f))
{
    fixture_stop(f);
    change(f);
    fixture_start(f);
}

static void name_a_parent(Fixture *f)
{
    set_parent(f, "c", "t");    /* does not list it */
    set_parent(f, "d", "gone"); /* is not there */
}

static void test_named_but_not_listed(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    make(f, "d", "fanout_delay_ms=1000");
    restart_with(f, name_a_parent);
    for (const char *const *name = (const char *const[]){ "c", "d", NULL }; *name; name++) {
        assert_parent(find(f, *name), NULL);
        assert_on_disk(f, *name, NULL, NULL);
        g_assert_false(nrd_topic_is_delayed(find(f, *name)));
        g_assert_cmpint(nrd_topic_attach(f->topic, *name), ==, 0);
    }
}

static void list_strangers(Fixture *f)
{
    add_child(f, "t", "c", "0000000000000001"); /* another incarnation of it */
    add_child(f, "t", "gone", "0000000000000002");
    set_parent(f, "c", "t");
}

static void test_listed_but_gone(Fixture *f, gconstpointer data)
{
    make(f, "c", NULL);
    restart_with(f, list_strangers);
    assert_children(f->topic, "");
    assert_parent(find(f, "c"), NULL);
    assert_on_disk(f, "t", NULL, NULL);
    assert_on_disk(f, "c", NULL, NULL);
    g_assert_false(copies(f->topic, "c"));
}

static void forget_parent(Fixture *f)
{
    set_parent(f, "c", NULL);
}

/* The parent's record is the authority. */
static void test_listed_but_not_named(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    restart_with(f, forget_parent);
    assert_children(f->topic, "c");
    assert_parent(find(f, "c"), "t");
    assert_on_disk(f, "c", "t", NULL);
    g_assert_true(nrd_topic_is_delayed(find(f, "c")));
    g_assert_true(copies(f->topic, "c"));
}

static void list_twice(Fixture *f)
{
    NrdTopicRecord *child = read_record(f, "c");
    add_child(f, "other", "c", child->id);
    nrd_topic_record_free(child);
}

static void test_two_parents(Fixture *f, gconstpointer data)
{
    make(f, "other", NULL);
    make(f, "c", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    restart_with(f, list_twice);
    assert_children(f->topic, "c");
    assert_children(find(f, "other"), "");
    assert_parent(find(f, "c"), "t");
}

static void make_a_ring(Fixture *f)
{
    NrdTopicRecord *record = read_record(f, "t");
    add_child(f, "c", "t", record->id);
    nrd_topic_record_free(record);
}

/* Records put back from a backup could say anything; a ring would copy for ever. */
static void test_ring(Fixture *f, gconstpointer data)
{
    make(f, "c", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    restart_with(f, make_a_ring);
    g_autoptr(GPtrArray) up = nrd_topic_children(f->topic), down = nrd_topic_children(find(f, "c"));
    g_assert_cmpuint(up->len + down->len, <=, 1);
}

static void damage_parent(Fixture *f)
{
    damage(f, "p");
}

/* Nobody knows whether they are attached: they stay so. */
static void test_damaged_parent(Fixture *f, gconstpointer data)
{
    NrdTopic *parent = make(f, "p", NULL);
    make(f, "c", "fanout_delay_ms=1000");
    make(f, "gone", NULL);
    g_assert_cmpint(nrd_topic_attach(parent, "c"), ==, 0);
    g_assert_cmpint(nrd_topic_attach(parent, "gone"), ==, 0);
    restart_with(f, damage_parent);
    assert_parent(find(f, "c"), "p");
    g_assert_true(nrd_topic_is_delayed(find(f, "c")));
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, -EBUSY);
    g_assert_cmpint(configure(find(f, "c"), "fanout_delay_ms=0"), ==, -EBUSY);
    g_assert_cmpint(nrd_topic_attach(find(f, "p"), "t"), ==, -EIO);
    g_assert_cmpint(nrd_topic_detach(find(f, "p"), "c"), ==, -EIO);
    g_assert_cmpint(nrd_topic_remove(find(f, "gone")), ==, 0); /* deleting goes on */
    make(f, "gone", NULL);
    restart_with(f, damage_parent); /* it is well again */
    assert_children(find(f, "p"), "c");
    assert_parent(find(f, "gone"), NULL);
    g_assert_true(copies(find(f, "p"), "c"));
}

static void damage_child(Fixture *f)
{
    damage(f, "c");
}

static void test_damaged_child(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    restart_with(f, damage_child);
    assert_children(f->topic, "c");
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, -EEXIST);
    g_assert_cmpint(configure(f->topic, "retention_ms=4000000"), ==, -EINVAL); /* enough, but who knows */
    g_assert_cmpint(configure(f->topic, "retention_ms=0"), ==, 0);
    restart_with(f, damage_child);
    assert_children(f->topic, "c");
    g_assert_true(nrd_topic_is_delayed(find(f, "c")));
    g_assert_true(copies(f->topic, "c"));
    restart_with(f, damage_child);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, 0);
    restart_with(f, damage_child);
    assert_parent(find(f, "c"), NULL);
    assert_on_disk(f, "c", NULL, NULL);
}

static void test_read_only(Fixture *f, gconstpointer data)
{
    make(f, "c", "fanout_delay_ms=1000");
    make(f, "d", NULL);
    g_assert_cmpint(nrd_topic_attach(f->topic, "c"), ==, 0);
    fixture_stop(f);
    set_parent(f, "d", "t");
    f->options.read_only = true;
    fixture_start(f);
    assert_children(f->topic, "c");
    assert_parent(find(f, "d"), NULL);
    assert_on_disk(f, "d", "t", NULL); /* nothing is cleaned */
    g_assert_cmpint(nrd_topic_attach(f->topic, "d"), ==, -EROFS);
    g_assert_cmpint(nrd_topic_detach(f->topic, "c"), ==, -EROFS);
    fixture_stop(f);
    f->options.read_only = false;
    fixture_start(f);
    assert_on_disk(f, "d", NULL, NULL);
}

/* ---- at once ---- */

#define N_TOPICS 5
#define N_TURNS 150

/* The topic of that name, or NULL when it is deleted at this moment; the caller unrefs it. */
static NrdTopic *take_topic(Fixture *f, unsigned n)
{
    g_autofree char *name = g_strdup_printf("x%u", n);
    NrdTopic *topic = NULL;
    return nrd_topic_find(f->engine, name, &topic) == 0 ? topic : NULL;
}

static void make_again(Fixture *f, unsigned n)
{
    g_autofree char *name = g_strdup_printf("x%u", n);
    NrdTopic *topic = NULL;
    if (nrd_topic_create(f->engine, name, &(NrdAttr){ 0, 0, 0755 }, 022, &topic) == 0)
        nrd_topic_unref(topic);
}

static void try_to_produce(NrdTopic *topic)
{
    NrdProducer *producer = NULL;
    if (nrd_producer_open(nrd_topic_partition(topic, 0), false, &producer) < 0)
        return;
    nrd_producer_add(producer, NULL, 0, "x", 1);
    (void)!sync_now(producer);
    nrd_producer_close(producer, NULL, NULL);
}

static void one_turn(Fixture *f, GRand *rand)
{
    static const char *const settings[] = { "fanout_delay_ms=0", "fanout_delay_ms=1", "retention_ms=3600001",
                                            "retention_ms=0", "retention_ms=3600000" };
    unsigned n = (unsigned)g_rand_int_range(rand, 0, N_TOPICS), m = (unsigned)g_rand_int_range(rand, 0, N_TOPICS);
    g_autofree char *other = g_strdup_printf("x%u", m);
    NrdTopic *topic = take_topic(f, n);
    if (!topic) {
        make_again(f, n);
        return;
    }
    switch (g_rand_int_range(rand, 0, 8)) {
    case 0:
        (void)!nrd_topic_delete(topic, nrd_topic_incarnation(topic));
        break;
    case 1:
    case 2:
        (void)!nrd_topic_detach(topic, other);
        break;
    case 3:
        (void)!configure(topic, settings[g_rand_int_range(rand, 0, G_N_ELEMENTS(settings))]);
        break;
    case 4:
        try_to_produce(topic);
        break;
    default:
        (void)!nrd_topic_attach(topic, other);
    }
    nrd_topic_unref(topic);
}

static gpointer turn_many(gpointer data)
{
    Fixture *f = data;
    GRand *rand = g_rand_new_with_seed(g_random_int());
    for (int i = 0; i < N_TURNS; i++)
        one_turn(f, rand);
    g_rand_free(rand);
    return NULL;
}

/* Both records of every link agree, nobody is in a chain, retention leaves every delay its hour; as one text. */
static char *check_families(Fixture *f)
{
    GString *text = g_string_new(NULL);
    for (unsigned n = 0; n < N_TOPICS; n++) {
        NrdTopic *topic = take_topic(f, n);
        if (!topic)
            continue;
        g_autofree char *parent = nrd_topic_parent(topic);
        g_autoptr(GPtrArray) children = nrd_topic_children(topic);
        g_autofree char *retention = nrd_topic_config_value(topic, "retention_ms");
        g_assert_true(!parent || children->len == 0);
        for (guint i = 0; i < children->len; i++) {
            NrdTopic *child = find(f, children->pdata[i]);
            g_autofree char *delay = nrd_topic_config_value(child, "fanout_delay_ms");
            assert_parent(child, nrd_topic_name(topic));
            g_assert_true(copies(topic, children->pdata[i]));
            gint64 ms = g_ascii_strtoll(retention, NULL, 10);
            g_assert_true(ms == 0 || ms >= HOUR_MS + g_ascii_strtoll(delay, NULL, 10));
            g_string_append_printf(text, "%s>%s ", nrd_topic_name(topic), (char *)children->pdata[i]);
        }
        if (parent) {
            g_autoptr(GPtrArray) siblings = nrd_topic_children(find(f, parent));
            g_assert_true(g_ptr_array_find_with_equal_func(siblings, nrd_topic_name(topic), g_str_equal, NULL));
        }
        nrd_topic_unref(topic);
    }
    return g_string_free(text, FALSE);
}

static void test_at_once(Fixture *f, gconstpointer data)
{
    GThread *threads[4];
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("family", turn_many, f);
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
    g_autofree char *before = check_families(f);
    fixture_stop(f);
    fixture_start(f);
    g_autofree char *after = check_families(f);
    g_assert_cmpstr(before, ==, after);
}

#define ADD(name, function) g_test_add("/family/" name, Fixture, NULL, fixture_set_up, function, fixture_tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ADD("attach-and-detach", test_attach_and_detach);
    ADD("refusals", test_refusals);
    ADD("108", test_108);
    ADD("settings", test_settings);
    ADD("delayed-child-is-not-produced-to", test_delayed_child_is_not_produced_to);
    ADD("attach-fails", test_attach_fails);
    ADD("attach-fails-half-way", test_attach_fails_half_way);
    ADD("detach-fails-half-way", test_detach_fails_half_way);
    ADD("deleted-child", test_deleted_child);
    ADD("deleted-parent", test_deleted_parent);
    ADD("deletion-on-a-full-disk", test_deletion_on_a_full_disk);
    ADD("named-but-not-listed", test_named_but_not_listed);
    ADD("listed-but-gone", test_listed_but_gone);
    ADD("listed-but-not-named", test_listed_but_not_named);
    ADD("two-parents", test_two_parents);
    ADD("ring", test_ring);
    ADD("damaged-parent", test_damaged_parent);
    ADD("damaged-child", test_damaged_child);
    ADD("read-only", test_read_only);
    ADD("at-once", test_at_once);
    return g_test_run();
}
