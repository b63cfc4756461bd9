/* When a partition's frontier goes to disk: the cadences of consumer.ahead and consumer.offset.
 *
 * Every settled record moves settled_seq. The first one after a tick arms the tick (100 ms): the state goes into the page
 * cache. The first tick after a write-out arms the write-out (1 s): it becomes durable. The first write-out after a level
 * arms that (30 s): consumer.offset follows. An idle partition has no timer set. fsync and close do all of it at once.
 * Source: the seed, "The consumer frontier stored next to the segments". */
#include "engine/engine_private.h"

#include "engine/base/clock.h"

#define TICK_MS 100
#define WRITE_OUT_MS 1000
#define LEVEL_MS 30000

/* A failing disk is told once, until it works again. Offset lock held. */
static int note_result_locked(NrdPartition *partition, int rc, const char *what)
{
    if (rc < 0 && rc != partition->offset_errno)
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
                 "%s failed: %s; progress of consumers is kept in memory and written again later", what,
                 g_strerror(-rc));
    partition->offset_errno = rc;
    return rc;
}

static void arm(NrdPartition *partition, NrdTimer *timer, int64_t delay_ms)
{
    nrd_timer_set_earlier(partition->topic->engine->timers, timer, nrd_clock_mono_ms() + delay_ms);
}

/* Writes the present state into the window, unless the last tick has it. Offset lock held. */
static int tick_locked(NrdPartition *partition)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    pthread_mutex_lock(&partition->queue_lock);
    uint64_t seq = partition->settled_seq;
    nrd_queue_snapshot(partition->queue, &state);
    partition->tick_armed = false;
    pthread_mutex_unlock(&partition->queue_lock);
    int rc = 0;
    if (seq != partition->ticked_seq)
        rc = nrd_offset_store_tick(partition->offsets, &state);
    if (rc == 0)
        partition->ticked_seq = seq;
    g_array_unref(state.ahead);
    return note_result_locked(partition, rc, "writing consumer.ahead");
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
    return note_result_locked(partition, rc, "syncing consumer.ahead");
}

static int level_locked(NrdPartition *partition)
{
    pthread_mutex_lock(&partition->queue_lock);
    uint64_t frontier = nrd_queue_frontier(partition->queue);
    pthread_mutex_unlock(&partition->queue_lock);
    return note_result_locked(partition, nrd_offset_store_level(partition->offsets, frontier),
                              "writing consumer.offset");
}

static void on_tick(void *user_data)
{
    NrdPartition *partition = user_data;
    pthread_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? tick_locked(partition) : 0;
    bool owed = partition->ticked_seq != partition->synced_seq;
    pthread_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    else if (owed)
        arm(partition, &partition->write_timer, WRITE_OUT_MS - TICK_MS);
}

static void on_write_out(void *user_data)
{
    NrdPartition *partition = user_data;
    pthread_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? write_out_locked(partition) : 0;
    pthread_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
    else
        arm(partition, &partition->level_timer, LEVEL_MS);
}

static void on_level(void *user_data)
{
    NrdPartition *partition = user_data;
    pthread_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? level_locked(partition) : 0;
    pthread_mutex_unlock(&partition->offset_lock);
    if (rc < 0)
        arm(partition, &partition->level_timer, LEVEL_MS);
}

void nrd_offsets_init(NrdPartition *partition)
{
    pthread_mutex_init(&partition->offset_lock, NULL);
    nrd_timer_init(&partition->tick_timer, on_tick, partition, true);
    nrd_timer_init(&partition->write_timer, on_write_out, partition, true);
    nrd_timer_init(&partition->level_timer, on_level, partition, true);
}

void nrd_offsets_clear(NrdPartition *partition)
{
    nrd_offset_store_free(partition->offsets);
    pthread_mutex_destroy(&partition->offset_lock);
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

int nrd_offsets_open(NrdPartition *partition, uint64_t hwm)
{
    NrdFrontier state = { 0, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    NrdOffsetStore *store = NULL;
    int rc = nrd_offset_store_open(partition->topic->engine->root_fd, partition->dir, partition->topic->name,
                                   partition->number, hwm, &state, &store);
    if (rc == 0) {
        pthread_mutex_lock(&partition->offset_lock);
        partition->offsets = store;
        partition->ticked_seq = partition->synced_seq = partition->settled_seq;
        partition->offset_errno = 0;
        pthread_mutex_lock(&partition->queue_lock);
        partition->tick_armed = false;
        nrd_queue_restore(partition->queue, &state, hwm);
        pthread_mutex_unlock(&partition->queue_lock);
        pthread_mutex_unlock(&partition->offset_lock);
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

int nrd_offsets_sync(NrdPartition *partition, bool level)
{
    pthread_mutex_lock(&partition->offset_lock);
    int rc = partition->offsets ? 0 : nrd_partition_closed_error(partition);
    if (rc == 0)
        rc = tick_locked(partition);
    if (rc == 0)
        rc = write_out_locked(partition);
    if (rc == 0 && level)
        rc = level_locked(partition);
    bool retry = rc < 0 && partition->offsets && !atomic_load(&partition->closed);
    pthread_mutex_unlock(&partition->offset_lock);
    if (retry) /* the caller was told; the cadence tries again all the same */
        arm(partition, &partition->tick_timer, WRITE_OUT_MS);
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
    pthread_mutex_lock(&partition->offset_lock);
    nrd_offset_store_free(g_steal_pointer(&partition->offsets));
    pthread_mutex_unlock(&partition->offset_lock);
}
