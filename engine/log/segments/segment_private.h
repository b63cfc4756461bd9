/* The inside of a segment, for segment*.c, render_cache.c, hot_set.c, map_cache.c and frame_cache.c alone. */
#ifndef NRD_LOG_SEGMENT_PRIVATE_H
#define NRD_LOG_SEGMENT_PRIVATE_H

#include "engine/base/rendering.h"
#include "engine/log/index/index_file.h"
#include "engine/log/index/index_map.h"
#include "engine/log/segments/render_map.h"
#include "engine/log/segments/segment.h"

struct NrdSegment {
    gint refs;  /* atomic */
    gint holds; /* atomic */
    NrdSegmentHome *home;
    uint64_t base;

    /* guarded by the hot lock */
    int fd;         /* -1: closed */
    uint32_t pins;  /* readers and the committer */
    bool drop_fd;   /* close at the last unpin */
    GQueue *in_lru; /* the one it is in, or NULL */
    GList lru;      /* data is the segment */

    /* guarded by the map cache's lock */
    NrdIndexMap *map; /* of a sealed segment, when it was searched lately */
    GList map_lru;    /* data is the segment; linked while there is a map */

    GMutex load_lock; /* one load or repair at a time; held across I/O */
    /* guarded by load_lock */
    bool buried; /* its files go: nothing more is written beside it */

    GMutex lock;
    /* guarded by lock */
    bool sealed;
    bool end_known;   /* end holds text_bytes and commit_ms; else only pos and offset */
    NrdIndex *index;  /* NULL: a sealed segment, whose side file is searched */
    NrdIndexEnd end;  /* of the index, also while it is not loaded */
    uint64_t version; /* of the index: changes when it is rebuilt */
    uint64_t size_bytes;
    GArray *known_gaps; /* NrdGap, as they were counted; NULL: none */
    int read_error;     /* negative, logged; 0 after a read that succeeds */
    int64_t file_ms;    /* when the file was written last by the machine's clock; 0: not known */
    dev_t dev;          /* of its file, */
    ino_t ino;          /* ... 0: not known */
    bool opened;        /* dev and ino are those of an open file */
    bool gone;          /* its file is: nrd_segment_lose. The index stays in memory */

    GMutex render_lock; /* one rendering at a time; held across I/O, outside load_lock */
    /* guarded by render_lock */
    const NrdRendering *rendering; /* that render is of; NULL: nothing is known */
    uint64_t render_version;       /* of the index, that it was made from */
    NrdRenderMap render;
    uint64_t render_saved; /* its next_offset when it was written or read last, or that failed; UINT64_MAX: never */

    /* guarded by the lock of the render cache */
    GList render_lru; /* data is the segment */
    bool in_render_lru;

    /* guarded by the lock of the frame cache */
    GQueue cached;          /* its frames */
    uint64_t cache_id;      /* 0: nothing of it is kept */
    uint64_t cache_version; /* of the index, that they belong to */
};

/* Frees a cold sealed segment's index. The hot lock is held, nobody has it pinned. */
void nrd_segment_release_index(NrdSegment *segment);

/* So many gaps of a segment are remembered as counted; a segment with more of them counts some twice. */
#define NRD_MAX_KNOWN_GAPS 1024

/* segment_presence.c: an open file of the segment. */
void nrd_segment_note_opened(NrdSegment *segment, const struct stat *st);

/* segment_gaps.c: counts and logs it unless that was done. */
void nrd_segment_report_gap(NrdSegment *segment, const NrdGap *gap);

/* segment_index.c: makes the gaps known that a side file tells of. May block. */
void nrd_segment_learn_gaps(NrdSegment *segment);

/* segment_side.c: which side file would belong to it, were these its end and size. */
NrdIndexFileId nrd_segment_side_id(const NrdSegment *segment, const char *path, uint64_t end_offset,
                                   uint64_t size_bytes);

/* segment_side.c: writes it, unless the log must not be written to; a failure is only logged. load_lock is held. */
void nrd_segment_write_side(NrdSegment *segment, const NrdIndex *index, uint64_t size_bytes, NrdIndexFileKind kind);

/* segment_index.c: maps the side file, or makes the index again; *ret_map is NULL when it is in memory now. bad: a map of
 * which a block did not check out, to be made again (ret_map is not used), or NULL. Takes load_lock. May block. */
int nrd_segment_load(NrdSegment *segment, const NrdIndexMap *bad, NrdIndexMap **ret_map) NRD_MUST_CHECK;

#endif
