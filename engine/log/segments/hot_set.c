/* See hot_set.h. One lock for the process; it covers pointers and counts only.
 *
 * Descriptors that nobody has pinned, at most: MAX_SEALED of sealed segments, and for active segments one for each log
 * that was used lately; either within a quarter of the process's limit. The rest of the limit is for what is pinned, for
 * clients and for short-lived opens. Both bounds hold at every open, with the limit as it is then: it may be lowered on
 * the running process. */
#include "engine/log/segments/hot_set.h"

#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"

#include <limits.h>
#include <sys/resource.h>

#define MAX_SEALED 32
#define MIN_OPEN 8
#define LIMIT_PART 4 /* each kind gets one part of so many at most */

static GMutex hot_lock;
/* guarded by hot_lock: unpinned segments with a descriptor, latest first */
static GQueue sealed_lru = G_QUEUE_INIT;
static GQueue active_lru = G_QUEUE_INIT;
static unsigned max_sealed = MIN_OPEN;
static unsigned max_active = MIN_OPEN;

static void read_limit_locked(void)
{
    struct rlimit limit = { .rlim_cur = 0 };

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    max_active = (unsigned)CLAMP(limit.rlim_cur / LIMIT_PART, (rlim_t)MIN_OPEN, (rlim_t)INT_MAX);
    max_sealed = MIN(max_active, MAX_SEALED);
}

static void leave_lru_locked(NrdSegment *segment)
{
    if (segment->in_lru != NULL)
        g_queue_unlink(segment->in_lru, &segment->lru);
    segment->in_lru = NULL;
}

static void enter_lru_locked(NrdSegment *segment, bool sealed)
{
    segment->in_lru = sealed ? &sealed_lru : &active_lru;
    g_queue_push_head_link(segment->in_lru, &segment->lru);
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

/* Takes the descriptors that are over the bounds, coldest first, into *ret_fds. */
static void cool_surplus_locked(GArray **ret_fds)
{
    while (sealed_lru.length > max_sealed || active_lru.length > max_active) {
        NrdSegment *coldest = g_queue_peek_tail(sealed_lru.length > max_sealed ? &sealed_lru : &active_lru);
        int fd = cool_locked(coldest);
        leave_hot_locked(coldest);
        if (*ret_fds == NULL)
            *ret_fds = g_array_new(FALSE, FALSE, sizeof(int));
        g_array_append_val(*ret_fds, fd);
    }
}

static void close_all(GArray *fds)
{
    if (fds == NULL)
        return;
    for (guint i = 0; i < fds->len; i++)
        nrd_io_close(&g_array_index(fds, int, i));
    g_array_unref(fds);
}

int nrd_hot_pin(NrdSegment *segment)
{
    GArray *surplus = NULL;

    g_mutex_lock(&hot_lock);
    segment->pins++;
    leave_lru_locked(segment);
    int fd = segment->fd;
    if (fd < 0) { /* about to be opened: a system call more or less */
        read_limit_locked();
        cool_surplus_locked(&surplus);
    }
    g_mutex_unlock(&hot_lock);
    close_all(surplus);
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
    int close_fds[2] = { -1, -1 };
    GArray *surplus = NULL;

    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    g_mutex_unlock(&segment->lock);

    g_mutex_lock(&hot_lock);
    g_assert(segment->pins > 0);
    segment->pins--;
    if (segment->pins == 0 && segment->drop_fd) {
        close_fds[0] = segment->fd;
        segment->fd = -1;
        segment->drop_fd = false;
    }
    if (segment->pins == 0) {
        if (segment->fd >= 0)
            enter_lru_locked(segment, sealed);
        if (sealed)
            close_fds[1] = heat_locked(segment);
        cool_surplus_locked(&surplus);
    }
    g_mutex_unlock(&hot_lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(close_fds); i++)
        nrd_io_close(&close_fds[i]);
    close_all(surplus);
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
