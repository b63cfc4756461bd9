/* See walk.h. */
#include "engine/log/reading/walk.h"

#include <errno.h>

#define AHEAD_MAX_BYTES ((uint64_t)64 * 1024)
#define MAX_ATTEMPTS 4

/* One attempt. */
typedef struct Attempt {
    const NrdWalk *walk;
    NrdFrameReader *reader;
    int fd;           /* pinned */
    uint64_t version; /* of the index that was asked last */
    uint64_t next;    /* offset to go on with */
    bool found;
} Attempt;

/* Visits the frames from place on up to its limit. */
static int walk_place(Attempt *a, const NrdIndexPlace *place, uint64_t end_offset)
{
    uint64_t text_pos = place->text_pos;
    NrdFrameWant want = { .fd = a->fd,
                          .pos = place->pos,
                          .limit_pos = place->end_pos,
                          .offset = place->offset,
                          .end_offset = end_offset,
                          .ahead_bytes = (size_t)MIN(place->limit_pos - place->pos, AHEAD_MAX_BYTES) };

    while (!a->found && want.pos < place->limit_pos) {
        int r = nrd_frame_reader_load(a->reader, &want);
        if (r < 0)
            return r;
        a->found = a->walk->visit(a->reader, text_pos, a->walk->data);
        text_pos += a->reader->summary.text_bytes;
        want.pos = a->reader->end_pos;
        want.offset += a->reader->header.n_records;
    }
    if (!a->found && want.offset <= a->next)
        return -EBADMSG; /* the index promised it before limit_pos */
    a->next = want.offset;
    return 0;
}

static int find_first(Attempt *a, NrdIndexPlace *ret_place, bool *ret_there)
{
    const NrdWalk *walk = a->walk;

    if (!walk->by_time) {
        a->next = walk->offset;
        *ret_there = false; /* the loop asks */
        return 0;
    }
    int r = nrd_segment_find_time(walk->segment, walk->time_ms, ret_place, &a->version, ret_there);
    if (r < 0)
        return r;
    a->next = *ret_there ? ret_place->offset : UINT64_MAX;
    return 0;
}

/* From place to place, over the gaps between them. */
static int walk_on(Attempt *a)
{
    NrdIndexPlace place = { 0 };
    bool there = false;
    uint64_t end_offset = nrd_segment_end(a->walk->segment).offset;
    int r = find_first(a, &place, &there);

    while (r == 0 && !a->found && a->next < end_offset) {
        if (!there)
            r = nrd_segment_find_offset(a->walk->segment, a->next, &place, &a->version);
        there = false;
        if (r == 0 && place.is_gap)
            a->next = MAX(place.gap.end_offset, a->next + 1);
        else if (r == 0)
            r = walk_place(a, &place, end_offset);
    }
    return r;
}

/* *ret_again: damage was met, or mended in the index. */
static int attempt(const NrdWalk *walk, NrdFrameReader *reader, bool reread, bool *ret_found, bool *ret_again)
{
    Attempt a = { .walk = walk, .reader = reader };

    *ret_again = false;
    int r = nrd_segment_pin(walk->segment, &a.fd);
    if (r < 0)
        return r;
    r = walk_on(&a);
    if (r == -EBADMSG) {
        nrd_frame_reader_forget(reader);
        r = reread ? nrd_segment_repair(walk->segment, a.version) : 0;
        *ret_again = r == 0;
    }
    nrd_segment_report_read(walk->segment, r);
    nrd_segment_unpin(walk->segment);
    if (r == 0)
        *ret_found = a.found;
    return r;
}

int nrd_walk(const NrdWalk *walk, bool *ret_found)
{
    NrdFrameReader own = { 0 };
    NrdFrameReader *reader = walk->reader != NULL ? walk->reader : &own;
    bool again = true;
    int r = 0;

    for (int i = 0; r == 0 && again && i < MAX_ATTEMPTS; i++)
        r = attempt(walk, reader, i > 0, ret_found, &again);
    nrd_frame_reader_clear(&own);
    if (r == 0 && again)
        return -EIO; /* the scan finds nothing wrong, and yet reading goes wrong: the disk is failing */
    return r == 0 || r == -ENOMEM ? r : -EIO;
}
