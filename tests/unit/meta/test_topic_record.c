/* Topic records: what goes in comes out, and no damage comes out as a record. */
#include "engine/meta/topic_record.h"

#include "engine/base/crc32c.h"

#include <errno.h>
#include <string.h>

static void add_child(NrdTopicRecord *record, const char *name, uint64_t epoch, int64_t attached_ms)
{
    NrdChildRecord child = { .name = (char *)name, .epoch = epoch, .attached_ms = attached_ms };
    g_strlcpy(child.id, "0123456789abcdef", sizeof child.id);
    nrd_topic_record_add_child(record, &child);
}

static NrdTopicRecord *sample(void)
{
    static const NrdFileAttr attr = { 4294967295U, 12, 0640 };
    NrdTopicRecord *record = nrd_topic_record_new("orders.eu-1_x");
    record->config.partitions = 12;
    record->config.codec = 1;
    record->config.consume_wait_ms = 86400000;
    record->attr = (NrdFileAttr){ 1000, 4294967294U, 02750 };
    record->umask = 027;
    record->parent = g_strdup("everything");
    add_child(record, "b.c", UINT64_MAX, INT64_MAX);
    add_child(record, "a", 0x1f, 1700000000000);
    g_hash_table_insert(record->file_attrs, g_strdup("p00000/produce"), g_memdup2(&attr, sizeof attr));
    g_hash_table_insert(record->file_attrs, g_strdup(".streams/consume.jsonl"), g_memdup2(&attr, sizeof attr));
    g_hash_table_insert(record->file_attrs, g_strdup("produce.bin@host-1"), g_memdup2(&attr, sizeof attr));
    return record;
}

static void assert_same_child(const NrdChildRecord *a, const NrdChildRecord *b)
{
    g_assert_cmpstr(a->name, ==, b->name);
    g_assert_cmpstr(a->id, ==, b->id);
    g_assert_cmpuint(a->epoch, ==, b->epoch);
    g_assert_cmpint(a->attached_ms, ==, b->attached_ms);
}

static void assert_same(const NrdTopicRecord *a, const NrdTopicRecord *b)
{
    g_assert_cmpstr(a->name, ==, b->name);
    g_assert_cmpstr(a->id, ==, b->id);
    g_assert_cmpmem(&a->config, sizeof a->config, &b->config, sizeof b->config);
    g_assert_cmpmem(&a->attr, sizeof a->attr, &b->attr, sizeof b->attr);
    g_assert_cmpuint(a->umask, ==, b->umask);
    g_assert_cmpstr(a->parent, ==, b->parent);
    g_assert_cmpuint(a->children->len, ==, b->children->len);
    for (guint i = 0; i < a->children->len; i++)
        assert_same_child(a->children->pdata[i], b->children->pdata[i]);
    g_assert_cmpuint(g_hash_table_size(a->file_attrs), ==, g_hash_table_size(b->file_attrs));
    GHashTableIter iter;
    gpointer path, attr;
    g_hash_table_iter_init(&iter, a->file_attrs);
    while (g_hash_table_iter_next(&iter, &path, &attr)) {
        const NrdFileAttr *other = g_hash_table_lookup(b->file_attrs, path);
        g_assert_nonnull(other);
        g_assert_cmpmem(attr, sizeof(NrdFileAttr), other, sizeof *other);
    }
}

static void assert_round_trip(const NrdTopicRecord *record)
{
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_assert_cmpuint(size, ==, strlen(text));
    NrdTopicRecord *back = NULL;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_record_decode(record->name, text, size, &back, &why), ==, 0);
    assert_same(record, back);
    size_t again_size = 0;
    g_autofree char *again = nrd_topic_record_encode(back, &again_size);
    g_assert_cmpstr(again, ==, text); /* one record, one text */
    NrdTopicRecord *copy = nrd_topic_record_copy(record);
    assert_same(record, copy);
    nrd_topic_record_free(copy);
    nrd_topic_record_free(back);
}

static void test_round_trip(void)
{
    NrdTopicRecord *record = sample();
    assert_round_trip(record);
    nrd_topic_record_free(record);
    record = nrd_topic_record_new("x");
    assert_round_trip(record);
    g_assert_true(nrd_incarnation_valid(record->id));
    NrdTopicRecord *other = nrd_topic_record_new("x");
    g_assert_cmpstr(record->id, !=, other->id);
    nrd_topic_record_free(other);
    nrd_topic_record_free(record);
    nrd_topic_record_free(NULL);
}

static void test_make(void)
{
    NrdTopicConfig config;
    nrd_topic_config_defaults(&config);
    config.partitions = 7;
    NrdTopicRecord *record = nrd_topic_record_make("x", &config, (NrdFileAttr){ 1, 2, 0750 }, 027);
    g_assert_cmpint(record->config.partitions, ==, 7);
    g_assert_cmpuint(record->attr.uid, ==, 1);
    g_assert_cmpuint(record->attr.gid, ==, 2);
    g_assert_cmpuint(record->attr.mode, ==, 0750);
    g_assert_cmpuint(record->umask, ==, 027);
    g_assert_true(nrd_incarnation_valid(record->id));
    assert_round_trip(record);
    nrd_topic_record_free(record);
}

static void assert_damaged(const char *name, const void *data, size_t size)
{
    NrdTopicRecord *record = NULL;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_record_decode(name, data, size, &record, &why), ==, -EBADMSG);
    g_assert_null(record);
    g_assert_nonnull(why);
}

static void test_every_bit(void)
{
    NrdTopicRecord *record = sample();
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        text[bit / 8] ^= (char)(1U << (bit % 8));
        assert_damaged(record->name, text, size);
        text[bit / 8] ^= (char)(1U << (bit % 8));
    }
    nrd_topic_record_free(record);
}

static void test_every_cut(void)
{
    NrdTopicRecord *record = sample();
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_autofree char *longer = g_strconcat(text, "\n", NULL);
    for (size_t cut = 0; cut < size; cut++)
        assert_damaged(record->name, text, cut);
    g_autofree char *why = NULL;
    NrdTopicRecord *none = NULL;
    g_assert_cmpint(nrd_topic_record_decode(record->name, "", 0, &none, &why), ==, -EBADMSG);
    g_assert_cmpstr(why, ==, "its record is damaged (it is empty)");
    assert_damaged(record->name, longer, size + 1);
    assert_damaged(record->name, text, size + 1); /* with its NUL */
    for (size_t pos = 0; pos < size; pos += 512) {
        g_autofree char *torn = g_memdup2(text, size);
        memset(torn + pos, 0, MIN(512, size - pos));
        assert_damaged(record->name, torn, size);
    }
    nrd_topic_record_free(record);
}

static void test_other_name(void)
{
    NrdTopicRecord *record = sample();
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    NrdTopicRecord *none = NULL;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_record_decode("orders", text, size, &none, &why), ==, -EINVAL);
    g_assert_null(none);
    g_assert_nonnull(strstr(why, record->name));
    nrd_topic_record_free(record);
}

/* Replaces `from` by `to` in a valid text and seals it again. */
static char *reseal(const char *text, const char *from, const char *to)
{
    g_assert_nonnull(strstr(text, from));
    g_autoptr(GString) changed = g_string_new(text);
    g_string_replace(changed, from, to, 1);
    char *crc_line = g_strrstr(changed->str, "# crc32c ");
    g_string_truncate(changed, (gsize)(crc_line - changed->str));
    uint32_t crc = nrd_crc32c(0, changed->str, changed->len);
    g_string_append_printf(changed, "# crc32c %08x\n", crc);
    return g_strdup(changed->str);
}

/* A right checksum makes nothing right. */
static void test_sealed_damage(void)
{
    static const char *const changes[][2] = {
        { "partitions=12", "partitions=0" },
        { "partitions=12", "partitions=1025" },
        { "linger_ms=100", "linger_ms=x" },
        { "retention_bytes=0", "retention_bytes=65536" },
        { "mode=2750", "mode=12750" },
        { "mode=2750", "mode=8" },
        { "umask=0027", "umask=7777" },
        { "uid=1000", "uid=4294967296" },
        { "uid=1000", "uid=-1" },
        { "uid=1000\n", "" },
        { "version=1", "version=2" },
        { "version=1\n", "" },
        { "parent=everything", "parent=../etc" },
        { "parent=everything", "parent=" },
        { "parent=everything", "parent=orders.eu-1_x" },
        { "parent=everything", "parent=\\q" },
        { "children=a:", "children=a.stale-x:" },
        { "children=a:", "children=:" },
        { "children=a:", "children=" },
        { "children=a:", "children=c:" },             /* not in order */
        { "children=a:", "children=b.c:" },           /* twice */
        { "children=a:", "children=orders.eu-1_x:" }, /* itself */
        { "children=a:", "children=a:x:" },
        { "children=a:", "children=;a:" },
        { "children=a:", "children=\\q:" },
        { ":0123456789abcdef:", ":0123456789abcde:" },
        { ":0123456789abcdef:", ":0123456789ABCDEF:" },
        { ":000000000000001f:", ":1f:" },
        { ":000000000000001f:", ":000000000000001F:" },
        { ":1700000000000;", ":-1;" },
        { ":1700000000000;", ":9223372036854775808;" },
        { ":1700000000000;", ":;" },
        { ":1700000000000;", ";" },
        { ":1700000000000;", ":1 ;" },
        { "incarnation=", "incarnation=0" },
        { "[topic]", "[tropic]" },
        { ":0640", ":10640" },
        { ":0640", "" },
        { "[topic]", "topic" },
    };
    NrdTopicRecord *record = sample();
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    for (size_t i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autofree char *changed = reseal(text, changes[i][0], changes[i][1]);
        assert_damaged(record->name, changed, strlen(changed));
    }
    g_autofree char *no_body = g_strdup_printf("# crc32c %08x\n", nrd_crc32c(0, "", 0));
    assert_damaged(record->name, no_body, strlen(no_body));
    nrd_topic_record_free(record);
}

/* A setting or a group of a later version is passed over; one that is missing has its default. */
static void test_other_versions(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("x"), *back = NULL;
    record->config.linger_ms = 5;
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_autofree char *changed = reseal(text, "linger_ms=5\n", "colour=red\n\n[later]\nkey=value\n");
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_record_decode("x", changed, strlen(changed), &back, &why), ==, 0);
    g_assert_cmpint(back->config.linger_ms, ==, 100);
    nrd_topic_record_free(back);
    nrd_topic_record_free(record);
}

static void test_children(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("x"), *back = NULL;
    g_assert_null(nrd_topic_record_child(record, "a"));
    g_assert_false(nrd_topic_record_remove_child(record, "a"));
    for (int i = NRD_TOPIC_CHILDREN_MAX; i > 0; i--) {
        g_autofree char *name = g_strdup_printf("c%d", i);
        add_child(record, name, (uint64_t)i, i);
        g_assert_cmpuint(nrd_topic_record_child(record, name)->epoch, ==, i);
    }
    g_assert_null(nrd_topic_record_child(record, "c"));
    g_assert_null(nrd_topic_record_child(record, "c0"));
    g_assert_null(nrd_topic_record_child(record, "d"));
    assert_round_trip(record);
    add_child(record, "a", 1, 1); /* one too many */
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_record_decode("x", text, size, &back, &why), ==, -EBADMSG);
    g_assert_true(nrd_topic_record_remove_child(record, "c50"));
    g_assert_false(nrd_topic_record_remove_child(record, "c50"));
    g_assert_null(nrd_topic_record_child(record, "c50"));
    assert_round_trip(record);
    nrd_topic_record_free(record);
}

/* `children=` without a child is not what an encoder writes. */
static void test_no_child(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("x");
    size_t size = 0;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    g_autofree char *changed = reseal(text, "umask=0022\n", "umask=0022\nchildren=\n");
    assert_damaged("x", changed, strlen(changed));
    nrd_topic_record_free(record);
}

static void test_names(void)
{
    static const char *const good[] = { "a", "A.b-c_9", "hwm", "p00000",  "incarnation",
                                        "-", "_",       "a.",  "stale-1", "a..b" };
    static const char *const bad[] = { "",         ".",     "..",  ".hidden",  "a/b",
                                       "a b",      "a\n",   "\n",  "a.stale-", "a.stale-0123456789abcdef",
                                       "\xc3\xa4", "a\x7f", "a:b", "a=b",      "a@b" };
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++)
        g_assert_cmpint(nrd_topic_name_check(good[i]), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        g_assert_cmpint(nrd_topic_name_check(bad[i]), ==, -EINVAL);
    g_autofree char *name = g_strnfill(256, 'a');
    g_assert_cmpint(nrd_topic_name_check(name), ==, -ENAMETOOLONG);
    name[255] = '\0';
    g_assert_cmpint(nrd_topic_name_check(name), ==, -ENAMETOOLONG);
    name[201] = '\0';
    g_assert_cmpint(nrd_topic_name_check(name), ==, -ENAMETOOLONG);
    name[200] = '\0';
    g_assert_cmpint(nrd_topic_name_check(name), ==, 0);
}

static void test_ids(void)
{
    g_assert_true(nrd_incarnation_valid("0123456789abcdef"));
    g_assert_false(nrd_incarnation_valid("0123456789abcde"));
    g_assert_false(nrd_incarnation_valid("0123456789abcdef0"));
    g_assert_false(nrd_incarnation_valid("0123456789ABCDEF"));
    g_assert_false(nrd_incarnation_valid("0123456789abcdeg"));
    g_assert_false(nrd_incarnation_valid(""));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/topic-record/round-trip", test_round_trip);
    g_test_add_func("/topic-record/make", test_make);
    g_test_add_func("/topic-record/every-bit", test_every_bit);
    g_test_add_func("/topic-record/every-cut", test_every_cut);
    g_test_add_func("/topic-record/other-name", test_other_name);
    g_test_add_func("/topic-record/sealed-damage", test_sealed_damage);
    g_test_add_func("/topic-record/other-versions", test_other_versions);
    g_test_add_func("/topic-record/children", test_children);
    g_test_add_func("/topic-record/no-child", test_no_child);
    g_test_add_func("/topic-record/names", test_names);
    g_test_add_func("/topic-record/ids", test_ids);
    return g_test_run();
}
