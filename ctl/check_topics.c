/* Topic records, topic folders and their markers. */
#include "ctl/check.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/meta/incarnation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SUFFIX ".topic"
#define RECORD_MAX_BYTES ((size_t)1 << 20)
#define MARKER_MAX_BYTES ((size_t)4096)
#define MADE_WITHIN_S 10 /* the folders of a new topic are made at once, on a slow disk too */

/* ---- meta/ ---- */

static void check_record(NrdCheck *check, const char *path, const char *topic)
{
    g_autoptr(GBytes) bytes = NULL;
    g_autofree char *why = NULL;
    NrdTopicRecord *record = NULL;
    gsize size = 0;
    check->n_topics++;
    int rc = nrd_io_read_file(check->root_fd, path, RECORD_MAX_BYTES, &bytes);
    if (rc < 0) {
        check->record_damaged = true;
        nrd_check_unreadable(check, path, NRD_OUT_TOPIC, rc);
        return;
    }
    const void *data = g_bytes_get_data(bytes, &size);
    if (nrd_topic_record_decode(topic, data ? data : "", size, &record, &why) < 0) {
        check->record_damaged = true;
        nrd_check_error(check, path, "topic", "%s; the topic is out of service: restore the file from a backup", why);
        return;
    }
    g_hash_table_insert(check->records, g_strdup(topic), record);
}

void nrd_check_records(NrdCheck *check)
{
    g_autoptr(GPtrArray) names = nrd_check_list(check, "meta", "missing; the next start makes it");
    if (!names)
        return;
    for (guint i = 0; i < names->len && nrd_check_going(check); i++) {
        const char *name = names->pdata[i];
        g_autofree char *path = g_strconcat("meta/", name, NULL);
        g_autofree char *topic = g_str_has_suffix(name, SUFFIX) ? g_strndup(name, strlen(name) - strlen(SUFFIX)) : NULL;
        if (topic && nrd_topic_name_check(topic) == 0)
            check_record(check, path, topic);
        else
            nrd_check_stray(check, "meta", name);
    }
}

/* ---- topics/ ---- */

/* Whether the marker is that of another topic, which has a record: then the folder is kept, under another name. */
static bool tell_exchanged(NrdCheck *check, const char *path, const NrdTopicRecord *record, GBytes *marker)
{
    gsize size = 0;
    const char *data = marker ? g_bytes_get_data(marker, &size) : NULL;
    g_autofree char *text = g_strndup(data ? data : "", size);
    const char *other = nrd_check_topic_of(check, g_strchomp(text));
    if (!other || strcmp(other, record->name) == 0)
        return false;
    nrd_check_error(check, path, "incarnation",
                    "it is marked as the folder of the topic %s: the next start sets it aside as %s.stale-%s, deletes "
                    "nothing of it, and serves %s anew, empty; give the folders their names before that",
                    other, record->name, text, record->name);
    return true;
}

/* Whose folder it is. */
static void check_marker(NrdCheck *check, const char *dir, const NrdTopicRecord *record)
{
    g_autofree char *path = g_strconcat(dir, "/incarnation", NULL);
    g_autofree char *why = NULL;
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(check->root_fd, path, MARKER_MAX_BYTES, &bytes);
    if (rc < 0 && rc != -ENOENT) {
        nrd_check_unreadable(check, path, NRD_OUT_TOPIC, rc);
        return;
    }
    if (tell_exchanged(check, path, record, bytes))
        return;
    if (nrd_incarnation_verify(check->root_fd, record->name, record->id, &why) < 0)
        nrd_check_error(check, path, "incarnation", "%s", why ? why : "it cannot be judged");
    else if (rc == -ENOENT || g_bytes_get_size(bytes) < NRD_INCARNATION_DIGITS)
        nrd_check_note(check, path, "incarnation", "missing or cut short; the next start writes %s", record->id);
}

static bool parse_partition(const char *name, uint64_t *ret_number)
{
    return strlen(name) == 6 && name[0] == 'p' && g_ascii_string_to_unsigned(name + 1, 10, 0, 99999, ret_number, NULL);
}

/* A folder that holds nothing is that of a partition which nobody has used, and nothing has ever changed in it. */
static void check_emptied(NrdCheck *check, const char *path, const NrdTopicRecord *record)
{
    g_autoptr(GPtrArray) names = NULL;
    struct stat st;
    if (nrd_io_list_dir(check->root_fd, path, &names) < 0 || names->len > 0 ||
        nrd_io_stat(check->root_fd, path, &st) < 0)
        return; /* what cannot be read is told elsewhere */
    if (record->created_ms > 0 && (int64_t)st.st_mtime - record->created_ms / 1000 > MADE_WITHIN_S)
        nrd_check_note(check, path, "folder",
                       "empty, and changed after the topic was made: a partition that was added and never used, or one "
                       "whose files somebody removed");
}

/* A crash while the topic was being made leaves folders out; whoever removes one later changes the topic's folder. */
static void tell_missing_folders(NrdCheck *check, const char *dir, const NrdTopicRecord *record, uint64_t n)
{
    struct stat st;
    bool late = record->created_ms > 0 && nrd_io_stat(check->root_fd, dir, &st) == 0 &&
                (int64_t)st.st_mtime - record->created_ms / 1000 > MADE_WITHIN_S;
    nrd_check_tell(check, late ? NRD_ERROR : NRD_NOTE, &(NrdSpot){ .path = dir, .kind = "folder" },
                   "%" G_GUINT64_FORMAT " of %" G_GINT64_FORMAT
                   " partition folders %s missing; the next use makes %s anew, empty%s",
                   n, record->config.partitions, n == 1 ? "is" : "are", n == 1 ? "it" : "them",
                   late ? ": if records were in there they are lost" : "");
}

/* A copy of an old record leaves that; what is in there is whole, and comes back when the topic has so many partitions. */
static void tell_not_served(NrdCheck *check, const char *path, uint64_t n_expected, uint64_t n_records)
{
    nrd_check_tell(check, n_records > 0 ? NRD_ERROR : NRD_NOTE, &(NrdSpot){ .path = path, .kind = "folder" },
                   "the topic has %" G_GUINT64_FORMAT " partition%s: this one, with %" G_GUINT64_FORMAT
                   " record%s, is not served",
                   n_expected, nrd_plural(n_expected), n_records, nrd_plural(n_records));
}

/* The note that a daemon leaves of a folder that was gone: engine/anew.c. */
static bool tell_made_anew(NrdCheck *check, const char *path, const char *name)
{
    uint64_t number;
    g_autofree char *partition =
        g_str_has_suffix(name, ".lost") ? g_strndup(name, strlen(name) - strlen(".lost")) : NULL;
    if (!partition || !parse_partition(partition, &number))
        return false;
    nrd_check_error(
        check, path, "folder",
        "the folder of %s was missing when it was used: made anew, empty; `reopen` in the partition's ctl says "
        "that this is known",
        partition);
    return true;
}

/* record may be NULL: it is damaged, and how many partitions there should be is not known. */
static void check_folder(NrdCheck *check, const char *dir, const NrdTopicRecord *record)
{
    g_autoptr(GPtrArray) names = NULL;
    uint64_t n_expected = record ? (uint64_t)record->config.partitions : UINT64_MAX, n_found = 0;
    int rc = nrd_io_list_dir(check->root_fd, dir, &names);
    if (rc < 0) {
        nrd_check_unreadable(check, dir, NRD_OUT_TOPIC, rc);
        return;
    }
    for (guint i = 0; i < names->len && nrd_check_going(check); i++) {
        const char *name = names->pdata[i];
        g_autofree char *path = g_strconcat(dir, "/", name, NULL);
        uint64_t number;
        if (strcmp(name, "incarnation") == 0)
            continue;
        if (!parse_partition(name, &number)) {
            if (!tell_made_anew(check, path, name))
                nrd_check_stray(check, dir, name);
            continue;
        }
        uint64_t n_before = check->n_records;
        nrd_check_partition(check, path);
        if (number >= n_expected)
            tell_not_served(check, path, n_expected, check->n_records - n_before);
        else
            n_found++;
        if (record && number < n_expected) {
            nrd_check_missing_cursors(check, path, record);
            check_emptied(check, path, record);
        }
    }
    if (record && n_found < n_expected && nrd_check_going(check))
        tell_missing_folders(check, dir, record, n_expected - n_found);
}

/* What stands in the folder, which is told unless quietly: a removal that was cut short has left any part of a quarantined
 * one. */
static NrdOrphanHolds look_into(NrdCheck *check, const char *dir, const NrdTopicRecord *record, bool quietly)
{
    const NrdCheck before = *check;
    check->quiet = quietly;
    check_folder(check, dir, record);
    NrdOrphanHolds holds = { .n_records = check->n_records - before.n_records,
                             .damaged = check->n_errors > before.n_errors && check->n_segments > before.n_segments };
    if (quietly) {
        const NrdCheck after = *check;
        *check = before;
        check->progress = after.progress;
        check->exit = after.exit;
    }
    return holds;
}

static void check_entry(NrdCheck *check, const char *name, GHashTable *seen)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    g_autofree char *meta = g_strconcat("meta/", name, SUFFIX, NULL);
    const NrdTopicRecord *record = g_hash_table_lookup(check->records, name);
    bool stale = strstr(name, ".stale-") != NULL;
    struct stat st;
    int rc = nrd_io_stat(check->root_fd, dir, &st);
    bool is_dir = rc == 0 && S_ISDIR(st.st_mode);
    bool has_record = record || nrd_io_stat(check->root_fd, meta, &st) != -ENOENT;
    if (rc == 0 && ((!stale && nrd_topic_name_check(name) < 0) || (!is_dir && !has_record))) {
        nrd_check_stray(check, "topics", name);
        return;
    }
    g_hash_table_add(seen, g_strdup(name));
    if (rc < 0 || !is_dir) {
        nrd_check_unreadable(check, dir, NRD_OUT_TOPIC, rc < 0 ? rc : -ENOTDIR);
        return;
    }
    if (record)
        check_marker(check, dir, record);
    NrdOrphanHolds holds = look_into(check, dir, record, stale);
    if (!has_record && !check->refused && nrd_check_going(check))
        nrd_check_orphan(check, name, &holds);
}

static void check_missing(NrdCheck *check, GHashTable *seen)
{
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, check->records);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        g_autofree char *dir = g_strconcat("topics/", name, NULL);
        if (!g_hash_table_contains(seen, name))
            nrd_check_error(check, dir, "folder",
                            "missing; a start makes it anew, empty: if the topic has held records they are lost");
    }
}

void nrd_check_topics(NrdCheck *check)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GPtrArray) names = nrd_check_list(check, "topics", "missing; the next start makes it");
    if (!names)
        return;
    for (guint i = 0; i < names->len && nrd_check_going(check); i++)
        check_entry(check, names->pdata[i], seen);
    if (nrd_check_going(check))
        check_missing(check, seen);
}
