#include "mount/background.h"

#include "engine/base/diag.h"
#include "mount/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int ready_fd = -1; /* the daemon's end of the pipe */

/* The command: waits for a byte or for the daemon's end. */
static _Noreturn void wait_for_daemon(int fd)
{
    char byte;
    ssize_t n;
    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    _exit(n == 1 ? EXIT_SUCCESS : EXIT_FAILURE);
}

int nrd_background_fork(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid > 0) {
        close(fds[1]);
        wait_for_daemon(fds[0]);
    }
    close(fds[0]);
    ready_fd = fds[1];
    setsid(); /* cannot fail in a fresh child */
    /* No working folder is held back from being unmounted; all paths are absolute by now. */
    return chdir("/") < 0 ? -errno : 0;
}

static void let_go_of_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return; /* keeps the terminal: nothing worse */
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
}

void nrd_background_ready(void)
{
    nrd_notify("READY=1");
    if (ready_fd < 0)
        return;
    nrd_diag_use_syslog("naradfs");
    let_go_of_terminal();
    ssize_t n;
    do
        n = write(ready_fd, "r", 1);
    while (n < 0 && errno == EINTR);
    close(ready_fd);
    ready_fd = -1;
}
