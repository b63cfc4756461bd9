/* Who works when: states of cursors, the line of links, the two heaps, and the threads.
 *
 * One idle worker keeps the time: it sleeps until the next thing is due, the others without a timeout. When it finds work it
 * hands the time to another one before it begins. Delayed records are looked at once a second at least, since the wall
 * clock may be set meanwhile: at the top of the heap, however many there are. */
#include "engine/fanout/fanout_private.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"
#include "engine/fanout/gate.h"

#define PER_LINK 2 /* workers that one link gets */
#define WALL_LOOK_MS 1000

/* ---- the line ---- */

/* A link is in line while it has cursors that are ready and may have another worker. */
static void update_line(NrdLink *link)
{
    NrdFanout *f = link->fanout;
    bool wanted = link->ready.length > 0 && link->n_running < PER_LINK;
    if (wanted && !link->in_line)
        g_queue_push_tail_link(&f->ready, &link->ready_link);
    if (!wanted && link->in_line)
        g_queue_unlink(&f->ready, &link->ready_link);
    link->in_line = wanted;
}

static void *worker(void *data);

bool nrd_workers_add(NrdFanout *f)
{
    pthread_t thread;
    if (f->workers->len >= f->options.n_workers || pthread_create(&thread, NULL, worker, f) != 0)
        return false;
    g_array_append_val(f->workers, thread);
    return true;
}

/* The others are there from the first time that there is something to do. Those that the system does not give are not waited
 * for. */
static void wake_one(NrdFanout *f)
{
    if (f->stopping || f->options.frozen || !f->started)
        return;
    while (nrd_workers_add(f))
        ;
    if (f->n_idle > 0)
        pthread_cond_signal(&f->work);
    else if (f->timekeeper)
        pthread_cond_signal(&f->time);
}

/* A deadline was set that the one who keeps the time may not know. */
static void wake_for_time(NrdFanout *f, int64_t mono_ms)
{
    if (!f->timekeeper)
        wake_one(f);
    else if (f->until_ms == 0 || mono_ms < f->until_ms)
        pthread_cond_signal(&f->time);
}

/* When to look at something that is due at that wall-clock time. Monotonic. */
static int64_t look_at(int64_t wall_ms)
{
    int64_t left_ms = wall_ms - nrd_clock_wall_ms();
    return nrd_clock_mono_ms() + CLAMP(left_ms, 0, WALL_LOOK_MS);
}

static void set_due(NrdFanout *f, NrdDueHeap *heap, NrdDueNode *node, int64_t at_ms)
{
    nrd_due_heap_set(heap, node, at_ms);
    wake_for_time(f, heap == &f->delayed ? look_at(at_ms) : at_ms);
}

static void leave_state(NrdFanCursor *cursor)
{
    NrdLink *link = cursor->link;
    NrdFanout *f = link->fanout;
    if (cursor->state == NRD_CURSOR_READY)
        g_queue_unlink(&link->ready, &cursor->ready_link);
    if (cursor->state == NRD_CURSOR_LINGER || cursor->state == NRD_CURSOR_RETRY)
        nrd_due_heap_remove(&f->soon, &cursor->node);
    if (cursor->state == NRD_CURSOR_DELAYED)
        nrd_due_heap_remove(&f->delayed, &cursor->node);
    if (cursor->state == NRD_CURSOR_RUNNING)
        link->n_running--;
}

void nrd_cursor_set_state(NrdFanCursor *cursor, NrdCursorState state, int64_t at_ms)
{
    NrdLink *link = cursor->link;
    NrdFanout *f = link->fanout;
    leave_state(cursor);
    cursor->state = state;
    if (state == NRD_CURSOR_READY)
        g_queue_push_tail_link(&link->ready, &cursor->ready_link);
    if (state == NRD_CURSOR_RUNNING)
        link->n_running++;
    if (state == NRD_CURSOR_LINGER || state == NRD_CURSOR_RETRY)
        set_due(f, &f->soon, &cursor->node, at_ms);
    if (state == NRD_CURSOR_DELAYED)
        set_due(f, &f->delayed, &cursor->node, at_ms);
    update_line(link);
    if (link->in_line)
        wake_one(f);
}

void nrd_cursor_detach(NrdFanCursor *cursor)
{
    nrd_due_heap_remove(&cursor->link->fanout->soon, &cursor->tidy);
    if (cursor->state != NRD_CURSOR_RUNNING)
        nrd_cursor_set_state(cursor, NRD_CURSOR_IDLE, 0);
}

/* ---- time ---- */

/* What is due is ready. Returns when to look again (monotonic), 0: never. */
static int64_t promote(NrdFanout *f)
{
    int64_t mono_ms = nrd_clock_mono_ms(), wall_ms = nrd_clock_wall_ms();
    NrdDueNode *top;
    while ((top = nrd_due_heap_top(&f->soon)) && top->at_ms <= mono_ms) {
        NrdFanCursor *cursor = top->owner;
        if (top == &cursor->tidy)
            nrd_due_heap_remove(&f->soon, top); /* the pass finds that it is due; one that runs sets it again */
        if (cursor->state != NRD_CURSOR_RUNNING && cursor->state != NRD_CURSOR_READY)
            nrd_cursor_set_state(cursor, NRD_CURSOR_READY, 0);
    }
    int64_t next_ms = top ? top->at_ms : 0;
    while ((top = nrd_due_heap_top(&f->delayed)) && top->at_ms <= wall_ms)
        nrd_cursor_set_state(top->owner, NRD_CURSOR_READY, 0);
    if (!top)
        return next_ms;
    return next_ms == 0 ? look_at(top->at_ms) : MIN(next_ms, look_at(top->at_ms));
}

static void keep_time(NrdFanout *f, int64_t until_ms)
{
    struct timespec until = nrd_cond_end(MAX(until_ms - nrd_clock_mono_ms(), 1));
    f->timekeeper = true;
    f->until_ms = until_ms;
    pthread_cond_timedwait(&f->time, &f->lock, &until);
    f->timekeeper = false;
}

static void sleep_locked(NrdFanout *f, int64_t until_ms)
{
    if (until_ms > 0 && !f->timekeeper) {
        keep_time(f, until_ms);
        return;
    }
    f->n_idle++;
    pthread_cond_wait(&f->work, &f->lock);
    f->n_idle--;
}

/* ---- work ---- */

static NrdFanCursor *next_cursor(NrdFanout *f)
{
    GList *head = f->ready.head;
    if (!head)
        return NULL;
    NrdLink *link = head->data;
    NrdFanCursor *cursor = link->ready.head->data;
    nrd_cursor_set_state(cursor, NRD_CURSOR_RUNNING, 0);
    if (link->in_line) { /* the others come first */
        g_queue_unlink(&f->ready, &link->ready_link);
        g_queue_push_tail_link(&f->ready, &link->ready_link);
    }
    cursor->again = cursor->kicked = false;
    return cursor;
}

static void show(NrdFanCursor *cursor, const NrdPassResult *result)
{
    cursor->shown.cursor = cursor->offset;
    cursor->shown.hwm = cursor->reloaded ? result->hwm : MAX(cursor->shown.hwm, result->hwm);
    cursor->reloaded = false;
    cursor->shown.due_ms = cursor->due_ms;
    cursor->shown.n_failed = cursor->n_failed;
    cursor->shown.error = result->error;
    cursor->shown_known = cursor->loaded;
}

/* What the cursor does next. */
static void settle(NrdFanCursor *cursor, const NrdPassResult *result)
{
    NrdFanout *f = cursor->link->fanout;
    int64_t now_ms = nrd_clock_mono_ms();
    if (atomic_load(&cursor->link->stopping)) {
        nrd_cursor_set_state(cursor, NRD_CURSOR_IDLE, 0);
        return;
    }
    if (cursor->kicked)
        cursor->retry_ms = 0;
    if (result->outcome == NRD_OUTCOME_MORE || (result->outcome == NRD_OUTCOME_FAILED && cursor->kicked))
        nrd_cursor_set_state(cursor, NRD_CURSOR_READY, 0);
    else if (result->outcome == NRD_OUTCOME_FAILED)
        nrd_cursor_set_state(cursor, NRD_CURSOR_RETRY, cursor->retry_ms);
    else if (result->outcome == NRD_OUTCOME_DELAYED) /* who waited may wait a little more, and brings company */
        nrd_cursor_set_state(cursor, NRD_CURSOR_DELAYED, nrd_gate_due_ms(cursor->due_ms, NRD_FANOUT_LINGER_MS));
    else if (cursor->again)
        nrd_cursor_set_state(cursor, NRD_CURSOR_LINGER, now_ms + NRD_FANOUT_LINGER_MS);
    else
        nrd_cursor_set_state(cursor, NRD_CURSOR_IDLE, 0);
    if (cursor->tidy_at_ms > 0)
        set_due(f, &f->soon, &cursor->tidy, cursor->tidy_at_ms);
    else
        nrd_due_heap_remove(&f->soon, &cursor->tidy);
}

static void *worker(void *data)
{
    NrdFanout *f = data;
    pthread_mutex_lock(&f->lock);
    while (!f->stopping) {
        if (!f->started) {
            sleep_locked(f, 0);
            continue;
        }
        int64_t until_ms = promote(f);
        NrdFanCursor *cursor = next_cursor(f);
        if (!cursor) {
            sleep_locked(f, until_ms);
            continue;
        }
        if (f->ready.head || (until_ms > 0 && !f->timekeeper))
            wake_one(f); /* for the rest, or to keep the time */
        pthread_mutex_unlock(&f->lock);
        NrdPassResult result = nrd_cursor_pass(cursor);
        pthread_mutex_lock(&f->lock);
        show(cursor, &result);
        settle(cursor, &result);
        pthread_cond_broadcast(&f->change);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

void nrd_fanout_start(NrdFanout *f)
{
    pthread_mutex_lock(&f->lock);
    f->started = true;
    pthread_cond_signal(&f->work); /* the first looks what there is, and wakes the others for it */
    pthread_mutex_unlock(&f->lock);
}

void nrd_workers_join(NrdFanout *f)
{
    pthread_mutex_lock(&f->lock);
    pthread_cond_broadcast(&f->work);
    pthread_cond_broadcast(&f->time);
    pthread_mutex_unlock(&f->lock);
    for (guint i = 0; i < f->workers->len; i++)
        pthread_join(g_array_index(f->workers, pthread_t, i), NULL);
    g_array_set_size(f->workers, 0);
}
