/* See scan.h: one walk. No locks; reads through engine/io. */
#include "engine/log/index/scan_private.h"

#include "engine/base/crc32c.h"
#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/frame_reader.h"
#include "engine/log/frames/record.h"

#include <errno.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 * 1024)
/* CRCs of candidates may be computed over so many times the segment's size. */
#define BUDGET_FACTOR 4
#define CANDIDATE_COST ((uint64_t)1024)
/* A lost compressed frame takes this much at least, and holds at most so many records. */
#define ZSTD_FRAME_MIN_BYTES (NRD_FRAME_HEADER_BYTES + 9)
#define FRAME_MAX_RECORDS (NRD_FRAME_MAX_BYTES / NRD_RECORD_MIN_BYTES)

typedef struct Scan {
    const NrdScanWant *want;
    const NrdScanWatch *watch;
    NrdIndex *index;
    NrdFrameReader reader;
    NrdBuffer chunk;     /* for the search */
    NrdBuffer crc_chunk; /* for CRCs during the search */
    uint64_t zero_pos;   /* from here on all bytes are zero; UINT64_MAX: not looked yet */
    uint64_t crc_budget;
    size_t chunk_bytes; /* of both */
    bool holes;         /* are passed over: a frame begins with a byte that is not zero */
    bool seen_zstd;
    bool seen_frame;
    bool damaged; /* something was no good frame, at: */
    NrdScanPlace damage;
    bool foreign_first;  /* the first frame is whole, and another offset's */
    uint64_t max_n_lost; /* by the damage looked at last */
} Scan;

/* A header as it stands in the file, plausible or not. */
typedef struct Seen {
    uint8_t bytes[NRD_FRAME_HEADER_BYTES];
    size_t size; /* less than a header at the end of the file */
    bool plausible;
    NrdFrameHeader header; /* when size is whole */
} Seen;

/* Where the walk goes on after damage. */
typedef struct Resync {
    bool found;
    uint64_t pos;
    uint64_t offset;
} Resync;

static int see(const Scan *s, uint64_t pos, Seen *ret_seen)
{
    Seen seen = { .size = 0 };
    uint64_t left = pos < s->want->size_bytes ? s->want->size_bytes - pos : 0;
    int r = nrd_io_pread_full(s->want->fd, seen.bytes, (size_t)MIN((uint64_t)sizeof seen.bytes, left), (int64_t)pos,
                              &seen.size);
    if (r < 0)
        return r;
    if (seen.size == sizeof seen.bytes) {
        seen.plausible = nrd_frame_header_plausible(seen.bytes);
        nrd_frame_decode(seen.bytes, &seen.header);
    }
    *ret_seen = seen;
    return 0;
}

/* The end of what is not zero in [from, end); `from` when all of it is. The file may have become shorter: its end then. */
static int trim_zeros(Scan *s, uint64_t from, uint64_t end, uint64_t *ret_end)
{
    int r = nrd_buffer_reserve(&s->chunk, s->chunk_bytes, 0);
    bool zeros = true;

    while (r == 0 && zeros && end > from) {
        size_t n = (size_t)MIN((uint64_t)s->chunk_bytes, end - from);
        size_t got = 0;
        r = nrd_io_pread_full(s->want->fd, s->chunk.data, n, (int64_t)(end - n), &got);
        if (r < 0)
            return r;
        size_t n_kept = got == n ? nrd_size_without_zeros(s->chunk.data, n) : n;
        end -= n - n_kept;
        zeros = n_kept == 0;
    }
    if (r == 0)
        *ret_end = end;
    return r;
}

/* Where the zeros at the end of a file with holes begin: run by run. */
static int find_zeros_behind_holes(Scan *s, uint64_t *ret_pos)
{
    uint64_t size = s->want->size_bytes, found = 0, pos = 0;

    while (pos < size) {
        uint64_t end, last = 0;
        int r = nrd_io_next_data(s->want->fd, pos, size, &pos, &end);
        if (r == 0)
            r = trim_zeros(s, pos, end, &last);
        if (r < 0)
            return r;
        if (last > pos)
            found = last;
        pos = end;
    }
    *ret_pos = found;
    return 0;
}

/* Finds, once, where the zeros at the end of the file begin. */
static int find_zeros(Scan *s)
{
    if (s->zero_pos != UINT64_MAX)
        return 0;
    uint64_t pos = 0;
    int r = s->holes ? find_zeros_behind_holes(s, &pos) : trim_zeros(s, 0, s->want->size_bytes, &pos);
    if (r == 0)
        s->zero_pos = pos;
    return r;
}

/* Whether the CRC of the frame at pos matches; *ret_ok false too when the budget is spent. */
static int check_crc(Scan *s, uint64_t pos, const Seen *seen, bool *ret_ok)
{
    uint64_t left = seen->header.stored_bytes;
    uint64_t at = pos + NRD_FRAME_HEADER_BYTES;
    uint32_t crc = nrd_frame_crc_start(seen->bytes);

    *ret_ok = false;
    if (at + left > s->want->size_bytes)
        return 0;
    if (left > s->crc_budget) {
        s->crc_budget = 0;
        return 0;
    }
    s->crc_budget -= left;
    int r = nrd_buffer_reserve(&s->crc_chunk, s->chunk_bytes, 0);
    while (r == 0 && left > 0) {
        size_t n = 0;
        r = nrd_io_pread_full(s->want->fd, s->crc_chunk.data, (size_t)MIN((uint64_t)s->chunk_bytes, left), (int64_t)at,
                              &n);
        if (r == 0 && n == 0)
            return 0; /* the file became shorter */
        if (r == 0)
            crc = nrd_crc32c(crc, s->crc_chunk.data, n);
        at += n;
        left -= n;
    }
    if (r < 0)
        return r;
    *ret_ok = crc == seen->header.crc;
    return 0;
}

/* The most records that lost_bytes bytes can have held: one in 14 bytes, unless compressed frames may be among them. */
static uint64_t explainable(uint64_t lost_bytes, bool zstd)
{
    if (zstd)
        return (lost_bytes / ZSTD_FRAME_MIN_BYTES + 1) * FRAME_MAX_RECORDS;
    return (lost_bytes + NRD_RECORD_MIN_BYTES - 1) / NRD_RECORD_MIN_BYTES;
}

/* Whether compressed frames may be among the lost bytes: one was seen before, or none was seen at all and this is one. */
static bool zstd_possible(const Scan *s, const Seen *candidate)
{
    return s->seen_zstd || (!s->seen_frame && candidate != NULL && candidate->header.flags == 1);
}

/* Whether a valid frame stands at pos whose offset is in [low, high]. */
static int valid_at(Scan *s, uint64_t pos, uint64_t low, uint64_t high, Seen *ret_seen, bool *ret_ok)
{
    *ret_ok = false;
    int r = see(s, pos, ret_seen);
    if (r < 0)
        return r;
    if (!ret_seen->plausible || ret_seen->header.offset < low || ret_seen->header.offset > high)
        return 0;
    return check_crc(s, pos, ret_seen, ret_ok);
}

/* Whether a frame that ends at pos, the next offset being `offset`, is followed by what may follow a frame. */
static int chains(Scan *s, uint64_t pos, uint64_t offset, bool *ret_ok)
{
    Seen next;

    if (pos >= s->zero_pos || pos == s->want->size_bytes) {
        *ret_ok = true;
        return 0;
    }
    int r = see(s, pos, &next);
    if (r < 0)
        return r;
    if (next.size == NRD_FRAME_HEADER_BYTES)
        *ret_ok = next.plausible && next.header.offset == offset;
    else /* a torn header */
        *ret_ok = next.bytes[0] == NRD_FRAME_MAGIC_0 && (next.size < 2 || next.bytes[1] == NRD_FRAME_MAGIC_1);
    return 0;
}

/* One candidate of the byte search. */
static int try_candidate(Scan *s, uint64_t pos, const uint8_t *bytes, uint64_t lost_pos, uint64_t low, Resync *resync)
{
    Seen seen = { .size = NRD_FRAME_HEADER_BYTES, .plausible = true };
    bool ok = false;

    memcpy(seen.bytes, bytes, sizeof seen.bytes);
    nrd_frame_decode(seen.bytes, &seen.header);
    uint64_t high = s->index->end.offset + explainable(pos - lost_pos, zstd_possible(s, &seen));
    uint64_t end = pos + NRD_FRAME_HEADER_BYTES + seen.header.stored_bytes;
    if (seen.header.offset < low || seen.header.offset > high || end > s->want->size_bytes)
        return 0;
    s->crc_budget -= MIN(s->crc_budget, CANDIDATE_COST); /* looking costs too: a flood of them ends the search */
    int r = chains(s, end, seen.header.offset + seen.header.n_records, &ok);
    if (r == 0 && ok)
        r = check_crc(s, pos, &seen, &ok);
    if (r < 0)
        return r;
    if (ok)
        *resync = (Resync){ .found = true, .pos = pos, .offset = seen.header.offset };
    return 0;
}

/* Searches byte by byte from `from` for a frame that may be believed. */
static int search(Scan *s, uint64_t from, uint64_t lost_pos, uint64_t low, Resync *resync)
{
    int r = nrd_buffer_reserve(&s->chunk, s->chunk_bytes, 0);

    while (r == 0 && from < s->zero_pos && !resync->found && s->crc_budget > 0) {
        size_t n = 0;
        uint64_t end;
        if (s->holes)
            r = nrd_io_next_data(s->want->fd, from, s->want->size_bytes, &from, &end);
        if (r < 0)
            return r;
        r = nrd_io_pread_full(s->want->fd, s->chunk.data,
                              (size_t)MIN((uint64_t)s->chunk_bytes, s->want->size_bytes - from), (int64_t)from, &n);
        if (r < 0 || n < NRD_FRAME_HEADER_BYTES)
            return r;
        size_t last = n - NRD_FRAME_HEADER_BYTES; /* the last place with a whole header */
        size_t at = nrd_frame_find_header(s->chunk.data, n, 0);
        while (r == 0 && at <= last && !resync->found && s->crc_budget > 0) {
            r = try_candidate(s, from + at, s->chunk.data + at, lost_pos, low, resync);
            at = nrd_frame_find_header(s->chunk.data, n, at + 1);
        }
        from += last + 1;
    }
    return r;
}

/* The way along damaged frames whose extents their own headers vouch for. */
typedef struct Follow {
    uint64_t pos;    /* the damaged frame that is looked at */
    uint64_t offset; /* it should begin with */
    uint64_t from;   /* search from here, if it comes to that */
    uint64_t low;    /* and for this offset at least */
    bool at_end;     /* nothing can follow */
} Follow;

/* A header that begins with the expected offset and, for codec none, tells its length twice. A damaged magic, flag,
 * count or CRC does not matter for that. */
static bool tells_extent(const Seen *seen, uint64_t offset)
{
    const NrdFrameHeader *h = &seen->header;
    return seen->size == NRD_FRAME_HEADER_BYTES && h->offset == offset && h->raw_bytes == h->stored_bytes &&
           h->stored_bytes >= NRD_RECORD_MIN_BYTES && h->stored_bytes <= NRD_FRAME_MAX_BYTES;
}

static uint64_t sane_count(const Seen *seen)
{
    const NrdFrameHeader *h = &seen->header;
    return (uint64_t)h->n_records * NRD_RECORD_MIN_BYTES <= h->raw_bytes ? h->n_records : 0;
}

/* Looks at `end`, where the frame at f->pos should end: a good frame there is the way on. *ret_next: another damaged
 * frame stands there that goes on with the right offset. */
static int look_behind(Scan *s, uint64_t end, uint64_t lost_pos, uint64_t low, uint64_t after, Resync *resync,
                       bool *ret_next)
{
    Seen next;
    bool ok = false;
    uint64_t high = MAX(after, s->index->end.offset + explainable(end - lost_pos, s->seen_zstd));

    *ret_next = false;
    int r = valid_at(s, end, low, high, &next, &ok);
    if (r < 0)
        return r;
    if (ok)
        *resync = (Resync){ .found = true, .pos = end, .offset = next.header.offset };
    else
        *ret_next = after > 0 && next.size == NRD_FRAME_HEADER_BYTES && next.header.offset == after &&
                    (next.plausible || tells_extent(&next, after));
    return 0;
}

/* The header is damaged where it matters: each of its two lengths may still be the true one. */
static int try_both_lengths(Scan *s, const Seen *seen, uint64_t lost_pos, Follow *f, Resync *resync)
{
    uint32_t lengths[2] = { seen->header.stored_bytes, seen->header.raw_bytes };
    int r = 0;

    if (seen->size < NRD_FRAME_HEADER_BYTES)
        return 0;
    for (int i = 0; i < 2 && r == 0 && !resync->found; i++) {
        bool next;
        uint64_t end = f->pos + NRD_FRAME_HEADER_BYTES + lengths[i];
        if (lengths[i] < NRD_RECORD_MIN_BYTES || lengths[i] > NRD_FRAME_MAX_BYTES || end > s->want->size_bytes)
            continue;
        bool agree = lengths[0] == lengths[1] || seen->header.offset == f->offset;
        if (agree && (end == s->want->size_bytes || end == s->zero_pos))
            f->at_end = true; /* the last frame, whose header is damaged: nothing follows */
        else
            r = look_behind(s, end, lost_pos, f->low, 0, resync, &next);
    }
    /* Everything but the offset is as it should be, the length twice: what is inside is still the frame's. */
    uint64_t end = f->pos + NRD_FRAME_HEADER_BYTES + lengths[0];
    if (seen->plausible && lengths[0] == lengths[1] && end <= s->want->size_bytes)
        f->from = end;
    return r;
}

/* Goes from extent to extent. Finds the next good frame, or the end, or leaves in *f where to search from. */
static int follow_extents(Scan *s, uint64_t lost_pos, Follow *f, Resync *resync)
{
    for (;;) {
        Seen seen;
        bool next = false;
        int r = see(s, f->pos, &seen);
        if (r < 0)
            return r;
        bool sure = tells_extent(&seen, f->offset);
        if (!sure && !(seen.plausible && seen.header.offset == f->offset))
            return try_both_lengths(s, &seen, lost_pos, f, resync);
        uint64_t count = sane_count(&seen);
        uint64_t after = count > 0 ? f->offset + count : 0;
        uint64_t end = f->pos + NRD_FRAME_HEADER_BYTES + seen.header.stored_bytes;
        s->max_n_lost = MAX(s->max_n_lost, f->offset - s->index->end.offset + count);
        if (end > s->want->size_bytes || end >= s->zero_pos) {
            /* Torn, whatever its bytes look like; only a compressed frame's length stands there just once, so
             * when it passes the end, or goes far into the zeros behind it, it may be the length that is damaged. */
            f->at_end = sure || end <= MIN(s->want->size_bytes, s->zero_pos + NRD_FRAME_HEADER_BYTES);
            return 0;
        }
        f->low = f->offset + 1;
        r = look_behind(s, end, lost_pos, f->low, after, resync, &next);
        if (r < 0 || resync->found)
            return r;
        if (sure)
            f->from = end;
        if (!next)
            return 0;
        f->from = end;
        f->pos = end;
        f->offset = after;
    }
}

/* Finds where the walk goes on behind the damage at the index's end. */
static int resync_after(Scan *s, Resync *ret_resync)
{
    uint64_t lost_pos = s->index->end.pos;
    Resync resync = { .found = false };
    Follow f = { .pos = lost_pos, .offset = s->index->end.offset, .from = lost_pos + 1, .low = s->index->end.offset };

    s->max_n_lost = 0;
    int r = find_zeros(s);
    if (r < 0)
        return r;
    if (lost_pos < s->zero_pos) {
        if (s->reader.fault == NRD_FRAME_WRONG_OFFSET)
            f.from = f.pos = s->reader.end_pos; /* whole, and not ours: nothing inside it is either */
        else
            r = follow_extents(s, lost_pos, &f, &resync);
        if (r == 0 && !resync.found && !f.at_end)
            r = search(s, f.from, lost_pos, f.low, &resync);
    }
    if (r < 0)
        return r;
    *ret_resync = resync;
    return 0;
}

/* Adds a gap to the index and tells of it. */
static void lose(Scan *s, uint64_t end_pos, uint64_t end_offset, NrdFrameFault fault)
{
    NrdGap gap = { s->index->end.pos, end_pos, s->index->end.offset, end_offset };

    nrd_index_add_gap(s->index, end_pos, end_offset);
    if (s->watch->lost != NULL)
        s->watch->lost(s->watch->data, &gap, fault);
}

static void note_damage(Scan *s)
{
    if (!s->damaged)
        s->damage = (NrdScanPlace){ s->index->end, s->index->entries->len, s->seen_zstd, s->seen_frame };
    s->damaged = true;
}

/* Takes one step: a good frame, or a gap up to the next one. *ret_done: nothing good follows. */
static int step(Scan *s, bool *ret_done)
{
    NrdIndexEnd *end = &s->index->end;
    NrdFrameWant frame = { .fd = s->want->fd,
                           .pos = end->pos,
                           .limit_pos = s->want->size_bytes,
                           .offset = end->offset,
                           .end_offset = s->want->end_offset,
                           .ahead_bytes = CHUNK_BYTES };
    Resync resync = { .found = false };

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
        resync = (Resync){ true, s->reader.end_pos, end->offset + s->reader.header.n_records };
    else
        r = resync_after(s, &resync);
    if (r < 0)
        return r;
    *ret_done = !resync.found || resync.offset >= s->want->end_offset;
    if (!*ret_done)
        lose(s, resync.pos, resync.offset, fault);
    return 0;
}

/* An index that ends where `before` met its first damage. */
static void begin_there(Scan *s, const NrdScanResult *before)
{
    const NrdScanPlace *place = &before->damage;

    g_array_append_vals(s->index->entries, before->index->entries->data, place->n_entries);
    s->index->end = place->end;
    s->seen_zstd = place->seen_zstd;
    s->seen_frame = place->seen_frame;
}

static void judge_tail(Scan *s, uint64_t lost_bytes, NrdScanTail *tail)
{
    tail->torn = true;
    tail->misnamed = s->foreign_first && s->index->end.pos == 0;
    tail->only_zeros = s->zero_pos <= s->index->end.pos;
    tail->max_n_lost = MAX(s->max_n_lost, explainable(lost_bytes, s->seen_zstd));
}

int nrd_scan_walk(const NrdScanWant *want, const NrdScanWatch *watch, const NrdScanResult *before,
                  NrdScanResult *ret_result)
{
    Scan s = { .want = want, .watch = watch, .index = nrd_index_new(want->base), .zero_pos = UINT64_MAX };
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
