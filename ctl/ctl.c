/* naradctl ctl [MNT] TOPIC[/pNNNNN] VERB [ARGUMENT]: one line to `ctl`, and why it was refused.
 *
 * A write that fails brings an errno; the reason is what the topic's status shows as refused last. */
#include "ctl/cli.h"
#include "ctl/on_topic.h"
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

static int do_line(const NrdTreePlace *place, void *user_data, char **ret_why)
{
    char **words = user_data;
    if (is_of_topic(words[0]) == (place->partition == NULL))
        return write_line(place, words, ret_why);
    *ret_why = place->partition ? g_strdup_printf("%s is a verb of a topic: %s, not its %s", words[0], place->topic,
                                                  place->partition)
                                : g_strdup_printf("%s is a verb of a partition: %s/p00000", words[0], place->topic);
    return -EINVAL;
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
    return nrd_on_topic(at == 3 ? argv[1] : NULL, argv[at - 1], do_line, argv + at);
}
