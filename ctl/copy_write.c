/* Batches of records into the target's `produce.bin`.
 *
 * After each fsync the file tells at which offsets the records came to stand. They have to be the next ones: anything else
 * means that somebody else produces to the target, or that the records of a batch were reordered, and nothing more is
 * written. A record that is long, or has a long key, goes alone: should the target not take it, nothing behind it is
 * stored, and it can be named.
 *
 * A crash of this process or of the target's daemon leaves a part of the batch there, records in order from its first on.
 * Of a process that was killed the daemon may still hold records, which it commits by itself, in its own time. So the next
 * run first syncs the file, which commits what any handle of it holds. */
#include "ctl/cli.h"
#include "ctl/copy.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BATCH_BYTES ((guint)1 << 20)
#define ALONE_PAYLOAD ((size_t)256 << 10)
#define ALONE_KEY ((size_t)16 << 10)
#define SYNC_TRIES 4 /* a cluster that elects a leader may need two */

static int fail_call(NrdCopyPart *part, int error, int64_t begun_ms, const char *what)
{
    g_autofree char *refusal = nrd_tree_refusal(part->job->to.dir, error, begun_ms);
    return nrd_copy_part_fail(part, error,
                              g_strdup_printf("%s/produce.bin cannot be %s: %s%s%s", part->to, what, g_strerror(-error),
                                              refusal ? "; the daemon says: " : "", refusal ? refusal : ""));
}

int nrd_copy_write_open(NrdCopyPart *part)
{
    g_autofree char *path = g_strconcat(part->to, "/produce.bin", NULL);
    int64_t now_ms = g_get_real_time() / 1000;
    part->out_fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (part->out_fd < 0)
        return fail_call(part, -errno, now_ms, "opened");
    if (fsync(part->out_fd) < 0)
        return fail_call(part, -errno, now_ms, "synced");
    return 0;
}

/* ---- what is too long ---- */

/* Names the record of the batch that byte `pos` belongs to. */
static int fail_too_long(NrdCopyPart *part, size_t pos)
{
    guint i = 0;
    g_autofree char *most = NULL;
    while (i + 1 < part->batch_ends->len && g_array_index(part->batch_ends, NrdCopyMark, i).end <= pos)
        i++;
    const NrdCopyMark *mark = &g_array_index(part->batch_ends, NrdCopyMark, i);
    int rc = nrd_tree_xattr(part->job->to.dir, "max_record_bytes", &most);
    return nrd_copy_part_fail(
        part, -EMSGSIZE,
        g_strdup_printf("the record at offset %" PRIu64 " (%zu byte%s, its key %zu) is longer than %s takes "
                        "(max_record_bytes there is %s; the servers behind it may take less): raise that, or leave the "
                        "topic where it is; the records before it were copied",
                        mark->offset, mark->payload_size, nrd_plural(mark->payload_size), mark->key_size,
                        part->job->to.dir, rc == 0 ? most : "unknown"));
}

/* ---- a batch ---- */

static int write_batch(NrdCopyPart *part, int64_t begun_ms)
{
    size_t pos = 0;
    while (pos < part->batch->len) {
        ssize_t n = write(part->out_fd, part->batch->data + pos, part->batch->len - pos);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EMSGSIZE)
            return fail_too_long(part, pos);
        if (n < 0)
            return fail_call(part, -errno, begun_ms, "written");
        pos += (size_t)n;
    }
    return 0;
}

/* A failed one keeps the batch, and the next tries it again. */
static int sync_batch(NrdCopyPart *part, int64_t begun_ms)
{
    int rc = fsync(part->out_fd) < 0 ? -errno : 0;
    for (int i = 1; i < SYNC_TRIES && (rc == -EIO || rc == -EINTR) && !nrd_cli_interrupted(); i++)
        rc = fsync(part->out_fd) < 0 ? -errno : 0;
    if (rc == -EMSGSIZE && part->batch_ends->len == 1)
        return fail_too_long(part, 0);
    return rc < 0 ? fail_call(part, rc, begun_ms, "synced") : 0;
}

/* One line `pNNNNN first last` at *at; false: it is none. */
static bool take_line(const char **at, uint64_t *ret_first, uint64_t *ret_last)
{
    unsigned number;
    int n = 0;
    if (sscanf(*at, "p%5u %" SCNu64 " %" SCNu64 "%n", &number, ret_first, ret_last, &n) != 3 || (*at)[n] != '\n')
        return false;
    *at += n + 1;
    return *ret_last >= *ret_first;
}

static int fail_order(NrdCopyPart *part, uint64_t first)
{
    return nrd_copy_part_fail(
        part, -EEXIST,
        g_strdup_printf("a record came to stand at offset %" PRIu64 " of %s, where %" PRIu64
                        " was next: somebody else produces to it, or a change of leaders has reordered records. Delete "
                        "the target topic and begin again, with nobody else producing to it%s",
                        first, part->to, part->n_stored, part->job->batch_records > 1 ? " (and with --batch 1)" : ""));
}

/* What the file tells now. A batch is a line, seldom more, and a larger buffer would cost every read. */
static int read_lines(NrdCopyPart *part, GString *text)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(part->out_fd, piece, sizeof piece)) != 0) {
        if (n < 0 && errno != EINTR)
            return nrd_copy_part_fail(
                part, -errno, g_strdup_printf("%s/produce.bin cannot be read: %s", part->to, g_strerror(errno)));
        g_string_append_len(text, piece, n > 0 ? n : 0);
    }
    return 0;
}

static int check_line(NrdCopyPart *part, const char **at, uint64_t end)
{
    uint64_t first, last;
    if (!take_line(at, &first, &last))
        return nrd_copy_part_fail(part, -EBADMSG, g_strdup_printf("%s/produce.bin tells no offsets", part->to));
    if (first != part->n_stored || last >= end)
        return fail_order(part, first);
    part->n_stored = last + 1;
    return 0;
}

/* The lines are there when fsync has returned. */
static int check_lines(NrdCopyPart *part)
{
    uint64_t end = part->n_stored + part->batch_ends->len;
    GString *text = g_string_new(NULL);
    int rc = read_lines(part, text);
    for (const char *at = text->str; rc == 0 && *at;)
        rc = check_line(part, &at, end);
    g_string_free(text, TRUE);
    if (rc == 0 && part->n_stored != end)
        rc = nrd_copy_part_fail(part, -EIO,
                                g_strdup_printf("%s/produce.bin told of records up to offset %" PRIu64
                                                " only, although %" PRIu64 " were synced; run it again",
                                                part->to, part->n_stored, end));
    return rc;
}

int nrd_copy_write_commit(NrdCopyPart *part)
{
    int64_t begun_ms = g_get_real_time() / 1000;
    guint n = part->batch_ends->len;
    if (n == 0)
        return 0;
    int rc = write_batch(part, begun_ms);
    if (rc == 0)
        rc = sync_batch(part, begun_ms);
    if (rc == 0)
        rc = check_lines(part);
    if (rc < 0)
        return rc;
    part->n_new += n;
    atomic_fetch_add(&part->job->n_written, n);
    g_byte_array_set_size(part->batch, 0);
    g_array_set_size(part->batch_ends, 0);
    return 0;
}

int nrd_copy_write(NrdCopyPart *part, const NrdCopyRecord *record)
{
    bool alone = record->payload_size > ALONE_PAYLOAD || record->key_size > ALONE_KEY;
    int rc = alone ? nrd_copy_write_commit(part) : 0;
    if (rc < 0)
        return rc;
    nrd_copy_record_put(part->batch, record);
    NrdCopyMark mark = { part->batch->len, record->offset, record->key_size, record->payload_size };
    g_array_append_val(part->batch_ends, mark);
    bool full = part->batch->len >= BATCH_BYTES || part->batch_ends->len >= part->job->batch_records;
    return alone || full ? nrd_copy_write_commit(part) : 0;
}
