/* naradctl config [MNT] TOPIC [KEY=VALUE ...]: shows a topic's settings, or changes those that are named.
 *
 * A change is one write to the topic's `config`, so all of it is done or nothing, and the daemon decides. What was wrong
 * with it is worked out afterwards, from the same table of settings that the daemon has; what that does not tell the daemon does,
 * in the topic's status. */
#include "ctl/cli.h"
#include "ctl/json.h"
#include "ctl/on_topic.h"
#include "ctl/verbs.h"
#include "engine/meta/topic_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOST_ARGUMENTS 1000

static const NrdCliVerb verb = {
    .arguments = "[MNT] TOPIC [KEY=VALUE...]",
    .summary =
        "Shows the settings of a topic, with their defaults and what is allowed, or changes those that are named:\n"
        "all of them, or none when one is refused.",
    .details = "naradctl config orders linger_ms=20 codec=zstd",
    .n_least = 1,
    .n_most = MOST_ARGUMENTS,
};

/* No name of a topic has an equals sign in it, and a path that begins like a setting can be written as ./path. */
static bool is_setting(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz_");
    return n > 0 && word[n] == '=';
}

/* ---- showing ---- */

static void put_row(NrdJson *json, const NrdTopicConfig *defaults, const char *key, const char *value)
{
    g_autofree char *initial = nrd_topic_config_get(defaults, key);
    g_autofree char *allowed = nrd_topic_config_allowed(key);
    if (json) {
        nrd_json_word(json, key, value);
        return;
    }
    printf("%-22s %-14s %-14s %s\n", key, value, initial ? initial : "?", allowed ? allowed : "?");
}

static int show(const char *topic, const char *dir, bool as_json, char **ret_why)
{
    g_autofree char *path = g_strconcat(dir, "/config", NULL);
    g_autofree char *text = NULL;
    NrdTopicConfig defaults;
    int rc = nrd_tree_read(path, &text);
    if (rc < 0) {
        *ret_why = g_strdup_printf("%s cannot be read: %s", path, g_strerror(-rc));
        return rc;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    NrdJson *json = as_json ? nrd_json_new() : NULL;
    nrd_topic_config_defaults(&defaults);
    if (json) {
        nrd_json_object(json, NULL);
        nrd_json_string(json, "topic", topic);
        nrd_json_object(json, "settings");
    } else {
        printf("%-22s %-14s %-14s %s\n", "setting", "value", "default", "allowed");
    }
    for (guint i = 0; lines[i]; i++) {
        char *equals = strchr(lines[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        put_row(json, &defaults, lines[i], equals + 1);
    }
    if (json) {
        nrd_json_object_end(json);
        nrd_json_object_end(json);
    }
    nrd_json_free(json);
    return 0;
}

/* ---- changing ---- */

/* Why the daemon may have refused lines, as far as settings and their values tell (g_free). NULL: they do not. */
static char *explain(const char *dir, const char *lines, int error)
{
    g_autofree char *path = g_strconcat(dir, "/config", NULL);
    g_autofree char *text = NULL;
    char *why = NULL;
    NrdTopicConfig config, before;
    nrd_topic_config_defaults(&config);
    if (error == -EBUSY)
        return g_strdup("fanout_delay_ms stays as it is while the topic is a child of another one; detach it first");
    if (error != -EINVAL || nrd_tree_read(path, &text) < 0 ||
        nrd_topic_config_apply(&config, text, strlen(text), NULL) < 0)
        return NULL;
    before = config;
    if (nrd_topic_config_apply(&config, lines, strlen(lines), &why) < 0)
        return why;
    if (config.partitions < before.partitions)
        return g_strdup_printf("partitions can only grow, from %" G_GINT64_FORMAT " up", before.partitions);
    if (config.retention_ms != before.retention_ms)
        return g_strdup(
            "retention_ms has to be an hour more than the delay of each child; the topic's status names the "
            "child");
    return NULL;
}

/* What the daemon says of it, or the error. */
static char *quote_daemon(const char *dir, int error, int64_t begun_ms)
{
    g_autofree char *refusal = nrd_tree_refusal(dir, error, begun_ms);
    return refusal ? g_steal_pointer(&refusal)
                   : g_strdup_printf("%s; nothing was changed",
                                     error == -EINVAL ? "the topic's status says why" : g_strerror(-error));
}

static int change(const char *dir, char **settings, char **ret_why)
{
    g_autofree char *path = g_strconcat(dir, "/config", NULL);
    g_autofree char *joined = g_strjoinv("\n", settings);
    g_autofree char *lines = g_strconcat(joined, "\n", NULL);
    int64_t begun_ms = g_get_real_time() / 1000;
    int rc = nrd_tree_write(path, lines);
    if (rc < 0) {
        g_autofree char *why = explain(dir, lines, rc);
        *ret_why = why ? g_strdup_printf("%s; nothing was changed", why) : quote_daemon(dir, rc, begun_ms);
    }
    return rc;
}

typedef struct Wish {
    char **settings; /* to be changed, in this order */
    bool json;
} Wish;

static int do_it(const NrdTreePlace *place, void *user_data, char **ret_why)
{
    const Wish *wish = user_data;
    int rc = wish->settings[0] ? change(place->dir, wish->settings, ret_why) : 0;
    if (rc == 0 && (wish->json || !wish->settings[0]))
        rc = show(place->topic, place->dir, wish->json, ret_why);
    return rc;
}

int nrd_verb_config(int argc, char **argv)
{
    bool json = false;
    if (!nrd_cli_parse_json(&verb, "One JSON object: the settings, as they are in the end", &argc, &argv, &json))
        return NRD_EXIT_USAGE;
    int n_names = 0;
    while (1 + n_names < argc && !is_setting(argv[1 + n_names]))
        n_names++;
    for (int i = 1 + n_names; i < argc; i++) {
        if (is_setting(argv[i]) && !strchr(argv[i], '\n'))
            continue;
        nrd_cli_say("\"%s\" is not KEY=VALUE", argv[i]);
        return NRD_EXIT_USAGE;
    }
    if (n_names != 1 && n_names != 2) {
        nrd_cli_say("%s; usage: naradctl config [OPTION...] %s",
                    n_names == 0 ? "no topic is named" : "a setting is written KEY=VALUE", verb.arguments);
        return NRD_EXIT_USAGE;
    }
    const char *given = n_names == 2 ? argv[1] : NULL;
    Wish wish = { argv + 1 + n_names, json };
    int status = nrd_on_topic(given, argv[n_names], do_it, &wish);
    return status != NRD_EXIT_GOOD || nrd_cli_flush() ? status : NRD_EXIT_FAILED;
}
