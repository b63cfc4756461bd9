/* Reading a partition beside its consumers: as text, record by record, by time, and as segment files. Each reader pins its
 * partition as long as it lives, and so the topic. */
#include "engine/partition.h"

#include <errno.h>

/* A log that was closed answers only that, and measuring is given up for it; here it gets its name. */
static int reading_error(NrdPartition *partition, int rc)
{
    return rc == -ESHUTDOWN || rc == -ECANCELED ? nrd_partition_closed_error(partition) : rc;
}

static int begin(NrdPartition *partition)
{
    int rc = nrd_partition_pin(partition);
    if (rc == 0)
        nrd_topic_ref(partition->topic);
    return rc;
}

static void end(NrdPartition *partition)
{
    NrdTopic *topic = partition->topic;
    nrd_partition_unpin(partition);
    nrd_topic_unref(topic);
}

/* ---- as text ---- */

struct NrdReader {
    const NrdEngineTable *table; /* first: see table.h */
    NrdPartition *partition;     /* pinned; holds a reference to its topic */
    NrdText *text;               /* or */
    NrdRendered *rendered;       /* the other one is NULL */
};

static int open_text(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdText **ret_text)
{
    NrdLog *log = atomic_load(&partition->log);
    switch (from) {
    case NRD_FROM_END:
        return nrd_text_open_from(log, nrd_log_hwm(log), ret_text);
    case NRD_FROM_OFFSET:
        return nrd_text_open_from(log, offset, ret_text);
    default:
        return nrd_text_open(log, ret_text);
    }
}

int nrd_local_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader)
{
    NrdText *text = NULL;
    int rc = begin(partition);
    if (rc < 0)
        return rc;
    rc = reading_error(partition, open_text(partition, from, offset, &text));
    if (rc < 0) {
        end(partition);
        return rc;
    }
    NrdReader *reader = g_new(NrdReader, 1);
    *reader = (NrdReader){ .table = &nrd_local_table, .partition = partition, .text = text };
    *ret_reader = reader;
    return 0;
}

uint64_t nrd_local_reader_size(NrdReader *reader)
{
    return nrd_text_size(reader->text);
}

int nrd_local_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    int rc = nrd_partition_usable(reader->partition);
    if (rc == 0 && reader->text)
        rc = nrd_text_read(reader->text, pos, buf, size, ret_size);
    else if (rc == 0)
        rc = nrd_rendered_read(reader->rendered, pos, buf, size, ret_size);
    return reading_error(reader->partition, rc);
}

void nrd_local_reader_close(NrdReader *reader)
{
    nrd_text_close(reader->text);
    nrd_rendered_close(reader->rendered);
    end(reader->partition);
    g_free(reader);
}

/* ---- in a rendering ---- */

/* Measuring may take long: it ends with the partition's service. */
static bool is_unusable(void *data)
{
    NrdPartition *partition = data;
    return nrd_partition_usable(partition) < 0 || atomic_load(&partition->topic->engine->stopping);
}

int nrd_local_reader_open_rendered(NrdPartition *partition, const NrdRendering *rendering, NrdReader **ret_reader)
{
    NrdRenderedWant want = { rendering, is_unusable, partition };
    NrdRendered *rendered = NULL;
    int rc = begin(partition);
    if (rc < 0)
        return rc;
    rc = reading_error(partition, nrd_rendered_open(atomic_load(&partition->log), &want, &rendered));
    if (rc < 0) {
        end(partition);
        return rc;
    }
    NrdReader *reader = g_new(NrdReader, 1);
    *reader = (NrdReader){ .table = &nrd_local_table, .partition = partition, .rendered = rendered };
    *ret_reader = reader;
    return 0;
}

int nrd_local_reader_measure(NrdReader *reader, uint64_t *ret_size)
{
    int rc = nrd_partition_usable(reader->partition);
    if (rc == 0)
        rc = nrd_rendered_size(reader->rendered, ret_size);
    return reading_error(reader->partition, rc);
}

bool nrd_local_reader_waits(NrdReader *reader, uint64_t pos)
{
    return reader->rendered && nrd_rendered_waits(reader->rendered, pos);
}

/* What the partition holds now, as far as its length depends on it. */
static NrdMeasured holding(NrdPartition *partition, const NrdRendering *rendering)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    NrdMeasured now = { rendering, info.oldest_offset, info.hwm, info.text_bytes, 0 };
    nrd_partition_info_clear(&info);
    return now;
}

static bool is_same(const NrdMeasured *a, const NrdMeasured *b)
{
    return a->rendering == b->rendering && a->oldest_offset == b->oldest_offset && a->hwm == b->hwm &&
           a->text_bytes == b->text_bytes;
}

static bool is_remembered(NrdPartition *partition, const NrdMeasured *now, uint64_t *ret_bytes)
{
    g_mutex_lock(&partition->state_lock);
    bool same = is_same(&partition->measured, now);
    if (same)
        *ret_bytes = partition->measured.bytes;
    g_mutex_unlock(&partition->state_lock);
    return same;
}

static void remember(NrdPartition *partition, NrdMeasured now, uint64_t bytes)
{
    now.bytes = bytes;
    g_mutex_lock(&partition->state_lock);
    partition->measured = now;
    g_mutex_unlock(&partition->state_lock);
}

/* What a clean close has left on the disk of a log that had been measured, if it is what the partition holds. */
static bool is_on_disk(NrdPartition *partition, const NrdMeasured *now, uint64_t *ret_bytes)
{
    NrdLogStats stats;
    uint64_t bytes;
    bool known = false;
    if (nrd_partition_is_open(partition))
        return false;
    if (nrd_log_peek_rendered(partition->topic->engine->root_fd, partition->dir, now->rendering, &stats, &bytes,
                              &known) < 0)
        return false; /* an open tells why */
    NrdMeasured there = { now->rendering, stats.oldest_offset, stats.hwm, stats.text_bytes, bytes };
    if (!known || !is_same(&there, now))
        return false;
    *ret_bytes = bytes;
    return true;
}

static int measure(NrdPartition *partition, const NrdRendering *rendering, uint64_t *ret_bytes)
{
    NrdReader *reader;
    int rc = nrd_reader_open_rendered(partition, rendering, &reader);
    if (rc < 0)
        return rc;
    uint64_t bytes = 0;
    NrdMeasured before = holding(partition, rendering);
    rc = nrd_reader_measure(reader, &bytes);
    NrdMeasured after = holding(partition, rendering);
    nrd_reader_close(reader);
    if (rc < 0)
        return rc;
    if (is_same(&before, &after)) /* else nobody knows what exactly was measured; the size is right all the same */
        remember(partition, after, bytes);
    *ret_bytes = bytes;
    return 0;
}

int nrd_local_partition_rendered_bytes(NrdPartition *partition, const NrdRendering *rendering, uint64_t *ret_bytes)
{
    NrdMeasured now = holding(partition, rendering);
    if (now.text_bytes == 0) { /* every record has a newline in it */
        *ret_bytes = 0;
        return 0;
    }
    if (is_remembered(partition, &now, ret_bytes))
        return 0;
    if (is_on_disk(partition, &now, ret_bytes)) {
        remember(partition, now, *ret_bytes);
        return 0;
    }
    bool was_open = nrd_partition_is_open(partition);
    int rc = measure(partition, rendering, ret_bytes);
    if (!was_open)
        (void)nrd_partition_close_idle(partition, 0, true); /* who looked at it does not use it */
    return rc;
}

/* ---- one record ---- */

static int copy_record(const NrdRecordView *view, NrdRecord *ret_record)
{
    NrdRecord record = { .offset = view->offset, .timestamp_ms = view->commit_ms };
    record.key = g_try_malloc(view->key_size + 1);
    record.payload = g_try_malloc(view->payload_size + 1);
    if (!record.key || !record.payload) {
        nrd_record_clear(&record);
        return -ENOMEM;
    }
    if (view->key_size > 0)
        memcpy(record.key, view->key, view->key_size);
    if (view->payload_size > 0)
        memcpy(record.payload, view->payload, view->payload_size);
    record.key_size = view->key_size;
    record.payload_size = view->payload_size;
    *ret_record = record;
    return 0;
}

int nrd_local_partition_record(NrdPartition *partition, uint64_t offset, NrdRecord *ret_record)
{
    NrdRecordView view;
    uint64_t next_offset;
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    NrdLogCursor *cursor = nrd_log_cursor_new(atomic_load(&partition->log));
    rc = reading_error(partition, nrd_log_cursor_read(cursor, offset, &view, &next_offset));
    if (rc == 0)
        rc = copy_record(&view, ret_record);
    nrd_log_cursor_free(cursor);
    nrd_partition_unpin(partition);
    return rc;
}

void nrd_record_clear(NrdRecord *record)
{
    g_clear_pointer(&record->key, g_free);
    g_clear_pointer(&record->payload, g_free);
}

int nrd_local_partition_find_time(NrdPartition *partition, int64_t time_ms, uint64_t *ret_offset)
{
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    rc = nrd_log_find_time(atomic_load(&partition->log), time_ms, ret_offset);
    nrd_partition_unpin(partition);
    return reading_error(partition, rc);
}

/* ---- as segment files ---- */

static NrdSegmentView view_of(const NrdSegmentInfo *info)
{
    return (NrdSegmentView){ info->base, info->size_bytes, info->last_ms, info->sealed };
}

int nrd_local_partition_segments(NrdPartition *partition, GArray **ret_views)
{
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    g_autoptr(GArray) infos = nrd_log_segment_infos(atomic_load(&partition->log));
    nrd_partition_unpin(partition);
    GArray *views = g_array_sized_new(FALSE, FALSE, sizeof(NrdSegmentView), infos->len);
    for (guint i = 0; i < infos->len; i++) {
        NrdSegmentView view = view_of(&g_array_index(infos, NrdSegmentInfo, i));
        g_array_append_val(views, view);
    }
    *ret_views = views;
    return 0;
}

int nrd_local_partition_lost_ranges(NrdPartition *partition, GArray **ret_ranges)
{
    int rc = nrd_partition_pin(partition);
    if (rc < 0)
        return rc;
    g_autoptr(GArray) gaps = nrd_log_gaps(atomic_load(&partition->log));
    nrd_partition_unpin(partition);
    GArray *ranges = g_array_sized_new(FALSE, FALSE, sizeof(NrdLostRange), gaps->len);
    for (guint i = 0; i < gaps->len; i++) {
        const NrdGap *gap = &g_array_index(gaps, NrdGap, i);
        NrdLostRange range = { gap->offset, gap->end_offset };
        g_array_append_val(ranges, range);
    }
    *ret_ranges = ranges;
    return 0;
}

struct NrdSegmentReader {
    const NrdEngineTable *table; /* first: see table.h */
    NrdPartition *partition;     /* pinned; holds a reference to its topic */
    NrdRaw *raw;
};

int nrd_local_segment_reader_open(NrdPartition *partition, uint64_t base, NrdSegmentReader **ret_reader)
{
    NrdRaw *raw = NULL;
    int rc = begin(partition);
    if (rc < 0)
        return rc;
    rc = reading_error(partition, nrd_raw_open(atomic_load(&partition->log), base, &raw));
    if (rc < 0) {
        end(partition);
        return rc;
    }
    NrdSegmentReader *reader = g_new(NrdSegmentReader, 1);
    *reader = (NrdSegmentReader){ .table = &nrd_local_table, partition, raw };
    *ret_reader = reader;
    return 0;
}

void nrd_local_segment_reader_view(NrdSegmentReader *reader, NrdSegmentView *ret_view)
{
    NrdSegmentInfo info;
    nrd_raw_info(reader->raw, &info);
    *ret_view = view_of(&info);
}

int nrd_local_segment_reader_read(NrdSegmentReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    int rc = nrd_partition_usable(reader->partition);
    if (rc == 0)
        rc = nrd_raw_read(reader->raw, pos, buf, size, ret_size);
    return reading_error(reader->partition, rc);
}

void nrd_local_segment_reader_close(NrdSegmentReader *reader)
{
    nrd_raw_close(reader->raw);
    end(reader->partition);
    g_free(reader);
}
