/* The page of `naradctl top`: rates, order, width. */
#include "ctl/top_page.h"

#include <glib.h>
#include <string.h>

static void clear_topic(gpointer data)
{
    NrdTopTopic *topic = data;
    g_free(topic->name);
    nrd_tree_sums_clear(&topic->sums);
}

static NrdTopSample sample(int64_t taken_us)
{
    NrdTopSample made = { .taken_us = taken_us, .topics = g_array_new(FALSE, FALSE, sizeof(NrdTopTopic)) };
    g_array_set_clear_func(made.topics, clear_topic);
    return made;
}

static void add(NrdTopSample *to, const char *name, uint64_t produced, uint64_t settled)
{
    NrdTopTopic topic = { .name = g_strdup(name) };
    topic.sums = (NrdTopicSums){ .n_partitions = 1,
                                 .n_records = produced,
                                 .produced = produced,
                                 .settled = settled,
                                 .lag = produced - settled,
                                 .size_bytes = 2048,
                                 .state = g_strdup("ok") };
    g_array_append_val(to->topics, topic);
}

static char **lines_of(const NrdTopSample *before, const NrdTopSample *now, unsigned rows, unsigned width)
{
    GString *page = nrd_top_page(before, now, rows, width);
    char **lines = g_strsplit(page->str, "\n", -1);
    g_string_free(page, TRUE);
    return lines;
}

static void assert_words(const char *line, const char *words)
{
    g_autoptr(GString) packed = g_string_new(NULL);
    g_auto(GStrv) parts = g_strsplit(line, " ", -1);
    for (guint i = 0; parts[i]; i++) {
        if (*parts[i])
            g_string_append_printf(packed, "%s%s", packed->len ? " " : "", parts[i]);
    }
    g_assert_cmpstr(packed->str, ==, words);
}

static void test_rates(void)
{
    NrdTopSample before = sample(1000000), now = sample(3000000);
    add(&before, "calm", 10, 10);
    add(&before, "seeking", 100, 90);
    add(&before, "busy", 1000, 0);
    add(&now, "calm", 10, 10);
    add(&now, "busy", 3000, 500);
    add(&now, "fresh", 5, 0);
    add(&now, "seeking", 100, 20);
    g_auto(GStrv) lines = lines_of(&before, &now, 100, 200);
    g_assert_cmpstr(lines[0], ==, "4 topics; 1000 records/s produced, 250 records/s settled; lag 2585");
    assert_words(lines[2], "busy 1000 250 3000 2500 0 2.0 KiB ok");
    assert_words(lines[3], "calm 0 0 10 0 0 2.0 KiB ok");
    assert_words(lines[4], "fresh - - 5 5 0 2.0 KiB ok");
    assert_words(lines[5], "seeking 0 0 100 80 0 2.0 KiB ok"); /* went back: no rate */
    g_assert_cmpstr(lines[6], ==, "");
    nrd_top_sample_clear(&before);
    nrd_top_sample_clear(&now);
}

static void test_fits(void)
{
    NrdTopSample before = sample(0), now = sample(1000000);
    for (int i = 0; i < 9; i++) {
        g_autofree char *name = g_strdup_printf("topic-with-a-rather-long-name-%d", i);
        add(&now, name, 1, 0);
    }
    g_auto(GStrv) lines = lines_of(&before, &now, 3, 20);
    g_assert_cmpuint(g_strv_length(lines), ==, 2 + 3 + 1);
    for (guint i = 0; lines[i]; i++)
        g_assert_cmpuint(strlen(lines[i]), <=, 20);
    nrd_top_sample_clear(&before);
    nrd_top_sample_clear(&now);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/top/rates", test_rates);
    g_test_add_func("/ctl/top/fits", test_fits);
    return g_test_run();
}
