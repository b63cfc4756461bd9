/* Settings: every range at its edges, numbers that only look like numbers, and all-or-nothing writes. */
#include "engine/meta/topic_config.h"

#include <errno.h>
#include <string.h>

#define YEAR_MS "31536000000"

static const struct {
    const char *key;
    const char *initial;
    const char *good[4];
    const char *bad[4];
} keys[] = {
    { "partitions", "1", { "1", "2", "1024" }, { "0", "1025", "-1" } },
    { "retention_ms",
      "604800000",
      { "0", "1000", "9223372036854775807" },
      { "1", "999", "-1", "9223372036854775808" } },
    { "retention_bytes", "0", { "0", "67108864", "9223372036854775807" }, { "1", "-1", "9223372036854775808" } },
    { "segment_bytes", "67108864", { "65536", "1073741824" }, { "65535", "1073741825", "0" } },
    { "codec", "none", { "zstd", "none" }, { "0", "1", "lz4", "Zstd" } },
    { "zstd_level", "3", { "1", "19" }, { "0", "20", "-1" } },
    { "linger_ms", "100", { "0", "60000" }, { "60001", "-1" } },
    { "visibility_timeout_ms", "30000", { "100", "43200000" }, { "99", "43200001", "0" } },
    { "max_in_flight", "1024", { "1", "1000000" }, { "0", "1000001" } },
    { "max_acked_ahead", "1024", { "1", "4096" }, { "0", "4097" } },
    { "consume_wait_ms", "-1", { "-1", "0", "86400000" }, { "-2", "86400001", "-0" } },
    { "max_record_bytes", "1048576", { "1048576", "67108864" }, { "0", "67108865" } },
    { "fanout_delay_ms", "0", { "0", YEAR_MS }, { "31536000001", "-1" } },
};

static void assert_refused(const char *key, const char *value)
{
    NrdTopicConfig config, before;
    nrd_topic_config_defaults(&config);
    before = config;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_topic_config_set(&config, key, value, &why), ==, -EINVAL);
    g_assert_nonnull(why);
    g_assert_cmpmem(&config, sizeof config, &before, sizeof before);
    g_assert_cmpint(nrd_topic_config_set(&config, key, value, NULL), ==, -EINVAL);
}

static void test_table(void)
{
    const char *const *names = nrd_topic_config_keys();
    NrdTopicConfig config;
    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_assert_cmpstr(names[i], ==, keys[i].key);
        nrd_topic_config_defaults(&config);
        g_autofree char *initial = nrd_topic_config_get(&config, keys[i].key);
        g_assert_cmpstr(initial, ==, keys[i].initial);
        for (size_t v = 0; v < 4 && keys[i].good[v]; v++) {
            g_assert_cmpint(nrd_topic_config_set(&config, keys[i].key, keys[i].good[v], NULL), ==, 0);
            g_autofree char *back = nrd_topic_config_get(&config, keys[i].key);
            g_assert_cmpstr(back, ==, keys[i].good[v]);
        }
        for (size_t v = 0; v < 4 && keys[i].bad[v]; v++)
            assert_refused(keys[i].key, keys[i].bad[v]);
    }
    g_assert_null(names[G_N_ELEMENTS(keys)]);
}

static void test_numbers(void)
{
    static const char *const texts[] = { "",
                                         " ",
                                         " 5",
                                         "5 ",
                                         "+5",
                                         "05",
                                         "00",
                                         "0x5",
                                         "5.0",
                                         "5e0",
                                         "5\n",
                                         "\t5",
                                         "--1",
                                         "- 1",
                                         "-",
                                         "five",
                                         "5,000",
                                         "5KiB",
                                         "1_0",
                                         "\xd9\xa5",
                                         "-01",
                                         "5\r",
                                         "18446744073709551621",
                                         "-18446744073709551611",
                                         "9999999999999999999999",
                                         "-9223372036854775809" };
    for (size_t k = 0; k < G_N_ELEMENTS(keys); k++) {
        for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
            assert_refused(keys[k].key, texts[i]);
    }
    assert_refused("codec", "none ");
    assert_refused("codec", "");
}

static void test_unknown(void)
{
    NrdTopicConfig config;
    nrd_topic_config_defaults(&config);
    assert_refused("Partitions", "2");
    assert_refused("partitions ", "2");
    assert_refused("", "2");
    g_assert_null(nrd_topic_config_get(&config, "partition"));
}

static int apply(NrdTopicConfig *config, const char *text)
{
    g_autofree char *why = NULL;
    int rc = nrd_topic_config_apply(config, text, strlen(text), &why);
    g_assert_true((rc < 0) == (why != NULL));
    return rc;
}

static void test_apply(void)
{
    NrdTopicConfig config, before;
    nrd_topic_config_defaults(&config);
    g_assert_cmpint(apply(&config, "# a comment\n\npartitions=4\nlinger_ms=7"), ==, 0);
    g_assert_cmpint(config.partitions, ==, 4);
    g_assert_cmpint(config.linger_ms, ==, 7);
    g_assert_cmpint(apply(&config, ""), ==, 0);
    g_assert_cmpint(apply(&config, "\n"), ==, 0);
    before = config;
    g_assert_cmpint(apply(&config, "partitions=5\nlinger_ms=70000\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "partitions=5\nnonsense\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "partitions=5\ncolour=red\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "partitions = 5\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "partitions=5\r\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "=5\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "partitions=\n"), ==, -EINVAL);
    g_assert_cmpint(nrd_topic_config_apply(&config, "partitions=5\0\n", 14, NULL), ==, -EINVAL);
    g_assert_cmpmem(&config, sizeof config, &before, sizeof before);
}

static void test_between_keys(void)
{
    NrdTopicConfig config, before;
    nrd_topic_config_defaults(&config);
    before = config;
    g_assert_cmpint(apply(&config, "retention_bytes=67108863\n"), ==, -EINVAL);
    g_assert_cmpmem(&config, sizeof config, &before, sizeof before);
    /* in any order within one write, it is the result that counts */
    g_assert_cmpint(apply(&config, "retention_bytes=65536\nsegment_bytes=65536\n"), ==, 0);
    g_assert_cmpint(apply(&config, "segment_bytes=65537\n"), ==, -EINVAL);
    g_assert_cmpint(apply(&config, "retention_bytes=0\nsegment_bytes=65537\n"), ==, 0);
}

static void test_text(void)
{
    NrdTopicConfig config, back;
    nrd_topic_config_defaults(&config);
    g_assert_cmpint(apply(&config, "codec=zstd\nconsume_wait_ms=0\nretention_bytes=9223372036854775807\n"), ==, 0);
    g_autofree char *text = nrd_topic_config_text(&config);
    nrd_topic_config_defaults(&back);
    g_assert_cmpint(apply(&back, text), ==, 0);
    g_assert_cmpmem(&back, sizeof back, &config, sizeof config);
    g_assert_true(g_str_has_prefix(text, "partitions=1\nretention_ms=604800000\n"));
    g_assert_nonnull(strstr(text, "\ncodec=zstd\n"));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/topic-config/table", test_table);
    g_test_add_func("/topic-config/numbers", test_numbers);
    g_test_add_func("/topic-config/unknown", test_unknown);
    g_test_add_func("/topic-config/apply", test_apply);
    g_test_add_func("/topic-config/between-keys", test_between_keys);
    g_test_add_func("/topic-config/text", test_text);
    return g_test_run();
}
