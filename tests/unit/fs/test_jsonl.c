/* The object of consume.jsonl and log.jsonl, and what counts as JSON. */
#include "fs/json_check.h"
#include "fs/jsonl.h"

#include <string.h>

static bool valid(const char *text)
{
    return nrd_json_valid((const uint8_t *)text, strlen(text));
}

static void test_valid(void)
{
    static const char *const texts[] = {
        "0",          "-0",          "1.5e+10",  "1E400",  "123456789012345678901234567890",
        "true",       "false",       "null",     "\"\"",   "\"\\u0000\\\"\\/\\b\\f\\n\\r\\t\"",
        "[]",         "{}",          " [1, 2] ", "[[[]]]", "{\"a\":{\"b\":[1,{\"c\":null}]},\"a\":2}",
        "\"\u00e9\"", "\t\n\r 1 \n",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        if (!valid(texts[i]))
            g_error("refused: %s", texts[i]);
}

static void test_invalid(void)
{
    static const char byte_order_mark[] = { '\xef', '\xbb', '\xbf', '1', 0 };
    static const char *const texts[] = {
        "",
        " ",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "-",
        "tru",
        "nul",
        "True",
        "NaN",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "[1,]",
        "[1 2]",
        "[",
        "]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{]",
        "[}",
        "1 2",
        "{} {}",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        byte_order_mark,
        "plain text",
        "[1]x",
        "1\"",
        "1 \"text",
        "{}\"",
        "[] tru",
        "null\"}x[2]",
        "\"a\"\"",
        "\"\xc3\"",
        "/* c */ 1",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        if (valid(texts[i]))
            g_error("accepted: %s", texts[i]);
    g_assert_false(nrd_json_valid((const uint8_t *)"1\0", 2));
    g_assert_false(nrd_json_valid((const uint8_t *)"\"a\0\"", 4));
}

/* Nesting is the sender's choice: it must not use up the stack. */
static void test_deep(void)
{
    enum { DEPTH = 200000 };
    g_autofree char *text = g_strnfill(2 * DEPTH, '[');
    g_assert_false(valid(text));
    memset(text + DEPTH, ']', DEPTH);
    g_assert_true(valid(text));
}

static void assert_object(const char *key, size_t key_size, const char *payload, size_t size, const char *expected)
{
    GString *out = g_string_new(NULL);
    NrdJsonlRecord record = {
        .receipt = "0:43:881",
        .partition = 0,
        .offset = 43,
        .timestamp_ms = 1700000000000,
        .key = (const uint8_t *)key,
        .key_size = key_size,
        .payload = (const uint8_t *)payload,
        .payload_size = size,
    };
    g_autofree char *whole = g_strconcat(
        "{\"handle\":\"0:43:881\",\"partition\":0,\"offset\":43,\"timestamp\":1700000000000,", expected, "}\n", NULL);
    nrd_jsonl_append(out, &record);
    g_assert_cmpstr(out->str, ==, whole);
    g_assert_cmpuint(out->len, ==, strlen(whole));
    g_assert_true(valid(out->str));
    g_assert_cmpuint(nrd_jsonl_length(&record), ==, out->len);
    record.receipt = NULL; /* as in log.jsonl */
    g_autofree char *bare =
        g_strconcat("{\"partition\":0,\"offset\":43,\"timestamp\":1700000000000,", expected, "}\n", NULL);
    g_string_truncate(out, 0);
    nrd_jsonl_append(out, &record);
    g_assert_cmpstr(out->str, ==, bare);
    g_assert_cmpuint(nrd_jsonl_length(&record), ==, out->len);
    g_string_free(out, TRUE);
}

/* The length is that of the line, whatever the record. */
static void test_lengths(void)
{
    static const char *const pieces[] = { "{\"a\":", "1",        "}", "\n", "\r",     "\"",   "\\",
                                          "\xff",    "\xc3\xa9", " ", "x",  "\t\b\f", "\x01", "[2]" };
    for (int i = 0; i < 5000; i++) {
        GString *key = g_string_new(NULL), *payload = g_string_new(NULL), *out = g_string_new("before");
        for (int k = g_test_rand_int_range(0, 6); k > 0; k--)
            g_string_append(key, pieces[g_test_rand_int_range(0, G_N_ELEMENTS(pieces))]);
        for (int k = g_test_rand_int_range(0, 9); k > 0; k--)
            g_string_append(payload, pieces[g_test_rand_int_range(0, G_N_ELEMENTS(pieces))]);
        if (i % 5 == 0)
            g_string_append_c(payload, '\0');
        NrdJsonlRecord record = {
            .receipt = i % 2 ? "1:2:3" : NULL,
            .partition = (uint32_t)i,
            .offset = (uint64_t)g_test_rand_int(),
            .timestamp_ms = g_test_rand_int(),
            .key = (const uint8_t *)key->str,
            .key_size = key->len,
            .payload = (const uint8_t *)payload->str,
            .payload_size = payload->len,
        };
        nrd_jsonl_append(out, &record);
        g_assert_cmpuint(nrd_jsonl_length(&record), ==, out->len - 6);
        if (!nrd_json_valid((const uint8_t *)out->str + 6, out->len - 7))
            g_error("%s", out->str);
        g_assert_true(memchr(out->str, '\n', out->len) == out->str + out->len - 1);
        g_string_free(key, TRUE);
        g_string_free(payload, TRUE);
        g_string_free(out, TRUE);
    }
}

static void test_objects(void)
{
    assert_object(NULL, 0, "{\"a\": 1e400}", 12, "\"key\":null,\"payload\":{\"a\": 1e400}");
    assert_object("k", 1, "[1,\r\n 2]\n", 9, "\"key\":\"k\",\"payload\":[1,   2] ");
    assert_object("\"\xff", 2, "", 0, "\"key\":\"Iv8=\",\"key_encoding\":\"base64\",\"payload\":\"\"");
    assert_object(NULL, 0, "say \"hi\"\\\n\t\x01\0x", 14,
                  "\"key\":null,\"payload\":\"say \\\"hi\\\"\\\\\\n\\t\\u0001\\u0000x\"");
    assert_object(NULL, 0, "\xfe\x00", 2, "\"key\":null,\"payload\":\"/gA=\",\"payload_encoding\":\"base64\"");
    assert_object(NULL, 0, "caf\xc3\xa9", 5, "\"key\":null,\"payload\":\"caf\xc3\xa9\"");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json/valid", test_valid);
    g_test_add_func("/json/invalid", test_invalid);
    g_test_add_func("/json/deep", test_deep);
    g_test_add_func("/jsonl/objects", test_objects);
    g_test_add_func("/jsonl/lengths", test_lengths);
    return g_test_run();
}
