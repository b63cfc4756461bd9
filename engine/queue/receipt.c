/* Receipts are text that consumers keep, pass around and send back: every byte of it is hostile until it is parsed.
 * The form is strict, one text for one receipt, so that a receipt can be compared as text. */
#include "engine/queue/receipt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* Reads a decimal number of at most max at *pos and moves *pos behind it: no sign, no space, no leading zero. */
static bool parse_number(const char *text, size_t size, size_t *pos, uint64_t max, uint64_t *ret_value)
{
    size_t start = *pos, p = start;
    uint64_t value = 0;
    for (; p < size && text[p] >= '0' && text[p] <= '9'; p++) {
        uint64_t digit = (uint64_t)(text[p] - '0');
        if (value > (max - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    if (p == start || (text[start] == '0' && p - start > 1))
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
