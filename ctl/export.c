/* naradctl export DATA TOPIC/pNNNNN FILE|-: a partition as a tar archive.
 *
 * The partition is read twice: to check every frame and to know sizes and checksums, which the manifest at the head of
 * the archive says, and then to be written. A file is read back whole and compared before it gets its name; to a pipe,
 * what was written is compared with the manifest. */
#include "ctl/cli.h"
#include "ctl/measure.h"
#include "ctl/place.h"
#include "ctl/tarball.h"
#include "ctl/unpack.h"
#include "ctl/verbs.h"
#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)256 * 1024)

static const NrdCliVerb verb = {
    .arguments = "DATA TOPIC/pNNNNN FILE",
    .summary = "Writes a partition of the data directory DATA, which no daemon may serve meanwhile, as a tar archive:\n"
               "its segments up to the committed end, high watermark, frontier, and a manifest with checksums.\n"
               "FILE may be - for standard output; an existing FILE is not replaced. Every frame is checked first.",
    .n_least = 3,
    .n_most = 3,
};

/* ---- the archive's content ---- */

static int changed(const NrdManifestFile *file, char **ret_why)
{
    *ret_why = g_strdup_printf("%s has changed meanwhile, or the disk does not read the same twice", file->name);
    return -EIO;
}

static int write_segment(NrdTarball *tar, const NrdPlaceInData *place, const NrdManifestFile *file, char **ret_why)
{
    g_autofree char *path = g_strconcat(place->dir, "/", file->name, NULL);
    g_autofree uint8_t *chunk = g_malloc(CHUNK_BYTES);
    uint64_t pos = 0;
    uint32_t crc = 0;
    int fd = nrd_io->open(place->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    int rc = fd < 0 ? fd : nrd_tarball_write_entry(tar, file->name, file->size_bytes, file->mtime_ms, ret_why);
    while (rc == 0 && pos < file->size_bytes) {
        size_t n = 0;
        rc = nrd_io_pread_full(fd, chunk, (size_t)MIN((uint64_t)CHUNK_BYTES, file->size_bytes - pos), (int64_t)pos, &n);
        if (rc == 0 && n == 0)
            rc = changed(file, ret_why);
        if (rc == 0)
            rc = nrd_tarball_write_bytes(tar, chunk, n, ret_why);
        crc = nrd_crc32c(crc, chunk, n);
        pos += n;
    }
    nrd_io_close(&fd);
    if (rc == 0 && crc != file->crc)
        rc = changed(file, ret_why);
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup_printf("%s cannot be read: %s", path, g_strerror(-rc));
    return rc;
}

static int write_bytes(NrdTarball *tar, const char *name, const void *bytes, size_t size, int64_t mtime_ms,
                       char **ret_why)
{
    int rc = nrd_tarball_write_entry(tar, name, size, mtime_ms, ret_why);
    return rc < 0 ? rc : nrd_tarball_write_bytes(tar, bytes, size, ret_why);
}

static int write_files(NrdTarball *tar, const NrdPlaceInData *place, const NrdManifest *manifest, const GArray *made,
                       char **ret_why)
{
    int rc = 0;
    guint n_logs = manifest->files->len - made->len;
    for (guint i = 0; rc == 0 && i < n_logs; i++)
        rc = write_segment(tar, place, &g_array_index(manifest->files, NrdManifestFile, i), ret_why);
    for (guint i = 0; rc == 0 && i < made->len; i++) {
        const NrdMadeFile *file = &g_array_index(made, NrdMadeFile, i);
        gsize size;
        const void *bytes = g_bytes_get_data(file->bytes, &size);
        rc = write_bytes(tar, file->name, bytes, size, 0, ret_why);
    }
    return rc;
}

static int write_archive(int fd, const NrdPlaceInData *place, const NrdManifest *manifest, const GArray *made,
                         char **ret_why)
{
    NrdTarball *tar = NULL;
    GString *text = nrd_manifest_encode(manifest);
    *ret_why = NULL;
    int rc = nrd_tarball_write_open(fd, &tar, ret_why);
    if (rc == 0)
        rc = write_bytes(tar, NRD_MANIFEST_NAME, text->str, text->len, 0, ret_why);
    if (rc == 0)
        rc = write_files(tar, place, manifest, made, ret_why);
    if (rc == 0)
        rc = nrd_tarball_write_end(tar, ret_why);
    nrd_tarball_free(tar);
    g_string_free(text, TRUE);
    return rc;
}

/* ---- where it goes ---- */

/* Reads it back from the disk. */
static int verify(int fd, const NrdManifest *manifest, char **ret_why)
{
    NrdManifest *found = NULL;
    (void)!nrd_io->drop_cache(fd); /* only a better proof */
    int rc = lseek(fd, 0, SEEK_SET) < 0 ? -errno : nrd_unpack(fd, -1, NULL, &found, ret_why);
    if (rc == 0 && !nrd_manifest_same_content(manifest, found)) {
        *ret_why = g_strdup("what was written does not read back the same");
        rc = -EIO;
    }
    nrd_manifest_free(found);
    return rc;
}

/* Under a name of its own until it is whole, verified and durable. A crash leaves that name behind at most. */
static int write_file(const char *path, const NrdPlaceInData *place, const NrdManifest *manifest, const GArray *made,
                      char **ret_why)
{
    g_autofree char *dir = g_path_get_dirname(path);
    g_autofree char *name = g_path_get_basename(path);
    g_autofree char *part = g_strdup_printf("%s.%ld.part", name, (long)getpid());
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : 0;
    bool created = fd >= 0;
    *ret_why = NULL;
    if (rc == 0)
        rc = write_archive(fd, place, manifest, made, ret_why);
    if (rc == 0)
        rc = nrd_io->fsync(fd);
    if (rc == 0)
        rc = verify(fd, manifest, ret_why);
    if (rc == 0)
        rc = nrd_io->rename(dir_fd, part, dir_fd, name, false);
    bool named = rc == 0 && created;
    if (rc == 0)
        rc = nrd_io->fsync(dir_fd);
    if (created && !named)
        (void)!nrd_io->unlink(dir_fd, part, false);
    nrd_io_close(&fd);
    nrd_io_close(&dir_fd);
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup(rc == -EEXIST ? "it exists; it was not replaced" : g_strerror(-rc));
    return rc;
}

static int export(const NrdPlaceInData *place, const char *path, bool quiet)
{
    NrdManifest *manifest = nrd_manifest_new();
    GArray *made = g_array_new(FALSE, FALSE, sizeof(NrdMadeFile));
    g_autofree char *why = NULL;
    bool to_stdout = strcmp(path, "-") == 0;
    manifest->topic = g_strdup(place->record->name);
    manifest->incarnation = g_strdup(place->record->id);
    manifest->partition = place->number;
    int rc = -ENOENT;
    if (place->missing)
        why = g_strdup_printf("%s is missing: put the folder back from a backup; its next use makes it anew, empty",
                              place->dir);
    else
        rc = nrd_measure(place->root_fd, place->dir, manifest, made, &why);
    if (rc < 0) {
        nrd_cli_say("%s", why);
    } else {
        rc = to_stdout ? write_archive(STDOUT_FILENO, place, manifest, made, &why)
                       : write_file(path, place, manifest, made, &why);
        if (rc < 0)
            nrd_cli_say("%s: %s", to_stdout ? "standard output" : path, why);
    }
    if (rc == 0 && !to_stdout && !quiet) {
        g_autofree char *what = nrd_manifest_in_words(manifest);
        printf("%s/p%05u: %s, written to %s and read back\n", manifest->topic, place->number, what, path);
    }
    nrd_made_files_free(made);
    nrd_manifest_free(manifest);
    return rc;
}

static bool check_file(const char *path)
{
    if (strcmp(path, "-") != 0 || !isatty(STDOUT_FILENO))
        return true;
    nrd_cli_say("standard output is a terminal; name a file, or pipe it somewhere");
    return false;
}

int nrd_verb_export(int argc, char **argv)
{
    return nrd_place_verb(&verb, argc, argv, check_file, export);
}
