/* Where in its first segment a text begins that was opened from an offset.
 *
 * It is a number of bytes: the text of the records before that offset. When damage is found among them it becomes
 * smaller, and is looked up anew before the next byte is read. */
#include "engine/log/reading/text_private.h"

#include "engine/log/reading/walk.h"

typedef struct Start {
    uint64_t from;
    uint64_t text_pos; /* found */
} Start;

static bool visit(const NrdFrameReader *reader, uint64_t text_pos, void *data)
{
    Start *start = data;
    const NrdFrameHeader *h = &reader->header;
    NrdRecordView view;
    size_t pos = 0;

    if (h->offset + h->n_records <= start->from)
        return false;
    start->text_pos = text_pos;
    for (uint64_t offset = h->offset; offset < start->from; offset++) {
        nrd_frame_reader_next_record(reader, &pos, &view);
        start->text_pos += view.payload_size + 1;
    }
    return true;
}

/* Text of the segment before the record `from`. */
static int look_up(NrdSegment *segment, uint64_t from, uint64_t *ret_bytes)
{
    Start start = { .from = from };
    NrdWalk walk = { .segment = segment, .offset = from, .visit = visit, .data = &start };
    bool found = false;
    /* Before the walk: a commit may add the very record meanwhile. What stood before it was there already, since nothing is
     * looked up above the high watermark. */
    uint64_t text_bytes = nrd_segment_end(segment).text_bytes;

    int r = nrd_walk(&walk, &found);
    if (r < 0)
        return r;
    *ret_bytes = found ? start.text_pos : text_bytes;
    return 0;
}

/* The segment the text began in, unless it was given up: then nothing moves any more. A reference and a hold. */
static NrdSegment *first_segment(NrdText *text)
{
    NrdSegment *first = NULL;

    g_mutex_lock(&text->lock);
    if (!text->dropped && text->held != NULL)
        first = nrd_segment_ref(text->held);
    if (first != NULL)
        nrd_segment_hold(first);
    g_mutex_unlock(&text->lock);
    return first;
}

bool nrd_text_start_is_settled(const NrdText *text, uint64_t version)
{
    return text->from_start || text->start_version == version;
}

int nrd_text_settle_start(NrdText *text)
{
    uint64_t version = nrd_load(&text->log->home.text_version);
    uint64_t skip;

    if (nrd_text_start_is_settled(text, version))
        return 0;
    NrdSegment *first = first_segment(text);
    if (first != NULL) {
        int r = look_up(first, text->from, &skip);
        nrd_segment_release(first);
        nrd_segment_unref(first);
        if (r < 0)
            return r;
        g_mutex_lock(&text->lock);
        text->skip = skip;
        g_mutex_unlock(&text->lock);
    }
    text->start_version = version;
    return 0;
}
