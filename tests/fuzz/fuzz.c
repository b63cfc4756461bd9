/* See fuzz.h. */
#include "fuzz.h"

#include "engine/base/diag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the product says about damage is no news here, and would be most of the time that a run takes. */
__attribute__((constructor)) static void silence(void)
{
    nrd_diag_set_level((NrdLevel)0);
}

void fuzz_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

static uint64_t take_number(FuzzInput *in, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = 0;
        if (in->size > 0) {
            byte = *in->data++;
            in->size--;
        }
        number = number << 8 | byte;
    }
    return number;
}

uint8_t fuzz_u8(FuzzInput *in)
{
    return (uint8_t)take_number(in, 1);
}

uint16_t fuzz_u16(FuzzInput *in)
{
    return (uint16_t)take_number(in, 2);
}

uint32_t fuzz_u32(FuzzInput *in)
{
    return (uint32_t)take_number(in, 4);
}

uint64_t fuzz_u64(FuzzInput *in)
{
    return take_number(in, 8);
}

void fuzz_fill(FuzzInput *in, uint8_t *ret_bytes, size_t size)
{
    size_t n = MIN(size, in->size);
    if (n > 0)
        memcpy(ret_bytes, in->data, n);
    memset(ret_bytes + n, 0, size - n);
    in->data += n;
    in->size -= n;
}

uint8_t *fuzz_bytes(FuzzInput *in, size_t size, size_t *ret_size)
{
    size_t n = MIN(size, in->size);
    uint8_t *copy = malloc(MAX(n, 1)); /* of exactly that size: AddressSanitizer sees a byte too far */
    FUZZ_CHECK(copy != NULL);
    if (n > 0)
        memcpy(copy, in->data, n);
    in->data += n;
    in->size -= n;
    *ret_size = n;
    return copy;
}

uint8_t *fuzz_piece(FuzzInput *in, size_t *ret_size)
{
    size_t size = fuzz_u16(in);
    return fuzz_bytes(in, size, ret_size);
}

uint8_t *fuzz_rest(FuzzInput *in, size_t *ret_size)
{
    return fuzz_bytes(in, in->size, ret_size);
}

size_t fuzz_cut(FuzzCuts *cuts, size_t left)
{
    cuts->state = cuts->state * 1664525 + 1013904223;
    uint32_t draw = cuts->state >> 16;
    size_t n = draw % 16 == 0 ? left : 1 + draw % 16;
    return MIN(n, left);
}

uint32_t fuzz_crc32c(uint32_t crc, const void *bytes, size_t size)
{
    static uint32_t table[256];
    if (table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82F63B78U : 0);
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ ((const uint8_t *)bytes)[i]) & 0xFF];
    return ~crc;
}
