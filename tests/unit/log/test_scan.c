/* A watched walk of a segment: what is told is what the index says, in order, with the reason of each loss. */
#include "engine/log/index/scan.h"

#include "engine/io/io.h"
#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define N_FRAMES 6

typedef struct Told {
    GArray *frames; /* uint64_t: first offsets */
    GArray *gaps;   /* NrdGap */
    NrdFrameFault fault;
    uint64_t pos; /* everything so far ended here */
} Told;

static void on_frame(void *data, const NrdFrameReader *frame)
{
    Told *told = data;
    g_assert_true(frame->loaded);
    g_assert_cmpuint(frame->pos, ==, told->pos);
    told->pos = frame->end_pos;
    g_array_append_val(told->frames, frame->header.offset);
}

static void on_lost(void *data, const NrdGap *gap, NrdFrameFault reason)
{
    Told *told = data;
    g_assert_cmpuint(gap->pos, ==, told->pos);
    told->pos = gap->end_pos;
    told->fault = reason;
    g_array_append_val(told->gaps, *gap);
}

/* Frames of two records each; ends[i]: where frame i ends. */
static GByteArray *make_segment(size_t ends[N_FRAMES])
{
    const char *payloads[] = { "one", "two", NULL };
    GByteArray *bytes = g_byte_array_new();
    for (unsigned i = 0; i < N_FRAMES; i++) {
        fixture_append_frame(bytes, (uint64_t)2 * i, payloads);
        ends[i] = bytes->len;
    }
    return bytes;
}

static void scan(Fixture *f, const GByteArray *bytes, uint64_t end_offset, Told *told, NrdScanTail *ret_tail)
{
    NrdScanWatch watch = { .frame = on_frame, .lost = on_lost, .data = told };
    NrdIndex *index = NULL;
    *told = (Told){ .frames = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
                    .gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap)) };
    fixture_put(f, SEGMENT_0, bytes->data, bytes->len);
    int fd = nrd_io->open(f->root_fd, "p/" SEGMENT_0, O_RDONLY, 0);
    g_assert_cmpint(fd, >=, 0);
    NrdScanWant want = { fd, 0, bytes->len, end_offset };
    g_assert_cmpint(nrd_scan_segment_watched(&want, &watch, &index, ret_tail), ==, 0);
    nrd_io_close(&fd);
    g_assert_cmpuint(index->end.pos, ==, told->pos);
    g_assert_cmpuint(index->gaps->len, ==, told->gaps->len);
    g_assert_true(told->gaps->len == 0 ||
                  memcmp(index->gaps->data, told->gaps->data, told->gaps->len * sizeof(NrdGap)) == 0);
    nrd_index_free(index);
}

static void told_clear(Told *told)
{
    g_array_unref(told->frames);
    g_array_unref(told->gaps);
}

static void test_whole(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    Told told;
    NrdScanTail tail = { .torn = false };
    fixture_set_up(&f);
    scan(&f, bytes, UINT64_MAX, &told, &tail);
    g_assert_cmpuint(told.frames->len, ==, N_FRAMES);
    for (unsigned i = 0; i < N_FRAMES; i++)
        g_assert_cmpuint(g_array_index(told.frames, uint64_t, i), ==, (uint64_t)2 * i);
    g_assert_false(tail.torn);
    told_clear(&told);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* A damaged frame in the middle, at each of its bytes: told once, between its neighbours. */
static void test_watched(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    fixture_set_up(&f);
    for (size_t at = ends[1]; at < ends[2]; at++) {
        Told told;
        NrdScanTail tail = { .torn = false };
        bytes->data[at] ^= 0x04;
        scan(&f, bytes, UINT64_MAX, &told, &tail);
        bytes->data[at] ^= 0x04;
        g_assert_cmpuint(told.frames->len, ==, N_FRAMES - 1);
        g_assert_cmpuint(told.gaps->len, ==, 1);
        const NrdGap *gap = &g_array_index(told.gaps, NrdGap, 0);
        g_assert_cmpuint(gap->pos, ==, ends[1]);
        g_assert_cmpuint(gap->end_pos, ==, ends[2]);
        g_assert_cmpuint(gap->offset, ==, 4);
        g_assert_cmpuint(gap->end_offset, ==, 6);
        g_assert_cmpint(told.fault, !=, NRD_FRAME_GOOD);
        if (at >= ends[1] + NRD_FRAME_HEADER_BYTES)
            g_assert_cmpint(told.fault, ==, NRD_FRAME_BAD_CRC);
        told_clear(&told);
    }
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* A segment that has to reach its successor's base, and does not: cut, or damaged at its end. */
static void test_short_of_its_end(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    NrdScanTail tail;
    Told told;
    fixture_set_up(&f);
    scan(&f, bytes, 2 * N_FRAMES + 3, &told, &tail);
    g_assert_cmpuint(told.gaps->len, ==, 1);
    g_assert_cmpuint(g_array_index(told.gaps, NrdGap, 0).end_offset, ==, 2 * N_FRAMES + 3);
    g_assert_cmpint(told.fault, ==, NRD_FRAME_CUT);
    told_clear(&told);
    bytes->data[bytes->len - 1] ^= 1;
    scan(&f, bytes, 2 * N_FRAMES, &told, &tail);
    g_assert_cmpuint(told.gaps->len, ==, 1);
    g_assert_cmpuint(g_array_index(told.gaps, NrdGap, 0).offset, ==, 2 * N_FRAMES - 2);
    g_assert_cmpint(told.fault, ==, NRD_FRAME_BAD_CRC);
    told_clear(&told);
    fixture_tear_down(&f);
    g_byte_array_unref(bytes);
}

/* ---- holes ---- */

#define HUGE_BYTES ((uint64_t)1 << 40)
#define FAR_POS (((uint64_t)700 << 30) + 12345) /* not where a block begins */

static void scan_for_good(Fixture *f, uint64_t size_bytes, NrdIndex **ret_index, NrdScanTail *ret_tail)
{
    int fd = nrd_io->open(f->root_fd, "p/" SEGMENT_0, O_RDONLY, 0);
    NrdScanWant want = { fd, 0, size_bytes, UINT64_MAX };
    g_assert_cmpint(nrd_scan_segment(&want, NRD_NOWHERE, ret_index, ret_tail), ==, 0);
    nrd_io_close(&fd);
}

/* Whatever one read gives, a scan whose findings last finds what is on the disk. */
static void scan_with_bad_reads(Fixture *f, const GByteArray *bytes, guint n_gaps, bool torn)
{
    NrdIndex *right;
    NrdScanTail right_tail;
    fixture_put(f, SEGMENT_0, bytes->data, bytes->len);
    scan_for_good(f, bytes->len, &right, &right_tail);
    g_assert_cmpuint(right->gaps->len, ==, n_gaps);
    g_assert_true(right_tail.torn == torn);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        NrdIndex *index;
        NrdScanTail tail;
        scan_for_good(f, bytes->len, &index, &tail);
        bad_read_end(&bad);
        g_assert_cmpmem(&index->end, sizeof index->end, &right->end, sizeof right->end);
        g_assert_cmpmem(index->gaps->data, index->gaps->len * sizeof(NrdGap), right->gaps->data,
                        right->gaps->len * sizeof(NrdGap));
        g_assert_cmpmem(index->entries->data, index->entries->len * sizeof(NrdIndexEntry), right->entries->data,
                        right->entries->len * sizeof(NrdIndexEntry));
        g_assert_true(tail.torn == right_tail.torn && tail.max_n_lost == right_tail.max_n_lost);
        nrd_index_free(index);
    }
    nrd_index_free(right);
}

static void test_bad_reads(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    fixture_set_up(&f);
    scan_with_bad_reads(&f, bytes, 0, false);
    bytes->data[ends[2] + 30] ^= 0x10;
    scan_with_bad_reads(&f, bytes, 1, false);
    g_byte_array_set_size(bytes, bytes->len - 5);
    scan_with_bad_reads(&f, bytes, 1, true);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

static size_t one_frame;

/* Spoils the second frame of what it reads. */
static ssize_t moody_pread(int fd, void *buf, size_t size, int64_t pos)
{
    ssize_t n = nrd_io_real.pread(fd, buf, size, pos);
    if (n > (ssize_t)one_frame + 30)
        ((uint8_t *)buf)[one_frame + 30] ^= 0x40;
    return n;
}

/* A disk that gives something else each time makes an error, and neither damage nor records. */

static void test_moody_disk(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    NrdIndex *index = NULL;
    fixture_set_up(&f);
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    const NrdIo *before = nrd_io;
    NrdIo moody = *nrd_io;
    moody.pread = moody_pread;
    one_frame = ends[0];
    nrd_io = &moody;
    int fd = nrd_io->open(f.root_fd, "p/" SEGMENT_0, O_RDONLY, 0);
    NrdScanWant want = { fd, 0, bytes->len, UINT64_MAX };
    g_assert_cmpint(nrd_scan_segment(&want, NRD_NOWHERE, &index, NULL), ==, -EIO);
    g_assert_null(index);
    nrd_io_close(&fd);
    nrd_io = before;
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* The work that a search may do is a few times the size, also where that is more than a number holds. */
static void test_size_without_end(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    GByteArray *bytes = make_segment(ends);
    NrdIndex *index;
    NrdScanTail tail;
    fixture_set_up(&f);
    bytes->data[ends[2] + 10] ^= 0x10; /* in the header: the search has to find the next frame */
    fixture_put(&f, SEGMENT_0, bytes->data, bytes->len);
    int fd = nrd_io->open(f.root_fd, "p/" SEGMENT_0, O_RDONLY, 0);
    /* four times it is 2^64 less a MiB, so that with the MiB that is allowed besides nothing would be */
    NrdScanWant want = { fd, 0, ((uint64_t)1 << 62) - NRD_MIB / 4, UINT64_MAX };
    g_assert_cmpint(nrd_scan_segment(&want, NRD_NOWHERE, &index, &tail), ==, 0);
    g_assert_cmpuint(index->gaps->len, ==, 1);
    nrd_index_free(index);
    nrd_io_close(&fd);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

static uint64_t bytes_read;
static ssize_t (*real_pread)(int fd, void *buf, size_t size, int64_t pos);

static ssize_t counting_pread(int fd, void *buf, size_t size, int64_t pos)
{
    bytes_read += size;
    g_assert_cmpuint(bytes_read, <, (uint64_t)64 * NRD_MIB); /* else it is read hole and all */
    return real_pread(fd, buf, size, pos);
}

/* A segment of a terabyte that is next to nothing on the disk: its frames, and far behind them `far`. */
static void scan_huge(Fixture *f, const GByteArray *near, const void *far, size_t far_size, Told *told,
                      NrdIndex **ret_index, NrdScanTail *ret_tail)
{
    const NrdIo *before = nrd_io;
    NrdIo counting = *nrd_io;
    NrdScanWatch watch = { .frame = on_frame, .lost = on_lost, .data = told };
    *told = (Told){ .frames = g_array_new(FALSE, FALSE, sizeof(uint64_t)),
                    .gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap)) };
    fixture_put(f, SEGMENT_0, near->data, near->len);
    int fd = nrd_io->open(f->root_fd, "p/" SEGMENT_0, O_RDWR, 0);
    g_assert_cmpint(nrd_io->ftruncate(fd, (int64_t)HUGE_BYTES), ==, 0);
    if (far_size > 0)
        g_assert_cmpint(nrd_io_pwrite_full(fd, far, far_size, (int64_t)FAR_POS), ==, 0);
    real_pread = before->pread;
    counting.pread = counting_pread;
    bytes_read = 0;
    nrd_io = &counting;
    NrdScanWant want = { fd, 0, HUGE_BYTES, UINT64_MAX };
    g_assert_cmpint(nrd_scan_segment_watched(&want, &watch, ret_index, ret_tail), ==, 0);
    nrd_io = before;
    nrd_io_close(&fd);
}

/* Holes are passed over, and nothing behind them is. */
static void test_huge(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    const char *payloads[] = { "far", "away", NULL };
    GByteArray *bytes = make_segment(ends), *far = g_byte_array_new();
    NrdIndex *index = NULL;
    NrdScanTail tail;
    Told told;
    fixture_set_up(&f);
    fixture_append_frame(far, 1000, payloads);

    scan_huge(&f, bytes, NULL, 0, &told, &index, &tail);
    g_assert_cmpuint(told.frames->len, ==, N_FRAMES);
    g_assert_true(tail.torn && tail.only_zeros);
    told_clear(&told);
    nrd_index_free(index);

    scan_huge(&f, bytes, "x", 1, &told, &index, &tail);
    g_assert_cmpuint(told.frames->len, ==, N_FRAMES);
    g_assert_true(tail.torn && !tail.only_zeros);
    told_clear(&told);
    nrd_index_free(index);

    scan_huge(&f, bytes, far->data, far->len, &told, &index, &tail);
    g_assert_cmpuint(told.frames->len, ==, N_FRAMES + 1);
    g_assert_cmpuint(told.gaps->len, ==, 1);
    const NrdGap *gap = &g_array_index(told.gaps, NrdGap, 0);
    g_assert_cmpuint(gap->pos, ==, ends[N_FRAMES - 1]);
    g_assert_cmpuint(gap->end_pos, ==, FAR_POS);
    g_assert_cmpuint(gap->end_offset, ==, 1000);
    g_assert_cmpuint(index->end.offset, ==, 1002);
    g_assert_true(tail.torn && tail.only_zeros);
    told_clear(&told);
    nrd_index_free(index);
    g_byte_array_unref(far);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* A frame whose checksum is right, but whose payload is not its records, is a gap like any other: in the middle, and at
 * the end. */
static void test_bad_records(void)
{
    Fixture f;
    size_t ends[N_FRAMES];
    Told told;
    NrdScanTail tail = { .torn = false };
    fixture_set_up(&f);
    for (unsigned which = 2; which < N_FRAMES; which += N_FRAMES - 3) {
        GByteArray *bytes = make_segment(ends);
        uint8_t *frame = bytes->data + ends[which - 1];
        NrdFrameHeader header;
        frame[NRD_FRAME_HEADER_BYTES] = 0xFF; /* the first record's length */
        nrd_frame_decode(frame, &header);
        nrd_frame_encode(&header, frame + NRD_FRAME_HEADER_BYTES, frame);
        scan(&f, bytes, UINT64_MAX, &told, &tail);
        g_assert_cmpuint(told.frames->len, ==, N_FRAMES - 1);
        g_assert_cmpuint(told.gaps->len, ==, 1);
        const NrdGap *gap = &g_array_index(told.gaps, NrdGap, 0);
        g_assert_cmpuint(gap->offset, ==, 2 * which);
        g_assert_cmpuint(gap->end_offset, ==, 2 * which + 2);
        g_assert_cmpuint(gap->end_pos, ==, ends[which]);
        g_assert_cmpint(told.fault, ==, NRD_FRAME_BAD_RECORDS);
        g_assert_false(tail.torn);
        told_clear(&told);
        g_byte_array_unref(bytes);
    }
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/scan/whole", test_whole);
    g_test_add_func("/log/scan/watched", test_watched);
    g_test_add_func("/log/scan/short-of-its-end", test_short_of_its_end);
    g_test_add_func("/log/scan/huge", test_huge);
    g_test_add_func("/log/scan/bad-records", test_bad_records);
    g_test_add_func("/log/scan/bad-reads", test_bad_reads);
    g_test_add_func("/log/scan/moody-disk", test_moody_disk);
    g_test_add_func("/log/scan/size-without-end", test_size_without_end);
    return g_test_run();
}
