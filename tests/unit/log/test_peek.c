/* What can be told about a log that is not open: exactly what an open would tell, or nothing. */
#include "model.h"

#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/log/index/index_file.h"

#include <errno.h>
#include <string.h>
#include <utime.h>

static bool peek(Fixture *f, NrdLogStats *ret_stats)
{
    bool known = false;
    g_assert_cmpint(nrd_log_peek(f->root_fd, "p", ret_stats, &known), ==, 0);
    return known;
}

static void expect_equal(const NrdLogStats *is, const NrdLogStats *want)
{
    g_assert_cmpuint(is->oldest_offset, ==, want->oldest_offset);
    g_assert_cmpuint(is->hwm, ==, want->hwm);
    g_assert_cmpuint(is->next_offset, ==, want->next_offset);
    g_assert_cmpuint(is->n_segments, ==, want->n_segments);
    g_assert_cmpuint(is->size_bytes, ==, want->size_bytes);
    g_assert_cmpuint(is->text_bytes, ==, want->text_bytes);
    g_assert_cmpint(is->last_commit_ms, ==, want->last_commit_ms);
    g_assert_cmpint(is->oldest_last_ms, ==, want->oldest_last_ms);
    g_assert_cmpint(is->poison_errno, ==, want->poison_errno);
}

/* Compares with the log opened afterwards, which is left open. */
static bool peek_then_open(Fixture *f)
{
    NrdLogStats is = { .hwm = 4711 };
    bool known = peek(f, &is);
    if (!known)
        g_assert_cmpuint(is.hwm, ==, 4711);
    fixture_open(f);
    NrdLogStats want = fixture_stats(f);
    if (known)
        expect_equal(&is, &want);
    return known;
}

static void test_life(void)
{
    Fixture f;
    Model m;
    uint64_t n;
    fixture_set_up(&f);
    model_init(&m);
    settings(&f, 6000, NRD_CODEC_NONE);
    g_assert_true(peek_then_open(&f)); /* no segment */
    fixture_close(&f);
    g_assert_true(peek_then_open(&f));
    for (int i = 0; i < 25; i++) {
        settings(&f, 6000, i % 3 == 2 ? NRD_CODEC_ZSTD : NRD_CODEC_NONE);
        model_commit(&f, &m, 7, 200);
        if (i % 8 == 7)
            g_assert_cmpint(nrd_log_roll(f.log), ==, 0); /* an empty newest segment */
        if (i == 20)
            g_assert_cmpint(nrd_log_trim(f.log, 60, &n), ==, 0);
        fixture_close(&f);
        g_assert_true(peek_then_open(&f));
        g_assert_cmpuint(fixture_stats(&f).oldest_last_ms, >, 0);
    }
    g_assert_cmpuint(fixture_stats(&f).n_segments, >, 2);
    model_clear(&m);
    fixture_tear_down(&f);
}

static void test_no_folder(void)
{
    Fixture f;
    NrdLogStats stats = { .hwm = 1 };
    bool known = false;
    fixture_set_up(&f);
    g_assert_cmpint(nrd_log_peek(f.root_fd, "missing", &stats, &known), ==, 0);
    g_assert_true(known);
    NrdLogStats zero = { 0 };
    expect_equal(&stats, &zero);
    fixture_tear_down(&f);
}

/* Two sealed segments and an active one, closed. */
static void fill(Fixture *f)
{
    fixture_set_up(f);
    fixture_open(f);
    for (unsigned i = 0; i < 3; i++) {
        fixture_commit_numbers(f, i * 10, 10);
        if (i < 2)
            g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
    }
    fixture_close(f);
}

/* After a crash only an open can tell. */
static void test_crash(void)
{
    Fixture f;
    NrdLogStats stats;
    fill(&f);
    g_assert_true(peek_then_open(&f));
    fixture_crash(&f); /* nothing was committed */
    g_assert_true(peek_then_open(&f));
    fixture_commit(&f, "a");
    g_assert_false(peek(&f, &stats)); /* while it is open */
    fixture_crash(&f);
    g_assert_false(peek_then_open(&f));
    fixture_close(&f);
    g_assert_true(peek_then_open(&f));
    fixture_tear_down(&f);
}

static void test_hidden(void)
{
    Fixture f;
    uint8_t hwm[8];
    fill(&f);
    nrd_put_be64(hwm, 25);
    fixture_put(&f, "hwm", hwm, sizeof hwm);
    g_assert_false(peek_then_open(&f));
    fixture_close(&f);
    g_assert_false(fixture_exists(&f, "00000000000000000020.index"));
    g_assert_false(peek_then_open(&f));
    fixture_commit(&f, "exposes them");
    fixture_close(&f);
    g_assert_true(peek_then_open(&f));
    fixture_tear_down(&f);
}

/* Every file missing, cut, longer, of another kind, or with any byte changed: never wrong. */
static void test_damage(void)
{
    static const char *const names[] = { "hwm",
                                         "00000000000000000000.index",
                                         "00000000000000000010.index",
                                         "00000000000000000020.index",
                                         "00000000000000000000.log",
                                         "00000000000000000010.log",
                                         "00000000000000000020.log" };
    Fixture f;
    NrdLogStats right;
    fill(&f);
    g_assert_true(peek(&f, &right));
    for (size_t k = 0; k < G_N_ELEMENTS(names); k++) {
        NrdLogStats is;
        GByteArray *good = fixture_get(&f, names[k]);
        bool is_segment = g_str_has_suffix(names[k], ".log");
        bool is_index = g_str_has_suffix(names[k], ".index");
        for (guint i = 0; i < good->len && !is_segment; i++) {
            fixture_flip(&f, names[k], i);
            bool known = peek(&f, &is);
            g_assert_true(!known || (is_index && i >= 4096)); /* blocks are not looked at */
            if (known)
                expect_equal(&is, &right);
            fixture_flip(&f, names[k], i);
        }
        for (guint cut = 0; cut < good->len; cut += 1 + good->len / 50) {
            fixture_put(&f, names[k], good->data, cut);
            g_assert_false(peek(&f, &is));
        }
        fixture_remove(&f, names[k]);
        if (peek(&f, &is)) { /* it could be retention's work */
            g_assert_cmpstr(names[k], ==, SEGMENT_0);
            g_assert_cmpuint(is.oldest_offset, ==, 10);
            g_assert_cmpuint(is.n_segments, ==, 2);
        }
        char *path = fixture_file(&f, names[k]);
        g_assert_cmpint(g_mkdir_with_parents(path, 0700), ==, 0);
        g_assert_false(peek(&f, &is));
        char *dir = g_strdup_printf("p/%s", names[k]);
        g_assert_cmpint(nrd_io_remove_tree(f.root_fd, dir), ==, 0);
        g_free(dir);
        g_free(path);
        fixture_put(&f, names[k], good->data, good->len);
        g_assert_true(peek(&f, &is));
        g_byte_array_unref(good);
    }
    /* the kinds are not taken for one another */
    GByteArray *sealed = fixture_get(&f, names[2]), *closed = fixture_get(&f, names[3]);
    fixture_put(&f, names[2], closed->data, closed->len);
    g_assert_false(peek(&f, &right));
    fixture_put(&f, names[2], sealed->data, sealed->len);
    fixture_put(&f, names[3], sealed->data, sealed->len);
    g_assert_false(peek(&f, &right));
    g_byte_array_unref(sealed);
    g_byte_array_unref(closed);
    fixture_tear_down(&f);
}

/* The side file of a close is none of a sealed segment. */
static void test_kind_at_open(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    fixture_commit_numbers(&f, 0, 10);
    fixture_close(&f);
    g_assert_true(fixture_exists(&f, "00000000000000000000.index"));
    fixture_put(&f, "00000000000000000010.log", "", 0); /* a roll that a crash cut short */
    uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
    g_assert_false(peek_then_open(&f));
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + 1);
    fixture_expect(&f, 7, "7");
    fixture_close(&f);
    g_assert_true(peek_then_open(&f));
    fixture_tear_down(&f);
}

/* A segment with no record that can be read: the file's time stands in. */
static void test_lost_oldest(void)
{
    Fixture f;
    fill(&f);
    GByteArray *bytes = fixture_get(&f, SEGMENT_0);
    memset(bytes->data, 0xee, bytes->len);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fixture_remove(&f, "00000000000000000000.index");
    char *path = fixture_file(&f, SEGMENT_0);
    struct utimbuf times = { 1234567, 1234567 };
    g_assert_cmpint(utime(path, &times), ==, 0);
    g_assert_false(peek_then_open(&f));
    g_assert_cmpint(fixture_stats(&f).oldest_last_ms, ==, (int64_t)1234567 * 1000);
    fixture_close(&f);
    g_assert_false(peek_then_open(&f)); /* what is lost only an open tells */
    g_assert_cmpint(fixture_stats(&f).oldest_last_ms, ==, (int64_t)1234567 * 1000);
    g_byte_array_unref(bytes);
    g_free(path);
    fixture_tear_down(&f);
}

/* Damage that a side file knows of is known from the open on; a log with damage is not described without one. */
static void test_known_damage(void)
{
    Fixture f;
    static const char *const names[] = { "00000000000000000010", "00000000000000000020" }; /* sealed, and active */
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *log = g_strconcat(names[i], ".log", NULL);
        g_autofree char *index = g_strconcat(names[i], ".index", NULL);
        uint64_t first = 10 + 10 * (uint64_t)i;
        fill(&f);
        fixture_flip(&f, log, 40);
        fixture_remove(&f, index);
        for (int round = 0; round < 3; round++) {
            g_assert_false(peek_then_open(&f));
            NrdDamage damage = fixture_stats(&f).damage;
            g_assert_cmpuint(damage.n_frames, ==, 1);
            g_assert_cmpuint(damage.n_records, ==, 10);
            g_assert_cmpuint(damage.first_offset, ==, first);
            GArray *gaps = nrd_log_gaps(f.log);
            g_assert_cmpuint(gaps->len, ==, 1);
            g_assert_cmpuint(g_array_index(gaps, NrdGap, 0).offset, ==, first);
            g_assert_cmpuint(g_array_index(gaps, NrdGap, 0).end_offset, ==, first + 10);
            g_array_unref(gaps);
            fixture_close(&f);
        }
        fixture_open(&f);
        uint64_t n;
        fixture_commit(&f, "in the next segment");
        g_assert_cmpint(nrd_log_trim(f.log, 30, &n), ==, 0);
        g_assert_cmpuint(fixture_stats(&f).damage.n_frames, ==, 0); /* gone with its segment */
        fixture_tear_down(&f);
    }
}

static bool trouble(Fixture *f)
{
    bool found = true;
    g_assert_cmpint(nrd_log_peek_trouble(f->root_fd, "p", &found), ==, 0);
    return found;
}

/* What names and headers tell of a log that is closed: nothing of one that is well, was killed, or lost side files; something
 * of each that has lost a segment or has an hwm that is not its own. */
static void test_trouble(void)
{
    static const char *const lost[] = { "00000000000000000000.log", "00000000000000000010.log",
                                        "00000000000000000020.log" };
    Fixture f;
    fill(&f);
    g_assert_false(trouble(&f));
    for (size_t i = 0; i < G_N_ELEMENTS(lost); i++) {
        GByteArray *bytes = fixture_get(&f, lost[i]);
        fixture_remove(&f, lost[i]);
        g_assert_true(trouble(&f));
        fixture_put(&f, lost[i], "", 0);
        g_assert_true(trouble(&f));
        fixture_put(&f, lost[i], bytes->data, bytes->len);
        g_assert_false(trouble(&f));
        g_byte_array_unref(bytes);
    }
    fixture_put(&f, "hwm", "\0\0\0\0\0\0\0\031", 8); /* 25 */
    g_assert_true(trouble(&f));
    fixture_open(&f);
    fixture_close(&f); /* still hidden */
    g_assert_true(trouble(&f));
    fixture_put(&f, "hwm", "\0\0\0\0\0\0\0\005", 8);
    g_assert_true(trouble(&f));
    fixture_put(&f, "hwm", "", 0);
    g_assert_false(trouble(&f));
    fixture_remove(&f, "00000000000000000010.index");
    g_assert_false(trouble(&f));
    fixture_tear_down(&f);
}

static void put_index(Fixture *f, uint64_t base, uint64_t n)
{
    g_autofree char *path = g_strdup_printf("p/%020" G_GUINT64_FORMAT ".index", base);
    NrdIndexFileId id = {
        .root_fd = f->root_fd, .path = path, .base = base, .end_offset = base + n, .size_bytes = 100
    };
    NrdIndex *index = nrd_index_new(base + n);
    g_assert_cmpint(nrd_index_file_write(&id, index), ==, 0);
    nrd_index_free(index);
}

/* A side file without its segment is believed as far as so many records can have been lost: one that was put there from
 * elsewhere moves no offset. */
static void test_foreign_index(void)
{
    Fixture f;
    fill(&f);
    put_index(&f, (uint64_t)1 << 40, 10);
    g_assert_true(trouble(&f));
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 30);
    g_assert_cmpuint(fixture_stats(&f).damage.n_holes, ==, 0);
    g_assert_cmpuint(fixture_commit(&f, "on"), ==, 30);
    fixture_tear_down(&f);

    fill(&f);
    put_index(&f, 30, 10); /* the next segment's */
    fixture_put(&f, "hwm", "", 0);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 40);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 10);
    g_assert_cmpuint(fixture_stats(&f).damage.first_missing, ==, 30);
    g_assert_cmpuint(fixture_commit(&f, "on"), ==, 40);
    fixture_close(&f);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).damage.n_missing, ==, 10);
    fixture_tear_down(&f);
}

static void test_fails(void)
{
    Fixture f;
    NrdLogStats stats;
    bool known = true;
    fill(&f);
    fault_set(FAULT_LIST, 1, -EIO, false);
    g_assert_cmpint(nrd_log_peek(f.root_fd, "p", &stats, &known), ==, -EIO);
    for (unsigned i = 1; i <= 4; i++) {
        fault_set(FAULT_PREAD, i, -EIO, false);
        g_assert_cmpint(nrd_log_peek(f.root_fd, "p", &stats, &known), ==, -EIO);
        g_assert_cmpuint(fault.n_fired, ==, 1);
    }
    fault_clear();
    g_assert_true(peek(&f, &stats));
    g_assert_cmpuint(fault.counts[FAULT_PREAD], ==, 4);
    g_assert_cmpuint(fault.counts[FAULT_PWRITEV], ==, 0);
    fixture_tear_down(&f);
}

/* A poisoned log says nothing when it is closed. */
static void test_poisoned(void)
{
    Fixture f;
    uint64_t offset;
    fill(&f);
    fixture_open(&f);
    fixture_commit(&f, "x");
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "y", &offset), <, 0);
    fault_clear();
    fixture_close(&f);
    g_assert_false(peek_then_open(&f));
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/peek/life", test_life);
    g_test_add_func("/log/peek/no-folder", test_no_folder);
    g_test_add_func("/log/peek/crash", test_crash);
    g_test_add_func("/log/peek/hidden", test_hidden);
    g_test_add_func("/log/peek/damage", test_damage);
    g_test_add_func("/log/peek/kind", test_kind_at_open);
    g_test_add_func("/log/peek/lost-oldest", test_lost_oldest);
    g_test_add_func("/log/peek/known-damage", test_known_damage);
    g_test_add_func("/log/peek/trouble", test_trouble);
    g_test_add_func("/log/peek/foreign-index", test_foreign_index);
    g_test_add_func("/log/peek/fails", test_fails);
    g_test_add_func("/log/peek/poisoned", test_poisoned);
    return g_test_run();
}
