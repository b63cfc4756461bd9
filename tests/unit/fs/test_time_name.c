/* Names of by-time/. */
#include "fs/time_name.h"

#include <errno.h>
#include <glib.h>
#include <stdio.h>

static void assert_time(const char *name, int64_t expected)
{
    int64_t ms = 4711;
    int error = nrd_time_name_parse(name, &ms);
    if (error < 0 || ms != expected)
        g_error("%s: error %d, %" G_GINT64_FORMAT " instead of %" G_GINT64_FORMAT, name, error, ms, expected);
}

static void test_numbers(void)
{
    assert_time("0", 0);
    assert_time("1", 1);
    assert_time("1700000000000", 1700000000000);
    assert_time("9223372036854775807", INT64_MAX);
}

static void test_times(void)
{
    assert_time("1970-01-01T00:00:00Z", 0);
    assert_time("1970-01-01t00:00:00z", 0);
    assert_time("1970-01-01 00:00:00Z", 0);
    assert_time("2023-11-14T22:13:20Z", 1700000000000);
    assert_time("2023-11-14T22:13:20.5Z", 1700000000500);
    assert_time("2023-11-14T22:13:20.123Z", 1700000000123);
    assert_time("2023-11-14T22:13:20.1230000000000000000000000000Z", 1700000000123);
    assert_time("2023-11-14T22:13:20.1230000000000000000000000001Z", 1700000000124);
    assert_time("2023-11-14T22:13:20.9999Z", 1700000001000);
    assert_time("2023-11-14T23:43:20+01:30", 1700000000000);
    assert_time("2023-11-14T12:13:20-10:00", 1700000000000);
    assert_time("2023-11-14T22:13:20-00:00", 1700000000000);
    assert_time("2023-11-15T22:12:20+23:59", 1700000000000);
    assert_time("1969-12-31T23:59:59.999Z", -1);
    assert_time("0000-01-01T00:00:00Z", -62167219200000);
    assert_time("9999-12-31T23:59:59.999Z", 253402300799999);
    assert_time("2016-12-31T23:59:60Z", 1483228800000);
    assert_time("2017-01-01T00:59:60+01:00", 1483228800000);
}

/* Against the calendar of glib. */
static void test_every_day(void)
{
    for (int year = 1; year <= 2400; year++) {
        for (int month = 1; month <= 12; month++) {
            char name[40];
            int day = g_date_get_days_in_month((GDateMonth)month, (GDateYear)year);
            g_autoptr(GDateTime) then = g_date_time_new_utc(year, month, day, 13, 14, 15);
            snprintf(name, sizeof name, "%04d-%02d-%02dT13:14:15Z", year, month, day);
            assert_time(name, g_date_time_to_unix(then) * 1000);
        }
    }
}

static void test_refused(void)
{
    static const char *const names[] = {
        "",
        "-1",
        "+1",
        "01",
        " 1",
        "1 ",
        "0x10",
        "1e3",
        "1.5",
        "9223372036854775808",
        "18446744073709551616",
        "2023-11-14",
        "2023-11-14T22:13:20",
        "2023-11-14 22:13:20",
        "2023-11-14T22:13Z",
        "2023-11-14T22Z",
        "2023-11-14T22:13:20.Z",
        "2023-11-14T22:13:20,5Z",
        "2023-11-14T22:13:20+01",
        "2023-11-14T22:13:20+0100",
        "2023-11-14T22:13:20+24:00",
        "2023-11-14T22:13:20+01:60",
        "2023-11-14T22:13:20Z ",
        "2023-11-14T22:13:20ZZ",
        " 2023-11-14T22:13:20Z",
        "2023-11-14  22:13:20Z",
        "2023-11-14_22:13:20Z",
        "20231114T221320Z",
        "2023-W46-2T22:13:20Z",
        "2023-318T22:13:20Z",
        "12023-11-14T22:13:20Z",
        "+2023-11-14T22:13:20Z",
        "-2023-11-14T22:13:20Z",
        "23-11-14T22:13:20Z",
        "2023-00-14T22:13:20Z",
        "2023-13-14T22:13:20Z",
        "2023-11-00T22:13:20Z",
        "2023-11-31T22:13:20Z",
        "2023-02-29T22:13:20Z",
        "1900-02-29T22:13:20Z",
        "2023-11-14T24:00:00Z",
        "2023-11-14T22:60:20Z",
        "2023-11-14T22:13:61Z",
        "2023-11-14T22:13:60Z",
        "2016-12-31T23:59:60+01:00",
        "2023-1-14T22:13:20Z",
        "now",
        "yesterday",
        "start",
        "Z",
        "T",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        int64_t ms = 4711;
        if (nrd_time_name_parse(names[i], &ms) != -EINVAL || ms != 4711)
            g_error("accepted: %s", names[i]);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/time-name/numbers", test_numbers);
    g_test_add_func("/time-name/times", test_times);
    g_test_add_func("/time-name/every-day", test_every_day);
    g_test_add_func("/time-name/refused", test_refused);
    return g_test_run();
}
