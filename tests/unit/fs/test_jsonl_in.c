/* Lines of produce.jsonl: what they say, byte for byte, and what is refused. */
#include "fs/base64.h"
#include "fs/json_check.h"
#include "fs/json_object.h"
#include "fs/jsonl_in.h"

#include <errno.h>
#include <string.h>

#define MAX_RECORD ((size_t)64)

/* Parses a copy of exactly this size, so that reading beyond it is noticed. */
static int parse_bytes(const char *text, size_t size, NrdJsonlLine *ret_line, uint8_t **ret_copy)
{
    const char *why = NULL;
    *ret_copy = g_memdup2(text, size);
    int error = nrd_jsonl_parse(*ret_copy, size, MAX_RECORD, ret_line, &why);
    g_assert_true((error < 0) == (why != NULL));
    return error;
}

static int parse_error(const char *text, size_t size)
{
    NrdJsonlLine line = { 0 };
    uint8_t *copy;
    int error = parse_bytes(text, size, &line, &copy);
    g_free(line.decoded);
    g_free(copy);
    return error;
}

static void assert_record_bytes(const char *text, size_t size, const char *key, size_t key_size, const char *payload,
                                size_t payload_size)
{
    NrdJsonlLine line;
    uint8_t *copy;
    int error = parse_bytes(text, size, &line, &copy);
    if (error < 0)
        g_error("%s: %s", text, g_strerror(-error));
    g_assert_false(line.blank);
    g_assert_cmpmem(line.record.key, line.record.key_size, key, key_size);
    g_assert_cmpmem(line.record.payload, line.record.payload_size, payload, payload_size);
    g_free(line.decoded);
    g_free(copy);
}

static void assert_record(const char *text, const char *key, const char *payload)
{
    assert_record_bytes(text, strlen(text), key, strlen(key), payload, strlen(payload));
}

static void test_values_are_verbatim(void)
{
    static const char *const values[] = {
        "1e400",
        "0.10",
        "-0",
        "123456789012345678901234567890",
        "true",
        "null",
        "[]",
        "{\"b\":1,  \"a\":[ 2 ,3 ],\"b\":2}",
        "[\"\\ud800\"]",
        "[\"}\"]",
        "{\"\\\"\":\"]\"}",
        "[[[{}]],{}]",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        g_autofree char *plain = g_strdup_printf("{\"payload\":%s}", values[i]);
        g_autofree char *spaced = g_strdup_printf(" {\t\"payload\" :\r %s , \"key\" : \"k\" } \r", values[i]);
        assert_record(plain, "", values[i]);
        assert_record(spaced, "k", values[i]);
    }
}

static void test_strings_are_text(void)
{
    assert_record("{\"key\":\"k\",\"payload\":\"text\"}", "k", "text");
    assert_record("{\"payload\":\"\"}", "", "");
    assert_record("{\"payload\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "", "\"\\/\b\f\n\r\t");
    assert_record("{\"payload\":\"\\u00e9 \\u20AC \\ud83d\\ude00!\"}", "", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80!");
    assert_record("{\"payload\":\"\xc3\xa9\",\"key\":\"\\u00e9\\n\"}", "\xc3\xa9\n", "\xc3\xa9");
    assert_record("{\"payload\":\"{\\\"a\\\":1}\"}", "", "{\"a\":1}");
    static const char nul[] = "{\"key\":\"a\\u0000\",\"payload\":\"\\u0000b\"}";
    assert_record_bytes(nul, strlen(nul), "a\0", 2, "\0b", 2);
}

static void test_keys(void)
{
    assert_record("{\"key\":null,\"payload\":1}", "", "1");
    assert_record("{\"key\":\"\",\"payload\":1}", "", "1");
    assert_record("{\"k\\u0065y\":\"k\",\"\\u0070ayload\":1}", "k", "1");
    assert_record("{\"key\":\"/w==\",\"key_encoding\":\"base64\",\"payload\":1}", "\xff", "1");
}

static void test_base64_payloads(void)
{
    assert_record("{\"key\":\"k\",\"payload\":\"YQpi\",\"payload_encoding\":\"base64\"}", "k", "a\nb");
    assert_record("{\"payload_encoding\":\"base64\",\"payload\":\"\\/\\u002f8=\"}", "", "\xff\xff");
    assert_record("{\"payload\":\"\",\"payload_encoding\":\"base64\"}", "", "");
}

/* What consume.jsonl writes can be written again. */
static void test_consumed_objects(void)
{
    assert_record("{\"handle\":\"0:43:881\",\"partition\":0,\"offset\":43,\"timestamp\":1700000000000,\"key\":\"k\","
                  "\"payload\":{\"a\":1}}",
                  "k", "{\"a\":1}");
    assert_record("{\"handle\":\"0:43:881\",\"partition\":0,\"offset\":43,\"timestamp\":1700000000000,\"key\":null,"
                  "\"payload\":\"/w==\",\"payload_encoding\":\"base64\"}",
                  "", "\xff");
}

static void test_blank(void)
{
    static const char *const lines[] = { "", " ", "\r", "\t \r" };
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++) {
        NrdJsonlLine line = { 0 };
        uint8_t *copy;
        g_assert_cmpint(parse_bytes(lines[i], strlen(lines[i]), &line, &copy), ==, 0);
        g_assert_true(line.blank);
        g_assert_null(line.decoded);
        g_free(copy);
    }
}

static void test_malformed(void)
{
    static const char *const lines[] = {
        "x",
        "1",
        "[]",
        "\"payload\"",
        "{}",
        "{",
        "}",
        "{\"payload\"}",
        "{\"payload\":}",
        "{\"payload\":1",
        "{\"payload\":01}",
        "{\"payload\":NaN}",
        "{\"payload\":[1,]}",
        "{\"payload\":1,}",
        "{'payload':1}",
        "{payload:1}",
        "{\"payload\":1}}",
        "{\"payload\":1} x",
        "{\"payload\":1} {\"payload\":2}",
        "{\"payload\":1},{\"payload\":2}",
        "{\"payload\":1} // comment }",
        "\xef\xbb\xbf{\"payload\":1}",
        "{\"key\":\"k\"}",
        "{\"key\":1,\"payload\":1}",
        "{\"key\":[],\"payload\":1}",
        "{\"key\":true,\"payload\":1}",
        "{\"Payload\":1}",
        "{\"payload\":1,\"headers\":{}}",
        "{\"payload\":1,\"payload\":1}",
        "{\"payload\":1,\"p\\u0061yload\":1}",
        "{\"key\":\"a\",\"payload\":1,\"key\":\"a\"}",
        "{\"payload\":\"\\ud800\"}",
        "{\"payload\":\"\\ude00\\ud83d\"}",
        "{\"payload\":\"\\ud83dx\"}",
        "{\"payload\":\"\\ud83d\\n0000\"}",
        "{\"payload\":\"\\ud83d\\ud83d\"}",
        "{\"payload\":1,\"key\":\"\\udfff\"}",
        "{\"payload\":\"\\x41\"}",
        "{\"payload\":\"\\u12\"}",
        "{\"payload\":\"\xff\"}",
        "{\"payload\":\"\xc0\xaf\"}",
        "{\"payload\":[\"\xed\xa0\x80\"]}",
        "{\"payload\":\"a\tb\"}",
        "{\"payload\":\f1}",
        "{\v\"payload\":1}",
        "{\"payload\":\"QQ\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"QQ=\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"QR==\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"Q===\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"QQ==QQ==\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"QQ==\\n\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"Q_-A\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"=\",\"payload_encoding\":\"base64\"}",
        "{\"payload\":\"QQ==\",\"payload_encoding\":\"BASE64\"}",
        "{\"payload\":\"QQ==\",\"payload_encoding\":\"hex\"}",
        "{\"payload\":\"QQ==\",\"payload_encoding\":null}",
        "{\"payload\":1,\"payload_encoding\":\"base64\"}",
        "{\"payload\":[\"QQ==\"],\"payload_encoding\":\"base64\"}",
        "{\"payload\":1,\"key_encoding\":\"base64\"}",
        "{\"key\":null,\"payload\":1,\"key_encoding\":\"base64\"}",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++)
        if (parse_error(lines[i], strlen(lines[i])) != -EINVAL)
            g_error("accepted: %s", lines[i]);
    g_assert_cmpint(parse_error("{\"payload\":\"\0\"}", 14), ==, -EINVAL);
    g_assert_cmpint(parse_error("{\"payload\":1}\0", 14), ==, -EINVAL);
    g_assert_cmpint(parse_error("\0{\"payload\":1}", 14), ==, -EINVAL);
}

/* Every beginning of a good line is unfinished, never something else. */
static void test_every_prefix(void)
{
    static const char line[] = "{\"key\":\"\\u00e9\",\"payload\":{\"a\":[\"}\",\"\\\\\"],\"b\":{}}}";
    for (size_t size = 1; size < sizeof line - 1; size++)
        if (parse_error(line, size) != -EINVAL)
            g_error("accepted: %.*s", (int)size, line);
    g_assert_cmpint(parse_error(line, sizeof line - 1), ==, 0);
}

static void assert_size(size_t size, const char *form, const char *unit, int expected)
{
    g_autoptr(GString) text = g_string_new(NULL);
    for (size_t i = 0; i < size; i++)
        g_string_append(text, unit);
    g_autoptr(GString) line = g_string_new(form);
    g_string_replace(line, "$", text->str, 1);
    g_assert_cmpint(parse_error(line->str, line->len), ==, expected);
    g_assert_cmpuint(line->len, <=, nrd_jsonl_line_max(MAX_RECORD));
}

static void test_limits(void)
{
    assert_size(MAX_RECORD, "{\"payload\":\"$\"}", "x", 0);
    assert_size(MAX_RECORD + 1, "{\"payload\":\"$\"}", "x", -EMSGSIZE);
    assert_size(MAX_RECORD, "{\"payload\":\"$\"}", "\\u0001", 0);
    assert_size(MAX_RECORD + 1, "{\"payload\":\"$\"}", "\\u0001", -EMSGSIZE);
    assert_size(MAX_RECORD, "{\"payload\":$}", "1", 0);
    assert_size(MAX_RECORD + 1, "{\"payload\":$}", "1", -EMSGSIZE);
    assert_size(21, "{\"payload\":\"$QQ==\",\"payload_encoding\":\"base64\"}", "QUJD", 0);
    assert_size(21, "{\"payload\":\"$QUI=\",\"payload_encoding\":\"base64\"}", "QUJD", -EMSGSIZE);
    assert_size(NRD_KEY_MAX, "{\"key\":\"$\",\"payload\":0}", "\\u0001", 0);
    assert_size(NRD_KEY_MAX + 1, "{\"key\":\"$\",\"payload\":0}", "k", -EMSGSIZE);
}

static void test_nesting(void)
{
    const size_t depth = 1000000;
    g_autofree char *open = g_strnfill(depth, '[');
    g_autofree char *close = g_strnfill(depth, ']');
    g_autofree char *whole = g_strconcat("{\"payload\":", open, close, "}", NULL);
    g_autofree char *half = g_strconcat("{\"payload\":", open, "}", NULL);
    NrdJsonlLine line;
    const char *why;
    g_assert_cmpint(nrd_jsonl_parse((const uint8_t *)whole, strlen(whole), SIZE_MAX / 16, &line, &why), ==, 0);
    g_assert_cmpuint(line.record.payload_size, ==, 2 * depth);
    g_assert_cmpint(nrd_jsonl_parse((const uint8_t *)half, strlen(half), SIZE_MAX / 16, &line, &why), ==, -EINVAL);
}

/* Bytes of all sorts there and back, against glib's encoder. */
static void test_base64(void)
{
    for (size_t size = 0; size < 300; size++) {
        uint8_t data[300], back[304];
        size_t n = 4711;
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)g_test_rand_int();
        g_autofree char *text = g_base64_encode(data, size);
        g_assert_cmpint(nrd_base64_decode((const uint8_t *)text, strlen(text), back, &n), ==, 0);
        g_assert_cmpmem(back, n, data, size);
        g_assert_cmpint(nrd_base64_decode((uint8_t *)text, strlen(text), (uint8_t *)text, &n), ==, 0);
        g_assert_cmpmem(text, n, data, size);
    }
}

/* Random changes of good lines: never a crash, and a result only where the library finds valid JSON. */
static void test_mutations(void)
{
    static const char *const seeds[] = {
        "{\"key\":\"k\\u00e9\",\"payload\":{\"a\":[1,\"x\\\\\"],\"b\":null}}",
        "{\"payload\":\"\\ud83d\\ude00\",\"key\":null}",
        "{\"payload\":\"QUJD\",\"payload_encoding\":\"base64\",\"key\":\"/w==\",\"key_encoding\":\"base64\"}",
    };
    static const char bytes[] = "{}[]\":,\\u0deb=ky \n\t\xff\xc3";
    for (int round = 0; round < 200000; round++) {
        g_autofree char *text = g_strdup(seeds[round % 3]);
        size_t size = strlen(text);
        for (int i = g_test_rand_int_range(1, 4); i > 0; i--)
            text[g_test_rand_int_range(0, (int)size)] = bytes[g_test_rand_int_range(0, sizeof bytes)];
        int error = parse_error(text, size);
        g_assert_true(error == 0 || error == -EINVAL || error == -EMSGSIZE);
        g_assert_true(error < 0 || nrd_json_valid((const uint8_t *)text, size) || strspn(text, " \t\r\n") == size);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jsonl-in/values-are-verbatim", test_values_are_verbatim);
    g_test_add_func("/jsonl-in/strings-are-text", test_strings_are_text);
    g_test_add_func("/jsonl-in/keys", test_keys);
    g_test_add_func("/jsonl-in/base64-payloads", test_base64_payloads);
    g_test_add_func("/jsonl-in/consumed-objects", test_consumed_objects);
    g_test_add_func("/jsonl-in/blank", test_blank);
    g_test_add_func("/jsonl-in/malformed", test_malformed);
    g_test_add_func("/jsonl-in/every-prefix", test_every_prefix);
    g_test_add_func("/jsonl-in/limits", test_limits);
    g_test_add_func("/jsonl-in/nesting", test_nesting);
    g_test_add_func("/jsonl-in/base64", test_base64);
    g_test_add_func("/jsonl-in/mutations", test_mutations);
    return g_test_run();
}
