/* See tarball.h. */
#include "ctl/tarball.h"

#include "ctl/cli.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <glib.h>
#include <sys/stat.h>

#define READ_BLOCK_BYTES 65536

struct NrdTarball {
    struct archive *archive;
    struct archive_entry *entry; /* of a writer */
    bool reader;
};

/* libarchive's number may be one of its own: a plain -EIO says as much, the sentence more. */
static int fail(const NrdTarball *tar, char **ret_why)
{
    const char *text = archive_error_string(tar->archive);
    int number = archive_errno(tar->archive);
    if (text && number > 0 && number != EILSEQ && number != EINVAL)
        *ret_why = g_strdup_printf("%s: %s", text, g_strerror(number));
    else
        *ret_why = g_strdup(text ? text : tar->reader ? "it is no tar archive" : "it cannot be written");
    return -EIO;
}

/* Whoever writes or reads an archive ends with it, and cleans up, when he is interrupted. */
static bool interrupted(char **ret_why)
{
    if (!nrd_cli_interrupted())
        return false;
    *ret_why = g_strdup("interrupted");
    return true;
}

int nrd_tarball_write_open(int fd, NrdTarball **ret_tar, char **ret_why)
{
    NrdTarball *tar = g_new0(NrdTarball, 1);
    tar->archive = archive_write_new();
    tar->entry = archive_entry_new();
    g_assert(tar->archive && tar->entry);
    if (archive_write_set_format_pax_restricted(tar->archive) != ARCHIVE_OK ||
        archive_write_add_filter_none(tar->archive) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(tar->archive, 1) != ARCHIVE_OK ||
        archive_write_open_fd(tar->archive, fd) != ARCHIVE_OK) {
        int rc = fail(tar, ret_why);
        nrd_tarball_free(tar);
        return rc;
    }
    *ret_tar = tar;
    return 0;
}

int nrd_tarball_write_entry(NrdTarball *tar, const char *name, uint64_t size_bytes, int64_t mtime_ms, char **ret_why)
{
    archive_entry_clear(tar->entry);
    archive_entry_set_pathname(tar->entry, name);
    archive_entry_set_size(tar->entry, (la_int64_t)size_bytes);
    archive_entry_set_filetype(tar->entry, AE_IFREG);
    archive_entry_set_perm(tar->entry, 0600);
    archive_entry_set_mtime(tar->entry, (time_t)(mtime_ms / 1000), 0);
    return archive_write_header(tar->archive, tar->entry) == ARCHIVE_OK ? 0 : fail(tar, ret_why);
}

int nrd_tarball_write_bytes(NrdTarball *tar, const void *bytes, size_t size, char **ret_why)
{
    if (interrupted(ret_why))
        return -EINTR;
    la_ssize_t n = size > 0 ? archive_write_data(tar->archive, bytes, size) : 0;
    return n >= 0 && (size_t)n == size ? 0 : fail(tar, ret_why);
}

int nrd_tarball_write_end(NrdTarball *tar, char **ret_why)
{
    return archive_write_close(tar->archive) == ARCHIVE_OK ? 0 : fail(tar, ret_why);
}

int nrd_tarball_read_open(int fd, NrdTarball **ret_tar, char **ret_why)
{
    NrdTarball *tar = g_new0(NrdTarball, 1);
    tar->reader = true;
    tar->archive = archive_read_new();
    g_assert(tar->archive);
    if (archive_read_support_format_tar(tar->archive) != ARCHIVE_OK ||
        archive_read_open_fd(tar->archive, fd, READ_BLOCK_BYTES) != ARCHIVE_OK) {
        int rc = fail(tar, ret_why);
        nrd_tarball_free(tar);
        return rc;
    }
    *ret_tar = tar;
    return 0;
}

int nrd_tarball_read_entry(NrdTarball *tar, const char **ret_name, uint64_t *ret_size, bool *ret_found, char **ret_why)
{
    struct archive_entry *entry = NULL;
    int r = archive_read_next_header(tar->archive, &entry);
    if (r == ARCHIVE_EOF) {
        *ret_found = false;
        return 0;
    }
    if (r != ARCHIVE_OK)
        return fail(tar, ret_why);
    const char *name = archive_entry_pathname(entry);
    if (!name || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        !archive_entry_size_is_set(entry) || archive_entry_size(entry) < 0) {
        *ret_why = g_strdup_printf("it has an entry that is no file: %s", name ? name : "(no name)");
        return -EBADMSG;
    }
    *ret_name = name;
    *ret_size = (uint64_t)archive_entry_size(entry);
    *ret_found = true;
    return 0;
}

int nrd_tarball_read_bytes(NrdTarball *tar, void *buf, size_t size, size_t *ret_n, char **ret_why)
{
    if (interrupted(ret_why))
        return -EINTR;
    la_ssize_t n = archive_read_data(tar->archive, buf, size);
    if (n < 0)
        return fail(tar, ret_why);
    *ret_n = (size_t)n;
    return 0;
}

void nrd_tarball_free(NrdTarball *tar)
{
    if (!tar)
        return;
    if (tar->reader) {
        archive_read_free(tar->archive);
    } else {
        archive_entry_free(tar->entry);
        /* not closed: nothing more is to be written, least of all an end that makes a piece look whole */
        archive_write_fail(tar->archive);
        archive_write_free(tar->archive);
    }
    g_free(tar);
}
