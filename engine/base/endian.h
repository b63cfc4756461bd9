/* Reading and writing integers at unaligned places, big-endian, and base-128 varints. Pure. */
#ifndef NRD_BASE_ENDIAN_H
#define NRD_BASE_ENDIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t nrd_get_be32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

static inline uint64_t nrd_get_be64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}

static inline void nrd_put_be32(void *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof v);
}

static inline void nrd_put_be64(void *p, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof v);
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the swaps above suppose a little-endian machine");

/* Most bytes that a 64-bit varint takes. */
#define NRD_UVARINT_MAX 10

/* Writes v as an unsigned LEB128 varint (the uvarint of Go's encoding/binary); returns the bytes written, at most
 * NRD_UVARINT_MAX. */
static inline size_t nrd_put_uvarint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        p[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    p[n++] = (uint8_t)v;
    return n;
}

/* Reads a varint from p[0..size); returns the bytes read, or 0 when it is cut short or does not fit in 64 bits. */
static inline size_t nrd_get_uvarint(const uint8_t *p, size_t size, uint64_t *ret_v)
{
    uint64_t v = 0;
    if (size > 0 && p[0] < 0x80) { /* most are short */
        *ret_v = p[0];
        return 1;
    }
    for (size_t n = 0; n < size && n < NRD_UVARINT_MAX; n++) {
        if (n == NRD_UVARINT_MAX - 1 && p[n] > 1)
            return 0;
        v |= (uint64_t)(p[n] & 0x7f) << (7 * n);
        if (p[n] < 0x80) {
            *ret_v = v;
            return n + 1;
        }
    }
    return 0;
}

#endif
