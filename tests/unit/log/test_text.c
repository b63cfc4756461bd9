/* Segments: rolling, trimming, side files; and the log as text over all of it. */
#include "model.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/index/index_search.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

static void test_text_many_segments(void)
{
    Fixture f;
    Model m;
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 20000, NRD_CODEC_NONE);
    fixture_open(&f);
    for (int i = 0; i < 120; i++) {
        settings(&f, 20000, i % 3 == 2 ? NRD_CODEC_ZSTD : NRD_CODEC_NONE);
        model_commit(&f, &m, (unsigned)g_test_rand_int_range(1, 40), i % 10 == 0 ? 6000 : 60);
    }
    g_assert_cmpuint(fixture_stats(&f).n_segments, >, 5);
    expect_model(&f, &m, 0);
    fixture_close(&f);
    fixture_open(&f);
    expect_model(&f, &m, 0);
    fixture_crash(&f);
    fixture_open(&f);
    expect_model(&f, &m, 0);
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_text_grows(void)
{
    Fixture f;
    Model m;
    NrdText *text;
    GString *seen = g_string_new(NULL);
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 8000, NRD_CODEC_NONE);
    fixture_open(&f);
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    g_assert_cmpuint(nrd_text_size(text), ==, 0);
    for (int i = 0; i < 100; i++) {
        char buf[700];
        size_t n = 1;
        model_commit(&f, &m, 5, 100);
        g_assert_cmpuint(nrd_text_size(text), ==, m.text->len);
        while (n > 0) {
            g_assert_cmpint(nrd_text_read(text, seen->len, buf, sizeof buf, &n), ==, 0);
            g_string_append_len(seen, buf, (gssize)n);
        }
        g_assert_cmpmem(seen->str, seen->len, m.text->str, m.text->len);
    }
    nrd_text_close(text);
    g_string_free(seen, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static GPtrArray *names_in(Fixture *f, const char *suffix)
{
    char *path = g_build_filename(f->path, "p", NULL);
    GDir *dir = g_dir_open(path, 0, NULL);
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
        if (g_str_has_suffix(name, suffix))
            g_ptr_array_add(names, g_strdup(name));
    }
    g_dir_close(dir);
    g_free(path);
    g_ptr_array_sort(names, by_name);
    return names;
}

static void fill_segments(Fixture *f, Model *m)
{
    fixture_set_up(f);
    model_init(m);
    settings(f, 9000, NRD_CODEC_NONE);
    fixture_open(f);
    for (int i = 0; i < 60; i++)
        model_commit(f, m, 10, 100);
    g_assert_cmpuint(fixture_stats(f).n_segments, >, 4);
}

static void test_trim(void)
{
    Fixture f;
    Model m;
    NrdText *old;
    uint64_t n = 99;
    fill_segments(&f, &m);
    g_assert_cmpint(nrd_text_open(f.log, &old), ==, 0);
    g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) + 1, &n), ==, -EINVAL);
    g_assert_cmpuint(n, ==, 99);
    g_assert_cmpint(nrd_log_trim(f.log, 0, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    for (int i = 0; i < 30; i++)
        model_commit(&f, &m, 10, 100); /* the text has not looked at these yet */
    uint64_t segments = fixture_stats(&f).n_segments;
    g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log), &n), ==, 0);
    g_assert_cmpuint(n, ==, segments - 1); /* never the active one */
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 1);
    uint64_t oldest = nrd_log_oldest(f.log);
    g_assert_cmpuint(oldest, >, 0);
    g_assert_cmpint(fixture_read(&f, oldest - 1, NULL, NULL), ==, -ENOENT);
    expect_text(old, m.text->str, m.text->len); /* what is open keeps its positions */
    expect_model(&f, &m, oldest);
    model_commit(&f, &m, 10, 100);
    expect_text(old, m.text->str, m.text->len);
    nrd_text_close(old);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    GPtrArray *logs = names_in(&f, ".log"), *indexes = names_in(&f, ".index");
    g_assert_cmpuint(logs->len, ==, 1);
    g_assert_cmpuint(indexes->len, ==, 0);
    g_ptr_array_unref(logs);
    g_ptr_array_unref(indexes);
    fixture_close(&f);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_oldest(f.log), ==, oldest);
    expect_model(&f, &m, oldest);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* A file that cannot be removed holds up the later ones: what is on the disk is a suffix. */
static void test_trim_fails(void)
{
    Fixture f;
    Model m;
    uint64_t n = 0;
    fill_segments(&f, &m);
    uint64_t segments = fixture_stats(&f).n_segments;
    uint64_t count = nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK);
    fault_set(FAULT_UNLINK, 3, -EPERM, true);
    fault.suffix = ".log";
    g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log), &n), ==, 0);
    g_assert_cmpuint(n, ==, segments - 1);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, -EPERM);
    fault_clear();
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_RETENTION_UNLINK), ==, count + 1);
    GPtrArray *logs = names_in(&f, ".log");
    g_assert_cmpuint(logs->len, ==, segments - 2);
    g_ptr_array_unref(logs);
    expect_model(&f, &m, nrd_log_oldest(f.log));
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    logs = names_in(&f, ".log");
    g_assert_cmpuint(logs->len, ==, 1);
    g_ptr_array_unref(logs);
    expect_model(&f, &m, nrd_log_oldest(f.log));
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_roll(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0); /* nothing to seal */
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 0);
    fixture_commit(&f, "a");
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 2);
    fixture_commit(&f, "b");
    fixture_close(&f);
    fixture_open(&f);
    fixture_expect(&f, 0, "a");
    fixture_expect(&f, 1, "b");
    fixture_tear_down(&f);
}

/* A roll that fails at the end of a commit does not fail it; before a write it does, until it works. */
static void roll_fails(bool crash)
{
    static const struct {
        FaultCall call;
        int error;
        const char *suffix;
    } cases[] = { { FAULT_OPEN, -EMFILE, "01.log" }, { FAULT_OPEN, -ENOSPC, "01.log" }, { FAULT_FSYNC, -EIO, NULL } };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        uint64_t offset = 0;
        fixture_set_up(&f);
        fixture_open(&f);
        settings(&f, 30, NRD_CODEC_NONE);
        fault_set(cases[i].call, cases[i].call == FAULT_FSYNC ? 2 : 1, cases[i].error, true);
        fault.suffix = cases[i].suffix; /* the first fsync makes the first segment's name durable */
        g_assert_cmpuint(fixture_commit(&f, "full"), ==, 0);
        g_assert_cmpuint(fault.n_fired, ==, 1);
        fixture_expect(&f, 0, "full");
        for (int k = 0; k < 3; k++)
            g_assert_cmpint(fixture_try_commit(&f, "next", &offset), <, 0);
        g_assert_cmpuint(fixture_stats(&f).n_segments, ==, 1);
        fault_clear();
        if (crash) {
            fixture_crash(&f);
            fixture_open(&f);
        }
        fixture_expect(&f, 0, "full");
        g_assert_cmpuint(fixture_commit(&f, "next"), ==, 1);
        g_assert_true(crash || fixture_exists(&f, "00000000000000000001.log"));
        fixture_crash(&f);
        fixture_open(&f);
        fixture_expect(&f, 0, "full");
        fixture_expect(&f, 1, "next");
        fixture_tear_down(&f);
    }
}

static void test_roll_fails(void)
{
    roll_fails(false); /* the file may exist already: it is empty, and taken */
    roll_fails(true);
}

/* Side files that are missing, cut, flipped anywhere, or of another segment, change nothing. */
static void test_index_files(void)
{
    Fixture f;
    Model m;
    fill_segments(&f, &m);
    fixture_close(&f);
    GPtrArray *names = names_in(&f, ".index");
    g_assert_cmpuint(names->len, >=, 4);
    GByteArray *good = fixture_get(&f, names->pdata[0]);
    GByteArray *other = fixture_get(&f, names->pdata[1]);
    for (guint i = 0; i < good->len + 6; i++) {
        if (i < good->len)
            fixture_flip(&f, names->pdata[0], i);
        else if (i == good->len)
            fixture_remove(&f, names->pdata[0]);
        else if (i == good->len + 1)
            fixture_put(&f, names->pdata[0], other->data, other->len);
        else
            fixture_put(&f, names->pdata[0], good->data, (i - good->len - 2) * (good->len - 1) / 3);
        fixture_open(&f);
        g_assert_cmpuint(fixture_stats(&f).text_bytes, ==, m.text->len);
        if (i % 16 == 0 || i >= good->len)
            expect_model(&f, &m, 0);
        else
            g_assert_cmpint(fixture_read(&f, 5, NULL, NULL), ==, 0);
        fixture_close(&f);
        GByteArray *is = fixture_get(&f, names->pdata[0]); /* mended, when a search has looked there */
        if (i < 4096 || i >= good->len)
            g_assert_cmpmem(is->data, is->len, good->data, good->len);
        g_byte_array_unref(is);
        fixture_put(&f, names->pdata[0], good->data, good->len);
    }
    for (guint i = 0; i < names->len; i++)
        fixture_remove(&f, names->pdata[i]);
    fixture_open(&f);
    expect_model(&f, &m, 0);
    g_byte_array_unref(good);
    g_byte_array_unref(other);
    g_ptr_array_unref(names);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* An open reads a sealed segment's header alone, and a read costs few disk reads. */
static void test_open_is_cheap(void)
{
    Fixture f;
    Model m;
    fill_segments(&f, &m);
    uint64_t segments = fixture_stats(&f).n_segments;
    fixture_close(&f);
    fault_clear();
    fixture_open(&f);
    g_assert_cmpuint(fault.counts[FAULT_PREAD], <=, segments + 4);
    fault_clear();
    fixture_read(&f, 100, NULL, NULL);
    g_assert_cmpuint(fault.counts[FAULT_PREAD], <=, 4);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Damage met while a text is open: everything before the place stays, what follows moves up, counted once. */
static void test_text_damage(void)
{
    for (int sealed = 0; sealed < 2; sealed++) {
        Fixture f;
        NrdText *text;
        GString *want = g_string_new(NULL);
        size_t ends[21] = { 0 };
        fixture_set_up(&f);
        fixture_open(&f);
        for (unsigned i = 0; i < 20; i++) {
            fixture_commit_numbers(&f, 1000 + i * 100, 100);
            ends[i + 1] = fixture_stats(&f).size_bytes;
        }
        if (sealed)
            g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
        fixture_commit_numbers(&f, 9000, 10);
        for (unsigned i = 0; i < 2010; i++) {
            if (i / 100 != 10)
                g_string_append_printf(want, "%u\n", i < 2000 ? 1000 + i : 9000 + i - 2000);
        }
        g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
        char buf[2500];
        size_t n = 0;
        g_assert_cmpint(nrd_text_read(text, 0, buf, sizeof buf, &n), ==, 0);
        fixture_flip(&f, SEGMENT_0, ends[10] + 500);
        uint64_t count = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
        nrd_text_close(text);
        g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
        GString *all = fixture_text(text, 0);
        g_assert_cmpstr(all->str, ==, want->str);
        g_string_free(all, TRUE);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + 1);
        expect_text(text, want->str, want->len);
        uint64_t next = 0;
        g_assert_cmpint(fixture_read(&f, 1050, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, 1100);
        fixture_expect(&f, 1100, "2100");
        fixture_commit_numbers(&f, 9010, 10);
        for (int i = 9010; i < 9020; i++)
            g_string_append_printf(want, "%d\n", i);
        expect_text(text, want->str, want->len);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + 1);
        nrd_text_close(text);
        fixture_flip(&f, SEGMENT_0, ends[15] + 500); /* a second one: the first is not counted again */
        g_assert_cmpint(fixture_read(&f, 1550, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + 2);
        fixture_flip(&f, SEGMENT_0, ends[15] + 500);
        fixture_remove(&f, "00000000000000000000.index"); /* damage has sealed the segment, if nothing else has */
        for (int i = 0; i < 3; i++) {
            fixture_crash(&f);
            fixture_open(&f);
            g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
            expect_text(text, want->str, want->len);
            nrd_text_close(text);
        }
        g_string_free(want, TRUE);
        fixture_tear_down(&f);
    }
}

/* Many segments, few descriptors. */
static unsigned n_descriptors(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;
    while (g_dir_read_name(dir) != NULL)
        n++;
    g_dir_close(dir);
    return n;
}

static void test_descriptors(void)
{
    Fixture f;
    Model m;
    unsigned before = n_descriptors();
    fill_segments(&f, &m);
    expect_model(&f, &m, 0);
    g_assert_cmpuint(n_descriptors(), <=, before + 5);
    fixture_close(&f);
    g_assert_cmpuint(n_descriptors(), <=, before + 1);
    model_clear(&m);
    fixture_tear_down(&f);
    g_assert_cmpuint(n_descriptors(), ==, before);
}

/* Readers beside a committer that rolls, trims and reopens. */
typedef struct Race {
    NrdLog *log;
    gint stop;
} Race;

static gpointer race_reader(gpointer data)
{
    Race *race = data;
    NrdLogCursor *cursor = nrd_log_cursor_new(race->log);
    NrdText *text = NULL;
    uint64_t n_read = 0;
    g_assert_cmpint(nrd_text_open(race->log, &text), ==, 0);
    while (!g_atomic_int_get(&race->stop) || n_read == 0) {
        uint64_t oldest = nrd_log_oldest(race->log), hwm = nrd_log_hwm(race->log), next;
        char buf[500];
        size_t n;
        for (uint64_t i = oldest; i < hwm && i < oldest + 200; i++) {
            NrdRecordView view;
            int r = nrd_log_cursor_read(cursor, i, &view, &next);
            if (r == -ENOENT)
                break; /* trimmed */
            g_assert_cmpint(r, ==, 0);
            char want[24];
            int size = g_snprintf(want, sizeof want, "%u", (unsigned)i);
            g_assert_cmpmem(view.payload, view.payload_size, want, (size_t)size);
            n_read++;
        }
        g_assert_cmpint(nrd_text_read(text, nrd_text_size(text) / 2, buf, sizeof buf, &n), ==, 0);
    }
    nrd_text_close(text);
    nrd_log_cursor_free(cursor);
    return NULL;
}

static void test_race(void)
{
    Fixture f;
    GThread *threads[3];
    fixture_set_up(&f);
    nrd_io = &nrd_io_real; /* the fault table counts without locks */
    settings(&f, 3000, NRD_CODEC_NONE);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    Race race = { .log = f.log };
    for (int i = 0; i < 3; i++)
        threads[i] = g_thread_new("reader", race_reader, &race);
    for (unsigned i = 1; i < 300; i++) {
        uint64_t n;
        fixture_commit_numbers(&f, i * 10, 10);
        if (i % 50 == 0 && nrd_log_hwm(f.log) > 1000)
            g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) - 1000, &n), ==, 0);
        if (i % 70 == 0)
            g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
        if (i % 30 == 0)
            g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    }
    g_atomic_int_set(&race.stop, 1);
    for (int i = 0; i < 3; i++)
        g_thread_join(threads[i]);
    fixture_tear_down(&f);
}

static bool find(NrdIndex *index, NrdIndexKey key, uint64_t value, NrdIndexPlace *ret_place)
{
    NrdIndexView view = nrd_index_view(index);
    NrdIndexQuery query = { .key = key, .value = value, .time_ms = (int64_t)value };
    bool found = false;
    g_assert_cmpint(nrd_index_search(&view, &query, ret_place, &found), ==, 0);
    return found;
}

static void test_index_pure(void)
{
    NrdIndex *index = nrd_index_new(100);
    NrdIndexPlace place;
    for (unsigned i = 0; i < 100; i++)
        nrd_index_add_frame(index, 1000, 10, 50, i);
    nrd_index_add_gap(index, 100500, 1110);
    nrd_index_add_frame(index, 1000, 10, 50, 7);
    g_assert_cmpuint(index->entries->len, ==, 21);
    g_assert_true(find(index, NRD_BY_OFFSET, 100, &place));
    g_assert_cmpuint(place.pos, ==, 0);
    g_assert_true(find(index, NRD_BY_OFFSET, 1099, &place));
    g_assert_cmpuint(place.pos, ==, 95000);
    g_assert_cmpuint(place.limit_pos, ==, 100000);
    g_assert_false(place.is_gap);
    g_assert_true(find(index, NRD_BY_OFFSET, 1100, &place));
    g_assert_true(place.is_gap);
    g_assert_cmpuint(place.gap.end_offset, ==, 1110);
    g_assert_true(find(index, NRD_BY_OFFSET, 1119, &place));
    g_assert_cmpuint(place.pos, ==, 100500);
    g_assert_true(find(index, NRD_BY_TEXT, 4999, &place));
    g_assert_cmpuint(place.pos, ==, 95000);
    g_assert_true(find(index, NRD_BY_TEXT, 5000, &place));
    g_assert_cmpuint(place.pos, ==, 100500);
    g_assert_false(find(index, NRD_BY_TEXT, 5050, &place));
    g_assert_cmpint(index->end.commit_ms, ==, 99);
    nrd_index_free(index);
    nrd_index_free(NULL);

    /* rebuilt with a gap while it grew */
    NrdIndex *old = nrd_index_new(0);
    for (unsigned i = 0; i < 10; i++)
        nrd_index_add_frame(old, 5000, 10, 70, i);
    NrdIndexEnd since = old->end;
    index = nrd_index_new(0);
    for (unsigned i = 0; i < 8; i++)
        nrd_index_add_frame(index, 5000, 10, 70, i);
    nrd_index_add_gap(index, 50000, 100);
    for (unsigned i = 0; i < 9; i++)
        nrd_index_add_frame(old, 1000, 1, 3, 20);
    nrd_index_continue(index, old, &since);
    g_assert_cmpuint(index->end.pos, ==, 59000);
    g_assert_cmpuint(index->end.offset, ==, 109);
    g_assert_cmpuint(index->end.text_bytes, ==, 8 * 70 + 9 * 3);
    g_assert_true(find(index, NRD_BY_OFFSET, 100, &place));
    g_assert_cmpuint(place.pos, ==, 50000);
    g_assert_cmpuint(place.text_pos, ==, 560);
    g_assert_true(find(index, NRD_BY_OFFSET, 108, &place));
    g_assert_cmpuint(place.pos, ==, 55000);
    g_assert_cmpuint(place.text_pos, ==, 575);
    g_assert_true(find(index, NRD_BY_TEXT, 574, &place));
    g_assert_cmpuint(place.pos, ==, 50000);
    nrd_index_free(index);
    nrd_index_free(old);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/index", test_index_pure);
    g_test_add_func("/log/text/segments", test_text_many_segments);
    g_test_add_func("/log/text/grows", test_text_grows);
    g_test_add_func("/log/text/damage", test_text_damage);
    g_test_add_func("/log/trim/files", test_trim);
    g_test_add_func("/log/trim/fails", test_trim_fails);
    g_test_add_func("/log/roll/explicit", test_roll);
    g_test_add_func("/log/roll/fails", test_roll_fails);
    g_test_add_func("/log/index-file/bad", test_index_files);
    g_test_add_func("/log/index-file/cheap", test_open_is_cheap);
    g_test_add_func("/log/descriptors", test_descriptors);
    g_test_add_func("/log/race", test_race);
    return g_test_run();
}
