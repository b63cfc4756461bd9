/* Receipts: one text for one receipt, and every other text refused. */
#include "engine/queue/receipt.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>

static void assert_round_trip(uint32_t partition, uint64_t offset, uint64_t nonce, const char *text)
{
    const NrdReceipt receipt = { .partition = partition, .offset = offset, .nonce = nonce };
    char buf[NRD_RECEIPT_TEXT_MAX];
    g_assert_cmpuint(nrd_receipt_format(&receipt, buf), ==, strlen(text));
    g_assert_cmpstr(buf, ==, text);
    NrdReceipt back = { 0 };
    g_assert_cmpint(nrd_receipt_parse(text, strlen(text), &back), ==, 0);
    g_assert_cmpuint(back.partition, ==, partition);
    g_assert_cmpuint(back.offset, ==, offset);
    g_assert_cmpuint(back.nonce, ==, nonce);
}

static void test_round_trip(void)
{
    assert_round_trip(0, 43, 881, "0:43:881");
    assert_round_trip(0, 0, 0, "0:0:0");
    assert_round_trip(1023, INT64_MAX, INT64_MAX, "1023:9223372036854775807:9223372036854775807");
    assert_round_trip(UINT32_MAX, UINT64_MAX, UINT64_MAX, "4294967295:18446744073709551615:18446744073709551615");
}

/* Numbers of every length, at every distance from the end. */
static void test_lengths(void)
{
    uint64_t number = 0;
    for (int n_digits = 1; n_digits <= 20; n_digits++) {
        number = n_digits == 20 ? UINT64_C(12345678901234567890) : number * 10 + (uint64_t)n_digits % 10;
        for (uint64_t nonce = 1; nonce < 10000000000; nonce = nonce * 10 + 7) {
            g_autofree char *text =
                g_strdup_printf("%u:%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT, (uint32_t)(nonce % 1000), number, nonce);
            assert_round_trip((uint32_t)(nonce % 1000), number, nonce, text);
        }
    }
}

static void assert_refused(const char *text, size_t size)
{
    NrdReceipt receipt = { 7, 8, 9 };
    g_assert_cmpint(nrd_receipt_parse(text, size, &receipt), ==, -EINVAL);
    g_assert_cmpuint(receipt.partition, ==, 7);
    g_assert_cmpuint(receipt.offset, ==, 8);
    g_assert_cmpuint(receipt.nonce, ==, 9);
}

/* One byte changed to each other value is a receipt only when it is another digit. */
static void test_changed_byte(void)
{
    const char *const good = "17:12345678901:9123456789012345678";
    g_autofree char *text = g_strdup(good);
    for (size_t i = 0; i < strlen(good); i++) {
        for (int byte = 0; byte < 256; byte++) {
            NrdReceipt receipt;
            bool digit = byte >= '0' && byte <= '9';
            bool first = i == 0 || good[i - 1] == ':';
            bool expected = (char)byte == good[i] || (good[i] != ':' && digit && !(first && byte == '0'));
            text[i] = (char)byte;
            g_assert_cmpint(nrd_receipt_parse(text, strlen(good), &receipt), ==, expected ? 0 : -EINVAL);
        }
        text[i] = good[i];
    }
}

static void test_hostile(void)
{
    static const char *const texts[] = {
        "",
        ":",
        "::",
        "0",
        "0:1",
        "0:1:",
        ":1:2",
        "0::2",
        "0:1:2:",
        "0:1:2:3",
        " 0:1:2",
        "0:1:2 ",
        "0: 1:2",
        "0:1:2\n",
        "-1:1:2",
        "0:-1:2",
        "0:1:-1",
        "+0:1:2",
        "00:1:2",
        "0:01:2",
        "0:1:02",
        "0x0:1:2",
        "0:0x1:2",
        "0:1:0x2",
        "0:1:a",
        "0:1:2a",
        "a:1:2",
        "0;1:2",
        "0:1.0:2",
        "0:1e3:2",
        "0:1:2\r",
        "0\t:1:2",
        "0:1:0b1",
        "0:1:1_0",
        "\xd9\xa1:1:2",
        "4294967296:0:0",
        "10000000000:0:0",
        "0:18446744073709551616:0",
        "0:0:18446744073709551616",
        "0:99999999999999999999:0",
        "0:0:100000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        assert_refused(texts[i], strlen(texts[i]));
    assert_refused("0:1:2\0", 6);
    assert_refused("0\0:1:2", 6);
}

/* The size counts, not a NUL: bytes behind it are never looked at. */
static void test_size(void)
{
    NrdReceipt receipt;
    g_assert_cmpint(nrd_receipt_parse("0:1:23456", 6, &receipt), ==, 0);
    g_assert_cmpuint(receipt.nonce, ==, 23);
    for (size_t size = 0; size < 5; size++)
        assert_refused("0:1:2", size);
}

/* ---- one after the other ---- */

/* What the reader says of each line is what is said of that line alone. */
static void assert_read_as_alone(const GString *lines)
{
    NrdReceiptReader reader = { .text = NULL };
    g_autofree char *text = g_memdup2(lines->str, lines->len); /* not a byte behind it */
    for (size_t pos = 0; pos < lines->len;) {
        NrdReceipt alone;
        size_t size = lines->len - pos;
        size_t length = nrd_receipt_scan(text + pos, size, &alone);
        g_assert_cmpuint(nrd_receipt_reader_next(&reader, text + pos, size), ==, length);
        if (length > 0) {
            g_assert_cmpuint(reader.receipt.partition, ==, alone.partition);
            g_assert_cmpuint(reader.receipt.offset, ==, alone.offset);
            g_assert_cmpuint(reader.receipt.nonce, ==, alone.nonce);
        }
        pos += (size_t)((const char *)memchr(text + pos, '\n', size) - text) - pos + 1;
    }
}

static uint64_t random_number(GRand *rand)
{
    uint64_t number = (uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand);
    return number >> g_rand_int_range(rand, 0, 64);
}

/* Offsets that go on, jump, and pass powers of ten; nonces of every length. */
static GString *random_lines(GRand *rand)
{
    GString *lines = g_string_new(NULL);
    NrdReceipt receipt = { 0 };
    char text[NRD_RECEIPT_TEXT_MAX];
    for (int i = 0; i < 60; i++) {
        bool goes_on = g_rand_int_range(rand, 0, 20) > 0;
        receipt.partition = goes_on ? receipt.partition : (uint32_t)random_number(rand);
        receipt.offset = goes_on ? receipt.offset + 1 : random_number(rand);
        receipt.nonce = random_number(rand) | (g_rand_boolean(rand) ? UINT64_C(1) << 62 : 0);
        g_string_append_len(lines, text, (gssize)nrd_receipt_format(&receipt, text));
        g_string_append_c(lines, '\n');
    }
    return lines;
}

static void test_reader(void)
{
    static const char bytes[] = "0123456789::\n -/;\r\xb0";
    g_autoptr(GRand) rand = g_rand_new_with_seed(11);
    for (int i = 0; i < 3000; i++) {
        g_autoptr(GString) lines = random_lines(rand);
        for (int n_changes = g_rand_int_range(rand, 0, 30); n_changes > 0; n_changes--) {
            gint32 pos = g_rand_int_range(rand, 0, (gint32)lines->len - 1);
            lines->str[pos] = bytes[g_rand_int_range(rand, 0, sizeof bytes - 1)];
        }
        assert_read_as_alone(lines);
    }
}

/* What follows the last one there can be, and what only looks like the next one. */
static void test_reader_edges(void)
{
    static const char *const pairs[][2] = {
        { "0:18446744073709551615", "0:18446744073709551616" },
        { "0:9", "0::" },
        { "0:9", "0:10" },
        { "0:8", "0:9" },
        { "0:0", "0:1" },
        { "0:1", "1:2" },
        { "4294967295:12345678901234567890", "4294967295:12345678901234567891" },
        { "4294967295:12345678901234567890", "4294967295:02345678901234567891" },
        { "12:345", "12:346" },
        { "12:345", "12:34/" },
        { "1:1", "2:1" },
    };
    static const char *const nonces[] = { "1234567890123456789",
                                          "0234567890123456789",
                                          "9999999999999999999",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "123456789012345",
                                          "1234567890123456",
                                          "12345678901234567",
                                          "123456789012345678",
                                          "7",
                                          "",
                                          "1234567:12345678",
                                          "123456781234567x" };
    for (size_t i = 0; i < G_N_ELEMENTS(pairs); i++) {
        for (size_t j = 0; j < G_N_ELEMENTS(nonces); j++) {
            g_autoptr(GString) lines = g_string_new(NULL);
            g_string_append_printf(lines, "%s:1234567890123456789\n%s:%s\n", pairs[i][0], pairs[i][1], nonces[j]);
            assert_read_as_alone(lines); /* at the end of the text */
            g_string_append(lines, "0:1:2\n0:2:3333333333333333333\n0:3:4444444444444444444\n0:4:5555555555555555\n");
            assert_read_as_alone(lines);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/receipt/round-trip", test_round_trip);
    g_test_add_func("/receipt/lengths", test_lengths);
    g_test_add_func("/receipt/changed-byte", test_changed_byte);
    g_test_add_func("/receipt/hostile", test_hostile);
    g_test_add_func("/receipt/size", test_size);
    g_test_add_func("/receipt/reader", test_reader);
    g_test_add_func("/receipt/reader-edges", test_reader_edges);
    return g_test_run();
}
