/* naradctl delete [MNT] TOPIC: deletes a topic with its records, after saying what will be lost. */
#include "ctl/cli.h"
#include "ctl/on_topic.h"
#include "ctl/verbs.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const NrdCliVerb verb = {
    .arguments = "[MNT] TOPIC",
    .summary = "Deletes a topic and every record in it. Asks on a terminal; elsewhere --yes is needed.",
    .details =
        "It is the topic of this moment that is deleted: should somebody delete it and make another one of that\n"
        "name meanwhile, that one stays.",
    .n_least = 1,
    .n_most = 2,
};

static void tell_loss(const char *topic, const char *dir)
{
    NrdTopicSums sums;
    int rc = nrd_tree_sums(dir, &sums);
    g_autofree char *size = nrd_cli_size(sums.size_bytes);
    if (rc < 0)
        printf("How much the topic %s holds could not be read in full: %s.\n", topic, g_strerror(-rc));
    else
        printf("The topic %s has %" PRIu64 " partition%s with %" PRIu64
               " record%s (%s), of which consumers have not settled "
               "%" PRIu64 ".\n",
               topic, sums.n_partitions, nrd_plural(sums.n_partitions), sums.n_records, nrd_plural(sums.n_records),
               size, sums.lag);
    nrd_tree_sums_clear(&sums);
}

/* Whether the person types the topic's name. */
static bool confirm(const char *topic, const char *dir)
{
    char line[512];
    tell_loss(topic, dir);
    fputs("All of it will be lost. Type the topic's name to delete it: ", stdout);
    if (!nrd_cli_flush() || !fgets(line, sizeof line, stdin))
        return false;
    return strcmp(g_strchomp(line), topic) == 0;
}

static int delete_topic(const char *dir, const char *id, char **ret_why)
{
    g_autofree char *path = g_strconcat(dir, "/ctl", NULL);
    g_autofree char *line = g_strconcat("delete ", id, NULL);
    g_autofree char *refusal = NULL;
    int rc = nrd_tree_command(dir, path, line, &refusal);
    if (rc < 0)
        *ret_why = g_strdup_printf("%s: \"%s\" failed: %s", path, line, refusal ? refusal : g_strerror(-rc));
    return rc;
}

/* A topic without a whole record has no id to delete it by: its state line says why. */
static char *why_it_has_no_id(const NrdTreePlace *place)
{
    g_autofree char *path = g_strconcat(place->dir, "/status", NULL);
    g_autofree char *status = NULL;
    g_autofree char *state = nrd_tree_read(path, &status) == 0 ? nrd_tree_state_line(status) : NULL;
    return g_strdup_printf("%s cannot be deleted: %s is %s", place->topic, place->topic,
                           state ? state : "out of service");
}

static int delete_it(const NrdTreePlace *place, void *user_data, char **ret_why)
{
    bool yes = *(gboolean *)user_data;
    g_autofree char *id = NULL;
    int rc = nrd_tree_xattr(place->dir, "incarnation", &id);
    if (rc < 0) {
        *ret_why = g_strdup_printf("the incarnation of %s cannot be read: %s", place->topic, g_strerror(-rc));
        return rc;
    }
    if (*id == '\0') {
        *ret_why = why_it_has_no_id(place);
        return -EIO;
    }
    if (place->partition) {
        *ret_why = g_strdup_printf("%s is a partition of %s, which is deleted as a whole or not at all",
                                   place->partition, place->topic);
        return -EINVAL;
    }
    if (!yes && !isatty(STDIN_FILENO)) {
        *ret_why = g_strdup_printf("%s was not deleted: there is no terminal to ask on; --yes deletes without asking",
                                   place->topic);
        return -ENOTTY;
    }
    if (!yes && !confirm(place->topic, place->dir)) {
        *ret_why = g_strdup_printf("%s was not deleted", place->topic);
        return -ECANCELED;
    }
    return delete_topic(place->dir, id, ret_why);
}

int nrd_verb_delete(int argc, char **argv)
{
    gboolean yes = FALSE;
    const GOptionEntry entries[] = {
        { "yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Delete without asking", NULL },
        G_OPTION_ENTRY_NULL,
    };
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    return nrd_on_topic(argc > 2 ? argv[1] : NULL, argv[argc - 1], delete_it, &yes);
}
