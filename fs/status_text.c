/* See status_text.h. */
#include "fs/status_text.h"

void nrd_append_durability(GString *text, const char *word)
{
    g_string_append_printf(text, "%s: an acknowledged record is with %s, %s", word,
                           g_str_has_prefix(word, "quorum") ? "most of its servers" : "its one server",
                           g_str_has_suffix(word, "+fsync") ? "which sync first, as who mounted this has said"
                           : g_str_has_suffix(word, "+memory")
                               ? "in memory, and on no disk: it ends with them"
                               : "perhaps only in memory: a power cut of them may take it");
}

#include <time.h>

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define DAY_MS (24 * HOUR_MS)

void nrd_append_time(GString *text, int64_t ms)
{
    char buf[32];
    struct tm tm;
    time_t seconds = ms / 1000;
    if (ms == 0 || !gmtime_r(&seconds, &tm) || strftime(buf, sizeof buf, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0) {
        g_string_append(text, "never");
        return;
    }
    g_string_append(text, buf);
}

void nrd_append_size(GString *text, uint64_t bytes)
{
    char *human = g_format_size_full(bytes, G_FORMAT_SIZE_IEC_UNITS);
    char **parts = g_strsplit(human, "\u00a0", 2); /* glib's space does not break; awk and grep want a plain one */
    char *plain = g_strjoinv(" ", parts);
    g_string_append(text, plain);
    g_free(plain);
    g_strfreev(parts);
    g_free(human);
}

void nrd_append_span(GString *text, int64_t ms)
{
    if (ms < MINUTE_MS)
        g_string_append_printf(text, "%" G_GINT64_FORMAT " s", MAX(ms, 0) / SECOND_MS);
    else if (ms < HOUR_MS)
        g_string_append_printf(text, "%" G_GINT64_FORMAT " min", ms / MINUTE_MS);
    else if (ms < DAY_MS)
        g_string_append_printf(text, "%" G_GINT64_FORMAT " h %" G_GINT64_FORMAT " min", ms / HOUR_MS,
                               ms % HOUR_MS / MINUTE_MS);
    else
        g_string_append_printf(text, "%" G_GINT64_FORMAT " day%s %" G_GINT64_FORMAT " h", ms / DAY_MS,
                               ms / DAY_MS == 1 ? "" : "s", ms % DAY_MS / HOUR_MS);
}

void nrd_append_rate(GString *text, uint64_t n, int64_t ms)
{
    double rate = (double)n / ((double)MAX(ms, SECOND_MS) / (double)SECOND_MS);
    g_string_append_printf(text, rate < 10 ? "%.1f a second" : "%.0f a second", rate);
}
