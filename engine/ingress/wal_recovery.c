/* What an open finds in the WAL's folder.
 *
 *   found                                        done
 *   entries                                      handed on, unless a later segment's name makes them void
 *   zeros up to an entry or the end               passed over: the room of entries that are done with was given back
 *   bytes that do not check out, entries behind  passed over, told, counted; a search for the next entry believes only a
 *                                                header with the mark of exactly that place
 *   bytes that do not check out at the end       the end: a crash in the middle of a round, or a round that failed
 *   an empty file                                nothing; removed by the next sweep
 *   a file of another name                       left alone
 *   a segment that cannot be read                the open fails, and changes nothing
 *
 * Nothing is written, so every open finds the same. */
#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/ingress/wal_private.h"
#include "engine/ingress/wal_scan.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define MAX_LOOKS 5
#define SEGMENT_MAX_BYTES (1 * NRD_GIB) /* far above what a round can make of a segment */

static int complain(const char *path, int error, const char *what)
{
    nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE,
             "cannot read the ingress WAL, %s: %s; topics cannot be produced to as a whole", path,
             what ? what : g_strerror(-error));
    return error;
}

/* ---- listing ---- */

static int list_segments(NrdWal *wal)
{
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_io_list_dir(wal->options.root_fd, NRD_WAL_DIR, &names);
    if (rc < 0)
        return complain(NRD_WAL_DIR, rc, NULL);
    for (guint i = 0; i < names->len; i++) {
        uint64_t first, salt;
        uint32_t number;
        if (!nrd_wal_segment_parse_name(names->pdata[i], &first, &number, &salt))
            continue;
        g_ptr_array_add(wal->segments, nrd_wal_segment_new(first, number, salt));
        wal->next_number = MAX(wal->next_number, number == UINT32_MAX ? 1 : number + 1);
        wal->next_sequence = MAX(wal->next_sequence, first);
    }
    g_ptr_array_sort(wal->segments, nrd_wal_segment_compare);
    return 0;
}

/* ---- reading one ---- */

/* A process that died may have left pages that are not on the disk, and a sync that failed pages that never will be,
 * both right in the cache. What is handed on is committed to partitions, so nothing is lost by believing them; but what
 * one open found the next should find too, so the disk is asked. A sync that fails here changes nothing of that. */
static int look_at_disk(int fd, const char *path)
{
    int rc = nrd_io->fdatasync(fd);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "%s could not be synced: %s; what the disk has of it counts", path,
                 g_strerror(-rc));
    return nrd_io->drop_cache(fd);
}

static int read_bytes(int fd, const char *path, uint8_t **ret_bytes, size_t *ret_size)
{
    struct stat st;
    size_t size = 0;
    int rc = nrd_io->fstat(fd, &st);
    if (rc == 0 && !S_ISREG(st.st_mode))
        return complain(path, -EIO, "it is not a regular file");
    if (rc == 0 && (uint64_t)st.st_size > SEGMENT_MAX_BYTES)
        return complain(path, -EFBIG, NULL);
    if (rc == 0)
        rc = look_at_disk(fd, path);
    if (rc < 0)
        return complain(path, rc, NULL);
    uint8_t *bytes = g_try_malloc((size_t)st.st_size + 1);
    if (!bytes)
        return complain(path, -ENOMEM, NULL);
    rc = nrd_io_pread_full(fd, bytes, (size_t)st.st_size, 0, &size);
    if (rc < 0) {
        g_free(bytes);
        return complain(path, rc, NULL);
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

static int read_once(NrdWal *wal, const NrdWalSegment *segment, uint8_t **ret_bytes, size_t *ret_size)
{
    /* O_NONBLOCK: a FIFO in its place must not hold us up. */
    int fd = nrd_io->open(wal->options.root_fd, segment->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return complain(segment->path, fd, NULL);
    int rc = read_bytes(fd, segment->path, ret_bytes, ret_size);
    nrd_io_close(&fd);
    return rc;
}

static bool is_damaged(const NrdWalSegment *segment, const uint8_t *bytes, size_t size)
{
    NrdWalScan scan = { .bytes = bytes, .size = size, .salt = segment->salt, .least = segment->first };
    NrdWalPiece piece;
    while (nrd_wal_scan_next(&scan, &piece)) {
        if (!piece.is_entry && !piece.is_zeros)
            return true;
    }
    return false;
}

/* A read may be wrong while the disk is well, and what is passed over here is removed in the end. So damage counts when two
 * reads in a row, both past the page cache, give the same bytes; bytes without damage are right, since checksums vouch for
 * them. (A whole entry that is read as zeros would pass: it takes a read that gives zeros for bytes from end to end.) */
static int read_segment(NrdWal *wal, const NrdWalSegment *segment, uint8_t **ret_bytes, size_t *ret_size)
{
    uint32_t crc = 0;
    for (int i = 0; i < MAX_LOOKS; i++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        int rc = read_once(wal, segment, &bytes, &size);
        if (rc < 0)
            return rc;
        uint32_t before = crc;
        crc = nrd_crc32c((uint32_t)size, bytes, size);
        if ((i > 0 && crc == before) || !is_damaged(segment, bytes, size)) {
            *ret_bytes = bytes;
            *ret_size = size;
            return 0;
        }
        g_free(bytes);
    }
    return complain(segment->path, -EIO, "it reads differently each time");
}

/* ---- walking through it ---- */

typedef struct Walk {
    NrdWal *wal;
    NrdWalSegment *segment;
    bool last;
    uint64_t void_from; /* the next segment's first; UINT64_MAX: there is none */
    const uint8_t *bytes;
    size_t size;
    NrdWalFoundFn found;
    void *found_data;
} Walk;

/* next: the sequence after that of the last entry before it. In a segment that another one follows a tail is of a round that
 * nobody was promised, too, when no sequence is missing between the two. */
static void tell_damage(Walk *w, size_t pos, size_t end, uint64_t next)
{
    bool tail = end == w->size;
    bool torn = tail && (w->last || next >= w->void_from);
    nrd_counter_add(torn ? NRD_COUNTER_TORN_TAILS : NRD_COUNTER_INGRESS_DAMAGED, 1);
    if (torn) {
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "torn tail of %zu byte%s in %s passed over: nobody was promised it",
                 end - pos, nrd_plural(end - pos), w->segment->path);
        return;
    }
    w->segment->damaged = true;
    nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "damage of %zu byte%s at %zu of %s passed over%s", end - pos,
             nrd_plural(end - pos), pos, w->segment->path,
             w->last ? "; if this is from a crash, nobody was promised it" : "; records in it are lost");
}

static void hand_on(Walk *w, size_t pos, const NrdEntryView *view)
{
    NrdWal *wal = w->wal;
    wal->next_sequence = MAX(wal->next_sequence, view->head.sequence + 1);
    w->segment->size_bytes = pos + view->head.size;
    if (view->head.sequence >= w->void_from)
        return;
    uint32_t n_live = w->found(w->found_data, w->segment, pos, view);
    w->segment->n_live += n_live;
    if (n_live == 0)
        nrd_wal_segment_note_done(w->segment, pos, view->head.size);
}

static void walk(Walk *w)
{
    NrdWalScan scan = { .bytes = w->bytes, .size = w->size, .salt = w->segment->salt, .least = w->segment->first };
    NrdWalPiece piece;
    while (nrd_wal_scan_next(&scan, &piece)) {
        if (piece.is_entry)
            hand_on(w, piece.pos, &piece.view);
        else if (!piece.is_zeros)
            tell_damage(w, piece.pos, piece.end, scan.least);
    }
}

static int recover_segment(NrdWal *wal, guint index, NrdWalFoundFn found, void *found_data)
{
    NrdWalSegment *segment = wal->segments->pdata[index];
    bool last = index + 1 == wal->segments->len;
    Walk w = { .wal = wal, .segment = segment, .last = last };
    w.void_from = last ? UINT64_MAX : ((NrdWalSegment *)wal->segments->pdata[index + 1])->first;
    w.found = found;
    w.found_data = found_data;
    uint8_t *bytes = NULL;
    int rc = read_segment(wal, segment, &bytes, &w.size);
    if (rc < 0)
        return rc;
    w.bytes = bytes;
    walk(&w);
    g_free(bytes);
    return 0;
}

int nrd_wal_recover(NrdWal *wal, NrdWalFoundFn found, void *found_data)
{
    int rc = list_segments(wal);
    for (guint i = 0; rc == 0 && i < wal->segments->len; i++)
        rc = recover_segment(wal, i, found, found_data);
    /* Void entries have used their sequences too. Each file stays until a checkpoint is above all of them, since its name
     * may be what makes them void. */
    for (guint i = 0; rc == 0 && i < wal->segments->len; i++)
        ((NrdWalSegment *)wal->segments->pdata[i])->end_sequence = wal->next_sequence;
    return rc;
}
