/* naradctl check DATA: looks at every file of a data directory, offline, and changes nothing. */
#include "ctl/check.h"
#include "ctl/cli.h"
#include "ctl/quiet_io.h"
#include "ctl/verbs.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/meta/data_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const NrdCliVerb verb = {
    .arguments = "DATA",
    .summary =
        "Checks every file of the data directory DATA, which no daemon may serve meanwhile. Changes nothing.\n"
        "Prints a line for each finding, and what to do next. An error is damage, or what the next start makes worse;\n"
        "a note is what a crash leaves or a start repairs.",
    .details =
        "Exit status: the sum of 0 (clean), 4 (errors were found), 8 (the check could not be done, or not whole;\n"
        "also: a daemon serves DATA), 16 (usage), 32 (interrupted).",
    .n_least = 1,
    .n_most = 1,
};

/* ---- how much there is to read ---- */

static uint64_t size_below(int root_fd, const char *dir, int depth)
{
    g_autoptr(GPtrArray) names = NULL;
    uint64_t sum = 0;
    if (depth > 4 || nrd_cli_interrupted() || nrd_io_list_dir(root_fd, dir, &names) < 0)
        return 0;
    for (guint i = 0; i < names->len; i++) {
        const char *name = names->pdata[i];
        g_autofree char *path = g_strconcat(dir, "/", name, NULL);
        struct stat st;
        if (nrd_io_stat(root_fd, path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode))
            sum += size_below(root_fd, path, depth + 1);
        else if (S_ISREG(st.st_mode) && (g_str_has_suffix(name, ".log") || g_str_has_suffix(name, ".wal")))
            sum += (uint64_t)st.st_size;
    }
    return sum;
}

/* ---- the top of the tree ---- */

static void check_top(NrdCheck *check)
{
    static const char *const known[] = { "lock", "format", "meta", "topics", "ingress", "lost+found", NULL };
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_io_list_dir(check->root_fd, ".", &names);
    if (rc < 0) {
        nrd_check_unreadable(check, ".", NRD_OUT_DAEMON, rc);
        return;
    }
    for (guint i = 0; i < names->len; i++) {
        if (!g_strv_contains(known, names->pdata[i]))
            nrd_check_stray(check, "", names->pdata[i]);
    }
}

static void free_record(gpointer record)
{
    nrd_topic_record_free(record);
}

static void check_all(NrdCheck *check, const char *damage)
{
    check->refused = damage != NULL;
    if (damage)
        nrd_check_error(check, ".", "layout", "no daemon starts: %s", damage);
    if (check->progress.shown)
        check->progress.total_bytes =
            size_below(check->root_fd, "topics", 0) + size_below(check->root_fd, "ingress", 0);
    check->records = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_record);
    check_top(check);
    nrd_check_records(check);
    nrd_check_topics(check);
    nrd_check_ingress(check);
    g_hash_table_unref(check->records);
    nrd_progress_clear(&check->progress);
    if (nrd_cli_interrupted())
        check->exit |= NRD_CHECK_CANCELLED;
}

static void sum_up(NrdCheck *check, const char *data)
{
    if (!check->json) {
        printf("%s: %serrors %" PRIu64 ", notes %" PRIu64 "; topics %" PRIu64 ", partitions %" PRIu64
               ", segments %" PRIu64 ", frames %" PRIu64 ", records %" PRIu64 ", ingress entries %" PRIu64 "\n",
               data, nrd_cli_interrupted() ? "interrupted; so far " : "", check->n_errors, check->n_notes,
               check->n_topics, check->n_partitions, check->n_segments, check->n_frames, check->n_records,
               check->n_wal_entries);
        nrd_check_print_advice(check);
        return;
    }
    nrd_json_object(check->json, NULL);
    nrd_json_object(check->json, "summary");
    nrd_json_string(check->json, "data", data);
    nrd_json_number(check->json, "errors", check->n_errors);
    nrd_json_number(check->json, "notes", check->n_notes);
    nrd_json_number(check->json, "topics", check->n_topics);
    nrd_json_number(check->json, "partitions", check->n_partitions);
    nrd_json_number(check->json, "segments", check->n_segments);
    nrd_json_number(check->json, "frames", check->n_frames);
    nrd_json_number(check->json, "records", check->n_records);
    nrd_json_number(check->json, "ingress_entries", check->n_wal_entries);
    nrd_json_bool(check->json, "cancelled", nrd_cli_interrupted());
    nrd_json_number(check->json, "exit", (uint64_t)check->exit);
    nrd_check_print_advice(check);
    nrd_json_object_end(check->json);
    nrd_json_object_end(check->json);
}

static int run(NrdCheck *check, const char *data)
{
    NrdDataDir *dir = NULL;
    g_autofree char *damage = NULL;
    g_autofree char *why = NULL;
    nrd_progress_init(&check->progress, isatty(STDERR_FILENO) == 1);
    nrd_quiet_io_install(&check->progress);
    int rc = nrd_data_dir_inspect(data, &dir, &damage, &why);
    if (rc < 0) {
        nrd_cli_say("%s%s", why, rc == -EBUSY ? "; unmount it first" : "");
        return NRD_CHECK_FAILED;
    }
    nrd_cli_catch_interrupts();
    check->root_fd = nrd_data_dir_fd(dir);
    check_all(check, damage);
    sum_up(check, data);
    nrd_data_dir_close(dir);
    return check->exit | (nrd_cli_flush() ? 0 : NRD_CHECK_FAILED);
}

int nrd_verb_check(int argc, char **argv)
{
    bool json = false;
    NrdCheck check = { .root_fd = -1 };
    if (!nrd_cli_parse_json(&verb, "A JSON object a line: findings, then a summary", &argc, &argv, &json))
        return NRD_CHECK_USAGE;
    check.json = json ? nrd_json_new() : NULL;
    int status = run(&check, argv[1]);
    nrd_json_free(check.json);
    return status;
}
