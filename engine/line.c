/* See line.h. */
#include "engine/line.h"

#include "engine/base/clock.h"
#include "engine/consume.h"

#include <errno.h>

enum {
    STATE_NEW,       /* not entered take yet */
    STATE_CANCELLED, /* ... and never will wait */
    STATE_PARKED,    /* in the line */
    STATE_DONE,      /* has been or is being called back, or was cancelled */
};

static void on_wait_over(void *user_data);

void nrd_line_init(NrdLine *line, const NrdLineSource *source, void *owner, NrdTimers *timers)
{
    *line = (NrdLine){ .source = source, .owner = owner, .timers = timers };
    g_mutex_init(&line->lock);
    g_queue_init(&line->waiters);
    g_queue_init(&line->watches);
    nrd_timer_init(&line->wait_timer, on_wait_over, line, false);
}

void nrd_line_clear(NrdLine *line)
{
    g_assert(g_queue_is_empty(&line->waiters) && g_queue_is_empty(&line->watches));
    nrd_timer_drain(line->timers, &line->wait_timer);
    g_mutex_clear(&line->lock);
}

static void leave_locked(NrdLine *line, NrdWaiter *waiter)
{
    g_queue_unlink(&line->waiters, &waiter->link);
    atomic_fetch_sub(&line->n_waiting, 1);
    waiter->state = STATE_DONE;
}

static void join_locked(NrdLine *line, NrdWaiter *waiter)
{
    waiter->state = STATE_PARKED;
    waiter->link = (GList){ .data = waiter };
    g_queue_push_tail_link(&line->waiters, &waiter->link);
    if (waiter->deadline_ms != INT64_MAX)
        nrd_timer_set_earlier(line->timers, &line->wait_timer, waiter->deadline_ms);
}

/* What a waiter got. */
typedef struct Taken {
    bool found;
    NrdPartition *partition;
    NrdLease lease;
} Taken;

/* A lease for this waiter at once, or a place in the line (then nothing is found and the result is 0), or an error. */
static int lease_or_join_locked(NrdLine *line, NrdWaiter *waiter, Taken *ret_taken)
{
    ret_taken->found = false;
    int rc = line->source->error(line->owner);
    if (rc < 0)
        return rc;
    atomic_fetch_add(&line->n_waiting, 1); /* before the look at the source: see line.h */
    ret_taken->found = line->source->lease(line->owner, waiter->sure, NULL, &ret_taken->partition, &ret_taken->lease);
    if (!ret_taken->found)
        rc = line->source->any_well(line->owner, NULL) ? -EAGAIN : -EIO;
    if (rc == -EAGAIN && waiter->deadline_ms != 0) {
        join_locked(line, waiter);
        return 0;
    }
    atomic_fetch_sub(&line->n_waiting, 1);
    return rc;
}

/* Delivers what was leased, or, when that can never be read, the next; or the waiter is in the line again. No lock
 * held. */
static void serve(NrdLine *line, NrdWaiter *waiter, Taken taken)
{
    while (taken.found && !nrd_consume_serve(taken.partition, line, waiter->deliver, waiter->user_data, taken.lease)) {
        g_mutex_lock(&line->lock);
        waiter->state = STATE_DONE;
        int rc = lease_or_join_locked(line, waiter, &taken);
        g_mutex_unlock(&line->lock);
        if (rc < 0)
            waiter->deliver(waiter->user_data, rc, NULL);
    }
}

void nrd_waiter_init(NrdWaiter *waiter)
{
    *waiter = (NrdWaiter){ .state = STATE_NEW };
}

/* One more, since the clock's milliseconds are cut off: never shorter than was asked for. */
static int64_t deadline_after(int64_t wait_ms)
{
    if (wait_ms < 0)
        return INT64_MAX;
    return wait_ms == 0 ? 0 : nrd_clock_mono_ms() + wait_ms + 1;
}

void nrd_line_take(NrdLine *line, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver, void *user_data)
{
    Taken taken = { .found = false };
    g_mutex_lock(&line->lock);
    bool cancelled = waiter->state == STATE_CANCELLED;
    waiter->deliver = deliver;
    waiter->user_data = user_data;
    waiter->deadline_ms = deadline_after(wait_ms);
    waiter->state = STATE_DONE;
    int rc = cancelled ? -EINTR : lease_or_join_locked(line, waiter, &taken);
    g_mutex_unlock(&line->lock);
    if (rc < 0)
        deliver(user_data, rc, NULL);
    else
        serve(line, waiter, taken);
}

bool nrd_line_cancel(NrdLine *line, NrdWaiter *waiter)
{
    g_mutex_lock(&line->lock);
    bool parked = waiter->state == STATE_PARKED;
    if (parked)
        leave_locked(line, waiter);
    else if (waiter->state == STATE_NEW)
        waiter->state = STATE_CANCELLED;
    g_mutex_unlock(&line->lock);
    return parked;
}

/* ---- waking ---- */

/* One record to one waiter. The lock is held on entry and exit, not between. Returns whether there was work. */
static bool hand_out_locked(NrdLine *line, NrdPartition *only)
{
    Taken taken = { .found = true };
    if (g_queue_is_empty(&line->waiters) || line->source->error(line->owner) < 0)
        return false;
    NrdWaiter *waiter = line->waiters.head->data;
    if (!line->source->lease(line->owner, waiter->sure, only, &taken.partition, &taken.lease))
        return false;
    leave_locked(line, waiter);
    g_mutex_unlock(&line->lock);
    serve(line, waiter, taken);
    g_mutex_lock(&line->lock);
    return true;
}

/* Fires every watch. The lock is held on entry and exit, not between: a watch is out of the list, hence its own again,
 * before it is called. */
static void fire_watches_locked(NrdLine *line)
{
    while (!g_queue_is_empty(&line->watches)) {
        NrdWatch *watch = line->watches.head->data;
        void (*notify)(void *) = watch->notify;
        void *user_data = watch->user_data;
        g_queue_unlink(&line->watches, &watch->link);
        watch->set = false;
        atomic_fetch_sub(&line->n_waiting, 1);
        g_mutex_unlock(&line->lock);
        notify(user_data);
        g_mutex_lock(&line->lock);
    }
}

void nrd_line_wake(NrdLine *line, NrdPartition *only)
{
    if (atomic_load(&line->n_waiting) == 0)
        return;
    g_mutex_lock(&line->lock);
    if (line->waking) {
        line->wake_again = true;
        g_mutex_unlock(&line->lock);
        return;
    }
    line->waking = true;
    do {
        line->wake_again = false;
        while (hand_out_locked(line, only))
            ;
        if (!g_queue_is_empty(&line->watches) && line->source->deliverable(line->owner, only))
            fire_watches_locked(line);
        only = NULL; /* who left word may have meant another partition */
    } while (line->wake_again);
    line->waking = false;
    g_mutex_unlock(&line->lock);
}

void nrd_line_interrupt(NrdLine *line, int error)
{
    g_mutex_lock(&line->lock);
    while (!g_queue_is_empty(&line->waiters)) {
        NrdWaiter *waiter = line->waiters.head->data;
        leave_locked(line, waiter);
        g_mutex_unlock(&line->lock);
        waiter->deliver(waiter->user_data, error, NULL);
        g_mutex_lock(&line->lock);
    }
    fire_watches_locked(line);
    g_mutex_unlock(&line->lock);
}

/* Takes one waiter whose time is over out of the line; the earliest deadline of the others goes to *next_ms. */
static NrdWaiter *timed_out_locked(NrdLine *line, int64_t now_ms, int64_t *next_ms)
{
    for (GList *l = line->waiters.head; l; l = l->next) {
        NrdWaiter *waiter = l->data;
        if (waiter->deadline_ms <= now_ms) {
            leave_locked(line, waiter);
            return waiter;
        }
        *next_ms = MIN(*next_ms, waiter->deadline_ms);
    }
    return NULL;
}

static void on_wait_over(void *user_data)
{
    NrdLine *line = user_data;
    int64_t next_ms = INT64_MAX;
    NrdWaiter *waiter;
    g_mutex_lock(&line->lock);
    while ((waiter = timed_out_locked(line, nrd_clock_mono_ms(), &next_ms))) {
        g_mutex_unlock(&line->lock);
        waiter->deliver(waiter->user_data, -ETIMEDOUT, NULL);
        g_mutex_lock(&line->lock);
        next_ms = INT64_MAX;
    }
    if (next_ms != INT64_MAX)
        nrd_timer_set_earlier(line->timers, &line->wait_timer, next_ms);
    g_mutex_unlock(&line->lock);
}

/* ---- watching ---- */

void nrd_line_watch_set(NrdLine *line, NrdWatch *watch, void (*notify)(void *user_data), void *user_data)
{
    g_mutex_lock(&line->lock);
    watch->notify = notify;
    watch->user_data = user_data;
    if (!watch->set) {
        watch->set = true;
        watch->link = (GList){ .data = watch };
        g_queue_push_tail_link(&line->watches, &watch->link);
        atomic_fetch_add(&line->n_waiting, 1);
    }
    g_mutex_unlock(&line->lock);
}

bool nrd_line_watch_clear(NrdLine *line, NrdWatch *watch)
{
    g_mutex_lock(&line->lock);
    bool was_set = watch->set;
    if (was_set) {
        g_queue_unlink(&line->watches, &watch->link);
        watch->set = false;
        atomic_fetch_sub(&line->n_waiting, 1);
    }
    g_mutex_unlock(&line->lock);
    return was_set;
}
