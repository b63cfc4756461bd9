/* See zero_ahead.h. */
#include "engine/log/zero_ahead.h"

#include "engine/io/io.h"

/* With more commits than this in flight zeros bring nothing (see the figures). */
#define MAX_IN_FLIGHT 32
/* A commit longer than this part of a chunk appends. */
#define LARGE_PART 4
#define BLOCK_BYTES ((uint64_t)4096)

static gint n_in_flight; /* atomic */

void nrd_zero_ahead_enter(void)
{
    g_atomic_int_inc(&n_in_flight);
}

void nrd_zero_ahead_leave(void)
{
    g_atomic_int_add(&n_in_flight, -1);
}

/* Where the zeros should end; not behind the segment's own end, where it is sealed. */
static uint64_t wanted_end(uint64_t pos, const NrdLogSettings *settings)
{
    uint64_t end = pos + settings->prealloc_bytes;

    end = (end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    return MIN(end, MAX(settings->segment_bytes, pos));
}

/* One line and one count until it works again; the errors that a full disk or a file system's limits give, and any
 * other, mean the same here: an error that matters meets the commit itself. */
static void report(NrdLog *log, int error)
{
    if (error < 0 && !log->zero_failed) {
        nrd_counter_add(NRD_COUNTER_PREALLOC_FAILED, 1);
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, NRD_NO_OFFSET),
                 "cannot write zeros ahead in %s: %s; commits go on without", log->home.dir, g_strerror(-error));
    }
    log->zero_failed = error < 0;
}

void nrd_zero_ahead_write(NrdLog *log, int fd, uint64_t pos, uint64_t size_bytes, const NrdLogSettings *settings)
{
    if (pos < log->zero_end || settings->prealloc_bytes == 0 || size_bytes > settings->prealloc_bytes / LARGE_PART ||
        g_atomic_int_get(&n_in_flight) > MAX_IN_FLIGHT)
        return;
    uint64_t end = wanted_end(pos, settings);
    if (end <= pos)
        return;
    /* Also after a failure, which may have written a part: it has to be cut later, and the next try waits until the
     * tail has come that far. */
    log->zero_end = end;
    report(log, nrd_io_write_zeros(fd, pos, end));
}

void nrd_zero_ahead_forget(NrdLog *log)
{
    log->zero_end = 0;
}

void nrd_zero_ahead_cut(NrdLog *log, NrdSegment *active)
{
    uint64_t size_bytes = nrd_segment_size_bytes(active);
    bool longer = log->zero_end > size_bytes;
    int fd;

    nrd_zero_ahead_forget(log);
    if (!longer)
        return;
    int r = nrd_segment_pin(active, &fd);
    if (r == 0) {
        /* A crash before this reaches the disk leaves a longer file: zeros that the next open cuts, or, in a sealed
         * segment, a side index that does not fit and is made again. */
        r = nrd_io->ftruncate(fd, (int64_t)size_bytes);
        nrd_segment_unpin(active);
    }
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(&log->home, (int64_t)nrd_segment_base(active)),
                 "cannot cut the zeros at the end of segment %020" G_GUINT64_FORMAT ": %s; they stay, as its end",
                 nrd_segment_base(active), g_strerror(-r));
}
