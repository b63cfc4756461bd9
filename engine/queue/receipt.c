/* Receipts are text that consumers keep, pass around and send back: every byte of it is hostile until it is parsed.
 * The form is strict, one text for one receipt, so that a receipt can be compared as text. */
#include "engine/queue/receipt.h"

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The same of the last bytes of the text, fewer than eight. */
static uint64_t load_last(const char *text, size_t size, size_t pos)
{
    uint64_t bytes = 0;
    size_t n = size - pos;
    if (n == 0 || size < sizeof bytes) {
        for (size_t i = 0; i < n; i++)
            bytes |= (uint64_t)(uint8_t)text[pos + i] << 8 * i;
        return bytes;
    }
    memcpy(&bytes, text + size - sizeof bytes, sizeof bytes);
    return GUINT64_FROM_LE(bytes) >> 8 * (sizeof bytes - n);
}

/* Up to eight bytes of the text from pos on, the first in the lowest byte; zeros behind its end. */
static inline uint64_t load_bytes(const char *text, size_t size, size_t pos)
{
    uint64_t bytes;
    if (size - pos < sizeof bytes)
        return load_last(text, size, pos);
    memcpy(&bytes, text + pos, sizeof bytes);
    return GUINT64_FROM_LE(bytes);
}

/* The number that eight digits make, each taken from its byte: zeros in front where there are fewer. All are worked on at
 * once. */
static inline uint64_t value_of(uint64_t digits)
{
    digits = digits * 10 + (digits >> 8);
    digits = (digits & UINT64_C(0x00ff00ff00ff00ff)) * 100 + ((digits >> 16) & UINT64_C(0x00ff00ff00ff00ff));
    digits = (digits & UINT64_C(0x0000ffff0000ffff)) * 10000 + ((digits >> 32) & UINT64_C(0x0000ffff));
    return digits & UINT64_C(0xffffffff);
}

/* What is left of each byte without the '0' in it. */
static inline uint64_t digits_of(uint64_t bytes)
{
    return bytes - UINT64_C(0x3030303030303030);
}

/* The high bit of each byte that is below '0' or above '9'; behind the first of them borrows and carries may lie. */
static inline uint64_t others_of(uint64_t digits)
{
    return (digits | (digits + UINT64_C(0x7676767676767676))) & UINT64_C(0x8080808080808080);
}

/* The decimal digits at the front of eight bytes: how many, and their number. */
static inline __attribute__((always_inline)) unsigned read_digits(uint64_t bytes, uint64_t *ret_value)
{
    uint64_t x = digits_of(bytes);
    uint64_t others = others_of(x);
    unsigned n = others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
    if (n == 0)
        return 0;
    *ret_value = value_of(x << 8 * (8 - n)); /* zeros in front of the digits, nothing behind them */
    return n;
}

static const uint64_t powers[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000 };

/* The digits at pos: their number in *ret_value and the position behind them. Nothing is checked but overflow; more than
 * 24 digits are left where they are. */
static inline bool read_number(const char *text, size_t size, size_t pos, uint64_t *ret_value, size_t *ret_end)
{
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

/* As nrd_receipt_scan; *ret_offset_end: where the offset ends in the text. */
static size_t scan(const char *text, size_t size, NrdReceipt *ret_receipt, size_t *ret_offset_end)
{
    size_t pos = 0, offset_end;
    uint64_t partition = 0, offset = 0, nonce = 0;
    if (!parse_number(text, size, &pos, UINT32_MAX, &partition) || !parse_colon(text, size, &pos) ||
        !parse_number(text, size, &pos, UINT64_MAX, &offset))
        return 0;
    offset_end = pos;
    if (!parse_colon(text, size, &pos) || !parse_number(text, size, &pos, UINT64_MAX, &nonce))
        return 0;
    *ret_receipt = (NrdReceipt){ .partition = (uint32_t)partition, .offset = offset, .nonce = nonce };
    *ret_offset_end = offset_end;
    return pos;
}

size_t nrd_receipt_scan(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    size_t offset_end;
    return scan(text, size, ret_receipt, &offset_end);
}

int nrd_receipt_parse(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    NrdReceipt receipt;
    if (size == 0 || nrd_receipt_scan(text, size, &receipt) != size)
        return -EINVAL;
    *ret_receipt = receipt;
    return 0;
}

/* ---- one after the other ---- */

#define SURE_BYTES                                                                                                     \
    64 /* longer than any receipt by eight bytes: within them no load has to look for the end of the text */

static inline uint64_t load_eight(const char *text)
{
    uint64_t bytes;
    memcpy(&bytes, text, sizeof bytes);
    return GUINT64_FROM_LE(bytes);
}

/* Whether the first n bytes are the same; of each text eight can be read. */
static inline bool begins_alike(const char *a, const char *b, size_t n)
{
    if (n == 0)
        return true;
    if (n < 8)
        return (load_eight(a) ^ load_eight(b)) << 8 * (8 - n) == 0;
    return load_eight(a) == load_eight(b) && load_eight(a + n - 8) == load_eight(b + n - 8) &&
           (n <= 16 || memcmp(a, b, n) == 0);
}

/* Whether text begins as the last receipt does, but for the last digit of its offset, which is the next one. */
static inline bool follows(const NrdReceiptReader *reader, const char *text, size_t size)
{
    size_t digit = reader->digit_pos;
    return reader->text && size >= SURE_BYTES && text[digit] == reader->text[digit] + 1 && text[digit] <= '9' &&
           text[digit + 1] == ':' && reader->receipt.offset < UINT64_MAX && begins_alike(text, reader->text, digit);
}

/* Sixteen to nineteen digits, as nearly every nonce has, and which never overflow: their number and how many; 0 for
 * whatever is otherwise. 24 bytes can be read. */
static inline size_t read_long(const char *text, uint64_t *ret_value)
{
    uint64_t first = digits_of(load_eight(text)), second = digits_of(load_eight(text + 8)), rest = 0;
    unsigned n = read_digits(load_eight(text + 16), &rest);
    if (text[0] == '0' || (others_of(first) | others_of(second)) != 0 || n > 3)
        return 0;
    *ret_value = (value_of(first) * powers[8] + value_of(second)) * powers[n] + rest;
    return 16 + n;
}

size_t nrd_receipt_reader_next(NrdReceiptReader *reader, const char *text, size_t size)
{
    size_t nonce_pos = reader->digit_pos + 2;
    size_t nonce_size = follows(reader, text, size) ? read_long(text + nonce_pos, &reader->receipt.nonce) : 0;
    if (nonce_size > 0) {
        reader->receipt.offset++;
        reader->text = text;
        return nonce_pos + nonce_size;
    }
    size_t offset_end = 1;
    size_t length = scan(text, size, &reader->receipt, &offset_end);
    reader->text = length > 0 ? text : NULL;
    reader->digit_pos = offset_end - 1;
    return length;
}

size_t nrd_receipt_format(const NrdReceipt *receipt, char buf[NRD_RECEIPT_TEXT_MAX])
{
    return (size_t)snprintf(buf, NRD_RECEIPT_TEXT_MAX, "%" PRIu32 ":%" PRIu64 ":%" PRIu64, receipt->partition,
                            receipt->offset, receipt->nonce);
}
