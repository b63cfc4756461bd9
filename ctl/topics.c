/* naradctl topics [MNT]: one row a topic. */
#include "ctl/cli.h"
#include "ctl/json.h"
#include "ctl/tree.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const NrdCliVerb verb = {
    .arguments = "[MNT]",
    .summary = "Prints a row for each topic of the naradfs mounted at MNT.",
    .details = "records   that are retained\n"
               "lag       of these, what consumers have not settled\n"
               "in flight leased to consumers at this moment",
    .n_least = 0,
    .n_most = 1,
};

static void put_text(const char *name, const NrdTopicSums *sums, int width)
{
    g_autofree char *size = nrd_cli_size(sums->size_bytes);
    printf("%-*s %10" PRIu64 " %12" PRIu64 " %12" PRIu64 " %10" PRIu64 " %11s  ", width, name, sums->n_partitions,
           sums->n_records, sums->lag, sums->in_flight, size);
    nrd_cli_print_plain(sums->state);
    putchar('\n');
}

static void put_json(NrdJson *json, const char *name, const NrdTopicSums *sums)
{
    nrd_json_object(json, NULL);
    nrd_json_string(json, "topic", name);
    nrd_json_number(json, "partitions", sums->n_partitions);
    nrd_json_number(json, "records", sums->n_records);
    nrd_json_number(json, "lag", sums->lag);
    nrd_json_number(json, "in_flight", sums->in_flight);
    nrd_json_number(json, "size_bytes", sums->size_bytes);
    nrd_json_string(json, "state", sums->state);
    nrd_json_object_end(json);
}

/* What could not be read is told, and the others are shown; false then. A topic that is deleted meanwhile has no row. */
static bool put_rows(const char *mnt, const GPtrArray *names, NrdJson *json)
{
    bool whole = true;
    int width = 5;
    for (guint i = 0; i < names->len; i++)
        width = MAX(width, (int)strlen(names->pdata[i]));
    if (!json)
        printf("%-*s partitions      records          lag  in flight        size  state\n", width, "topic");
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *dir = g_strdup_printf("%s/topics/%s", mnt, (const char *)names->pdata[i]);
        NrdTopicSums sums;
        int rc = nrd_tree_sums(dir, &sums);
        bool gone = rc < 0 && nrd_tree_is_gone(dir);
        if (rc < 0 && !gone) {
            nrd_cli_say("%s could not be read in full: %s", dir, g_strerror(-rc));
            whole = false;
        }
        if (json && !gone)
            put_json(json, names->pdata[i], &sums);
        else if (!gone)
            put_text(names->pdata[i], &sums, width);
        nrd_tree_sums_clear(&sums);
    }
    return whole;
}

int nrd_verb_topics(int argc, char **argv)
{
    bool json = false;
    g_autofree char *mnt = NULL;
    g_autofree char *why = NULL;
    g_autoptr(GPtrArray) names = NULL;
    if (!nrd_cli_parse_json(&verb, "A JSON object a line", &argc, &argv, &json))
        return NRD_EXIT_USAGE;
    if (nrd_tree_find(argc > 1 ? argv[1] : NULL, &mnt, &why) < 0) {
        nrd_cli_say("%s", why);
        return NRD_EXIT_FAILED;
    }
    int rc = nrd_tree_topics(mnt, &names);
    if (rc < 0) {
        nrd_cli_say("the topics of %s cannot be listed: %s", mnt, g_strerror(-rc));
        return NRD_EXIT_FAILED;
    }
    NrdJson *writer = json ? nrd_json_new() : NULL;
    bool whole = put_rows(mnt, names, writer);
    nrd_json_free(writer);
    return nrd_cli_flush() && whole ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
