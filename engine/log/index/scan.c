/* See scan.h: one walk. No locks; reads through engine/io. */
#include "engine/log/index/scan_private.h"

#include "engine/log/frames/frame.h"

#include <errno.h>

#define CHUNK_BYTES ((size_t)256 * 1024)
/* CRCs of candidates may be computed over so many times the segment's size. */
#define BUDGET_FACTOR 4

/* Adds a gap to the index and tells of it. */
static void lose(NrdScan *s, uint64_t end_pos, uint64_t end_offset, NrdFrameFault fault)
{
    NrdGap gap = { s->index->end.pos, end_pos, s->index->end.offset, end_offset };

    nrd_index_add_gap(s->index, end_pos, end_offset);
    if (s->watch->lost != NULL)
        s->watch->lost(s->watch->data, &gap, fault);
}

static void note_damage(NrdScan *s)
{
    if (!s->damaged)
        s->damage = (NrdScanPlace){ s->index->end, s->index->entries->len, s->seen_zstd, s->seen_frame };
    s->damaged = true;
}

/* Takes one step: a good frame, or a gap up to the next one. *ret_done: nothing good follows. */
static int step(NrdScan *s, bool *ret_done)
{
    NrdIndexEnd *end = &s->index->end;
    NrdFrameWant frame = { .fd = s->want->fd,
                           .pos = end->pos,
                           .limit_pos = s->want->size_bytes,
                           .offset = end->offset,
                           .end_offset = s->want->end_offset,
                           .ahead_bytes = CHUNK_BYTES };
    NrdResync resync = { .found = false };

    int r = nrd_frame_reader_load(&s->reader, &frame);
    if (r == 0) {
        const NrdFrameReader *good = &s->reader;
        uint32_t n = (uint32_t)MIN((uint64_t)good->header.n_records, s->want->end_offset - end->offset);
        s->seen_frame = true;
        s->seen_zstd |= good->header.flags == 1;
        nrd_index_add_frame(s->index, good->end_pos - good->pos, n, good->summary.text_bytes, good->summary.commit_ms);
        if (s->watch->frame != NULL)
            s->watch->frame(s->watch->data, good);
        return 0;
    }
    if (r != -EBADMSG)
        return r;
    NrdFrameFault fault = s->reader.fault;
    note_damage(s);
    s->foreign_first |= end->pos == 0 && s->reader.fault == NRD_FRAME_WRONG_OFFSET;
    r = 0;
    if (s->reader.fault == NRD_FRAME_BAD_RECORDS)
        resync = (NrdResync){ true, s->reader.end_pos, end->offset + s->reader.header.n_records };
    else
        r = nrd_scan_resync(s, &resync);
    if (r < 0)
        return r;
    *ret_done = !resync.found || resync.offset >= s->want->end_offset;
    if (!*ret_done)
        lose(s, resync.pos, resync.offset, fault);
    return 0;
}

/* An index that ends where `before` met its first damage. */
static void begin_there(NrdScan *s, const NrdScanResult *before)
{
    const NrdScanPlace *place = &before->damage;

    g_array_append_vals(s->index->entries, before->index->entries->data, place->n_entries);
    s->index->end = place->end;
    s->seen_zstd = place->seen_zstd;
    s->seen_frame = place->seen_frame;
}

static void judge_tail(NrdScan *s, uint64_t lost_bytes, NrdScanTail *tail)
{
    tail->torn = true;
    tail->misnamed = s->foreign_first && s->index->end.pos == 0;
    tail->only_zeros = s->zero_pos <= s->index->end.pos;
    tail->max_n_lost = MAX(s->max_n_lost, nrd_scan_explainable(lost_bytes, s->seen_zstd));
}

int nrd_scan_walk(const NrdScanWant *want, const NrdScanWatch *watch, const NrdScanResult *before,
                  NrdScanResult *ret_result)
{
    NrdScan s = { .want = want, .watch = watch, .index = nrd_index_new(want->base), .zero_pos = UINT64_MAX };
    NrdScanTail tail = { .torn = false };
    bool done = false;
    int r = 0;

    s.holes = want->size_bytes > NRD_SCAN_READ_ALL_BYTES;
    s.crc_budget = MIN(want->size_bytes, (UINT64_MAX - NRD_MIB) / BUDGET_FACTOR) * BUDGET_FACTOR + NRD_MIB;
    s.chunk_bytes = (size_t)CLAMP(want->size_bytes, NRD_FRAME_HEADER_BYTES, CHUNK_BYTES);
    if (before != NULL)
        begin_there(&s, before);
    while (r == 0 && !done && s.index->end.pos < want->size_bytes && s.index->end.offset < want->end_offset)
        r = step(&s, &done);
    uint64_t lost_bytes = want->size_bytes - s.index->end.pos;
    if (r == 0 && want->end_offset != UINT64_MAX && s.index->end.offset < want->end_offset)
        lose(&s, want->size_bytes, want->end_offset, done ? s.reader.fault : NRD_FRAME_CUT);
    else if (r == 0 && done)
        judge_tail(&s, lost_bytes, &tail);
    nrd_frame_reader_clear(&s.reader);
    nrd_buffer_release(&s.chunk);
    nrd_buffer_release(&s.crc_chunk);
    if (r < 0) {
        nrd_index_free(s.index);
        return r;
    }
    *ret_result = (NrdScanResult){ s.index, tail, s.damaged, s.damage };
    return 0;
}
