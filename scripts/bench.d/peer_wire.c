/* Lines and bytes over a TCP connection. */
#define _GNU_SOURCE
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM ((size_t)64 * 1024)

void wire_connect(Wire *wire, const char *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *wire = (Wire){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    if (wire->fd < 0 || connect(wire->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect", strerror(errno));
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void grow(char **bytes, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return;
    *capacity = size * 2 + ROOM;
    *bytes = realloc(*bytes, *capacity);
    if (!*bytes)
        fail("wire", "no memory");
}

void wire_add_bytes(Wire *wire, const char *bytes, size_t size)
{
    grow(&wire->out, &wire->out_capacity, wire->n_out + size);
    memcpy(wire->out + wire->n_out, bytes, size);
    wire->n_out += size;
}

void wire_add(Wire *wire, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        fail("wire", "a request is too long");
    wire_add_bytes(wire, text, (size_t)n);
}

void wire_send(Wire *wire)
{
    for (size_t done = 0; done < wire->n_out;) {
        ssize_t n = write(wire->fd, wire->out + done, wire->n_out - done);
        if (n <= 0)
            fail("write", strerror(errno));
        done += (size_t)n;
    }
    wire->n_out = 0;
}

/* Reads more behind what is there; what was handed out goes. */
static void read_more(Wire *wire)
{
    if (wire->pos > 0) {
        memmove(wire->in, wire->in + wire->pos, wire->n_in - wire->pos);
        wire->n_in -= wire->pos;
        wire->pos = 0;
    }
    grow(&wire->in, &wire->capacity, wire->n_in + ROOM);
    ssize_t n = read(wire->fd, wire->in + wire->n_in, ROOM);
    if (n <= 0)
        fail("read", n == 0 ? "the server has closed the connection" : strerror(errno));
    wire->n_in += (size_t)n;
}

char *wire_line(Wire *wire)
{
    for (;;) {
        char *start = wire->in + wire->pos;
        char *end = wire->n_in > wire->pos ? memmem(start, wire->n_in - wire->pos, "\r\n", 2) : NULL;
        if (end) {
            *end = 0;
            wire->pos = (size_t)(end - wire->in) + 2;
            return start;
        }
        read_more(wire);
    }
}

char *wire_bytes(Wire *wire, size_t size)
{
    while (wire->n_in - wire->pos < size)
        read_more(wire);
    wire->pos += size;
    return wire->in + wire->pos - size;
}
