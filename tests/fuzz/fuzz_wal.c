/* The folder of the ingress WAL: one or two segments of any bytes. The scan covers every byte once; an open hands on the
 * whole entries that no later name makes void, in order, and again the same; what is appended after it is found.
 *
 * Input: flags (1: marks and checksums are made right; 2: two segments; 4: append), first and number of each segment (1 byte
 * each), length of the first segment (2 bytes), the segments. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/endian.h"
#include "engine/ingress/wal.h"
#include "engine/ingress/wal_scan.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1, TWO = 2, APPEND = 4 };

typedef struct Segment {
    uint64_t first;
    uint32_t number;
    uint64_t salt;
    uint8_t *bytes;
    size_t size;
} Segment;

/* What was handed on: sequences, and a checksum over the entries. */
typedef struct Found {
    unsigned n;
    uint64_t last;
    uint32_t crc;
} Found;

static void repair(const Segment *s)
{
    for (size_t pos = 0; pos + NRD_ENTRY_HEADER_BYTES <= s->size; pos++) {
        uint8_t *at = s->bytes + pos;
        size_t n = nrd_get_be32(at + 24);
        if (memcmp(at, "NRDE", 4) != 0 || n < NRD_ENTRY_HEADER_BYTES || n > s->size - pos)
            continue;
        nrd_put_be64(at + 8, s->salt + pos);
        nrd_put_be32(at + 56, fuzz_crc32c(0, at + NRD_ENTRY_HEADER_BYTES, n - NRD_ENTRY_HEADER_BYTES));
        nrd_put_be32(at + 60, fuzz_crc32c(0, at, 60));
        pos += n - 1;
    }
}

static void check_scan(const Segment *s)
{
    NrdWalScan scan = { .bytes = s->bytes, .size = s->size, .salt = s->salt, .least = s->first };
    NrdWalPiece piece;
    size_t pos = 0;
    uint64_t sequence = s->first;
    while (nrd_wal_scan_next(&scan, &piece)) {
        FUZZ_CHECK(piece.pos == pos && piece.end > pos && piece.end <= s->size);
        pos = piece.end;
        if (piece.is_entry) {
            NrdEntryView view;
            FUZZ_CHECK(piece.view.head.sequence >= sequence);
            FUZZ_CHECK(nrd_entry_decode(s->bytes + piece.pos, piece.end - piece.pos, s->salt + piece.pos, &view) == 0);
            sequence = piece.view.head.sequence + 1;
        }
        if (piece.is_zeros)
            for (size_t i = piece.pos; i < piece.end; i++)
                FUZZ_CHECK(s->bytes[i] == 0);
    }
    FUZZ_CHECK(pos == s->size);
}

static uint32_t on_found(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    Found *f = user_data;
    FUZZ_CHECK(f->n == 0 || view->head.sequence > f->last);
    f->last = view->head.sequence;
    f->n++;
    uint64_t head[3] = { view->head.sequence, pos, segment->salt };
    f->crc = fuzz_crc32c(f->crc, head, sizeof head);
    f->crc = fuzz_crc32c(f->crc, view->records, view->head.size - (size_t)(view->records - view->topic) - 64);
    return view->head.n_parts;
}

static NrdWal *open_wal(int root, Found *ret_found)
{
    NrdWalOptions options = { .root_fd = root, .segment_bytes = 1 << 20, .min_sequence = 1 };
    NrdWal *wal = NULL;
    *ret_found = (Found){ 0 };
    FUZZ_CHECK(nrd_wal_open(&options, on_found, ret_found, &wal) == 0);
    FUZZ_CHECK(ret_found->n == 0 || nrd_wal_next_sequence(wal) > ret_found->last);
    return wal;
}

static void on_done(NrdWalAppend *append, int error)
{
    FUZZ_CHECK(error == 0);
    nrd_wal_segment_unref(append->segment);
}

static void append_one(int root, NrdWal *wal, const Found *before)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    NrdWalAppend append = { .n_parts = 1, .done = on_done };
    Found after;
    nrd_entry_draft_add(draft, 0, NULL, 0, "x", 1);
    FUZZ_CHECK(nrd_entry_encode(draft, "t", "0123456789abcdef", &append.bytes, &append.size) == 0);
    nrd_wal_append(wal, &append);
    nrd_wal_settle(wal);
    FUZZ_CHECK(before->n == 0 || append.sequence > before->last);
    nrd_wal_close(wal, 0);
    nrd_wal_close(open_wal(root, &after), 0);
    FUZZ_CHECK(after.n == before->n + 1 && after.last == append.sequence);
    g_free(append.bytes);
    nrd_entry_draft_free(draft);
}

static void check_wal(int root, uint8_t flags)
{
    Found first, second;
    NrdWal *wal = open_wal(root, &first);
    bool room = nrd_wal_next_sequence(wal) < NRD_ENTRY_SEQUENCE_MAX - 4;
    if (flags & APPEND && room) {
        append_one(root, wal, &first);
        return;
    }
    nrd_wal_close(open_wal(root, &second), 0);
    FUZZ_CHECK(first.n == second.n && first.crc == second.crc);
    nrd_wal_close(wal, 0);
}

static void put(Segment *s, uint8_t flags)
{
    g_autofree char *name = g_strdup_printf("ingress/%020" G_GUINT64_FORMAT ".%08x.%016" G_GINT64_MODIFIER "x.wal",
                                            s->first, s->number, s->salt);
    if (flags & REPAIR)
        repair(s);
    memory_io_put(name, s->bytes, s->size);
    check_scan(s);
    g_free(s->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    Segment one = { 1 + fuzz_u8(&in), fuzz_u8(&in), 0x1122334455667788, NULL, 0 };
    Segment two = { 1 + fuzz_u8(&in), fuzz_u8(&in), 0x99aabbccddeeff00, NULL, 0 };
    int root = memory_io_start();
    memory_io_put_folder("ingress");
    one.bytes = flags & TWO ? fuzz_piece(&in, &one.size) : fuzz_rest(&in, &one.size);
    put(&one, flags);
    if (flags & TWO) {
        two.bytes = fuzz_rest(&in, &two.size);
        put(&two, flags);
    }
    check_wal(root, flags);
    memory_io_end();
    return 0;
}
