/* See segment.h. */
#include "engine/log/segments/segment.h"

#include "engine/io/io.h"
#include "engine/log/segments/hot_set.h"
#include "engine/log/segments/map_cache.h"
#include "engine/log/segments/render_cache.h"
#include "engine/log/segments/segment_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

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
    segment->map_lru.data = segment;
    segment->render_lru.data = segment;
    segment->size_bytes = size_bytes;
    segment->end = (NrdIndexEnd){ .offset = base };
    g_mutex_init(&segment->load_lock);
    g_mutex_init(&segment->lock);
    g_mutex_init(&segment->render_lock);
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
    nrd_map_cache_drop(segment);
    nrd_render_cache_forget(segment);
    nrd_render_map_drop_points(&segment->render);
    nrd_index_free(segment->index);
    if (segment->known_gaps != NULL)
        g_array_unref(segment->known_gaps);
    g_mutex_clear(&segment->load_lock);
    g_mutex_clear(&segment->lock);
    g_mutex_clear(&segment->render_lock);
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

char *nrd_segment_render_path(const NrdSegment *segment)
{
    return g_strdup_printf("%s/%020" PRIu64 ".rendered", segment->home->dir, segment->base);
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
    g_free(path);
    if (r < 0)
        nrd_io_close(&fd);
    if (r == -ENOENT && nrd_segment_lose(segment))
        r = 0; /* no descriptor: its index says that there is nothing to read */
    if (r < 0)
        nrd_segment_report_read(segment, r);
    else if (fd >= 0)
        nrd_segment_note_opened(segment, &st);
    if (r == 0)
        *ret_fd = fd;
    return r;
}

int nrd_segment_pin(NrdSegment *segment, int *ret_fd)
{
    int fd = nrd_hot_pin(segment);

    if (fd < 0 && !nrd_segment_is_gone(segment)) {
        int r = open_file(segment, &fd);
        if (r < 0) {
            nrd_hot_unpin(segment);
            return r;
        }
        if (fd >= 0)
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

void nrd_segment_let_go(NrdSegment *segment)
{
    nrd_hot_drop_fd(segment);
    nrd_map_cache_drop(segment);
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
    if (segment->sealed && !segment->gone) {
        index = segment->index;
        segment->index = NULL;
    }
    g_mutex_unlock(&segment->lock);
    nrd_index_free(index);
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
