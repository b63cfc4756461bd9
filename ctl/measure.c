/* See measure.h. */
#include "ctl/measure.h"

#include "ctl/cli.h"
#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/log/frames/record.h"
#include "engine/log/index/index_file.h"
#include "engine/log/index/scan.h"
#include "engine/log/segments/hwm.h"
#include "engine/log/segments/segment_files.h"
#include "engine/queue/ahead.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 * 1024)

typedef struct Measure {
    int root_fd;
    const char *dir;
    NrdManifest *manifest;
    GArray *made;
    NrdHwm hwm;
    char *why;
} Measure;

static int damaged(Measure *m, const char *name, const char *what)
{
    g_free(m->why);
    m->why = g_strdup_printf("%s/%s is damaged (%s); naradctl check says more", m->dir, name, what);
    return -EBADMSG;
}

static int failed(Measure *m, const char *name, int rc)
{
    if (!m->why)
        m->why = g_strdup_printf("%s/%s cannot be read: %s", m->dir, name, g_strerror(-rc));
    return rc;
}

/* ---- segments ---- */

static int checksum(int fd, uint64_t size, uint32_t *ret_crc)
{
    g_autofree uint8_t *chunk = g_malloc(CHUNK_BYTES);
    uint32_t crc = 0;
    uint64_t pos = 0;
    while (pos < size) {
        size_t n = 0;
        if (nrd_cli_interrupted())
            return -EINTR;
        int rc = nrd_io_pread_full(fd, chunk, (size_t)MIN((uint64_t)CHUNK_BYTES, size - pos), (int64_t)pos, &n);
        if (rc < 0 || n == 0)
            return rc < 0 ? rc : -EIO;
        crc = nrd_crc32c(crc, chunk, n);
        pos += n;
    }
    *ret_crc = crc;
    return 0;
}

/* Whether the log was closed with more records than the high watermark tells: the sums that a close leaves beside the active
 * segment say so. */
static bool hides_committed(Measure *m, int fd, const NrdSegmentFile *file)
{
    NrdScanWatch watch = { .frame = NULL };
    NrdScanWant want = { fd, file->base, file->size_bytes, UINT64_MAX };
    NrdScanTail tail = { .torn = false };
    NrdIndex *index = NULL;
    NrdIndexEnd end;
    uint64_t n_gaps;
    g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".index", m->dir, file->base);
    if (nrd_scan_segment_watched(&want, &watch, &index, &tail) < 0)
        return false; /* what can be read up to the boundary was read */
    NrdIndexFileId id = { .root_fd = m->root_fd,
                          .path = path,
                          .base = file->base,
                          .end_offset = index->end.offset,
                          .size_bytes = file->size_bytes,
                          .kind = NRD_INDEX_AT_CLOSE };
    bool hides = index->end.offset > m->hwm.value && nrd_index_file_read_end(&id, &end, &n_gaps) == 0;
    nrd_index_free(index);
    return hides;
}

/* Where the segment's committed part ends, after a look at every frame. end_offset: the next segment's base, or
 * UINT64_MAX. A sealed segment has to end there; the active one at the high watermark, if that is known. */
static int find_end(Measure *m, int fd, const NrdSegmentFile *file, uint64_t end_offset, NrdIndexEnd *ret_end)
{
    NrdScanWatch watch = { .frame = NULL };
    bool bounded = end_offset == UINT64_MAX && m->hwm.clean;
    NrdScanWant want = { fd, file->base, file->size_bytes, bounded ? m->hwm.value : end_offset };
    NrdScanTail tail = { .torn = false };
    NrdIndex *index = NULL;
    g_autofree char *name = g_strdup_printf("%020" PRIu64 ".log", file->base);
    int rc = nrd_scan_segment_watched(&want, &watch, &index, &tail);
    if (rc < 0)
        return failed(m, name, rc);
    if (index->gaps->len > 0)
        rc = damaged(m, name, "records are lost");
    else if (tail.misnamed)
        rc = damaged(m, name, "it holds frames of other offsets than its name says");
    else if (bounded && index->end.pos < file->size_bytes && hides_committed(m, fd, file))
        rc = damaged(m, "hwm", "it hides committed records");
    *ret_end = index->end;
    nrd_index_free(index);
    return rc;
}

static int measure_segment(Measure *m, const NrdSegmentFile *file, uint64_t end_offset)
{
    g_autofree char *name = g_strdup_printf("%020" PRIu64 ".log", file->base);
    g_autofree char *path = g_strconcat(m->dir, "/", name, NULL);
    NrdIndexEnd end = { .pos = 0 };
    uint32_t crc = 0;
    int fd = nrd_io->open(m->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return failed(m, name, fd);
    int rc = find_end(m, fd, file, end_offset, &end);
    if (rc == 0) {
        rc = checksum(fd, end.pos, &crc);
        if (rc < 0)
            (void)failed(m, name, rc);
    }
    nrd_io_close(&fd);
    if (rc < 0)
        return rc;
    nrd_manifest_add(m->manifest, name, end.pos, crc, file->mtime_ms);
    m->manifest->n_records += end.offset - file->base;
    m->manifest->hwm = end.offset;
    return 0;
}

static int measure_segments(Measure *m)
{
    g_autoptr(GArray) files = g_array_new(FALSE, FALSE, sizeof(NrdSegmentFile));
    NrdSegmentOdd odd = { .name = NULL };
    int rc = nrd_segment_files_list(m->root_fd, m->dir, files, &odd);
    if (rc < 0)
        return failed(m, "", rc);
    if (odd.name)
        rc = damaged(m, odd.name, odd.error < 0 ? g_strerror(-odd.error) : odd.what);
    g_free(odd.name);
    if (rc == 0 && files->len > 0)
        m->manifest->oldest = m->manifest->hwm = g_array_index(files, NrdSegmentFile, 0).base;
    if (rc == 0 && files->len > 0 && m->hwm.clean) /* as recovery takes it */
        m->hwm.value = MAX(m->hwm.value, g_array_index(files, NrdSegmentFile, files->len - 1).base);
    for (guint i = 0; rc == 0 && i < files->len; i++) {
        bool last = i + 1 == files->len;
        uint64_t end = last ? UINT64_MAX : g_array_index(files, NrdSegmentFile, i + 1).base;
        rc = measure_segment(m, &g_array_index(files, NrdSegmentFile, i), end);
    }
    if (rc == 0 && m->hwm.clean && m->hwm.value != m->manifest->hwm)
        rc = damaged(m, "hwm", "it is not where the records end");
    return rc;
}

/* ---- what is made ---- */

static void add_made(Measure *m, const char *name, const void *bytes, size_t size)
{
    NrdMadeFile file = { .name = name, .bytes = g_bytes_new(bytes, size) };
    g_array_append_val(m->made, file);
    nrd_manifest_add(m->manifest, name, size, nrd_crc32c(0, bytes, size), 0);
}

static int make_frontier(Measure *m, const NrdFrontier *state)
{
    uint8_t offset[8];
    g_autofree uint8_t *slots = g_malloc0((gsize)2 * NRD_AHEAD_SLOT_SIZE);
    m->manifest->frontier = state->frontier;
    m->manifest->n_ahead = state->ahead->len;
    nrd_put_be64(offset, state->frontier - 1);
    if (state->frontier > 0)
        add_made(m, "consumer.offset", offset, sizeof offset);
    if (state->frontier == 0 && state->ahead->len == 0)
        return 0;
    int rc = nrd_ahead_encode(state, 1, slots);
    if (rc < 0)
        return failed(m, "consumer.ahead", rc);
    add_made(m, "consumer.ahead", slots, (size_t)2 * NRD_AHEAD_SLOT_SIZE);
    return 0;
}

/* As a start would take it over: the better of the two files, nothing above the high watermark. */
static int measure_frontier(Measure *m)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    NrdOffsetStore *store = NULL;
    uint64_t hwm = m->manifest->hwm;
    int rc = nrd_offset_store_open(m->root_fd, m->dir, m->manifest->topic, (uint32_t)m->manifest->partition, hwm,
                                   &state, &store);
    if (rc < 0)
        return failed(m, "consumer.offset", rc);
    nrd_offset_store_free(store);
    while (ahead->len > 0 && g_array_index(ahead, uint64_t, ahead->len - 1) >= hwm)
        g_array_set_size(ahead, ahead->len - 1);
    state.frontier = MIN(state.frontier, hwm);
    return make_frontier(m, &state);
}

int nrd_measure(int root_fd, const char *dir, NrdManifest *manifest, GArray *made, char **ret_why)
{
    Measure m = { .root_fd = root_fd, .dir = dir, .manifest = manifest, .made = made };
    g_autofree char *path = g_strconcat(dir, "/hwm", NULL);
    uint8_t hwm[8];
    int rc = nrd_hwm_read(root_fd, path, &m.hwm);
    if (rc < 0)
        (void)failed(&m, "hwm", rc);
    if (rc == 0)
        rc = measure_segments(&m);
    if (rc == 0) {
        nrd_put_be64(hwm, manifest->hwm);
        add_made(&m, "hwm", hwm, sizeof hwm);
        rc = measure_frontier(&m);
    }
    if (rc < 0)
        *ret_why = m.why;
    else
        g_free(m.why);
    return rc;
}

void nrd_made_files_free(GArray *made)
{
    for (guint i = 0; i < made->len; i++)
        g_bytes_unref(g_array_index(made, NrdMadeFile, i).bytes);
    g_array_unref(made);
}
