/* The active segment: how it is made, the zeros ahead of its tail, and how it is left. The promise is in wal.h. Only who has
 * the writer's role is here; what others look at is changed under the lock. */
#include "engine/base/diag.h"
#include "engine/base/errors.h"
#include "engine/base/random.h"
#include "engine/ingress/wal_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>

#define ZERO_CHUNK_BYTES ((uint64_t)128 * 1024)
#define ZERO_PART 4 /* a round that is longer than this part of a chunk pays for its own blocks */

/* Nothing is written to it any more. What it is proven to hold stays readable by its name. */
static void seal_active(NrdWal *wal)
{
    pthread_mutex_lock(&wal->lock);
    wal->active->active = false;
    pthread_mutex_unlock(&wal->lock);
    nrd_io_close(&wal->active_fd);
    g_clear_pointer(&wal->active, nrd_wal_segment_unref);
}

/* What is left has not failed: the zeros behind it are the disk's again. The cut is not synced: a crash may bring them back,
 * and they mean nothing. */
void nrd_wal_leave_active(NrdWal *wal)
{
    if (!wal->active)
        return;
    if (wal->zero_end > wal->active_size) {
        int rc = nrd_io->ftruncate(wal->active_fd, (int64_t)wal->active_size);
        if (rc < 0)
            nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                     "cannot cut the zeros at the end of %s: %s; they stay until it is removed", wal->active->path,
                     g_strerror(-rc));
    }
    seal_active(wal);
}

/* The folder may have been removed, or made anew by somebody who has not synced its name: what is acknowledged in it has to
 * be found again. A crash before it is over leaves no folder, or an empty one: nothing in it was promised. */
static int ensure_folder(NrdWal *wal)
{
    struct stat st;
    if (nrd_io_stat(wal->options.root_fd, NRD_WAL_DIR, &st) == -ENOENT)
        wal->folder_gone = true;
    int rc = nrd_io_make_dir(wal->options.root_fd, NRD_WAL_DIR);
    if (rc < 0 || !wal->folder_gone)
        return rc;
    nrd_diag(
        NRD_LEVEL_ERROR, NRD_NOWHERE,
        "%s/ was removed while the daemon runs, and not by it: it was made anew; records that were in it and in no "
        "partition yet may be lost with it: put its files back into the new one if they are still somewhere",
        NRD_WAL_DIR);
    wal->folder_gone = false;
    return 0;
}

/* A crash before the folder is synced may lose the name: nothing in the file was promised yet. A file that stays behind
 * without an entry voids what it says, which nobody was promised either. */
static int create_file(NrdWal *wal, const NrdWalSegment *segment)
{
    int rc = ensure_folder(wal);
    if (rc < 0)
        return rc;
    int fd = nrd_io->open(wal->options.root_fd, segment->path, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fd;
    rc = nrd_io_sync_dir(wal->options.root_fd, NRD_WAL_DIR);
    if (rc < 0) {
        nrd_io_close(&fd);
        (void)!nrd_io_unlink(wal->options.root_fd, segment->path); /* empty: harmless if it stays */
        return rc;
    }
    return fd;
}

int nrd_wal_ensure_active(NrdWal *wal)
{
    if (wal->active && wal->active_size >= wal->options.segment_bytes)
        nrd_wal_leave_active(wal);
    if (wal->active)
        return 0;
    uint64_t first = wal->void_from > 0 ? wal->void_from : wal->next_sequence;
    NrdWalSegment *segment = nrd_wal_segment_new(first, wal->next_number++, nrd_random_u64());
    int fd = create_file(wal, segment);
    if (fd < 0) {
        nrd_wal_segment_unref(segment);
        return fd;
    }
    wal->active = segment;
    wal->active_fd = fd;
    wal->active_size = 0;
    wal->zero_end = 0;
    wal->void_from = 0;
    pthread_mutex_lock(&wal->lock);
    segment->end_sequence = wal->next_sequence;
    segment->active = true;
    g_ptr_array_add(wal->segments, nrd_wal_segment_ref(segment));
    pthread_mutex_unlock(&wal->lock);
    return 0;
}

void nrd_wal_write_zeros_ahead(NrdWal *wal, uint64_t n_bytes)
{
    uint64_t pos = wal->active_size + n_bytes;
    if (pos < wal->zero_end || n_bytes > ZERO_CHUNK_BYTES / ZERO_PART)
        return;
    wal->zero_end = pos + ZERO_CHUNK_BYTES; /* after a failure too, which may have written a part */
    if (nrd_io_write_zeros(wal->active_fd, pos, wal->zero_end) < 0)
        nrd_counter_add(NRD_COUNTER_PREALLOC_FAILED, 1);
}

void nrd_wal_abandon_active(NrdWal *wal, uint64_t sequence, int error, const char *what)
{
    if (nrd_error_is_taken_away(error))
        nrd_diag(
            NRD_LEVEL_ERROR, NRD_NOWHERE,
            "%s was removed while the daemon runs, and not by it: a new one is started; records that were in it and "
            "in no partition yet are lost unless it is put back",
            wal->active->path);
    else
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE,
                 "%s of %s failed: %s; the segment is left as it was proven, a new one is started", what,
                 wal->active->path, g_strerror(-error));
    if (wal->void_from == 0)
        wal->void_from = sequence;
    /* Its name may be what makes entries of earlier segments void: it goes only when none of them could count. */
    pthread_mutex_lock(&wal->lock);
    wal->active->end_sequence = wal->next_sequence;
    pthread_mutex_unlock(&wal->lock);
    seal_active(wal);
}

void nrd_wal_cut_back(NrdWal *wal, uint64_t sequence)
{
    int rc = nrd_io->ftruncate(wal->active_fd, (int64_t)wal->active_size);
    wal->zero_end = 0;
    if (rc == 0)
        rc = nrd_io->fdatasync(wal->active_fd);
    if (rc < 0)
        nrd_wal_abandon_active(wal, sequence, rc, "cutting back a failed write");
}
