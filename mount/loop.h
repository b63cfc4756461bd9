/* The session's loop: threads that take requests from the kernel and process them.
 *
 * libfuse's own (fuse_session_loop_mt) ends its threads by pthread_cancel, which unwinds them out of the middle of a
 * read(2) and needs libgcc_s at that moment. Here nobody is cancelled: each thread ends by itself between two requests. */
#ifndef NRD_MOUNT_LOOP_H
#define NRD_MOUNT_LOOP_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

struct fuse_session;

typedef struct NrdLoopOptions {
    struct fuse_session *session;
    unsigned max_threads;
    int64_t alive_ms; /* how often to call alive; 0: never */
    void (*alive)(
        void); /* requests are being taken: not called while every thread is processing the same as last time */
    void (*begun)(void *user_data);  /* the first thread is there */
    void (*ending)(void *user_data); /* no further request is taken; those that were are still to be waited for */
    void *user_data;
} NrdLoopOptions;

/* Whether the system gives one more thread: the loop's first, before which fusermount3 needs its place. Asked before the
 * mount, of whose failure only libfuse could tell. */
bool nrd_loop_can_begin(void);

/* Serves until the session has ended: by fuse_session_exit (a signal's handler calls it, and interrupts this thread), by
 * the unmount, or because the connection was cut. Requests that were taken are processed to their end; what the kernel
 * still has queued is not taken. Up to max_threads threads (at least one, at most NRD_LOOP_MAX_THREADS) are made as they are
 * needed, and stay. begun, alive and ending are called on the main thread. From then on reading the session's descriptor does not wait.
 * Uses SIGUSR1, for its threads. Returns 0, or what failed: making the first thread (-EAGAIN), or reading from the kernel. On the
 * main thread; blocks. */
int nrd_loop_run(const NrdLoopOptions *options) NRD_MUST_CHECK;

#define NRD_LOOP_MAX_THREADS 1024

#endif
