/* NATS JetStream with file storage; `address` is the port. nats-server 2.9 answers a publish before any sync and has no
 * setting for that (docs of 2.10: sync_interval), so its records are weaker than everybody else's here. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Connection {
    Wire wire;
    char inbox[48]; /* of this connection alone */
    char replies[MAX_BATCH][200];
    size_t n_replies;
};

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    snprintf(c->inbox, sizeof c->inbox, "in.%d.%p", (int)getpid(), (void *)c);
    wire_connect(&c->wire, address);
    wire_line(&c->wire); /* INFO */
    wire_add(&c->wire,
             "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n"
             "SUB %s 1\r\nPING\r\n",
             c->inbox);
    wire_send(&c->wire);
    while (strcmp(wire_line(&c->wire), "PONG") != 0)
        ;
    return c;
}

/* One message: its reply subject and payload. MSG subject sid [reply] size; HMSG ... header-size size. */
static char *message(Connection *c, char *reply, size_t reply_size)
{
    for (;;) {
        char *line = wire_line(&c->wire), *words[6], *rest = NULL;
        size_t n = 0;
        if (strcmp(line, "PING") == 0) {
            wire_add(&c->wire, "PONG\r\n");
            wire_send(&c->wire);
            continue;
        }
        if (strncmp(line, "MSG ", 4) != 0 && strncmp(line, "HMSG ", 5) != 0)
            fail("nats", line);
        size_t n_fixed = line[0] == 'H' ? 5 : 4; /* without a reply subject */
        for (char *w = strtok_r(line, " ", &rest); w && n < 6; w = strtok_r(NULL, " ", &rest))
            words[n++] = w;
        if (n < n_fixed)
            fail("nats", "a message that cannot be read");
        size_t size = strtoul(words[n - 1], NULL, 10);
        snprintf(reply, reply_size, "%s", n > n_fixed ? words[3] : "");
        char *payload = wire_bytes(&c->wire, size + 2);
        payload[size] = 0;
        return payload;
    }
}

static void request(Connection *c, const char *subject, const char *queue, const char *body)
{
    wire_add(&c->wire, "PUB ");
    wire_add(&c->wire, subject, queue);
    wire_add(&c->wire, " %s %zu\r\n%s\r\n", c->inbox, strlen(body), body);
}

static void expect_good(Connection *c, const char *what)
{
    char reply[200];
    const char *answer = message(c, reply, sizeof reply);
    if (strstr(answer, "\"error\"") && !strstr(answer, "already"))
        fail(what, answer);
}

static void make(Connection *c, const char *queue)
{
    char body[400];
    snprintf(
        body, sizeof body,
        "{\"name\":\"%s\",\"subjects\":[\"q.%s\"],\"storage\":\"file\",\"retention\":\"workqueue\",\"num_replicas\":1}",
        queue, queue);
    wire_add(&c->wire, "PUB $JS.API.STREAM.CREATE.%s %s %zu\r\n%s\r\n", queue, c->inbox, strlen(body), body);
    wire_send(&c->wire);
    expect_good(c, "STREAM.CREATE");
    snprintf(body, sizeof body,
             "{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"g\",\"ack_policy\":\"explicit\",\"ack_wait\":"
             "120000000000,"
             "\"max_ack_pending\":100000}}",
             queue);
    wire_add(&c->wire, "PUB $JS.API.CONSUMER.DURABLE.CREATE.%s.g %s %zu\r\n%s\r\n", queue, c->inbox, strlen(body),
             body);
    wire_send(&c->wire);
    expect_good(c, "CONSUMER.CREATE");
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        wire_add(&c->wire, "PUB q.%s %s %zu\r\n", queue, c->inbox, size);
        wire_add_bytes(&c->wire, payload, size);
        wire_add(&c->wire, "\r\n");
    }
    wire_send(&c->wire);
    for (size_t i = 0; i < n; i++)
        expect_good(c, "publish");
}

static size_t take(Connection *c, const char *queue, size_t n)
{
    char body[64], subject[128];
    snprintf(body, sizeof body, "{\"batch\":%zu,\"expires\":60000000000}", n);
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.MSG.NEXT.%s.g", queue);
    request(c, "%s", subject, body);
    wire_send(&c->wire);
    for (c->n_replies = 0; c->n_replies < n; c->n_replies++)
        message(c, c->replies[c->n_replies], sizeof c->replies[0]);
    return n;
}

/* Confirmed, as the others' are. */
static void settle(Connection *c, const char *queue)
{
    (void)queue;
    for (size_t i = 0; i < c->n_replies; i++)
        wire_add(&c->wire, "PUB %s %s 4\r\n+ACK\r\n", c->replies[i], c->inbox);
    wire_send(&c->wire);
    for (size_t i = 0; i < c->n_replies; i++)
        expect_good(c, "ack");
}

const Peer peer_nats = { "nats", open_connection, make, put, take, settle };
