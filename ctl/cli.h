/* What the verbs share: options, sentences on standard error, interruption. One thread. */
#ifndef NRD_CTL_CLI_H
#define NRD_CTL_CLI_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of all verbs but check, which has those of fsck(8). */
enum { NRD_EXIT_GOOD = 0, NRD_EXIT_FAILED = 1, NRD_EXIT_USAGE = 2 };

/* How a verb is called; all static text. */
typedef struct NrdCliVerb {
    const char *arguments; /* "[OPTION...] DATA" is made of "DATA" */
    const char *summary;
    const char *details; /* may be NULL */
    int n_least;         /* arguments besides the options */
    int n_most;
} NrdCliVerb;

/* Takes the options out of *argc and *argv (argv[0] is the verb, argv[1] to argv[*argc - 1] are the arguments then).
 * False after a sentence on standard error: a usage error. --help prints and exits 0. */
bool nrd_cli_parse(const NrdCliVerb *verb, const GOptionEntry *entries, int *argc, char ***argv) NRD_MUST_CHECK;

/* The same for a verb whose only option is --json; what: what that prints, static. *ret_json is set. */
bool nrd_cli_parse_json(const NrdCliVerb *verb, const char *what, int *argc, char ***argv,
                        bool *ret_json) NRD_MUST_CHECK;

/* "naradctl VERB: <sentence>" and a newline on standard error, with nothing in it that could move a terminal's cursor. */
void nrd_cli_say(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* From now on SIGINT and SIGTERM do not end the process but make nrd_cli_interrupted true (poll
 * and sleeps end; reads and writes go on). */
void nrd_cli_catch_interrupts(void);
bool nrd_cli_interrupted(void);

/* Flushes standard output; false (after a sentence) when what was printed did not all arrive. */
bool nrd_cli_flush(void) NRD_MUST_CHECK;

/* "1.5 GiB", with a plain space (g_free). */
char *nrd_cli_size(uint64_t n_bytes);

/* "2026-01-31T12:00:00.123Z" (g_free); a number for a time that has no such form. */
char *nrd_cli_time(int64_t unix_ms);

/* Prints bytes on one line: UTF-8 as it is when all of it is valid, control characters, '"' and '\\' escaped as in C. */
void nrd_cli_print_escaped(const uint8_t *bytes, size_t size);

/* A name from the disk, with nothing in it that could move a terminal's cursor. */
void nrd_cli_print_plain(const char *text);

#endif
