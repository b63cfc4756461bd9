/* What a seek costs, counted in file reads and not in time; what an idle reader holds; texts beside retention. */
#include "model.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/reading/text_private.h"
#include "engine/log/state/state.h"

#include <errno.h>
#include <string.h>

static NrdIo counting;
static uint64_t n_reads, n_bytes;

static ssize_t counting_pread(int fd, void *buf, size_t size, int64_t pos)
{
    ssize_t n = nrd_io_real.pread(fd, buf, size, pos);
    n_reads++;
    n_bytes += n > 0 ? (uint64_t)n : 0;
    return n;
}

static void count_reads(void)
{
    counting = *nrd_io;
    counting.pread = counting_pread;
    nrd_io = &counting;
}

/* `n_segments` segments of 200 records of 1000 bytes, fifty to a frame; record i begins with its number. */
static void fill(Fixture *f, unsigned n_segments)
{
    fixture_set_up(f);
    f->options.settings.segment_bytes = 1 << 30;
    fixture_open(f);
    for (unsigned i = 0; i < n_segments * 200; i += 50) {
        NrdRecordBatch *batch = nrd_record_batch_new();
        uint64_t offset = 0;
        if (i > 0 && i % 200 == 0)
            g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
        for (unsigned k = i; k < i + 50; k++) {
            char payload[1000];
            memset(payload, 'x', sizeof payload);
            int n = g_snprintf(payload, sizeof payload, "%u", k);
            payload[n] = '.';
            nrd_record_batch_add(batch, NULL, 0, payload, sizeof payload);
        }
        g_assert_cmpint(nrd_log_commit(f->log, &batch, 1, &offset), ==, 0);
        nrd_record_batch_free(batch);
    }
    fixture_close(f);
    fixture_open(f);
}

/* The most reads and bytes that one cold seek takes. */
static void seek_cost(unsigned n_segments, uint64_t *ret_reads, uint64_t *ret_bytes)
{
    Fixture f;
    fill(&f, n_segments);
    count_reads();
    *ret_reads = *ret_bytes = 0;
    for (unsigned i = 0; i < 60; i++) {
        NrdText *text;
        char buf[8], want[24];
        size_t n = 0;
        uint64_t offset = (uint64_t)g_test_rand_int_range(0, (gint32)n_segments * 200);
        int size = g_snprintf(want, sizeof want, "%u.", (unsigned)offset);
        n_reads = n_bytes = 0;
        if (i % 2) {
            g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
            g_assert_cmpint(nrd_text_read(text, offset * 1001, buf, (size_t)size, &n), ==, 0);
        } else {
            g_assert_cmpint(nrd_text_open_from(f.log, offset, &text), ==, 0);
            g_assert_cmpint(nrd_text_read(text, 0, buf, (size_t)size, &n), ==, 0);
        }
        g_assert_cmpmem(buf, n, want, (size_t)size);
        nrd_text_close(text);
        *ret_reads = MAX(*ret_reads, n_reads);
        *ret_bytes = MAX(*ret_bytes, n_bytes);
    }
    fixture_tear_down(&f);
}

static void test_cost(void)
{
    uint64_t one_reads, one_bytes, many_reads, many_bytes;
    seek_cost(1, &one_reads, &one_bytes);
    seek_cost(100, &many_reads, &many_bytes);
    g_test_message("1 segment: %u reads, %u bytes; 100: %u reads, %u bytes", (unsigned)one_reads, (unsigned)one_bytes,
                   (unsigned)many_reads, (unsigned)many_bytes);
    g_assert_cmpuint(many_reads, <=, 8);
    g_assert_cmpuint(many_bytes, <=, 260000); /* a header of the index and the frame, twice for a start */
    g_assert_cmpuint(many_bytes, <=, one_bytes + 2 * 4096);
}

/* A segment whose index has many blocks: a seek reads its header, and not the rest. */
static void test_cost_of_index(void)
{
    Fixture f;
    NrdText *text;
    char buf[8];
    size_t n;
    fixture_set_up(&f);
    f.options.settings.segment_bytes = 1 << 30;
    fixture_open(&f);
    char *payload = g_malloc0(4200);
    for (unsigned i = 0; i < 2000; i++) { /* an entry each: sixteen blocks */
        NrdRecordBatch *batch = fixture_batch(NULL, payload, 4200);
        uint64_t offset;
        g_assert_cmpint(nrd_log_commit(f.log, &batch, 1, &offset), ==, 0);
        nrd_record_batch_free(batch);
    }
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    fixture_close(&f);
    fixture_open(&f);
    count_reads();
    n_reads = n_bytes = 0;
    g_assert_cmpint(nrd_text_open_from(f.log, 1234, &text), ==, 0);
    g_assert_cmpint(nrd_text_read(text, 0, buf, sizeof buf, &n), ==, 0);
    g_assert_cmpuint(n, ==, sizeof buf);
    g_assert_cmpuint(n_bytes, <=, 4096 + 2 * 5000);
    nrd_text_close(text);
    n_reads = n_bytes = 0;
    uint64_t offset;
    g_assert_cmpint(nrd_log_find_time(f.log, nrd_clock_wall_ms() - 1, &offset), ==, 0);
    g_assert_cmpuint(n_bytes, <=, 2 * 5000);
    g_free(payload);
    fixture_tear_down(&f);
}

/* At its end a text holds no memory and no descriptor. */
static void test_idle(void)
{
    Fixture f;
    NrdText *text;
    char buf[4096];
    size_t n = 1;
    fill(&f, 2);
    g_assert_cmpint(nrd_text_open_from(f.log, 350, &text), ==, 0);
    for (uint64_t pos = 0; n > 0; pos += n)
        g_assert_cmpint(nrd_text_read(text, pos, buf, sizeof buf, &n), ==, 0);
    g_assert_null(text->reader.window.data);
    g_assert_null(text->reader.decoded.data);
    g_assert_null(text->segment);
    uint64_t size = nrd_text_size(text);
    fixture_commit(&f, "more");
    g_assert_cmpint(nrd_text_read(text, size, buf, sizeof buf, &n), ==, 0);
    g_assert_cmpmem(buf, n, "more\n", 5);
    g_assert_null(text->reader.window.data); /* it came to the end */
    nrd_text_close(text);
    fixture_tear_down(&f);
}

static uint64_t n_left(Fixture *f)
{
    uint64_t n = 0;
    g_assert_cmpint(nrd_log_remove_detached(f->log, &n), ==, 0);
    return n;
}

static void expect_at(NrdText *text, uint64_t base, uint64_t offset)
{
    char buf[16], want[24];
    size_t n = 0;
    int size = g_snprintf(want, sizeof want, "%u.", (unsigned)offset);
    g_assert_cmpint(nrd_text_read(text, (offset - base) * 1001, buf, (size_t)size, &n), ==, 0);
    g_assert_cmpmem(buf, n, want, (size_t)size);
}

/* Retention takes the head away under readers: they keep it until they are past it, and their positions for ever. */
static void test_retention(void)
{
    Fixture f;
    NrdText *all, *from, *young;
    uint64_t n = 0;
    char buf[16];
    size_t got;
    fill(&f, 20);
    g_assert_cmpint(nrd_text_open(f.log, &all), ==, 0);
    g_assert_cmpint(nrd_text_open_from(f.log, 777, &from), ==, 0);
    g_assert_cmpint(nrd_log_trim(f.log, 3000, &n), ==, 0);
    g_assert_cmpuint(n, ==, 15);
    g_assert_cmpuint(n_left(&f), ==, 15);
    g_assert_cmpint(nrd_text_open(f.log, &young), ==, 0);
    g_assert_cmpuint(nrd_text_size(all), ==, 4000 * 1001);
    g_assert_cmpuint(nrd_text_size(from), ==, 3223 * 1001);
    g_assert_cmpuint(nrd_text_size(young), ==, 1000 * 1001);
    expect_at(all, 0, 5);
    expect_at(from, 777, 777);
    expect_at(young, 3000, 3000);
    nrd_text_close(all);
    g_assert_cmpuint(n_left(&f), ==, 12); /* the start of `from` is in the fourth */
    expect_at(from, 777, 777);
    expect_at(from, 777, 3500); /* more than a megabyte behind the first six segments that are left */
    g_assert_cmpuint(n_left(&f), <, 6);
    g_assert_cmpuint(nrd_text_size(from), ==, 3223 * 1001);
    g_assert_cmpint(nrd_text_read(from, 0, buf, sizeof buf, &got), ==, -ENOENT);
    expect_at(from, 777, 2999); /* not far behind */
    expect_at(from, 777, 3999);
    g_assert_cmpuint(n_left(&f), >, 0); /* it may come back */
    nrd_clock_shift_mono_ms(60 * 1000);
    g_assert_cmpuint(n_left(&f), ==, 0); /* but not after so long */
    nrd_clock_shift_mono_ms(-60 * 1000);
    g_assert_cmpint(nrd_text_read(from, (2999 - 777) * 1001, buf, sizeof buf, &got), ==, -ENOENT);
    expect_at(from, 777, 3000);
    fixture_commit(&f, "4000.");
    expect_at(from, 777, 4000);
    expect_at(young, 3000, 4000);
    g_assert_cmpuint(nrd_text_size(from), ==, 3223 * 1001 + 6);
    nrd_text_close(from);
    nrd_text_close(young);
    fixture_tear_down(&f);
}

/* A raw reader keeps its segment, too. */
static void test_raw_beside_retention(void)
{
    Fixture f;
    NrdRaw *raw;
    NrdSegmentInfo info;
    uint64_t n = 0;
    uint8_t buf[100];
    size_t got;
    fill(&f, 3);
    GByteArray *want = fixture_get(&f, SEGMENT_0);
    g_assert_cmpint(nrd_raw_open(f.log, 0, &raw), ==, 0);
    g_assert_cmpint(nrd_log_trim(f.log, 600, &n), ==, 0);
    g_assert_cmpuint(n_left(&f), ==, 2);
    nrd_raw_info(raw, &info);
    g_assert_cmpuint(info.size_bytes, ==, want->len);
    g_assert_cmpint(nrd_raw_read(raw, 1000, buf, sizeof buf, &got), ==, 0);
    g_assert_cmpmem(buf, got, want->data + 1000, sizeof buf);
    NrdRaw *late;
    g_assert_cmpint(nrd_raw_open(f.log, 0, &late), ==, -ENOENT);
    nrd_raw_close(raw);
    g_assert_cmpuint(n_left(&f), ==, 0);
    g_byte_array_unref(want);
    fixture_tear_down(&f);
}

/* The sums that stats and texts keep follow rolls, trims and damage. */
static void test_sums(void)
{
    Fixture f;
    Model m;
    NrdText *text;
    uint64_t n;
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 3000, NRD_CODEC_NONE);
    fixture_open(&f);
    g_assert_cmpint(nrd_text_open(f.log, &text), ==, 0);
    for (int i = 0; i < 100; i++) {
        model_commit(&f, &m, 5, 300);
        if (i % 20 == 19)
            g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) - 20, &n), ==, 0);
        NrdLogStats stats = fixture_stats(&f);
        GArray *infos = nrd_log_segment_infos(f.log);
        uint64_t size_bytes = 0;
        for (guint k = 0; k < infos->len; k++)
            size_bytes += g_array_index(infos, NrdSegmentInfo, k).size_bytes;
        g_assert_cmpuint(stats.size_bytes, ==, size_bytes);
        g_assert_cmpuint(stats.n_segments, ==, infos->len);
        g_assert_cmpuint(stats.text_bytes, ==, m.text->len - model_start(&m, stats.oldest_offset));
        g_assert_cmpuint(nrd_text_size(text), ==, m.text->len);
        g_array_unref(infos);
    }
    nrd_text_close(text);
    model_clear(&m);
    fixture_tear_down(&f);
}

/* Texts that begin anywhere and read to the end, beside a committer that rolls and trims and a thread that removes. */
typedef struct Race {
    NrdLog *log;
    gint stop;
    gint n_texts; /* read to their end */
} Race;

#define LINE_BYTES 9 /* "%08u\n" */

/* Reads a text from its beginning to its end as it is by then. */
static void read_lines(NrdText *text, uint64_t from)
{
    char buf[LINE_BYTES * 100], want[24];
    size_t n = 1;
    for (uint64_t pos = 0; n > 0; pos += n) {
        g_assert_cmpint(nrd_text_read(text, pos, buf, sizeof buf, &n), ==, 0);
        g_assert_cmpuint(n % LINE_BYTES, ==, 0);
        for (size_t i = 0; i < n; i += LINE_BYTES) {
            g_snprintf(want, sizeof want, "%08u\n", (unsigned)(from + (pos + i) / LINE_BYTES));
            g_assert_cmpmem(buf + i, LINE_BYTES, want, LINE_BYTES);
        }
    }
    g_assert_cmpuint(nrd_text_size(text) % LINE_BYTES, ==, 0);
}

static gpointer race_reader(gpointer data)
{
    Race *race = data;
    while (!g_atomic_int_get(&race->stop)) {
        uint64_t oldest = nrd_log_oldest(race->log), hwm = nrd_log_hwm(race->log), offset;
        uint64_t from = oldest + (hwm - oldest) / 3;
        NrdText *text;
        int r = nrd_text_open_from(race->log, from, &text);
        if (r == -ENOENT)
            continue; /* trimmed meanwhile */
        g_assert_cmpint(r, ==, 0);
        read_lines(text, from);
        g_assert_cmpint(nrd_log_find_time(race->log, 1, &offset), ==, 0);
        g_assert_cmpuint(offset, >=, oldest);
        nrd_text_close(text);
        g_atomic_int_inc(&race->n_texts);
    }
    return NULL;
}

static gpointer race_remover(gpointer data)
{
    Race *race = data;
    while (!g_atomic_int_get(&race->stop)) {
        uint64_t n;
        g_assert_cmpint(nrd_log_remove_detached(race->log, &n), ==, 0);
        g_usleep(200);
    }
    return NULL;
}

static void commit_lines(Fixture *f, unsigned first, unsigned n)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    uint64_t offset = 0;
    for (unsigned i = first; i < first + n; i++) {
        char text[24];
        int size = g_snprintf(text, sizeof text, "%08u", i);
        nrd_record_batch_add(batch, NULL, 0, text, (size_t)size);
    }
    g_assert_cmpint(nrd_log_commit(f->log, &batch, 1, &offset), ==, 0);
    g_assert_cmpuint(offset, ==, first);
    nrd_record_batch_free(batch);
}

static void test_race(void)
{
    Fixture f;
    GThread *threads[4];
    uint64_t n;
    fixture_set_up(&f);
    nrd_io = &nrd_io_real; /* the fault table counts without locks */
    f.options.settings.segment_bytes = 3000;
    fixture_open(&f);
    Race race = { .log = f.log };
    for (int i = 0; i < 4; i++)
        threads[i] = g_thread_new("race", i < 3 ? race_reader : race_remover, &race);
    for (unsigned i = 0; i < 400 || g_atomic_int_get(&race.n_texts) < 50; i++) {
        commit_lines(&f, i * 20, 20);
        if (i % 10 == 9 && i > 60)
            g_assert_cmpint(nrd_log_trim(f.log, i * 20 - 1000, &n), ==, 0);
    }
    g_atomic_int_set(&race.stop, 1);
    for (int i = 0; i < 4; i++)
        g_thread_join(threads[i]);
    g_assert_cmpuint(n_left(&f), ==, 0);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/seek/cost", test_cost);
    g_test_add_func("/log/seek/cost-of-index", test_cost_of_index);
    g_test_add_func("/log/seek/idle", test_idle);
    g_test_add_func("/log/seek/retention", test_retention);
    g_test_add_func("/log/seek/raw-retention", test_raw_beside_retention);
    g_test_add_func("/log/seek/sums", test_sums);
    g_test_add_func("/log/seek/race", test_race);
    return g_test_run();
}
