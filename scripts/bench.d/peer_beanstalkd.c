/* beanstalkd; `address` is the port. The server runs with -b and -f 0, so it syncs before it answers a put; a delete is written
 * to the same log. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Connection {
    Wire wire;
    char queue[MAX_QUEUE]; /* that is used and watched */
    char ids[MAX_BATCH][24];
    size_t n_ids;
};

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    wire_connect(&c->wire, address);
    return c;
}

static void expect(Connection *c, const char *word)
{
    const char *line = wire_line(&c->wire);
    if (strncmp(line, word, strlen(word)) != 0)
        fail(word, line);
}

static void make(Connection *c, const char *queue)
{
    if (strcmp(c->queue, queue) == 0)
        return;
    snprintf(c->queue, sizeof c->queue, "%s", queue);
    wire_add(&c->wire, "use %s\r\nwatch %s\r\n", queue, queue);
    wire_send(&c->wire);
    expect(c, "USING");
    expect(c, "WATCHING");
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    make(c, queue);
    for (size_t i = 0; i < n; i++) {
        wire_add(&c->wire, "put 0 0 120 %zu\r\n", size);
        wire_add_bytes(&c->wire, payload, size);
        wire_add(&c->wire, "\r\n");
    }
    wire_send(&c->wire);
    for (size_t i = 0; i < n; i++)
        expect(c, "INSERTED");
}

/* It has no batches: so many requests at once. */
static size_t take(Connection *c, const char *queue, size_t n)
{
    make(c, queue);
    for (size_t i = 0; i < n; i++)
        wire_add(&c->wire, "reserve\r\n");
    wire_send(&c->wire);
    for (size_t i = 0; i < n; i++) {
        const char *line = wire_line(&c->wire);
        unsigned size;
        if (sscanf(line, "RESERVED %23s %u", c->ids[i], &size) != 2)
            fail("reserve", line);
        wire_bytes(&c->wire, size + 2);
    }
    return c->n_ids = n;
}

static void settle(Connection *c, const char *queue)
{
    (void)queue;
    for (size_t i = 0; i < c->n_ids; i++)
        wire_add(&c->wire, "delete %s\r\n", c->ids[i]);
    wire_send(&c->wire);
    for (size_t i = 0; i < c->n_ids; i++)
        expect(c, "DELETED");
}

const Peer peer_beanstalkd = { "beanstalkd", open_connection, make, put, take, settle };
