/* Receipts are text that consumers keep, pass around and send back: every byte of it is hostile until it is parsed.
 * The form is strict, one text for one receipt, so that a receipt can be compared as text. */
#include "engine/queue/receipt.h"

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Up to eight bytes of the text from pos on, the first in the lowest byte; zeros behind its end. */
static uint64_t load_bytes(const char *text, size_t size, size_t pos)
{
    uint64_t bytes = 0;
    size_t n = MIN(size - pos, sizeof bytes);
    if (n == sizeof bytes) {
        memcpy(&bytes, text + pos, sizeof bytes);
        return GUINT64_FROM_LE(bytes);
    }
    if (n == 0 || size < sizeof bytes) {
        for (size_t i = 0; i < n; i++)
            bytes |= (uint64_t)(uint8_t)text[pos + i] << 8 * i;
        return bytes;
    }
    memcpy(&bytes, text + size - sizeof bytes, sizeof bytes);
    return GUINT64_FROM_LE(bytes) >> 8 * (sizeof bytes - n);
}

/* The decimal digits at the front of eight bytes: how many, and their number. All eight bytes are worked on at once. */
static inline __attribute__((always_inline)) unsigned read_digits(uint64_t bytes, uint64_t *ret_value)
{
    uint64_t x = bytes - UINT64_C(0x3030303030303030);
    /* The high bit of each byte that is below '0' or above '9'; behind the first of them borrows and carries may lie. */
    uint64_t others = (x | (x + UINT64_C(0x7676767676767676))) & UINT64_C(0x8080808080808080);
    unsigned n = others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
    if (n == 0)
        return 0;
    x <<= 8 * (8 - n); /* zeros in front of the digits, nothing behind them */
    x = x * 10 + (x >> 8);
    x = (x & UINT64_C(0x00ff00ff00ff00ff)) * 100 + ((x >> 16) & UINT64_C(0x00ff00ff00ff00ff));
    x = (x & UINT64_C(0x0000ffff0000ffff)) * 10000 + ((x >> 32) & UINT64_C(0x0000ffff));
    *ret_value = x & UINT64_C(0xffffffff);
    return n;
}

/* The digits at pos: their number in *ret_value and the position behind them. Nothing is checked but overflow; more than
 * 24 digits are left where they are. */
static inline bool read_number(const char *text, size_t size, size_t pos, uint64_t *ret_value, size_t *ret_end)
{
    static const uint64_t powers[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000 };
    uint64_t value = 0, part = 0;
    unsigned n = read_digits(load_bytes(text, size, pos), &value);
    size_t end = pos + n;
    for (int i = 0; n == 8 && i < 2; i++) {
        end = pos + 8 * (size_t)(i + 1); /* rather than a sum with n, which is known late */
        part = 0;
        n = read_digits(load_bytes(text, size, end), &part);
        if (__builtin_mul_overflow(value, powers[n], &value) || __builtin_add_overflow(value, part, &value))
            return false;
        end += n;
    }
    *ret_value = value;
    *ret_end = end;
    return true;
}

/* Reads a decimal number of at most max at *pos and moves *pos behind it: no sign, no space, no leading zero. */
static inline bool parse_number(const char *text, size_t size, size_t *pos, uint64_t max, uint64_t *ret_value)
{
    size_t start = *pos, end;
    uint64_t value;
    if (size - start >= 2 && text[start + 1] == ':' && text[start] >= '0' && text[start] <= '9') { /* most partitions */
        *ret_value = (uint64_t)(text[start] - '0');
        *pos = start + 1;
        return true;
    }
    if (!read_number(text, size, start, &value, &end) || value > max)
        return false;
    if (end == start || (text[start] == '0' && end - start > 1))
        return false;
    *pos = end;
    *ret_value = value;
    return true;
}

static bool parse_colon(const char *text, size_t size, size_t *pos)
{
    if (*pos >= size || text[*pos] != ':')
        return false;
    (*pos)++;
    return true;
}

size_t nrd_receipt_scan(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    size_t pos = 0;
    uint64_t partition = 0, offset = 0, nonce = 0;
    if (!parse_number(text, size, &pos, UINT32_MAX, &partition) || !parse_colon(text, size, &pos) ||
        !parse_number(text, size, &pos, UINT64_MAX, &offset) || !parse_colon(text, size, &pos) ||
        !parse_number(text, size, &pos, UINT64_MAX, &nonce))
        return 0;
    *ret_receipt = (NrdReceipt){ .partition = (uint32_t)partition, .offset = offset, .nonce = nonce };
    return pos;
}

int nrd_receipt_parse(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    NrdReceipt receipt;
    if (size == 0 || nrd_receipt_scan(text, size, &receipt) != size)
        return -EINVAL;
    *ret_receipt = receipt;
    return 0;
}

size_t nrd_receipt_format(const NrdReceipt *receipt, char buf[NRD_RECEIPT_TEXT_MAX])
{
    return (size_t)snprintf(buf, NRD_RECEIPT_TEXT_MAX, "%" PRIu32 ":%" PRIu64 ":%" PRIu64, receipt->partition,
                            receipt->offset, receipt->nonce);
}
