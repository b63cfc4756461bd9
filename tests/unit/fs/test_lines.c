/* Lines of command files, their numbers and words, and the verbs of ctl. */
#include "fs/ctl_parse.h"
#include "fs/lines.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

/* A line beginning with '!' does not take effect. */
static int collect(void *user_data, const char *line, size_t size)
{
    if (size > 0 && line[0] == '!')
        return -ESTALE;
    g_string_append_c(user_data, '[');
    g_string_append_len(user_data, line, (gssize)size);
    g_string_append_c(user_data, ']');
    return 0;
}

static gssize feed(NrdLines *lines, const char *text, GString *seen)
{
    size_t taken;
    int error = nrd_lines_feed(lines, text, strlen(text), collect, seen, &taken);
    return error < 0 ? error : (gssize)taken;
}

static void assert_seen(GString *seen, const char *expected)
{
    g_assert_cmpstr(seen->str, ==, expected);
    g_string_truncate(seen, 0);
}

static void test_lines(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_assert_cmpint(feed(&lines, "a\nb\n", seen), ==, 4);
    assert_seen(seen, "[a][b]");
    g_assert_cmpint(feed(&lines, "!x\na\n", seen), ==, -ESTALE);
    g_assert_cmpint(feed(&lines, "a\n!x\nb\n", seen), ==, 2);
    assert_seen(seen, "[a]");
    g_string_free(seen, TRUE);
}

static void test_only_line_without_newline(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_assert_cmpint(feed(&lines, "a", seen), ==, 1);
    g_assert_cmpint(feed(&lines, "b", seen), ==, 1);
    g_assert_cmpint(feed(&lines, "\n", seen), ==, 1);
    g_assert_cmpint(feed(&lines, "!x", seen), ==, -ESTALE);
    g_assert_cmpint(feed(&lines, "c\n", seen), ==, 2);
    assert_seen(seen, "[a][b][c]");
    g_string_free(seen, TRUE);
}

static void test_cut_line(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_assert_cmpint(feed(&lines, "a\nbc", seen), ==, 4);
    assert_seen(seen, "[a]");
    g_assert_cmpint(feed(&lines, "d\ne\nf", seen), ==, 5);
    assert_seen(seen, "[bcd][e]");
    g_assert_cmpint(nrd_lines_flush(&lines, collect, seen), ==, 0);
    assert_seen(seen, "[f]");
    g_assert_cmpint(feed(&lines, "\ng\n!", seen), ==, 4);
    g_assert_cmpint(nrd_lines_flush(&lines, collect, seen), ==, -ESTALE);
    g_assert_cmpint(feed(&lines, "h\ni\n", seen), ==, -ESTALE);
    g_assert_cmpint(feed(&lines, "j\n", seen), ==, 2);
    assert_seen(seen, "[g][j]");
    g_string_free(seen, TRUE);
}

static void test_long_line(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_autofree char *longest = g_strnfill(NRD_LINE_MAX, 'x');
    g_autofree char *cut = g_strconcat("a\n", longest, NULL);
    g_autofree char *longer = g_strconcat(longest, "x\n", NULL);
    g_assert_cmpint(feed(&lines, longest, seen), ==, NRD_LINE_MAX);
    g_assert_cmpint(feed(&lines, longer, seen), ==, -EINVAL);
    g_assert_cmpint(feed(&lines, cut, seen), ==, NRD_LINE_MAX + 2);
    g_assert_cmpint(feed(&lines, "x\n", seen), ==, -EINVAL);
    g_string_free(seen, TRUE);
}

/* Lines of other systems and of printf with widths. */
static void test_blanks_and_cr(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_assert_cmpint(feed(&lines, "a\r\nb  c\td \t e\r\n\r\n", seen), ==, 17);
    assert_seen(seen, "[a][b c d e][]");
    g_assert_cmpint(feed(&lines, "f\rg\r\r\n", seen), ==, 6);
    assert_seen(seen, "[f\rg\r]");
    g_assert_cmpint(feed(&lines, "h\nack", seen), ==, 5);
    g_assert_cmpint(feed(&lines, "   1\r\n", seen), ==, 6);
    assert_seen(seen, "[h][ack 1]");
    g_assert_cmpint(feed(&lines, "i\nj  k\r", seen), ==, 7);
    g_assert_cmpint(nrd_lines_flush(&lines, collect, seen), ==, 0);
    assert_seen(seen, "[i][j k]");
    g_string_free(seen, TRUE);
}

/* Shows what came together in braces. */
static size_t collect_many(void *user_data, const char *lines, size_t size, int *ret_error)
{
    size_t pos = 0;
    *ret_error = 0;
    g_string_append_c(user_data, '{');
    while (pos < size && *ret_error == 0) {
        size_t length = strcspn(lines + pos, "\n");
        *ret_error = collect(user_data, lines + pos, length);
        pos += *ret_error == 0 ? length + 1 : 0;
    }
    g_string_append_c(user_data, '}');
    return pos;
}

static gssize feed_many(NrdLines *lines, const char *text, GString *seen)
{
    size_t taken;
    int error = nrd_lines_feed_many(lines, text, strlen(text), collect, collect_many, seen, &taken);
    return error < 0 ? error : (gssize)taken;
}

static void test_many(void)
{
    NrdLines lines = { 0 };
    GString *seen = g_string_new(NULL);
    g_assert_cmpint(feed_many(&lines, "a\nb\n", seen), ==, 4);
    assert_seen(seen, "{[a][b]}");
    g_assert_cmpint(feed_many(&lines, "!x\na\n", seen), ==, -ESTALE);
    assert_seen(seen, "{}");
    g_assert_cmpint(feed_many(&lines, "a\nb\n!x\nc", seen), ==, 4);
    assert_seen(seen, "{[a][b]}");
    g_assert_cmpint(feed_many(&lines, "a\nbc", seen), ==, 4); /* kept */
    g_assert_cmpint(feed_many(&lines, "d\ne\nf\ng", seen), ==, 7);
    assert_seen(seen, "{[a]}[bcd]{[e][f]}");
    g_assert_cmpint(nrd_lines_flush(&lines, collect, seen), ==, 0);
    g_assert_cmpint(feed_many(&lines, "\nh", seen), ==, 2); /* the newline is that of g */
    assert_seen(seen, "[g][h]");
    g_assert_cmpint(feed_many(&lines, "\ni\n", seen), ==, 3);
    assert_seen(seen, "{[i]}");
    g_string_free(seen, TRUE);
}

static void assert_number(const char *text, int expected_error, uint64_t expected)
{
    uint64_t number = 4711;
    g_assert_cmpint(nrd_number_parse(text, strlen(text), INT64_MAX, &number), ==, expected_error);
    g_assert_cmpuint(number, ==, expected_error == 0 ? expected : 4711);
}

static void test_numbers(void)
{
    assert_number("0", 0, 0);
    assert_number("9223372036854775807", 0, INT64_MAX);
    static const char *const bad[] = { "",
                                       "-1",
                                       "+1",
                                       "01",
                                       "00",
                                       "0x10",
                                       " 1",
                                       "1 ",
                                       "1.0",
                                       "1e3",
                                       "a",
                                       "1a",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       "99999999999999999999999" };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_number(bad[i], -EINVAL, 0);
}

static bool topic_verb(const char *line, NrdCtlVerb verb, uint64_t number)
{
    NrdCtlCommand command;
    const char *why = NULL;
    if (nrd_ctl_parse_topic(line, strlen(line), &command, &why) < 0) {
        g_assert_nonnull(why);
        return false;
    }
    return command.verb == verb && command.number == number;
}

static bool partition_verb(const char *line, NrdCtlVerb verb, uint64_t number)
{
    NrdCtlCommand command;
    const char *why = NULL;
    if (nrd_ctl_parse_partition(line, strlen(line), &command, &why) < 0) {
        g_assert_nonnull(why);
        return false;
    }
    return command.verb == verb && command.number == number;
}

static void test_ctl(void)
{
    g_assert_true(topic_verb("delete 0123456789abcdef", NRD_CTL_DELETE, 0));
    g_assert_true(topic_verb("partitions 7", NRD_CTL_PARTITIONS, 7));
    g_assert_true(partition_verb("reopen", NRD_CTL_REOPEN, 0));
    g_assert_true(partition_verb("roll", NRD_CTL_ROLL, 0));
    g_assert_true(partition_verb("trim 12", NRD_CTL_TRIM, 12));
    g_assert_true(partition_verb("seek 0", NRD_CTL_SEEK, 0));
    g_assert_true(partition_verb("seek start", NRD_CTL_SEEK_START, 0));
    g_assert_true(partition_verb("seek end", NRD_CTL_SEEK_END, 0));
}

static void test_ctl_refuses(void)
{
    static const char *const bad[] = {
        "",
        " ",
        "reopen ",
        "reopen now",
        " roll",
        "ROLL",
        "rolling",
        "trim",
        "trim ",
        "trim  1",
        "trim 1 ",
        "trim -1",
        "trim 0x1",
        "trim 01",
        "seek",
        "seek begin",
        "seek start x",
        "partitions",
        "partitions ",
        "partitions -1",
        "delete",
        "delete ",
        "delete 0123456789abcde",
        "delete 0123456789abcdef0",
        "partitions 4294967296",
        "trim 9223372036854775808",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        NrdCtlCommand command;
        const char *why;
        g_assert_cmpint(nrd_ctl_parse_topic(bad[i], strlen(bad[i]), &command, &why), ==, -EINVAL);
        g_assert_cmpint(nrd_ctl_parse_partition(bad[i], strlen(bad[i]), &command, &why), ==, -EINVAL);
    }
    g_assert_false(topic_verb("roll", NRD_CTL_ROLL, 0));
    g_assert_false(partition_verb("partitions 2", NRD_CTL_PARTITIONS, 2));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lines/lines", test_lines);
    g_test_add_func("/lines/only-line-without-newline", test_only_line_without_newline);
    g_test_add_func("/lines/cut-line", test_cut_line);
    g_test_add_func("/lines/long-line", test_long_line);
    g_test_add_func("/lines/blanks-and-cr", test_blanks_and_cr);
    g_test_add_func("/lines/many", test_many);
    g_test_add_func("/lines/numbers", test_numbers);
    g_test_add_func("/ctl/verbs", test_ctl);
    g_test_add_func("/ctl/refuses", test_ctl_refuses);
    return g_test_run();
}
