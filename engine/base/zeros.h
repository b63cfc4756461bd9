/* Runs of zero bytes: unused room in a slot, blocks written ahead of a writer. Pure. */
#ifndef NRD_BASE_ZEROS_H
#define NRD_BASE_ZEROS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool nrd_all_zero(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* The size without the zeros at the end; 0 when there is nothing else. */
static inline size_t nrd_size_without_zeros(const uint8_t *bytes, size_t size)
{
    enum { STEP = 64 };
    while (size >= STEP && nrd_all_zero(bytes + size - STEP, STEP))
        size -= STEP;
    while (size > 0 && bytes[size - 1] == 0)
        size--;
    return size;
}

#endif
