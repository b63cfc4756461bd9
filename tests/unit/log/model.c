/* See model.h. */
#include "model.h"

#include <string.h>

void model_init(Model *m)
{
    m->text = g_string_new(NULL);
    m->starts = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    m->payloads = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
}

void model_clear(Model *m)
{
    g_string_free(m->text, TRUE);
    g_array_unref(m->starts);
    g_ptr_array_unref(m->payloads);
}

void model_commit(Fixture *f, Model *m, unsigned n_records, size_t max_size)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    uint64_t first = 0;
    for (unsigned i = 0; i < n_records; i++) {
        size_t size = (size_t)g_test_rand_int_range(0, (gint32)max_size + 1);
        char *payload = g_malloc(size + 1);
        char key[8];
        for (size_t k = 0; k < size; k++)
            payload[k] = (char)('a' + g_test_rand_int_range(0, 4));
        int n_key = g_snprintf(key, sizeof key, "%d", g_test_rand_int_range(0, 1000));
        nrd_record_batch_add(batch, key, i % 2 ? (size_t)n_key : 0, payload, size);
        uint64_t start = m->text->len;
        g_array_append_val(m->starts, start);
        g_ptr_array_add(m->payloads, g_bytes_new(payload, size));
        g_string_append_len(m->text, payload, (gssize)size);
        g_string_append_c(m->text, '\n');
        g_free(payload);
    }
    g_assert_cmpint(nrd_log_commit(f->log, &batch, 1, &first), ==, 0);
    g_assert_cmpuint(first + n_records, ==, m->payloads->len);
    nrd_record_batch_free(batch);
}

void expect_text(NrdText *text, const char *want, size_t size)
{
    g_assert_cmpuint(nrd_text_size(text), ==, size);
    for (int round = 0; round < 2; round++) {
        GString *all = fixture_text(text, round == 0 ? 0 : 4096);
        g_assert_cmpmem(all->str, all->len, want, size);
        g_string_free(all, TRUE);
    }
    for (int i = 0; i < 200 && size > 0; i++) { /* random places */
        char buf[300];
        size_t pos = (size_t)g_test_rand_int_range(0, (gint32)size), n = 0;
        size_t len = (size_t)g_test_rand_int_range(1, sizeof buf);
        g_assert_cmpint(nrd_text_read(text, pos, buf, len, &n), ==, 0);
        g_assert_cmpmem(buf, n, want + pos, MIN(len, size - pos));
    }
}

size_t model_start(const Model *m, uint64_t offset)
{
    return offset < m->starts->len ? g_array_index(m->starts, uint64_t, offset) : m->text->len;
}

void expect_model(Fixture *f, const Model *m, uint64_t from)
{
    NrdText *text;
    size_t start = model_start(m, from);
    g_assert_cmpint(nrd_text_open(f->log, &text), ==, 0);
    expect_text(text, m->text->str + start, m->text->len - start);
    g_assert_cmpuint(fixture_stats(f).text_bytes, ==, m->text->len - start);
    nrd_text_close(text);
    NrdLogCursor *cursor = nrd_log_cursor_new(f->log);
    for (int i = 0; i < 400; i++) {
        NrdRecordView view;
        uint64_t next, offset = (uint64_t)g_test_rand_int_range((gint32)from, (gint32)m->payloads->len);
        g_assert_cmpint(nrd_log_cursor_read(cursor, offset, &view, &next), ==, 0);
        gsize size;
        const void *want = g_bytes_get_data(m->payloads->pdata[offset], &size);
        g_assert_cmpmem(view.payload, view.payload_size, want, size);
    }
    nrd_log_cursor_free(cursor);
}

void settings(Fixture *f, uint64_t segment_bytes, NrdCodec codec)
{
    f->options.settings.segment_bytes = segment_bytes;
    f->options.settings.codec = codec;
    if (f->log != NULL)
        nrd_log_configure(f->log, &f->options.settings);
}
