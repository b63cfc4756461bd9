/* See notify.h. */
#include "mount/notify.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A path, or a name in the abstract name space, written with an `@`. */
static bool address_of(const char *name, struct sockaddr_un *ret_address, socklen_t *ret_size)
{
    size_t length = strlen(name);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if ((name[0] != '/' && name[0] != '@') || length < 2 || length >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, name, length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    *ret_address = address;
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

void nrd_notify(const char *state)
{
    const char *name = g_getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t size;
    if (!name || !address_of(name, &address, &size))
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    close(fd);
}

int64_t nrd_notify_watchdog_ms(void)
{
    const char *usec = g_getenv("WATCHDOG_USEC");
    const char *pid = g_getenv("WATCHDOG_PID"); /* whom it is meant for */
    guint64 value;
    if (!usec || !g_ascii_string_to_unsigned(usec, 10, 3000, G_MAXINT64, &value, NULL))
        return 0;
    if (pid && g_ascii_strtoull(pid, NULL, 10) != (guint64)getpid())
        return 0;
    return (int64_t)(value / 3000);
}
