/* Times, sizes, spans and rates as the pages of status show them. */
#include "fs/status_text.h"

#define HOUR_MS INT64_C(3600000)

static void assert_text(GString *text, const char *expected)
{
    g_assert_cmpstr(text->str, ==, expected);
    g_string_truncate(text, 0);
}

static void test_spans(void)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        { -5, "0 s" },
        { 0, "0 s" },
        { 999, "0 s" },
        { 59999, "59 s" },
        { 60000, "1 min" },
        { HOUR_MS - 1, "59 min" },
        { HOUR_MS, "1 h 0 min" },
        { 24 * HOUR_MS - 1, "23 h 59 min" },
        { 24 * HOUR_MS, "1 day 0 h" },
        { 1000 * HOUR_MS, "41 days 16 h" },
    };
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        nrd_append_span(text, cases[i].ms);
        assert_text(text, cases[i].text);
    }
    g_string_free(text, TRUE);
}

static void test_others(void)
{
    GString *text = g_string_new(NULL);
    nrd_append_time(text, 0);
    assert_text(text, "never");
    nrd_append_time(text, INT64_C(1769860800000));
    assert_text(text, "2026-01-31T12:00:00Z");
    nrd_append_size(text, 1536);
    assert_text(text, "1.5 KiB");
    nrd_append_rate(text, 5, 0);
    assert_text(text, "5.0 a second");
    nrd_append_rate(text, 5000, 10000);
    assert_text(text, "500 a second");
    g_string_free(text, TRUE);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fs/status-text/spans", test_spans);
    g_test_add_func("/fs/status-text/others", test_others);
    return g_test_run();
}
