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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/receipt/round-trip", test_round_trip);
    g_test_add_func("/receipt/lengths", test_lengths);
    g_test_add_func("/receipt/changed-byte", test_changed_byte);
    g_test_add_func("/receipt/hostile", test_hostile);
    g_test_add_func("/receipt/size", test_size);
    return g_test_run();
}
