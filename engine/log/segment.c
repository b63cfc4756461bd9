/* See segment.h. */
#include "engine/log/segment.h"

#include "engine/io/io.h"
#include "engine/log/hot_set.h"
#include "engine/log/index_file.h"
#include "engine/log/scan.h"
#include "engine/log/segment_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

/* So many gaps of a segment are remembered as counted; a segment with more of them counts some twice. */
#define MAX_KNOWN_GAPS 1024

NrdPlace nrd_segment_home_place(const NrdSegmentHome *home, int64_t offset)
{
    return (NrdPlace){ home->topic, home->partition, offset };
}

NrdSegment *nrd_segment_new(NrdSegmentHome *home, uint64_t base, uint64_t size_bytes)
{
    NrdSegment *segment = g_new0(NrdSegment, 1);

    segment->refs = 1;
    segment->home = home;
    segment->base = base;
    segment->fd = -1;
    segment->lru.data = segment;
    segment->size_bytes = size_bytes;
    segment->end = (NrdIndexEnd){ .offset = base };
    g_mutex_init(&segment->load_lock);
    g_mutex_init(&segment->lock);
    return segment;
}

NrdSegment *nrd_segment_ref(NrdSegment *segment)
{
    g_atomic_int_inc(&segment->refs);
    return segment;
}

void nrd_segment_unref(NrdSegment *segment)
{
    if (segment == NULL || !g_atomic_int_dec_and_test(&segment->refs))
        return;
    nrd_hot_forget(segment);
    nrd_index_free(segment->index);
    if (segment->known_gaps != NULL)
        g_array_unref(segment->known_gaps);
    g_mutex_clear(&segment->load_lock);
    g_mutex_clear(&segment->lock);
    g_free(segment);
}

uint64_t nrd_segment_base(const NrdSegment *segment)
{
    return segment->base;
}

char *nrd_segment_path(const NrdSegment *segment)
{
    return g_strdup_printf("%s/%020" PRIu64 ".log", segment->home->dir, segment->base);
}

char *nrd_segment_index_path(const NrdSegment *segment)
{
    return g_strdup_printf("%s/%020" PRIu64 ".index", segment->home->dir, segment->base);
}

void nrd_segment_report_read(NrdSegment *segment, int error)
{
    g_mutex_lock(&segment->lock);
    bool tell = error != 0 && !segment->read_failed;
    segment->read_failed = error != 0;
    g_mutex_unlock(&segment->lock);
    if (tell)
        nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(segment->home, (int64_t)segment->base),
                 "cannot read segment %020" PRIu64 ": %s", segment->base, g_strerror(-error));
}

static int open_file(NrdSegment *segment, int *ret_fd)
{
    const NrdSegmentHome *home = segment->home;
    int access = home->read_only ? O_RDONLY : O_RDWR;
    char *path = nrd_segment_path(segment);
    int fd = nrd_io->open(home->root_fd, path, access | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    int r = fd < 0 ? fd : 0;
    struct stat st;

    if (r == 0)
        r = nrd_io->fstat(fd, &st);
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -EIO;
    if (r < 0) {
        nrd_io_close(&fd);
        nrd_segment_report_read(segment, r);
    } else {
        *ret_fd = fd;
    }
    g_free(path);
    return r;
}

int nrd_segment_pin(NrdSegment *segment, int *ret_fd)
{
    int fd = nrd_hot_pin(segment);

    if (fd < 0) {
        int r = open_file(segment, &fd);
        if (r < 0) {
            nrd_hot_unpin(segment);
            return r;
        }
        fd = nrd_hot_install(segment, fd);
    }
    *ret_fd = fd;
    return 0;
}

void nrd_segment_unpin(NrdSegment *segment)
{
    nrd_hot_unpin(segment);
}

void nrd_segment_drop_fd(NrdSegment *segment)
{
    nrd_hot_drop_fd(segment);
}

void nrd_segment_hold(NrdSegment *segment)
{
    g_atomic_int_inc(&segment->holds);
}

void nrd_segment_release(NrdSegment *segment)
{
    g_atomic_int_add(&segment->holds, -1);
}

bool nrd_segment_is_held(NrdSegment *segment)
{
    return g_atomic_int_get(&segment->holds) > 0;
}

void nrd_segment_release_index(NrdSegment *segment)
{
    NrdIndex *index = NULL;

    g_mutex_lock(&segment->lock);
    if (segment->sealed) {
        index = segment->index;
        segment->index = NULL;
    }
    g_mutex_unlock(&segment->lock);
    nrd_index_free(index);
}

static void text_moved(NrdSegmentHome *home)
{
    __atomic_add_fetch(&home->text_version, 1, __ATOMIC_ACQ_REL);
}

/* Installs an index; the caller holds segment->lock. Returns the old one, to be freed without the lock. */
static NrdIndex *install_index_locked(NrdSegment *segment, NrdIndex *index)
{
    NrdIndex *old = segment->index;

    bool differs = segment->end.text_bytes != index->end.text_bytes || segment->end.commit_ms != index->end.commit_ms;
    if (differs || (segment->sealed && !segment->end_known))
        text_moved(segment->home);
    segment->index = index;
    segment->end = index->end;
    segment->end_known = true;
    segment->version++;
    return old;
}

void nrd_segment_set_index(NrdSegment *segment, NrdIndex *index, uint64_t size_bytes)
{
    g_mutex_lock(&segment->lock);
    NrdIndex *old = install_index_locked(segment, index);
    segment->size_bytes = size_bytes;
    g_mutex_unlock(&segment->lock);
    if (old != NULL) /* else it is new, and nobody has read it */
        text_moved(segment->home);
    nrd_index_free(old);
}

void nrd_segment_add_frame(NrdSegment *segment, uint64_t size_bytes, uint32_t n_records, uint64_t text_bytes,
                           int64_t commit_ms)
{
    g_mutex_lock(&segment->lock);
    nrd_index_add_frame(segment->index, size_bytes, n_records, text_bytes, commit_ms);
    segment->end = segment->index->end;
    segment->size_bytes = segment->end.pos;
    g_mutex_unlock(&segment->lock);
}

NrdIndexEnd nrd_segment_end(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    NrdIndexEnd end = segment->end;
    g_mutex_unlock(&segment->lock);
    return end;
}

bool nrd_segment_end_is_known(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    bool known = segment->end_known;
    g_mutex_unlock(&segment->lock);
    return known;
}

uint64_t nrd_segment_version(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    uint64_t version = segment->version;
    g_mutex_unlock(&segment->lock);
    return version;
}

uint64_t nrd_segment_size_bytes(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);
    return size_bytes;
}

int64_t nrd_segment_last_ms(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    int64_t last_ms = segment->end.commit_ms;
    if (last_ms == 0 && segment->size_bytes > 0)
        last_ms = segment->file_ms;
    g_mutex_unlock(&segment->lock);
    return last_ms;
}

static bool learn_gap_locked(NrdSegment *segment, uint64_t pos)
{
    if (segment->known_gaps == NULL)
        segment->known_gaps = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (guint i = 0; i < segment->known_gaps->len; i++) {
        if (g_array_index(segment->known_gaps, uint64_t, i) == pos)
            return false;
    }
    if (segment->known_gaps->len < MAX_KNOWN_GAPS)
        g_array_append_val(segment->known_gaps, pos);
    return true;
}

void nrd_segment_report_gaps(NrdSegment *segment, const NrdIndex *index)
{
    for (guint i = 0; i < index->gaps->len; i++) {
        const NrdGap *gap = &g_array_index(index->gaps, NrdGap, i);
        g_mutex_lock(&segment->lock);
        bool fresh = learn_gap_locked(segment, gap->pos);
        g_mutex_unlock(&segment->lock);
        if (!fresh)
            continue;
        nrd_counter_add(NRD_COUNTER_CORRUPT_FRAMES, 1);
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, (int64_t)gap->offset),
                 "damaged frame in segment %020" PRIu64 " at byte %" PRIu64 ": %" PRIu64 " records are lost",
                 segment->base, gap->pos, gap->end_offset - gap->offset);
    }
}

static NrdIndexFileId file_id(const NrdSegment *segment, const char *path, uint64_t end_offset, uint64_t size_bytes)
{
    return (NrdIndexFileId){ segment->home->root_fd, path, segment->base, end_offset, size_bytes };
}

static void write_index_file(NrdSegment *segment, const NrdIndex *index, uint64_t size_bytes)
{
    if (segment->home->read_only)
        return;
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = file_id(segment, path, index->end.offset, size_bytes);
    int r = nrd_index_file_write(&id, index);
    if (r < 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_segment_home_place(segment->home, NRD_NO_OFFSET),
                 "cannot write index %s: %s; it will be rebuilt when it is needed", path, g_strerror(-r));
    g_free(path);
}

/* Scans the segment as far as it is indexed and replaces the index. The caller holds load_lock and a pin. */
static int rebuild(NrdSegment *segment, int fd)
{
    NrdIndex *index = NULL;

    g_mutex_lock(&segment->lock);
    bool sealed = segment->sealed;
    uint64_t version = segment->version;
    NrdIndexEnd since = segment->end;
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);

    NrdScanWant want = { fd, segment->base, sealed ? size_bytes : since.pos, since.offset };
    int r = nrd_scan_segment(&want, &index, NULL);
    nrd_segment_report_read(segment, r);
    if (r < 0)
        return r;
    index->end.pos = want.size_bytes; /* unreachable bytes behind the last frame count as read */
    nrd_segment_report_gaps(segment, index);
    if (sealed)
        write_index_file(segment, index, size_bytes);
    g_mutex_lock(&segment->lock);
    /* the committer may have added frames meanwhile, or have recovered or sealed the segment */
    if (segment->version == version) {
        if (!sealed && segment->index != NULL)
            nrd_index_continue(index, segment->index, &since);
        index = install_index_locked(segment, index);
    }
    g_mutex_unlock(&segment->lock);
    nrd_index_free(index);
    return 0;
}

/* Makes sure that a pinned segment has its index. */
static int ensure_index(NrdSegment *segment, int fd)
{
    g_mutex_lock(&segment->lock);
    bool have = segment->index != NULL;
    g_mutex_unlock(&segment->lock);
    if (have)
        return 0;
    int r = 0;
    g_mutex_lock(&segment->load_lock);
    g_mutex_lock(&segment->lock);
    have = segment->index != NULL;
    uint64_t size_bytes = segment->size_bytes;
    uint64_t end_offset = segment->end.offset;
    bool failing = segment->read_failed; /* that has been told: no line for each try */
    g_mutex_unlock(&segment->lock);
    if (!have) {
        NrdIndex *index = NULL;
        char *path = nrd_segment_index_path(segment);
        NrdIndexFileId id = file_id(segment, path, end_offset, size_bytes);
        r = nrd_index_file_load(&id, &index);
        if (r == 0) {
            nrd_segment_report_gaps(segment, index);
            g_mutex_lock(&segment->lock);
            index = install_index_locked(segment, index);
            g_mutex_unlock(&segment->lock);
            nrd_index_free(index);
        } else {
            if (!failing)
                nrd_diag(NRD_LEVEL_NOTICE, nrd_segment_home_place(segment->home, (int64_t)segment->base),
                         "index %s is missing or not usable: rebuilding it from the segment", path);
            r = rebuild(segment, fd);
        }
        g_free(path);
    }
    g_mutex_unlock(&segment->load_lock);
    return r;
}

/* A sealed segment's index is looked at under a pin; its descriptor may have to be opened for a scan. */
static int with_index(NrdSegment *segment)
{
    int fd;
    int r = nrd_segment_pin(segment, &fd);
    if (r < 0)
        return r;
    r = ensure_index(segment, fd);
    nrd_segment_unpin(segment); /* the caller has a pin of its own: nothing goes cold */
    return r;
}

int nrd_segment_find_offset(NrdSegment *segment, uint64_t offset, NrdIndexPlace *ret_place, uint64_t *ret_version)
{
    int r = with_index(segment);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->lock);
    nrd_index_find_offset(segment->index, offset, ret_place);
    *ret_version = segment->version;
    g_mutex_unlock(&segment->lock);
    return 0;
}

int nrd_segment_find_text(NrdSegment *segment, uint64_t text_pos, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found)
{
    int r = with_index(segment);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->lock);
    *ret_found = nrd_index_find_text(segment->index, text_pos, ret_place);
    *ret_version = segment->version;
    g_mutex_unlock(&segment->lock);
    return 0;
}

int nrd_segment_find_time(NrdSegment *segment, int64_t time_ms, NrdIndexPlace *ret_place, uint64_t *ret_version,
                          bool *ret_found)
{
    int r = with_index(segment);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->lock);
    *ret_found = nrd_index_find_time(segment->index, time_ms, ret_place);
    *ret_version = segment->version;
    g_mutex_unlock(&segment->lock);
    return 0;
}

int nrd_segment_learn_end(NrdSegment *segment)
{
    return nrd_segment_end_is_known(segment) ? 0 : with_index(segment);
}

int nrd_segment_repair(NrdSegment *segment, uint64_t seen_version)
{
    int fd;
    int r = nrd_segment_pin(segment, &fd);
    if (r < 0)
        return r;
    g_mutex_lock(&segment->load_lock);
    g_mutex_lock(&segment->lock);
    bool again = segment->version == seen_version;
    g_mutex_unlock(&segment->lock);
    if (again)
        r = rebuild(segment, fd);
    g_mutex_unlock(&segment->load_lock);
    nrd_segment_unpin(segment);
    return r;
}

void nrd_segment_seal(NrdSegment *segment, uint64_t end_offset)
{
    g_mutex_lock(&segment->load_lock); /* no repair replaces the index meanwhile */
    g_mutex_lock(&segment->lock);
    g_assert(segment->index != NULL && segment->index->end.offset == end_offset);
    segment->sealed = true;
    NrdIndex *index = segment->index;
    uint64_t size_bytes = segment->size_bytes;
    g_mutex_unlock(&segment->lock);
    /* sealed: the index does not change, and under load_lock and a pin it does not go */
    nrd_hot_pin(segment);
    write_index_file(segment, index, size_bytes);
    g_mutex_unlock(&segment->load_lock);
    nrd_hot_unpin(segment);
}

void nrd_segment_open_sealed(NrdSegment *segment, uint64_t end_offset)
{
    NrdIndexEnd end = { .offset = end_offset };
    int fd;

    g_mutex_lock(&segment->lock);
    segment->sealed = true;
    segment->end = end;
    g_mutex_unlock(&segment->lock);
    char *path = nrd_segment_index_path(segment);
    NrdIndexFileId id = file_id(segment, path, end_offset, segment->size_bytes);
    int r = nrd_index_file_read_end(&id, &end);
    if (r == 0) {
        g_mutex_lock(&segment->lock);
        segment->end = end;
        segment->end_known = true;
        g_mutex_unlock(&segment->lock);
    } else if (nrd_segment_pin(segment, &fd) == 0) {
        r = ensure_index(segment, fd);
        nrd_segment_unpin(segment);
    }
    g_free(path);
}
