/* What an open makes of every kind of end and damage. Each case is opened three times: the outcome stays. */
#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define REC(n) ((const char *const[]){ n, NULL })

static void put_hwm(Fixture *f, uint64_t value)
{
    uint8_t bytes[8];
    nrd_put_be64(bytes, value);
    fixture_put(f, "hwm", bytes, sizeof bytes);
}

/* Three frames: offsets 0-1, 2-3, 4-5; ends[i] is where frame i ends. */
static GByteArray *three_frames(size_t ends[3])
{
    static const char *const payloads[3][3] = { { "r0", "r1", NULL }, { "r2", "r3", NULL }, { "r4", "r5", NULL } };
    GByteArray *bytes = g_byte_array_new();
    for (int i = 0; i < 3; i++) {
        fixture_append_frame(bytes, (uint64_t)i * 2, payloads[i]);
        ends[i] = bytes->len;
    }
    return bytes;
}

static void expect_records(Fixture *f, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        char want[24];
        g_snprintf(want, sizeof want, "r%u", (unsigned)i);
        fixture_expect(f, i, want);
    }
}

/* Opens three times, crashing between, and expects [0, hwm) but for the gap [gap, gap_end). */
static void expect_thrice(Fixture *f, uint64_t hwm, uint64_t next, uint64_t gap, uint64_t gap_end)
{
    for (int i = 0; i < 3; i++) {
        uint64_t after = 0;
        fixture_open(f);
        NrdLogStats stats = fixture_stats(f);
        g_assert_cmpuint(stats.hwm, ==, hwm);
        g_assert_cmpuint(stats.next_offset, ==, next);
        expect_records(f, 0, MIN(gap, hwm));
        for (uint64_t k = gap; k < gap_end; k++) {
            g_assert_cmpint(fixture_read(f, k, NULL, &after), ==, -EBADMSG);
            g_assert_cmpuint(after, ==, gap_end);
        }
        if (gap < gap_end)
            expect_records(f, gap_end, hwm);
        g_assert_cmpint(fixture_read(f, hwm, NULL, NULL), ==, -ENOENT);
        NrdText *text;
        g_assert_cmpint(nrd_text_open(f->log, &text), ==, 0);
        GString *all = fixture_text(text, 0);
        g_assert_cmpuint(all->len, ==, nrd_text_size(text));
        g_assert_cmpuint(all->len, ==, stats.text_bytes);
        g_assert_cmpuint(all->len, ==, 3 * (hwm - (gap_end - gap)));
        g_string_free(all, TRUE);
        nrd_text_close(text);
        fixture_crash(f);
    }
}

static void test_torn_at_every_byte(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t cut = ends[1]; cut < ends[2]; cut++) {
        Fixture f;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, cut);
        uint64_t torn = nrd_counter_get(NRD_COUNTER_TORN_TAILS);
        expect_thrice(&f, 4, 4, 4, 4);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_TORN_TAILS) - torn, ==, cut > ends[1] ? 1 : 0);
        fixture_open(&f);
        g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, ends[1]);
        g_assert_cmpuint(fixture_commit(&f, "r4"), ==, 4);
        fixture_crash(&f);
        expect_thrice(&f, 5, 5, 5, 5);
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

static void test_zero_tail(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t from = ends[1]; from < ends[2]; from++) { /* zeros take over within the last frame */
        Fixture f;
        fixture_set_up(&f);
        GByteArray *file = g_byte_array_new();
        g_byte_array_append(file, bytes->data, (guint)from);
        g_byte_array_set_size(file, 70000);
        memset(file->data + from, 0, 70000 - from);
        fixture_put(&f, SEGMENT_0, file->data, file->len);
        expect_thrice(&f, 4, 4, 4, 4);
        fixture_tear_down(&f);
        g_byte_array_unref(file);
    }
    g_byte_array_unref(bytes);
}

static void test_bad_last_frame(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t at = ends[1]; at < ends[2]; at++) {
        Fixture f;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        fixture_flip(&f, SEGMENT_0, at);
        expect_thrice(&f, 4, 4, 4, 4);
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

/* One bit flipped in every byte of the middle frame: the frame after it is never lost, nothing is cut. */
static void test_middle_damage(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (int bit = 0; bit < 8; bit += 3) {
        for (size_t at = ends[0]; at < ends[1]; at++) {
            Fixture f;
            fixture_set_up(&f);
            bytes->data[at] ^= (guint8)(1 << bit);
            fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
            bytes->data[at] ^= (guint8)(1 << bit);
            GByteArray *before = fixture_get(&f, SEGMENT_0);
            uint64_t n = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
            fixture_open(&f);
            fixture_read(&f, 2, NULL, NULL);
            fixture_read(&f, 3, NULL, NULL);
            g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, n + 1);
            fixture_crash(&f);
            expect_thrice(&f, 6, 6, 2, 4);
            fixture_open(&f);
            g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, before->len);
            g_byte_array_unref(before);
            fixture_tear_down(&f);
        }
    }
    g_byte_array_unref(bytes);
}

static void test_first_frame_damage(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t at = 0; at < ends[0]; at++) {
        Fixture f;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        fixture_flip(&f, SEGMENT_0, at);
        expect_thrice(&f, 6, 6, 0, 2);
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

static void test_two_damaged_in_a_row(void)
{
    static const char *const payloads[] = { "ra", "rb", NULL };
    GByteArray *bytes = g_byte_array_new();
    size_t ends[4];
    Fixture f;
    for (int i = 0; i < 4; i++) {
        fixture_append_frame(bytes, (uint64_t)i * 2, payloads);
        ends[i] = bytes->len;
    }
    for (int header = 0; header < 2; header++) {
        uint64_t next = 0;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        fixture_flip(&f, SEGMENT_0, header ? ends[0] + 4 : ends[0] + 30);
        fixture_flip(&f, SEGMENT_0, header ? ends[1] + 1 : ends[1] + 30);
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 8);
        g_assert_cmpint(fixture_read(&f, 3, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, 6);
        fixture_expect(&f, 6, "ra");
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

/* A whole sector in the middle is garbage: the search finds the next frame. */
static void test_lost_header(void)
{
    GByteArray *bytes = g_byte_array_new();
    Fixture f;
    size_t first = 0;
    for (unsigned i = 0; i < 100; i++) {
        fixture_append_frame(bytes, i, REC("some record"));
        first = i == 0 ? bytes->len : first;
    }
    fixture_set_up(&f);
    memset(bytes->data + 512, 0xA5, 512);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    for (int i = 0; i < 3; i++) {
        uint64_t next = 0, lost = 512 / first;
        fixture_open(&f);
        g_assert_cmpuint(nrd_log_hwm(f.log), ==, 100);
        g_assert_cmpint(fixture_read(&f, lost, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, (1024 + first - 1) / first);
        fixture_expect(&f, next, "some record");
        fixture_expect(&f, 99, "some record");
        fixture_crash(&f);
    }
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* A frame inside a payload, in files that another writer made: no damage of the outer frame brings it out. */
static void test_nested_frame(void)
{
    static const uint64_t inner_offsets[] = { 1, 2, 3, (uint64_t)1 << 62 };
    for (size_t k = 0; k < G_N_ELEMENTS(inner_offsets); k++) {
        GByteArray *inner = g_byte_array_new();
        GByteArray *bytes = g_byte_array_new();
        uint8_t *payload;
        fixture_append_frame(inner, inner_offsets[k], REC("FAKE"));
        fixture_append_frame(bytes, 0, REC("r0"));
        size_t outer = bytes->len;
        /* by hand: the payload holds zeros, which fixture_append_frame's strings cannot */
        char *filler = g_strnfill(inner->len + 40, 'z');
        fixture_append_frame(bytes, 1, (const char *const[]){ filler, NULL });
        size_t end = bytes->len;
        payload = bytes->data + outer + 27;
        memcpy(payload + 14 + 20, inner->data, inner->len);
        uint32_t crc = nrd_crc32c(0, bytes->data + outer + 2, 21);
        nrd_put_be32(bytes->data + outer + 23, nrd_crc32c(crc, payload, end - outer - 27));

        for (size_t cut = outer + 1; cut < end; cut++) { /* torn at every byte behind its header's start */
            Fixture f;
            fixture_set_up(&f);
            fixture_put(&f, SEGMENT_0, bytes->data, cut);
            expect_thrice(&f, 1, 1, 1, 1);
            fixture_tear_down(&f);
        }
        for (int follow = 0; follow < 2; follow++) {
            if (follow)
                fixture_append_frame(bytes, 2, REC("r2"));
            for (size_t at = outer; at < end; at++) {
                Fixture f;
                fixture_set_up(&f);
                fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
                fixture_flip(&f, SEGMENT_0, at);
                expect_thrice(&f, follow ? 3 : 1, follow ? 3 : 1, 1, follow ? 2 : 1);
                fixture_tear_down(&f);
            }
        }
        g_free(filler);
        g_byte_array_unref(inner);
        g_byte_array_unref(bytes);
    }
}

/* A flood of plausible headers behind damage: the scan ends, soon, and nothing of it is served. */
static void test_flood_of_headers(void)
{
    GByteArray *bytes = g_byte_array_new();
    Fixture f;
    fixture_append_frame(bytes, 0, REC("r0"));
    fixture_append_frame(bytes, 1, REC("r1"));
    bytes->data[bytes->len - 1] ^= 1;
    bytes->data[44 + 7] ^= 1; /* its header is no help either */
    for (int i = 0; i < 200000; i++) {
        uint8_t head[27] = { 0xCA, 0xFE, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 8, 0, 0 };
        g_byte_array_append(bytes, head, sizeof head);
    }
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 1);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* Appends a frame of one record whose payload holds the bytes of inner, 20 bytes of
 * filler before them and `behind` after them. */
static void append_outer(GByteArray *bytes, uint64_t offset, const GByteArray *inner, size_t behind)
{
    char *filler = g_strnfill(inner->len + 20 + behind, 'z');
    size_t outer = bytes->len;
    fixture_append_frame(bytes, offset, REC(filler));
    memcpy(bytes->data + outer + 27 + 14 + 20, inner->data, inner->len);
    uint32_t crc = nrd_crc32c(0, bytes->data + outer + 2, 21);
    nrd_put_be32(bytes->data + outer + 23, nrd_crc32c(crc, bytes->data + outer + 27, bytes->len - outer - 27));
    g_free(filler);
}

static void expect_file(const GByteArray *bytes, uint64_t hwm, uint64_t gap, uint64_t gap_end)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    expect_thrice(&f, hwm, hwm, gap, gap_end);
    fixture_tear_down(&f);
}

/* Whole frames that do not go on where the last one ended are not records of this log. */
static void test_wrong_offsets(void)
{
    static const uint64_t offsets[] = { 0, 2, 1000, (uint64_t)1 << 62 };
    for (size_t i = 0; i < G_N_ELEMENTS(offsets); i++) {
        GByteArray *bytes = g_byte_array_new();
        fixture_append_frame(bytes, 0, REC("r0"));
        fixture_append_frame(bytes, offsets[i], REC("xx"));
        expect_file(bytes, 1, 1, 1);
        fixture_append_frame(bytes, 1, REC("r1")); /* but it is no end for those that do */
        expect_file(bytes, 2, 2, 2);
        g_byte_array_unref(bytes);
    }
    /* nor is anything inside such a frame */
    GByteArray *bytes = g_byte_array_new(), *inner = g_byte_array_new();
    fixture_append_frame(inner, 1, REC("xx"));
    fixture_append_frame(bytes, 0, REC("r0"));
    append_outer(bytes, 500, inner, 0);
    expect_file(bytes, 1, 1, 1);
    g_byte_array_unref(bytes);
    g_byte_array_unref(inner);
}

/* The header of the outer frame is destroyed: what chains decides, and what the lost bytes explain. */
static void test_destroyed_header(void)
{
    GByteArray *bytes = g_byte_array_new(), *inner = g_byte_array_new();
    fixture_append_frame(inner, 1, REC("xx"));
    fixture_append_frame(bytes, 0, REC("r0"));
    size_t outer = bytes->len;
    append_outer(bytes, 1, inner, 40);
    memset(bytes->data + outer, 0x55, 27);
    expect_file(bytes, 1, 1, 1);
    fixture_append_frame(bytes, 2, REC("r2"));
    expect_file(bytes, 3, 1, 2);
    g_byte_array_set_size(bytes, (guint)outer);

    /* 100 lost bytes are eight records at most */
    for (uint64_t next = 2; next < 40; next++) {
        uint8_t lost[100];
        memset(lost, 0x55, sizeof lost);
        g_byte_array_set_size(bytes, (guint)outer);
        g_byte_array_append(bytes, lost, sizeof lost);
        char name[24];
        g_snprintf(name, sizeof name, "r%u", (unsigned)next);
        fixture_append_frame(bytes, next, REC(name));
        if (next <= 9)
            expect_file(bytes, next + 1, 1, next);
        else
            expect_file(bytes, 1, 1, 1);
    }
    g_byte_array_unref(bytes);
    g_byte_array_unref(inner);
}

/* The header around a frame that another writer has left in a record is damaged, and a torn tail follows: what the first
 * open makes of it stays. With the tail cut the outer frame would end where the file does, and be taken for its end. */
static void test_damaged_header_then_torn(void)
{
    for (int lost_flags = 0; lost_flags < 2; lost_flags++) {
        GByteArray *bytes = g_byte_array_new(), *inner = g_byte_array_new();
        Fixture f;
        fixture_append_frame(inner, 1, REC("r1"));
        fixture_append_frame(bytes, 0, REC("r0"));
        size_t outer = bytes->len;
        append_outer(bytes, 1, inner, 0);
        bytes->data[outer + 7] ^= 0x40; /* its offset */
        if (lost_flags)
            bytes->data[outer + 2] ^= 0x40;
        fixture_append_frame(bytes, 2, REC("torn"));
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len - 3);
        GByteArray *before = fixture_get(&f, SEGMENT_0);
        uint64_t hwm = lost_flags ? 2 : 1; /* with nothing but the offset damaged nothing inside is believed */
        expect_thrice(&f, hwm, hwm, hwm, hwm);
        fixture_open(&f);
        g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
        g_assert_cmpuint(fixture_stats(&f).hwm, ==, hwm);
        fixture_crash(&f);
        expect_thrice(&f, hwm, hwm, hwm, hwm);
        GByteArray *after = fixture_get(&f, SEGMENT_0);
        g_assert_cmpuint(after->len, ==, lost_flags ? before->len : outer);
        g_byte_array_unref(after);
        g_byte_array_unref(before);
        fixture_open(&f);
        g_assert_cmpuint(fixture_commit(&f, lost_flags ? "r2" : "r1"), ==, hwm);
        fixture_close(&f);
        expect_thrice(&f, hwm + 1, hwm + 1, hwm + 1, hwm + 1);
        fixture_tear_down(&f);
        g_byte_array_unref(inner);
        g_byte_array_unref(bytes);
    }
}

/* A segment in which damage was found stays as it is, whatever stands behind its last frame; also when it was found by a
 * reader, long after the open. */
static void test_damage_stays(void)
{
    static const uint8_t zeros[5000], torn[] = { 0xCA, 0xFE, 0, 0, 0, 0, 1, 0 };
    static const struct {
        const uint8_t *bytes;
        guint n_bytes;
    } tails[] = { { zeros, sizeof zeros }, { torn, sizeof torn }, { (const uint8_t *)"garbage", 7 } };
    for (size_t i = 0; i < G_N_ELEMENTS(tails); i++) {
        size_t ends[3];
        GByteArray *bytes = three_frames(ends);
        Fixture f;
        bytes->data[ends[0] + 40] ^= 1;
        g_byte_array_append(bytes, tails[i].bytes, tails[i].n_bytes);
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        GByteArray *before = fixture_get(&f, SEGMENT_0);
        expect_thrice(&f, 6, 6, 2, 4);
        fixture_open(&f);
        fixture_close(&f);
        expect_thrice(&f, 6, 6, 2, 4);
        fixture_open(&f);
        g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
        g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
        fixture_crash(&f);
        expect_thrice(&f, 7, 7, 2, 4);
        GByteArray *after = fixture_get(&f, SEGMENT_0);
        g_assert_cmpmem(after->data, after->len, before->data, before->len);
        g_byte_array_unref(after);
        g_byte_array_unref(before);
        fixture_tear_down(&f);
        g_byte_array_unref(bytes);
    }
}

static void test_damage_found_by_a_reader(void)
{
    Fixture f;
    fixture_set_up(&f);
    fixture_open(&f);
    for (int i = 0; i < 4; i++) {
        char name[8];
        g_snprintf(name, sizeof name, "r%d", i);
        fixture_commit(&f, name);
    }
    fixture_flip(&f, SEGMENT_0, 60); /* in the second frame */
    g_assert_cmpint(fixture_read(&f, 1, NULL, NULL), ==, -EBADMSG);
    g_assert_cmpuint(fixture_commit(&f, "r4"), ==, 4);
    g_assert_true(fixture_exists(&f, "00000000000000000004.log"));
    fixture_crash(&f);
    expect_thrice(&f, 5, 5, 1, 2);
    fixture_tear_down(&f);
}

/* A damaged frame with garbage behind it: its extent still stands, and nothing inside comes out. */
static void test_damaged_then_garbage(void)
{
    GByteArray *bytes = g_byte_array_new(), *inner = g_byte_array_new();
    uint8_t garbage[50];
    memset(garbage, 0x55, sizeof garbage);
    /* two frames that chain with one another, whatever comes behind them */
    fixture_append_frame(inner, 2, REC("xx"));
    fixture_append_frame(inner, 3, REC("xx"));
    fixture_append_frame(bytes, 0, REC("r0"));
    size_t outer = bytes->len;
    append_outer(bytes, 1, inner, 40);
    bytes->data[outer + 27 + 14] ^= 1;
    g_byte_array_append(bytes, garbage, sizeof garbage);
    expect_file(bytes, 1, 1, 1);
    fixture_append_frame(bytes, 3, REC("r3"));
    expect_file(bytes, 4, 1, 3);
    g_byte_array_unref(bytes);
    g_byte_array_unref(inner);
}

static void test_hwm_values(void)
{
    /* the file's bytes; the boundary it should give over six whole records */
    static const struct {
        uint64_t value;
        uint64_t hwm;
    } cases[] = { { 6, 6 }, { 4, 4 }, { 3, 3 }, { 0, 0 }, { 1ull << 62, 6 }, { UINT64_MAX, 6 } };
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        put_hwm(&f, cases[i].value);
        expect_thrice(&f, cases[i].hwm, 6, 6, 6);
        fixture_open(&f);
        if (i % 2 == 0) {
            g_assert_cmpint(nrd_log_expose(f.log), ==, 0);
            g_assert_cmpuint(nrd_log_hwm(f.log), ==, 6);
            g_assert_cmpint(nrd_log_expose(f.log), ==, 0);
            expect_records(&f, 0, 6);
        }
        g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6); /* exposes what was hidden */
        expect_records(&f, 0, 7);
        fixture_tear_down(&f);
    }
    for (size_t size = 0; size < 17; size++) {
        Fixture f;
        if (size == 8)
            continue;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        fixture_put(&f, "hwm", "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0", size);
        expect_thrice(&f, 6, 6, 6, 6);
        fixture_open(&f);
        fixture_close(&f);
        GByteArray *hwm = fixture_get(&f, "hwm");
        g_assert_cmpuint(hwm->len, ==, 8);
        g_byte_array_unref(hwm);
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

/* [4, 6) is a gap, and offset 6 was committed after it. */
static void expect_gap_then_r6(Fixture *f)
{
    uint64_t next;
    for (int i = 0; i < 3; i++) {
        fixture_open(f);
        g_assert_cmpuint(nrd_log_hwm(f->log), ==, 7);
        g_assert_cmpint(fixture_read(f, 5, NULL, &next), ==, -EBADMSG);
        g_assert_cmpuint(next, ==, 6);
        fixture_expect(f, 6, "r6");
        fixture_crash(f);
    }
}

/* Committed records at the end have rotted: not a torn tail. Their offsets are never used again. */
static void test_rotten_tail(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t at = ends[1]; at < ends[2]; at++) {
        Fixture f;
        fixture_set_up(&f);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        put_hwm(&f, 6);
        fixture_flip(&f, SEGMENT_0, at);
        expect_thrice(&f, 6, 6, 4, 6);
        fixture_open(&f);
        g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
        g_assert_true(fixture_exists(&f, "00000000000000000006.log"));
        fixture_crash(&f);
        expect_gap_then_r6(&f);
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

/* The same, and all that is left of them is zeros: their offsets are not used again either. */
static void test_zeroed_tail(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (size_t from = ends[1]; from < ends[2]; from++) {
        Fixture f;
        fixture_set_up(&f);
        memset(bytes->data + from, 0, bytes->len - from);
        fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
        put_hwm(&f, 6);
        expect_thrice(&f, 6, 6, 4, 6);
        fixture_open(&f);
        g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
        fixture_crash(&f);
        expect_gap_then_r6(&f);
        fixture_tear_down(&f);
        g_byte_array_unref(bytes);
        bytes = three_frames(ends);
    }
    g_byte_array_unref(bytes);
}

/* A boundary above whole records: believed as far as there are bytes that can have been records. */
static void test_hwm_above_records(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    bool zeros = g_getenv("NRD_TEST_ZEROS") != NULL;
    Fixture f;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    put_hwm(&f, 7);
    expect_thrice(&f, zeros ? 7 : 6, 7, 6, zeros ? 7 : 6);
    /* the offset was given out once: it is not given out again, and a close does not forget it */
    fixture_open(&f);
    fixture_close(&f);
    fixture_open(&f);
    g_assert_cmpuint(fixture_commit(&f, "on"), ==, 7);
    g_assert_cmpint(fixture_read(&f, 6, NULL, NULL), ==, -EBADMSG);
    fixture_crash(&f);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 8);
    expect_records(&f, 0, 6);
    fixture_expect(&f, 7, "on");
    fixture_close(&f);
    /* so many cannot have been lost: the file is rubbish */
    put_hwm(&f, (uint64_t)1 << 50);
    fixture_open(&f);
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 8);
    g_assert_cmpuint(fixture_commit(&f, "again"), ==, 8);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* A torn tail and a garbage boundary that it cannot explain: 2^62 is not believed. */
static void test_garbage_hwm_torn_tail(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    Fixture f;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, ends[2] - 1);
    put_hwm(&f, (uint64_t)1 << 62);
    expect_thrice(&f, 4, 4, 4, 4);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

static void test_failed_commit_above_hidden_tail(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    Fixture f;
    uint64_t offset;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    put_hwm(&f, 2);
    fixture_open(&f);
    g_assert_cmpint(nrd_log_roll(f.log), ==, -EBUSY);
    fault_set(FAULT_PREAD, 1, 0, false);
    g_assert_cmpint(fixture_try_commit(&f, "r6", &offset), ==, -EIO);
    fault_clear();
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 2);
    g_assert_cmpint(fixture_read(&f, 2, NULL, NULL), ==, -ENOENT);
    g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
    expect_records(&f, 0, 7);
    fixture_tear_down(&f);

    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    put_hwm(&f, 3); /* in the middle of a frame */
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).text_bytes, ==, 9);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0); /* what hwm hides may have been acknowledged: it is not cut */
    g_assert_cmpuint(nrd_log_hwm(f.log), ==, 3);
    g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 6);
    g_assert_cmpuint(fixture_stats(&f).n_hidden, ==, 3);
    g_assert_cmpuint(fixture_stats(&f).size_bytes, ==, ends[2]);
    g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
    expect_records(&f, 0, 7);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

static void test_empty_newest(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    Fixture f;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fixture_put(&f, "00000000000000000006.log", "", 0);
    expect_thrice(&f, 6, 6, 6, 6);
    fixture_open(&f);
    g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
    fixture_crash(&f);
    expect_thrice(&f, 7, 7, 7, 7);
    fixture_tear_down(&f);
    /* a torn first frame in the newest one */
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fixture_put(&f, "00000000000000000006.log", bytes->data, 20);
    expect_thrice(&f, 6, 6, 6, 6);
    fixture_tear_down(&f);
    /* missing records before the newest: a gap */
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fixture_put(&f, "00000000000000000008.log", "", 0);
    expect_thrice(&f, 8, 8, 6, 8);
    fixture_tear_down(&f);
    /* overlap: frames past the successor's base are not reachable */
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    GByteArray *other = g_byte_array_new();
    fixture_append_frame(other, 3, (const char *const[]){ "r3", NULL });
    fixture_put(&f, "00000000000000000003.log", other->data, other->len);
    expect_thrice(&f, 4, 4, 4, 4);
    fixture_tear_down(&f);
    g_byte_array_unref(other);
    g_byte_array_unref(bytes);
}

static void expect_refused(Fixture *f)
{
    for (int i = 0; i < 3; i++) {
        NrdLog *log = NULL;
        g_assert_cmpint(nrd_log_open(&f->options, &log), ==, -EIO);
        g_assert_null(log);
    }
}

static void test_refused(void)
{
    static const char *const names[] = { "09223372036854775807.log", "09223372036854775808.log",
                                         "18446744073709551615.log", "99999999999999999999.log" };
    Fixture f;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        fixture_set_up(&f);
        fixture_put(&f, names[i], "", 0);
        expect_refused(&f);
        fixture_tear_down(&f);
    }
    fixture_set_up(&f);
    fixture_put(&f, "target", "x", 1);
    char *link = fixture_file(&f, SEGMENT_0);
    g_assert_cmpint(symlink("target", link), ==, 0);
    expect_refused(&f);
    g_assert_cmpint(g_unlink(link), ==, 0);
    g_assert_cmpint(g_mkdir(link, 0700), ==, 0);
    expect_refused(&f);
    g_assert_cmpint(g_rmdir(link), ==, 0);
    g_free(link);
    link = fixture_file(&f, "hwm");
    g_assert_cmpint(symlink("target", link), ==, 0);
    expect_refused(&f);
    g_free(link);
    fixture_tear_down(&f);
    fixture_set_up(&f);
    fault_set(FAULT_LIST, 1, -EIO, true);
    expect_refused(&f);
    fault_set(FAULT_FDATASYNC, 1, -EIO, true); /* nothing unproven is exposed */
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    expect_refused(&f);
    fault_set(FAULT_FSYNC, 1, -EIO, true); /* nor is anything written behind a tail whose cut may come back */
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len - 1);
    NrdLog *log = NULL;
    g_assert_cmpint(nrd_log_open(&f.options, &log), ==, -EIO);
    g_assert_cmpuint(fault.n_fired, ==, 1);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    fault_set(FAULT_PREAD, 1, -EIO, true);
    expect_refused(&f);
    fault_set(FAULT_OPEN, 1, -EMFILE, true);
    expect_refused(&f);
    fault_clear();
    expect_thrice(&f, 6, 6, 6, 6);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

static void test_last_offsets(void)
{
    Fixture f;
    uint64_t offset = 0;
    fixture_set_up(&f);
    fixture_put(&f, "09223372036854775806.log", "", 0);
    fixture_open(&f);
    NrdRecordBatch *batch = fixture_batch(NULL, "x", 1);
    nrd_record_batch_add(batch, NULL, 0, "y", 1);
    g_assert_cmpint(nrd_log_commit(f.log, &batch, 1, &offset), ==, -EFBIG);
    nrd_record_batch_free(batch);
    fixture_tear_down(&f);
}

static void test_foreign_files(void)
{
    static const char *const names[] = { "0.log", "0000000000000000000a.log",  "00000000000000000000.log.bak",
                                         "foo",   "000000000000000000000.log", "00000000000000000007.index" };
    Fixture f;
    fixture_set_up(&f);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        fixture_put(&f, names[i], "rubbish", 7);
    fixture_open(&f);
    fixture_commit(&f, "r0");
    fixture_crash(&f);
    expect_thrice(&f, 1, 1, 1, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        g_assert_true(fixture_exists(&f, names[i]));
    fixture_tear_down(&f);
}

static void test_read_only(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    Fixture f;
    fixture_set_up(&f);
    f.options.read_only = true;
    fixture_put(&f, SEGMENT_0, bytes->data, ends[2] - 3);
    GByteArray *was = fixture_get(&f, SEGMENT_0);
    expect_thrice(&f, 4, 4, 4, 4);
    fixture_open(&f);
    fixture_close(&f);
    g_assert_false(fixture_exists(&f, "hwm"));
    GByteArray *is = fixture_get(&f, SEGMENT_0);
    g_assert_cmpmem(is->data, is->len, was->data, was->len);
    g_byte_array_unref(was);
    g_byte_array_unref(is);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* Compressed frames: damage in the middle, and a jump that only compressed bytes explain. */
static void test_zstd_damage(void)
{
    Fixture f;
    size_t ends[4] = { 0 };
    fixture_set_up(&f);
    f.options.settings.codec = NRD_CODEC_ZSTD;
    fixture_open(&f);
    for (unsigned i = 0; i < 3; i++) {
        fixture_commit_numbers(&f, 0, 1000);
        ends[i + 1] = fixture_stats(&f).size_bytes;
    }
    fixture_crash(&f);
    GByteArray *bytes = fixture_get(&f, SEGMENT_0);
    for (int frame = 0; frame < 2; frame++) {
        for (size_t at = ends[frame]; at < ends[frame + 1]; at += at < ends[frame] + 30 ? 1 : 97) {
            uint64_t next = 0;
            fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
            fixture_flip(&f, SEGMENT_0, at);
            fixture_open(&f);
            g_assert_cmpuint(nrd_log_hwm(f.log), ==, 3000);
            g_assert_cmpint(fixture_read(&f, (uint64_t)frame * 1000 + 17, NULL, &next), ==, -EBADMSG);
            g_assert_cmpuint(next, ==, (uint64_t)frame * 1000 + 1000);
            fixture_expect(&f, 2999, "999");
            fixture_crash(&f);
        }
    }
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* One bad read while it is opened, of a segment or of hwm: everything is there all the same, and the files are what they
 * were. Three times: after a clean stop, with records that are hidden, and after a crash that left a torn tail. */
static void test_bad_reads(void)
{
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    for (int how = 0; how < 3; how++) {
        Fixture f;
        uint64_t hwm = how == 1 ? 4 : 6;
        fixture_set_up(&f);
        if (how == 2)
            g_byte_array_append(bytes, (const guint8 *)"\xca\xfe\0", 3);
        for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
            fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
            if (how < 2)
                put_hwm(&f, hwm);
            fixture_open(&f);
            bad_read_end(&bad);
            g_assert_cmpuint(fixture_stats(&f).hwm, ==, hwm);
            g_assert_cmpuint(fixture_stats(&f).next_offset, ==, 6);
            expect_records(&f, 0, hwm);
            fixture_crash(&f);
            GByteArray *after = fixture_get(&f, SEGMENT_0);
            g_assert_cmpmem(after->data, after->len, bytes->data, ends[2]);
            g_byte_array_unref(after);
        }
        fixture_tear_down(&f);
    }
    g_byte_array_unref(bytes);
}

/* Behind a gap nothing is added to the segment, also when records are hidden in it: they might be judged to be part of the
 * gap then. They come to light, and the next record begins a segment. */
static void test_gap_and_hidden_tail(void)
{
    Fixture f;
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    fixture_set_up(&f);
    bytes->data[ends[0] + 30] ^= 1;
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    put_hwm(&f, 4);
    GByteArray *before = fixture_get(&f, SEGMENT_0);
    fixture_open(&f);
    g_assert_cmpuint(fixture_stats(&f).hwm, ==, 4);
    g_assert_cmpuint(fixture_commit(&f, "r6"), ==, 6);
    fixture_crash(&f);
    GByteArray *after = fixture_get(&f, SEGMENT_0);
    g_assert_cmpmem(after->data, after->len, before->data, before->len);
    g_byte_array_unref(before);
    g_assert_true(fixture_exists(&f, "00000000000000000006.log"));
    g_byte_array_unref(after);
    expect_thrice(&f, 7, 7, 2, 4);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* Showing a hidden tail writes nothing into the segment. */
static void test_expose_writes_nothing(void)
{
    Fixture f;
    size_t ends[3];
    GByteArray *bytes = three_frames(ends);
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    put_hwm(&f, 4);
    fixture_open(&f);
    g_assert_cmpint(nrd_log_expose(f.log), ==, 0);
    g_assert_cmpuint(fixture_stats(&f).hwm, ==, 6);
    fixture_crash(&f);
    GByteArray *after = fixture_get(&f, SEGMENT_0);
    g_assert_cmpmem(after->data, after->len, bytes->data, bytes->len);
    g_byte_array_unref(after);
    expect_thrice(&f, 6, 6, 6, 6);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/recovery/torn", test_torn_at_every_byte);
    g_test_add_func("/log/recovery/zero-tail", test_zero_tail);
    g_test_add_func("/log/recovery/bad-last", test_bad_last_frame);
    g_test_add_func("/log/recovery/middle", test_middle_damage);
    g_test_add_func("/log/recovery/first", test_first_frame_damage);
    g_test_add_func("/log/recovery/two-in-a-row", test_two_damaged_in_a_row);
    g_test_add_func("/log/recovery/lost-header", test_lost_header);
    g_test_add_func("/log/recovery/nested", test_nested_frame);
    g_test_add_func("/log/recovery/wrong-offsets", test_wrong_offsets);
    g_test_add_func("/log/recovery/destroyed-header", test_destroyed_header);
    g_test_add_func("/log/recovery/damaged-header-then-torn", test_damaged_header_then_torn);
    g_test_add_func("/log/recovery/damage-stays", test_damage_stays);
    g_test_add_func("/log/recovery/damage-found-by-a-reader", test_damage_found_by_a_reader);
    g_test_add_func("/log/recovery/damaged-garbage", test_damaged_then_garbage);
    g_test_add_func("/log/recovery/flood", test_flood_of_headers);
    g_test_add_func("/log/recovery/hwm", test_hwm_values);
    g_test_add_func("/log/recovery/rotten-tail", test_rotten_tail);
    g_test_add_func("/log/recovery/zeroed-tail", test_zeroed_tail);
    g_test_add_func("/log/recovery/hwm-above-records", test_hwm_above_records);
    g_test_add_func("/log/recovery/garbage-hwm", test_garbage_hwm_torn_tail);
    g_test_add_func("/log/recovery/hidden-tail", test_failed_commit_above_hidden_tail);
    g_test_add_func("/log/recovery/newest", test_empty_newest);
    g_test_add_func("/log/recovery/refused", test_refused);
    g_test_add_func("/log/recovery/last-offsets", test_last_offsets);
    g_test_add_func("/log/recovery/foreign", test_foreign_files);
    g_test_add_func("/log/recovery/read-only", test_read_only);
    g_test_add_func("/log/recovery/zstd", test_zstd_damage);
    g_test_add_func("/log/recovery/bad-reads", test_bad_reads);
    g_test_add_func("/log/recovery/gap-and-hidden-tail", test_gap_and_hidden_tail);
    g_test_add_func("/log/recovery/expose-writes-nothing", test_expose_writes_nothing);
    return g_test_run();
}
