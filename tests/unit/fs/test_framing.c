/* Framing of produce: cuts anywhere give the same records; each rule for a record too long. */
#include "fs/framing.h"

#include <errno.h>
#include <string.h>

#define MAX_RECORD 8

typedef struct Fixture {
    NrdFraming framing;
    GString *records; /* each in brackets */
} Fixture;

static void set_up(Fixture *f, gconstpointer unused)
{
    nrd_framing_init(&f->framing);
    f->records = g_string_new(NULL);
}

static void tear_down(Fixture *f, gconstpointer unused)
{
    nrd_framing_clear(&f->framing);
    g_string_free(f->records, TRUE);
}

static void collect(void *user_data, const uint8_t *record, size_t size)
{
    GString *records = user_data;
    g_string_append_c(records, '[');
    g_string_append_len(records, (const char *)record, (gssize)size);
    g_string_append_c(records, ']');
}

/* Feeds one request: the bytes taken, or the error. */
static gssize feed_bytes(Fixture *f, const char *data, size_t size)
{
    size_t taken = 99999;
    int error = nrd_framing_feed(&f->framing, (const uint8_t *)data, size, MAX_RECORD, collect, f->records, &taken);
    if (error == 0)
        return (gssize)taken;
    g_assert_cmpuint(taken, ==, 99999);
    return error;
}

static gssize feed(Fixture *f, const char *text)
{
    return feed_bytes(f, text, strlen(text));
}

static void end(Fixture *f)
{
    nrd_framing_end(&f->framing, collect, f->records);
}

static void assert_records(Fixture *f, const char *expected)
{
    g_assert_cmpstr(f->records->str, ==, expected);
    g_string_truncate(f->records, 0);
}

static void test_lines(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n\nbc\n12345678\nx"), ==, 16);
    assert_records(f, "[a][][bc][12345678]");
    end(f);
    end(f);
    assert_records(f, "[x]");
    g_assert_cmpint(feed_bytes(f, "a\0b\n", 4), ==, 4);
    g_assert_cmpmem(f->records->str, f->records->len, "[a\0b]", 5);
}

static void test_end_keeps_no_empty_record(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n"), ==, 2);
    end(f);
    assert_records(f, "[a]");
    g_assert_cmpint(feed(f, ""), ==, 0);
    end(f);
    assert_records(f, "");
}

static void test_any_cuts(Fixture *f, gconstpointer unused)
{
    static const char input[] = "one\n\ntwo\n12345678\n\n\nab\r\nlast";
    for (size_t i = 0; i < sizeof input; i++) {
        for (size_t j = i; j < sizeof input; j++) {
            g_assert_cmpint(feed_bytes(f, input, i), ==, i);
            g_assert_cmpint(feed_bytes(f, input + i, j - i), ==, j - i);
            g_assert_cmpint(feed_bytes(f, input + j, sizeof input - 1 - MIN(j, sizeof input - 1)), >=, 0);
            end(f);
            assert_records(f, "[one][][two][12345678][][][ab\r][last]");
        }
    }
}

/* Random lines, none too long; *expected is what collect makes of them. */
static void make_lines(char *input, size_t size, GString *expected)
{
    size_t length = 0;
    g_string_append_c(expected, '[');
    for (size_t i = 0; i < size; i++) {
        bool newline = length == MAX_RECORD || g_test_rand_int_range(0, 4) == 0;
        input[i] = newline ? '\n' : (char)g_test_rand_int_range('a', 'z');
        length = newline ? 0 : length + 1;
        if (newline)
            g_string_append(expected, "][");
        else
            g_string_append_c(expected, input[i]);
    }
    if (length > 0)
        g_string_append_c(expected, ']');
    else
        g_string_truncate(expected, expected->len - 1);
}

static void test_random_cuts(Fixture *f, gconstpointer unused)
{
    for (int round = 0; round < 2000; round++) {
        char input[200];
        GString *expected = g_string_new(NULL);
        make_lines(input, sizeof input, expected);
        for (size_t pos = 0; pos < sizeof input;) {
            size_t cut = (size_t)g_test_rand_int_range(1, 30);
            size_t n = MIN(cut, sizeof input - pos);
            g_assert_cmpint(feed_bytes(f, input + pos, n), ==, n);
            pos += n;
        }
        end(f);
        assert_records(f, expected->str);
        g_string_free(expected, TRUE);
    }
}

static void test_too_long_whole(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "123456789\nnext\n"), ==, -EMSGSIZE);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3); /* the refused request held the record's end */
    assert_records(f, "[ok]");
}

static void test_too_long_without_end(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "123456789"), ==, -EMSGSIZE);
    end(f);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "more"), ==, 4);
    end(f);
    g_assert_cmpint(feed(f, "end\nok\n"), ==, 7);
    assert_records(f, "[ok]");
}

static void test_too_long_after_a_beginning(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n12345"), ==, 7);
    assert_records(f, "[a]");
    g_assert_cmpint(feed(f, "6789\nb\n"), ==, -EMSGSIZE);
    end(f);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

static void test_too_long_after_complete_ones(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\nbb\n123456789\n"), ==, 5);
    assert_records(f, "[a][bb]");
    g_assert_cmpint(feed(f, "123456789\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "c\n123456789"), ==, 2);
    g_assert_cmpint(feed(f, "123456789"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "0\nd\n"), ==, 4);
    assert_records(f, "[c][d]");
}

static void test_too_long_after_skipped(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "1234567890"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "x\n123456789\n"), ==, 2);
    g_assert_cmpint(feed(f, "123456789\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

/* The kernel hid the failure behind a short count; the program sends the failed request again. */
static void test_refused_again(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "12345"), ==, 5);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(feed(f, "6789\nb\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    g_assert_cmpint(feed(f, "6789\nb\n"), ==, 7); /* forgotten by now: new records */
    assert_records(f, "[ok][6789][b]");

    g_assert_cmpint(feed(f, "12345"), ==, 5);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "rest\nok\n"), ==, 8);
    assert_records(f, "[ok]");
}

/* Sent again from elsewhere in the program's memory it may be cut later than the first time. */
static void test_refused_again_longer(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "12345"), ==, 5);
    g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789abcd\nx\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Fixture *f, gconstpointer unused);
    } cases[] = {
        { "/framing/lines", test_lines },
        { "/framing/end-keeps-no-empty-record", test_end_keeps_no_empty_record },
        { "/framing/any-cuts", test_any_cuts },
        { "/framing/random-cuts", test_random_cuts },
        { "/framing/too-long/whole", test_too_long_whole },
        { "/framing/too-long/without-end", test_too_long_without_end },
        { "/framing/too-long/after-a-beginning", test_too_long_after_a_beginning },
        { "/framing/too-long/after-complete-ones", test_too_long_after_complete_ones },
        { "/framing/too-long/after-skipped", test_too_long_after_skipped },
        { "/framing/too-long/refused-again", test_refused_again },
        { "/framing/too-long/refused-again-longer", test_refused_again_longer },
    };
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++)
        g_test_add(cases[i].name, Fixture, NULL, set_up, cases[i].run, tear_down);
    return g_test_run();
}
