/* naradfs: `address` is topics/ of the mount; a queue is a topic of one partition. Records are put and taken as lines and
 * through consume.bin; one record at a time is a write with O_DSYNC, which is its commit too, and a read of consume, settled
 * by its fsync. */
#define _GNU_SOURCE
#include "peer.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES (MAX_BATCH * (MAX_PAYLOAD + 1))
#define RECEIPT_BYTES 64
#define HEAD_BYTES 36

struct Connection {
    const char *address;
    char queue[MAX_QUEUE]; /* that the descriptors are of */
    int produce, produce_one, consume, ack, bin;
    char *buf, *receipts;
    size_t n_receipts; /* bytes */
    size_t n_taken;
};

static Connection *open_connection(const char *address)
{
    Connection *c = calloc(1, sizeof *c);
    c->address = address;
    c->produce = c->produce_one = c->consume = c->ack = c->bin = -1;
    c->buf = malloc(LINE_BYTES);
    c->receipts = malloc(MAX_BATCH * RECEIPT_BYTES);
    return c;
}

static int open_file(const Connection *c, const char *name, int flags)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/p00000/%s", c->address, c->queue, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        fail(path, strerror(errno));
    return fd;
}

static void close_file(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int use(Connection *c, const char *queue, int *fd, const char *name, int flags)
{
    if (strcmp(c->queue, queue) != 0) {
        close_file(&c->produce);
        close_file(&c->produce_one);
        close_file(&c->consume);
        close_file(&c->ack);
        close_file(&c->bin);
        snprintf(c->queue, sizeof c->queue, "%s", queue);
    }
    if (*fd < 0)
        *fd = open_file(c, name, flags);
    return *fd;
}

static void make(Connection *c, const char *queue)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", c->address, queue);
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        fail(path, strerror(errno));
}

static void put(Connection *c, const char *queue, const char *payload, size_t size, size_t n)
{
    int fd = n == 1 ? use(c, queue, &c->produce_one, "produce", O_WRONLY | O_DSYNC)
                    : use(c, queue, &c->produce, "produce", O_WRONLY);
    char *at = c->buf;
    for (size_t i = 0; i < n; i++) {
        memcpy(at, payload, size);
        at[size] = '\n';
        at += size + 1;
    }
    if (write(fd, c->buf, (size_t)(at - c->buf)) != at - c->buf || (n > 1 && fsync(fd) < 0))
        fail("produce", strerror(errno));
}

/* Receipts of what consume.bin gave. */
static size_t note_receipts(Connection *c, size_t size)
{
    size_t n = 0;
    for (size_t pos = 0; pos < size; n++) {
        uint32_t length, partition;
        uint64_t offset, nonce;
        memcpy(&length, c->buf + pos, 4);
        memcpy(&partition, c->buf + pos + 4, 4);
        memcpy(&offset, c->buf + pos + 8, 8);
        memcpy(&nonce, c->buf + pos + 16, 8);
        c->n_receipts += (size_t)sprintf(c->receipts + c->n_receipts, "%" PRIu32 ":%" PRIu64 ":%" PRIu64 "\n",
                                         be32toh(partition), be64toh(offset), be64toh(nonce));
        pos += 4 + be32toh(length);
    }
    return n;
}

static size_t take(Connection *c, const char *queue, size_t n)
{
    c->n_receipts = 0;
    if (n == 1) {
        ssize_t got = read(use(c, queue, &c->consume, "consume", O_RDWR), c->buf, LINE_BYTES);
        if (got <= 0)
            fail("consume", strerror(errno));
        return 1;
    }
    ssize_t got = read(use(c, queue, &c->bin, "consume.bin", O_RDONLY), c->buf, n * (HEAD_BYTES + 100));
    if (got <= 0)
        fail("consume.bin", strerror(errno));
    return note_receipts(c, (size_t)got);
}

/* Durably, as the peers' transactions are. */
static void settle(Connection *c, const char *queue)
{
    if (c->n_receipts == 0) {
        if (fsync(c->consume) < 0)
            fail("fsync of consume", strerror(errno));
        return;
    }
    int fd = use(c, queue, &c->ack, "ack", O_WRONLY);
    if (write(fd, c->receipts, c->n_receipts) != (ssize_t)c->n_receipts || fsync(fd) < 0)
        fail("ack", strerror(errno));
}

const Peer peer_naradfs = { "naradfs", open_connection, make, put, take, settle };
