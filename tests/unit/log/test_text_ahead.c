/* Reading the text in order, with what comes next rendered ahead. */
#include "model.h"

#include <errno.h>
#include <string.h>

#define READ_BYTES 300

/* One read in order; true when its bytes lay ready. */
static bool read_in_order(NrdText *text, uint64_t pos, size_t size, GString *ret_bytes)
{
    void *buf = g_malloc(size);
    uintptr_t before = (uintptr_t)buf;
    size_t n = 0;
    g_assert_cmpint(nrd_text_read_in_order(text, pos, &buf, size, &n), ==, 0);
    g_string_truncate(ret_bytes, 0);
    g_string_append_len(ret_bytes, buf, (gssize)n);
    bool exchanged = (uintptr_t)buf != before;
    g_free(buf);
    return exchanged;
}

static void expect_piece(const GString *got, const GString *all, size_t pos, size_t size)
{
    g_assert_cmpmem(got->str, got->len, all->str + pos, MIN(size, all->len - pos));
}

/* Through segments, to an end that moves, and on from there. */
static void test_in_order(void)
{
    Fixture f;
    Model m;
    NrdText *text;
    GString *piece = g_string_new(NULL);
    unsigned n_ready = 0, n_reads = 0;
    size_t pos = 0;
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 8000, NRD_CODEC_NONE);
    fixture_open(&f);
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    for (int i = 0; i < 60; i++) {
        model_commit(&f, &m, 40, 100);
        do {
            n_ready += read_in_order(text, pos, READ_BYTES, piece);
            nrd_text_read_ahead(text);
            expect_piece(piece, m.text, pos, READ_BYTES);
            pos += piece->len;
            n_reads++;
        } while (piece->len == READ_BYTES);
    }
    g_assert_cmpuint(pos, ==, m.text->len);
    g_assert_cmpuint(n_ready, >, n_reads / 3); /* all but the first ones, and those at an end */
    nrd_text_close(text);
    g_string_free(piece, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* What lies ready for one read is not given to another, and a reader that jumps about has nothing read for it. */
static void test_jumps(void)
{
    Fixture f;
    Model m;
    NrdText *text;
    GString *piece = g_string_new(NULL);
    fixture_set_up(&f);
    model_init(&m);
    fixture_open(&f);
    for (int i = 0; i < 20; i++)
        model_commit(&f, &m, 40, 100);
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    for (int i = 0; i < 2000; i++) {
        size_t pos = (size_t)g_test_rand_int_range(0, (gint32)m.text->len);
        int n_reads = g_test_rand_int_range(1, 6);
        for (int j = 0; j < n_reads && pos < m.text->len; j++) {
            size_t size = g_test_rand_int_range(0, 8) == 0 ? 100 : READ_BYTES;
            bool ready = read_in_order(text, pos, size, piece);
            expect_piece(piece, m.text, pos, size);
            g_assert_false(ready && j < 3);
            pos += piece->len + (g_test_rand_int_range(0, 8) == 0);
            nrd_text_read_ahead(text);
        }
    }
    nrd_text_close(text);
    g_string_free(piece, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Three reads, and the fourth lies ready. Frames of 100 records, 500 bytes of text each. */
static NrdText *read_three(Fixture *f, GString *all)
{
    NrdText *text;
    GString *piece = g_string_new(NULL);
    for (unsigned i = 0; i < 20; i++)
        fixture_commit_numbers(f, 1000 + i * 100, 100);
    for (unsigned i = 0; i < 2000; i++)
        g_string_append_printf(all, "%u\n", 1000 + i);
    g_assert_cmpint(nrd_text_open(f->log, &text), ==, 0);
    for (size_t pos = 0; pos < (size_t)3 * READ_BYTES; pos += READ_BYTES) {
        g_assert_false(read_in_order(text, pos, READ_BYTES, piece));
        expect_piece(piece, all, pos, READ_BYTES);
        nrd_text_read_ahead(text);
    }
    g_string_free(piece, TRUE);
    return text;
}

/* Damage that was met since has moved the text: what lay ready is not what stands there now. */
static void test_damage(void)
{
    Fixture f;
    uint64_t next;
    GString *all = g_string_new(NULL), *piece = g_string_new(NULL);
    fixture_set_up(&f);
    fixture_open(&f);
    NrdText *text = read_three(&f, all);
    size_t frame_bytes = fixture_stats(&f).size_bytes / 20;
    fixture_flip(&f, SEGMENT_0, 2 * frame_bytes + 500);
    g_assert_cmpint(fixture_read(&f, 250, NULL, &next), ==, -EBADMSG);
    g_string_erase(all, 1000, 500);
    g_assert_false(read_in_order(text, (size_t)3 * READ_BYTES, READ_BYTES, piece));
    expect_piece(piece, all, (size_t)3 * READ_BYTES, READ_BYTES);
    nrd_text_close(text);
    g_string_free(piece, TRUE);
    g_string_free(all, TRUE);
    fixture_tear_down(&f);
}

/* Retention moves nothing, and a log that was closed gives nothing out, ready or not. */
static void test_trim_and_close(void)
{
    Fixture f;
    size_t n;
    uint64_t n_trimmed;
    void *buf = g_malloc(READ_BYTES);
    GString *all = g_string_new(NULL), *piece = g_string_new(NULL);
    fixture_set_up(&f);
    fixture_open(&f);
    NrdText *text = read_three(&f, all);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    fixture_commit_numbers(&f, 9000, 10);
    g_assert_cmpint(nrd_log_trim(f.log, 2000, &n_trimmed), ==, 0);
    g_assert_true(read_in_order(text, (size_t)3 * READ_BYTES, READ_BYTES, piece));
    expect_piece(piece, all, (size_t)3 * READ_BYTES, READ_BYTES);
    nrd_text_read_ahead(text);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpint(nrd_text_read_in_order(text, (size_t)4 * READ_BYTES, &buf, READ_BYTES, &n), ==, -ESHUTDOWN);
    nrd_text_read_ahead(text);
    nrd_text_close(text);
    g_free(buf);
    g_string_free(piece, TRUE);
    g_string_free(all, TRUE);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/text-ahead/in-order", test_in_order);
    g_test_add_func("/log/text-ahead/jumps", test_jumps);
    g_test_add_func("/log/text-ahead/damage", test_damage);
    g_test_add_func("/log/text-ahead/trim-and-close", test_trim_and_close);
    return g_test_run();
}
