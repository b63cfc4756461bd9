/* See time_name.h. RFC 3339, section 5.6: date, `T` (or `t`, or a space, as `date --rfc-3339` writes it), time of day,
 * a fraction of any length, and a zone, `Z` or an offset, which may not be left out. Nothing else of ISO 8601. */
#include "fs/time_name.h"

#include "fs/lines.h"

#include <errno.h>
#include <string.h>

#define MS_PER_DAY INT64_C(86400000)

typedef struct Clock {
    int year, month, day, hour, minute, second;
    int64_t ms; /* of the fraction, rounded up: 0 to 1000 */
    int zone_minutes;
} Clock;

/* Takes exactly so many digits. */
static bool take_digits(const char **text, size_t n, int *ret_number)
{
    int number = 0;
    for (size_t i = 0; i < n; i++) {
        char c = (*text)[i];
        if (c < '0' || c > '9')
            return false;
        number = number * 10 + (c - '0');
    }
    *text += n;
    *ret_number = number;
    return true;
}

static bool take_char(const char **text, const char *any_of)
{
    if (**text == '\0' || !strchr(any_of, **text))
        return false;
    (*text)++;
    return true;
}

static bool take_fraction(const char **text, int64_t *ret_ms)
{
    static const int64_t weights[] = { 100, 10, 1 };
    int64_t ms = 0;
    bool finer = false;
    int digit;
    size_t n = 0;
    if (!take_char(text, "."))
        return true;
    for (; take_digits(text, 1, &digit); n++) {
        if (n < 3)
            ms += digit * weights[n];
        else
            finer |= digit != 0;
    }
    *ret_ms = ms + finer;
    return n > 0;
}

static bool take_zone(const char **text, int *ret_minutes)
{
    int hour, minute;
    bool west = **text == '-';
    if (take_char(text, "Zz"))
        return true;
    if (!take_char(text, "+-") || !take_digits(text, 2, &hour) || !take_char(text, ":") ||
        !take_digits(text, 2, &minute) || hour > 23 || minute > 59)
        return false;
    *ret_minutes = (hour * 60 + minute) * (west ? -1 : 1);
    return true;
}

static bool take_clock(const char *text, Clock *clock)
{
    return take_digits(&text, 4, &clock->year) && take_char(&text, "-") && take_digits(&text, 2, &clock->month) &&
           take_char(&text, "-") && take_digits(&text, 2, &clock->day) && take_char(&text, "Tt ") &&
           take_digits(&text, 2, &clock->hour) && take_char(&text, ":") && take_digits(&text, 2, &clock->minute) &&
           take_char(&text, ":") && take_digits(&text, 2, &clock->second) && take_fraction(&text, &clock->ms) &&
           take_zone(&text, &clock->zone_minutes) && *text == '\0';
}

static bool is_leap_year(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int days_in_month(int year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    return month == 2 && is_leap_year(year) ? 29 : days[month - 1];
}

/* Days since 1970-01-01; years are counted from March, so that the leap day is the last of its year. */
static int64_t days_since_epoch(int year, int month, int day)
{
    int64_t y = month > 2 ? year : year - 1;
    int64_t from_march = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5;
    y += 400; /* of 146097 days: nothing below is negative */
    return 365 * y + y / 4 - y / 100 + y / 400 + from_march + day - 1 - 719468 - 146097;
}

/* A leap second stands at the end of a day of UTC only. */
static bool in_range(const Clock *clock)
{
    if (clock->month < 1 || clock->month > 12 || clock->day < 1 || clock->hour > 23 || clock->minute > 59)
        return false;
    int utc_minute = (clock->hour * 60 + clock->minute - clock->zone_minutes + 1440) % 1440;
    return clock->day <= days_in_month(clock->year, clock->month) &&
           (clock->second < 60 || (clock->second == 60 && utc_minute == 1439));
}

int nrd_time_name_parse(const char *name, int64_t *ret_ms)
{
    Clock clock = { 0 };
    uint64_t number;
    if (nrd_number_parse(name, strlen(name), INT64_MAX, &number) == 0) {
        *ret_ms = (int64_t)number;
        return 0;
    }
    if (!take_clock(name, &clock) || !in_range(&clock))
        return -EINVAL;
    int64_t seconds = clock.hour * 3600 + (clock.minute - clock.zone_minutes) * 60 + clock.second;
    *ret_ms = days_since_epoch(clock.year, clock.month, clock.day) * MS_PER_DAY + seconds * 1000 + clock.ms;
    return 0;
}
