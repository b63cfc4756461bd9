/* See hot_set.h. One lock for the process; it covers pointers and counts only. */
#include "engine/log/hot_set.h"

#include "engine/io/io.h"
#include "engine/log/frame_cache.h"

#include <sys/resource.h>

/* A quarter of the process's descriptor limit, within these bounds, goes to segments that nobody is reading. */
#define MIN_OPEN 16
#define MAX_OPEN 1024

static GMutex hot_lock;
/* guarded by hot_lock */
static GQueue lru = G_QUEUE_INIT; /* unpinned segments with a descriptor, latest first */
static unsigned max_open;         /* length of lru that is never passed */

static void init_limit_locked(void)
{
    struct rlimit limit;

    if (max_open > 0)
        return;
    max_open = MAX_OPEN;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < MAX_OPEN)
        max_open = MAX((unsigned)(limit.rlim_cur / 4), MIN_OPEN);
}

static void leave_lru_locked(NrdSegment *segment)
{
    if (segment->in_lru)
        g_queue_unlink(&lru, &segment->lru);
    segment->in_lru = false;
}

static void leave_hot_locked(NrdSegment *segment)
{
    NrdSegment **hot = segment->home->hot;
    unsigned to = 0;

    for (unsigned i = 0; i < NRD_N_HOT; i++) {
        if (hot[i] != segment)
            hot[to++] = hot[i];
    }
    while (to < NRD_N_HOT)
        hot[to++] = NULL;
}

/* Takes the descriptor and the index of a segment that nobody uses; returns the descriptor to close, or -1. */
static int cool_locked(NrdSegment *segment)
{
    int fd = segment->fd;

    if (segment->pins > 0)
        return -1;
    leave_lru_locked(segment);
    segment->fd = -1;
    segment->drop_fd = false;
    nrd_segment_release_index(segment);
    return fd;
}

/* Puts a sealed segment first among the hot ones of its log; the one that falls out is cooled. */
static int heat_locked(NrdSegment *segment)
{
    NrdSegment **hot = segment->home->hot;

    if (hot[0] == segment)
        return -1;
    leave_hot_locked(segment);
    NrdSegment *out = hot[NRD_N_HOT - 1];
    for (unsigned i = NRD_N_HOT - 1; i > 0; i--)
        hot[i] = hot[i - 1];
    hot[0] = segment;
    return out != NULL ? cool_locked(out) : -1;
}

int nrd_hot_pin(NrdSegment *segment)
{
    g_mutex_lock(&hot_lock);
    segment->pins++;
    leave_lru_locked(segment);
    int fd = segment->fd;
    g_mutex_unlock(&hot_lock);
    return fd;
}

int nrd_hot_install(NrdSegment *segment, int fd)
{
    g_mutex_lock(&hot_lock);
    int use = segment->fd;
    if (use < 0) {
        segment->fd = use = fd;
        fd = -1;
    }
    g_mutex_unlock(&hot_lock);
    nrd_io_close(&fd);
    return use;
}

void nrd_hot_unpin(NrdSegment *segment)
{
    int close_fds[3] = { -1, -1, -1 };

    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    g_mutex_unlock(&segment->lock);

    g_mutex_lock(&hot_lock);
    init_limit_locked();
    g_assert(segment->pins > 0);
    segment->pins--;
    if (segment->pins == 0 && segment->drop_fd) {
        close_fds[0] = segment->fd;
        segment->fd = -1;
        segment->drop_fd = false;
    }
    if (segment->pins == 0) {
        if (segment->fd >= 0) {
            g_queue_push_head_link(&lru, &segment->lru);
            segment->in_lru = true;
        }
        if (sealed)
            close_fds[1] = heat_locked(segment);
        if (lru.length > max_open) {
            NrdSegment *coldest = g_queue_peek_tail(&lru);
            close_fds[2] = cool_locked(coldest);
            leave_hot_locked(coldest);
        }
    }
    g_mutex_unlock(&hot_lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(close_fds); i++)
        nrd_io_close(&close_fds[i]);
}

void nrd_hot_drop_fd(NrdSegment *segment)
{
    int fd = -1;

    g_mutex_lock(&hot_lock);
    if (segment->pins > 0) {
        segment->drop_fd = true;
    } else {
        leave_lru_locked(segment);
        fd = segment->fd;
        segment->fd = -1;
    }
    g_mutex_unlock(&hot_lock);
    nrd_io_close(&fd);
}

void nrd_hot_forget(NrdSegment *segment)
{
    nrd_frame_cache_drop(segment);
    g_mutex_lock(&hot_lock);
    g_assert(segment->pins == 0);
    leave_lru_locked(segment);
    leave_hot_locked(segment);
    int fd = segment->fd;
    segment->fd = -1;
    g_mutex_unlock(&hot_lock);
    nrd_io_close(&fd);
}
