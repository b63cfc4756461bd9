/* Receipts, and the lines of ack, cut anywhere: the two ways of feeding them agree, and lines that arrive whole are acted on
 * as they stand.
 * Input: a seed for the cuts (2 bytes), which line fails (1 byte, 255: none), the text. */
#include "fuzz.h"

#include "engine/queue/receipt.h"
#include "fs/lines.h"

#include <errno.h>
#include <string.h>

/* What was acted on, so far. */
typedef struct Acted {
    unsigned n;
    uint32_t crc;
    unsigned failing; /* this one fails */
} Acted;

static bool plain_number(const char **text, const char *end, uint64_t max, uint64_t *ret_number)
{
    const char *start = *text;
    uint64_t number = 0;
    for (; *text < end && **text >= '0' && **text <= '9'; (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        if (number > UINT64_MAX / 10 || number * 10 > UINT64_MAX - digit)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return *text > start && number <= max && (*start != '0' || *text == start + 1);
}

/* The receipt at the front of a text, character by character; its length or 0. */
static size_t plain_receipt(const char *text, size_t size, NrdReceipt *ret_receipt)
{
    const char *p = text, *end = text + size;
    uint64_t partition;
    if (!plain_number(&p, end, UINT32_MAX, &partition) || p == end || *p++ != ':' ||
        !plain_number(&p, end, UINT64_MAX, &ret_receipt->offset) || p == end || *p++ != ':' ||
        !plain_number(&p, end, UINT64_MAX, &ret_receipt->nonce))
        return 0;
    ret_receipt->partition = (uint32_t)partition;
    return (size_t)(p - text);
}

static void check_receipt(const char *text, size_t size)
{
    NrdReceipt plain, parsed, scanned;
    char again[NRD_RECEIPT_TEXT_MAX];
    g_autofree char *exact = g_memdup2(text, size);
    size_t n = plain_receipt(text, size, &plain);
    size_t n_scanned = nrd_receipt_scan(exact ? exact : "", size, &scanned);
    int rc = nrd_receipt_parse(exact ? exact : "", size, &parsed);
    FUZZ_CHECK(n_scanned == n);
    FUZZ_CHECK((rc == 0) == (n > 0 && n == size));
    if (n == 0)
        return;
    FUZZ_CHECK(scanned.partition == plain.partition && scanned.offset == plain.offset && scanned.nonce == plain.nonce);
    FUZZ_CHECK(nrd_receipt_format(&scanned, again) == n && memcmp(again, text, n) == 0);
}

/* What is said of one behind another is what is said of it alone. */
static void check_receipts(const char *text, size_t size)
{
    NrdReceiptReader reader = { .text = NULL };
    g_autofree char *exact = g_memdup2(text, size);
    const char *newline;
    for (size_t pos = 0; pos < size; pos = newline ? (size_t)(newline - exact) + 1 : size) {
        NrdReceipt plain;
        size_t n = plain_receipt(exact + pos, size - pos, &plain);
        FUZZ_CHECK(nrd_receipt_reader_next(&reader, exact + pos, size - pos) == n);
        FUZZ_CHECK(n == 0 || (reader.receipt.partition == plain.partition && reader.receipt.offset == plain.offset &&
                              reader.receipt.nonce == plain.nonce));
        newline = memchr(exact + pos, '\n', size - pos);
    }
}

static int act(void *user_data, const char *line, size_t size)
{
    Acted *acted = user_data;
    FUZZ_CHECK(size <= NRD_LINE_MAX);
    if (acted->n == acted->failing)
        return -ESTALE;
    acted->n++;
    acted->crc = fuzz_crc32c(acted->crc, &size, sizeof size);
    acted->crc = fuzz_crc32c(acted->crc, line, size);
    return 0;
}

/* Line by line, as the product does with those that it cannot settle together. */
static size_t act_on_many(void *user_data, const char *lines, size_t size, int *ret_error)
{
    size_t pos = 0;
    FUZZ_CHECK(size > 0 && lines[size - 1] == '\n');
    *ret_error = 0;
    while (pos < size && *ret_error == 0) {
        char line[NRD_LINE_MAX];
        size_t n, length = (size_t)((const char *)memchr(lines + pos, '\n', size - pos) - lines) - pos;
        *ret_error = nrd_line_tidy(lines + pos, length, line, &n);
        if (*ret_error == 0)
            *ret_error = act(user_data, line, n);
        pos += *ret_error == 0 ? length + 1 : 0;
    }
    return pos;
}

/* Both ways with the same requests. */
static void feed_both(const char *text, size_t size, FuzzCuts cuts, unsigned failing)
{
    NrdLines one = { 0 }, many = { 0 };
    Acted acted_one = { .failing = failing }, acted_many = { .failing = failing };
    for (size_t pos = 0; pos < size;) {
        size_t n = fuzz_cut(&cuts, size - pos), taken_one = 0, taken_many = 0;
        g_autofree char *request = g_memdup2(text + pos, n);
        int rc_one = nrd_lines_feed(&one, request, n, act, &acted_one, &taken_one);
        int rc_many = nrd_lines_feed_many(&many, request, n, act, act_on_many, &acted_many, &taken_many);
        FUZZ_CHECK(rc_one == rc_many && taken_one == taken_many && taken_one <= n);
        FUZZ_CHECK(rc_one < 0 || taken_one > 0);
        FUZZ_CHECK(acted_one.n == acted_many.n && acted_one.crc == acted_many.crc);
        FUZZ_CHECK(one.kept_size == many.kept_size && one.owes_newline == many.owes_newline);
        pos += rc_one < 0 ? n : taken_one;
        if (rc_one < 0)
            acted_one.failing = acted_many.failing = UINT32_MAX;
    }
    int rc = nrd_lines_flush(&one, act, &acted_one);
    FUZZ_CHECK(rc == nrd_lines_flush(&many, act, &acted_many) && acted_one.crc == acted_many.crc);
}

/* Requests of whole lines: the same lines, whatever stands in them. */
static void feed_whole_lines(const char *text, size_t size, FuzzCuts cuts)
{
    NrdLines lines = { 0 };
    Acted acted = { .failing = UINT32_MAX }, want = { .failing = UINT32_MAX };
    for (size_t pos = 0; pos < size;) {
        size_t n = fuzz_cut(&cuts, size - pos), taken = 0, wanted = 0;
        const char *newline = memchr(text + pos + n - 1, '\n', size - pos - n + 1);
        int error = 0;
        if (!newline)
            return;
        n = (size_t)(newline - text) + 1 - pos;
        int rc = nrd_lines_feed_many(&lines, text + pos, n, act, act_on_many, &acted, &taken);
        wanted = act_on_many(&want, text + pos, n, &error);
        FUZZ_CHECK(acted.n == want.n && acted.crc == want.crc);
        FUZZ_CHECK(rc == 0 ? taken == wanted : wanted == 0 && rc == error);
        pos += n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    FuzzCuts cuts = { fuzz_u16(&in) };
    unsigned failing = fuzz_u8(&in);
    size_t n;
    char *text = (char *)fuzz_rest(&in, &n);
    const char *newline = memchr(text, '\n', n);
    check_receipts(text, n);
    check_receipt(text, newline ? (size_t)(newline - text) : n);
    check_receipt(text, n);
    feed_both(text, n, cuts, failing == 255 ? UINT32_MAX : failing);
    feed_whole_lines(text, n, cuts);
    g_free(text);
    return 0;
}
