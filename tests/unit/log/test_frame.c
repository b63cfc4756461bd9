/* Records, frames and codecs against bytes written by hand. */
#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/log/frames/codec.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/frame_writer.h"
#include "engine/log/frames/record.h"
#include "tests/unit/n_threads.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

static void test_crc(void)
{
    g_assert_cmphex(nrd_crc32c(0, "123456789", 9), ==, 0xE3069283);
    g_assert_cmphex(nrd_crc32c(nrd_crc32c(0, "1234", 4), "56789", 5), ==, 0xE3069283);
}

static void test_record_bytes(void)
{
    /* length 15, version, key length 2, "ab", commit time 0x0102030405060708, "xyz" */
    static const uint8_t golden[] = { 0, 0, 0, 15, 2, 2, 'a', 'b', 1, 2, 3, 4, 5, 6, 7, 8, 'x', 'y', 'z' };
    NrdRecordBatch *batch = nrd_record_batch_new();
    NrdRecordView view;

    nrd_record_batch_add(batch, "ab", 2, "xyz", 3);
    nrd_record_batch_stamp(batch, 0x0102030405060708);
    g_assert_cmpmem(batch->bytes->data, batch->bytes->len, golden, sizeof golden);
    g_assert_cmpuint(batch->n_records, ==, 1);
    g_assert_cmpuint(batch->text_bytes, ==, 4);
    g_assert_cmpint(nrd_record_parse(golden + 4, sizeof golden - 4, &view), ==, 0);
    g_assert_cmpmem(view.key, view.key_size, "ab", 2);
    g_assert_cmpmem(view.payload, view.payload_size, "xyz", 3);
    g_assert_cmpint(view.commit_ms, ==, 0x0102030405060708);
    for (size_t n = 0; n < sizeof golden - 4 - 3; n++)
        g_assert_cmpint(nrd_record_parse(golden + 4, n, &view), ==, -EBADMSG);
    uint8_t other[sizeof golden];
    memcpy(other, golden, sizeof golden);
    other[4] = 1;
    g_assert_cmpint(nrd_record_parse(other + 4, sizeof golden - 4, &view), ==, -EBADMSG);
    other[4] = 2;
    other[5] = 0x7f; /* a key longer than the record */
    g_assert_cmpint(nrd_record_parse(other + 4, sizeof golden - 4, &view), ==, -EBADMSG);
    nrd_record_batch_free(batch);
}

static void test_record_prepend(void)
{
    NrdRecordBatch *a = nrd_record_batch_new(), *b = nrd_record_batch_new();
    nrd_record_batch_add(a, NULL, 0, "1", 1);
    nrd_record_batch_add(b, NULL, 0, "22", 2);
    nrd_record_batch_prepend(b, a);
    g_assert_cmpuint(b->n_records, ==, 2);
    g_assert_cmpuint(b->text_bytes, ==, 5);
    g_assert_cmpuint(b->bytes->data[14], ==, '1');
    nrd_record_batch_clear(b);
    g_assert_cmpuint(b->bytes->len + b->n_records + b->text_bytes, ==, 0);
    nrd_record_batch_free(a);
    nrd_record_batch_free(b);
    nrd_record_batch_free(NULL);
}

static void test_frame_bytes(void)
{
    static const uint8_t payload[] = { 0, 0, 0, 11, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5, 'k' };
    uint8_t golden[27] = { 0xCA, 0xFE, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 15, 0, 0, 0, 15 };
    uint8_t covered[21 + sizeof payload];
    memcpy(covered, golden + 2, 21);
    memcpy(covered + 21, payload, sizeof payload);
    nrd_put_be32(golden + 23, nrd_crc32c(0, covered, sizeof covered));

    uint8_t bytes[27];
    NrdFrameHeader h = { .n_records = 1, .offset = 258, .raw_bytes = 15, .stored_bytes = 15 }, back;
    nrd_frame_encode(&h, payload, bytes);
    g_assert_cmpmem(bytes, 27, golden, 27);
    g_assert_true(nrd_frame_header_plausible(bytes));
    nrd_frame_decode(bytes, &back);
    g_assert_cmpuint(back.offset, ==, 258);
    g_assert_cmphex(back.crc, ==, h.crc);

    NrdFrameSummary sum;
    g_assert_cmpint(nrd_frame_summarize(payload, 15, 1, 1, &sum), ==, 0);
    g_assert_cmpuint(sum.text_bytes, ==, 2);
    g_assert_cmpint(sum.commit_ms, ==, 5);
    g_assert_cmpint(nrd_frame_summarize(payload, 15, 2, 2, &sum), ==, -EBADMSG);
    g_assert_cmpint(nrd_frame_summarize(payload, 14, 1, 1, &sum), ==, -EBADMSG);
}

static void test_plausible(void)
{
    uint8_t good[27] = { 0xCA, 0xFE, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 14 };
    /* position, value: each makes it implausible */
    static const uint8_t bad[][2] = { { 0, 0xCB }, { 1, 0xFF }, { 2, 2 },   { 2, 8 },   { 3, 0x80 }, { 6, 0 },
                                      { 6, 2 },    { 7, 0x80 }, { 18, 13 }, { 22, 15 }, { 15, 0x20 } };
    g_assert_true(nrd_frame_header_plausible(good));
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        uint8_t bytes[27];
        memcpy(bytes, good, 27);
        bytes[bad[i][0]] = bad[i][1];
        g_assert_false(nrd_frame_header_plausible(bytes));
    }
    memset(good + 7, 0xff, 8);
    good[7] = 0x7f; /* 2^63-1 leaves no room for a record */
    g_assert_false(nrd_frame_header_plausible(good));
}

/* A frame of one record inside bytes, which is what must never show in a stored payload. */
static void put_nested(GByteArray *to, uint64_t offset)
{
    static const uint8_t payload[] = { 0, 0, 0, 11, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5, 'N' };
    NrdFrameHeader h = { .n_records = 1, .offset = offset, .raw_bytes = 15, .stored_bytes = 15 };
    uint8_t bytes[27];
    nrd_frame_encode(&h, payload, bytes);
    g_byte_array_append(to, bytes, 27);
    g_byte_array_append(to, payload, sizeof payload);
}

/* The encoded frame shows no header, and gives its records back. */
static void check_image(const GByteArray *payload, NrdCodec codec, bool expect_zstd)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    NrdFrameWriter writer = { 0 };
    NrdFrameImage image;
    NrdBuffer raw = { 0 };

    nrd_record_batch_add(batch, NULL, 0, payload->data, payload->len);
    GPtrArray *plans = nrd_frame_plan(&batch, 1);
    g_assert_cmpuint(plans->len, ==, 1);
    g_assert_cmpint(nrd_frame_writer_encode(&writer, plans->pdata[0], 7, codec, 3, &image), ==, 0);
    g_assert_cmpuint(image.header[2], ==, expect_zstd ? 1 : 0);
    g_assert_cmpuint(nrd_frame_find_header(image.stored, image.stored_bytes, 0), ==, SIZE_MAX);
    if (expect_zstd) {
        g_assert_cmpint(nrd_codec_decompress(image.stored, image.stored_bytes, batch->bytes->len, &raw), ==, 0);
        g_assert_cmpmem(raw.data, batch->bytes->len, batch->bytes->data, batch->bytes->len);
        g_assert_cmpint(nrd_codec_decompress(image.stored, image.stored_bytes, batch->bytes->len - 1, &raw), ==,
                        -EBADMSG);
        g_assert_cmpint(nrd_codec_decompress(image.stored, image.stored_bytes, batch->bytes->len + 1, &raw), ==,
                        -EBADMSG);
    }
    nrd_buffer_release(&raw);
    g_ptr_array_unref(plans);
    nrd_frame_writer_clear(&writer);
    nrd_record_batch_free(batch);
}

static void test_nested(void)
{
    GByteArray *p = g_byte_array_new();

    g_byte_array_append(p, (const guint8 *)"plain", 5);
    check_image(p, NRD_CODEC_NONE, false);
    put_nested(p, 8);
    check_image(p, NRD_CODEC_NONE, true);
    check_image(p, NRD_CODEC_ZSTD, true);
    g_byte_array_set_size(p, 0);
    /* noise between them: zstd leaves such bytes as they are */
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 60; k++) {
            guint8 noise = (guint8)g_test_rand_int();
            g_byte_array_append(p, &noise, 1);
        }
        put_nested(p, (uint64_t)g_test_rand_int() << 16);
    }
    check_image(p, NRD_CODEC_NONE, true);
    check_image(p, NRD_CODEC_ZSTD, true);
    /* a header cut short by the end: the next frame's bytes would complete it */
    for (unsigned n = 2; n < 27; n++) {
        g_byte_array_set_size(p, 0);
        g_byte_array_append(p, (const guint8 *)"x", 1);
        put_nested(p, 8);
        g_byte_array_set_size(p, 1 + n);
        check_image(p, NRD_CODEC_NONE, true);
    }
    g_byte_array_unref(p);
}

static void test_flood(void)
{
    GByteArray *p = g_byte_array_new();
    static const guint8 magic[2] = { 0xCA, 0xFE };

    for (int i = 0; i < 1 << 20; i++)
        g_byte_array_append(p, magic, 2);
    check_image(p, NRD_CODEC_NONE, true); /* the last 26 bytes hold some */
    g_byte_array_append(p, (const guint8 *)"0123456789012345678901234567890", 30);
    check_image(p, NRD_CODEC_NONE, false);
    /* many overlapping beginnings of headers */
    g_byte_array_set_size(p, 0);
    for (int i = 0; i < 100000; i++)
        put_nested(p, 0x00CAFE0000000000 + (uint64_t)i);
    check_image(p, NRD_CODEC_NONE, true);
    check_image(p, NRD_CODEC_ZSTD, true);
    g_byte_array_unref(p);
}

/* Wrapping parts every magic when parting the headers is not enough: try bytes that are nearly all headers. */
static void test_wrap_random(void)
{
    static const uint8_t alphabet[] = { 0xCA, 0xFE, 0, 0, 0, 1, 14 };
    NrdBuffer out = { 0 }, raw = { 0 };

    for (int round = 0; round < 2000; round++) {
        uint8_t bytes[400];
        size_t n = 0, size = (size_t)g_test_rand_int_range(1, sizeof bytes);
        for (size_t i = 0; i < size; i++)
            bytes[i] = alphabet[g_test_rand_int_range(0, sizeof alphabet)];
        g_assert_cmpint(nrd_codec_wrap(bytes, size, &out, &n), ==, 0);
        g_assert_cmpuint(nrd_frame_find_header(out.data, n, 0), ==, SIZE_MAX);
        g_assert_cmpint(nrd_codec_decompress(out.data, n, size, &raw), ==, 0);
        g_assert_cmpmem(raw.data, size, bytes, size);
    }
    nrd_buffer_release(&out);
    nrd_buffer_release(&raw);
}

static void test_plan_split(void)
{
    size_t big = 5 << 20;
    char *payload = g_malloc0(big);
    NrdRecordBatch *batches[3];
    for (int i = 0; i < 3; i++) {
        batches[i] = nrd_record_batch_new();
        for (int k = 0; k < 2; k++)
            nrd_record_batch_add(batches[i], NULL, 0, payload, big);
    }
    GPtrArray *plans = nrd_frame_plan(batches, 3);
    uint32_t n_records = 0;
    uint64_t text = 0;
    for (guint i = 0; i < plans->len; i++) {
        const NrdFramePlan *plan = plans->pdata[i];
        g_assert_cmpuint(plan->raw_bytes, <=, NRD_FRAME_TARGET_BYTES);
        n_records += plan->n_records;
        text += plan->text_bytes;
    }
    g_assert_cmpuint(plans->len, ==, 2);
    g_assert_cmpuint(n_records, ==, 6);
    g_assert_cmpuint(text, ==, 6 * (big + 1));
    g_ptr_array_unref(plans);
    for (int i = 0; i < 3; i++)
        nrd_record_batch_free(batches[i]);
    g_free(payload);
}

/* Lines that compress to about a third, of a size where several threads compress one payload, and of smaller ones. */
static GString *lines_of(size_t size, guint32 seed)
{
    GString *text = g_string_sized_new(size + 64);
    GRand *rand = g_rand_new_with_seed(seed);
    while (text->len < size)
        g_string_append_printf(text, "{\"user\": %u, \"status\": 200}\n", g_rand_int_range(rand, 0, 1000000));
    g_string_truncate(text, size);
    g_rand_free(rand);
    return text;
}

static gpointer compress_many(gpointer user_data)
{
    static const size_t sizes[] = { 1000, (1 << 20) - 1, 1 << 20, 5000001 };
    guint32 seed = (guint32)GPOINTER_TO_UINT(user_data);
    for (size_t i = 0; i < 3 * G_N_ELEMENTS(sizes); i++) {
        size_t size = sizes[i % G_N_ELEMENTS(sizes)], n = 0;
        GString *text = lines_of(size, seed + (guint32)i);
        NrdBuffer coded = { 0 }, back = { 0 };
        g_assert_cmpint(nrd_codec_compress(3, (const uint8_t *)text->str, size, &coded, &n), ==, 0);
        g_assert_cmpuint(n, <, size);
        g_assert_cmpint(nrd_codec_decompress(coded.data, n, size, &back), ==, 0);
        g_assert_cmpint(memcmp(back.data, text->str, size), ==, 0);
        nrd_buffer_release(&coded);
        nrd_buffer_release(&back);
        g_string_free(text, TRUE);
    }
    return NULL;
}

/* Payloads of any size, compressed beside each other: the same bytes come back, and the threads of the large ones are
 * there once, not once for each who compresses. */
static void test_codec_wide(void)
{
    GThread *threads[6];
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("compress", compress_many, GUINT_TO_POINTER(i + 1));
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
    g_assert_cmpuint(n_threads(), <, 10); /* six of them with threads of their own would be more */
}

/* What a header claims is believed only as far as the zstd frames bear it out: no memory before. */
static void test_codec_claims(void)
{
    /* two frames of one raw block each: "ab" with its size in the frame's header, "c" without one */
    static const uint8_t ab[] = { 0x28, 0xB5, 0x2F, 0xFD, 0x20, 2, 0x11, 0, 0, 'a', 'b' };
    static const uint8_t c[] = { 0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38, 0x09, 0, 0, 'c' };
    uint8_t both[sizeof ab + sizeof c];
    NrdBuffer raw = { 0 };
    memcpy(both, ab, sizeof ab);
    memcpy(both + sizeof ab, c, sizeof c);
    g_assert_cmpint(nrd_codec_decompress(ab, sizeof ab, (size_t)1 << 30, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress(c, sizeof c, (size_t)1 << 30, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress(both, sizeof both, (size_t)1 << 30, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress(both, sizeof both, 1, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress((const uint8_t *)"no frame", 8, 8, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress(ab, sizeof ab - 1, 2, &raw), ==, -EBADMSG);
    g_assert_cmpuint(raw.capacity, ==, 0);
    g_assert_cmpint(nrd_codec_decompress(c, sizeof c, 2, &raw), ==, -EBADMSG);
    g_assert_cmpint(nrd_codec_decompress(both, sizeof both, 3, &raw), ==, 0);
    g_assert_cmpmem(raw.data, 3, "abc", 3);
    nrd_buffer_release(&raw);
}

/* What a commit of one record asks for is what the last one gave back. */
static void test_spare_buffers(void)
{
    NrdBuffer buffer = { 0 }, other = { 0 };
    g_assert_cmpint(nrd_buffer_reserve(&buffer, 300, 0), ==, 0);
    const uint8_t *memory = buffer.data;
    nrd_buffer_release(&buffer);
    g_assert_cmpint(nrd_buffer_reserve(&other, 1, 0), ==, 0);
    g_assert_true(other.data == memory);
    nrd_buffer_release(&other);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/frame/spare-buffers", test_spare_buffers); /* first: none are spare yet */
    g_test_add_func("/log/crc", test_crc);
    g_test_add_func("/log/record/bytes", test_record_bytes);
    g_test_add_func("/log/record/prepend", test_record_prepend);
    g_test_add_func("/log/frame/bytes", test_frame_bytes);
    g_test_add_func("/log/frame/plausible", test_plausible);
    g_test_add_func("/log/frame/nested", test_nested);
    g_test_add_func("/log/frame/flood", test_flood);
    g_test_add_func("/log/frame/wrap-random", test_wrap_random);
    g_test_add_func("/log/frame/plan-split", test_plan_split);
    g_test_add_func("/log/codec/wide", test_codec_wide);
    g_test_add_func("/log/codec/claims", test_codec_claims);
    return g_test_run();
}
