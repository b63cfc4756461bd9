/* The log as text.
 *
 * It has no size that could be told without reading it: st_size is what was read through the open file, 0 at first, and a
 * read goes on from where the last one ended. A reader keeps where in the text each chunk of records began, so going back
 * costs one chunk. */
#include "engine/jetstream/fetch.h"
#include "engine/jetstream/partition.h"

#define CHUNK_RECORDS 128
#define CHUNK_BYTES (1024 * 1024)

/* Where in the text the records from `sequence` on begin. */
typedef struct Mark {
    uint64_t pos;
    uint64_t sequence;
} Mark;

struct NrdReader {
    const NrdEngineTable *table;   /* first: see table.h */
    NrdPartition *partition;       /* holds a reference to its topic */
    const NrdRendering *rendering; /* NULL: the payload and a newline */
    GMutex lock;
    /* guarded by lock */
    GArray *marks; /* of Mark, ascending: of each chunk that was read; the first is the beginning */
    GString *text; /* of the chunk that was read last */
    uint64_t text_pos;
    uint64_t text_end; /* the sequence behind it */
    uint64_t last;     /* known to be committed */
    guint chunk;       /* records to ask for at once */
    /* for a stat, which takes no lock */
    _Atomic uint64_t seen_end; /* the end of the text as far as it was read */
    _Atomic uint64_t seen_seq; /* the sequence behind that */
    atomic_bool came_to_end;   /* somebody has read, or opened it, at the end of what there was */
};

static NrdReader *reader_new(NrdPartition *partition, const NrdRendering *rendering, uint64_t sequence, uint64_t last)
{
    NrdReader *reader = g_new0(NrdReader, 1);
    Mark start = { 0, sequence };
    reader->table = &nrd_js_table;
    reader->partition = partition;
    reader->rendering = rendering;
    g_mutex_init(&reader->lock);
    reader->marks = g_array_new(FALSE, FALSE, sizeof(Mark));
    g_array_append_val(reader->marks, start);
    reader->text = g_string_new(NULL);
    reader->text_end = sequence;
    reader->last = last;
    atomic_init(&reader->seen_seq, sequence);
    atomic_init(&reader->came_to_end, sequence > last);
    reader->chunk = 16;
    nrd_js_topic_ref(partition->topic);
    return reader;
}

int nrd_js_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader)
{
    uint64_t first, last;
    int rc = nrd_js_partition_last(partition, true, &first, &last);
    if (rc < 0)
        return rc;
    if (from == NRD_FROM_OFFSET && (offset > last || offset + 1 < first))
        return -ENOENT;
    uint64_t sequence = from == NRD_FROM_START ? first : from == NRD_FROM_END ? last + 1 : offset + 1;
    *ret_reader = reader_new(partition, NULL, sequence, last);
    return 0;
}

int nrd_js_reader_open_rendered(NrdPartition *partition, const NrdRendering *rendering, NrdReader **ret_reader)
{
    uint64_t first, last;
    int rc = nrd_js_partition_last(partition, true, &first, &last);
    if (rc == 0)
        *ret_reader = reader_new(partition, rendering, first, last);
    return rc;
}

void nrd_js_reader_close(NrdReader *reader)
{
    g_array_unref(reader->marks);
    g_string_free(reader->text, TRUE);
    g_mutex_clear(&reader->lock);
    nrd_js_topic_unref(reader->partition->topic);
    g_free(reader);
}

static void append_record(NrdReader *reader, const NrdRecord *record)
{
    if (!reader->rendering) {
        g_string_append_len(reader->text, (const char *)record->payload, (gssize)record->payload_size);
        g_string_append_c(reader->text, '\n');
        return;
    }
    NrdRenderRecord line = {
        .partition = reader->partition->number,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .key = record->key,
        .key_size = record->key_size,
        .payload = record->payload,
        .payload_size = record->payload_size,
    };
    reader->rendering->append(reader->text, &line);
}

static void note_seen(NrdReader *reader)
{
    if (reader->text_end < atomic_load(&reader->seen_seq))
        return;
    atomic_store(&reader->seen_end, reader->text_pos + reader->text->len);
    atomic_store(&reader->seen_seq, reader->text_end);
}

/* Reads the chunk that begins at `mark`; as many records the next time as make a chunk of bytes. */
static int read_chunk_locked(NrdReader *reader, Mark mark)
{
    guint n = (guint)MIN(reader->chunk, reader->last + 1 - mark.sequence);
    g_autofree NrdJsSlot *slots = g_new(NrdJsSlot, n);
    int rc = nrd_js_fetch(reader->partition, mark.sequence, n, slots);
    if (rc == 0) {
        g_string_truncate(reader->text, 0);
        for (guint i = 0; i < n; i++)
            if (slots[i].error == 0)
                append_record(reader, &slots[i].record);
        reader->text_pos = mark.pos;
        reader->text_end = mark.sequence + n;
        note_seen(reader);
        reader->chunk = (guint)CLAMP(CHUNK_BYTES / (reader->text->len / n + 1), 1, CHUNK_RECORDS);
    }
    nrd_js_slots_clear(slots, n);
    return rc;
}

/* Whether there is a chunk behind the one that was read last. */
static int more_locked(NrdReader *reader, bool *ret_more)
{
    uint64_t first;
    int rc = 0;
    if (reader->text_end > reader->last)
        rc = nrd_js_partition_last(reader->partition, true, &first, &reader->last);
    *ret_more = rc == 0 && reader->text_end <= reader->last;
    if (rc == 0 && !*ret_more)
        atomic_store(&reader->came_to_end, true);
    return rc;
}

static int go_back_locked(NrdReader *reader, uint64_t pos)
{
    guint i = reader->marks->len - 1;
    while (i > 0 && g_array_index(reader->marks, Mark, i).pos > pos)
        i--;
    Mark mark = g_array_index(reader->marks, Mark, i);
    if (mark.sequence > reader->last) { /* nothing was read yet */
        g_string_truncate(reader->text, 0);
        reader->text_pos = mark.pos;
        reader->text_end = mark.sequence;
        return 0;
    }
    return read_chunk_locked(reader, mark);
}

static int go_on_locked(NrdReader *reader)
{
    Mark mark = { reader->text_pos + reader->text->len, reader->text_end };
    if (mark.pos > g_array_index(reader->marks, Mark, reader->marks->len - 1).pos)
        g_array_append_val(reader->marks, mark);
    return read_chunk_locked(reader, mark);
}

/* Makes the chunk with the byte at pos the one that was read; *ret_found false: the text ends before it. */
static int find_locked(NrdReader *reader, uint64_t pos, bool *ret_found)
{
    int rc = pos < reader->text_pos ? go_back_locked(reader, pos) : 0;
    bool more = true;
    while (rc == 0 && more && pos >= reader->text_pos + reader->text->len) {
        rc = more_locked(reader, &more);
        if (rc == 0 && more)
            rc = go_on_locked(reader);
    }
    *ret_found = rc == 0 && pos < reader->text_pos + reader->text->len;
    return rc;
}

int nrd_js_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    size_t done = 0;
    bool found = true;
    int rc = nrd_js_partition_usable(reader->partition);
    g_mutex_lock(&reader->lock);
    while (rc == 0 && done < size && found) {
        rc = find_locked(reader, pos + done, &found);
        if (rc < 0 || !found)
            break;
        size_t at = (size_t)(pos + done - reader->text_pos);
        size_t n = MIN(size - done, reader->text->len - at);
        memcpy((char *)buf + done, reader->text->str + at, n);
        done += n;
    }
    g_mutex_unlock(&reader->lock);
    if (rc < 0 && done == 0)
        return nrd_js_partition_why(reader->partition, rc);
    *ret_size = done;
    return 0;
}

/* Nobody knows without reading everything. What was read is there, so that who follows the log does not take it for one that
 * was cut; and, once he has come to the end, a byte more as soon as there is more, since he reads no further than that. */
uint64_t nrd_js_reader_size(NrdReader *reader)
{
    NrdPartition *partition = reader->partition;
    g_mutex_lock(&partition->lock);
    uint64_t last = partition->info.last_seq;
    g_mutex_unlock(&partition->lock);
    bool more = atomic_load(&reader->came_to_end) && last >= atomic_load(&reader->seen_seq);
    return atomic_load(&reader->seen_end) + more;
}

int nrd_js_reader_measure(NrdReader *reader, uint64_t *ret_size)
{
    *ret_size = nrd_js_reader_size(reader);
    return nrd_js_partition_usable(reader->partition);
}

bool nrd_js_reader_waits(NrdReader *reader, uint64_t pos)
{
    return true; /* for the servers */
}

int nrd_js_partition_rendered_bytes(NrdPartition *partition, const NrdRendering *rendering, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    return nrd_js_partition_usable(partition);
}
