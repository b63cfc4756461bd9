/* Receipts are text that consumers keep, pass around and send back: every byte of it is hostile until it is parsed.
 * The form is strict, one text for one receipt, so that a receipt can be compared as text. */
#include "engine/queue/receipt.h"

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Eight digits at once, or false: the text holds eight bytes. Adds neighbours, then pairs, then fours. */
static bool parse_eight(const char *text, uint64_t *ret_value)
{
    uint64_t x;
    memcpy(&x, text, sizeof x);
    x = GUINT64_FROM_LE(x) - UINT64_C(0x3030303030303030);
    if ((x | (x + UINT64_C(0x7676767676767676))) & UINT64_C(0x8080808080808080))
        return false; /* a byte below '0' or above '9' */
    x = x * 10 + (x >> 8);
    x = (x & UINT64_C(0x00ff00ff00ff00ff)) * 100 + ((x >> 16) & UINT64_C(0x00ff00ff00ff00ff));
    *ret_value = (x & UINT64_C(0x0000ffff0000ffff)) * 10000 + ((x >> 32) & 0xffff);
    *ret_value &= UINT64_C(0xffffffff);
    return true;
}

/* Reads a decimal number of at most max at *pos and moves *pos behind it: no sign, no space, no leading zero. */
static bool parse_number(const char *text, size_t size, size_t *pos, uint64_t max, uint64_t *ret_value)
{
    size_t start = *pos, p = start;
    uint64_t value = 0, eight;
    for (; p - start < 16 && size - p >= 8 && parse_eight(text + p, &eight); p += 8)
        value = value * 100000000 + eight;
    for (; p < size && text[p] >= '0' && text[p] <= '9'; p++) {
        uint64_t digit = (uint64_t)(text[p] - '0');
        if (p - start >= 19 && value > (UINT64_MAX - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    if (p == start || (text[start] == '0' && p - start > 1) || value > max)
        return false;
    *pos = p;
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

int nrd_receipt_parse(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    size_t pos = 0;
    uint64_t partition = 0, offset = 0, nonce = 0;
    if (!parse_number(text, size, &pos, UINT32_MAX, &partition) || !parse_colon(text, size, &pos) ||
        !parse_number(text, size, &pos, UINT64_MAX, &offset) || !parse_colon(text, size, &pos) ||
        !parse_number(text, size, &pos, UINT64_MAX, &nonce) || pos != size)
        return -EINVAL;
    *ret_receipt = (NrdReceipt){ .partition = (uint32_t)partition, .offset = offset, .nonce = nonce };
    return 0;
}

size_t nrd_receipt_format(const NrdReceipt *receipt, char buf[NRD_RECEIPT_TEXT_MAX])
{
    return (size_t)snprintf(buf, NRD_RECEIPT_TEXT_MAX, "%" PRIu32 ":%" PRIu64 ":%" PRIu64, receipt->partition,
                            receipt->offset, receipt->nonce);
}
