/* A name in by-time/: a time as the C library counts it.
 * Input: the name, up to its first NUL. */
#include "fuzz.h"

#include "fs/time_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool all_digits(const char *name)
{
    return name[0] != '\0' && strspn(name, "0123456789") == strlen(name);
}

/* The fraction in milliseconds, rounded up; *name behind it. */
static int64_t take_fraction(const char **name)
{
    int64_t ms = 0, weight = 100;
    bool finer = false;
    if (**name != '.')
        return 0;
    for ((*name)++; g_ascii_isdigit(**name); (*name)++, weight /= 10) {
        ms += (**name - '0') * weight;
        finer |= weight == 0 && **name != '0';
    }
    return ms + finer;
}

/* A name that was accepted. */
static int64_t count(const char *name)
{
    struct tm tm = { 0 };
    int n = 0, hours = 0, minutes = 0;
    FUZZ_CHECK(sscanf(name, "%4d-%2d-%2d%*c%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                      &tm.tm_min, &tm.tm_sec, &n) == 6);
    FUZZ_CHECK(n == 19 && strchr("Tt ", name[10]) != NULL);
    FUZZ_CHECK(tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday >= 1 && tm.tm_mday <= 31);
    name += n;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    int day = tm.tm_mday;
    int64_t ms = take_fraction(&name);
    int64_t sign = *name == '-' ? -1 : 1;
    if (*name == '+' || *name == '-')
        FUZZ_CHECK(sscanf(name + 1, "%2d:%2d", &hours, &minutes) == 2 && strlen(name) == 6);
    else
        FUZZ_CHECK(g_ascii_strcasecmp(name, "Z") == 0);
    int second = tm.tm_sec;
    tm.tm_sec = 0;
    int64_t seconds = timegm(&tm);
    FUZZ_CHECK(tm.tm_mday == day); /* there is such a day */
    return (seconds + second - sign * (hours * 60 + minutes) * 60) * 1000 + ms;
}

/* Whether RFC 3339 takes it, leap seconds apart. */
static bool is_time(const char *name)
{
    static GRegex *form;
    struct tm tm = { 0 };
    int hours = 0, minutes = 0;
    if (!form)
        form = g_regex_new("^\\d{4}-\\d\\d-\\d\\d[Tt ]\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?([Zz]|[+-]\\d\\d:\\d\\d)$",
                           G_REGEX_RAW | G_REGEX_DOLLAR_ENDONLY, 0, NULL);
    if (strlen(name) < 20 || name[4] != '-' || !g_regex_match(form, name, 0, NULL))
        return false;
    (void)sscanf(name, "%4d-%2d-%2d%*c%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                 &tm.tm_sec);
    (void)sscanf(name + strlen(name) - 5, "%2d:%2d", &hours, &minutes);
    if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 ||
        tm.tm_sec > 59)
        return false;
    int day = tm.tm_mday;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    (void)timegm(&tm);
    return tm.tm_mday == day && (g_ascii_toupper(name[strlen(name) - 1]) == 'Z' || (hours < 24 && minutes < 60));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *name = g_strndup((const char *)data, size);
    int64_t ms = 0;
    guint64 number;
    int rc = nrd_time_name_parse(name, &ms);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    if (all_digits(name)) {
        bool fits = g_ascii_string_to_unsigned(name, 10, 0, INT64_MAX, &number, NULL);
        bool plain = name[0] != '0' || name[1] == '\0';
        FUZZ_CHECK((rc == 0) == (fits && plain) && (rc < 0 || ms == (int64_t)number));
    } else if (rc == 0) {
        FUZZ_CHECK(count(name) == ms);
    } else {
        FUZZ_CHECK(!is_time(name));
    }
    return 0;
}
