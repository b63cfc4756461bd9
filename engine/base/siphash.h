/* SipHash-2-4 of one 64-bit word: a pseudorandom function with a key of 128 bits. Pure.
 * Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
#ifndef NRD_BASE_SIPHASH_H
#define NRD_BASE_SIPHASH_H

#include <stdint.h>

/* key: its sixteen bytes as two little-endian numbers; the input is the eight bytes of word, the least significant
 * first. */
uint64_t nrd_siphash(const uint64_t key[2], uint64_t word);

#endif
