/* What the servers' answers to a publish mean. */
#include "engine/jetstream/api.h"

#include <errno.h>
#include <string.h>

static void check(const char *text, int expected, uint64_t expected_sequence)
{
    uint64_t sequence = 0;
    g_autofree char *why = NULL;
    g_assert_cmpint(nrd_js_parse_ack_reply(text, strlen(text), &sequence, &why), ==, expected);
    g_assert_cmpuint(sequence, ==, expected_sequence);
}

static void test_publishes(void)
{
    check("{\"stream\":\"s\",\"seq\":7}", 0, 7);
    check("{\"stream\":\"s\",\"seq\":9007199254740993,\"duplicate\":true}", 0, 9007199254740993);
    check("{\"stream\":\"s\"}", -EIO, 0); /* no sequence: nothing was promised */
    check("{\"stream\":\"s\",\"seq\":0}", -EIO, 0);
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
    check("{\"error\":{\"code\":503,\"err_code\":10039}}", -EIO, 0); /* JetStream is off */
    check("{\"error\":{\"code\":400,\"err_code\":10071}}", -EBUSY, 0);
    check("{\"error\":{\"code\":400,\"err_code\":10058}}", -EEXIST, 0);
    check("{\"error\":{\"code\":404,\"err_code\":10059}}", -ENOENT, 0);
    check("{\"error\":{\"code\":400,\"err_code\":10060}}", -EIO, 0);
}

static void test_words(void)
{
    uint64_t sequence;
    char *why = NULL;
    const char text[] =
        "{\"error\":{\"code\":400,\"err_code\":10060,\"description\":\"expected stream does not match\"}}";
    g_assert_cmpint(nrd_js_parse_ack_reply(text, strlen(text), &sequence, &why), ==, -EIO);
    g_assert_cmpstr(why, ==, "the NATS servers answered: expected stream does not match");
    g_free(why);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/answers/publishes", test_publishes);
    g_test_add_func("/jetstream/answers/errors", test_errors);
    g_test_add_func("/jetstream/answers/words", test_words);
    return g_test_run();
}
