/* naradctl describe [MNT] TOPIC: all that the mount says about one topic. */
#include "ctl/cli.h"
#include "ctl/json.h"
#include "ctl/on_topic.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const NrdCliVerb verb = {
    .arguments = "[MNT] TOPIC",
    .summary = "Prints a topic's settings, its partitions with their attributes, its parent and its children.",
    .n_least = 1,
    .n_most = 2,
};

/* Of a partition; as the mount names them. */
static const char *const attributes[] = { "oldest_offset", "hwm",         "next_offset", "frontier",   "lag",
                                          "in_flight",     "acked_ahead", "segments",    "size_bytes", NULL };

typedef struct Describe {
    const char *topic;
    const char *dir;
    NrdJson *json; /* NULL: text */
    bool out;      /* of service, as its status says: what cannot be read then is not there */
    int error;     /* of the first part that could not be read; 0 */
} Describe;

/* Keeps the failure for the exit status. */
static void note(Describe *d, int rc)
{
    if (rc < 0 && d->error == 0 && !d->out)
        d->error = rc;
}

static void put(const Describe *d, const char *key, const char *value)
{
    if (d->json) {
        nrd_json_word(d->json, key, value);
        return;
    }
    printf("%-22s ", key);
    nrd_cli_print_plain(value);
    putchar('\n');
}

static void put_settings(Describe *d)
{
    g_autofree char *path = g_strconcat(d->dir, "/config", NULL);
    g_autofree char *text = NULL;
    int rc = nrd_tree_read(path, &text);
    note(d, rc);
    if (d->json)
        nrd_json_object(d->json, "settings");
    if (rc < 0 && !d->json)
        printf("settings cannot be read: %s\n", g_strerror(-rc));
    g_auto(GStrv) lines = g_strsplit(rc < 0 ? "" : text, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        char *equals = strchr(lines[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        put(d, lines[i], equals + 1);
    }
    if (d->json)
        nrd_json_object_end(d->json);
}

/* When the topic was made, as its status says (g_free); NULL: that is not known. */
static char *created(const char *status)
{
    char *line = nrd_tree_line(status, "created");
    if (line && !g_ascii_isdigit(*line))
        g_clear_pointer(&line, g_free);
    return line;
}

/* The state in words (g_free); *ret_out: it is out of service. */
static char *partition_state(Describe *d, const char *dir, bool *ret_out)
{
    g_autofree char *path = g_strconcat(dir, "/status", NULL);
    g_autofree char *text = NULL;
    int rc = nrd_tree_read(path, &text);
    char *state = rc < 0 ? g_strdup_printf("not readable: %s", g_strerror(-rc)) : nrd_tree_state_line(text);
    note(d, rc);
    *ret_out = rc == 0 && state && g_str_has_prefix(state, "out of service");
    return state ? state : g_strdup("unknown");
}

static void put_partition(Describe *d, unsigned number)
{
    bool out;
    g_autofree char *dir = g_strdup_printf("%s/p%05u", d->dir, number);
    g_autofree char *state = partition_state(d, dir, &out);
    if (d->json) {
        nrd_json_object(d->json, NULL);
        nrd_json_number(d->json, "partition", number);
    } else {
        printf("p%05u   ", number);
    }
    for (size_t i = 0; attributes[i]; i++) {
        g_autofree char *value = NULL;
        int rc = nrd_tree_xattr(dir, attributes[i], &value);
        note(d, out ? 0 : rc);
        if (d->json && rc < 0)
            nrd_json_null(d->json, attributes[i]);
        else if (d->json)
            nrd_json_word(d->json, attributes[i], value);
        else
            printf(" %13s", rc < 0 ? "?" : value);
    }
    if (d->json) {
        nrd_json_string(d->json, "state", state);
        nrd_json_object_end(d->json);
        return;
    }
    fputs("  ", stdout);
    nrd_cli_print_plain(state);
    putchar('\n');
}

static void put_partitions(Describe *d)
{
    uint64_t n = 0;
    int rc = nrd_tree_number(d->dir, "partitions", &n);
    note(d, rc);
    if (rc < 0)
        n = 0;
    if (d->json) {
        nrd_json_array(d->json, "partitions");
    } else {
        fputs("\npartition", stdout);
        for (size_t i = 0; attributes[i]; i++)
            printf(" %13s", attributes[i]);
        puts("  state");
    }
    for (unsigned i = 0; i < n; i++)
        put_partition(d, i);
    if (d->json)
        nrd_json_array_end(d->json);
}

/* ---- the whole ---- */

static void put_parent(const Describe *d, const char *status)
{
    g_autofree char *parent = nrd_tree_line(status, "parent"); /* and how far behind it is */
    if (!parent)
        return;
    parent[strcspn(parent, ",")] = '\0';
    if (d->json)
        nrd_json_string(d->json, "parent", parent);
    else
        put(d, "parent", parent);
}

static void put_children(Describe *d)
{
    g_autofree char *dir = g_strconcat(d->dir, "/children", NULL);
    g_autoptr(GPtrArray) children = NULL;
    int rc = nrd_tree_list(dir, &children);
    note(d, rc);
    if (rc < 0)
        return;
    if (d->json)
        nrd_json_array(d->json, "children");
    for (guint i = 0; i < children->len; i++) {
        if (d->json)
            nrd_json_string(d->json, NULL, children->pdata[i]);
        else
            put(d, "child", children->pdata[i]);
    }
    if (d->json)
        nrd_json_array_end(d->json);
}

/* What the topic's status page says (g_free), "" when it cannot be read. */
static char *read_status(Describe *d)
{
    g_autofree char *path = g_strconcat(d->dir, "/status", NULL);
    char *text = NULL;
    int rc = nrd_tree_read(path, &text);
    g_autofree char *state = rc < 0 ? NULL : nrd_tree_state_line(text);
    d->out = state && g_str_has_prefix(state, "out of service");
    note(d, rc);
    return rc < 0 ? g_strdup("") : text;
}

static void describe(Describe *d)
{
    g_autofree char *id = NULL;
    g_autofree char *status = read_status(d);
    g_autofree char *when = created(status);
    NrdTopicSums sums;
    note(d, nrd_tree_sums(d->dir, &sums));
    int rc = nrd_tree_xattr(d->dir, "incarnation", &id);
    note(d, rc);
    if (rc < 0)
        id = g_strdup("unknown");
    if (d->json) {
        nrd_json_object(d->json, NULL);
        nrd_json_string(d->json, "topic", d->topic);
        nrd_json_string(d->json, "state", sums.state);
        nrd_json_string(d->json, "incarnation", id);
        if (when)
            nrd_json_string(d->json, "created", when);
        else
            nrd_json_null(d->json, "created");
    } else {
        put(d, "topic", d->topic);
        put(d, "state", sums.state);
        put(d, "incarnation", id);
        put(d, "created", when ? when : "not known");
    }
    put_parent(d, status);
    put_children(d);
    if (!d->json)
        putchar('\n');
    put_settings(d);
    put_partitions(d);
    if (d->json)
        nrd_json_object_end(d->json);
    nrd_tree_sums_clear(&sums);
}

static int describe_it(const NrdTreePlace *place, void *user_data, char **ret_why)
{
    bool json = *(bool *)user_data;
    Describe d = { .topic = place->topic, .dir = place->dir, .json = json ? nrd_json_new() : NULL };
    describe(&d);
    nrd_json_free(d.json);
    if (d.error < 0)
        *ret_why = g_strdup_printf("%s could not be read in full: %s", place->dir, g_strerror(-d.error));
    return d.error;
}

int nrd_verb_describe(int argc, char **argv)
{
    bool json = false;
    if (!nrd_cli_parse_json(&verb, "One JSON object", &argc, &argv, &json))
        return NRD_EXIT_USAGE;
    int status = nrd_on_topic(argc > 2 ? argv[1] : NULL, argv[argc - 1], describe_it, &json);
    return nrd_cli_flush() ? status : NRD_EXIT_FAILED;
}
