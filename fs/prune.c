/* See prune.h.
 *
 * A thread of its own asks, and holds no lock then: to forget many takes a while. The kernel waits for no reply of the
 * daemon's meanwhile. It might for pages that are being read (ahead, also when the file is closed by then), but such a file is
 * not forgotten: its open file holds the inode, and then its RELEASE, which comes behind the last READ
 * (fs/fuse/file.c, fuse_file_release; tried with READs that nobody answers). So the thread comes back also at the end, when
 * nobody takes requests any more, and can be joined. What is open, a working directory, or a folder of which the kernel
 * remembers a name is in use and stays; that is for the kernel to say, which answers nothing: what it forgets comes as
 * FORGET. While more is left than should be the thread looks again, every few seconds, or minutes when that was in vain; below
 * that it sleeps until a look-up wakes it, so that an idle mount has no timer. */
#include "fs/prune.h"

#include "fs/node.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <sys/uio.h>

/* <linux/fuse.h> of 7.45, where this one is older. */
#define NOTIFY_PRUNE 9
typedef struct PruneOut {
    uint32_t count;
    uint32_t padding;
    uint64_t spare;
} PruneOut;

#define STEP (NRD_PRUNE_ABOVE / 4) /* the thread is woken for so many more */
#define BATCH 512                  /* what the kernel takes at a time */
#define PAUSE_US (G_USEC_PER_SEC / 10)
#define AGAIN_US (5 * G_USEC_PER_SEC)
#define IN_VAIN_US (300 * G_USEC_PER_SEC) /* when hardly one was forgotten: they are in use, perhaps for hours */

struct NrdPrune {
    NrdFs *fs;
    GThread *thread;          /* NULL: the kernel does not understand */
    uint64_t n_before;        /* nodes, when the kernel was asked last; the thread's alone */
    _Atomic uint64_t wake_at; /* nodes */
    /* guarded by lock */
    GMutex lock;
    GCond changed;
    bool woken;
    bool ending;
};

/* False: not this kernel, or it is no longer there. */
static bool tell_kernel(NrdPrune *prune, const GArray *ids)
{
    PruneOut prune_out = { .count = ids->len };
    size_t ids_size = ids->len * sizeof(uint64_t);
    struct fuse_out_header header = { .len = (uint32_t)(sizeof header + sizeof prune_out + ids_size),
                                      .error = NOTIFY_PRUNE };
    struct iovec parts[] = { { &header, sizeof header }, { &prune_out, sizeof prune_out }, { ids->data, ids_size } };
    ssize_t n = writev(fuse_session_fd(prune->fs->session), parts, G_N_ELEMENTS(parts));
    return n >= 0 || errno == ENOMEM || errno == EINTR;
}

static bool is_ending(NrdPrune *prune)
{
    g_mutex_lock(&prune->lock);
    bool ending = prune->ending;
    g_mutex_unlock(&prune->lock);
    return ending;
}

/* Looks at as many nodes as there are too many: those that are in use are passed over until the next time. */
static bool ask(NrdPrune *prune)
{
    NrdNodes *nodes = prune->fs->nodes;
    uint64_t n = nrd_nodes_count(nodes);
    uint64_t n_left = n > NRD_PRUNE_ABOVE ? n - NRD_PRUNE_ABOVE : 0;
    prune->n_before = n;
    g_autoptr(GArray) ids = g_array_sized_new(FALSE, FALSE, sizeof(uint64_t), BATCH);
    while (n_left > 0 && !is_ending(prune)) {
        uint64_t n_looked_at = MIN(n_left, BATCH);
        g_array_set_size(ids, 0);
        nrd_nodes_list_oldest(nodes, n_looked_at, ids);
        if (ids->len > 0 && !tell_kernel(prune, ids))
            return false;
        n_left -= n_looked_at;
    }
    return true;
}

static void sleep_locked(NrdPrune *prune, gint64 us)
{
    gint64 until = g_get_monotonic_time() + us;
    while (!prune->ending && !prune->woken && g_cond_wait_until(&prune->changed, &prune->lock, until))
        ;
}

/* Less than a tenth of what there was too much is gone. */
static bool in_vain(const NrdPrune *prune, uint64_t n)
{
    return prune->n_before > NRD_PRUNE_ABOVE && n + (prune->n_before - NRD_PRUNE_ABOVE) / 10 >= prune->n_before;
}

/* Until there is something to do, or the end (false). What was asked for is forgotten a moment later. */
static bool rest(NrdPrune *prune)
{
    g_mutex_lock(&prune->lock);
    prune->woken = false;
    atomic_store(&prune->wake_at, UINT64_MAX);
    sleep_locked(prune, PAUSE_US);
    uint64_t n = nrd_nodes_count(prune->fs->nodes);
    atomic_store(&prune->wake_at, MAX(n, NRD_PRUNE_ABOVE) + STEP);
    if (n > NRD_PRUNE_ABOVE)
        sleep_locked(prune, in_vain(prune, n) ? IN_VAIN_US : AGAIN_US);
    while (n <= NRD_PRUNE_ABOVE && !prune->ending && !prune->woken)
        g_cond_wait(&prune->changed, &prune->lock);
    bool going_on = !prune->ending;
    g_mutex_unlock(&prune->lock);
    return going_on;
}

static void *work(void *data)
{
    NrdPrune *prune = data;
    while (rest(prune) && ask(prune))
        ;
    atomic_store(&prune->wake_at, UINT64_MAX);
    return NULL;
}

NrdPrune *nrd_prune_new(NrdFs *fs)
{
    NrdPrune *prune = g_new0(NrdPrune, 1);
    prune->fs = fs;
    atomic_store(&prune->wake_at, UINT64_MAX);
    g_mutex_init(&prune->lock);
    g_cond_init(&prune->changed);
    return prune;
}

void nrd_prune_free(NrdPrune *prune)
{
    if (!prune)
        return;
    g_cond_clear(&prune->changed);
    g_mutex_clear(&prune->lock);
    g_free(prune);
}

void nrd_prune_start(NrdPrune *prune)
{
    prune->thread = g_thread_try_new("naradfs-forget", work, prune, NULL); /* without: as with an older kernel */
}

void nrd_prune_finish(NrdPrune *prune)
{
    g_mutex_lock(&prune->lock);
    prune->ending = true;
    g_cond_signal(&prune->changed);
    g_mutex_unlock(&prune->lock);
    if (prune->thread)
        g_thread_join(g_steal_pointer(&prune->thread));
}

void nrd_prune_note(NrdPrune *prune, uint64_t n_nodes)
{
    if (n_nodes < atomic_load_explicit(&prune->wake_at, memory_order_relaxed))
        return;
    g_mutex_lock(&prune->lock);
    prune->woken = true;
    g_cond_signal(&prune->changed);
    g_mutex_unlock(&prune->lock);
}
