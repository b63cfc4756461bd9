/* Writes the seeds of the fuzz targets, made by the product's own encoders: <folder>/<target>/seed-<name>. What an input
 * means says each target's file. Always the same bytes.
 *
 *   build/tests/fuzz/make_seeds tests/fuzz/corpus
 */
#include "fuzz.h"

#include "ctl/manifest.h"
#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/fanout/cursor_file.h"
#include "engine/ingress/checkpoint.h"
#include "engine/ingress/wal_entry.h"
#include "engine/log/frames/codec.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/record.h"
#include "engine/meta/topic_record.h"
#include "engine/queue/ahead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;

/* Takes the bytes over. */
static void put(const char *target, const char *name, GByteArray *bytes)
{
    g_autofree char *dir = g_build_filename(folder, target, NULL);
    g_autofree char *file = g_strconcat(dir, "/seed-", name, NULL);
    if (g_mkdir_with_parents(dir, 0755) < 0 ||
        !g_file_set_contents(file, (const char *)bytes->data, bytes->len, NULL)) {
        fprintf(stderr, "cannot write %s\n", file);
        exit(1);
    }
    g_byte_array_unref(bytes);
}

static GByteArray *begin(const void *head, size_t size)
{
    GByteArray *bytes = g_byte_array_new();
    g_byte_array_append(bytes, head, (guint)size);
    return bytes;
}
#define BEGIN(...) begin((const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void add(GByteArray *bytes, const void *more, size_t size)
{
    g_byte_array_append(bytes, more, (guint)size);
}

static void add_text(GByteArray *bytes, const char *text)
{
    add(bytes, text, strlen(text));
}

static void add_be64(GByteArray *bytes, uint64_t number)
{
    uint8_t be[8];
    nrd_put_be64(be, number);
    add(bytes, be, sizeof be);
}

static void put_texts(const char *target, const char *head, size_t head_size, const char *const *texts)
{
    for (size_t i = 0; texts[i]; i++) {
        g_autofree char *name = g_strdup_printf("%02zu", i);
        GByteArray *bytes = begin(head, head_size);
        add_text(bytes, texts[i]);
        put(target, name, bytes);
    }
}

/* ---- frames ---- */

static void add_frame(GByteArray *bytes, uint64_t offset, unsigned n_records, const char *payload, bool zstd)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    NrdBuffer packed = { 0 };
    uint8_t head[NRD_FRAME_HEADER_BYTES];
    for (unsigned i = 0; i < n_records; i++)
        nrd_record_batch_add(batch, "key", i % 2 ? 3 : 0, payload, strlen(payload));
    nrd_record_batch_stamp(batch, 1700000000000 + (int64_t)offset);
    const uint8_t *stored = batch->bytes->data;
    size_t size = batch->bytes->len;
    if (zstd && nrd_codec_compress(1, stored, batch->bytes->len, &packed, &size) == 0)
        stored = packed.data;
    NrdFrameHeader header = { zstd, n_records, offset, batch->bytes->len, (uint32_t)size, 0 };
    nrd_frame_encode(&header, stored, head);
    add(bytes, head, sizeof head);
    add(bytes, stored, size);
    nrd_buffer_release(&packed);
    nrd_record_batch_free(batch);
}

/* What a segment may look like; base is its first offset. */
enum { ONE, RUN, PACKED, TORN, ROTTEN, INSIDE, ZEROS, N_SEGMENTS };
static const char *const segment_names[N_SEGMENTS] = { "one", "run", "packed", "torn", "rotten", "inside", "zeros" };

static GByteArray *segment(int kind, uint64_t base)
{
    GByteArray *bytes = g_byte_array_new();
    if (kind == ONE) {
        add_frame(bytes, base, 1, "hello", false);
    } else if (kind == INSIDE) { /* a frame in a payload, whose own frame is damaged */
        GByteArray *inner = g_byte_array_new();
        uint8_t head[NRD_FRAME_HEADER_BYTES], envelope[14] = { 0, 0, 0, 0, 2 };
        add_frame(inner, base + 1, 1, "never", false);
        nrd_put_be32(envelope, 10 + inner->len);
        g_byte_array_prepend(inner, envelope, sizeof envelope);
        NrdFrameHeader header = { 0, 1, base, inner->len, inner->len, 0 };
        nrd_frame_encode(&header, inner->data, head);
        head[25] ^= 1;
        add(bytes, head, sizeof head);
        add(bytes, inner->data, inner->len);
        add_frame(bytes, base + 1, 1, "behind", false);
        g_byte_array_unref(inner);
    } else {
        for (uint64_t i = 0; i < 4; i++)
            add_frame(bytes, base + 2 * i, 2, "some payload", kind == PACKED);
    }
    if (kind == TORN)
        g_byte_array_set_size(bytes, bytes->len - 5);
    if (kind == ROTTEN)
        bytes->data[bytes->len / 2] ^= 0x20;
    if (kind == ZEROS) {
        guint before = bytes->len;
        g_byte_array_set_size(bytes, before + 100);
        memset(bytes->data + before, 0, 100);
    }
    return bytes;
}

static void put_segments(void)
{
    for (int kind = 0; kind < N_SEGMENTS; kind++) {
        g_autoptr(GByteArray) first = segment(kind, 3), second = segment(RUN, 11);
        g_autofree char *two = g_strconcat(segment_names[kind], "-two", NULL);
        uint8_t length[2] = { (uint8_t)(first->len >> 8), (uint8_t)first->len };
        GByteArray *frame = BEGIN(2), *scan = BEGIN(0, 3, 0), *known = BEGIN(3, 3, 8);
        GByteArray *log = BEGIN(8, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 9);
        GByteArray *log_two = BEGIN(2 | 4 | 8 | 16, 1, 3, 7, 0, 0, 0, 0, 0, 0, 0, 17);
        add(frame, first->data, first->len);
        add(scan, first->data, first->len);
        add(known, first->data, first->len);
        add(log, first->data, first->len);
        add(log_two, length, sizeof length);
        add(log_two, first->data, first->len);
        add(log_two, second->data, second->len);
        put("frame", segment_names[kind], frame);
        put("scan", segment_names[kind], scan);
        put("scan", two, known);
        put("log", segment_names[kind], log);
        put("log", two, log_two);
    }
}

static void put_side_files(void)
{
    GByteArray *sealed = BEGIN(1, 0, 0, 3, 1), *closed = BEGIN(5, 0, 0, 0, 0), *poked = BEGIN(3, 16, 5, 3, 1);
    uint8_t header[72] = { 0 };
    nrd_put_be64(header + 32, 40000);
    nrd_put_be64(header + 40, 3000);
    uint64_t items[4][4] = {
        { 100, 0, 0, 1000 }, { 400, 9000, 8000, 2000 }, { 800, 30000, 28000, 3000 }, { 20000, 30000, 700, 800 }
    };
    for (int which = 0; which < 2; which++) {
        GByteArray *bytes = which ? poked : sealed;
        add(bytes, header, sizeof header);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++)
                add_be64(bytes, items[i][k]);
    }
    add(closed, header, sizeof header);
    put("index_file", "sealed", sealed);
    put("index_file", "poked", poked);
    put("index_file", "closed", closed);
    GByteArray *hwm = BEGIN(0, 0, 0, 0, 0, 0, 0, 9);
    add_be64(hwm, 17);
    put("hwm", "whole", hwm);
    put("hwm", "short", BEGIN(0, 0, 0, 0, 0, 0, 1, 9, 1, 2, 3));
}

/* ---- the queue ---- */

static void slot_of(uint64_t frontier, uint64_t sequence, uint64_t step, unsigned n,
                    uint8_t ret_slot[NRD_AHEAD_SLOT_SIZE])
{
    NrdFrontier state = { frontier, g_array_new(FALSE, FALSE, 8) };
    for (unsigned i = 1; i <= n; i++) {
        uint64_t offset = frontier + 1 + i * step;
        g_array_append_val(state.ahead, offset);
    }
    FUZZ_CHECK(nrd_ahead_encode(&state, sequence, ret_slot) == 0);
    g_array_unref(state.ahead);
}

static void put_queue(void)
{
    uint8_t slot[NRD_AHEAD_SLOT_SIZE], other[NRD_AHEAD_SLOT_SIZE];
    static const struct {
        const char *name;
        uint64_t step;
        unsigned n;
    } kinds[] = { { "none", 1, 0 }, { "bitmap", 2, 20 }, { "gaps", 1000, 9 } };
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        slot_of(5, 7, kinds[i].step, kinds[i].n, slot);
        slot_of(9, 8, kinds[i].step, kinds[i].n / 2, other);
        GByteArray *whole = BEGIN(1), *store = BEGIN(1 | 2 | 4, 8, 0, 0, 0, 0, 0, 0, 0, 4, 200, 3, 0, 60);
        add(whole, slot, 64);
        add(store, slot, 60);
        add(store, other, 60);
        put("ahead", kinds[i].name, whole);
        put("offset_store", kinds[i].name, store);
    }
    put("ahead", "state", BEGIN(2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0, 5, 255, 0, 1, 0, 0, 3));
    put("offset_store", "offset", BEGIN(4, 8, 0, 0, 0, 0, 0, 0, 0, 4, 9, 2));
    put("offset_store", "empty", BEGIN(2, 0, 9, 2));
    GByteArray *cursor = BEGIN(1 | 2, 0, 0, 0, 0, 0, 0, 1, 2);
    for (uint64_t i = 0; i < 2; i++) {
        NrdCursorSlot s = { { 7, 9 }, 4 + i, 40 + i };
        uint8_t bytes[NRD_CURSOR_SLOT_BYTES];
        nrd_cursor_slot_encode(&s, bytes);
        add(cursor, bytes, sizeof bytes);
    }
    put("cursor", "two", cursor);
    put("cursor", "none", BEGIN(0, 0, 0, 0, 0, 0, 0, 0, 1));
}

/* ---- the ingress WAL ---- */

static GByteArray *entry(uint64_t mark, uint64_t sequence, uint32_t n_parts)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    uint8_t *bytes;
    size_t size;
    for (uint32_t i = 0; i < n_parts; i++) {
        nrd_entry_draft_add(draft, i * 3, "key", 3, "payload", 7);
        nrd_entry_draft_add(draft, i * 3, NULL, 0, "", 0);
    }
    FUZZ_CHECK(nrd_entry_encode(draft, "orders", "0123456789abcdef", &bytes, &size) == 0);
    nrd_entry_set_expected(bytes, 0, 5);
    nrd_entry_seal(bytes, size, mark, sequence);
    nrd_entry_draft_free(draft);
    GByteArray *array = begin(bytes, size);
    g_free(bytes);
    return array;
}

static GByteArray *wal_segment(uint64_t salt, uint64_t sequence, unsigned n)
{
    GByteArray *bytes = g_byte_array_new();
    for (unsigned i = 0; i < n; i++) {
        g_autoptr(GByteArray) one = entry(salt + bytes->len, sequence + i, 1 + i % 2);
        add(bytes, one->data, one->len);
    }
    return bytes;
}

static void put_ingress(void)
{
    GByteArray *one = BEGIN(3, 0, 0, 0, 0, 0, 0, 0, 42);
    g_autoptr(GByteArray) three = entry(42, 9, 3);
    add(one, three->data, three->len);
    put("wal_entry", "three", one);
    g_autoptr(GByteArray) first = wal_segment(0x1122334455667788, 1, 3);
    g_autoptr(GByteArray) second = wal_segment(0x99aabbccddeeff00, 4, 2);
    uint8_t length[2] = { (uint8_t)(first->len >> 8), (uint8_t)first->len };
    GByteArray *single = BEGIN(5, 0, 1, 0, 0), *both = BEGIN(3, 0, 1, 2, 2), *torn = BEGIN(4, 0, 1, 0, 0);
    add(single, first->data, first->len);
    add(torn, first->data, first->len - 9);
    torn->data[60] ^= 1;
    add(both, length, sizeof length);
    add(both, first->data, first->len);
    add(both, second->data, second->len);
    put("wal", "one", single);
    put("wal", "two", both);
    put("wal", "torn", torn);
    NrdCheckpoint checkpoint;
    nrd_checkpoint_init(&checkpoint);
    checkpoint.top = 12;
    checkpoint.trust = 3;
    for (uint32_t i = 0; i < 3; i++) {
        NrdCheckpointPart part = { 4 + i, i, i, i == 1 ? NRD_ENTRY_OFFSET_UNKNOWN : 7 };
        g_array_append_val(checkpoint.parts, part);
    }
    g_autoptr(GByteArray) encoded = nrd_checkpoint_encode(&checkpoint);
    GByteArray *bytes = BEGIN(1);
    add(bytes, encoded->data, encoded->len);
    put("checkpoint", "three", bytes);
    nrd_checkpoint_clear(&checkpoint);
}

/* ---- text ---- */

static void put_topics(void)
{
    NrdTopicRecord *record = nrd_topic_record_new("orders");
    g_autofree char *audit = g_strdup("audit");
    NrdChildRecord child = { audit, "fedcba9876543210", 77, 1700000000000 };
    NrdFileAttr attr = { 1000, 1000, 0600 };
    size_t size;
    g_strlcpy(record->id, "0123456789abcdef", sizeof record->id);
    record->created_ms = 1700000000000;
    for (int i = 0; i < 2; i++) {
        GByteArray *bytes = BEGIN(1);
        g_autofree char *text = nrd_topic_record_encode(record, &size);
        add(bytes, text, size - strlen("# crc32c 00000000\n"));
        put("topic_record", i == 0 ? "plain" : "parent", bytes);
        if (i == 0)
            nrd_topic_record_add_child(record, &child);
        g_hash_table_replace(record->file_attrs, g_strdup("p00000/produce"), g_memdup2(&attr, sizeof attr));
    }
    GByteArray *config = g_byte_array_new();
    g_autofree char *lines = nrd_topic_config_text(&record->config);
    add_text(config, lines);
    put("config", "defaults", config);
    put_texts("config", "", 0,
              (const char *const[]){ "partitions=4\n# more\n\ncodec=zstd\nzstd_level=19", "retention_bytes=65536\n",
                                     "consume_wait_ms=-1\nmax_record_bytes=67108864\n", "linger_ms=0060\n", NULL });
    put_texts("incarnation", "\x03", 1,
              (const char *const[]){ "0123456789abcdef", "0123456789abcdef\n", "01234", "fedcba9876543210",
                                     "0123456789abcdee", "", "no", NULL });
    put_texts("incarnation", "\x07", 1, (const char *const[]){ "ffffffffffff0000", NULL });
    nrd_topic_record_free(record);
}

static void put_lines(void)
{
    static const char *const json[] = { "{\"key\":\"k\",\"payload\":{\"a\":[1,2.5e-3,null,true,\"\\u00e9\"]}}",
                                        "{\"payload\":\"aGVsbG8=\",\"payload_encoding\":\"base64\"}",
                                        "{\"payload\":\"\\ud83d\\ude00 \\n\",\"key\":null}",
                                        "{\"handle\":\"0:43:881\",\"partition\":0,\"offset\":43,\"timestamp\":17,"
                                        "\"key\":\"/w==\",\"key_encoding\":\"base64\",\"payload\":[]}",
                                        " { \"payload\" : -0.0 } \r",
                                        "{\"payload\":\"\\ud83d\"}",
                                        "{\"payload\":",
                                        NULL };
    put_texts("jsonl_in", "", 0, json);
    put_texts("framing_lines", "\x01\0\x07", 3, (const char *const[]){ "one\ntwo\n\nthree", NULL });
    put_texts("framing_lines", "\x02\0\x09", 3,
              (const char *const[]){
                  "short\n0123456789012345678901234567890123456789012345678901234567890123456789\nb\n", NULL });
    put_texts("framing_jsonl", "\x01\0\x05", 3,
              (const char *const[]){ "{\"payload\":1}\n\n{\"key\":\"k\",\"payload\":\"x\"}\n{\"payload\":2}",
                                     "{\"payload\":1}\nbad\n{\"payload\":2}\n", NULL });
    GByteArray *bin = BEGIN(1, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 'k', 'a', 'b', 0, 0, 0, 0, 0, 0, 0, 0);
    put("framing_bin", "two", bin);
    put("framing_bin", "long", BEGIN(0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 70, 'a', 'b', 'c'));
    put_texts("ack", "\0\x03\xff", 3,
              (const char *const[]){ "0:43:881\nnack 1:2:3\nextend  4294967295:18446744073709551615:0\r\nack 0:0:0",
                                     "12:00:1\n0:18446744073709551616:1\n", NULL });
    put_texts("ctl", "", 0,
              (const char *const[]){ "delete 0123456789abcdef", "partitions 12", "reopen", "roll", "trim 5", "seek 77",
                                     "seek start", "seek end", "seek 9223372036854775807", NULL });
    put_texts("time_name", "", 0,
              (const char *const[]){ "1700000000000", "2023-11-14T22:13:20Z", "2024-02-29t23:59:60.1234-00:00",
                                     "1969-12-31 23:59:59.999+05:30", "0000-01-01T00:00:00Z", "2023-02-29T00:00:00Z",
                                     "2000-02-29T00:00:00z", NULL });
}

static void put_jsonl_out(void)
{
    static const char *const payloads[] = { "plain", "{\"a\":\n1}", "\"text\"", "\xff\xfe", " 5 ", "" };
    for (size_t i = 0; i < G_N_ELEMENTS(payloads); i++) {
        g_autofree char *name = g_strdup_printf("%02zu", i);
        GByteArray *bytes = BEGIN(1, 0, 0, 0, 7);
        add_be64(bytes, 43);
        add_be64(bytes, 1700000000000);
        add(bytes, "\0\1k", 3);
        add_text(bytes, payloads[i]);
        put("jsonl_out", name, bytes);
    }
}

/* ---- an exported partition ---- */

static void add_tar_entry(GByteArray *tar, const char *name, const void *bytes, size_t size)
{
    uint8_t header[512] = { 0 };
    unsigned sum = 0;
    g_snprintf((char *)header, 100, "%s", name);
    g_snprintf((char *)header + 100, 8, "0000600");
    g_snprintf((char *)header + 124, 12, "%011zo", size);
    g_snprintf((char *)header + 136, 12, "%011o", 1700000000);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof header; i++)
        sum += header[i];
    g_snprintf((char *)header + 148, 8, "%06o", sum);
    add(tar, header, sizeof header);
    add(tar, bytes, size);
    guint before = tar->len;
    g_byte_array_set_size(tar, (before + 511) / 512 * 512);
    memset(tar->data + before, 0, tar->len - before);
}

/* With the byte of flags before it. */
static void put_archive(const char *name, const GByteArray *tar, guint size)
{
    GByteArray *bytes = BEGIN(3);
    add(bytes, tar->data, size);
    put("unpack", name, bytes);
}

static void put_archives(void)
{
    NrdManifest *m = nrd_manifest_new();
    g_autoptr(GByteArray) log = segment(RUN, 0);
    uint8_t hwm[8] = { 0, 0, 0, 0, 0, 0, 0, 8 };
    m->topic = g_strdup("orders");
    m->incarnation = g_strdup("0123456789abcdef");
    m->hwm = m->n_records = 8;
    m->frontier = 5;
    nrd_manifest_add(m, "00000000000000000000.log", log->len, nrd_crc32c(0, log->data, log->len), 1700000000000);
    nrd_manifest_add(m, "hwm", sizeof hwm, nrd_crc32c(0, hwm, sizeof hwm), 0);
    g_autoptr(GString) text = nrd_manifest_encode(m);
    GByteArray *manifest = BEGIN(1);
    g_autoptr(GByteArray) tar = g_byte_array_new();
    add(manifest, text->str, text->len - strlen("crc32c 00000000\n"));
    put("manifest", "two", manifest);
    add_tar_entry(tar, NRD_MANIFEST_NAME, text->str, text->len);
    add_tar_entry(tar, "00000000000000000000.log", log->data, log->len);
    add_tar_entry(tar, "hwm", hwm, sizeof hwm);
    put_archive("cut", tar, tar->len - 600);
    guint before = tar->len;
    g_byte_array_set_size(tar, before + 1024);
    memset(tar->data + before, 0, 1024);
    put_archive("whole", tar, tar->len);
    nrd_manifest_free(m);
}

/* As nats-server 2.9 says it, but for what nobody here looks at. */
static void put_answers(void)
{
    static const struct {
        uint8_t kind;
        const char *name, *text;
    } seeds[] = {
        { 0, "stream",
          "{\"type\":\"io.nats.jetstream.api.v1.stream_info_response\",\"config\":{\"name\":\"s\",\"max_age\":0,"
          "\"storage\":"
          "\"file\",\"num_replicas\":3},\"created\":\"2026-11-30T11:36:19.245678901Z\",\"state\":{\"messages\":5,"
          "\"bytes\":"
          "210,\"first_seq\":5,\"first_ts\":\"2026-11-30T11:36:19.2Z\",\"last_seq\":9,\"last_ts\":\"2026-11-30T11:36:"
          "20Z\"}}" },
        { 1, "consumer",
          "{\"stream_name\":\"s\",\"name\":\"narad\",\"config\":{\"durable_name\":\"narad\",\"opt_start_seq\":4},"
          "\"delivered\":"
          "{\"consumer_seq\":3,\"stream_seq\":7},\"ack_floor\":{\"consumer_seq\":2,\"stream_seq\":6},\"num_ack_"
          "pending\":1,"
          "\"num_pending\":2}" },
        { 2, "message",
          "{\"message\":{\"subject\":\"$KV.narad.t\",\"seq\":4,\"hdrs\":\"TkFUUy8xLjANCktleTogdg0KDQo=\",\"data\":"
          "\"aGk=\","
          "\"time\":\"2026-11-30T11:36:19Z\"}}" },
        { 3, "published", "{\"stream\":\"s\",\"seq\":77,\"duplicate\":true}" },
        { 3, "error",
          "{\"error\":{\"code\":400,\"err_code\":10071,\"description\":\"wrong last sequence: 3\"},\"seq\":0}" },
        { 4, "success", "{\"success\":true}" },
        { 5, "ack", "$JS.ACK.narad_a_b_00_p00012.narad.3.44.50.1796038579245000001.9" },
        { 5, "ack-long", "$JS.ACK.hub.ACCOUNT.narad_a_00_p00001.narad_3.1.2.3.4.5.random" },
        { 6, "time", "2026-11-30T11:36:19.245678901Z" },
        { 7, "servers", "nats://me:p%2Css%40w@a:4222,b,[::1]:4223" },
        { 7, "servers-tls", "tls://token@a:1,token@b:2" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(seeds); i++) {
        GByteArray *bytes = BEGIN(seeds[i].kind);
        add_text(bytes, seeds[i].text);
        put("js_answers", seeds[i].name, bytes);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    put_segments();
    put_side_files();
    put_queue();
    put_ingress();
    put_topics();
    put_lines();
    put_jsonl_out();
    put_archives();
    put_answers();
    return 0;
}
