/* A partition's life: it opens when it is used, and closes when nobody has used it for a while.
 *
 * Opening and closing wait for the disk, so they run under the topic's guard: callers of that topic wait, nobody else.
 * Who has a pin keeps the partition open; the state lock makes "is it open" and "pin it" one step. A close first turns
 * the state to CLOSING, with no pin left, then takes the committer role, so it lands between two commits, and who wants
 * a pin meanwhile waits at the guard. What can be asked of a closed partition without opening it is its picture: see
 * picture.c (seed: Opening and closing logs). */
#include "engine/consume.h"
#include "engine/offsets.h"
#include "engine/partition.h"
#include "engine/produce.h"
#include "engine/topic.h"

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/io/io.h"

#include <errno.h>

NrdPartition *nrd_partition_new(NrdTopic *topic, uint32_t number)
{
    NrdPartition *partition = g_new0(NrdPartition, 1);
    partition->table = &nrd_local_table;
    partition->topic = topic;
    partition->number = number;
    partition->dir = g_strdup_printf("topics/%s/p%05u", topic->name, number);
    g_mutex_init(&partition->state_lock);
    nrd_produce_init(partition);
    nrd_consume_init(partition);
    nrd_offsets_init(partition);
    return partition;
}

/* A call that looked just before the close may have set one after it. */
static void drain_timers(NrdPartition *partition)
{
    NrdTimer *timers[] = { &partition->linger_timer, &partition->lease_timer, &partition->tick_timer,
                           &partition->write_timer,  &partition->level_timer, &partition->retry_timer };
    for (size_t i = 0; i < G_N_ELEMENTS(timers); i++)
        nrd_timer_drain(partition->topic->engine->timers, timers[i]);
}

static void free_log(NrdPartition *partition)
{
    nrd_consume_close(partition); /* the cursor before its log */
    nrd_log_free(atomic_exchange(&partition->log, NULL));
}

void nrd_partition_free(NrdPartition *partition)
{
    drain_timers(partition);
    nrd_produce_clear(partition);
    free_log(partition);
    nrd_consume_clear(partition);
    nrd_offsets_clear(partition);
    g_mutex_clear(&partition->state_lock);
    g_free(partition->picture);
    g_free(partition->fault_why);
    g_free(partition->ahead_why);
    g_free(partition->level_why);
    g_free(partition->dir);
    g_free(partition);
}

static void set_state(NrdPartition *partition, NrdPartitionState state)
{
    g_mutex_lock(&partition->state_lock);
    partition->state = state;
    g_mutex_unlock(&partition->state_lock);
}

/* ---- opening ---- */

static int open_log(NrdPartition *partition, const NrdTopicConfig *config, NrdLog **ret_log, char **ret_why)
{
    NrdEngine *engine = partition->topic->engine;
    NrdLogOptions options = {
        .root_fd = engine->root_fd,
        .dir = partition->dir,
        .topic = partition->topic->name,
        .partition = partition->number,
        .read_only = engine->read_only,
        .settings = nrd_partition_log_settings(partition, config),
        .ret_why = ret_why,
    };
    if (!engine->read_only) { /* a crash may have come between the record and the folder */
        int rc = nrd_partition_make_folder(partition);
        if (rc < 0)
            return rc;
    }
    return nrd_log_open(&options, ret_log);
}

/* What stands in the place of a file that the partition needs and is none; NULL: nothing that could be seen. */
static char *foreign_in_words(NrdPartition *partition)
{
    g_autofree char *path = g_strconcat(partition->dir, "/hwm", NULL);
    g_autofree char *kind = NULL;
    struct stat st;
    int root_fd = partition->topic->engine->root_fd;
    if (nrd_io_stat(root_fd, partition->dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return g_strdup_printf("%s cannot be used: it is no folder", partition->dir);
    kind = nrd_io_foreign_kind(root_fd, path);
    if (!kind) {
        g_clear_pointer(&path, g_free);
        (void)nrd_offset_store_foreign(root_fd, partition->dir, &path, &kind);
    }
    return kind ? g_strdup_printf("%s cannot be used: %s", path, kind) : NULL;
}

/* Why the partition could not be opened, for who looks at it; why is taken over. */
static void set_fault_why(NrdPartition *partition, char *why, int rc)
{
    if (!why)
        why = foreign_in_words(partition);
    if (!why)
        why = g_strdup_printf("its files cannot be opened: %s; the daemon's log says which one", g_strerror(-rc));
    g_mutex_lock(&partition->state_lock);
    char *old = partition->fault_why;
    partition->fault_why = why;
    g_mutex_unlock(&partition->state_lock);
    g_free(old);
}

static int open_files(NrdPartition *partition)
{
    char *why = NULL;
    const NrdTopicConfig *config = &partition->topic->record->config; /* only changed under the guard */
    NrdLog *log = NULL;
    atomic_store(&partition->warm, false);
    int rc = open_log(partition, config, &log, &why);
    if (rc == 0) {
        NrdLogStats stats;
        nrd_log_stats(log, &stats);
        nrd_consume_open(partition, config);
        rc = nrd_offsets_open(partition, stats.hwm, stats.next_offset);
    }
    if (rc < 0) {
        nrd_consume_close(partition);
        if (log)
            nrd_log_abandon(log);
        nrd_log_free(log);
        set_fault_why(partition, why, rc);
        return rc;
    }
    atomic_store(&partition->log, log);
    nrd_partition_configure(partition, config);
    return 0;
}

/* The same failure again is not told again. */
static void report_open(NrdPartition *partition, int rc)
{
    if (rc < 0)
        nrd_counter_add(NRD_COUNTER_OPEN_FAILED, 1);
    else
        nrd_counter_add(NRD_COUNTER_OPENED, 1);
    if (rc < 0 && rc != partition->open_errno)
        nrd_diag(NRD_LEVEL_ERROR, nrd_partition_place(partition),
                 "the partition could not be opened: %s; it is out of service, and tried again at its next use or when "
                 "`reopen` is written to its ctl",
                 partition->fault_why ? partition->fault_why : g_strerror(-rc));
    if (rc == 0 && partition->open_errno < 0)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_partition_place(partition), "the partition is in service again");
    partition->open_errno = rc;
}

static int open_guarded(NrdPartition *partition)
{
    int rc = nrd_topic_check_marker(partition->topic);
    if (rc < 0)
        return rc;
    if (atomic_load(&partition->closed)) /* the check has retired it */
        return -EIO;
    rc = open_files(partition);
    report_open(partition, rc);
    if (nrd_error_is_shortage(rc))
        return rc; /* nothing is wrong with the partition */
    if (rc < 0)
        set_state(partition, NRD_PARTITION_FAULT);
    return rc < 0 ? -EIO : 0;
}

int nrd_partition_pin_guarded(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    if (nrd_partition_pin_if_open(partition))
        return 0;
    if (atomic_load(&topic->deleted) || atomic_load(&partition->closed))
        return nrd_partition_closed_error(partition);
    if (topic->lost)
        return -EIO;
    int rc = open_guarded(partition);
    if (rc < 0)
        return rc;
    g_mutex_lock(&partition->state_lock);
    partition->state = NRD_PARTITION_OPEN;
    partition->n_pins++;
    g_mutex_unlock(&partition->state_lock);
    return 0;
}

/* ---- pins ---- */

bool nrd_partition_pin_if_open(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    bool open = partition->state == NRD_PARTITION_OPEN && !atomic_load(&partition->closed);
    if (open)
        partition->n_pins++;
    g_mutex_unlock(&partition->state_lock);
    return open;
}

int nrd_local_partition_pin(NrdPartition *partition)
{
    if (nrd_partition_pin_if_open(partition))
        return 0;
    pthread_mutex_lock(&partition->topic->guard);
    int rc = nrd_partition_pin_guarded(partition);
    pthread_mutex_unlock(&partition->topic->guard);
    return rc;
}

static void unpin(NrdPartition *partition, bool used)
{
    int64_t now_ms = used ? nrd_clock_mono_ms() : 0;
    g_mutex_lock(&partition->state_lock);
    g_assert(partition->n_pins > 0);
    partition->n_pins--;
    if (used)
        atomic_store(&partition->used_ms, now_ms);
    g_mutex_unlock(&partition->state_lock);
}

void nrd_local_partition_unpin(NrdPartition *partition)
{
    unpin(partition, true);
}

void nrd_partition_unpin_quietly(NrdPartition *partition)
{
    unpin(partition, false);
}

bool nrd_local_partition_is_open(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    bool open = partition->state == NRD_PARTITION_OPEN && !atomic_load(&partition->closed);
    g_mutex_unlock(&partition->state_lock);
    return open;
}

bool nrd_partition_is_out(NrdPartition *partition)
{
    g_mutex_lock(&partition->state_lock);
    bool out = partition->state == NRD_PARTITION_FAULT;
    g_mutex_unlock(&partition->state_lock);
    return out;
}

/* ---- closing ---- */

/* A lease lives in memory only; a poisoned log is reopened by hand, never in passing; what retention could not remove yet
 * would be part of the log again. */
static bool may_close_locked(NrdPartition *partition, int64_t idle_ms)
{
    if (partition->state != NRD_PARTITION_OPEN || partition->n_pins > 0 || atomic_load(&partition->closed) ||
        nrd_clock_mono_ms() - atomic_load(&partition->used_ms) < idle_ms)
        return false;
    g_mutex_lock(&partition->queue_lock);
    bool leased = nrd_queue_in_flight(partition->queue) > 0;
    g_mutex_unlock(&partition->queue_lock);
    NrdLog *log = atomic_load(&partition->log);
    return !leased && nrd_log_check(log) == 0 && !nrd_log_has_detached(log);
}

/* With the committer role. A frontier that cannot be written keeps the partition open. */
static int close_files(NrdPartition *partition)
{
    int rc = nrd_offsets_flush(partition);
    if (rc < 0)
        return rc;
    nrd_offsets_close(partition);
    drain_timers(partition);
    /* The log says so itself when its last write fails; then, and with records above the boundary, the next look has to
     * open it again. */
    NrdLog *log = atomic_load(&partition->log);
    bool exact = partition->picture->stats.next_offset == partition->picture->stats.hwm;
    if (nrd_log_close(log) < 0 || !exact)
        nrd_partition_set_picture(partition, NULL);
    free_log(partition);
    return 0;
}

/* From here on nobody gets a pin without the guard, and who looks sees the picture. */
static bool begin_closing(NrdPartition *partition, int64_t idle_ms)
{
    NrdPicture *old = NULL;
    g_mutex_lock(&partition->state_lock);
    bool may = may_close_locked(partition, idle_ms);
    if (may) {
        old = partition->picture;
        partition->picture = nrd_partition_take_picture(partition);
        partition->state = NRD_PARTITION_CLOSING;
    }
    g_mutex_unlock(&partition->state_lock);
    g_free(old);
    return may;
}

static bool close_idle_guarded(NrdPartition *partition, int64_t idle_ms)
{
    if (!begin_closing(partition, idle_ms) || nrd_produce_enter(partition) < 0)
        return false;
    int rc = close_files(partition);
    set_state(partition, rc < 0 ? NRD_PARTITION_OPEN : NRD_PARTITION_CLOSED);
    nrd_produce_leave(partition);
    return rc == 0;
}

bool nrd_partition_close_idle(NrdPartition *partition, int64_t idle_ms, bool wait_guard)
{
    if (wait_guard)
        pthread_mutex_lock(&partition->topic->guard);
    else if (pthread_mutex_trylock(&partition->topic->guard) != 0)
        return false;
    bool done = close_idle_guarded(partition, idle_ms);
    pthread_mutex_unlock(&partition->topic->guard);
    return done;
}

/* From now on nobody produces, consumes or waits. */
static bool shut(NrdPartition *partition)
{
    if (nrd_produce_enter(partition) < 0)
        return false; /* closed already */
    nrd_produce_shut(partition);
    int error = nrd_partition_closed_error(partition);
    nrd_produce_fail_waiters(partition, error);
    nrd_consume_interrupt(partition, error);
    nrd_timer_drain(partition->topic->engine->timers, &partition->lease_timer);
    nrd_timer_drain(partition->topic->engine->timers, &partition->retry_timer);
    return true;
}

int nrd_partition_close(NrdPartition *partition)
{
    NrdLog *log = atomic_load(&partition->log);
    if (!shut(partition) || !log)
        return 0;
    int rc = nrd_offsets_flush(partition);
    nrd_offsets_close(partition);
    int log_rc = nrd_log_close(log);
    return rc < 0 ? rc : log_rc;
}

void nrd_partition_abandon(NrdPartition *partition)
{
    NrdLog *log = atomic_load(&partition->log);
    if (!shut(partition) || !log)
        return;
    nrd_offsets_close(partition);
    nrd_log_abandon(log);
}
