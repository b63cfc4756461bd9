/* See loop.h.
 *
 * A thread waits for requests in read(2) on the session's descriptor, where the kernel wakes one thread a request. (Waiting
 * in poll(2), with an event to stop by beside it, would wake all that are idle for each.) To end one there, the
 * descriptor is made non-blocking first, and then the thread gets a signal that does nothing: it is in the read, which
 * the signal ends, or it comes to the read later, which does not wait any more. Nothing is left to chance and one signal
 * is enough. A thread that is processing is not disturbed, so that no system call of the engine is interrupted.
 *
 * A request may wait for the disk for long; another thread is made when the last idle one has taken a request. With all
 * of them in the engine the kernel keeps what comes: none waits there for a request that is not taken yet (rmdir, which
 * waits for closes, gives up after a moment), so one thread is enough to get on.
 *
 * After a write most programs sync, or write on, within microseconds, and to be woken for that takes longer than to look: so
 * a thread that is done with a write looks for the next request for a moment before it waits. One thread at a time does,
 * only with another processor for the program, not while others work at requests for whom that processor is (sixteen
 * producers, each with a partition of its own), and only as often as it helped.
 *
 * An interrupt that is taken when its request has just been answered on another thread is kept by libfuse for the next
 * request (fuse_lowlevel.c, check_interrupt: each takes one from that list). After the last request it would stay allocated,
 * and be the same to a leak checker as a request that nobody answers. So those that may be kept are counted, and as many
 * requests that ask for nothing are processed at the end. */
#define FUSE_USE_VERSION 312
#include "mount/loop.h"

#include "engine/base/diag.h"
#include "engine/base/threads.h"
#include "mount/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <glib.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define KICK SIGUSR1
#define NO_MEMORY_PAUSE_NS 20000000
#define LOOK_US 40  /* about what a wake-up takes */
#define LUCK_MAX 16 /* looks that may fail in a row before they get rare */
#define RARELY 64   /* then one in so many */

typedef struct Loop Loop;

typedef struct Worker {
    Loop *loop;
    pthread_t thread;
    atomic_bool receiving; /* it is in the read, or about to be, or has just come from it */
    bool wrote;            /* its last request was a write */
} Worker;

struct Loop {
    struct fuse_session *session;
    unsigned max_threads;
    sem_t ended; /* the session has ended by itself */
    atomic_bool ending;
    unsigned look_below; /* workers that process requests, for one to look: half of the processors */
    atomic_bool looking; /* a worker looks for the next request */
    /* of who looks */
    int luck;                /* rises with each look that found something, falls with each that did not */
    unsigned n_skipped;      /* looks, since luck ran out */
    atomic_uint n_idle;      /* workers that no request has been given to */
    atomic_uint n_busy;      /* the others */
    atomic_uint n_processed; /* requests; may wrap */
    atomic_uint n_kept;      /* interrupts in libfuse's list, at most, but for those that are being processed */
    atomic_int error;        /* the first, negative; 0 */
    pthread_mutex_t lock;
    /* guarded by lock, which is held while a thread is made; read without it when no thread can be made any more */
    GPtrArray *workers; /* of Worker* */
    bool refused;       /* the system gave no further thread; told once */
};

static void on_kick(int number)
{
}

/* ---- a worker ---- */

static void *work(void *data);

/* A worker that counts as idle from the start. Lock held. */
static int add_worker_locked(Loop *loop)
{
    Worker *worker = g_new0(Worker, 1);
    sigset_t mask;
    worker->loop = loop;
    atomic_fetch_add(&loop->n_idle, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    nrd_signals_block(); /* it takes none of the daemon's, nor does what it starts */
    int rc = pthread_create(&worker->thread, NULL, work, worker); /* a positive error */
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (rc != 0) {
        atomic_fetch_sub(&loop->n_idle, 1);
        g_free(worker);
        return -rc;
    }
    g_ptr_array_add(loop->workers, worker);
    return 0;
}

/* Nobody is left to take the next request. */
static void grow(Loop *loop)
{
    int rc = 0;
    pthread_mutex_lock(&loop->lock);
    if (!atomic_load(&loop->ending) && atomic_load(&loop->n_idle) == 0 && loop->workers->len < loop->max_threads &&
        nrd_threads_may_begin())
        rc = add_worker_locked(loop);
    if (rc < 0)
        nrd_threads_note_refused();
    bool tell = rc < 0 && !loop->refused;
    loop->refused = rc < 0;
    pthread_mutex_unlock(&loop->lock);
    if (tell)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "no further thread for requests could be made: %s; %s",
                 g_strerror(-rc), "those that are there go on");
}

/* What stays in a pipe is a large write. */
static bool is_interrupt(const struct fuse_buf *request)
{
    return !(request->flags & FUSE_BUF_IS_FD) &&
           ((const struct fuse_in_header *)request->mem)->opcode == FUSE_INTERRUPT;
}

/* Before the request that takes one from libfuse's list: an interrupt that comes between is counted for the next. */
static void take_kept(Loop *loop)
{
    unsigned n = atomic_load(&loop->n_kept);
    while (n > 0 && !atomic_compare_exchange_weak(&loop->n_kept, &n, n - 1))
        ;
}

static bool is_write(const struct fuse_buf *request)
{
    return !(request->flags & FUSE_BUF_IS_FD) && ((const struct fuse_in_header *)request->mem)->opcode == FUSE_WRITE;
}

static void process(Loop *loop, const struct fuse_buf *request)
{
    bool interrupt = is_interrupt(request);
    if (atomic_fetch_sub(&loop->n_idle, 1) == 1)
        grow(loop);
    if (!interrupt)
        take_kept(loop);
    atomic_fetch_add(&loop->n_busy, 1);
    fuse_session_process_buf(loop->session, request);
    atomic_fetch_sub(&loop->n_busy, 1);
    if (interrupt)
        atomic_fetch_add(&loop->n_kept, 1);
    atomic_fetch_add(&loop->n_processed, 1);
    atomic_fetch_add(&loop->n_idle, 1);
}

static bool has_ended(Loop *loop)
{
    return atomic_load(&loop->ending) || fuse_session_exited(loop->session);
}

/* The unmount (0), or a failure: everybody ends. Of a connection that is cut, those that were just being given a request
 * are told -ECONNABORTED, the others 0. */
static void end(Loop *loop, int rc)
{
    int none = 0;
    if (rc < 0 && rc != -ECONNABORTED)
        atomic_compare_exchange_strong(&loop->error, &none, rc);
    fuse_session_exit(loop->session);
    sem_post(&loop->ended);
}

/* What a failed read of a request means: true, that one is to try again. */
static bool passes(int rc)
{
    const struct timespec pause = { 0, NO_MEMORY_PAUSE_NS };
    if (rc == -ENOMEM) /* for the buffer of a thread */
        nanosleep(&pause, NULL);
    return rc == -EINTR || rc == -EAGAIN || rc == -ENOENT || rc == -ENOMEM;
}

/* Whether the next look is likely to help, or it is time to try again. */
static bool is_worth_looking(Loop *loop)
{
    if (loop->luck > 0)
        return true;
    loop->n_skipped = (loop->n_skipped + 1) % RARELY;
    return loop->n_skipped == 0;
}

static bool look(Loop *loop)
{
    struct pollfd device = { fuse_session_fd(loop->session), POLLIN, 0 };
    gint64 until_us = g_get_monotonic_time() + LOOK_US;
    do {
        if (poll(&device, 1, 0) != 0)
            return true;
    } while (g_get_monotonic_time() < until_us);
    return false;
}

/* Nobody has to find anything: the read that follows waits. */
static void look_after_a_write(Worker *worker)
{
    Loop *loop = worker->loop;
    if (!worker->wrote || atomic_load(&loop->n_busy) >= loop->look_below || atomic_exchange(&loop->looking, true))
        return;
    if (is_worth_looking(loop))
        loop->luck = look(loop) ? MIN(loop->luck + 2, LUCK_MAX) : MAX(loop->luck - 1, 0);
    atomic_store(&loop->looking, false);
}

static int receive(Worker *worker, struct fuse_buf *request)
{
    look_after_a_write(worker);
    atomic_store(&worker->receiving, true);
    int rc = has_ended(worker->loop) ? -EINTR : fuse_session_receive_buf(worker->loop->session, request);
    atomic_store(&worker->receiving, false);
    return rc;
}

static void *work(void *data)
{
    Worker *worker = data;
    struct fuse_buf request = { 0 }; /* libfuse allocates its memory at the first receive */
    sigset_t kick;
    sigemptyset(&kick);
    sigaddset(&kick, KICK);
    pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
    pthread_setname_np(pthread_self(), "naradfs-request"); /* for who looks with top or a debugger */
    while (!has_ended(worker->loop)) {
        int n = receive(worker, &request);
        if (n > 0) {
            worker->wrote = is_write(&request);
            process(worker->loop, &request);
        } else if (!passes(n)) {
            end(worker->loop, n);
            break;
        }
    }
    free(request.mem);
    return NULL;
}

/* ---- the main thread ---- */

static void *do_nothing(void *data)
{
    return data;
}

bool nrd_loop_can_begin(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, do_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Without O_NONBLOCK before it a signal could come just before the read. F_SETFL of a descriptor that is open does not
 * fail. */
static void end_workers(Loop *loop, const NrdLoopOptions *options)
{
    pthread_mutex_lock(&loop->lock); /* who makes a thread has done so */
    atomic_store(&loop->ending, true);
    pthread_mutex_unlock(&loop->lock);
    int rc = set_nonblocking(fuse_session_fd(loop->session));
    g_assert(rc == 0);
    for (guint i = 0; i < loop->workers->len; i++) {
        Worker *worker = loop->workers->pdata[i];
        if (atomic_load(&worker->receiving))
            pthread_kill(worker->thread, KICK);
    }
    options->ending(options->user_data);
    for (guint i = 0; i < loop->workers->len; i++)
        pthread_join(((Worker *)loop->workers->pdata[i])->thread, NULL);
}

/* No thread is left. Each makes libfuse answer one that it keeps, which the kernel does not know any more. */
static void drop_kept(Loop *loop)
{
    struct {
        struct fuse_in_header header;
        struct fuse_batch_forget_in forget; /* of no node */
    } nothing = { .header = { .len = sizeof nothing, .opcode = FUSE_BATCH_FORGET } };
    struct fuse_buf request = { .size = sizeof nothing, .mem = &nothing };
    for (unsigned n = atomic_load(&loop->n_kept); n > 0; n--)
        fuse_session_process_buf(loop->session, &request);
}

/* A deadlock looks like this, and a disk that hangs. */
static bool is_stuck(Loop *loop, unsigned *last_processed)
{
    unsigned n = atomic_load(&loop->n_processed);
    bool same = n == *last_processed;
    *last_processed = n;
    pthread_mutex_lock(&loop->lock);
    bool full = loop->workers->len >= loop->max_threads || loop->refused;
    pthread_mutex_unlock(&loop->lock);
    return same && full && atomic_load(&loop->n_idle) == 0;
}

/* A signal interrupts the sleep, again and again (signals.c). */
static void wait_for_end(Loop *loop, const NrdLoopOptions *options)
{
    unsigned last_processed = 0;
    struct timespec next;
    while (!fuse_session_exited(loop->session)) {
        if (options->alive_ms == 0) {
            sem_wait(&loop->ended);
            continue;
        }
        if (!is_stuck(loop, &last_processed))
            options->alive();
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec += options->alive_ms / 1000;
        next.tv_nsec += options->alive_ms % 1000 * 1000000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        sem_clockwait(&loop->ended, CLOCK_MONOTONIC, &next);
    }
}

static void init(Loop *loop, struct fuse_session *session, unsigned max_threads)
{
    struct sigaction action = { .sa_handler = on_kick }; /* no SA_RESTART: it ends the read */
    sigaction(KICK, &action, NULL);
    loop->session = session;
    loop->look_below = g_get_num_processors() / 2;
    loop->luck = LUCK_MAX;
    loop->max_threads = CLAMP(max_threads, 1, NRD_LOOP_MAX_THREADS);
    loop->workers = g_ptr_array_new_with_free_func(g_free);
    sem_init(&loop->ended, 0, 0);
    pthread_mutex_init(&loop->lock, NULL);
}

static void clear(Loop *loop)
{
    g_ptr_array_unref(loop->workers);
    sem_destroy(&loop->ended);
    pthread_mutex_destroy(&loop->lock);
}

int nrd_loop_run(const NrdLoopOptions *options)
{
    Loop loop = { 0 };
    init(&loop, options->session, options->max_threads);
    pthread_mutex_lock(&loop.lock);
    int rc = add_worker_locked(&loop);
    pthread_mutex_unlock(&loop.lock);
    if (rc == 0) {
        options->begun(options->user_data);
        wait_for_end(&loop, options);
        end_workers(&loop, options);
        drop_kept(&loop);
        rc = atomic_load(&loop.error);
    }
    clear(&loop);
    return rc;
}
