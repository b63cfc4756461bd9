/* naradctl ctl [MNT] TOPIC[/pNNNNN] VERB [ARGUMENT]: one line to `ctl`, and why it was refused.
 *
 * A write that fails brings an errno; the reason is what the topic's status shows as refused last. */
#include "ctl/cli.h"
#include "ctl/tree.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <string.h>

static const NrdCliVerb verb = {
    .arguments = "[MNT] TOPIC[/pNNNNN] VERB [ARGUMENT]",
    .summary = "Does what a line written to a `ctl` does, and says why when it is refused.",
    .details = "of a partition:  reopen, roll, trim OFFSET, seek OFFSET|start|end\n"
               "of a topic:      partitions N, delete INCARNATION (naradctl delete asks first)\n"
               "naradctl ctl orders/p00000 seek start",
    .n_least = 2,
    .n_most = 4,
};

static bool is_verb(const char *word)
{
    static const char *const known[] = { "reopen", "roll", "trim", "seek", "partitions", "delete", NULL };
    return g_strv_contains(known, word);
}

static bool is_of_topic(const char *word)
{
    return strcmp(word, "partitions") == 0 || strcmp(word, "delete") == 0;
}

static int write_line(const NrdTreePlace *place, char **words, char **ret_why)
{
    g_autofree char *line = g_strjoinv(" ", words);
    g_autofree char *path = place->partition ? g_strdup_printf("%s/%s/ctl", place->dir, place->partition)
                                             : g_strdup_printf("%s/ctl", place->dir);
    int rc = nrd_tree_command(place->dir, path, line, ret_why);
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup_printf("%s: %s", path, g_strerror(-rc));
    return rc;
}

static int run(const char *given, const char *name, char **words)
{
    NrdTreePlace place = { .mnt = NULL };
    g_autofree char *why = NULL;
    int rc = nrd_tree_find_topic(given, name, &place, &why);
    if (rc == 0 && is_of_topic(words[0]) == (place.partition != NULL)) {
        rc = -EINVAL;
        why = place.partition
                  ? g_strdup_printf("%s is a verb of a topic: %s, not its %s", words[0], place.topic, place.partition)
                  : g_strdup_printf("%s is a verb of a partition: %s/p00000", words[0], place.topic);
    }
    if (rc == 0)
        rc = write_line(&place, words, &why);
    if (rc < 0)
        nrd_cli_say("%s", why);
    nrd_tree_place_clear(&place);
    return rc;
}

int nrd_verb_ctl(int argc, char **argv)
{
    const GOptionEntry entries[] = { G_OPTION_ENTRY_NULL };
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    int at = argc > 3 && is_verb(argv[3]) ? 3 : is_verb(argv[2]) ? 2 : 0; /* a topic may be called like a verb */
    if (at == 0 || argc > at + 2) {
        nrd_cli_say("usage: naradctl ctl %s; the verbs are reopen, roll, trim, seek, partitions and delete",
                    verb.arguments);
        return NRD_EXIT_USAGE;
    }
    return run(at == 3 ? argv[1] : NULL, argv[at - 1], argv + at) == 0 ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
