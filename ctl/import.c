/* naradctl import DATA TOPIC/pNNNNN FILE|-: an exported partition becomes that partition.
 *
 * The archive is unpacked beside the partition's folder, synced, and checked: against its manifest, and frame by frame.
 * Then the empty partition's few files go, and the new folder takes the name of the old one. A crash before that rename
 * leaves the partition as empty as it was, and a folder that nobody reads and the next import removes; after it, and
 * after the sync of the folder above, the import. */
#include "ctl/cli.h"
#include "ctl/measure.h"
#include "ctl/place.h"
#include "ctl/unpack.h"
#include "ctl/verbs.h"
#include "engine/base/diag.h"
#include "engine/ingress/wal_segment.h"
#include "engine/io/io.h"
#include "engine/log/segments/hwm.h"
#include "engine/log/segments/segment_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const NrdCliVerb verb = {
    .arguments = "DATA TOPIC/pNNNNN FILE",
    .summary =
        "Makes the partition what naradctl export has written to FILE (- for standard input): records, offsets,\n"
        "keys, times, high watermark, frontier. The topic exists, the partition has never held a record (or its\n"
        "folder is missing: the archive takes its place), and no daemon serves the data directory DATA. All or\n"
        "nothing: a damaged archive changes nothing.",
    .details =
        "Retention counts from the records' own times: what is older than the topic's retention_ms is deleted soon\n"
        "after the next start.",
    .n_least = 3,
    .n_most = 3,
};

/* ---- whether it may be ---- */

static int refuse(char **ret_why, char *why)
{
    *ret_why = why;
    return -ENOTEMPTY;
}

/* Records for the partition that wait in the ingress WAL would come between. */
static int check_ingress(const NrdPlaceInData *place, char **ret_why)
{
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_io_list_dir(place->root_fd, NRD_WAL_DIR, &names);
    for (guint i = 0; rc == 0 && i < names->len; i++) {
        if (g_str_has_suffix(names->pdata[i], ".wal"))
            rc = refuse(ret_why,
                        g_strdup("records wait in the ingress WAL; start the daemon and stop it cleanly first"));
    }
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup_printf(NRD_WAL_DIR " cannot be listed: %s", g_strerror(-rc));
    return rc;
}

/* No record was ever in it, as far as its folder tells, which may be gone with what it held: then the archive is what comes
 * back. The only segment there may be is the first one, empty. */
static int check_empty(const NrdPlaceInData *place, char **ret_why)
{
    g_autoptr(GArray) files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    g_autofree char *path = g_strconcat(place->dir, "/hwm", NULL);
    NrdSegmentOdd odd = { .name = NULL };
    NrdHwm hwm = { .clean = false };
    if (place->missing)
        return 0;
    int rc = nrd_segment_files_list(place->root_fd, place->dir, files, &odd);
    if (rc == 0)
        rc = nrd_hwm_read(place->root_fd, path, &hwm);
    bool used = odd.name || (hwm.clean && hwm.value > 0);
    for (guint i = 0; i < files->len; i++) {
        const NrdSegmentFile *file = &g_array_index(files, NrdSegmentFile, i);
        used = used || file->base > 0 || file->size_bytes > 0;
    }
    g_free(odd.name);
    if (rc < 0)
        *ret_why = g_strdup_printf("%s cannot be looked at: %s", place->dir, g_strerror(-rc));
    else if (used)
        rc = refuse(
            ret_why,
            g_strdup_printf("%s holds records, or has held some; import into a partition that never did", place->dir));
    return rc;
}

/* ---- doing it ---- */

/* What was unpacked says of itself what the manifest says. */
static int verify(const NrdPlaceInData *place, const char *stage, const NrdManifest *manifest, char **ret_why)
{
    NrdManifest *found = nrd_manifest_new();
    GArray *made = g_array_new(FALSE, FALSE, sizeof(NrdMadeFile));
    found->topic = g_strdup(place->record->name);
    found->partition = place->number;
    int rc = nrd_measure(place->root_fd, stage, found, made, ret_why);
    if (rc == 0 && !nrd_manifest_same_content(manifest, found)) {
        *ret_why = g_strdup("its files are not what its manifest says");
        rc = -EBADMSG;
    }
    nrd_made_files_free(made);
    nrd_manifest_free(found);
    return rc;
}

static int empty(const NrdPlaceInData *place)
{
    g_autoptr(GPtrArray) names = NULL;
    int dir_fd = -1;
    int rc = nrd_io_list_dir(place->root_fd, place->dir, &names);
    if (rc == 0)
        rc = nrd_io_open_dir(place->root_fd, place->dir, &dir_fd);
    for (guint i = 0; rc == 0 && i < names->len; i++)
        rc = nrd_io->unlink(dir_fd, names->pdata[i], false);
    nrd_io_close(&dir_fd);
    return rc;
}

/* Empties the old folder and puts the new one in its place. */
static int swap(const NrdPlaceInData *place, const char *stage, char **ret_why)
{
    struct stat st;
    int rc = place->missing ? 0 : empty(place);
    if (rc == 0)
        rc = nrd_io_rename(place->root_fd, stage, place->dir, true);
    if (rc < 0 && nrd_io_stat(place->root_fd, stage, &st) == -ENOENT)
        *ret_why = g_strdup_printf("%s is in place, but its folder cannot be synced: %s; a power cut may take it back",
                                   place->dir, g_strerror(-rc));
    else if (rc < 0)
        *ret_why = g_strdup_printf("%s cannot be put in place: %s; nothing was imported", place->dir, g_strerror(-rc));
    return rc;
}

static int unpack(const NrdPlaceInData *place, const char *stage, int fd, NrdManifest **ret_manifest, char **ret_why)
{
    int rc = nrd_io_remove_tree(place->root_fd, stage); /* of an import that was cut short */
    if (rc == 0)
        rc = nrd_io_make_dir(place->root_fd, stage);
    if (rc < 0) {
        *ret_why = g_strdup_printf("%s cannot be made: %s", stage, g_strerror(-rc));
        return rc;
    }
    rc = nrd_unpack(fd, place->root_fd, stage, ret_manifest, ret_why);
    if (rc == 0)
        rc = verify(place, stage, *ret_manifest, ret_why);
    if (rc == 0) {
        rc = nrd_io_sync_dir(place->root_fd, stage);
        if (rc < 0)
            *ret_why = g_strdup_printf("%s cannot be synced: %s", stage, g_strerror(-rc));
    }
    return rc;
}

static void append(char **text, const char *more)
{
    char *longer = g_strconcat(*text, more, NULL);
    g_free(*text);
    *text = longer;
}

static int import(const NrdPlaceInData *place, int fd, NrdManifest **ret_manifest, char **ret_why)
{
    g_autofree char *stage = g_strdup_printf("%s/.import-p%05u", place->topic_dir, place->number);
    *ret_why = NULL;
    int rc = check_ingress(place, ret_why);
    if (rc == 0)
        rc = check_empty(place, ret_why);
    if (rc < 0)
        return rc;
    rc = unpack(place, stage, fd, ret_manifest, ret_why);
    if (rc < 0)
        append(ret_why, "; nothing was imported");
    else
        rc = swap(place, stage, ret_why);
    if (rc < 0)
        (void)!nrd_io_remove_tree(place->root_fd, stage); /* what stays is removed by the next one */
    return rc;
}

static int run(const NrdPlaceInData *place, const char *path, bool quiet)
{
    bool from_stdin = strcmp(path, "-") == 0;
    NrdManifest *manifest = NULL;
    g_autofree char *why = NULL;
    int fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        nrd_cli_say("%s cannot be opened: %s", path, g_strerror(errno));
        return -EIO;
    }
    int rc = import(place, fd, &manifest, &why);
    if (!from_stdin)
        nrd_io_close(&fd);
    if (rc < 0)
        nrd_cli_say("%s: %s", from_stdin ? "standard input" : path, why);
    if (rc == 0 && !quiet) {
        g_autofree char *what = nrd_manifest_in_words(manifest);
        printf("%s/p%05u: %s, imported\n", place->record->name, place->number, what);
    }
    nrd_manifest_free(manifest);
    return rc;
}

int nrd_verb_import(int argc, char **argv)
{
    return nrd_place_verb(&verb, argc, argv, NULL, run);
}
