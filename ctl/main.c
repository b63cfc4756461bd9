/* naradctl VERB ...: looks after naradfs. Dispatches. */
#include "ctl/cli.h"
#include "ctl/verbs.h"
#include "engine/base/version.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments;
    const char *what;
} verbs[] = {
    { "check", nrd_verb_check, "DATA", "look for damage in a data directory that nobody serves" },
    { "dump", nrd_verb_dump, "SEGMENT", "print the frames and records of a segment file" },
    { "export", nrd_verb_export, "DATA TOPIC/pNNNNN FILE", "write a partition as a tar archive" },
    { "import", nrd_verb_import, "DATA TOPIC/pNNNNN FILE", "make an empty partition what was exported" },
    { "topics", nrd_verb_topics, "[MNT]", "one row a topic" },
    { "describe", nrd_verb_describe, "[MNT] TOPIC", "all about one topic" },
    { "config", nrd_verb_config, "[MNT] TOPIC [KEY=VALUE...]", "show or change a topic's settings" },
    { "ctl", nrd_verb_ctl, "[MNT] TOPIC[/pNNNNN] VERB...", "what a line to ctl does, and why not" },
    { "top", nrd_verb_top, "[MNT]", "what the topics do, again and again" },
    { "delete", nrd_verb_delete, "[MNT] TOPIC", "delete a topic with its records" },
    { "copy", nrd_verb_copy, "SOURCE TARGET", "copy a topic to another mount, or go on with it" },
    { "bench", nrd_verb_bench, "[MNT]", "measure the mount, and a plain file beside it" },
};

static void print_help(FILE *to)
{
    fputs("usage: naradctl VERB [OPTION...] ARGUMENT...\n\n", to);
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++) {
        g_autofree char *call = g_strdup_printf("%s %s", verbs[i].name, verbs[i].arguments);
        fprintf(to, "  %-36s %s\n", call, verbs[i].what);
    }
    fputs("\nMNT is a mount point, or a path in it; without it the mount of the working folder is meant, or the only "
          "one.\n"
          "TOPIC may be a path as well: MNT/topics/TOPIC. naradctl VERB --help says more; see also naradctl(1).\n",
          to);
}

int main(int argc, char **argv)
{
    setlocale(LC_ALL, "");
    if (argc < 2) {
        print_help(stderr);
        return NRD_EXIT_USAGE;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(verbs); i++) {
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return nrd_cli_flush() ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("naradctl %s\n", nrd_version);
        return nrd_cli_flush() ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
    }
    nrd_cli_say("there is no verb \"%s\"; naradctl --help lists them", argv[1]);
    return NRD_EXIT_USAGE;
}
