/* A line of waiting readers, and those who watch for something to read: one for each partition, one for each topic.
 *
 * Who asks and finds nothing stands in line, first come, first served. A wake-up hands each record to exactly one waiter.
 * One thread at a time hands out: a wake-up that finds another one at work leaves word, so a reply that fails and gives
 * its lease back cannot recurse, and a commit never wakes more readers than it has records for.
 *
 * The fast path of a commit is one load of n_waiting. It is raised before the line is joined and its source looked at once
 * more, and the commit looks at it after the high watermark moved (both sequentially consistent): one of the two sees
 * the other.
 *
 * Locks: line->lock > whatever the source's functions take; never held across a callback. */
#ifndef NRD_ENGINE_LINE_H
#define NRD_ENGINE_LINE_H

#include "engine/engine.h"
#include "engine/queue/queue.h"
#include "engine/timer.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct NrdLineSource {
    /* A lease for a waiter, of `only` this partition or (NULL) of any; false: nothing to be had. sure: see
     * nrd_partition_take_sure. Memory only. */
    bool (*lease)(void *owner, bool sure, NrdPartition *only, NrdPartition **ret_partition, NrdLease *ret_lease);
    bool (*deliverable)(void *owner, NrdPartition *only);
    bool (*has_others)(void *owner); /* a partition that cannot be read is not the waiter's failure: there are others */
    int (*error)(void *owner);       /* why nothing can be had any more, or 0 */
} NrdLineSource;

typedef struct NrdLine {
    const NrdLineSource *source;
    void *owner;
    NrdTimers *timers;
    atomic_int n_waiting; /* waiters in line, watches, and who is about to join */
    GMutex lock;
    /* guarded by lock */
    GQueue waiters; /* of NrdWaiter*, by their link */
    GQueue watches; /* of NrdWatch*, by their link */
    bool waking;
    bool wake_again; /* for any partition */
    NrdTimer wait_timer;
} NrdLine;

void nrd_line_init(NrdLine *line, const NrdLineSource *source, void *owner, NrdTimers *timers);
void nrd_line_clear(NrdLine *line); /* nobody is in it */

/* As nrd_partition_take. */
void nrd_line_take(NrdLine *line, NrdWaiter *waiter, int64_t wait_ms, NrdDeliverFn deliver, void *user_data);
bool nrd_line_cancel(NrdLine *line, NrdWaiter *waiter);

/* Hands out what has become deliverable in `only` (NULL: anywhere). No lock held. */
void nrd_line_wake(NrdLine *line, NrdPartition *only);

/* Answers every waiter with error and fires every watch. */
void nrd_line_interrupt(NrdLine *line, int error);

void nrd_line_watch_set(NrdLine *line, NrdWatch *watch, void (*notify)(void *user_data), void *user_data);
bool nrd_line_watch_clear(NrdLine *line, NrdWatch *watch);

#endif
