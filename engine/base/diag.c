#include "engine/base/diag.h"

#include <errno.h>
#include <glib.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

static _Atomic int max_level = NRD_LEVEL_INFO;
static _Atomic bool to_syslog;
static _Atomic uint64_t counters[NRD_N_COUNTERS];

static const char *const level_names[] = {
    [NRD_LEVEL_ERROR] = "error", [NRD_LEVEL_WARNING] = "warning", [NRD_LEVEL_NOTICE] = "notice",
    [NRD_LEVEL_INFO] = "info",   [NRD_LEVEL_DEBUG] = "debug",
};

void nrd_diag_set_level(NrdLevel level)
{
    atomic_store(&max_level, (int)level);
}

int nrd_diag_parse_level(const char *text, NrdLevel *ret_level)
{
    for (int level = NRD_LEVEL_ERROR; level <= NRD_LEVEL_DEBUG; level++) {
        if (strcmp(text, level_names[level]) == 0) {
            *ret_level = (NrdLevel)level;
            return 0;
        }
    }
    return -EINVAL;
}

void nrd_diag_use_syslog(const char *ident)
{
    openlog(ident, LOG_PID | LOG_NDELAY, LOG_DAEMON);
    atomic_store(&to_syslog, true);
}

static void append_place(GString *line, NrdPlace place)
{
    if (place.topic)
        g_string_append_printf(line, " topic=%s", place.topic);
    if (place.partition != NRD_NO_PARTITION)
        g_string_append_printf(line, " partition=%05" G_GINT64_FORMAT, place.partition);
    if (place.offset != NRD_NO_OFFSET)
        g_string_append_printf(line, " offset=%" G_GINT64_FORMAT, place.offset);
}

/* One line is one event: what a name or a text brings along must not break it. */
static void flatten(GString *line)
{
    for (gsize i = 0; i < line->len; i++) {
        if ((unsigned char)line->str[i] < 0x20)
            line->str[i] = '?';
    }
}

void nrd_diag(NrdLevel level, NrdPlace place, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    g_autoptr(GString) line = g_string_new(NULL);
    va_list args;
    va_start(args, format);
    g_string_append_vprintf(line, format, args);
    va_end(args);
    append_place(line, place);
    flatten(line);

    if (atomic_load(&to_syslog)) {
        syslog((int)level, "%s", line->str);
        return;
    }
    /* sd-daemon(3): a journal on the other end of standard error reads "<n>" as the level. */
    if (getenv("JOURNAL_STREAM"))
        g_string_prepend(line, ((const char *[]){ "<3>", "<4>", "<5>", "<6>", "<7>" })[level - NRD_LEVEL_ERROR]);
    else
        g_string_prepend(line, ((const char *[]){ "naradfs: error: ", "naradfs: warning: ", "naradfs: ", "naradfs: ",
                                                  "naradfs: debug: " })[level - NRD_LEVEL_ERROR]);
    g_string_append_c(line, '\n');
    fwrite(line->str, 1, line->len, stderr);
}

char *nrd_quote(const char *text, size_t size)
{
    GString *quoted = g_string_new("\"");
    for (size_t i = 0; i < size && i < NRD_QUOTE_MAX; i++)
        g_string_append_c(quoted, g_ascii_isprint(text[i]) && text[i] != '"' ? text[i] : '?');
    g_string_append(quoted, size > NRD_QUOTE_MAX ? "...\"" : "\"");
    return g_string_free(quoted, FALSE);
}

void nrd_counter_add(NrdCounter counter, uint64_t n)
{
    g_assert(counter < NRD_N_COUNTERS);
    atomic_fetch_add_explicit(&counters[counter], n, memory_order_relaxed);
}

uint64_t nrd_counter_get(NrdCounter counter)
{
    g_assert(counter < NRD_N_COUNTERS);
    return atomic_load_explicit(&counters[counter], memory_order_relaxed);
}
