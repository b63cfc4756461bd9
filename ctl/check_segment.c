/* See check_segment.h. The walk is that of recovery (scan.h), which finds the way past damage. */
#include "ctl/check_segment.h"
#include "engine/base/diag.h"

#include "engine/io/io.h"
#include "engine/log/frames/record.h"
#include "engine/log/index/index_file.h"
#include "engine/log/index/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#define CHUNK_BYTES ((size_t)64 * 1024)

typedef struct Walk {
    NrdSegmentCheck *segment;
    NrdCheck *check;
    char *path;
    int fd;
    uint64_t n_back; /* records with a commit time before the one of the record before them */
    uint64_t back_offset;
    bool hwm_inside;   /* the high watermark lies within a frame: no commit ends there */
    uint64_t over_end; /* a frame goes on beyond the segment's end, to this offset; 0: none */
    uint64_t n_gaps;
} Walk;

static bool is_active(const Walk *walk)
{
    return walk->segment->end_offset == UINT64_MAX;
}

/* ---- frames ---- */

static void look_at_times(Walk *walk, const NrdFrameReader *frame)
{
    uint64_t offset = frame->header.offset;
    const uint8_t *envelope;
    NrdRecordView view;
    size_t pos = 0, size;
    while (nrd_frame_next_record(frame->payload, frame->payload_size, &pos, &envelope, &size)) {
        if (nrd_record_parse(envelope, size, &view) < 0)
            break; /* cannot be: the frame was checked */
        if (view.commit_ms < *walk->segment->last_ms && walk->n_back++ == 0)
            walk->back_offset = offset;
        *walk->segment->last_ms = MAX(*walk->segment->last_ms, view.commit_ms);
        offset++;
    }
}

static void on_frame(void *data, const NrdFrameReader *frame)
{
    Walk *walk = data;
    uint64_t end = frame->header.offset + frame->header.n_records;
    walk->check->n_frames++;
    walk->check->n_records += frame->header.n_records;
    if (walk->segment->hwm.clean && frame->header.offset < walk->segment->hwm.value && walk->segment->hwm.value < end)
        walk->hwm_inside = true;
    if (end > walk->segment->end_offset)
        walk->over_end = end;
    look_at_times(walk, frame);
}

static const char *fault_text(NrdFrameFault fault)
{
    switch (fault) {
    case NRD_FRAME_GOOD:
        break;
    case NRD_FRAME_CUT:
        return "a frame is cut short or missing";
    case NRD_FRAME_BAD_HEADER:
        return "no frame header where one belongs";
    case NRD_FRAME_BAD_CRC:
        return "a frame's checksum does not match";
    case NRD_FRAME_WRONG_OFFSET:
        return "a frame of another offset than the expected one";
    case NRD_FRAME_BAD_RECORDS:
        return "a frame's records cannot be decoded";
    }
    return "damaged";
}

/* The next segment begins at a later offset than this one ends: nothing but a loss leaves that. */
static void tell_missing(Walk *walk, const NrdGap *gap)
{
    NrdSpot spot = { walk->path, "missing", false, 0, 0, true, gap->offset, gap->end_offset };
    uint64_t n = gap->end_offset - gap->offset;
    nrd_check_tell(walk->check, NRD_ERROR, &spot,
                   "%" PRIu64 " record%s missing between what it holds and the next segment: a file is gone, or was "
                   "emptied or cut",
                   n, nrd_plural(n));
}

static void on_lost(void *data, const NrdGap *gap, NrdFrameFault fault)
{
    Walk *walk = data;
    const NrdHwm *hwm = &walk->segment->hwm;
    bool hidden = is_active(walk) && hwm->clean && gap->offset >= hwm->value;
    NrdSpot spot = { walk->path, "frame", true, gap->pos, gap->end_pos, true, gap->offset, gap->end_offset };
    walk->n_gaps++;
    if (hidden)
        nrd_check_tell(walk->check, NRD_NOTE, &spot, "above the high watermark: %s; nobody was promised it",
                       fault_text(fault));
    else if (gap->pos == gap->end_pos) /* no bytes stand there */
        tell_missing(walk, gap);
    else
        nrd_check_tell(walk->check, NRD_ERROR, &spot, "%s; records are lost", fault_text(fault));
}

/* ---- behind the last frame ---- */

static bool all_zero(Walk *walk, uint64_t pos, uint64_t end)
{
    g_autofree uint8_t *chunk = g_malloc(CHUNK_BYTES);
    bool holes = end > NRD_SCAN_READ_ALL_BYTES;
    while (pos < end) {
        size_t n = 0;
        uint64_t run_end;
        if (holes && nrd_io_next_data(walk->fd, pos, end, &pos, &run_end) < 0)
            return false;
        if (pos == end)
            break;
        int rc = nrd_io_pread_full(walk->fd, chunk, (size_t)MIN((uint64_t)CHUNK_BYTES, end - pos), (int64_t)pos, &n);
        if (rc < 0 || n == 0)
            return false;
        for (size_t i = 0; i < n; i++) {
            if (chunk[i] != 0)
                return false;
        }
        pos += n;
    }
    return true;
}

static void judge_sealed(Walk *walk, const NrdIndex *index)
{
    uint64_t size = walk->segment->file->size_bytes;
    NrdSpot spot = { walk->path, "stray", true, index->end.pos, size, false, 0, 0 };
    if (walk->over_end > 0)
        nrd_check_error(walk->check, walk->path, "frame",
                        "its last frame goes on to offset %" PRIu64 ", but the next segment begins at %" PRIu64,
                        walk->over_end, walk->segment->end_offset);
    /* zeros written ahead of the tail may have been left when it was sealed */
    if (index->end.pos < size && !all_zero(walk, index->end.pos, size) && nrd_check_going(walk->check))
        nrd_check_tell(walk->check, NRD_NOTE, &spot,
                       "bytes behind the last record of a sealed segment, as a failed commit or another program leaves "
                       "them: no record is missing, and nobody reads them");
}

static void judge_lost_tail(Walk *walk, const NrdIndex *index)
{
    uint64_t size = walk->segment->file->size_bytes;
    NrdSpot spot = { walk->path, "frame", index->end.pos < size, index->end.pos,
                     size,       true,    index->end.offset,     walk->segment->hwm.value };
    nrd_check_tell(walk->check, NRD_ERROR, &spot,
                   "hwm says that offsets below %" PRIu64 " were committed, but the records end at %" PRIu64
                   ": they are lost, or hwm is damaged",
                   walk->segment->hwm.value, index->end.offset);
}

static void judge_active(Walk *walk, const NrdIndex *index, const NrdScanTail *tail)
{
    const NrdHwm *hwm = &walk->segment->hwm;
    uint64_t size = walk->segment->file->size_bytes;
    NrdSpot spot = { walk->path, "tail", true, index->end.pos, size, false, 0, 0 };
    if (tail->misnamed) {
        nrd_check_error(walk->check, walk->path, "frame",
                        "it holds frames of other offsets than its name says: " NRD_OUT_PARTITION
                        "; give it its name back or move it away");
        return;
    }
    if (hwm->clean && hwm->value > index->end.offset)
        judge_lost_tail(walk, index);
    else if (tail->torn && !tail->only_zeros)
        nrd_check_tell(walk->check, NRD_NOTE, &spot, "torn tail%s; %s",
                       hwm->clean ? " above the high watermark: nobody was promised it" : ", as a crash leaves it",
                       index->gaps->len > 0 ? "it stays, for there is damage before it" : "the next start cuts it");
    if (!hwm->clean || hwm->value >= index->end.offset)
        return;
    spot = (NrdSpot){ walk->path,       "hidden", false, 0, 0, true, MAX(hwm->value, walk->segment->file->base),
                      index->end.offset };
    if (!walk->hwm_inside)
        nrd_check_tell(walk->check, NRD_NOTE, &spot, "whole records above the high watermark: hidden until a commit");
}

/* Where the partition's high watermark is to a daemon that opens this (recovery.c). */
static uint64_t boundary(const Walk *walk, const NrdIndex *index, const NrdScanTail *tail)
{
    const NrdHwm *hwm = &walk->segment->hwm;
    uint64_t end = index->end.offset;
    if (tail->misnamed)
        return UINT64_MAX; /* nobody opens it */
    if (!hwm->clean)
        return end;
    bool rotten = hwm->value > end && tail->torn && hwm->value - end <= tail->max_n_lost;
    return rotten ? hwm->value : MIN(hwm->value, end);
}

/* ---- the side index ---- */

static bool items_valid(const NrdIndexMap *map, const NrdIndex *index)
{
    NrdIndexBlock *block = g_new0(NrdIndexBlock, 1);
    NrdIndexView view = nrd_index_map_view(map, block);
    NrdIndexEntry entry, before = { 0 };
    NrdGap gap;
    bool good = map->n_gaps == index->gaps->len;
    for (uint64_t i = 0; good && i < map->n_entries; i++) {
        good =
            view.get_entry(view.data, i, &entry) == 0 &&
            (i == 0 || (entry.offset > before.offset && entry.pos > before.pos && entry.text_pos >= before.text_pos)) &&
            entry.pos < index->end.pos && entry.offset < index->end.offset;
        before = entry;
    }
    for (guint i = 0; good && i < index->gaps->len; i++) {
        const NrdGap *found = &g_array_index(index->gaps, NrdGap, i);
        good =
            view.get_gap(view.data, i, &gap) == 0 && gap.offset == found->offset && gap.end_offset == found->end_offset;
    }
    g_free(block);
    return good;
}

static void check_sealed_index(Walk *walk, const char *path, const NrdIndexFileId *id, const NrdIndex *index)
{
    NrdIndexMap *map = NULL;
    struct stat st;
    int rc = nrd_io_stat(walk->check->root_fd, path, &st);
    if (rc == -ENOENT || (rc == 0 && !S_ISREG(st.st_mode)))
        return; /* made when it is needed; or told with the names of the folder */
    if (rc == 0)
        rc = nrd_index_file_map(id, &map);
    if (rc < 0 && rc != -ENOENT)
        nrd_check_unreadable(walk->check, path, NRD_OUT_SIDE_FILE, rc);
    else if (rc == -ENOENT || map->end.text_bytes != index->end.text_bytes ||
             map->end.commit_ms != index->end.commit_ms || !items_valid(map, index))
        nrd_check_note(walk->check, path, "index",
                       "the side index does not fit its segment; it may be deleted, and is made again");
    nrd_index_map_unref(map);
}

/* The sums that a clean stop leaves beside the active segment also tell where it ended: a high watermark that says
 * something else is not the one that was written with them. */
static void check_closed_index(Walk *walk, const NrdIndexFileId *id, const NrdIndex *index)
{
    NrdIndexEnd end;
    uint64_t n_gaps;
    const NrdHwm *hwm = &walk->segment->hwm;
    g_autofree char *path = g_strconcat(walk->segment->dir, "/hwm", NULL);
    bool below = hwm->clean && hwm->value < index->end.offset;
    if (walk->hwm_inside)
        nrd_check_error(walk->check, path, "hwm",
                        "%" PRIu64 " lies within a frame, where no commit ends: it is damaged", hwm->value);
    else if (below && nrd_index_file_read_end(id, &end, &n_gaps) == 0)
        nrd_check_error(walk->check, path, "hwm",
                        "records from %" PRIu64 " up to %" PRIu64
                        " are not served, since it ends before them, and the log was closed with them: it is damaged, "
                        "and hides committed records",
                        hwm->value, index->end.offset - 1);
}

static void check_index(Walk *walk, const NrdIndex *index)
{
    g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".index", walk->segment->dir, walk->segment->file->base);
    NrdIndexFileId id = { .root_fd = walk->check->root_fd,
                          .path = path,
                          .base = walk->segment->file->base,
                          .end_offset = index->end.offset,
                          .size_bytes = walk->segment->file->size_bytes,
                          .kind = is_active(walk) ? NRD_INDEX_AT_CLOSE : NRD_INDEX_OF_SEALED };
    if (is_active(walk))
        check_closed_index(walk, &id, index);
    else
        check_sealed_index(walk, path, &id, index);
}

/* ---- the whole ---- */

static int scan(Walk *walk)
{
    NrdSegmentCheck *segment = walk->segment;
    NrdScanWatch watch = { .frame = on_frame, .lost = on_lost, .data = walk };
    NrdScanWant want = { walk->fd, segment->file->base, segment->file->size_bytes, segment->end_offset };
    NrdScanTail tail = { .torn = false };
    NrdIndex *index = NULL;
    int rc = nrd_scan_segment_watched(&want, &watch, &index, &tail);
    if (rc < 0)
        return rc;
    if (is_active(walk)) {
        segment->boundary = boundary(walk, index, &tail);
        judge_active(walk, index, &tail);
    } else {
        judge_sealed(walk, index);
    }
    if (nrd_check_going(walk->check))
        check_index(walk, index);
    nrd_index_free(index);
    return 0;
}

static void tell_times(Walk *walk)
{
    if (walk->n_back > 0)
        nrd_check_error(walk->check, walk->path, "time",
                        "%" PRIu64 " record%s older than the one before, the first at offset %" PRIu64
                        ": commit times never decrease",
                        walk->n_back, nrd_plural(walk->n_back), walk->back_offset);
}

bool nrd_check_segment(NrdSegmentCheck *segment)
{
    g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".log", segment->dir, segment->file->base);
    Walk walk = { .segment = segment, .check = segment->check, .path = path };
    segment->check->n_segments++;
    walk.fd = nrd_io->open(segment->check->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    int rc = walk.fd < 0 ? walk.fd : 0;
    if (rc == 0) {
        nrd_progress_begin(&segment->check->progress, segment->file->size_bytes);
        rc = scan(&walk);
        nrd_progress_end(&segment->check->progress);
        nrd_io_close(&walk.fd);
    }
    if (rc < 0)
        nrd_check_unreadable(segment->check, path, NRD_OUT_PARTITION, rc);
    tell_times(&walk);
    return rc == 0;
}
