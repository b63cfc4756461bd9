/* See cli.h. */
#include "ctl/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_bool interrupted; /* of the signal handler, and of every thread */

_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may use it");

/* GOption leaves "--" in place when arguments stand before it, or what follows looks like an option. */
static void drop_separator(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        memmove(argv + i, argv + i + 1, sizeof(char *) * (size_t)(*argc - i));
        (*argc)--;
        return;
    }
}

bool nrd_cli_parse(const NrdCliVerb *verb, const GOptionEntry *entries, int *argc, char ***argv)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *name = g_strconcat("naradctl ", (*argv)[0], NULL);
    GOptionContext *context = g_option_context_new(verb->arguments);
    g_set_prgname(name);
    g_option_context_add_main_entries(context, entries, NULL);
    g_option_context_set_summary(context, verb->summary);
    g_option_context_set_description(context, verb->details);
    bool good = g_option_context_parse(context, argc, argv, &error);
    g_option_context_free(context);
    if (!good) {
        nrd_cli_say("%s; see %s --help", error->message, name);
        return false;
    }
    drop_separator(argc, *argv);
    if (*argc - 1 >= verb->n_least && *argc - 1 <= verb->n_most)
        return true;
    nrd_cli_say("%s; usage: %s [OPTION...] %s",
                *argc - 1 < verb->n_least ? "an argument is missing" : "too many arguments", name, verb->arguments);
    return false;
}

bool nrd_cli_parse_json(const NrdCliVerb *verb, const char *what, int *argc, char ***argv, bool *ret_json)
{
    gboolean json = FALSE;
    const GOptionEntry entries[] = {
        { "json", 'j', 0, G_OPTION_ARG_NONE, &json, what, NULL },
        G_OPTION_ENTRY_NULL,
    };
    bool good = nrd_cli_parse(verb, entries, argc, argv);
    *ret_json = json;
    return good;
}

static void put_plain(FILE *to, const char *text)
{
    for (const uint8_t *p = (const uint8_t *)text; *p; p++) {
        bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; /* U+0080 to U+009f: a terminal may obey them */
        fputc(*p < ' ' || *p == 0x7f || c1 ? '?' : *p, to);
        p += c1;
    }
}

void nrd_cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    fprintf(stderr, "%s: ", g_get_prgname() ? g_get_prgname() : "naradctl");
    put_plain(stderr, text);
    fputc('\n', stderr);
}

static void on_interrupt(int number)
{
    atomic_store(&interrupted, true);
}

void nrd_cli_catch_interrupts(void)
{
    struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool nrd_cli_interrupted(void)
{
    return atomic_load(&interrupted);
}

bool nrd_cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    nrd_cli_say("standard output cannot be written: %s", g_strerror(errno != 0 ? errno : EIO));
    return false;
}

char *nrd_cli_size(uint64_t n_bytes)
{
    g_autofree char *human = g_format_size_full(n_bytes, G_FORMAT_SIZE_IEC_UNITS);
    g_auto(GStrv) parts = g_strsplit(human, "\u00a0", 2); /* glib's space does not break */
    return g_strjoinv(" ", parts);
}

char *nrd_cli_time(int64_t unix_ms)
{
    char text[40];
    struct tm tm;
    int64_t ms = ((unix_ms % 1000) + 1000) % 1000;
    time_t seconds = (time_t)((unix_ms - ms) / 1000);
    if (!gmtime_r(&seconds, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return g_strdup_printf("%" G_GINT64_FORMAT " ms", unix_ms);
    return g_strdup_printf("%s.%03dZ", text, (int)ms);
}

static void print_byte(uint8_t byte, bool raw)
{
    if (byte == '\n')
        fputs("\\n", stdout);
    else if (byte == '\t')
        fputs("\\t", stdout);
    else if (byte == '"' || byte == '\\')
        printf("\\%c", byte);
    else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !raw))
        printf("\\x%02x", byte);
    else
        putchar(byte);
}

void nrd_cli_print_escaped(const uint8_t *bytes, size_t size)
{
    bool raw = g_utf8_validate_len((const char *)bytes, size, NULL);
    for (size_t i = 0; i < size; i++) {
        /* U+0080 to U+009f are control characters too */
        bool c1 = raw && bytes[i] == 0xc2 && bytes[i + 1] < 0xa0;
        print_byte(bytes[i], raw && !c1);
        if (c1)
            print_byte(bytes[++i], false);
    }
}

void nrd_cli_print_plain(const char *text)
{
    put_plain(stdout, text);
}
