/* Framings of produce, produce.jsonl and produce.bin: cuts anywhere give the same records; each rule for a record that is
 * refused. */
#include "fs/framing.h"

#include "engine/base/endian.h"

#include <errno.h>
#include <string.h>

#define MAX_RECORD 8
#define BUDGET 1000 /* beyond the shares */
#define FULL (NRD_PARTIAL_SHARE_BYTES + BUDGET)

typedef struct Fixture {
    NrdPartialBudget budget;
    NrdFraming framing;
    GString *records; /* each in brackets */
} Fixture;

static void set_up(Fixture *f, gconstpointer unused)
{
    nrd_partial_budget_init(&f->budget, NRD_PARTIAL_BYTES_DEFAULT);
    nrd_framing_init(&f->framing, NRD_FRAMING_LINES, &f->budget);
    f->records = g_string_new(NULL);
}

static void set_kind(Fixture *f, NrdFramingKind kind)
{
    nrd_framing_clear(&f->framing);
    nrd_framing_init(&f->framing, kind, &f->budget);
}

static void tear_down(Fixture *f, gconstpointer unused)
{
    nrd_framing_clear(&f->framing);
    g_assert_cmpuint(f->budget.used_bytes, ==, 0);
    nrd_partial_budget_clear(&f->budget);
    g_string_free(f->records, TRUE);
}

static void collect_one(GString *records, const NrdNewRecord *record)
{
    g_string_append_c(records, '[');
    g_string_append_len(records, (const char *)record->key, (gssize)record->key_size);
    if (record->key_size > 0)
        g_string_append_c(records, '=');
    g_string_append_len(records, (const char *)record->payload, (gssize)record->payload_size);
    g_string_append_c(records, ']');
}

static void collect(void *user_data, const NrdNewRecord *records, size_t n_records)
{
    for (size_t i = 0; i < n_records; i++)
        collect_one(user_data, &records[i]);
}

/* Feeds one request, from a copy of its exact size, so that reading beyond it is noticed: the bytes taken, or the
 * error. */
static gssize feed_request(Fixture *f, const void *data, size_t size, bool may_be_cut)
{
    size_t taken = 99999;
    uint8_t *copy = g_memdup2(data, size);
    NrdFramingRequest request = { copy, size, may_be_cut };
    int error = nrd_framing_feed(&f->framing, request, MAX_RECORD, collect, f->records, &taken);
    g_free(copy);
    if (error == 0)
        return (gssize)taken;
    g_assert_cmpuint(taken, ==, 99999);
    g_assert_nonnull(f->framing.why);
    return error;
}

static gssize feed_bytes(Fixture *f, const char *data, size_t size)
{
    return feed_request(f, data, size, false);
}

static gssize feed(Fixture *f, const char *text)
{
    return feed_bytes(f, text, strlen(text));
}

static int end_when(Fixture *f, NrdFramingEnd when)
{
    return nrd_framing_end(&f->framing, when, MAX_RECORD, collect, f->records);
}

static void end(Fixture *f)
{
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, 0);
}

static void assert_records(Fixture *f, const char *expected)
{
    g_assert_cmpstr(f->records->str, ==, expected);
    g_string_truncate(f->records, 0);
}

static void test_lines(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n\nbc\n12345678\nx"), ==, 16);
    assert_records(f, "[a][][bc][12345678]");
    end(f);
    end(f);
    assert_records(f, "[x]");
    g_assert_cmpint(feed_bytes(f, "a\0b\n", 4), ==, 4);
    g_assert_cmpmem(f->records->str, f->records->len, "[a\0b]", 5);
}

static void test_ends_of_lines(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a"), ==, 1);
    g_assert_cmpint(end_when(f, NRD_FRAMING_FLUSH), ==, 0);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "b"), ==, 1);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, 0);
    assert_records(f, "[ab]");
}

static void test_end_keeps_no_empty_record(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n"), ==, 2);
    end(f);
    assert_records(f, "[a]");
    g_assert_cmpint(feed(f, ""), ==, 0);
    end(f);
    assert_records(f, "");
}

static void test_any_cuts(Fixture *f, gconstpointer unused)
{
    static const char input[] = "one\n\ntwo\n12345678\n\n\nab\r\nlast";
    for (size_t i = 0; i < sizeof input; i++) {
        for (size_t j = i; j < sizeof input; j++) {
            g_assert_cmpint(feed_bytes(f, input, i), ==, i);
            g_assert_cmpint(feed_bytes(f, input + i, j - i), ==, j - i);
            g_assert_cmpint(feed_bytes(f, input + j, sizeof input - 1 - MIN(j, sizeof input - 1)), >=, 0);
            end(f);
            assert_records(f, "[one][][two][12345678][][][ab\r][last]");
        }
    }
}

/* Random lines, none too long; *expected is what collect makes of them. */
static void make_lines(char *input, size_t size, GString *expected)
{
    size_t length = 0;
    g_string_append_c(expected, '[');
    for (size_t i = 0; i < size; i++) {
        bool newline = length == MAX_RECORD || g_test_rand_int_range(0, 4) == 0;
        input[i] = newline ? '\n' : (char)g_test_rand_int_range('a', 'z');
        length = newline ? 0 : length + 1;
        if (newline)
            g_string_append(expected, "][");
        else
            g_string_append_c(expected, input[i]);
    }
    if (length > 0)
        g_string_append_c(expected, ']');
    else
        g_string_truncate(expected, expected->len - 1);
}

static void test_random_cuts(Fixture *f, gconstpointer unused)
{
    for (int round = 0; round < 2000; round++) {
        char input[200];
        GString *expected = g_string_new(NULL);
        make_lines(input, sizeof input, expected);
        for (size_t pos = 0; pos < sizeof input;) {
            size_t cut = (size_t)g_test_rand_int_range(1, 30);
            size_t n = MIN(cut, sizeof input - pos);
            g_assert_cmpint(feed_bytes(f, input + pos, n), ==, n);
            pos += n;
        }
        end(f);
        assert_records(f, expected->str);
        g_string_free(expected, TRUE);
    }
}

static void test_too_long_whole(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "123456789\nnext\n"), ==, -EMSGSIZE);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3); /* the refused request held the record's end */
    assert_records(f, "[ok]");
}

static void test_too_long_without_end(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "123456789"), ==, -EMSGSIZE);
    end(f);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "more"), ==, 4);
    end(f);
    g_assert_cmpint(feed(f, "end\nok\n"), ==, 7);
    assert_records(f, "[ok]");
}

static void test_too_long_after_a_beginning(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\n12345"), ==, 7);
    assert_records(f, "[a]");
    g_assert_cmpint(feed(f, "6789\nb\n"), ==, -EMSGSIZE);
    end(f);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

static void test_too_long_after_complete_ones(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "a\nbb\n123456789\n"), ==, 5);
    assert_records(f, "[a][bb]");
    g_assert_cmpint(feed(f, "123456789\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "c\n123456789"), ==, 2);
    g_assert_cmpint(feed(f, "123456789"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "0\nd\n"), ==, 4);
    assert_records(f, "[c][d]");
}

static void test_too_long_after_skipped(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "1234567890"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "x\n123456789\n"), ==, 2);
    g_assert_cmpint(feed(f, "123456789\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

/* The program was told, and sends its buffer once more with each flush: the end of the refused record is no record, also
 * with others behind it. Another request ends that. */
static void test_refused_again(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed(f, "12345"), ==, 5);
    for (int i = 0; i < 4; i++)
        g_assert_cmpint(feed(f, "6789\nb\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789\nb\nc\n"), ==, -EMSGSIZE);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    g_assert_cmpint(feed(f, "6789\nb\n"), ==, 7); /* forgotten by now: new records */
    assert_records(f, "[ok][6789][b]");

    /* Without the end what follows is skipped up to that, whatever it is. */
    g_assert_cmpint(feed(f, "12345"), ==, 5);
    g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789ab"), ==, 6);
    g_assert_cmpint(feed(f, "rest\nok\n"), ==, 8);
    assert_records(f, "[ok]");
}

/* The kernel hid the failure behind a short count; the program sends the failed request again, and is told. */
static void test_refused_in_secret(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed_request(f, "12345", 5, true), ==, 5);
    for (int i = 0; i < 4; i++)
        g_assert_cmpint(feed(f, "6789\nb\n"), ==, -EMSGSIZE);
    assert_records(f, "");
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);

    /* Without the end it is sent again once: from then on it is what follows. */
    g_assert_cmpint(feed_request(f, "12345", 5, true), ==, 5);
    g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789ab"), ==, 6);
    g_assert_cmpint(feed(f, "rest\nok 2\n"), ==, 10);
    assert_records(f, "[ok][ok 2]");
}

/* 5000 bytes of one line, and its end. */
static const char *long_end(void)
{
    static char end[5002];
    memset(end, 'x', 5000);
    end[5000] = '\n';
    return end;
}

/* The rest of a refused record is sent again from elsewhere in the program's memory, and cut earlier: its first piece has no
 * end. The record behind it is not swallowed in place of that. */
static void send_again_in_pieces(Fixture *f, int error)
{
    const char *end = long_end();
    g_assert_cmpint(feed_request(f, end, 5001, false), ==, error); /* the kernel tells what came before */
    g_assert_cmpint(feed_request(f, end, 4500, true), ==, 4500);
    g_assert_cmpint(feed_request(f, end + 4500, 501, false), ==, error); /* likewise */
    g_assert_cmpint(feed_request(f, end + 4500, 501, false), ==, error);
    assert_records(f, "");
}

static void test_refused_again_in_pieces(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed_request(f, "1234567890", 10, true), ==, 10);
    send_again_in_pieces(f, -EMSGSIZE);
    g_assert_cmpint(feed(f, "order 1\n"), ==, 8);
    g_assert_cmpint(feed(f, "order 2\n"), ==, 8);
    assert_records(f, "[order 1][order 2]");
}

static void test_malformed_again_in_pieces(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_JSONL);
    g_assert_cmpint(feed_request(f, "{\"payload\"", 10, true), ==, 10);
    send_again_in_pieces(f, -EINVAL);
    g_assert_cmpint(feed(f, "{\"payload\":1}\n"), ==, 14);
    g_assert_cmpint(feed(f, "{\"payload\":2}\n"), ==, 14);
    assert_records(f, "[1][2]");
}

/* Sent again from elsewhere in the program's memory it may be cut later than the first time. */
static void test_refused_again_longer(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed_request(f, "12345", 5, true), ==, 5);
    g_assert_cmpint(feed(f, "6789ab"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "6789abcd\nx\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

/* Sent again as part of a longer write whose pieces all look alike: the failure of the last one may be hidden, so that one is
 * refused again as well. */
static void test_refused_again_all_alike(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed_request(f, "xxxxx", 5, true), ==, 5);
    g_assert_cmpint(feed(f, "xxxxx"), ==, -EMSGSIZE);
    g_assert_cmpint(feed_request(f, "xxxxxxxxxx", 10, true), ==, 10);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(feed(f, "xxxxxxx\nab\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[ok]");
}

/* Requests that the kernel may have cut out of one write: the failure comes with the last of them, so that the write
 * holds the record's end. */
static void test_too_long_in_a_cut_write(Fixture *f, gconstpointer unused)
{
    g_assert_cmpint(feed_request(f, "a\n1234", 6, true), ==, 6);
    g_assert_cmpint(feed_request(f, "56789", 5, true), ==, 5);
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, -EMSGSIZE);
    g_assert_cmpint(feed_request(f, "01234", 5, true), ==, 5);
    for (int i = 0; i < 2; i++)
        g_assert_cmpint(feed_request(f, "567\nb\n", 6, i == 0), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "ok\n"), ==, 3);
    assert_records(f, "[a][ok]");
    g_assert_cmpint(feed_request(f, "123456789", 9, true), ==, 9);
    g_assert_cmpint(feed(f, "more"), ==, -EMSGSIZE); /* without the end, but not cut */
    end(f);
    g_assert_cmpint(feed(f, "end\nok\n"), ==, 7);
    assert_records(f, "[ok]");
    g_assert_cmpint(feed_request(f, "123456789", 9, true), ==, 9);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, -EMSGSIZE);
    end(f);
    assert_records(f, "");
}

/* ---- binary ---- */

/* Appends a record with these lengths in its header, and whatever bytes. */
static void put_bin(GString *out, uint32_t key_size, uint32_t payload_size, const char *bytes)
{
    uint8_t header[8];
    nrd_put_be32(header, key_size);
    nrd_put_be32(header + 4, payload_size);
    g_string_append_len(out, (const char *)header, sizeof header);
    g_string_append(out, bytes);
}

static GString *bin(uint32_t key_size, uint32_t payload_size, const char *bytes)
{
    GString *out = g_string_new(NULL);
    put_bin(out, key_size, payload_size, bytes);
    return out;
}

static gssize feed_bin(Fixture *f, uint32_t key_size, uint32_t payload_size, const char *bytes)
{
    GString *out = bin(key_size, payload_size, bytes);
    gssize taken = feed_bytes(f, out->str, out->len);
    g_string_free(out, TRUE);
    return taken;
}

static void test_bin_any_cuts(Fixture *f, gconstpointer unused)
{
    GString *input = bin(0, 3, "one");
    put_bin(input, 1, 8, "k12345678");
    put_bin(input, 0, 0, "");
    put_bin(input, 3, 0, "key");
    put_bin(input, 2, 2, "k\nv\n");
    for (size_t i = 0; i <= input->len; i++) {
        for (size_t j = i; j <= input->len; j++) {
            set_kind(f, NRD_FRAMING_BIN);
            g_assert_cmpint(feed_bytes(f, input->str, i), ==, i);
            g_assert_cmpint(feed_bytes(f, input->str + i, j - i), ==, j - i);
            g_assert_cmpint(feed_bytes(f, input->str + j, input->len - j), ==, input->len - j);
            end(f);
            assert_records(f, "[one][k=12345678][][key=][k\n=v\n]");
        }
    }
    g_string_free(input, TRUE);
}

static void test_bin_random_cuts(Fixture *f, gconstpointer unused)
{
    static const char bytes[] = "abcdefghijklmnop";
    for (int round = 0; round < 2000; round++) {
        GString *input = g_string_new(NULL);
        GString *expected = g_string_new(NULL);
        set_kind(f, NRD_FRAMING_BIN);
        for (int i = 0; i < 20; i++) {
            uint32_t key = (uint32_t)g_test_rand_int_range(0, 8), payload = (uint32_t)g_test_rand_int_range(0, 9);
            put_bin(input, key, payload, bytes + 16 - key - payload);
            g_string_append_printf(expected, "[%.*s%s%.*s]", (int)key, bytes + 16 - key - payload, key ? "=" : "",
                                   (int)payload, bytes + 16 - payload);
        }
        for (size_t pos = 0; pos < input->len;) {
            size_t cut = (size_t)g_test_rand_int_range(1, 40);
            size_t n = MIN(cut, input->len - pos);
            g_assert_cmpint(feed_bytes(f, input->str + pos, n), ==, n);
            pos += n;
        }
        end(f);
        assert_records(f, expected->str);
        g_string_free(input, TRUE);
        g_string_free(expected, TRUE);
    }
}

/* A record of 116 bytes, whose end is sent again as part of a longer write: each piece counts once, so that what follows is
 * not swallowed. */
static void test_bin_again_all_alike(Fixture *f, gconstpointer unused)
{
    g_autofree char *alike = g_strnfill(100, 'x');
    GString *input = bin(0, 108, "xxxxxxxx");
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_request(f, input->str, 16, true), ==, 16);
    g_assert_cmpint(feed_bytes(f, alike, 10), ==, -EMSGSIZE);
    g_assert_cmpint(feed_request(f, alike, 40, true), ==, 40);
    g_assert_cmpint(feed_request(f, alike, 40, true), ==, 40);
    g_assert_cmpint(feed_bytes(f, alike, 20), ==, -EMSGSIZE);
    g_assert_cmpint(feed_bin(f, 0, 2, "ok"), ==, 10);
    assert_records(f, "[ok]");
    g_string_free(input, TRUE);
}

static void test_bin_too_long_whole(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_bin(f, 0, 9, "123456789"), ==, -EMSGSIZE);
    g_assert_cmpint(feed_bin(f, 1, 2, "kok"), ==, 11);
    assert_records(f, "[k=ok]");
}

/* Skipping counts bytes, over any number of requests. */
static void test_bin_too_long_without_end(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_bin(f, 2, 20, "kk12345"), ==, -EMSGSIZE);
    end(f);
    g_assert_cmpint(feed(f, "6789012345"), ==, 10);
    GString *rest = g_string_new("67890");
    put_bin(rest, 0, 2, "ok");
    g_assert_cmpint(feed_bytes(f, rest->str, rest->len), ==, rest->len);
    assert_records(f, "[ok]");
    g_string_free(rest, TRUE);
}

static void test_bin_too_long_after_complete_ones(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_BIN);
    GString *input = bin(0, 1, "a");
    put_bin(input, 0, 9, "123456789");
    g_assert_cmpint(feed_bytes(f, input->str, input->len), ==, 9);
    g_assert_cmpint(feed_bytes(f, input->str + 9, input->len - 9), ==, -EMSGSIZE);
    g_assert_cmpint(feed_bin(f, 0, 1, "b"), ==, 9);
    assert_records(f, "[a][b]");
    g_string_free(input, TRUE);
}

/* A record of one byte over and over, in writes that each get their answer: the second is no repetition of the first, so the
 * record is over where its header said. */
static void test_bin_of_one_byte(Fixture *f, gconstpointer unused)
{
    static const char zeros[20];
    set_kind(f, NRD_FRAMING_BIN);
    GString *head = bin(0, 46, "");
    g_string_truncate(head, 8);
    g_string_append_len(head, zeros, 6);
    g_assert_cmpint(feed_bytes(f, head->str, head->len), ==, -EMSGSIZE);
    g_assert_cmpint(feed_bytes(f, zeros, 20), ==, 20);
    g_assert_cmpint(feed_bytes(f, zeros, 20), ==, 20);
    g_assert_cmpint(feed_bin(f, 0, 2, "ok"), ==, 10);
    assert_records(f, "[ok]");
    g_string_free(head, TRUE);
}

/* The header arrives in pieces; the request that completes it is refused, and again when it is sent again. */
static void test_bin_header_in_pieces(Fixture *f, gconstpointer unused)
{
    GString *input = bin(0, 12, "123456789012");
    for (size_t cut = 1; cut < 8; cut++) {
        set_kind(f, NRD_FRAMING_BIN);
        g_assert_cmpint(feed_request(f, input->str, cut, true), ==, cut);
        g_assert_cmpint(feed_bytes(f, input->str + cut, 10), ==, -EMSGSIZE);
        g_assert_cmpint(feed_bytes(f, input->str + cut, input->len - cut), ==, -EMSGSIZE); /* longer, with the end */
        g_assert_cmpint(feed_bin(f, 0, 2, "ok"), ==, 10);
        assert_records(f, "[ok]");
    }
    g_string_free(input, TRUE);
}

static void test_bin_lengths_of_4_gib(Fixture *f, gconstpointer unused)
{
    static const uint32_t lengths[][2] = {
        { 0, UINT32_MAX }, { UINT32_MAX, 0 }, { UINT32_MAX, UINT32_MAX }, { NRD_KEY_MAX + 1, 0 }
    };
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        set_kind(f, NRD_FRAMING_BIN);
        g_assert_cmpint(feed_bin(f, lengths[i][0], lengths[i][1], ""), ==, -EMSGSIZE);
        g_assert_cmpuint(f->framing.partial->len, ==, 0);
        g_assert_cmpuint(f->framing.n_skip, ==, (uint64_t)lengths[i][0] + lengths[i][1]);
        g_assert_cmpint(feed(f, "swallowed"), ==, 9);
        assert_records(f, "");
    }
}

/* Requests that the kernel may have cut out of one write: the failure comes with the last of them, so that the write
 * holds the record's end. */
static void test_bin_too_long_in_a_cut_write(Fixture *f, gconstpointer unused)
{
    GString *input = bin(0, 24, "123456789012345678901234");
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_request(f, input->str, 16, true), ==, 16);
    g_assert_cmpint(feed_request(f, input->str + 16, 12, true), ==, 12);
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, -EMSGSIZE);
    g_assert_cmpint(end_when(f, NRD_FRAMING_FLUSH), ==, 0);
    for (int i = 0; i < 2; i++) /* the kernel hides it; the program sends the rest */
        g_assert_cmpint(feed_request(f, input->str + 28, 4, false), ==, -EMSGSIZE);
    end(f);
    g_assert_cmpint(feed_bin(f, 0, 2, "ok"), ==, 10);
    assert_records(f, "[ok]");
    g_assert_cmpint(feed_request(f, input->str, 16, true), ==, 16);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, -EMSGSIZE);
    end(f);
    g_string_free(input, TRUE);
}

static void test_bin_unfinished(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_bin(f, 1, 3, "kab"), ==, 11);
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, -EINVAL);
    g_assert_cmpint(end_when(f, NRD_FRAMING_FLUSH), ==, 0);
    g_assert_cmpint(feed(f, "c"), ==, 1);
    end(f);
    assert_records(f, "[k=abc]");
    g_assert_cmpint(feed(f, "\0\0"), ==, 0);
    g_assert_cmpint(feed_bytes(f, "\0", 1), ==, 1);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, -EINVAL);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, 0);
    assert_records(f, "");
}

/* ---- JSON lines ---- */

static void test_jsonl_any_cuts(Fixture *f, gconstpointer unused)
{
    static const char input[] = "{\"payload\":1}\n\n{\"key\":\"k\",\"payload\":\"\\u00e9\\n\"}\r\n  \n"
                                "{\"payload\":{\"a\":[]}}";
    size_t size = sizeof input - 1;
    for (size_t i = 0; i <= size; i++) {
        for (size_t j = i; j <= size; j++) {
            set_kind(f, NRD_FRAMING_JSONL);
            g_assert_cmpint(feed_bytes(f, input, i), ==, i);
            g_assert_cmpint(feed_bytes(f, input + i, j - i), ==, j - i);
            g_assert_cmpint(feed_bytes(f, input + j, size - j), ==, size - j);
            end(f);
            end(f);
            assert_records(f, "[1][k=\xc3\xa9\n][{\"a\":[]}]");
        }
    }
}

static void test_jsonl_refused(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_JSONL);
    g_assert_cmpint(feed(f, "{\"payload\":1}\nnonsense\n{\"payload\":2}\n"), ==, 14);
    g_assert_cmpint(feed(f, "nonsense\n{\"payload\":2}\n"), ==, -EINVAL);
    g_assert_cmpint(feed(f, "{\"payload\":3}\n"), ==, 14);
    g_assert_cmpint(feed(f, "{\"payload\":"), ==, 11);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(feed(f, "}\n{\"payload\":4}\n"), ==, -EINVAL);
    g_assert_cmpint(feed(f, "{\"payload\":5}\n"), ==, 14);
    assert_records(f, "[1][3][5]");
}

static void test_jsonl_too_long(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_JSONL);
    g_assert_cmpint(feed(f, "{\"payload\":12345678}\n"), ==, 21);
    g_assert_cmpint(feed(f, "{\"payload\":123456789}\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "{\"payload\":\"\\u0031\\u0032345678\"}\n"), ==, 33);
    assert_records(f, "[12345678][12345678]");
    g_autofree char *flood = g_strnfill(1024, '[');
    gssize n = 0;
    for (int i = 0; i < 1000 && n >= 0; i++)
        n = feed(f, flood);
    g_assert_cmpint(n, ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, flood), ==, 1024); /* more of it */
    g_assert_cmpint(feed(f, "x]"), ==, 2);
    g_assert_cmpint(feed(f, "]\n{\"payload\":1}"), ==, 15);
    end(f);
    assert_records(f, "[1]");
}

static void test_jsonl_ends(Fixture *f, gconstpointer unused)
{
    set_kind(f, NRD_FRAMING_JSONL);
    g_assert_cmpint(feed(f, "{\"payload\":1}"), ==, 13);
    g_assert_cmpint(end_when(f, NRD_FRAMING_FLUSH), ==, 0);
    assert_records(f, "[1]");
    g_assert_cmpint(feed(f, " \n{\"payload\":[2"), ==, 15);
    g_assert_cmpint(end_when(f, NRD_FRAMING_FLUSH), ==, 0);
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, -EINVAL);
    g_assert_cmpint(feed(f, "]}"), ==, 2);
    end(f);
    assert_records(f, "[[2]]");
    g_assert_cmpint(feed(f, "\n{\"payload\":\"123456789\"}"), ==, 24);
    g_assert_cmpint(end_when(f, NRD_FRAMING_SYNC), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "\n"), ==, -EMSGSIZE);
    g_assert_cmpint(feed(f, "{\"payload\":3"), ==, 12);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, -EINVAL);
    g_assert_cmpint(feed(f, " {\"payload\":4} "), ==, 15);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, 0);
    assert_records(f, "[4]");
}

/* ---- what all framings keep ---- */

/* The beginning of an object, of so many bytes: all that is missing is its brace. */
static gssize feed_beginning(Fixture *f, size_t size)
{
    GString *text = g_string_new("{\"payload\":1");
    while (text->len < size)
        g_string_append_c(text, ' ');
    gssize taken = feed_bytes(f, text->str, text->len);
    g_string_free(text, TRUE);
    return taken;
}

/* Another handle begins an object and takes all that is left. */
static void fill(NrdFraming *other, Fixture *f)
{
    Fixture g = { .records = f->records };
    f->budget.limit_bytes = BUDGET;
    nrd_framing_init(&g.framing, NRD_FRAMING_JSONL, &f->budget);
    g_assert_cmpint(feed_beginning(&g, FULL), ==, FULL);
    g_assert_cmpuint(f->budget.used_bytes, ==, BUDGET);
    *other = g.framing;
}

static void test_budget_share(Fixture *f, gconstpointer unused)
{
    NrdFraming other;
    fill(&other, f);
    set_kind(f, NRD_FRAMING_JSONL);
    g_assert_cmpint(feed_beginning(f, NRD_PARTIAL_SHARE_BYTES), ==, NRD_PARTIAL_SHARE_BYTES);
    for (int i = 0; i < 2; i++) { /* nothing changes: it is no record that is to be refused */
        g_assert_cmpint(feed(f, " "), ==, -EAGAIN);
        g_assert_cmpuint(f->framing.partial->len, ==, NRD_PARTIAL_SHARE_BYTES);
    }
    g_assert_cmpint(feed(f, " }\n{\"pay"), ==, 8); /* what ends it needs no room */
    assert_records(f, "[1]");
    g_assert_cmpint(feed(f, "load\":2}\n"), ==, 9);
    assert_records(f, "[2]");
    nrd_framing_clear(&other);
}

static void test_budget_short(Fixture *f, gconstpointer unused)
{
    NrdFraming other;
    fill(&other, f);
    set_kind(f, NRD_FRAMING_JSONL);
    GString *text = g_string_new("{\"payload\":2}\n");
    g_string_set_size(text, 14 + NRD_PARTIAL_SHARE_BYTES + 1);
    memset(text->str + 14, ' ', NRD_PARTIAL_SHARE_BYTES + 1);
    g_assert_cmpint(feed_request(f, text->str, text->len, true), ==, 14);
    assert_records(f, "[2]");
    g_assert_cmpint(feed_request(f, text->str + 14, text->len - 14, true), ==, -EAGAIN);
    nrd_framing_clear(&other); /* room again: the same bytes are taken as if nothing had been */
    g_assert_cmpint(feed_request(f, text->str + 14, text->len - 14, true), ==, NRD_PARTIAL_SHARE_BYTES + 1);
    g_assert_cmpint(feed(f, "{\"payload\":3}\n"), ==, 14);
    assert_records(f, "[3]");
    g_string_free(text, TRUE);
}

/* Whatever becomes of a record, its bytes come back. */
static void test_budget_given_back(Fixture *f, gconstpointer unused)
{
    static const char *const ends[] = { "}\n", "x\n" };
    f->budget.limit_bytes = BUDGET;
    set_kind(f, NRD_FRAMING_JSONL);
    for (size_t i = 0; i < G_N_ELEMENTS(ends); i++) {
        g_assert_cmpint(feed_beginning(f, FULL), ==, FULL);
        g_assert_cmpint(feed(f, " "), ==, -EAGAIN);
        g_assert_cmpint(feed(f, ends[i]), ==, i == 0 ? 2 : -EINVAL);
        g_assert_cmpuint(f->budget.used_bytes, ==, 0);
    }
    g_assert_cmpint(feed_beginning(f, FULL), ==, FULL);
    g_assert_cmpint(end_when(f, NRD_FRAMING_CLOSE), ==, -EINVAL);
    g_assert_cmpuint(f->budget.used_bytes, ==, 0);
    assert_records(f, "[1]");
    set_kind(f, NRD_FRAMING_BIN);
    g_assert_cmpint(feed_bin(f, NRD_KEY_MAX, 1, ""), ==, 8);
    g_string_set_size(f->records, NRD_KEY_MAX);
    g_assert_cmpint(feed_bytes(f, f->records->str, NRD_KEY_MAX), ==, NRD_KEY_MAX);
    g_assert_cmpuint(f->budget.used_bytes, ==, 8);
    g_string_truncate(f->records, 0);
}

static void test_budget_told(Fixture *f, gconstpointer unused)
{
    size_t charged = 0, more = 0;
    f->budget.limit_bytes = BUDGET;
    g_assert_cmpint(nrd_partial_budget_take(&f->budget, FULL, &charged), ==, 0);
    g_assert_cmpint(nrd_partial_budget_take(&f->budget, NRD_PARTIAL_SHARE_BYTES, &more), ==, 0);
    g_assert_cmpint(nrd_partial_budget_take(&f->budget, NRD_PARTIAL_SHARE_BYTES + 1, &more), ==, -EAGAIN);
    g_assert_true(nrd_partial_budget_tell(&f->budget));
    g_assert_false(nrd_partial_budget_tell(&f->budget));
    nrd_partial_budget_give_back(&f->budget, &more); /* nothing */
    g_assert_false(nrd_partial_budget_tell(&f->budget));
    nrd_partial_budget_give_back(&f->budget, &charged);
    g_assert_true(nrd_partial_budget_tell(&f->budget));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Fixture *f, gconstpointer unused);
    } cases[] = {
        { "/framing/lines", test_lines },
        { "/framing/ends-of-lines", test_ends_of_lines },
        { "/framing/end-keeps-no-empty-record", test_end_keeps_no_empty_record },
        { "/framing/any-cuts", test_any_cuts },
        { "/framing/random-cuts", test_random_cuts },
        { "/framing/too-long/whole", test_too_long_whole },
        { "/framing/too-long/without-end", test_too_long_without_end },
        { "/framing/too-long/after-a-beginning", test_too_long_after_a_beginning },
        { "/framing/too-long/after-complete-ones", test_too_long_after_complete_ones },
        { "/framing/too-long/after-skipped", test_too_long_after_skipped },
        { "/framing/too-long/refused-again", test_refused_again },
        { "/framing/too-long/refused-again-longer", test_refused_again_longer },
        { "/framing/too-long/refused-again-all-alike", test_refused_again_all_alike },
        { "/framing/too-long/refused-in-secret", test_refused_in_secret },
        { "/framing/bin/of-one-byte", test_bin_of_one_byte },
        { "/framing/too-long/refused-again-in-pieces", test_refused_again_in_pieces },
        { "/framing/malformed/again-in-pieces", test_malformed_again_in_pieces },
        { "/framing/too-long/in-a-cut-write", test_too_long_in_a_cut_write },
        { "/framing/bin/any-cuts", test_bin_any_cuts },
        { "/framing/bin/random-cuts", test_bin_random_cuts },
        { "/framing/bin/too-long/whole", test_bin_too_long_whole },
        { "/framing/bin/too-long/without-end", test_bin_too_long_without_end },
        { "/framing/bin/too-long/after-complete-ones", test_bin_too_long_after_complete_ones },
        { "/framing/bin/too-long/header-in-pieces", test_bin_header_in_pieces },
        { "/framing/bin/too-long/4-gib", test_bin_lengths_of_4_gib },
        { "/framing/bin/too-long/in-a-cut-write", test_bin_too_long_in_a_cut_write },
        { "/framing/bin/too-long/again-all-alike", test_bin_again_all_alike },
        { "/framing/bin/unfinished", test_bin_unfinished },
        { "/framing/jsonl/any-cuts", test_jsonl_any_cuts },
        { "/framing/jsonl/refused", test_jsonl_refused },
        { "/framing/jsonl/too-long", test_jsonl_too_long },
        { "/framing/jsonl/ends", test_jsonl_ends },
        { "/framing/budget/share", test_budget_share },
        { "/framing/budget/short", test_budget_short },
        { "/framing/budget/given-back", test_budget_given_back },
        { "/framing/budget/told", test_budget_told },
    };
    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++)
        g_test_add(cases[i].name, Fixture, NULL, set_up, cases[i].run, tear_down);
    return g_test_run();
}
