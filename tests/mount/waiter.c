/* Waits for records in one way, and writes what it reads to its output at once, until it is killed.
 *   waiter poll|select|epoll|edge FILE [settle]
 * edge reads until there is nothing more, as edge-triggered programs do; the others read once for each wake-up. settle:
 * fsync after every read. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

static char buf[1 << 20];

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 1;
}

static int wait_poll(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    int n = poll(&poll_fd, 1, -1);
    if (n == 1 && (poll_fd.revents & (POLLERR | POLLHUP))) {
        errno = EIDRM;
        return -1;
    }
    return n;
}

static int wait_select(int fd)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, &set, NULL, NULL, NULL);
}

static int wait_epoll(int epoll_fd)
{
    struct epoll_event event;
    int n = epoll_wait(epoll_fd, &event, 1, -1);
    if (n == 1 && (event.events & (EPOLLERR | EPOLLHUP))) {
        errno = EIDRM;
        return -1;
    }
    return n;
}

/* 1: something was read; 0: nothing is there; -1: failed */
static int read_once(int fd, bool settle)
{
    ssize_t n = read(fd, buf, sizeof buf);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    if (write(STDOUT_FILENO, buf, (size_t)n) != n)
        return -1;
    return settle && fsync(fd) < 0 ? -1 : 1;
}

int main(int argc, char **argv)
{
    const char *how = argv[1];
    bool settle = argc > 3;
    bool edge = strcmp(how, "edge") == 0;
    int epoll_fd = epoll_create1(0);
    int fd = open(argv[2], (settle ? O_RDWR : O_RDONLY) | O_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN | (edge ? EPOLLET : 0) };
    if (fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return fail("open");
    fprintf(stderr, "ready\n");
    for (;;) {
        int n = strcmp(how, "poll") == 0     ? wait_poll(fd)
                : strcmp(how, "select") == 0 ? wait_select(fd)
                                             : wait_epoll(epoll_fd);
        if (n != 1)
            return fail("wait");
        do
            n = read_once(fd, settle);
        while (edge && n == 1);
        if (n < 0)
            return fail("read");
    }
}
