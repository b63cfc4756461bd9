/* See scan.h: the way past damage. */
#include "engine/log/index/scan_private.h"

#include "engine/base/crc32c.h"
#include "engine/base/zeros.h"
#include "engine/io/io.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/record.h"

#include <string.h>

#define CANDIDATE_COST ((uint64_t)1024)
/* A lost compressed frame takes this much at least, and holds at most so many records. */
#define ZSTD_FRAME_MIN_BYTES (NRD_FRAME_HEADER_BYTES + 9)
#define FRAME_MAX_RECORDS (NRD_FRAME_MAX_BYTES / NRD_RECORD_MIN_BYTES)

/* A header as it stands in the file, plausible or not. */
typedef struct Seen {
    uint8_t bytes[NRD_FRAME_HEADER_BYTES];
    size_t size; /* less than a header at the end of the file */
    bool plausible;
    NrdFrameHeader header; /* when size is whole */
} Seen;

static int see(const NrdScan *s, uint64_t pos, Seen *ret_seen)
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
static int trim_zeros(NrdScan *s, uint64_t from, uint64_t end, uint64_t *ret_end)
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
static int find_zeros_behind_holes(NrdScan *s, uint64_t *ret_pos)
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
static int find_zeros(NrdScan *s)
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
static int check_crc(NrdScan *s, uint64_t pos, const Seen *seen, bool *ret_ok)
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

uint64_t nrd_scan_explainable(uint64_t lost_bytes, bool zstd)
{
    if (zstd)
        return (lost_bytes / ZSTD_FRAME_MIN_BYTES + 1) * FRAME_MAX_RECORDS;
    return (lost_bytes + NRD_RECORD_MIN_BYTES - 1) / NRD_RECORD_MIN_BYTES;
}

/* Whether compressed frames may be among the lost bytes: one was seen before, or none was seen at all and this is one. */
static bool zstd_possible(const NrdScan *s, const Seen *candidate)
{
    return s->seen_zstd || (!s->seen_frame && candidate != NULL && candidate->header.flags == 1);
}

/* Whether a valid frame stands at pos whose offset is in [low, high]. */
static int valid_at(NrdScan *s, uint64_t pos, uint64_t low, uint64_t high, Seen *ret_seen, bool *ret_ok)
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
static int chains(NrdScan *s, uint64_t pos, uint64_t offset, bool *ret_ok)
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
static int try_candidate(NrdScan *s, uint64_t pos, const uint8_t *bytes, uint64_t lost_pos, uint64_t low,
                         NrdResync *resync)
{
    Seen seen = { .size = NRD_FRAME_HEADER_BYTES, .plausible = true };
    bool ok = false;

    memcpy(seen.bytes, bytes, sizeof seen.bytes);
    nrd_frame_decode(seen.bytes, &seen.header);
    uint64_t high = s->index->end.offset + nrd_scan_explainable(pos - lost_pos, zstd_possible(s, &seen));
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
        *resync = (NrdResync){ .found = true, .pos = pos, .offset = seen.header.offset };
    return 0;
}

/* Searches byte by byte from `from` for a frame that may be believed. */
static int search(NrdScan *s, uint64_t from, uint64_t lost_pos, uint64_t low, NrdResync *resync)
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
static int look_behind(NrdScan *s, uint64_t end, uint64_t lost_pos, uint64_t low, uint64_t after, NrdResync *resync,
                       bool *ret_next)
{
    Seen next;
    bool ok = false;
    uint64_t high = MAX(after, s->index->end.offset + nrd_scan_explainable(end - lost_pos, s->seen_zstd));

    *ret_next = false;
    int r = valid_at(s, end, low, high, &next, &ok);
    if (r < 0)
        return r;
    if (ok)
        *resync = (NrdResync){ .found = true, .pos = end, .offset = next.header.offset };
    else
        *ret_next = after > 0 && next.size == NRD_FRAME_HEADER_BYTES && next.header.offset == after &&
                    (next.plausible || tells_extent(&next, after));
    return 0;
}

/* The header is damaged where it matters: each of its two lengths may still be the true one. */
static int try_both_lengths(NrdScan *s, const Seen *seen, uint64_t lost_pos, Follow *f, NrdResync *resync)
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
static int follow_extents(NrdScan *s, uint64_t lost_pos, Follow *f, NrdResync *resync)
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

int nrd_scan_resync(NrdScan *s, NrdResync *ret_resync)
{
    uint64_t lost_pos = s->index->end.pos;
    NrdResync resync = { .found = false };
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
