/* A 64-bit hash to recognise bytes seen before and to make inode numbers. Not cryptographic: who forges a collision
 * deceives only their own handle. Pure. */
#ifndef NRD_FS_HASH_H
#define NRD_FS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t nrd_hash_mix(uint64_t h)
{
    h ^= h >> 31;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Continue a hash by passing the previous one as seed. */
static inline uint64_t nrd_hash(uint64_t seed, const void *data, size_t size)
{
    const uint8_t *p = data;
    uint64_t h = nrd_hash_mix(seed ^ size ^ UINT64_C(0x6e61726166730001));
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = nrd_hash_mix(h ^ word);
    }
    uint64_t rest = 0;
    memcpy(&rest, p, size);
    return nrd_hash_mix(h ^ rest);
}

#endif
