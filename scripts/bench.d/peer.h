/* What a queue has to do for scripts/bench peers, whoever it is: records are put durably, leased, and settled. One folder of
 * functions for each of them; peers.c is the work that all of them are given. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

#define MAX_BATCH 1000
#define MAX_PAYLOAD 1024
#define MAX_QUEUE 64

typedef struct Connection Connection; /* of each peer's own making */

typedef struct Peer {
    const char *name;
    /* A connection to the server at `address` (a folder, a port, a file), for one thread. */
    Connection *(*open)(const char *address);
    /* Makes the queue; it may be there. */
    void (*make)(Connection *connection, const char *queue);
    /* Returns when all n records are as durable as this peer makes them. */
    void (*put)(Connection *connection, const char *queue, const char *payload, size_t size, size_t n);
    /* Leases up to n (at most MAX_BATCH) records, waits for the first; the connection remembers them. How many. NULL: this
     * peer cannot wait. */
    size_t (*take)(Connection *connection, const char *queue, size_t n);
    /* Settles what the last take has leased. */
    void (*settle)(Connection *connection, const char *queue);
} Peer;

extern const Peer peer_naradfs, peer_redis, peer_beanstalkd, peer_nats, peer_postgresql, peer_sqlite;

_Noreturn void fail(const char *what, const char *why);

/* ---- for the peers that speak a protocol of lines over TCP ---- */

typedef struct Wire {
    int fd;
    char *in;
    size_t n_in, pos, capacity;
    char *out;
    size_t n_out, out_capacity;
} Wire;

void wire_connect(Wire *wire, const char *port); /* on 127.0.0.1 */
void wire_add(Wire *wire, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wire_add_bytes(Wire *wire, const char *bytes, size_t size);
void wire_send(Wire *wire); /* what was added */

/* The next line without its CR LF, NUL-terminated; the next size bytes. Good until the next call. */
char *wire_line(Wire *wire);
char *wire_bytes(Wire *wire, size_t size);

#endif
