/* PostgreSQL: a table a queue, leased with SKIP LOCKED; `address` is a connection string. Who waits listens to a notification
 * and asks again. */
#include "peer.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Connection {
    PGconn *pg;
    bool listens;
    char *ids; /* of the last take: {1,2,3} */
    char *payloads;
};

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    c->pg = PQconnectdb(address);
    if (PQstatus(c->pg) != CONNECTION_OK)
        fail("postgresql", PQerrorMessage(c->pg));
    c->ids = malloc(MAX_BATCH * 24);
    c->payloads = malloc(MAX_BATCH * (MAX_PAYLOAD + 8));
    return c;
}

/* The caller clears the result. */
static PGresult *run(Connection *c, const char *query, int n, const char *const *values)
{
    PGresult *result = n > 0 ? PQexecParams(c->pg, query, n, NULL, values, NULL, NULL, 0) : PQexec(c->pg, query);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(query, PQerrorMessage(c->pg));
    return result;
}

static void make(Connection *c, const char *queue)
{
    char query[400];
    snprintf(query, sizeof query,
             "SET client_min_messages = warning; CREATE TABLE IF NOT EXISTS %s (id bigserial PRIMARY KEY, leased "
             "timestamptz, "
             "payload text)",
             queue);
    PQclear(run(c, query, 0, NULL));
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    char query[400], *at = c->payloads;
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%c%.*s", i == 0 ? '{' : ',', (int)size, payload);
    strcpy(at, "}");
    snprintf(query, sizeof query,
             "WITH put AS (INSERT INTO %s (payload) SELECT unnest($1::text[])) SELECT pg_notify('%s', '')", queue,
             queue);
    const char *values[] = { c->payloads };
    PQclear(run(c, query, 1, values));
}

static void listen_once(Connection *c, const char *queue)
{
    char query[100];
    if (c->listens)
        return;
    snprintf(query, sizeof query, "LISTEN %s", queue);
    PQclear(run(c, query, 0, NULL));
    c->listens = true;
}

static void wait_for_notification(Connection *c)
{
    PGnotify *notify;
    for (;;) {
        PQconsumeInput(c->pg);
        if ((notify = PQnotifies(c->pg))) {
            PQfreemem(notify);
            return;
        }
        struct pollfd fd = { .fd = PQsocket(c->pg), .events = POLLIN };
        poll(&fd, 1, -1);
    }
}

static size_t take_now(Connection *c, const char *queue, size_t n)
{
    char query[500];
    snprintf(query, sizeof query,
             "UPDATE %s SET leased = now() WHERE id IN (SELECT id FROM %s WHERE leased IS NULL ORDER BY id LIMIT %zu "
             "FOR UPDATE "
             "SKIP LOCKED) RETURNING id, payload",
             queue, queue, n);
    PGresult *result = run(c, query, 0, NULL);
    int count = PQntuples(result);
    char *at = c->ids;
    for (int i = 0; i < count; i++)
        at += sprintf(at, "%c%s", i == 0 ? '{' : ',', PQgetvalue(result, i, 0));
    strcpy(at, "}");
    PQclear(result);
    return (size_t)count;
}

static size_t take(Connection *c, const char *queue, size_t n)
{
    size_t count;
    while ((count = take_now(c, queue, n)) == 0) {
        if (!c->listens) /* then look again: what came in between was not told */
            listen_once(c, queue);
        else
            wait_for_notification(c);
    }
    return count;
}

static void settle(Connection *c, const char *queue)
{
    char query[200];
    snprintf(query, sizeof query, "DELETE FROM %s WHERE id = ANY($1::bigint[])", queue);
    const char *values[] = { c->ids };
    PQclear(run(c, query, 1, values));
}

const Peer peer_postgresql = { "postgresql", open_connection, make, put, take, settle };
