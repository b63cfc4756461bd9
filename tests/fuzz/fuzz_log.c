/* A partition's folder: one or two segments of any bytes and a high watermark; every open gives the same answer, which
 * holds nothing but records that stand in whole frames.
 *
 * Input: flags; flags 2; base of the first segment; distance to the second one; the watermark, 8 bytes; two bytes of the
 * first segment's length; the first segment; the second one. */
#include "frames.h"
#include "fuzz.h"
#include "memory_io.h"

#include "engine/io/io.h"
#include "engine/log/log.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, HWM = 2, TWO = 4, COMMIT = 8, POKE = 16, READ_ONLY = 32, ZSTD = 64, SHORT_HWM = 128 };
#define RECORDS_MAX 4096

/* All that a reader can learn. */
typedef struct Dump {
    uint64_t oldest, hwm, next, text_bytes;
    uint64_t n_records;
    uint32_t crc;       /* over offsets, keys, payloads and times */
    uint32_t crc_below; /* the same, but only up to `below` */
    uint32_t text_crc;
} Dump;

static GArray *found[2];
static char names[2][32];
/* The record that was committed by the target itself, and up to where records were served before. */
static uint64_t ours = UINT64_MAX, below;

static NrdLogOptions options_of(int root, uint8_t flags, bool read_only)
{
    return (NrdLogOptions){
        .root_fd = root,
        .dir = "p",
        .topic = "t",
        .read_only = read_only,
        .settings = { .segment_bytes = 65536, .codec = flags & ZSTD ? NRD_CODEC_ZSTD : NRD_CODEC_NONE, .zstd_level = 1 }
    };
}

static bool is_true(const NrdRecordView *v)
{
    for (int i = 0; i < 2; i++)
        if (found[i] &&
            frames_hold(found[i], v->offset, v->key, v->key_size, v->payload, v->payload_size, v->commit_ms))
            return true;
    return false;
}

static void add_record(Dump *dump, const NrdRecordView *v)
{
    uint64_t head[3] = { v->offset, (uint64_t)v->commit_ms, v->key_size };
    uint32_t crc = dump->crc;
    crc = fuzz_crc32c(crc, head, sizeof head);
    crc = fuzz_crc32c(crc, v->key, v->key_size);
    dump->crc = fuzz_crc32c(crc, v->payload, v->payload_size);
    dump->n_records++;
    if (v->offset < below)
        dump->crc_below = dump->crc;
}

static void dump_records(NrdLog *log, Dump *dump)
{
    NrdLogCursor *cursor = nrd_log_cursor_new(log);
    uint64_t offset = dump->oldest;
    for (unsigned n = 0; offset < dump->hwm && n < RECORDS_MAX; n++) {
        NrdRecordView view;
        uint64_t next = 0;
        int rc = nrd_log_cursor_read(cursor, offset, &view, &next);
        FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
        if (rc == 0) {
            FUZZ_CHECK(view.offset == offset);
            FUZZ_CHECK(offset == ours || is_true(&view));
            add_record(dump, &view);
            next = offset + 1;
        }
        FUZZ_CHECK(next > offset && next <= dump->hwm);
        offset = next;
    }
    nrd_log_cursor_free(cursor);
}

static void dump_text(NrdLog *log, Dump *dump)
{
    NrdText *text;
    uint8_t buf[997];
    uint64_t pos = 0;
    size_t n = 0;
    FUZZ_CHECK(nrd_text_open(log, &text) == 0);
    do {
        FUZZ_CHECK(nrd_text_read(text, pos, buf, sizeof buf, &n) == 0);
        dump->text_crc = fuzz_crc32c(dump->text_crc, buf, n);
        pos += n;
    } while (n > 0);
    dump->text_bytes = pos;
    FUZZ_CHECK(pos <= nrd_text_size(text));
    nrd_text_close(text);
}

static Dump dump_log(NrdLog *log)
{
    Dump dump = { 0 };
    NrdLogStats stats;
    nrd_log_stats(log, &stats);
    dump.oldest = stats.oldest_offset;
    dump.hwm = stats.hwm;
    dump.next = stats.next_offset;
    FUZZ_CHECK(dump.oldest <= dump.hwm && dump.hwm <= dump.next && stats.poison_errno == 0);
    dump_records(log, &dump);
    dump_text(log, &dump);
    return dump;
}

static bool same_but_next(const Dump *a, const Dump *b)
{
    return a->oldest == b->oldest && a->hwm == b->hwm && a->n_records == b->n_records && a->crc == b->crc &&
           a->text_bytes == b->text_bytes && a->text_crc == b->text_crc;
}

/* A process that dies writes nothing more. */
static void forget(NrdLog *log)
{
    nrd_log_abandon(log);
    nrd_log_free(log);
}

static void close_log(NrdLog *log)
{
    FUZZ_CHECK(nrd_log_close(log) == 0);
    nrd_log_free(log);
}

static bool open_log(int root, uint8_t flags, bool read_only, NrdLog **ret_log)
{
    NrdLogOptions options = options_of(root, flags, read_only);
    int rc = nrd_log_open(&options, ret_log);
    FUZZ_CHECK(rc == 0 || rc == -EIO);
    return rc == 0;
}

/* Reopens and compares. */
static void expect(int root, uint8_t flags, bool read_only, const Dump *want)
{
    NrdLog *log;
    FUZZ_CHECK(open_log(root, flags, read_only, &log));
    Dump dump = dump_log(log);
    FUZZ_CHECK(same_but_next(&dump, want) && dump.next == want->next);
    forget(log);
}

/* One more record lands at the next offset, changes none of the others, and is there after a crash. */
static void commit_one(int root, uint8_t flags, const Dump *before)
{
    NrdLog *log;
    NrdRecordBatch *batch = nrd_record_batch_new();
    uint64_t first = 0;
    nrd_record_batch_add(batch, "k", 1, "payload", 7);
    FUZZ_CHECK(open_log(root, flags, false, &log));
    bool room = before->next < (uint64_t)INT64_MAX - 1;
    int rc = nrd_log_commit(log, &batch, 1, &first);
    FUZZ_CHECK(rc == 0 || !room);
    if (rc == 0) {
        FUZZ_CHECK(first == before->next);
        ours = first;
        below = before->hwm;
        Dump after = dump_log(log);
        FUZZ_CHECK(after.hwm == first + 1 && after.oldest == before->oldest);
        if (before->n_records < RECORDS_MAX - 1)
            FUZZ_CHECK(after.crc_below == before->crc && after.n_records > before->n_records);
        forget(log);
        expect(root, flags, false, &after);
    } else {
        forget(log);
    }
    nrd_record_batch_free(batch);
    ours = UINT64_MAX;
}

/* A changed byte of the side file is noticed: the answer stays. */
static void poke_index(int root, uint8_t flags, uint8_t where, const Dump *want)
{
    g_autofree char *path = g_strdup_printf("p/%.20s.index", names[0]);
    const GByteArray *there = memory_io_get(path);
    if (!there || there->len == 0)
        return;
    g_autofree uint8_t *bytes = g_memdup2(there->data, there->len);
    size_t size = there->len;
    bytes[(size_t)where * 4 % size] ^= 1 << (where & 7);
    memory_io_put(path, bytes, size);
    expect(root, flags, false, want);
}

/* In place: what is hidden may be cut, and nothing else is. */
static void reopen(NrdLog *log, Dump *dump)
{
    FUZZ_CHECK(nrd_log_reopen(log) == 0);
    Dump after = dump_log(log);
    FUZZ_CHECK(same_but_next(&after, dump) && after.next <= dump->next);
    *dump = after;
}

static void check_log(int root, uint8_t flags, uint8_t where)
{
    NrdLog *log;
    if (!open_log(root, flags, flags & READ_ONLY, &log)) {
        FUZZ_CHECK(!open_log(root, flags, false, &log)); /* and again: the same, and nothing is served */
        return;
    }
    Dump first = dump_log(log);
    if (where & 2 && !(flags & READ_ONLY))
        reopen(log, &first);
    if (where & 1)
        close_log(log);
    else
        forget(log);
    for (int i = 0; i < 2; i++)
        expect(root, flags, false, &first);
    if (flags & POKE)
        poke_index(root, flags, where, &first);
    if (flags & COMMIT)
        commit_one(root, flags, &first);
}

static void put_segment(int i, uint64_t base, uint8_t *bytes, size_t size, bool repair)
{
    g_autofree char *path = NULL;
    if (repair)
        frames_repair(bytes, size);
    g_snprintf(names[i], sizeof names[i], "%020" G_GUINT64_FORMAT ".log", base);
    path = g_strconcat("p/", names[i], NULL);
    found[i] = frames_find(bytes, size);
    memory_io_put(path, bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in), where = fuzz_u8(&in), base = fuzz_u8(&in), distance = fuzz_u8(&in);
    uint8_t hwm[8];
    size_t n;
    for (int i = 0; i < 8; i++)
        hwm[i] = fuzz_u8(&in);
    int root = memory_io_start();
    memory_io_put_folder("p");
    uint8_t *bytes = flags & TWO ? fuzz_piece(&in, &n) : fuzz_rest(&in, &n);
    put_segment(0, base, bytes, n, flags & REPAIR);
    g_free(bytes);
    if (flags & TWO) {
        bytes = fuzz_rest(&in, &n);
        put_segment(1, (uint64_t)base + 1 + distance, bytes, n, flags & REPAIR);
        g_free(bytes);
    }
    if (flags & HWM)
        memory_io_put("p/hwm", hwm, flags & SHORT_HWM ? hwm[7] % 8 : 8);
    check_log(root, flags, where);
    for (int i = 0; i < 2; i++)
        g_clear_pointer(&found[i], g_array_unref);
    memory_io_end();
    return 0;
}
