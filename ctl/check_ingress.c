/* The ingress WAL and its checkpoint. */
#include "ctl/check.h"
#include "engine/base/diag.h"
#include "engine/ingress/checkpoint.h"
#include "engine/ingress/wal_scan.h"
#include "engine/ingress/wal_segment.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define CHECKPOINT_MAX_BYTES ((size_t)(16 * NRD_MIB)) /* above what the longest one takes */

typedef struct Walk {
    NrdCheck *check;
    const NrdWalSegment *segment;
    uint64_t void_from; /* sequences from here on do not count; UINT64_MAX: it is the last segment */
    const NrdCheckpoint *checkpoint;
    uint64_t n_waiting; /* records that are not committed to a partition yet */
    uint64_t n_orphans; /* ... of topics that are gone */
} Walk;

static const char checkpoint_path[] = NRD_WAL_DIR "/checkpoint";

/* Whether it is damaged; told when it is known what it would speak of. */
static bool read_checkpoint(NrdCheck *check, NrdCheckpoint *checkpoint)
{
    g_autoptr(GBytes) bytes = NULL;
    gsize size;
    int rc = nrd_io_read_file(check->root_fd, checkpoint_path, CHECKPOINT_MAX_BYTES, &bytes);
    if (rc == -ENOENT)
        return false;
    if (rc < 0 && rc != -EFBIG) {
        nrd_check_unreadable(check, checkpoint_path, NRD_OUT_INGRESS, rc);
        return false;
    }
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    return !data || nrd_checkpoint_decode(data, size, checkpoint) < 0;
}

static void tell_checkpoint(NrdCheck *check)
{
    if (check->n_wal_entries > 0)
        nrd_check_error(check, checkpoint_path, "checkpoint",
                        "damaged: what stands in the ingress WAL is committed again, records may come twice");
    else
        nrd_check_note(
            check, checkpoint_path, "checkpoint",
            "damaged, which costs nothing: no entry stands in the ingress WAL; the next stop writes it anew");
}

static void count_entry(Walk *walk, const NrdEntryView *view)
{
    g_autofree char *topic = g_strndup((const char *)view->topic, view->head.topic_size);
    const NrdTopicRecord *record = g_hash_table_lookup(walk->check->records, topic);
    bool gone = !walk->check->record_damaged && (!record || strcmp(record->id, view->head.id) != 0);
    walk->check->n_wal_entries++;
    if (view->head.sequence >= walk->void_from)
        return;
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        NrdEntryPart part;
        const NrdCheckpointPart *known;
        nrd_entry_part(view, i, &part);
        if (!nrd_checkpoint_outstanding(walk->checkpoint, view->head.sequence, part.partition, &known))
            continue;
        walk->n_waiting += part.n_records;
        walk->n_orphans += gone ? part.n_records : 0;
    }
}

/* Bytes at the end of the last segment, or such as no later sequence of this segment counts anyway, are what a round
 * that was never answered left. */
static void tell_damage(Walk *walk, const NrdWalScan *scan, const NrdWalPiece *piece)
{
    bool unanswered = piece->end == scan->size && (walk->void_from == UINT64_MAX || walk->void_from <= scan->least);
    NrdSpot spot = { .path = walk->segment->path,
                     .kind = unanswered ? "tail" : "ingress",
                     .has_range = true,
                     .pos = piece->pos,
                     .end_pos = piece->end };
    if (piece->is_zeros)
        nrd_check_tell(walk->check, NRD_NOTE, &spot, "zeros: no entry stands there, or its room was given back");
    else if (unanswered)
        nrd_check_tell(walk->check, NRD_NOTE, &spot, "torn tail: nobody was promised it");
    else
        nrd_check_tell(walk->check, NRD_ERROR, &spot,
                       "damaged entries: what of them was not committed to a partition yet is lost");
}

static void walk_bytes(Walk *walk, const uint8_t *bytes, size_t size)
{
    NrdWalScan scan = { .bytes = bytes, .size = size, .salt = walk->segment->salt, .least = walk->segment->first };
    NrdWalPiece piece;
    while (nrd_check_going(walk->check) && nrd_wal_scan_next(&scan, &piece)) {
        if (piece.is_entry)
            count_entry(walk, &piece.view);
        else
            tell_damage(walk, &scan, &piece);
        nrd_progress_read(&walk->check->progress, piece.end - piece.pos);
    }
}

static int open_segment(const NrdCheck *check, const char *path, int *ret_fd, uint64_t *ret_size)
{
    struct stat st;
    int fd = nrd_io->open(check->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    int rc = nrd_io->fstat(fd, &st);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = -EINVAL;
    if (rc < 0) {
        nrd_io_close(&fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

/* The segment is mapped: it may be long, and memory is the page cache's to give. */
static void check_segment(Walk *walk)
{
    const void *bytes = NULL;
    uint64_t size = 0;
    int fd = -1;
    int rc = open_segment(walk->check, walk->segment->path, &fd, &size);
    if (rc == 0 && size > 0)
        rc = nrd_io_map(fd, (size_t)size, &bytes);
    nrd_io_close(&fd);
    if (rc < 0) {
        nrd_check_unreadable(walk->check, walk->segment->path, NRD_OUT_INGRESS, rc);
        return;
    }
    nrd_progress_begin(&walk->check->progress, size);
    walk_bytes(walk, bytes, (size_t)size);
    nrd_progress_end(&walk->check->progress);
    if (size > 0)
        nrd_io_unmap(bytes, (size_t)size);
}

static void check_segments(NrdCheck *check, GPtrArray *segments)
{
    NrdCheckpoint checkpoint;
    Walk walk = { .check = check, .checkpoint = &checkpoint };
    nrd_checkpoint_init(&checkpoint);
    bool damaged = read_checkpoint(check, &checkpoint);
    g_ptr_array_sort(segments, nrd_wal_segment_compare);
    for (guint i = 0; i < segments->len && nrd_check_going(check); i++) {
        walk.segment = segments->pdata[i];
        walk.void_from = i + 1 < segments->len ? ((NrdWalSegment *)segments->pdata[i + 1])->first : UINT64_MAX;
        check_segment(&walk);
    }
    nrd_checkpoint_clear(&checkpoint);
    if (damaged)
        tell_checkpoint(check);
    if (walk.n_waiting > 0)
        nrd_check_note(check, NRD_WAL_DIR, "ingress",
                       "%" PRIu64 " record%s still to be committed to the partitions (%" PRIu64
                       " of topics that are gone); a start goes on with it",
                       walk.n_waiting, nrd_plural(walk.n_waiting), walk.n_orphans);
}

static void unref_segment(gpointer segment)
{
    nrd_wal_segment_unref(segment);
}

void nrd_check_ingress(NrdCheck *check)
{
    g_autoptr(GPtrArray) segments = g_ptr_array_new_with_free_func(unref_segment);
    g_autoptr(GPtrArray) names = nrd_check_list(check, NRD_WAL_DIR,
                                                "missing; the next start makes it; what topics had acknowledged and "
                                                "not committed to a partition went with it, as "
                                                "with a copy that was made of a running daemon's files");
    if (!names)
        return;
    for (guint i = 0; i < names->len; i++) {
        const char *name = names->pdata[i];
        uint64_t first, salt;
        uint32_t number;
        if (nrd_wal_segment_parse_name(name, &first, &number, &salt)) {
            g_ptr_array_add(segments, nrd_wal_segment_new(first, number, salt));
        } else if (g_str_has_suffix(name, ".damaged")) {
            g_autofree char *path = g_strconcat(NRD_WAL_DIR "/", name, NULL);
            nrd_check_note(check, path, "quarantined", "a damaged segment that a daemon set aside; nothing reads it");
        } else if (strcmp(name, "checkpoint") != 0) {
            nrd_check_stray(check, NRD_WAL_DIR, name);
        }
    }
    check_segments(check, segments);
}
