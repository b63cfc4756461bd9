/* Redis streams with a consumer group; `address` is the port. The server runs with appendonly and appendfsync always, so an
 * answer comes after the sync. */
#include "peer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ID_BYTES 48

struct Connection {
    Wire wire;
    char ids[MAX_BATCH][ID_BYTES];
    size_t n_ids;
};

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    wire_connect(&c->wire, address);
    return c;
}

static void word(Connection *c, const char *bytes, size_t size)
{
    wire_add(&c->wire, "$%zu\r\n", size);
    wire_add_bytes(&c->wire, bytes, size);
    wire_add(&c->wire, "\r\n");
}

static void command(Connection *c, size_t n, const char *const *words)
{
    wire_add(&c->wire, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++)
        word(c, words[i], strlen(words[i]));
}

static void make(Connection *c, const char *queue)
{
    const char *const words[] = { "XGROUP", "CREATE", queue, "g", "0", "MKSTREAM" };
    const char *line;
    do { /* after a start it answers long before it has read its log */
        command(c, 6, words);
        wire_send(&c->wire);
        line = wire_line(&c->wire);
    } while (strncmp(line, "-LOADING", 8) == 0 && usleep(1000) == 0);
    if (line[0] == '-' && strncmp(line, "-BUSYGROUP", 10) != 0)
        fail("XGROUP", line);
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wire_add(&c->wire, "*5\r\n");
        word(c, "XADD", 4);
        word(c, queue, strlen(queue));
        word(c, "*", 1);
        word(c, "p", 1);
        word(c, payload, size);
    }
    wire_send(&c->wire);
    for (size_t i = 0; i < n; i++) {
        const char *line = wire_line(&c->wire);
        if (line[0] != '$')
            fail("XADD", line);
        wire_bytes(&c->wire, (size_t)atoi(line + 1) + 2);
    }
}

static size_t header(Connection *c, char kind)
{
    const char *line = wire_line(&c->wire);
    if (line[0] != kind)
        fail("XREADGROUP", line);
    return (size_t)atoi(line + 1);
}

static char *string(Connection *c)
{
    size_t size = header(c, '$');
    char *bytes = wire_bytes(&c->wire, size + 2);
    bytes[size] = 0;
    return bytes;
}

/* [[queue, [[id, [field, value]], ...]]] */
static size_t take(Connection *c, const char *queue, size_t n)
{
    char count[16];
    snprintf(count, sizeof count, "%zu", n);
    const char *const words[] = {
        "XREADGROUP", "GROUP", "g", "c", "COUNT", count, "BLOCK", "0", "STREAMS", queue, ">"
    };
    command(c, 11, words);
    wire_send(&c->wire);
    header(c, '*');
    header(c, '*');
    string(c);
    c->n_ids = header(c, '*');
    for (size_t i = 0; i < c->n_ids; i++) {
        header(c, '*');
        snprintf(c->ids[i], ID_BYTES, "%s", string(c));
        for (size_t left = header(c, '*'); left > 0; left--)
            string(c);
    }
    return c->n_ids;
}

/* XACK alone would leave the record in the stream for ever. */
static void settle(Connection *c, const char *queue)
{
    wire_add(&c->wire, "*%zu\r\n", c->n_ids + 3);
    word(c, "XACK", 4);
    word(c, queue, strlen(queue));
    word(c, "g", 1);
    for (size_t i = 0; i < c->n_ids; i++)
        word(c, c->ids[i], strlen(c->ids[i]));
    wire_add(&c->wire, "*%zu\r\n", c->n_ids + 2);
    word(c, "XDEL", 4);
    word(c, queue, strlen(queue));
    for (size_t i = 0; i < c->n_ids; i++)
        word(c, c->ids[i], strlen(c->ids[i]));
    wire_send(&c->wire);
    for (int i = 0; i < 2; i++) {
        const char *line = wire_line(&c->wire);
        if (line[0] != ':' || (size_t)atoi(line + 1) != c->n_ids)
            fail("XACK and XDEL", line);
    }
}

const Peer peer_redis = { "redis", open_connection, make, put, take, settle };
