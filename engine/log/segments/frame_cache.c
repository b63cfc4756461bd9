/* See frame_cache.h.
 *
 * A segment has an id here, a new one whenever its frames are forgotten, and the version of its index that they belong
 * to. Positions are noted under that id, so that forgetting them is a matter of giving it a new one; one whose version
 * turns out to be older than the segment's is forgotten when that is seen.
 *
 * One lock, innermost: nothing else is locked under it, and memory is freed after it. */
#include "engine/log/segments/frame_cache.h"

#include "engine/log/segments/segment_private.h"

#define DEFAULT_LIMIT_BYTES ((size_t)64 * NRD_MIB)
#define ENTRY_BYTES (sizeof(Entry) + sizeof(NrdFrameData) + 64) /* 64: about what the table takes */
#define N_HINTS 4096                                            /* a power of two */

typedef struct Entry {
    NrdSegment *segment; /* no reference: a segment that goes takes its frames along */
    uint64_t pos;
    NrdFrameData *frame; /* a reference */
    GList lru;
    GList of_segment;
} Entry;

typedef struct Hint {
    uint64_t id; /* 0: empty */
    uint64_t offset;
    uint64_t pos;
    uint64_t frame_offset;
} Hint;

static GMutex cache_lock;
/* guarded by cache_lock, as are the fields of every segment that are the cache's */
static GHashTable *entries; /* Entry, its own key */
static GQueue lru;          /* of entries, the latest first */
static size_t held_bytes;   /* payloads and bookkeeping of entries */
static size_t limit_bytes = DEFAULT_LIMIT_BYTES;
static uint64_t last_id;
static Hint hints[N_HINTS];

/* ---- frames ---- */

NrdFrameData *nrd_frame_data_new(size_t payload_size)
{
    NrdFrameData *frame = g_try_malloc(sizeof *frame + payload_size);

    if (frame != NULL)
        *frame = (NrdFrameData){ .refs = 1, .payload_size = payload_size };
    return frame;
}

NrdFrameData *nrd_frame_data_ref(NrdFrameData *frame)
{
    g_atomic_int_inc(&frame->refs);
    return frame;
}

void nrd_frame_data_unref(NrdFrameData *frame)
{
    if (frame != NULL && g_atomic_int_dec_and_test(&frame->refs))
        g_free(frame);
}

/* ---- the table ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    return x ^ x >> 31;
}

static guint hash_entry(gconstpointer key)
{
    const Entry *entry = key;
    return (guint)mix((uint64_t)(uintptr_t)entry->segment, entry->pos);
}

static gboolean equal_entries(gconstpointer a, gconstpointer b)
{
    const Entry *left = a, *right = b;
    return left->segment == right->segment && left->pos == right->pos;
}

static size_t cost(const NrdFrameData *frame)
{
    return frame->payload_size + ENTRY_BYTES;
}

/* Takes an entry out and puts it among the doomed, which free_doomed frees after the lock. */
static void doom_locked(Entry *entry, GQueue *doomed)
{
    g_hash_table_remove(entries, entry);
    g_queue_unlink(&lru, &entry->lru);
    g_queue_unlink(&entry->segment->cached, &entry->of_segment);
    held_bytes -= cost(entry->frame);
    g_queue_push_tail_link(doomed, &entry->lru);
}

static void free_doomed(GQueue *doomed)
{
    for (GList *link = g_queue_pop_head_link(doomed); link != NULL; link = g_queue_pop_head_link(doomed)) {
        Entry *entry = link->data;
        nrd_frame_data_unref(entry->frame);
        g_free(entry);
    }
}

static void shrink_locked(GQueue *doomed)
{
    while (held_bytes > limit_bytes)
        doom_locked(g_queue_peek_tail(&lru), doomed);
}

static void drop_locked(NrdSegment *segment, GQueue *doomed)
{
    while (segment->cached.length > 0)
        doom_locked(g_queue_peek_head(&segment->cached), doomed);
    segment->cache_id = 0;
}

/* Whether what is kept of the segment, after this at least, is of that version. */
static bool enter_locked(NrdSegment *segment, uint64_t version, GQueue *doomed)
{
    if (segment->cache_id != 0 && version < segment->cache_version)
        return false;
    if (segment->cache_id != 0 && version > segment->cache_version)
        drop_locked(segment, doomed);
    if (segment->cache_id == 0)
        segment->cache_id = ++last_id;
    segment->cache_version = version;
    return true;
}

void nrd_frame_cache_set_limit(size_t new_limit_bytes)
{
    GQueue doomed = G_QUEUE_INIT;

    g_mutex_lock(&cache_lock);
    limit_bytes = new_limit_bytes;
    shrink_locked(&doomed);
    g_mutex_unlock(&cache_lock);
    free_doomed(&doomed);
}

size_t nrd_frame_cache_size(void)
{
    g_mutex_lock(&cache_lock);
    size_t size = held_bytes;
    g_mutex_unlock(&cache_lock);
    return size;
}

NrdFrameData *nrd_frame_cache_get(NrdSegment *segment, uint64_t pos)
{
    uint64_t version = nrd_segment_version(segment);
    Entry key = { .segment = segment, .pos = pos };
    NrdFrameData *frame = NULL;
    GQueue doomed = G_QUEUE_INIT;

    g_mutex_lock(&cache_lock);
    if (segment->cached.length > 0 && enter_locked(segment, version, &doomed)) {
        Entry *entry = g_hash_table_lookup(entries, &key);
        if (entry != NULL) {
            g_queue_unlink(&lru, &entry->lru);
            g_queue_push_head_link(&lru, &entry->lru);
            frame = nrd_frame_data_ref(entry->frame);
        }
    }
    g_mutex_unlock(&cache_lock);
    free_doomed(&doomed);
    return frame;
}

static Entry *new_entry(NrdSegment *segment, NrdFrameData *frame)
{
    Entry *entry = g_new0(Entry, 1);

    entry->segment = segment;
    entry->pos = frame->pos;
    entry->frame = nrd_frame_data_ref(frame);
    entry->lru.data = entry;
    entry->of_segment.data = entry;
    return entry;
}

static void insert_locked(Entry *entry)
{
    if (entries == NULL)
        entries = g_hash_table_new(hash_entry, equal_entries);
    g_hash_table_add(entries, entry);
    g_queue_push_head_link(&lru, &entry->lru);
    g_queue_push_head_link(&entry->segment->cached, &entry->of_segment);
    held_bytes += cost(entry->frame);
}

void nrd_frame_cache_put(NrdSegment *segment, uint64_t version, NrdFrameData *frame)
{
    GQueue doomed = G_QUEUE_INIT;

    if (frame->payload_size > NRD_FRAME_CACHE_MAX_FRAME_BYTES || nrd_segment_version(segment) != version)
        return; /* should the version change from here on, the next look at the segment drops the frame */
    Entry *entry = new_entry(segment, frame);
    g_mutex_lock(&cache_lock);
    bool fits = cost(frame) <= limit_bytes && enter_locked(segment, version, &doomed);
    if (fits && (entries == NULL || !g_hash_table_contains(entries, entry)))
        insert_locked(entry);
    else
        g_queue_push_tail_link(&doomed, &entry->lru);
    shrink_locked(&doomed);
    g_mutex_unlock(&cache_lock);
    free_doomed(&doomed);
}

void nrd_frame_cache_drop(NrdSegment *segment)
{
    GQueue doomed = G_QUEUE_INIT;

    g_mutex_lock(&cache_lock);
    drop_locked(segment, &doomed);
    g_mutex_unlock(&cache_lock);
    free_doomed(&doomed);
}

/* ---- positions ---- */

static Hint *slot(uint64_t id, uint64_t offset)
{
    return &hints[mix(id, offset) & (N_HINTS - 1)];
}

bool nrd_frame_cache_find(NrdSegment *segment, uint64_t offset, uint64_t *ret_pos, uint64_t *ret_frame_offset)
{
    g_mutex_lock(&cache_lock);
    Hint hint = *slot(segment->cache_id, offset);
    bool found = segment->cache_id != 0 && hint.id == segment->cache_id && hint.offset == offset;
    g_mutex_unlock(&cache_lock);
    if (!found)
        return false;
    *ret_pos = hint.pos;
    *ret_frame_offset = hint.frame_offset;
    return true;
}

void nrd_frame_cache_note(NrdSegment *segment, uint64_t offset, uint64_t pos, uint64_t frame_offset)
{
    uint64_t version = nrd_segment_version(segment);
    GQueue doomed = G_QUEUE_INIT;

    g_mutex_lock(&cache_lock);
    if (enter_locked(segment, version, &doomed))
        *slot(segment->cache_id, offset) = (Hint){ segment->cache_id, offset, pos, frame_offset };
    g_mutex_unlock(&cache_lock);
    free_doomed(&doomed);
}
