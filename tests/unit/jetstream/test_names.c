/* What things are called on the servers, and what their names say. */
#include "engine/jetstream/names.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

static void test_streams(void)
{
    g_autofree char *long_name = g_strnfill(200, 'x');
    g_autofree char *stream = nrd_js_stream_name("a.b-c_d", "0123456789abcdef", 7);
    g_autofree char *subject = nrd_js_subject("a.b-c_d", "0123456789abcdef", 7);
    g_autofree char *longest = nrd_js_stream_name(long_name, "0123456789abcdef", 1023);
    g_autofree char *key = nrd_js_encode_topic("a..b.");
    g_autofree char *topic = nrd_js_decode_topic(key);
    g_assert_cmpstr(stream, ==, "narad_a=b-c_d_0123456789abcdef_p00007");
    g_assert_cmpstr(subject, ==, "narad.a=b-c_d.0123456789abcdef.p00007");
    g_assert_cmpuint(strlen(longest), <=, 255);
    g_assert_cmpstr(key, ==, "a==b=");
    g_assert_cmpstr(topic, ==, "a..b.");
}

static void test_ack_subjects(void)
{
    NrdJsAckSubject parts;
    g_assert_cmpint(nrd_js_parse_ack("$JS.ACK.narad_a_b_00_p00012.narad.3.44.50.1796038579245000001.9", &parts), ==, 0);
    g_assert_cmpuint(parts.partition, ==, 12);
    g_assert_cmpuint(parts.sequence, ==, 44);
    g_assert_cmpint(parts.time_ns, ==, INT64_C(1796038579245000001));
    g_assert_cmpuint(parts.n_delivered, ==, 3);
    g_assert_cmpuint(parts.n_pending, ==, 9);
    g_assert_cmpint(nrd_js_parse_ack("$JS.ACK.hub.ACCOUNT.narad_a_00_p00001.narad.1.2.3.4.5.random", &parts), ==, 0);
    g_assert_cmpuint(parts.partition, ==, 1);
    g_assert_cmpuint(parts.generation, ==, 0);
    g_assert_cmpuint(parts.sequence, ==, 2);
    g_assert_cmpint(nrd_js_parse_ack("$JS.ACK.s_p1.narad_1796038579245.1.2.3.4.5", &parts), ==, 0);
    g_assert_cmpuint(parts.generation, ==, UINT64_C(1796038579245));
    static const char *const bad[] = {
        "",
        "$JS.ACK",
        "$JS.ACK.s_p1.narad.1.2.3.4",
        "$JS.ACK.s.narad.1.2.3.4.5",
        "$JS.ACK.s_p1.narad.0.2.3.4.5",
        "$JS.ACK.s_p1.narad.1.0.3.4.5",
        "$JS.ACK.s_p1.narad.1.2.3.x.5",
        "$JS.ACK.s_p1.narad.1.2.3.4.",
        "$JS.NAK.s_p1.narad.1.2.3.4.5",
        "$JS.ACK.s_p1.narad_.1.2.3.4.5",
        "$JS.ACK.s_p1.naradx.1.2.3.4.5",
        "$JS.ACK.s_p1.other.1.2.3.4.5",
        "$JS.ACK.d.s_p1.narad.1.2.3.4.5",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        g_assert_cmpint(nrd_js_parse_ack(bad[i], &parts), ==, -EINVAL);
}

static void test_consumers(void)
{
    static const uint64_t generations[] = { 0, 1, 1796038579245, UINT64_MAX };
    static const char *const foreign[] = {
        "", "nara", "narad_", "narad_0", "narad_x", "narad-1", "narad2", "narad_1_2"
    };
    uint64_t found;
    for (size_t i = 0; i < G_N_ELEMENTS(generations); i++) {
        g_autofree char *name = nrd_js_consumer_name(generations[i]);
        g_assert_true(nrd_js_parse_consumer(name, &found));
        g_assert_cmpuint(found, ==, generations[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(foreign); i++)
        g_assert_false(nrd_js_parse_consumer(foreign[i], &found));
}

static void test_times(void)
{
    g_assert_cmpint(nrd_js_parse_time_ms("2026-11-30T11:36:19.245678901Z"), ==, INT64_C(1796038579245));
    g_assert_cmpint(nrd_js_parse_time_ms("2026-11-30T11:36:19Z"), ==, INT64_C(1796038579000));
    g_assert_cmpint(nrd_js_parse_time_ms("0001-01-01T00:00:00Z"), <, 0);
    g_assert_cmpint(nrd_js_parse_time_ms("soon"), ==, 0);
    g_assert_cmpint(nrd_js_parse_time_ms(NULL), ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/jetstream/names/streams", test_streams);
    g_test_add_func("/jetstream/names/ack-subjects", test_ack_subjects);
    g_test_add_func("/jetstream/names/consumers", test_consumers);
    g_test_add_func("/jetstream/names/times", test_times);
    return g_test_run();
}
