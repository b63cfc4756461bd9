/* Threads for work that is handed over, one of them there from the start to the end: what is queued is always done, also
 * where the system gives no further thread. (Of glib's pools the first thread is made when there is work, which stays queued
 * for ever when that fails.)
 *
 * Others are made as they are needed, up to a number, and end when they have had nothing to do for some seconds.
 * Threads: push from any, also from fn. */
#ifndef NRD_ENGINE_BASE_POOL_H
#define NRD_ENGINE_BASE_POOL_H

typedef struct NrdPool NrdPool;

typedef void (*NrdPoolFn)(void *item, void *user_data);

/* name: of its threads, at most 15 characters. fn is called for each item. NULL: the system gave no thread. */
NrdPool *nrd_pool_new(const char *name, unsigned max_threads, NrdPoolFn fn, void *user_data);

/* Does what is queued, then ends the threads and waits for them. Nobody pushes any more. Takes NULL. */
void nrd_pool_free(NrdPool *pool);

/* item (not NULL) goes to fn on a thread of the pool, in the order of the pushes. Never blocks. */
void nrd_pool_push(NrdPool *pool, void *item);

/* Threads that naradfs has when it has just started over a data directory: the main one, one for requests, two of fs/defer.c,
 * and of the engine the timers' two, three loops, the dispatcher's and the fan-out's first. */
#define NRD_START_THREADS 11
/* ... and over NATS servers: without the loops, the dispatcher and the fan-out, but with the client's five, one each that sends,
 * that waits for servers and that answers, and two in reserve (engine/jetstream/reserve.c). */
#define NRD_START_THREADS_OVER_SERVERS 16

/* The sentence for who cannot start without a thread for `what`, of all n_threads (0: it does not say so); to be freed. */
char *nrd_pool_why_none(const char *what, unsigned n_threads);

#endif
