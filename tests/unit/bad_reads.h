/* One bad read on a well disk: a byte of what one pread returns is wrong. Either in that read alone, or in every read of that
 * place until the file's pages are dropped, as when a page is spoilt in memory. One thread.
 *
 *     for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) { ...; bad_read_end(&bad); }
 *
 * goes over every read of what stands in between, both ways, until a round has no such read any more. */
#ifndef NRD_TESTS_BAD_READS_H
#define NRD_TESTS_BAD_READS_H

#include "engine/io/io.h"

typedef struct BadRead {
    unsigned nth;   /* the read, from 1 */
    unsigned byte;  /* of what it returns, modulo its length; odd: from its end */
    bool in_memory; /* until the pages are dropped */
    bool fired;
    unsigned n_rounds;
} BadRead;

static NrdIo bad_read_io;
static const NrdIo *bad_read_before;
static BadRead bad_read;
static unsigned bad_read_n;
static int64_t bad_read_pos; /* of the spoilt byte; -1: none */

static inline ssize_t bad_read_pread(int fd, void *buf, size_t size, int64_t pos)
{
    ssize_t n = bad_read_before->pread(fd, buf, size, pos);
    if (n > 0 && ++bad_read_n == bad_read.nth) {
        bad_read_pos = pos + (bad_read.byte % 2 == 0 ? bad_read.byte % n : n - 1 - bad_read.byte % n);
        bad_read.fired = true;
    }
    if (n > 0 && bad_read_pos >= pos && bad_read_pos < pos + n) {
        ((uint8_t *)buf)[bad_read_pos - pos] ^= 0x01;
        bad_read_pos = bad_read.in_memory ? bad_read_pos : -1;
    }
    return n;
}

static inline int bad_read_drop_cache(int fd)
{
    bad_read_pos = -1;
    return bad_read_before->drop_cache(fd);
}

static inline BadRead bad_read_first(void)
{
    return (BadRead){ .nth = 1 };
}

/* False when all were tried. */
static inline bool bad_read_begin(BadRead *bad)
{
    if (bad->byte > 64)
        return false;
    bad->fired = false;
    bad_read = *bad;
    bad_read_n = 0;
    bad_read_pos = -1;
    bad_read_before = nrd_io;
    bad_read_io = *nrd_io;
    bad_read_io.pread = bad_read_pread;
    bad_read_io.drop_cache = bad_read_drop_cache;
    nrd_io = &bad_read_io;
    return true;
}

static inline void bad_read_end(BadRead *bad)
{
    bad->fired = bad_read.fired;
    nrd_io = bad_read_before;
}

/* The other way, the next read, another byte. */
static inline void bad_read_next(BadRead *bad)
{
    bad->n_rounds++;
    if (bad->fired && !bad->in_memory) {
        bad->in_memory = true;
        return;
    }
    bad->in_memory = false;
    bad->nth++;
    if (!bad->fired) {
        g_assert_cmpuint(bad->nth, >, 2); /* there was one to spoil */
        bad->nth = 1;
        bad->byte += 7;
    }
}

#endif
