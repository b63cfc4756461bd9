/* See frame_run.h. */
#include "engine/log/reading/frame_run.h"

#include "engine/log/reading/walk.h"

#define AHEAD_BYTES ((size_t)256 * 1024)

void nrd_frame_run_clear(NrdFrameRun *run)
{
    nrd_frame_reader_clear(&run->reader);
    nrd_segment_unref(run->segment);
    run->segment = NULL;
    run->loaded = false;
}

static void begin_frame(NrdFrameRun *run)
{
    run->loaded = true;
    run->offset = run->reader.header.offset;
    run->record_pos = 0;
}

static void enter(NrdFrameRun *run, NrdSegment *segment)
{
    uint64_t version = nrd_segment_version(segment);

    if (run->segment == segment && run->version == version)
        return;
    nrd_frame_reader_forget(&run->reader);
    run->loaded = false;
    nrd_segment_ref(segment);
    nrd_segment_unref(run->segment);
    run->segment = segment;
    run->version = version;
}

static uint64_t frame_end(const NrdFrameRun *run)
{
    return run->reader.header.offset + run->reader.header.n_records;
}

/* The frame behind the loaded one; false: a walk has to tell what is there. */
static bool load_next(NrdFrameRun *run)
{
    NrdIndexEnd end = nrd_segment_end(run->segment);
    NrdFrameWant want = { .pos = run->reader.end_pos,
                          .limit_pos = end.pos,
                          .offset = frame_end(run),
                          .end_offset = end.offset,
                          .ahead_bytes = AHEAD_BYTES };

    run->loaded = false;
    if (want.offset >= end.offset || nrd_segment_pin(run->segment, &want.fd) < 0)
        return false;
    int r = nrd_frame_reader_load(&run->reader, &want);
    nrd_segment_unpin(run->segment);
    if (r < 0)
        return false;
    begin_frame(run);
    return true;
}

static bool reaches(const NrdFrameReader *reader, uint64_t text_pos, void *data)
{
    const uint64_t *offset = data;
    return reader->header.offset + reader->header.n_records > *offset;
}

/* Loads the frame that holds offset, or the first one behind it. */
static int walk_to(NrdFrameRun *run, uint64_t offset, bool *ret_found)
{
    NrdWalk walk = {
        .segment = run->segment, .offset = offset, .visit = reaches, .data = &offset, .reader = &run->reader
    };
    bool found = false;

    run->loaded = false;
    int r = nrd_walk(&walk, &found);
    if (r < 0)
        return r;
    if (found)
        begin_frame(run);
    *ret_found = found;
    return 0;
}

/* The frame for offset. */
static int load(NrdFrameRun *run, uint64_t offset, bool *ret_found)
{
    if (run->loaded && offset >= run->offset && offset < frame_end(run)) {
        *ret_found = true;
        return 0;
    }
    if (run->loaded && offset == frame_end(run) && load_next(run)) {
        *ret_found = true;
        return 0;
    }
    return walk_to(run, offset, ret_found);
}

int nrd_frame_run_read(NrdFrameRun *run, NrdSegment *segment, uint64_t offset, uint64_t limit_offset,
                       NrdRecordView *ret_view, bool *ret_found)
{
    bool found = false;
    NrdRecordView view;

    enter(run, segment);
    int r = load(run, offset, &found);
    if (r < 0)
        return r;
    uint64_t wanted = found ? MAX(offset, run->offset) : limit_offset;
    if (wanted >= limit_offset) {
        *ret_found = false;
        return 0;
    }
    while (run->offset <= wanted) {
        nrd_frame_reader_next_record(&run->reader, &run->record_pos, &view);
        run->offset++;
    }
    view.offset = wanted;
    *ret_view = view;
    *ret_found = true;
    return 0;
}
