/* engine.h: reading a log without consuming it: as text, record by record, by time, as segment files. */
#ifndef NRD_ENGINE_ENGINE_READ_H
#define NRD_ENGINE_ENGINE_READ_H

#include "engine/engine_types.h"

typedef enum NrdFrom { NRD_FROM_START, NRD_FROM_END, NRD_FROM_OFFSET } NrdFrom;

/* The log as text: payloads, one line each, from the oldest record at the time of the open, from the high watermark of
 * that time, or from `offset` on (-ENOENT outside [oldest, high watermark]). See NrdText in log/log.h. It pins the
 * partition. -EIDRM, -EIO. May open the partition. */
int nrd_reader_open(NrdPartition *partition, NrdFrom from, uint64_t offset, NrdReader **ret_reader) NRD_MUST_CHECK;
uint64_t nrd_reader_size(NrdReader *reader); /* never blocks on the disk */
int nrd_reader_read(NrdReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size) NRD_MUST_CHECK;
void nrd_reader_close(NrdReader *reader);

/* The log from the oldest record on, in a rendering; then as above, but for the size: it is measured, which may take a
 * read of every record that was not measured before. See NrdRendered in log/reading/reading.h. */
int nrd_reader_open_rendered(NrdPartition *partition, const NrdRendering *rendering,
                             NrdReader **ret_reader) NRD_MUST_CHECK;

/* Bytes readable now, of a rendered reader. Blocks. -EIDRM, -ENODEV, -EIO. */
int nrd_reader_measure(NrdReader *reader, uint64_t *ret_size) NRD_MUST_CHECK;

/* Whether a read of a rendered reader at pos would measure whole segments first. Memory only. */
bool nrd_reader_waits(NrdReader *reader, uint64_t pos);

/* What a rendered reader opened now would have. Remembered for as long as nothing changes: a partition that is closed is
 * opened only when it is not known, and closed again. Blocks. */
int nrd_partition_rendered_bytes(NrdPartition *partition, const NrdRendering *rendering,
                                 uint64_t *ret_bytes) NRD_MUST_CHECK;

/* A record of one's own, copied. */
typedef struct NrdRecord {
    uint64_t offset;
    int64_t timestamp_ms; /* commit time, Unix milliseconds */
    uint8_t *key;
    size_t key_size; /* 0: no key */
    uint8_t *payload;
    size_t payload_size;
} NrdRecord;

/* Reads the committed record at offset: -ENOENT outside [oldest, high watermark), -EBADMSG damaged, -EIO, -EIDRM. Blocks;
 * may open the partition. The caller gives *ret_record to nrd_record_clear. */
int nrd_partition_record(NrdPartition *partition, uint64_t offset, NrdRecord *ret_record) NRD_MUST_CHECK;
void nrd_record_clear(NrdRecord *record);

/* The first offset committed at or after time_ms (Unix milliseconds), the high watermark when there is none yet. Blocks;
 * may open the partition. */
int nrd_partition_find_time(NrdPartition *partition, int64_t time_ms, uint64_t *ret_offset) NRD_MUST_CHECK;

/* A segment file as it may be shown: the bytes up to its last committed frame. */
typedef struct NrdSegmentView {
    uint64_t base;
    uint64_t size_bytes;
    int64_t last_ms; /* commit time of its newest record, 0 when it has none */
    bool sealed;     /* it never changes again */
} NrdSegmentView;

/* The retained segments, oldest first (NrdSegmentView; g_array_unref). Blocks; may open the partition. */
int nrd_partition_segments(NrdPartition *partition, GArray **ret_views) NRD_MUST_CHECK;

typedef struct NrdSegmentReader NrdSegmentReader;

/* Opens the segment whose first offset is base: -ENOENT. Pins the partition; what retention deletes meanwhile stays
 * readable. May open the partition. */
int nrd_segment_reader_open(NrdPartition *partition, uint64_t base, NrdSegmentReader **ret_reader) NRD_MUST_CHECK;
void nrd_segment_reader_view(NrdSegmentReader *reader, NrdSegmentView *ret_view); /* never blocks on the disk */
int nrd_segment_reader_read(NrdSegmentReader *reader, uint64_t pos, void *buf, size_t size,
                            size_t *ret_size) NRD_MUST_CHECK;
void nrd_segment_reader_close(NrdSegmentReader *reader);

#endif
