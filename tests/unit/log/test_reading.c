/* Readers that begin somewhere: at an offset, at a time, at a byte of a segment file; and what a seek costs. */
#include "model.h"

#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A log of several segments with both codecs, keys, and frames of one and of many records. */
static void fill(Fixture *f, Model *m)
{
    fixture_set_up(f);
    model_init(m);
    settings(f, 6000, NRD_CODEC_NONE);
    fixture_open(f);
    for (int i = 0; i < 60 || fixture_stats(f).n_segments <= 5; i++) {
        settings(f, 6000, i % 3 == 2 ? NRD_CODEC_ZSTD : NRD_CODEC_NONE);
        model_commit(f, m, (unsigned)g_test_rand_int_range(1, 20), i % 10 == 0 ? 3000 : 60);
    }
    g_assert_cmpuint(fixture_stats(f).n_segments, >, 5);
}

static void expect_suffix(NrdText *text, const char *want, size_t size)
{
    g_assert_cmpuint(nrd_text_size(text), ==, size);
    GString *all = fixture_text(text, 0);
    g_assert_cmpmem(all->str, all->len, want, size);
    g_string_free(all, TRUE);
    if (size > 0) {
        char buf[64];
        size_t n, pos = (size_t)g_test_rand_int_range(0, (gint32)size);
        g_assert_cmpint(nrd_text_read(text, pos, buf, sizeof buf, &n), ==, 0);
        g_assert_cmpmem(buf, n, want + pos, MIN(sizeof buf, size - pos));
    }
}

static void expect_all_suffixes(Fixture *f, const Model *m)
{
    uint64_t hwm = nrd_log_hwm(f->log);
    NrdText *text = NULL;

    g_assert_cmpuint(hwm, ==, m->payloads->len);
    for (uint64_t offset = nrd_log_oldest(f->log); offset <= hwm; offset++) {
        size_t start = model_start(m, offset);
        g_assert_cmpint(nrd_text_open_from(f->log, offset, &text), ==, 0);
        expect_suffix(text, m->text->str + start, m->text->len - start);
        nrd_text_close(text);
    }
    g_assert_cmpint(nrd_text_open_from(f->log, hwm + 1, &text), ==, -ENOENT);
    g_assert_cmpint(nrd_text_open_from(f->log, UINT64_MAX, &text), ==, -ENOENT);
}

static void test_from_every_offset(void)
{
    Fixture f;
    Model m;
    NrdText *text = NULL;
    uint64_t n;
    fill(&f, &m);
    expect_all_suffixes(&f, &m);
    fixture_close(&f);
    fixture_open(&f);
    expect_all_suffixes(&f, &m);
    fixture_crash(&f);
    fixture_open(&f);
    GArray *infos = nrd_log_segment_infos(f.log);
    g_assert_cmpint(nrd_log_trim(f.log, g_array_index(infos, NrdSegmentInfo, 2).base, &n), ==, 0);
    g_array_unref(infos);
    g_assert_cmpuint(nrd_log_oldest(f.log), >, 0);
    expect_all_suffixes(&f, &m);
    g_assert_cmpint(nrd_text_open_from(f.log, nrd_log_oldest(f.log) - 1, &text), ==, -ENOENT);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* A text from the end grows, over rolls; so does one in a log that has no segment yet. */
static void test_from_grows(void)
{
    Fixture f;
    Model m;
    NrdText *texts[3];
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 4000, NRD_CODEC_NONE);
    fixture_open(&f);
    g_assert_cmpint(nrd_text_open_from(f.log, 0, &texts[0]), ==, 0);
    model_commit(&f, &m, 20, 100);
    size_t middle = m.text->len;
    g_assert_cmpint(nrd_text_open_from(f.log, 20, &texts[1]), ==, 0);
    g_assert_cmpint(nrd_text_open_from(f.log, 13, &texts[2]), ==, 0);
    for (int i = 0; i < 20; i++) {
        model_commit(&f, &m, 20, 100);
        expect_suffix(texts[0], m.text->str, m.text->len);
        expect_suffix(texts[1], m.text->str + middle, m.text->len - middle);
        expect_suffix(texts[2], m.text->str + model_start(&m, 13), m.text->len - model_start(&m, 13));
    }
    g_assert_cmpuint(fixture_stats(&f).n_segments, >, 3);
    for (int i = 0; i < 3; i++)
        nrd_text_close(texts[i]);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* A hidden tail is not shown, whatever the text begins with. */
static void test_from_hidden(void)
{
    Fixture f;
    NrdText *text, *end;
    uint8_t hwm[8];
    fixture_set_up(&f);
    fixture_open(&f);
    for (unsigned i = 0; i < 5; i++)
        fixture_commit_numbers(&f, 100 + i * 10, 10);
    fixture_close(&f);
    nrd_put_be64(hwm, 30);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    fixture_open(&f);
    g_assert_cmpint(nrd_text_open_from(f.log, 25, &text), ==, 0);
    expect_suffix(text, "125\n126\n127\n128\n129\n", 20);
    g_assert_cmpint(nrd_text_open_from(f.log, 30, &end), ==, 0);
    expect_suffix(end, "", 0);
    NrdText *none;
    g_assert_cmpint(nrd_text_open_from(f.log, 31, &none), ==, -ENOENT);
    fixture_commit(&f, "new"); /* exposes them */
    GString *all = fixture_text(end, 0);
    g_assert_cmpuint(all->len, ==, 84);
    g_assert_true(g_str_has_prefix(all->str, "130\n131\n"));
    g_assert_true(g_str_has_suffix(all->str, "149\nnew\n"));
    g_string_free(all, TRUE);
    nrd_text_close(text);
    nrd_text_close(end);
    fixture_tear_down(&f);
}

/* Ten frames of ten numbers "1000".., and where they end in the file. */
static void fill_frames(Fixture *f, size_t ends[11], bool sealed)
{
    fixture_set_up(f);
    fixture_open(f);
    ends[0] = 0;
    for (unsigned i = 0; i < 10; i++) {
        fixture_commit_numbers(f, 1000 + i * 10, 10);
        ends[i + 1] = fixture_stats(f).size_bytes;
    }
    if (sealed)
        g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
    fixture_commit_numbers(f, 1100, 10);
}

/* A start that is lost: the text begins behind the damage. Damage before the start moves nothing. */
static void from_damage(bool sealed)
{
    Fixture f;
    NrdText *lost, *behind, *text;
    size_t ends[11];
    fill_frames(&f, ends, sealed);
    g_assert_cmpint(nrd_text_open_from(f.log, 95, &behind), ==, 0);
    fixture_flip(&f, SEGMENT_0, ends[4] + 40);
    g_assert_cmpint(nrd_text_open_from(f.log, 43, &lost), ==, 0);
    GString *all = fixture_text(lost, 0);
    g_assert_true(g_str_has_prefix(all->str, "1050\n1051\n"));
    g_assert_cmpuint(all->len, ==, 60 * 5);
    g_string_free(all, TRUE);
    nrd_text_close(lost);
    all = fixture_text(behind, 0); /* the damage was found meanwhile */
    g_assert_true(g_str_has_prefix(all->str, "1095\n1096\n"));
    g_assert_cmpuint(all->len, ==, 15 * 5);
    g_assert_cmpuint(nrd_text_size(behind), ==, 15 * 5);
    g_string_free(all, TRUE);
    for (uint64_t offset = 0; offset <= 110; offset++) {
        g_assert_cmpint(nrd_text_open_from(f.log, offset, &text), ==, 0);
        uint64_t n = 110 - offset - (offset < 40 ? 10 : offset < 50 ? 50 - offset : 0);
        g_assert_cmpuint(nrd_text_size(text), ==, n * 5);
        nrd_text_close(text);
    }
    nrd_text_close(behind);
    fixture_tear_down(&f);
}

static void test_from_damage(void)
{
    from_damage(false);
    from_damage(true);
}

/* A segment file of frames made by hand, each of records with these commit times. */
static void append_frame(GByteArray *bytes, uint64_t offset, const int64_t *times, uint32_t n)
{
    guint start = bytes->len;
    char text[24];
    GPtrArray *payloads = g_ptr_array_new();
    for (uint32_t i = 0; i < n; i++) {
        g_snprintf(text, sizeof text, "%u", (unsigned)(offset + i));
        g_ptr_array_add(payloads, g_strdup(text));
    }
    g_ptr_array_add(payloads, NULL);
    fixture_append_frame(bytes, offset, (const char *const *)payloads->pdata);
    uint8_t *p = bytes->data + start;
    size_t pos = 27;
    for (uint32_t i = 0; i < n; i++) {
        nrd_put_be64(p + pos + 6, (uint64_t)times[i]);
        pos += 4 + nrd_get_be32(p + pos);
    }
    uint32_t crc = nrd_crc32c(0, p + 2, 21);
    nrd_put_be32(p + 23, nrd_crc32c(crc, p + 27, bytes->len - start - 27));
    for (uint32_t i = 0; i < n; i++)
        g_free(payloads->pdata[i]);
    g_ptr_array_unref(payloads);
}

static uint64_t find_time(Fixture *f, int64_t time_ms)
{
    uint64_t offset = UINT64_MAX;
    g_assert_cmpint(nrd_log_find_time(f->log, time_ms, &offset), ==, 0);
    return offset;
}

/* Makes a log of `n` records with the given times: frames of up to `per_frame`, segments of up to `per_segment`. */
static void make_log(Fixture *f, const int64_t *times, uint32_t n, uint32_t per_frame, uint32_t per_segment)
{
    fixture_set_up(f);
    for (uint32_t base = 0; base < n; base += per_segment) {
        GByteArray *bytes = g_byte_array_new();
        char name[32];
        for (uint32_t at = base; at < MIN(n, base + per_segment); at += per_frame)
            append_frame(bytes, at, times + at, MIN(per_frame, MIN(n, base + per_segment) - at));
        g_snprintf(name, sizeof name, "%020u.log", base);
        fixture_put(f, name, bytes->data, bytes->len);
        g_byte_array_unref(bytes);
    }
    fixture_open(f);
    g_assert_cmpuint(nrd_log_hwm(f->log), ==, n);
}

static uint64_t first_at(const int64_t *times, uint32_t n, int64_t time_ms)
{
    uint32_t i = 0;
    while (i < n && times[i] < time_ms)
        i++;
    return i;
}

/* Every boundary: before the first, at each time, between any two, after the last. */
static void test_time_boundaries(void)
{
    static const uint32_t shapes[][2] = { { 1, 1000 }, { 7, 50 }, { 300, 900 }, { 13, 300 }, { 1, 1 } };
    for (size_t k = 0; k < G_N_ELEMENTS(shapes); k++) {
        Fixture f;
        enum { N = 900 };
        int64_t times[N];
        uint32_t n = shapes[k][1] == 1 ? 40 : N;
        int64_t now = 1000;
        for (uint32_t i = 0; i < n; i++) {
            now += g_test_rand_int_range(0, 3) * 2; /* runs of equal times */
            times[i] = now;
        }
        make_log(&f, times, n, shapes[k][0], shapes[k][1]);
        for (int round = 0; round < 2; round++) {
            for (int64_t t = 995; t <= now + 5; t++)
                g_assert_cmpuint(find_time(&f, t), ==, first_at(times, n, t));
            g_assert_cmpuint(find_time(&f, 0), ==, 0);
            g_assert_cmpuint(find_time(&f, INT64_MIN), ==, 0);
            g_assert_cmpuint(find_time(&f, INT64_MAX), ==, n);
            fixture_close(&f);
            fixture_open(&f);
        }
        fixture_tear_down(&f);
    }
}

/* Times that go up and down, in files that somebody else wrote: the first record in order that is late enough. */
static void test_time_mixed(void)
{
    Fixture f;
    enum { N = 400 };
    int64_t times[N];
    for (uint32_t i = 0; i < N; i++)
        times[i] = 1000 + g_test_rand_int_range(0, 200) + i / 4;
    make_log(&f, times, N, 9, 90);
    for (int64_t t = 990; t < 1320; t++)
        g_assert_cmpuint(find_time(&f, t), ==, first_at(times, N, t));
    fixture_tear_down(&f);
}

/* Damaged frames are passed over, found before or by the search. */
static void test_time_damage(void)
{
    Fixture f;
    enum { N = 400 };
    int64_t times[N];
    for (uint32_t i = 0; i < N; i++)
        times[i] = 1000 + i;
    make_log(&f, times, N, 10, 100);
    fixture_flip(&f, "00000000000000000100.log", 40); /* its first frame */
    fixture_flip(&f, "00000000000000000300.log", 40);
    for (int64_t t = 1095; t < 1115; t++)
        g_assert_cmpuint(find_time(&f, t), ==, t < 1100 ? (uint64_t)t - 1000 : MAX((uint64_t)t - 1000, 110));
    g_assert_cmpuint(find_time(&f, 1305), ==, 310);
    for (int i = 0; i < 10; i++) { /* a whole segment in the middle */
        GByteArray *bytes = fixture_get(&f, "00000000000000000200.log");
        fixture_flip(&f, "00000000000000000200.log", bytes->len * (guint)i / 10 + 40);
        g_byte_array_unref(bytes);
    }
    fixture_remove(&f, "00000000000000000200.index");
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(find_time(&f, 1150), ==, 150);
    g_assert_cmpuint(find_time(&f, 1199), ==, 199);
    g_assert_cmpuint(find_time(&f, 1200), ==, 310);
    g_assert_cmpuint(find_time(&f, 1390), ==, 390);
    fixture_tear_down(&f);
}

static void test_time_empty(void)
{
    Fixture f;
    uint64_t n;
    fixture_set_up(&f);
    fixture_open(&f);
    g_assert_cmpuint(find_time(&f, 1), ==, 0);
    fixture_commit(&f, "a");
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    g_assert_cmpuint(find_time(&f, 1), ==, 0);
    g_assert_cmpuint(find_time(&f, INT64_MAX), ==, 1);
    g_assert_cmpint(nrd_log_trim(f.log, 1, &n), ==, 0);
    g_assert_cmpuint(find_time(&f, 1), ==, 1);
    NrdLog *log = f.log;
    g_assert_cmpint(nrd_log_close(log), ==, 0);
    g_assert_cmpint(nrd_log_find_time(log, 1, &n), ==, -ESHUTDOWN);
    fixture_tear_down(&f);
}

/* A disk that fails is an error, not a record that is not there. */
static void test_time_fails(void)
{
    Fixture f;
    enum { N = 400 };
    int64_t times[N];
    uint64_t offset = 7;
    for (uint32_t i = 0; i < N; i++)
        times[i] = 1000 + i;
    make_log(&f, times, N, 10, 100);
    fixture_close(&f);
    fixture_open(&f);
    fault_set(FAULT_PREAD, 1, -EIO, true);
    g_assert_cmpint(nrd_log_find_time(f.log, 1150, &offset), ==, -EIO);
    g_assert_cmpuint(fault.n_fired, >, 0);
    fault_clear();
    g_assert_cmpuint(offset, ==, 7);
    g_assert_cmpuint(find_time(&f, 1150), ==, 150);
    fixture_tear_down(&f);
}

static void expect_raw(Fixture *f, const NrdSegmentInfo *info)
{
    NrdRaw *raw;
    char name[32];
    uint8_t buf[700];
    size_t n = 1;
    GByteArray *got = g_byte_array_new();
    g_snprintf(name, sizeof name, "%020" G_GUINT64_FORMAT ".log", info->base);
    GByteArray *want = fixture_get(f, name);
    g_assert_cmpint(nrd_raw_open(f->log, info->base, &raw), ==, 0);
    while (n > 0) {
        g_assert_cmpint(nrd_raw_read(raw, got->len, buf, sizeof buf, &n), ==, 0);
        g_byte_array_append(got, buf, (guint)n);
    }
    g_assert_cmpuint(got->len, ==, info->size_bytes);
    g_assert_cmpmem(got->data, got->len, want->data, info->size_bytes);
    g_assert_cmpint(nrd_raw_read(raw, UINT64_MAX, buf, 1, &n), ==, 0);
    g_assert_cmpuint(n, ==, 0);
    nrd_raw_close(raw);
    g_byte_array_unref(got);
    g_byte_array_unref(want);
}

static void test_raw(void)
{
    Fixture f;
    Model m;
    NrdRaw *raw;
    NrdSegmentInfo info;
    fill(&f, &m);
    NrdLogStats stats = fixture_stats(&f);
    GArray *infos = nrd_log_segment_infos(f.log);
    g_assert_cmpuint(infos->len, ==, stats.n_segments);
    uint64_t sum = 0;
    for (guint i = 0; i < infos->len; i++) {
        const NrdSegmentInfo *one = &g_array_index(infos, NrdSegmentInfo, i);
        g_assert_true(one->sealed == (i + 1 < infos->len));
        g_assert_true(one->last_ms > 0 || one->size_bytes == 0);
        expect_raw(&f, one);
        sum += one->size_bytes;
    }
    g_assert_cmpuint(sum, ==, stats.size_bytes);
    g_assert_cmpint(nrd_raw_open(f.log, 1, &raw), ==, -ENOENT);
    g_assert_cmpint(nrd_raw_open(f.log, UINT64_MAX, &raw), ==, -ENOENT);
    uint64_t last = g_array_index(infos, NrdSegmentInfo, infos->len - 1).base;
    g_array_unref(infos);
    g_assert_cmpint(nrd_raw_open(f.log, last, &raw), ==, 0); /* it grows, and is sealed */
    model_commit(&f, &m, 3, 50);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    nrd_raw_info(raw, &info);
    g_assert_true(info.sealed);
    expect_raw(&f, &info);
    nrd_raw_close(raw);
    nrd_raw_close(NULL);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* What is hidden is not shown. */
static void test_raw_hidden(void)
{
    Fixture f;
    uint8_t hwm[8];
    size_t ends[11];
    fill_frames(&f, ends, false);
    fixture_close(&f);
    nrd_put_be64(hwm, 30);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    fixture_open(&f);
    GArray *infos = nrd_log_segment_infos(f.log);
    NrdSegmentInfo info = g_array_index(infos, NrdSegmentInfo, 0);
    g_array_unref(infos);
    g_assert_cmpuint(info.size_bytes, ==, ends[3]);
    g_assert_false(info.sealed);
    expect_raw(&f, &info);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/from/every-offset", test_from_every_offset);
    g_test_add_func("/log/from/grows", test_from_grows);
    g_test_add_func("/log/from/hidden", test_from_hidden);
    g_test_add_func("/log/from/damage", test_from_damage);
    g_test_add_func("/log/time/boundaries", test_time_boundaries);
    g_test_add_func("/log/time/mixed", test_time_mixed);
    g_test_add_func("/log/time/damage", test_time_damage);
    g_test_add_func("/log/time/empty", test_time_empty);
    g_test_add_func("/log/time/fails", test_time_fails);
    g_test_add_func("/log/raw/bytes", test_raw);
    g_test_add_func("/log/raw/hidden", test_raw_hidden);
    return g_test_run();
}
