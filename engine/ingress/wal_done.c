/* What the WAL keeps no longer: segments that go, and holes in those that stay. */
#include "engine/base/diag.h"
#include "engine/ingress/wal_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>

void nrd_wal_drop_live(NrdWal *wal, NrdWalSegment *segment, uint32_t n)
{
    pthread_mutex_lock(&wal->lock);
    g_assert(segment->n_live >= n);
    segment->n_live -= n;
    pthread_mutex_unlock(&wal->lock);
}

void nrd_wal_drop_entry(NrdWal *wal, NrdWalSegment *segment, uint64_t pos, uint64_t size_bytes)
{
    pthread_mutex_lock(&wal->lock);
    nrd_wal_segment_note_done(segment, pos, size_bytes);
    pthread_mutex_unlock(&wal->lock);
}

/* ---- removing ---- */

/* A crash before the folder is synced brings the file back: its parts are committed, and the checkpoint, which was
 * durable before, says so. */
static int remove_file(NrdWal *wal, const NrdWalSegment *segment)
{
    if (!segment->damaged)
        return nrd_io_unlink(wal->options.root_fd, segment->path);
    g_autofree char *aside = g_strconcat(segment->path, ".damaged", NULL);
    return nrd_io_rename(wal->options.root_fd, segment->path, aside, false);
}

/* The next one to remove, the oldest first; index is where to go on. Lock held. */
static NrdWalSegment *removable_locked(NrdWal *wal, uint64_t min_durable, guint *index)
{
    for (; *index < wal->segments->len; (*index)++) {
        NrdWalSegment *segment = wal->segments->pdata[*index];
        bool covered = segment->end_sequence <= min_durable || (*index == 0 && wal->segments->len > 1);
        if (!segment->active && segment->n_live == 0 && covered)
            return nrd_wal_segment_ref(segment);
    }
    return NULL;
}

void nrd_wal_sweep(NrdWal *wal, uint64_t min_durable)
{
    guint index = 0;
    for (;;) {
        pthread_mutex_lock(&wal->lock);
        NrdWalSegment *segment = removable_locked(wal, min_durable, &index);
        pthread_mutex_unlock(&wal->lock);
        if (!segment)
            return;
        int rc = remove_file(wal, segment);
        pthread_mutex_lock(&wal->lock);
        bool tell = rc < 0 && !wal->unlink_told;
        wal->unlink_told = rc < 0;
        if (rc == 0)
            g_ptr_array_remove(wal->segments, segment);
        pthread_mutex_unlock(&wal->lock);
        if (rc < 0)
            nrd_counter_add(NRD_COUNTER_INGRESS_UNLINK, 1);
        if (tell)
            nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "%s could not be removed: %s; tried again later", segment->path,
                     g_strerror(-rc));
        nrd_wal_segment_unref(segment);
        if (rc < 0)
            return;
    }
}

/* ---- holes ---- */

typedef struct Holes {
    NrdWalSegment *segment; /* a reference */
    GArray *ranges;         /* of NrdWalRange */
    uint64_t new_bytes;     /* since the last time */
} Holes;

/* Of the next segment, from *index on, in which entries were done with since the last time. */
static bool next_holes(NrdWal *wal, guint *index, Holes *ret_holes)
{
    bool found = false;
    pthread_mutex_lock(&wal->lock);
    for (; !found && *index < wal->segments->len; (*index)++) {
        NrdWalSegment *segment = wal->segments->pdata[*index];
        if (segment->freed_bytes == segment->done_bytes)
            continue;
        ret_holes->new_bytes = segment->done_bytes - segment->freed_bytes;
        segment->freed_bytes = segment->done_bytes;
        ret_holes->segment = nrd_wal_segment_ref(segment);
        ret_holes->ranges = g_array_copy(segment->done);
        found = true;
    }
    pthread_mutex_unlock(&wal->lock);
    return found;
}

/* The blocks at the ends of a hole belong to others too: there the zeros are data, and are synced, so that a crash leaves
 * zeros and not the rest of an entry. A crash before that is over may leave such a rest, which the next open takes for
 * damage and tells: a false alarm about records that are committed. A sync that fails, fails for who appends too. */
static int punch(NrdWal *wal, const Holes *holes)
{
    int fd = nrd_io->open(wal->options.root_fd, holes->segment->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    int rc = fd < 0 ? fd : 0;
    for (guint i = 0; rc == 0 && i < holes->ranges->len; i++) {
        NrdWalRange range = g_array_index(holes->ranges, NrdWalRange, i);
        rc = nrd_io->punch(fd, (int64_t)range.pos, (int64_t)(range.end - range.pos));
    }
    if (rc == 0)
        rc = nrd_io->fdatasync(fd);
    nrd_io_close(&fd);
    return rc;
}

/* Tried again the next time, but where it never works. */
static void note_failure(NrdWal *wal, const Holes *holes, int error)
{
    pthread_mutex_lock(&wal->lock);
    bool tell = error != -ENOENT && !wal->punch_told;
    wal->punch_told = wal->punch_told || tell;
    if (error != -EOPNOTSUPP && error != -ENOENT)
        holes->segment->freed_bytes -= holes->new_bytes;
    pthread_mutex_unlock(&wal->lock);
    if (tell)
        nrd_diag(
            NRD_LEVEL_WARNING, NRD_NOWHERE,
            "the room of records that are committed could not be given back in %s: %s; it is when all of it is done",
            holes->segment->path, g_strerror(-error));
}

bool nrd_wal_make_room(NrdWal *wal)
{
    Holes holes;
    bool any = false;
    for (guint index = 0; next_holes(wal, &index, &holes);) {
        int rc = punch(wal, &holes);
        any = any || rc == 0;
        if (rc < 0)
            note_failure(wal, &holes, rc);
        g_array_unref(holes.ranges);
        nrd_wal_segment_unref(holes.segment);
    }
    return any;
}

uint64_t nrd_wal_litter_bytes(NrdWal *wal)
{
    uint64_t n_bytes = 0;
    pthread_mutex_lock(&wal->lock);
    for (guint i = 0; i < wal->segments->len; i++) {
        const NrdWalSegment *segment = wal->segments->pdata[i];
        n_bytes += segment->done_bytes - segment->freed_bytes;
    }
    pthread_mutex_unlock(&wal->lock);
    return n_bytes;
}
