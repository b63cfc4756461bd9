/* naradctl bench [MNT]: how fast this mount is on this machine, and beside a plain file on the same disk.
 *
 * Everything happens in a topic of its own, which is deleted at the end, also after a failure or an interruption. */
#include "ctl/cli.h"
#include "ctl/json.h"
#include "ctl/load.h"
#include "ctl/tree.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_WRITERS 8
#define BULK_MAX_BYTES ((uint64_t)256 << 20)

static const NrdCliVerb verb = {
    .arguments = "[MNT]",
    .summary =
        "Measures the naradfs at MNT, in a topic of its own that it deletes: produce with an fsync for each record\n"
        "from 1 and from 8 writers, bulk produce with one fsync, reading log, reading drain. With --beside the\n"
        "same for plain files (append and fdatasync), and the ratio.",
    .details =
        "Records have 100 bytes. At most 256 MiB are written in bulk. A slow disk under DIR that is not the one\n"
        "under DATA makes the ratios meaningless.",
    .n_least = 0,
    .n_most = 1,
};

typedef struct Bench {
    double seconds;
    char *topic;  /* its folder in the mount */
    char *part;   /* and that of its partition */
    char *beside; /* a folder for plain files; NULL: none */
    NrdJson *json;
} Bench;

/* ---- what is measured ---- */

static int sync_load(const Bench *b, bool plain, unsigned n_writers, NrdLoad *ret_load)
{
    char *paths[N_WRITERS];
    for (unsigned i = 0; i < n_writers; i++)
        paths[i] = plain ? g_strdup_printf("%s/%u", b->beside, i) : g_strconcat(b->part, "/produce", NULL);
    int rc = nrd_load_sync(paths, n_writers, b->seconds, plain, ret_load);
    for (unsigned i = 0; i < n_writers; i++)
        g_free(paths[i]);
    return rc;
}

static int sync_one(const Bench *b, bool plain, NrdLoad *ret_load)
{
    return sync_load(b, plain, 1, ret_load);
}

static int sync_many(const Bench *b, bool plain, NrdLoad *ret_load)
{
    return sync_load(b, plain, N_WRITERS, ret_load);
}

static int bulk(const Bench *b, bool plain, NrdLoad *ret_load)
{
    g_autofree char *path = plain ? g_strconcat(b->beside, "/bulk", NULL) : g_strconcat(b->part, "/produce", NULL);
    return nrd_load_bulk(path, b->seconds, BULK_MAX_BYTES, plain, ret_load);
}

static int read_log(const Bench *b, bool plain, NrdLoad *ret_load)
{
    g_autofree char *path = plain ? g_strconcat(b->beside, "/bulk", NULL) : g_strconcat(b->part, "/log", NULL);
    return nrd_load_read(path, ret_load);
}

static int drain(const Bench *b, bool plain, NrdLoad *ret_load)
{
    g_autofree char *path = plain ? g_strconcat(b->beside, "/bulk", NULL) : g_strconcat(b->part, "/drain", NULL);
    return nrd_load_read(path, ret_load);
}

static const struct {
    const char *key;
    const char *name;
    const char *unit;
    double per; /* counts in a unit */
    int (*run)(const Bench *b, bool plain, NrdLoad *ret_load);
} measures[] = {
    { "fsync_1", "produce, fsync each, 1 writer", "records/s", 1, sync_one },
    { "fsync_8", "produce, fsync each, 8 writers", "records/s", 1, sync_many },
    { "bulk", "produce, one fsync at the end", "MB/s", 1e6, bulk },
    { "log", "read log", "MB/s", 1e6, read_log },
    { "drain", "read drain", "MB/s", 1e6, drain },
};

/* ---- the table ---- */

static void put_row(const Bench *b, size_t i, double rate, double plain)
{
    if (b->json) {
        nrd_json_object(b->json, NULL);
        nrd_json_string(b->json, "measure", measures[i].key);
        nrd_json_string(b->json, "unit", measures[i].unit);
        nrd_json_real(b->json, "naradfs", rate);
        if (b->beside) {
            nrd_json_real(b->json, "plain", plain);
            nrd_json_real(b->json, "ratio", plain > 0 ? rate / plain : 0);
        }
        nrd_json_object_end(b->json);
    } else {
        printf("%-32s %12.1f %-9s", measures[i].name, rate, measures[i].unit);
        if (b->beside)
            printf("  plain %12.1f  ratio %6.2f", plain, plain > 0 ? rate / plain : 0);
        putchar('\n');
    }
    fflush(stdout);
}

static int measure(const Bench *b, size_t i)
{
    NrdLoad load = { .seconds = 1 }, plain = { .seconds = 1 };
    int rc = measures[i].run(b, false, &load);
    if (rc < 0) {
        nrd_cli_say("%s: %s", measures[i].name, g_strerror(-rc));
        return rc;
    }
    rc = b->beside && !nrd_cli_interrupted() ? measures[i].run(b, true, &plain) : 0;
    if (rc < 0)
        nrd_cli_say("%s, plain file in %s: %s", measures[i].name, b->beside, g_strerror(-rc));
    else if (!nrd_cli_interrupted())
        put_row(b, i, (double)load.count / measures[i].per / load.seconds,
                (double)plain.count / measures[i].per / plain.seconds);
    return nrd_cli_interrupted() && rc == 0 ? -EINTR : rc;
}

/* ---- what it happens in ---- */

static int make_topic(Bench *b, const char *mnt)
{
    g_autofree char *name = g_strdup_printf("naradctl-bench-%ld-%08x", (long)getpid(), g_random_int());
    g_autofree char *topic = g_strdup_printf("%s/topics/%s", mnt, name);
    if (mkdir(topic, 0700) < 0) {
        int rc = -errno;
        nrd_cli_say("the topic %s cannot be made at %s: %s", name, mnt, g_strerror(-rc));
        return rc;
    }
    b->topic = g_steal_pointer(&topic);
    b->part = g_strconcat(b->topic, "/p00000", NULL);
    return 0;
}

static int remove_topic(const Bench *b)
{
    g_autofree char *id = NULL;
    g_autofree char *path = g_strconcat(b->topic, "/ctl", NULL);
    int rc = nrd_tree_xattr(b->topic, "incarnation", &id);
    g_autofree char *line = g_strdup_printf("delete %s\n", id ? id : "");
    if (rc == 0)
        rc = nrd_tree_write(path, line);
    if (rc < 0)
        nrd_cli_say("%s could not be deleted: %s; naradctl delete does it", b->topic, g_strerror(-rc));
    return rc;
}

static int make_beside(Bench *b, const char *dir)
{
    g_autofree char *path = g_strdup_printf("%s/naradctl-bench-%ld-%08x", dir, (long)getpid(), g_random_int());
    if (mkdir(path, 0700) < 0) {
        int rc = -errno;
        nrd_cli_say("no folder can be made in %s: %s", dir, g_strerror(-rc));
        return rc;
    }
    b->beside = g_steal_pointer(&path);
    return 0;
}

static void remove_beside(const Bench *b)
{
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_tree_list(b->beside, &names);
    for (guint i = 0; rc == 0 && i < names->len; i++) {
        g_autofree char *path = g_strconcat(b->beside, "/", (const char *)names->pdata[i], NULL);
        rc = unlink(path) < 0 ? -errno : 0;
    }
    if (rc == 0 && rmdir(b->beside) < 0)
        rc = -errno;
    if (rc < 0)
        nrd_cli_say("%s could not be removed: %s", b->beside, g_strerror(-rc));
}

static int run(Bench *b, const char *mnt, const char *beside)
{
    int rc = beside ? make_beside(b, beside) : 0;
    if (rc == 0)
        rc = make_topic(b, mnt);
    for (size_t i = 0; rc == 0 && i < G_N_ELEMENTS(measures); i++)
        rc = measure(b, i);
    if (b->topic) {
        int remove_rc = remove_topic(b);
        rc = rc == 0 ? remove_rc : rc;
    }
    if (b->beside)
        remove_beside(b);
    g_free(b->topic);
    g_free(b->part);
    g_free(b->beside);
    return rc;
}

int nrd_verb_bench(int argc, char **argv)
{
    Bench b = { .seconds = 3 };
    gboolean json = FALSE;
    g_autofree char *beside = NULL;
    const GOptionEntry entries[] = {
        { "beside", 'b', 0, G_OPTION_ARG_FILENAME, &beside, "Measure plain files in DIR too", "DIR" },
        { "seconds", 's', 0, G_OPTION_ARG_DOUBLE, &b.seconds, "How long each measurement takes (3)", "S" },
        { "json", 'j', 0, G_OPTION_ARG_NONE, &json, "A JSON object a line", NULL },
        G_OPTION_ENTRY_NULL,
    };
    g_autofree char *mnt = NULL;
    g_autofree char *why = NULL;
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    if (!(b.seconds > 0 && b.seconds <= 3600)) {
        nrd_cli_say("--seconds takes a number up to 3600");
        return NRD_EXIT_USAGE;
    }
    if (nrd_tree_find(argc > 1 ? argv[1] : NULL, &mnt, &why) < 0) {
        nrd_cli_say("%s", why);
        return NRD_EXIT_FAILED;
    }
    nrd_cli_catch_interrupts();
    b.json = json ? nrd_json_new() : NULL;
    int rc = run(&b, mnt, beside);
    nrd_json_free(b.json);
    return nrd_cli_flush() && rc == 0 ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
