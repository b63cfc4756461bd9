/* When a partition's frontier goes to disk: the cadences of consumer.ahead and consumer.offset.
 *
 * Every settled record moves settled_seq. The first one after a tick arms the tick (100 ms): the state goes into the page
 * cache. The first tick after a write-out arms the write-out (1 s): it becomes durable. The first write-out after a level
 * arms that (30 s): consumer.offset follows. An idle partition has no timer set. fsync and close do all of it at once.
 * Settling durably is in offsets_settle.c.
 * Source: the seed, "The consumer frontier stored next to the segments". */
#include "engine/offsets_private.h"

#include "engine/offsets.h"

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/io/io.h"

#define TICK_MS 100
#define WRITE_OUT_MS 1000
#define LEVEL_MS 30000

/* ---- what failed, and who is told ---- */

/* In one sentence, with the file; error is what the attempt gave. */
static char *why_not_written(NrdPartition *partition, const char *name, int error)
{
    static const char *const suffixes[] = { "", ".tmp" }; /* a file is replaced by way of the second */
    int root_fd = partition->topic->engine->root_fd;
    struct stat st;
    if (nrd_io_stat(root_fd, partition->dir, &st) == -ENOENT)
        return g_strdup_printf("%s/%s cannot be written: its folder is missing", partition->dir, name);
    for (size_t i = 0; i < G_N_ELEMENTS(suffixes); i++) {
        g_autofree char *path = g_strconcat(partition->dir, "/", name, suffixes[i], NULL);
        g_autofree char *kind = nrd_io_foreign_kind(root_fd, path);
        if (kind)
            return g_strdup_printf("%s cannot be written: %s", path, kind);
    }
    return g_strdup_printf("%s/%s cannot be written: %s", partition->dir, name, g_strerror(-error));
}

/* For `status`, which waits for no disk; why is taken over. */
static void set_why(NrdPartition *partition, char **slot, char *why)
{
    g_mutex_lock(&partition->state_lock);
    char *old = *slot;
    *slot = why;
    g_mutex_unlock(&partition->state_lock);
    g_free(old);
}

int nrd_offsets_note_locked(NrdPartition *partition, bool level, int rc, const char *what, const char *outcome)
{
    int *before = level ? &partition->level_errno : &partition->ahead_errno;
    char **slot = level ? &partition->level_why : &partition->ahead_why;
    bool news = rc != *before;
    *before = rc;
    if (rc == 0 && news) {
        set_why(partition, slot, NULL);
        nrd_diag(NRD_LEVEL_NOTICE, nrd_partition_place(partition), "%s can be written again",
                 level ? NRD_OFFSETS_LEVEL : NRD_OFFSETS_AHEAD);
    } else if (rc < 0 && news) {
        char *why = why_not_written(partition, level ? NRD_OFFSETS_LEVEL : NRD_OFFSETS_AHEAD, rc);
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
                 "%s failed: %s; %s; put that right in the data directory", what, why, outcome);
        set_why(partition, slot, why);
    }
    return nrd_error_of_disk(rc);
}

char *nrd_offsets_why_not(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    char *why = g_strdup(partition->ahead_why ? partition->ahead_why : partition->level_why);
    g_mutex_unlock(&partition->state_lock);
    return why;
}

/* ---- the cadences ---- */

static void arm(NrdPartition *partition, NrdTimer *timer, int64_t delay_ms)
{
    nrd_timer_set_earlier(partition->topic->engine->timers, timer, nrd_clock_mono_ms() + delay_ms);
}

int nrd_offsets_tick_locked(NrdPartition *partition)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    g_mutex_lock(&partition->queue_lock);
    uint64_t seq = partition->settled_seq;
    nrd_queue_snapshot(partition->queue, &state);
    partition->tick_armed = false;
    g_mutex_unlock(&partition->queue_lock);
    int rc = 0;
    if (seq != partition->ticked_seq)
        rc = nrd_offset_store_tick(partition->offsets, &state);
    if (rc == 0)
        partition->ticked_seq = seq;
    g_array_unref(state.ahead);
    /* In the page cache it is not written yet: only a write-out says that all is well. */
    return rc < 0 ? nrd_offsets_note_locked(partition, false, rc, "writing " NRD_OFFSETS_AHEAD, NRD_OFFSETS_KEPT) : 0;
}

/* Also when nothing was ticked: what was recovered may stand in the page cache only until it is asked for, and the store
 * knows. */
static int write_out_locked(NrdPartition *partition)
{
    uint64_t seq = partition->ticked_seq;
    int rc = nrd_offset_store_write_out(partition->offsets);
    if (rc == 0)
        partition->synced_seq = seq;
    else
        partition->ticked_seq = partition->synced_seq; /* the window is of unknown content: write it again */
    return nrd_offsets_note_locked(partition, false, rc, "syncing " NRD_OFFSETS_AHEAD, NRD_OFFSETS_KEPT);
}

static int level_locked(NrdPartition *partition)
{
    g_mutex_lock(&partition->queue_lock);
    uint64_t frontier = nrd_queue_frontier(partition->queue);
    g_mutex_unlock(&partition->queue_lock);
    return nrd_offsets_note_locked(partition, true, nrd_offset_store_level(partition->offsets, frontier),
                                   "writing " NRD_OFFSETS_LEVEL, NRD_OFFSETS_KEPT);
}

static void on_tick(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? nrd_offsets_tick_locked(partition) : 0;
    bool owed = partition->ticked_seq != partition->synced_seq;
    g_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    else if (owed)
        arm(partition, &partition->write_timer, WRITE_OUT_MS - TICK_MS);
}

static void on_write_out(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? write_out_locked(partition) : 0;
    g_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    else
        arm(partition, &partition->level_timer, LEVEL_MS);
}

static void on_level(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? level_locked(partition) : 0;
    g_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->level_timer, LEVEL_MS);
}

void nrd_offsets_init(NrdPartition *partition)
{
    g_mutex_init(&partition->offset_lock);
    nrd_timer_init(&partition->tick_timer, on_tick, partition, true);
    nrd_timer_init(&partition->write_timer, on_write_out, partition, true);
    nrd_timer_init(&partition->level_timer, on_level, partition, true);
}

void nrd_offsets_clear(NrdPartition *partition)
{
    nrd_offset_store_free(partition->offsets);
    g_mutex_clear(&partition->offset_lock);
}

int nrd_offsets_peek(NrdPartition *partition, uint64_t hwm, uint64_t *ret_frontier, uint32_t *ret_n_acked_ahead)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    NrdOffsetStore *store = NULL;
    int rc = nrd_offset_store_open(partition->topic->engine->root_fd, partition->dir, partition->topic->name,
                                   partition->number, hwm, &state, &store);
    nrd_offset_store_free(store);
    if (rc == 0) {
        *ret_frontier = MIN(state.frontier, hwm);
        *ret_n_acked_ahead = state.ahead->len;
    }
    g_array_unref(state.ahead);
    return rc;
}

/* Writes anew what must not stay as an open has found it. A failure is no reason not to serve: the cadence tries again.
 * Offset lock held. */
static int mend_locked(NrdPartition *partition)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    g_mutex_lock(&partition->queue_lock);
    nrd_queue_snapshot(partition->queue, &state);
    g_mutex_unlock(&partition->queue_lock);
    int rc = nrd_offset_store_mend(partition->offsets, &state);
    g_array_unref(state.ahead);
    rc = nrd_offsets_note_locked(partition, false, rc, "writing " NRD_OFFSETS_AHEAD " and " NRD_OFFSETS_LEVEL " anew",
                                 NRD_OFFSETS_KEPT);
    if (rc == 0) {
        atomic_store(&partition->offsets_claim, false);
        return 0;
    }
    g_mutex_lock(&partition->queue_lock);
    partition->settled_seq++; /* there is something to write */
    g_mutex_unlock(&partition->queue_lock);
    arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    return rc;
}

int nrd_offsets_before_commit(NrdPartition *partition)
{
    if (!atomic_load_explicit(&partition->offsets_claim, memory_order_relaxed))
        return 0;
    g_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? mend_locked(partition) : -ESHUTDOWN;
    g_mutex_unlock(&partition->offset_lock);
    return rc;
}

static void restore_locked(NrdPartition *partition, const NrdFrontier *state, uint64_t hwm)
{
    partition->ticked_seq = partition->synced_seq = partition->settled_seq;
    partition->ahead_errno = partition->level_errno = 0;
    set_why(partition, &partition->ahead_why, NULL);
    set_why(partition, &partition->level_why, NULL);
    g_mutex_lock(&partition->queue_lock);
    partition->tick_armed = false;
    nrd_queue_restore(partition->queue, state, hwm);
    g_mutex_unlock(&partition->queue_lock);
}

int nrd_offsets_open(NrdPartition *partition, uint64_t hwm, uint64_t end_offset)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    NrdOffsetStore *store = NULL;
    int rc = nrd_offset_store_open(partition->topic->engine->root_fd, partition->dir, partition->topic->name,
                                   partition->number, hwm, &state, &store);
    if (rc == 0) {
        g_mutex_lock(&partition->offset_lock);
        partition->offsets = store;
        restore_locked(partition, &state, hwm);
        atomic_store(&partition->offsets_claim, nrd_offset_store_claims_beyond(store, end_offset));
        if (!partition->topic->engine->read_only && nrd_offset_store_is_stale(store, end_offset))
            (void)!mend_locked(partition); /* a failure was told; a commit tries again before it goes on */
        g_mutex_unlock(&partition->offset_lock);
    }
    g_array_unref(state.ahead);
    return rc;
}

void nrd_offsets_touch_locked(NrdPartition *partition)
{
    partition->settled_seq++;
    if (partition->tick_armed || partition->topic->engine->read_only)
        return;
    partition->tick_armed = true;
    arm(partition, &partition->tick_timer, TICK_MS);
}

void nrd_offsets_arm_after(NrdPartition *partition, bool open, int rc, bool level_owed)
{
    if (rc < 0 && open)
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    else if (rc == 0 && level_owed && open)
        arm(partition, &partition->level_timer, LEVEL_MS);
}

int nrd_offsets_sync(NrdPartition *partition, bool level)
{
    g_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? 0 : nrd_partition_closed_error(partition);
    uint64_t synced_before = partition->synced_seq;
    if (rc == 0)
        rc = nrd_offsets_tick_locked(partition);
    if (rc == 0)
        rc = write_out_locked(partition);
    if (rc == 0 && level)
        rc = level_locked(partition);
    bool open = partition->offsets && !atomic_load(&partition->closed);
    bool level_owed = rc == 0 && !level && partition->synced_seq != synced_before;
    g_mutex_unlock(&partition->offset_lock);
    nrd_offsets_arm_after(partition, open, rc, level_owed);
    return rc;
}

static void drain(NrdPartition *partition)
{
    NrdTimers *timers = partition->topic->engine->timers;
    nrd_timer_drain(timers, &partition->tick_timer);
    nrd_timer_drain(timers, &partition->write_timer);
    nrd_timer_drain(timers, &partition->level_timer);
}

int nrd_offsets_flush(NrdPartition *partition)
{
    drain(partition);
    if (!partition->offsets || partition->topic->engine->read_only)
        return 0;
    return nrd_offsets_sync(partition, true);
}

void nrd_offsets_close(NrdPartition *partition)
{
    drain(partition);
    g_mutex_lock(&partition->offset_lock);
    nrd_offset_store_free(g_steal_pointer(&partition->offsets));
    g_mutex_unlock(&partition->offset_lock);
}
