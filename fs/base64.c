/* See base64.h. */
#include "fs/base64.h"

#include <errno.h>

#define BAD 64u

static uint32_t value_of(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A' + 0u;
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26u;
    if (c >= '0' && c <= '9')
        return c - '0' + 52u;
    return c == '+' ? 62 : c == '/' ? 63 : BAD;
}

/* Four letters; n_pad of them, the last ones, are padding. */
static int decode_four(const uint8_t *text, size_t n_pad, uint32_t *ret_bits)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) {
        uint32_t value = i < 4 - n_pad ? value_of(text[i]) : 0;
        if (value == BAD)
            return -EINVAL;
        bits = bits << 6 | value;
    }
    if (bits & ((1u << 8 * n_pad) - 1)) /* bits of the last letter that no byte takes up */
        return -EINVAL;
    *ret_bits = bits;
    return 0;
}

int nrd_base64_decode(const uint8_t *text, size_t size, uint8_t *out, size_t *ret_size)
{
    size_t n_out = 0;
    if (size % 4 != 0)
        return -EINVAL;
    size_t n_pad = size == 0 || text[size - 1] != '=' ? 0 : text[size - 2] != '=' ? 1 : 2;
    for (size_t pos = 0; pos < size; pos += 4) {
        uint32_t bits;
        size_t pad = pos + 4 == size ? n_pad : 0;
        int error = decode_four(text + pos, pad, &bits);
        if (error < 0)
            return error;
        for (size_t i = 0; i < 3 - pad; i++)
            out[n_out++] = (uint8_t)(bits >> (16 - 8 * i));
    }
    *ret_size = n_out;
    return 0;
}
