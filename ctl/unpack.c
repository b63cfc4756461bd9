/* See unpack.h. */
#include "ctl/unpack.h"

#include "ctl/tarball.h"
#include "engine/base/crc32c.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 * 1024)

typedef struct Unpack {
    NrdTarball *tar;
    int root_fd;
    const char *dir; /* NULL: only checked */
    NrdManifest *manifest;
    char *why;
} Unpack;

static int bad(Unpack *u, char *why)
{
    g_free(u->why);
    u->why = why;
    return -EBADMSG;
}

static int read_manifest(Unpack *u)
{
    const char *name;
    uint64_t size;
    bool found;
    size_t got = 0, n = 1;
    int rc = nrd_tarball_read_entry(u->tar, &name, &size, &found, &u->why);
    if (rc < 0)
        return rc;
    if (!found || strcmp(name, NRD_MANIFEST_NAME) != 0 || size > NRD_MANIFEST_MAX_BYTES)
        return bad(u, g_strdup("it does not begin with the manifest of an exported partition"));
    g_autofree char *text = g_try_malloc((gsize)size + 1);
    if (!text)
        return -ENOMEM;
    while (rc == 0 && n > 0 && got < size) {
        rc = nrd_tarball_read_bytes(u->tar, text + got, (size_t)size - got, &n, &u->why);
        got += rc == 0 ? n : 0;
    }
    if (rc == 0 && (got != size || nrd_manifest_decode(text, got, &u->manifest) < 0))
        rc = bad(u, g_strdup("its manifest is damaged"));
    return rc;
}

static int create(Unpack *u, const char *name, int *ret_fd)
{
    g_autofree char *path = g_strconcat(u->dir, "/", name, NULL);
    int fd = nrd_io->open(u->root_fd, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* All of an entry, into fd unless that is negative. */
static int copy(Unpack *u, int fd, uint64_t size, uint32_t *ret_crc)
{
    g_autofree uint8_t *chunk = g_malloc(CHUNK_BYTES);
    uint64_t pos = 0;
    uint32_t crc = 0;
    size_t n = 1;
    int rc = 0;
    while (rc == 0 && pos < size && n > 0) {
        rc = nrd_tarball_read_bytes(u->tar, chunk, (size_t)MIN((uint64_t)CHUNK_BYTES, size - pos), &n, &u->why);
        if (rc == 0 && fd >= 0)
            rc = nrd_io_pwrite_full(fd, chunk, n, (int64_t)pos);
        if (rc == 0) {
            crc = nrd_crc32c(crc, chunk, n);
            pos += n;
        }
    }
    if (rc == 0 && pos < size)
        rc = bad(u, g_strdup("it ends in the middle of a file"));
    if (rc == 0)
        *ret_crc = crc;
    return rc;
}

static int unpack_file(Unpack *u, const NrdManifestFile *file)
{
    const char *name;
    uint64_t size;
    uint32_t crc = 0;
    bool found;
    int fd = -1;
    int rc = nrd_tarball_read_entry(u->tar, &name, &size, &found, &u->why);
    if (rc < 0)
        return rc;
    if (!found || strcmp(name, file->name) != 0 || size != file->size_bytes)
        return bad(u, g_strdup_printf("%s is missing, or of another size than its manifest says", file->name));
    if (u->dir)
        rc = create(u, file->name, &fd);
    if (rc == 0)
        rc = copy(u, fd, size, &crc);
    if (rc == 0 && crc != file->crc)
        rc = bad(u, g_strdup_printf("the checksum of %s does not match", file->name));
    if (rc == 0 && fd >= 0 && file->mtime_ms > 0)
        (void)!nrd_io->set_mtime(fd, file->mtime_ms); /* retention only asks when no record has a time */
    if (rc == 0 && fd >= 0)
        rc = nrd_io->fsync(fd);
    nrd_io_close(&fd);
    return rc;
}

static int unpack(Unpack *u)
{
    const char *name;
    uint64_t size;
    bool found = false;
    int rc = read_manifest(u);
    for (guint i = 0; rc == 0 && i < u->manifest->files->len; i++)
        rc = unpack_file(u, &g_array_index(u->manifest->files, NrdManifestFile, i));
    if (rc == 0)
        rc = nrd_tarball_read_entry(u->tar, &name, &size, &found, &u->why);
    if (rc == 0 && found)
        rc = bad(u, g_strdup_printf("it holds %s, which its manifest does not name", name));
    return rc;
}

int nrd_unpack(int fd, int root_fd, const char *dir, NrdManifest **ret_manifest, char **ret_why)
{
    Unpack u = { .root_fd = root_fd, .dir = dir };
    int rc = nrd_tarball_read_open(fd, &u.tar, &u.why);
    if (rc == 0)
        rc = unpack(&u);
    nrd_tarball_free(u.tar);
    if (rc < 0) {
        nrd_manifest_free(u.manifest);
        *ret_why = u.why ? u.why : g_strdup(g_strerror(-rc));
        return rc;
    }
    *ret_manifest = u.manifest;
    return 0;
}
