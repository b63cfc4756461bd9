/* SQLite: a table a queue in one file, in WAL mode with synchronous=FULL; `address` is the file. Nobody can wait for another
 * process's record: who wants that asks again and again, which is not measured. */
#include "peer.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Connection {
    sqlite3 *db;
    char queue[MAX_QUEUE]; /* that the statements are of */
    sqlite3_stmt *put, *take, *settle;
    sqlite3_int64 ids[MAX_BATCH];
    size_t n_ids;
};

static void check(Connection *c, int rc, const char *what)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
        fail(what, sqlite3_errmsg(c->db));
}

static void run(Connection *c, const char *query)
{
    check(c, sqlite3_exec(c->db, query, NULL, NULL, NULL), query);
}

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    check(c, sqlite3_open(address, &c->db), "open");
    sqlite3_busy_timeout(c->db, 60000);
    run(c, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;");
    return c;
}

static void make(Connection *c, const char *queue)
{
    char query[200];
    snprintf(query, sizeof query,
             "CREATE TABLE IF NOT EXISTS %s (id INTEGER PRIMARY KEY, leased INTEGER, payload BLOB)", queue);
    run(c, query);
    snprintf(query, sizeof query, "CREATE INDEX IF NOT EXISTS %s_free ON %s (id) WHERE leased IS NULL", queue, queue);
    run(c, query);
}

static void prepare(Connection *c, sqlite3_stmt **statement, const char *format, const char *queue)
{
    char query[300];
    sqlite3_finalize(*statement);
    *statement = NULL;
    snprintf(query, sizeof query, format, queue, queue);
    check(c, sqlite3_prepare_v2(c->db, query, -1, statement, NULL), query);
}

static void use(Connection *c, const char *queue)
{
    if (strcmp(c->queue, queue) == 0)
        return;
    snprintf(c->queue, sizeof c->queue, "%s", queue);
    prepare(c, &c->put, "INSERT INTO %s (payload) VALUES (?)", queue);
    prepare(
        c, &c->take,
        "UPDATE %s SET leased = unixepoch() WHERE id IN (SELECT id FROM %s WHERE leased IS NULL ORDER BY id LIMIT ?) "
        "RETURNING id, payload",
        queue);
    prepare(c, &c->settle, "DELETE FROM %s WHERE id = ?", queue);
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    use(c, queue);
    run(c, "BEGIN IMMEDIATE");
    for (size_t i = 0; i < n; i++) {
        sqlite3_bind_blob(c->put, 1, payload, (int)size, SQLITE_STATIC);
        check(c, sqlite3_step(c->put), "insert");
        sqlite3_reset(c->put);
    }
    run(c, "COMMIT");
}

static size_t take(Connection *c, const char *queue, size_t n)
{
    use(c, queue);
    c->n_ids = 0;
    sqlite3_bind_int64(c->take, 1, (sqlite3_int64)n);
    int rc;
    while ((rc = sqlite3_step(c->take)) == SQLITE_ROW)
        c->ids[c->n_ids++] = sqlite3_column_int64(c->take, 0);
    check(c, rc, "lease");
    sqlite3_reset(c->take);
    return c->n_ids;
}

static void settle(Connection *c, const char *queue)
{
    use(c, queue);
    run(c, "BEGIN IMMEDIATE");
    for (size_t i = 0; i < c->n_ids; i++) {
        sqlite3_bind_int64(c->settle, 1, c->ids[i]);
        check(c, sqlite3_step(c->settle), "delete");
        sqlite3_reset(c->settle);
    }
    run(c, "COMMIT");
}

const Peer peer_sqlite = { "sqlite", open_connection, make, put, take, settle };
