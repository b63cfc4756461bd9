/* See signals.h.
 *
 * The main thread looks whether the session has ended and then sleeps (loop.c); a signal between the two would be lost.
 * So the handler sets an interval timer that interrupts the sleep again and again until the loop has returned. (A handler
 * may call fuse_session_exit: libfuse's own does; all it does is to set a flag.) */
#define FUSE_USE_VERSION 312
#include "mount/signals.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#define NUDGE_US 20000

static struct fuse_session *volatile watched;

static void on_stop(int number)
{
    int saved = errno;
    struct itimerval nudge = { { 0, NUDGE_US }, { 0, NUDGE_US } };
    if (watched)
        fuse_session_exit(watched);
    setitimer(ITIMER_REAL, &nudge, NULL);
    errno = saved;
}

/* Without SA_RESTART its arrival ends the sleep. */
static void on_nudge(int number)
{
}

static int handle(int number, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    return sigaction(number, &action, NULL) < 0 ? -errno : 0;
}

/* What a thread does to itself stays: blocked, a look at a mapped file that has lost its end (engine/io/map.c) would end
 * the process. */
void nrd_signals_block(void)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t others;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, NULL);
}

bool nrd_signals_have_come(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

int nrd_signals_watch(struct fuse_session *session)
{
    sigset_t all;
    int rc = handle(SIGALRM, on_nudge);
    watched = session;
    if (rc == 0)
        rc = handle(SIGTERM, on_stop);
    if (rc == 0)
        rc = handle(SIGINT, on_stop);
    sigfillset(&all);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    return rc;
}

void nrd_signals_unwatch(void)
{
    struct itimerval none = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &none, NULL);
    (void)!handle(SIGTERM, SIG_IGN);
    (void)!handle(SIGINT, SIG_IGN);
    watched = NULL;
}
