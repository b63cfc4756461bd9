/* SipHash-c-d of one 64-bit word: a pseudorandom function with a key of 128 bits, of c rounds for each word and d at the
 * end. 2-4 is the one its authors begin with; 1-3, which costs half of it, is what hash tables of several languages rely
 * on against inputs that an attacker chooses. Pure.
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
#ifndef NRD_BASE_SIPHASH_H
#define NRD_BASE_SIPHASH_H

#include <stdint.h>

static inline uint64_t nrd_sip_rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void nrd_sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = nrd_sip_rotate(v[1], 13) ^ v[0];
    v[3] = nrd_sip_rotate(v[3], 16) ^ v[2];
    v[0] = nrd_sip_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = nrd_sip_rotate(v[1], 17) ^ v[2];
    v[3] = nrd_sip_rotate(v[3], 21) ^ v[0];
    v[2] = nrd_sip_rotate(v[2], 32);
}

static inline void nrd_sip_word(int c, uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    for (int i = 0; i < c; i++)
        nrd_sip_round(v);
    v[0] ^= word;
}

/* key: its sixteen bytes as two little-endian numbers; the input is the eight bytes of word, the least significant
 * first. */
static inline uint64_t nrd_siphash(int c, int d, const uint64_t key[2], uint64_t word)
{
    uint64_t v[4] = { key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                      key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573) };
    nrd_sip_word(c, v, word);
    nrd_sip_word(c, v, UINT64_C(8) << 56); /* the length */
    v[2] ^= 0xff;
    for (int i = 0; i < d; i++)
        nrd_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
