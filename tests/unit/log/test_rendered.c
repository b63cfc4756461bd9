/* The log in a rendering: the map and its side file, and positions against a rendering made record by record. */
#include "model.h"

#include "engine/base/clock.h"
#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/log/segments/render_cache.h"
#include "engine/log/segments/render_file.h"
#include "engine/log/state/state.h"

#include <errno.h>
#include <string.h>

#define RENDERED_0 "00000000000000000000.rendered"

/* ---- a rendering ---- */

static _Atomic unsigned
    n_lengths; /* calls: each is a record that was read to measure it, or on the way to a position */

static void append_line(GString *out, const NrdRenderRecord *record)
{
    g_string_append_printf(out, "<%u %" G_GUINT64_FORMAT " %.*s>", record->partition, record->offset,
                           (int)record->key_size, (const char *)record->key);
    g_string_append_len(out, (const char *)record->payload, (gssize)record->payload_size);
    g_string_append_len(out, (const char *)record->payload, (gssize)(record->payload_size % 7));
    g_string_append_c(out, '\n');
}

static uint64_t line_length(const NrdRenderRecord *record)
{
    GString *line = g_string_new(NULL);
    n_lengths++;
    append_line(line, record);
    uint64_t length = line->len;
    g_string_free(line, TRUE);
    return length;
}

static const NrdRendering rendering = { "test", 1, line_length, append_line };
static const NrdRendering other = { "other", 1, line_length, append_line };
static const NrdRendering newer = { "test", 2, line_length, append_line };

static bool gives_up(void *data)
{
    unsigned *left = data;
    return (*left)-- == 0;
}

static NrdRendered *open_rendered(Fixture *f, const NrdRendering *of)
{
    NrdRenderedWant want = { .rendering = of };
    NrdRendered *rendered = NULL;
    g_assert_cmpint(nrd_rendered_open(f->log, &want, &rendered), ==, 0);
    return rendered;
}

static uint64_t size_of(NrdRendered *rendered)
{
    uint64_t size = UINT64_MAX;
    g_assert_cmpint(nrd_rendered_size(rendered, &size), ==, 0);
    return size;
}

/* What it should be: every record that a cursor can read, from `from` on. */
static GString *naive(Fixture *f, uint64_t from)
{
    GString *text = g_string_new(NULL);
    NrdLogCursor *cursor = nrd_log_cursor_new(f->log);
    for (uint64_t offset = from; offset < nrd_log_hwm(f->log); offset++) {
        NrdRecordView view;
        uint64_t next;
        int r = nrd_log_cursor_read(cursor, offset, &view, &next);
        g_assert_true(r == 0 || r == -EBADMSG);
        if (r < 0)
            continue;
        NrdRenderRecord record = { f->options.partition, offset,       view.commit_ms,   view.key,
                                   view.key_size,        view.payload, view.payload_size };
        append_line(text, &record);
    }
    nrd_log_cursor_free(cursor);
    return text;
}

static void expect_at(NrdRendered *rendered, const GString *want, size_t pos, size_t size)
{
    char buf[4000];
    size_t n = 0;
    g_assert_cmpint(nrd_rendered_read(rendered, pos, buf, size, &n), ==, 0);
    g_assert_cmpmem(buf, n, want->str + MIN(pos, want->len), MIN(size, want->len - MIN(pos, want->len)));
}

/* In order, in pieces of every kind, and at random places. */
static void expect_rendered(NrdRendered *rendered, const GString *want)
{
    g_assert_cmpuint(size_of(rendered), ==, want->len);
    for (size_t pos = 0, i = 1; pos < want->len; i = i * 5 % 3989) {
        expect_at(rendered, want, pos, i);
        pos += i;
    }
    for (int i = 0; i < 100; i++)
        expect_at(rendered, want, (size_t)g_test_rand_int_range(0, (gint32)want->len + 2), 77);
    expect_at(rendered, want, want->len, 10);
}

static void expect_fresh(Fixture *f)
{
    GString *want = naive(f, nrd_log_oldest(f->log));
    NrdRendered *rendered = open_rendered(f, &rendering);
    expect_rendered(rendered, want);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
}

/* Some segments, keyed records, plain and compressed frames. */
static void fill(Fixture *f, Model *m, uint64_t segment_bytes, unsigned n_commits)
{
    fixture_set_up(f);
    model_init(m);
    fixture_open(f);
    for (unsigned i = 0; i < n_commits; i++) {
        settings(f, segment_bytes, i % 3 == 2 ? NRD_CODEC_ZSTD : NRD_CODEC_NONE);
        model_commit(f, m, 10, 100);
    }
    g_assert_cmpuint(fixture_stats(f).n_segments, >, 2);
}

/* ---- positions ---- */

static void test_every_position(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 4000, 25);
    GString *want = naive(&f, 0);
    for (int round = 0; round < 2; round++) {
        NrdRendered *rendered = open_rendered(&f, &rendering);
        g_assert_cmpuint(size_of(rendered), ==, want->len);
        for (size_t pos = 0; pos <= want->len + 1; pos++)
            expect_at(rendered, want, pos, 1 + pos % 90);
        nrd_rendered_close(rendered);
        expect_fresh(&f);
        fixture_crash(&f);
        fixture_open(&f);
    }
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Segments with many points each: a read costs one gap, and is right around every point. */
static void test_points(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 400 * 1000, 2000);
    GString *want = naive(&f, 0);
    for (int round = 0; round < 2; round++) {
        NrdRendered *rendered = open_rendered(&f, &rendering);
        g_assert_cmpuint(size_of(rendered), ==, want->len);
        for (size_t pos = 0; pos < want->len; pos += 9973)
            expect_at(rendered, want, pos, 200);
        for (size_t pos = 0; pos < want->len; pos += 40009) {
            n_lengths = 0;
            expect_at(rendered, want, pos, 1);
            g_assert_cmpuint(n_lengths, <, 3000); /* 64 KiB of lines of 25 bytes and more */
        }
        nrd_rendered_close(rendered);
        fixture_close(&f);
        fixture_open(&f);
    }
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_grows(void)
{
    Fixture f;
    fixture_set_up(&f);
    settings(&f, 5000, NRD_CODEC_NONE);
    fixture_open(&f);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    g_assert_cmpuint(size_of(rendered), ==, 0);
    GString *seen = g_string_new(NULL);
    Model m;
    model_init(&m);
    for (int i = 0; i < 60; i++) {
        model_commit(&f, &m, 5, 100);
        if (i % 4 == 0)
            (void)size_of(rendered);
        char buf[700];
        size_t n = 1;
        while (n > 0) {
            g_assert_cmpint(nrd_rendered_read(rendered, seen->len, buf, (gsize)1 + (gsize)i * 11, &n), ==, 0);
            g_string_append_len(seen, buf, (gssize)n);
        }
        g_assert_cmpuint(size_of(rendered), ==, seen->len);
    }
    GString *want = naive(&f, 0);
    g_assert_cmpmem(seen->str, seen->len, want->str, want->len);
    expect_rendered(rendered, want);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
    g_string_free(seen, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* ---- measuring once ---- */

static unsigned lengths_of_size(Fixture *f, const NrdRendering *of)
{
    NrdRendered *rendered = open_rendered(f, of);
    n_lengths = 0;
    (void)size_of(rendered);
    nrd_rendered_close(rendered);
    return n_lengths;
}

static void test_measured_once(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 4000, 25);
    unsigned all = (unsigned)nrd_log_hwm(f.log);
    g_assert_cmpuint(lengths_of_size(&f, &rendering), ==, all);
    g_assert_cmpuint(lengths_of_size(&f, &rendering), ==, 0);
    model_commit(&f, &m, 3, 10);
    g_assert_cmpuint(lengths_of_size(&f, &rendering), ==, 3);
    fixture_close(&f);
    fixture_open(&f);
    g_assert_cmpuint(lengths_of_size(&f, &rendering), ==, 0); /* also of the active segment: the close has left it */
    fixture_crash(&f);
    fixture_open(&f);
    model_commit(&f, &m, 1, 10); /* what the close left is of no use any more */
    g_assert_cmpuint(lengths_of_size(&f, &rendering), <, all / 2);
    g_assert_cmpuint(lengths_of_size(&f, &other), ==, all + 4);
    g_assert_cmpuint(lengths_of_size(&f, &newer), ==, all + 4);
    g_assert_cmpuint(lengths_of_size(&f, &newer), ==, 0);
    expect_fresh(&f);
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_read_only_writes_nothing(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 4000, 25);
    fixture_close(&f);
    f.options.read_only = true;
    fixture_open(&f);
    expect_fresh(&f);
    g_assert_false(fixture_exists(&f, RENDERED_0));
    fixture_close(&f);
    f.options.read_only = false;
    fixture_open(&f);
    fault_set(FAULT_OPEN, 1, -ENOSPC, true);
    fault.suffix = ".rendered";
    expect_fresh(&f); /* nor does a disk that is full take anything away */
    fault_clear();
    model_clear(&m);
    fixture_tear_down(&f);
}

/* The points of more segments than stay in memory come back from the side files. */
static void test_memory_is_bounded(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    char *payload = g_strnfill(50000, 'y');
    for (unsigned i = 0; i < NRD_RENDER_CACHE_MAX + 20; i++) {
        for (unsigned k = 0; k < 3; k++)
            fixture_commit(&f, payload);
        g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    }
    GString *want = naive(&f, 0);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    g_assert_cmpuint(size_of(rendered), ==, want->len);
    g_assert_cmpuint(nrd_render_cache_length(), ==, NRD_RENDER_CACHE_MAX);
    n_lengths = 0;
    for (unsigned i = 0; i < 2 * (NRD_RENDER_CACHE_MAX + 20); i++)
        expect_at(rendered, want, (want->len / 200 * i * 7 + 140000) % want->len, 30);
    g_assert_cmpuint(n_lengths, <=, 2 * (NRD_RENDER_CACHE_MAX + 20) * 3); /* gaps only, no segment */
    g_assert_cmpuint(nrd_render_cache_length(), ==, NRD_RENDER_CACHE_MAX);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
    g_free(payload);
    fixture_tear_down(&f);
    g_assert_cmpuint(nrd_render_cache_length(), ==, 0);
}

static void test_give_up(void)
{
    Fixture f;
    Model m;
    unsigned left = 30;
    NrdRenderedWant want = { &rendering, gives_up, &left };
    NrdRendered *rendered = NULL;
    uint64_t size = 0;
    fill(&f, &m, 4000, 25);
    g_assert_cmpint(nrd_rendered_open(f.log, &want, &rendered), ==, 0);
    g_assert_true(nrd_rendered_waits(rendered, 5000));
    g_assert_cmpint(nrd_rendered_size(rendered, &size), ==, -ECANCELED);
    g_assert_cmpuint(size, ==, 0);
    left = UINT_MAX;
    GString *text = naive(&f, 0);
    expect_rendered(rendered, text);
    g_assert_false(nrd_rendered_waits(rendered, 5000));
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    char byte;
    size_t n;
    g_assert_cmpint(nrd_rendered_size(rendered, &size), ==, -ESHUTDOWN);
    g_assert_cmpint(nrd_rendered_read(rendered, 0, &byte, 1, &n), ==, -ESHUTDOWN);
    nrd_rendered_close(rendered);
    g_string_free(text, TRUE);
    nrd_log_free(f.log);
    f.log = NULL;
    model_clear(&m);
    fixture_tear_down(&f);
}

static bool peek(Fixture *f, const NrdRendering *of, uint64_t *ret_bytes)
{
    NrdLogStats stats;
    bool known = false;
    g_assert_cmpint(nrd_log_peek_rendered(f->root_fd, "p", of, &stats, ret_bytes, &known), ==, 0);
    return known;
}

/* A log that is closed: known without an open when, and only when, all of it was measured and nothing changed since. */
static void test_peek(void)
{
    Fixture f;
    Model m;
    uint64_t bytes = 4711;
    fill(&f, &m, 4000, 25);
    fixture_close(&f);
    g_assert_false(peek(&f, &rendering, &bytes)); /* never measured */
    fixture_open(&f);
    expect_fresh(&f);
    GString *want = naive(&f, 0);
    fixture_close(&f);
    n_lengths = 0;
    g_assert_false(peek(&f, &other, &bytes));
    g_assert_cmpuint(bytes, ==, 4711);
    g_assert_true(peek(&f, &rendering, &bytes));
    g_assert_cmpuint(bytes, ==, want->len);
    g_assert_cmpuint(n_lengths, ==, 0);
    fixture_open(&f);
    model_commit(&f, &m, 1, 10); /* and nobody asks */
    fixture_close(&f);
    g_assert_false(peek(&f, &rendering, &bytes));
    fixture_open(&f);
    expect_fresh(&f);
    fixture_close(&f);
    g_assert_true(peek(&f, &rendering, &bytes));
    fixture_remove(&f, RENDERED_0);
    g_assert_false(peek(&f, &rendering, &bytes));
    fixture_open(&f);
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* ---- damage ---- */

static void test_damage(void)
{
    for (int sealed = 0; sealed < 2; sealed++) {
        Fixture f;
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
        NrdRendered *old = open_rendered(&f, &rendering);
        GString *before = naive(&f, 0);
        expect_rendered(old, before); /* measured while all was well */
        fixture_flip(&f, SEGMENT_0, ends[10] + 500);
        uint64_t count = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
        nrd_rendered_close(old);
        fixture_crash(&f);
        fixture_open(&f);
        GString *after = naive(&f, 0);
        g_assert_cmpuint(after->len, <, before->len);
        NrdRendered *fresh = open_rendered(&f, &rendering);
        expect_rendered(fresh, after);
        nrd_rendered_close(fresh);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + 1);
        fixture_flip(&f, SEGMENT_0, ends[10] + 500); /* it heals, and with it the file is read anew */
        fixture_remove(&f, "00000000000000000000.index");
        fixture_crash(&f);
        fixture_open(&f);
        expect_fresh(&f);
        g_string_free(before, TRUE);
        g_string_free(after, TRUE);
        fixture_tear_down(&f);
    }
}

/* Damage that is met by a read of an open one, which was measured before, or by the measuring: what follows moves up,
 * nothing wrong is served. */
static void test_damage_under_a_reader(void)
{
    for (int i_case = 0; i_case < 4; i_case++) {
        bool sealed = i_case % 2, measured = i_case / 2;
        Fixture f;
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
        NrdRendered *rendered = open_rendered(&f, &rendering);
        uint64_t whole = measured ? size_of(rendered) : UINT64_MAX;
        fixture_flip(&f, SEGMENT_0, ends[10] + 500);
        char buf[60000];
        size_t n = 0;
        if (measured)
            g_assert_cmpint(nrd_rendered_read(rendered, whole / 2 + 3000, buf, 10, &n), ==, 0);
        else
            (void)size_of(rendered);
        GString *after = naive(&f, 0);
        g_assert_cmpuint(after->len, <, whole);
        expect_rendered(rendered, after);
        nrd_rendered_close(rendered);
        g_string_free(after, TRUE);
        fixture_tear_down(&f);
    }
}

/* ---- retention ---- */

static void trim_all(Fixture *f)
{
    uint64_t n = 0;
    g_assert_cmpint(nrd_log_trim(f->log, nrd_log_hwm(f->log), &n), ==, 0);
    g_assert_cmpuint(n, >, 0);
}

static uint64_t remove_detached(Fixture *f)
{
    uint64_t left = 0;
    g_assert_cmpint(nrd_log_remove_detached(f->log, &left), ==, 0);
    return left;
}

static void test_trim(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 4000, 25);
    NrdRendered *measured = open_rendered(&f, &rendering), *asked_nothing = open_rendered(&f, &rendering);
    GString *want = naive(&f, 0);
    g_assert_cmpuint(size_of(measured), ==, want->len);
    g_assert_true(fixture_exists(&f, RENDERED_0));
    for (int i = 0; i < 20; i++)
        model_commit(&f, &m, 10, 100); /* nobody has looked at these yet */
    g_string_free(want, TRUE);
    want = naive(&f, 0);
    trim_all(&f);
    g_assert_cmpuint(remove_detached(&f), >, 0); /* held */
    expect_fresh(&f);
    expect_rendered(measured, want);
    expect_rendered(asked_nothing, want);
    nrd_rendered_close(measured);
    nrd_rendered_close(asked_nothing);
    g_assert_cmpuint(remove_detached(&f), ==, 0);
    g_assert_false(fixture_exists(&f, RENDERED_0));
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    expect_fresh(&f);
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* A reader that is done, or sits at its end, keeps no file: far enough behind at once, else after half a minute. */
static void test_idle_gives_up(void)
{
    Fixture f;
    Model m;
    char buf[100];
    size_t n;
    fill(&f, &m, 4000, 25);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    GString *want = naive(&f, 0);
    expect_rendered(rendered, want);
    expect_at(rendered, want, want->len - 5, 50); /* at its end, in the active segment, */
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);  /* which it does not hear of any more */
    trim_all(&f);
    g_assert_cmpuint(remove_detached(&f), >, 0);
    nrd_clock_shift_mono_ms(60 * 1000);
    g_assert_cmpuint(remove_detached(&f), ==, 0);
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    g_assert_cmpint(nrd_rendered_read(rendered, 0, buf, 10, &n), ==, -ENOENT);
    model_commit(&f, &m, 2, 10);
    uint64_t size = size_of(rendered);
    g_assert_cmpuint(size, >, want->len);
    g_assert_cmpint(nrd_rendered_read(rendered, want->len, buf, sizeof buf, &n), ==, 0);
    g_assert_cmpuint(n, ==, size - want->len);
    nrd_clock_shift_mono_ms(-60 * 1000);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* A removal that fails at the render file leaves all of the segment, for another time. */
static void test_removal_fails(void)
{
    Fixture f;
    Model m;
    uint64_t left = 0;
    fill(&f, &m, 4000, 25);
    expect_fresh(&f);
    trim_all(&f);
    fault_set(FAULT_UNLINK, 1, -EPERM, true);
    fault.suffix = ".rendered";
    g_assert_cmpint(nrd_log_remove_detached(f.log, &left), ==, -EPERM);
    fault_clear();
    g_assert_true(fixture_exists(&f, SEGMENT_0));
    g_assert_cmpuint(remove_detached(&f), ==, 0);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Readers of all kinds beside commits, rolls, trims and removals: every line whole, none left out. */
typedef struct Race {
    Fixture *f;
    uint64_t n_records;
    gint failed; /* atomic */
} Race;

/* Whether text is lines of records that follow one another, and perhaps the beginning of one, which is left.
 * *next: the offset that comes next, or UINT64_MAX. */
static bool take_lines(GString *text, uint64_t *next)
{
    char *end;
    while ((end = memchr(text->str, '\n', text->len)) != NULL) {
        char head[40];
        int n = g_snprintf(head, sizeof head, "<0 %" G_GUINT64_FORMAT " ", *next);
        if (*next != UINT64_MAX && strncmp(text->str, head, (size_t)n) != 0)
            return false;
        *next = g_ascii_strtoull(text->str + 3, NULL, 10) + 1;
        g_string_erase(text, 0, end + 1 - text->str);
    }
    return true;
}

/* Reads on into text, and measures; false when anything is wrong. */
static bool read_on(NrdRendered *rendered, GString *text, uint64_t *pos, uint64_t *next)
{
    char buf[3000];
    size_t n = 0;
    uint64_t size = 0;
    if (nrd_rendered_read(rendered, *pos, buf, sizeof buf, &n) < 0)
        return false;
    *pos += n;
    g_string_append_len(text, buf, (gssize)n);
    return nrd_rendered_size(rendered, &size) == 0 && size >= *pos && take_lines(text, next);
}

static gpointer read_along(gpointer data)
{
    Race *race = data;
    NrdRendered *rendered = open_rendered(race->f, &rendering);
    GString *text = g_string_new(NULL);
    uint64_t next = UINT64_MAX, pos = 0;
    while (next != race->n_records && !g_atomic_int_get(&race->failed)) {
        if (!read_on(rendered, text, &pos, &next))
            g_atomic_int_set(&race->failed, 1);
    }
    nrd_rendered_close(rendered);
    g_string_free(text, TRUE);
    return NULL;
}

/* A new one each time, which begins wherever the log does. */
static gpointer look_around(gpointer data)
{
    Race *race = data;
    while (nrd_log_hwm(race->f->log) < race->n_records) {
        NrdRendered *rendered = open_rendered(race->f, &rendering);
        GString *text = g_string_new(NULL);
        uint64_t next = UINT64_MAX, pos = 0;
        if (!read_on(rendered, text, &pos, &next))
            g_atomic_int_set(&race->failed, 1);
        g_string_free(text, TRUE);
        nrd_rendered_close(rendered);
    }
    return NULL;
}

static void test_race(void)
{
    Fixture f;
    Model m;
    Race race = { .f = &f, .n_records = 3000 };
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 8000, NRD_CODEC_NONE);
    fixture_open(&f);
    model_commit(&f, &m, 10, 50); /* who begins to read finds the first records */
    GThread *threads[] = { g_thread_new("along", read_along, &race), g_thread_new("along", read_along, &race),
                           g_thread_new("around", look_around, &race) };
    for (int i = 1; i < 300; i++) {
        uint64_t n = 0;
        model_commit(&f, &m, 10, 50);
        if (i % 20 == 0)
            g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) - 100, &n), ==, 0);
        if (i % 10 == 0)
            g_assert_cmpint(nrd_log_remove_detached(f.log, &n), ==, 0);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
    g_assert_cmpint(race.failed, ==, 0);
    expect_fresh(&f);
    uint64_t left = 0;
    g_assert_cmpint(nrd_log_remove_detached(f.log, &left), ==, 0);
    g_assert_cmpuint(left, ==, 0);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* ---- the map, and its file ---- */

static void test_map(void)
{
    NrdRenderMap map;
    GArray *starts = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    uint64_t at = 0, offset = 5;
    nrd_render_map_init(&map, offset);
    while (starts->len < 20000) { /* 1 GiB: points are thinned out twice */
        uint64_t length = (uint64_t)g_test_rand_int_range(1, 110000);
        g_array_append_val(starts, at);
        nrd_render_map_add(&map, offset++, length);
        at += length;
        g_assert_cmpuint(map.points->len, <=, NRD_RENDER_MAX_POINTS);
    }
    g_assert_cmpuint(map.bytes, ==, at);
    g_assert_cmpuint(map.next_offset, ==, offset);
    g_assert_cmpuint(map.every, >, NRD_RENDER_EVERY_BYTES);
    for (int i = 0; i < 20000; i++) {
        uint64_t pos = (uint64_t)(g_test_rand_double() * (double)at);
        NrdRenderPoint point = nrd_render_map_find(&map, pos);
        g_assert_cmpuint(point.at, ==, g_array_index(starts, uint64_t, point.offset - 5));
        g_assert_cmpuint(point.at, <=, pos);
        g_assert_cmpuint(pos - point.at, <=, map.every + 4 * 110000);
    }
    nrd_render_map_drop_points(&map);
    g_array_unref(starts);
}

static NrdRenderMap map_of(unsigned n_records, uint64_t length)
{
    NrdRenderMap map;
    nrd_render_map_init(&map, 7);
    for (unsigned i = 0; i < n_records; i++)
        nrd_render_map_add(&map, 7 + i, length);
    return map;
}

static void expect_refused(const NrdRenderFileId *id)
{
    NrdRenderMap map = { .bytes = 12345 };
    g_assert_cmpint(nrd_render_file_read(id, &map), ==, -ENOENT);
    g_assert_cmpuint(map.bytes, ==, 12345);
    g_assert_null(map.points);
}

static void test_file(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    NrdRenderFileId id = { f.root_fd, "p/x.rendered", 7, 107, 4000, 3000, &rendering };
    NrdRenderMap map = map_of(100, 20000), back = { 0 };
    g_assert_cmpuint(map.points->len, >, 10);
    expect_refused(&id);
    g_assert_cmpint(nrd_render_file_write(&id, &map), ==, 0);
    g_assert_cmpint(nrd_render_file_write(&id, &map), ==, 0);
    g_assert_cmpint(nrd_render_file_read(&id, &back), ==, 0);
    g_assert_true(back.base == 7 && back.bytes == map.bytes && back.every == map.every && back.next_offset == 107);
    g_assert_cmpmem(back.points->data, back.points->len * sizeof(NrdRenderPoint), map.points->data,
                    map.points->len * sizeof(NrdRenderPoint));
    GByteArray *good = fixture_get(&f, "x.rendered");
    g_assert_cmpuint(good->len, ==, 80 + 16 * map.points->len + 4);
    for (guint i = 0; i < good->len; i++) {
        for (int bit = 0; bit < 8; bit += 7) {
            good->data[i] ^= (uint8_t)(1 << bit);
            fixture_put(&f, "x.rendered", good->data, good->len);
            expect_refused(&id);
            good->data[i] ^= (uint8_t)(1 << bit);
        }
        fixture_put(&f, "x.rendered", good->data, i);
        expect_refused(&id);
    }
    g_byte_array_append(good, (const uint8_t *)"", 1);
    fixture_put(&f, "x.rendered", good->data, good->len);
    expect_refused(&id);
    fixture_put(&f, "x.rendered", good->data, good->len - 1);
    const NrdRenderFileId wrong[] = {
        { f.root_fd, id.path, 6, 107, 4000, 3000, &rendering }, { f.root_fd, id.path, 7, 108, 4000, 3000, &rendering },
        { f.root_fd, id.path, 7, 107, 4001, 3000, &rendering }, { f.root_fd, id.path, 7, 107, 4000, 3001, &rendering },
        { f.root_fd, id.path, 7, 107, 4000, 3000, &other },     { f.root_fd, id.path, 7, 107, 4000, 3000, &newer },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        expect_refused(&wrong[i]);
    nrd_render_map_drop_points(&back);
    g_assert_cmpint(nrd_render_file_read(&id, &back), ==, 0);
    nrd_render_map_drop_points(&back);
    nrd_render_map_drop_points(&map);
    g_byte_array_unref(good);
    fixture_tear_down(&f);
}

/* Points that do not fit together are refused, although the CRC is right. */
static void test_file_points(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    NrdRenderFileId id = { f.root_fd, "p/x.rendered", 7, 107, 4000, 3000, &rendering };
    NrdRenderMap map = map_of(100, 20000);
    g_assert_cmpint(nrd_render_file_write(&id, &map), ==, 0);
    GByteArray *good = fixture_get(&f, "x.rendered");
    const struct {
        size_t at;
        uint64_t value;
    } bad[] = { { 80, 0 }, { 88, 7 }, { 88, 106 }, { 96, 1 }, { 80 + 16 * 3, map.bytes }, { 88 + 16 * 5, 107 },
                { 72, 1 } };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        GByteArray *copy = g_byte_array_new();
        g_byte_array_append(copy, good->data, good->len);
        nrd_put_be64(copy->data + bad[i].at, bad[i].value);
        nrd_put_be32(copy->data + copy->len - 4, nrd_crc32c(0, copy->data, copy->len - 4));
        fixture_put(&f, "x.rendered", copy->data, copy->len);
        expect_refused(&id);
        g_byte_array_unref(copy);
    }
    g_byte_array_unref(good);
    nrd_render_map_drop_points(&map);
    fixture_tear_down(&f);
}

/* Leaves a log whose first segment has a side file with this number at this place, and a right CRC. */
static void fill_lying(Fixture *f, Model *m, size_t (*place)(const uint8_t *bytes),
                       uint64_t (*lie)(const uint8_t *bytes))
{
    fill(f, m, 400 * 1000, 2000);
    expect_fresh(f);
    fixture_close(f);
    GByteArray *bytes = fixture_get(f, RENDERED_0);
    g_assert_cmpuint(nrd_get_be32(bytes->data + 60), >, 2);
    nrd_put_be64(bytes->data + place(bytes->data), lie(bytes->data));
    nrd_put_be32(bytes->data + bytes->len - 4, nrd_crc32c(0, bytes->data, bytes->len - 4));
    fixture_put(f, RENDERED_0, bytes->data, bytes->len);
    g_byte_array_unref(bytes);
    fixture_open(f);
}

static size_t last_point_offset(const uint8_t *bytes)
{
    return 88 + 16 * ((size_t)nrd_get_be32(bytes + 60) - 1);
}

static uint64_t last_record(const uint8_t *bytes)
{
    return nrd_get_be64(bytes + 16) - 1;
}

static size_t length_field(const uint8_t *bytes)
{
    return 64;
}

static uint64_t too_long(const uint8_t *bytes)
{
    return nrd_get_be64(bytes + 64) + 5000;
}

/* A file that fits in everything but says wrong places, as no damage makes one: noticed when a read follows it. */
static void test_lying_file(void)
{
    Fixture f;
    Model m;
    fill_lying(&f, &m, last_point_offset, last_record);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    GString *want = naive(&f, 0);
    GByteArray *bytes = fixture_get(&f, RENDERED_0);
    expect_at(rendered, want, nrd_get_be64(bytes->data + 64) - 1000, 10);
    expect_rendered(rendered, want);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
    g_byte_array_unref(bytes);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Likewise a wrong length: who has already been told it is right again once it has read on into what is not there. */
static void test_lying_length(void)
{
    Fixture f;
    Model m;
    fill_lying(&f, &m, length_field, too_long);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    GString *want = naive(&f, 0);
    GByteArray *bytes = fixture_get(&f, RENDERED_0);
    g_assert_cmpuint(size_of(rendered), ==, want->len + 5000);
    expect_at(rendered, want, nrd_get_be64(bytes->data + 64) - 4000, 10);
    g_byte_array_unref(bytes);
    expect_rendered(rendered, want);
    nrd_rendered_close(rendered);
    g_string_free(want, TRUE);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* One segment, the active one: to measure it for the first time is to read all of it, what comes later is not. */
static void test_waits_for_the_first_look(void)
{
    Fixture f;
    Model m;
    fixture_set_up(&f);
    model_init(&m);
    fixture_open(&f);
    NrdRendered *rendered = open_rendered(&f, &rendering);
    g_assert_false(nrd_rendered_waits(rendered, 0)); /* nothing there */
    nrd_rendered_close(rendered);
    for (int i = 0; i < 50; i++)
        model_commit(&f, &m, 10, 100);
    rendered = open_rendered(&f, &rendering);
    g_assert_true(nrd_rendered_waits(rendered, 0));
    uint64_t size = size_of(rendered);
    g_assert_false(nrd_rendered_waits(rendered, 0));
    model_commit(&f, &m, 10, 100);
    g_assert_false(nrd_rendered_waits(rendered, size));
    nrd_rendered_close(rendered);
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_orphans(void)
{
    Fixture f;
    Model m;
    fill(&f, &m, 4000, 25);
    expect_fresh(&f);
    fixture_close(&f);
    GByteArray *bytes = fixture_get(&f, RENDERED_0);
    fixture_put(&f, "00000000000000000003.rendered", bytes->data, bytes->len);
    fixture_put(&f, "3.rendered", bytes->data, bytes->len);
    f.options.read_only = true;
    fixture_open(&f);
    g_assert_true(fixture_exists(&f, "00000000000000000003.rendered"));
    fixture_close(&f);
    f.options.read_only = false;
    fault_set(FAULT_UNLINK, 1, -EPERM, true);
    fixture_open(&f); /* no reason to fail */
    fault_clear();
    fixture_close(&f);
    fixture_open(&f);
    g_assert_false(fixture_exists(&f, "00000000000000000003.rendered"));
    g_assert_true(fixture_exists(&f, "3.rendered")); /* no name of ours */
    g_assert_true(fixture_exists(&f, RENDERED_0));
    expect_fresh(&f);
    g_byte_array_unref(bytes);
    model_clear(&m);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/rendered/map", test_map);
    g_test_add_func("/log/rendered/file", test_file);
    g_test_add_func("/log/rendered/file-points", test_file_points);
    g_test_add_func("/log/rendered/lying-file", test_lying_file);
    g_test_add_func("/log/rendered/lying-length", test_lying_length);
    g_test_add_func("/log/rendered/waits", test_waits_for_the_first_look);
    g_test_add_func("/log/rendered/every-position", test_every_position);
    g_test_add_func("/log/rendered/points", test_points);
    g_test_add_func("/log/rendered/grows", test_grows);
    g_test_add_func("/log/rendered/measured-once", test_measured_once);
    g_test_add_func("/log/rendered/read-only", test_read_only_writes_nothing);
    g_test_add_func("/log/rendered/memory", test_memory_is_bounded);
    g_test_add_func("/log/rendered/give-up", test_give_up);
    g_test_add_func("/log/rendered/peek", test_peek);
    g_test_add_func("/log/rendered/damage", test_damage);
    g_test_add_func("/log/rendered/damage-under-a-reader", test_damage_under_a_reader);
    g_test_add_func("/log/rendered/trim", test_trim);
    g_test_add_func("/log/rendered/idle", test_idle_gives_up);
    g_test_add_func("/log/rendered/removal-fails", test_removal_fails);
    g_test_add_func("/log/rendered/orphans", test_orphans);
    g_test_add_func("/log/rendered/race", test_race);
    return g_test_run();
}
