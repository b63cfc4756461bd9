/* What the servers' answers to a publish mean. */
#include "engine/jetstream/answers.h"

#include <errno.h>
#include <string.h>

static void check(const char *text, int expected, uint64_t expected_sequence)
{
    uint64_t sequence = 0;
    bool duplicate = false;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_js_parse_ack_reply(text, strlen(text), &sequence, &duplicate, &why), ==, expected);
    g_assert_cmpuint(sequence, ==, expected_sequence);
    g_assert_true(duplicate == (expected == 0 && strstr(text, "\"duplicate\":true") != NULL));
}

static void test_publishes(void)
{
    check("{\"stream\":\"s\",\"seq\":7}", 0, 7);
    check("{\"stream\":\"s\",\"seq\":9007199254740993,\"duplicate\":true}", 0, 9007199254740993);
    check("{\"stream\":\"s\"}", -EIO, 0); /* no sequence: nothing was promised */
    check("{\"stream\":\"s\",\"seq\":0}", -EIO, 0);
    check("{\"stream\":\"s\",\"seq\":0,\"duplicate\":false}", -EIO, 0);
    check("{\"stream\":\"s\",\"seq\":0,\"duplicate\":true}", -EAGAIN, 0); /* the first copy is under way */
    check("{\"stream\":\"s\",\"seq\":-1}", -EIO, 0);
    check("{\"stream\":\"s\",\"seq\":\"7\"}", -EIO, 0);
    check("", -EIO, 0);
    check("+OK", -EIO, 0);
    check("{\"stream\":\"s\",\"seq\":7", -EIO, 0);
}

static void test_errors(void)
{
    check("{\"error\":{\"code\":503,\"err_code\":10077,\"description\":\"maximum bytes exceeded\"},\"seq\":7}", -ENOSPC,
          0);
    check("{\"error\":{\"code\":500,\"err_code\":10047}}", -ENOSPC, 0);
    check("{\"error\":{\"code\":503,\"err_code\":10008}}", -EAGAIN, 0);
    check("{\"error\":{\"code\":400,\"err_code\":10005}}", -EAGAIN, 0);
    check("{\"error\":{\"code\":503}}", -EAGAIN, 0);
    check("{\"error\":{\"code\":409,\"err_code\":10158}}", -EAGAIN, 0); /* ... of a repeated id */
    check("{\"error\":{\"code\":503,\"err_code\":10039}}", -EIO, 0);    /* JetStream is off */
    check("{\"error\":{\"code\":400,\"err_code\":10071}}", -EBUSY, 0);
    check("{\"error\":{\"code\":400,\"err_code\":10058}}", -EEXIST, 0);
    check("{\"error\":{\"code\":404,\"err_code\":10059}}", -ENOENT, 0);
    check("{\"error\":{\"code\":400,\"err_code\":10060}}", -EIO, 0);
}

static void check_enabled(const char *text, bool expected)
{
    g_assert_true(nrd_js_says_not_enabled(text, strlen(text)) == !expected);
}

static void test_not_enabled(void)
{
    check_enabled("{\"error\":{\"code\":503,\"err_code\":10039,\"description\":\"x\"}}", false);
    check_enabled("{\"error\":{\"code\":503,\"err_code\":10076}}", false);
    check_enabled("{\"error\":{\"code\":503,\"err_code\":10008,\"description\":\"JetStream not enabled\"}}", true);
    check_enabled("{\"error\":{\"code\":503}}", true);
    check_enabled("{\"err_code\":10076}", true);
    check_enabled("{\"error\":[10076]}", true);
    check_enabled("", true);
}

static void test_words(void)
{
    uint64_t sequence;
    bool duplicate;
    char *why = NULL;
    const char text[] =
        "{\"error\":{\"code\":400,\"err_code\":10060,\"description\":\"expected stream does not match\"}}";
    g_assert_cmpint(nrd_js_parse_ack_reply(text, strlen(text), &sequence, &duplicate, &why), ==, -EIO);
    g_assert_cmpstr(why, ==, "the NATS servers answered: expected stream does not match");
    g_free(why);
}

static void test_what_is_quoted(void)
{
    uint64_t sequence = 7;
    bool duplicate;
    char *why = NULL;
    g_autofree char *long_text = g_strnfill(1000, 'x');
    g_autofree char *text =
        g_strdup_printf("{\"error\":{\"code\":400,\"description\":\"a\\nstate ok\\u001b[2J%s\"}}", long_text);
    g_assert_cmpint(nrd_js_parse_ack_reply(text, strlen(text), &sequence, &duplicate, &why), ==, -EIO);
    g_assert_true(g_str_has_prefix(why, "the NATS servers answered: a?state ok?[2Jxxx"));
    g_assert_cmpuint(strlen(why), <, 300);
    g_assert_cmpuint(sequence, ==, 7);
    g_free(why);
}

#define STREAM(created, replicas, storage, state)                                                                      \
    "{\"config\":{\"num_replicas\":" replicas ",\"storage\":\"" storage "\"},\"created\":\"" created                   \
    "\",\"state\":{" state "}}"

static void test_wrong_last(void)
{
    static const char good[] =
        "{\"error\":{\"code\":400,\"err_code\":10071,\"description\":\"wrong last sequence: 3\"},"
        "\"stream\":\"s\",\"seq\":0}";
    static const char *const bad[] = {
        "{\"stream\":\"s\",\"seq\":4}", /* it was stored */
        "{\"error\":{\"code\":400,\"err_code\":10071,\"description\":\"wrong last sequence: x\"}}",
        "{\"error\":{\"code\":400,\"err_code\":10071,\"description\":\"wrong last message\"}}",
        "{\"error\":{\"code\":400,\"err_code\":10070,\"description\":\"wrong last sequence: 3\"}}",
        "3",
    };
    uint64_t last = 0;
    g_assert_cmpint(nrd_js_read_wrong_last(good, strlen(good), &last, NULL), ==, 0);
    g_assert_cmpuint(last, ==, 3);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        char *why = NULL;
        g_assert_cmpint(nrd_js_read_wrong_last(bad[i], strlen(bad[i]), &last, &why), ==, -EIO);
        g_assert_nonnull(why);
        g_free(why);
    }
    g_assert_cmpuint(last, ==, 3);
}

static void test_closed(void)
{
    const char *remover = NULL;
    g_assert_false(nrd_js_parse_closed("narad.closed.0123.p00000", &remover));
    g_assert_false(nrd_js_parse_closed("narad.t.0123.p00000.closedx", &remover));
    g_assert_false(nrd_js_parse_closed("", &remover));
    g_assert_null(remover);
    g_autofree char *subject = nrd_js_closed_subject("narad.closed.0123.p00000", "me-1");
    g_assert_true(nrd_js_parse_closed(subject, &remover));
    g_assert_cmpstr(remover, ==, "me-1");
    g_assert_true(nrd_js_parse_closed("narad.t.0123.p00000.closed", &remover));
    g_assert_cmpstr(remover, ==, "");
}

#define CLUSTERED(replicas)                                                                                            \
    "{\"config\":{\"num_replicas\":3,\"storage\":\"file\"},\"created\":\"x\",\"state\":{},"                            \
    "\"cluster\":{\"leader\":\"n1\",\"replicas\":[" replicas "]}}"

static void test_streams(void)
{
    static const char good[] =
        STREAM("2026-11-30T11:36:19.245678901Z", "3", "file",
               "\"first_seq\":5,\"last_seq\":9,\"messages\":5,\"bytes\":77,\"first_ts\":\"2026-11-30T11:36:19Z\"");
    static const char empty[] = STREAM("x", "1", "memory", "\"first_seq\":0,\"last_seq\":0,\"messages\":0");
    static const char led[] = CLUSTERED("{\"name\":\"n2\",\"current\":true},{\"name\":\"n3\",\"current\":true}");
    static const char busy[] = CLUSTERED("{\"name\":\"n2\",\"current\":false,\"active\":300000000}");
    static const char hangs[] = CLUSTERED("{\"name\":\"n2\",\"current\":false,\"active\":3000000000}");
    static const char away[] = CLUSTERED("{\"name\":\"n2\",\"current\":false,\"offline\":true}");
    static const char *const bad[] = {
        "{}",
        "[]",
        "7",
        STREAM("x", "0", "file", ""),
        STREAM("x", "6", "file", ""),
        STREAM("x", "4294967297", "file", ""),
        STREAM("a time that no server writes, since it is so long", "1", "file", ""),
        STREAM("x", "1", "file", "\"first_seq\":9,\"last_seq\":7,\"messages\":0"),
        STREAM("x", "1", "file", "\"first_seq\":1,\"last_seq\":7,\"messages\":8"),
        "{\"config\":{\"num_replicas\":1},\"created\":\"x\"}",
        "{\"state\":{},\"config\":{\"num_replicas\":1}}",
    };
    NrdJsStreamInfo info;
    g_assert_cmpint(nrd_js_read_stream(good, strlen(good), &info, NULL), ==, 0);
    g_assert_cmpuint(info.first_seq, ==, 5);
    g_assert_cmpuint(info.last_seq, ==, 9);
    g_assert_cmpuint(info.bytes, ==, 77);
    g_assert_cmpint(info.first_ms, ==, INT64_C(1796038579000));
    g_assert_true(info.replicas == 3 && !info.in_memory);
    g_assert_cmpint(nrd_js_read_stream(empty, strlen(empty), &info, NULL), ==, 0);
    g_assert_true(info.replicas == 1 && info.in_memory && info.last_seq == 0 && info.first_ms == 0);
    g_assert_true(!info.lags && info.leader[0] == '\0');
    g_assert_cmpint(nrd_js_read_stream(led, strlen(led), &info, NULL), ==, 0);
    g_assert_cmpstr(info.leader, ==, "n1");
    g_assert_false(info.lags);
    g_assert_cmpint(nrd_js_read_stream(busy, strlen(busy), &info, NULL), ==, 0);
    g_assert_false(info.lags);
    g_assert_cmpint(nrd_js_read_stream(hangs, strlen(hangs), &info, NULL), ==, 0);
    g_assert_true(info.lags);
    g_assert_cmpint(nrd_js_read_stream(away, strlen(away), &info, NULL), ==, 0);
    g_assert_true(info.lags);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *why = NULL;
        g_assert_cmpint(nrd_js_read_stream(bad[i], strlen(bad[i]), &info, &why), ==, -EIO);
        g_assert_nonnull(why);
    }
}

static void test_consumers(void)
{
    static const char text[] = "{\"config\":{\"opt_start_seq\":8},\"ack_floor\":{\"stream_seq\":3},\"num_pending\":-4,"
                               "\"num_ack_pending\":2}";
    NrdJsConsumerInfo info;
    g_assert_cmpint(nrd_js_read_consumer(text, strlen(text), &info, NULL), ==, 0);
    g_assert_true(info.floor_seq == 7 && info.pending == 0 && info.ack_pending == 2 && info.start_seq == 8);
    g_assert_cmpint(nrd_js_read_consumer("{\"config\":{}}", 13, &info, NULL), ==, -EIO);
}

static void test_messages(void)
{
    static const char text[] =
        "{\"message\":{\"subject\":\"a.b\",\"seq\":4,\"data\":\"aGk=\",\"time\":\"2026-11-30T11:36:19Z\","
        "\"hdrs\":\"TkFUUy8xLjANCktleTogdg0KDQo=\"}}";
    static const char *const bad[] = { "{}", "{\"message\":{}}", "{\"message\":{\"subject\":\"a\"}}",
                                       "{\"message\":{\"seq\":4}}", "{\"message\":{\"subject\":\"a\",\"seq\":0}}" };
    NrdJsMessage message;
    g_assert_cmpint(nrd_js_read_message(text, strlen(text), &message, NULL), ==, 0);
    g_assert_cmpuint(message.sequence, ==, 4);
    g_assert_cmpstr(message.subject, ==, "a.b");
    g_assert_cmpstr(g_hash_table_lookup(message.headers, "Key"), ==, "v");
    g_assert_cmpuint(g_bytes_get_size(message.data), ==, 2);
    nrd_js_message_clear(&message);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        g_assert_cmpint(nrd_js_read_message(bad[i], strlen(bad[i]), &message, NULL), ==, -EIO);
}

/* A parser that calls itself for each bracket would have no stack left. */
static void test_deep(void)
{
    const size_t n = 1000000;
    g_autofree char *text = g_malloc(2 * n + 16);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', n);
    memset(text + 5 + n, ']', n);
    memcpy(text + 5 + 2 * n, "}", 2);
    check(text, -EIO, 0);
    check("{\"seq\":1,\"s\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"}", 0, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/answers/publishes", test_publishes);
    g_test_add_func("/jetstream/answers/errors", test_errors);
    g_test_add_func("/jetstream/answers/not-enabled", test_not_enabled);
    g_test_add_func("/jetstream/answers/words", test_words);
    g_test_add_func("/jetstream/answers/quoted", test_what_is_quoted);
    g_test_add_func("/jetstream/answers/streams", test_streams);
    g_test_add_func("/jetstream/answers/wrong-last", test_wrong_last);
    g_test_add_func("/jetstream/answers/closed", test_closed);
    g_test_add_func("/jetstream/answers/consumers", test_consumers);
    g_test_add_func("/jetstream/answers/messages", test_messages);
    g_test_add_func("/jetstream/answers/deep", test_deep);
    return g_test_run();
}
