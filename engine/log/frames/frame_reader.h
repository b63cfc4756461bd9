/* Reads one frame after another of a segment and checks each in full. It keeps a window of file bytes, so that frames
 * in a row cost at most one disk read each, and many small ones share one.
 *
 * Bytes below limit_pos (what the caller passes) must not change while they are kept: callers pass the end of what is
 * committed or, in recovery, of a file that nobody writes. One thread at a time. */
#ifndef NRD_LOG_FRAME_READER_H
#define NRD_LOG_FRAME_READER_H

#include "engine/base/macros.h"
#include "engine/log/frames/buffer.h"
#include "engine/log/frames/frame.h"
#include "engine/log/frames/record.h"

#include <stdbool.h>
#include <stdint.h>

/* Why a frame was refused. */
typedef enum NrdFrameFault {
    NRD_FRAME_GOOD,
    NRD_FRAME_CUT,          /* not 27 bytes left, or its extent passes the limit */
    NRD_FRAME_BAD_HEADER,   /* not plausible */
    NRD_FRAME_BAD_CRC,      /* plausible, but not the bytes that were written */
    NRD_FRAME_WRONG_OFFSET, /* whole, but not the frame that belongs here */
    NRD_FRAME_BAD_RECORDS,  /* whole, but it does not decode to its records */
} NrdFrameFault;

/* Zeroed: empty. */
typedef struct NrdFrameReader {
    /* bytes [window_pos, window_pos + window_size) of the file */
    NrdBuffer window;
    uint64_t window_pos;
    size_t window_size;
    NrdBuffer decoded; /* of a compressed frame */
    size_t last_total; /* bytes of the frame read last: the next one is likely as long */

    /* the frame that was loaded last; valid until the next call, when loaded */
    bool loaded;
    NrdFrameHeader header; /* also after a fault other than CUT and BAD_HEADER */
    const uint8_t *payload;
    size_t payload_size;
    NrdFrameSummary summary;
    uint64_t pos;
    uint64_t end_pos;
    NrdFrameFault fault;
} NrdFrameReader;

/* What to read. */
typedef struct NrdFrameWant {
    int fd;
    uint64_t pos;
    uint64_t limit_pos;  /* no byte at or above is looked at */
    uint64_t offset;     /* that the frame must begin with */
    uint64_t end_offset; /* records at or above are not counted in the summary */
    size_t ahead_bytes;  /* read this much at least, for the frames that follow */
} NrdFrameWant;

/* Loads the frame at want->pos. -EBADMSG: reader->fault says why; -ENOMEM; else what the disk says. */
int nrd_frame_reader_load(NrdFrameReader *reader, const NrdFrameWant *want) NRD_MUST_CHECK;

/* Makes bytes [pos, pos + size) of the file available at *ret_bytes until the next call; *ret_size is smaller only when
 * limit_pos or the file's end comes first. */
int nrd_frame_reader_peek(NrdFrameReader *reader, const NrdFrameWant *want, uint64_t pos, size_t size,
                          const uint8_t **ret_bytes, size_t *ret_size) NRD_MUST_CHECK;

/* The record at *pos of the loaded frame, which has one there, and moves *pos behind it. The view is valid as long as the
 * frame; its offset is not set. Pure: the frame was checked when it was loaded. */
static inline void nrd_frame_reader_next_record(const NrdFrameReader *reader, size_t *pos, NrdRecordView *ret_view)
{
    const uint8_t *envelope = NULL;
    size_t size = 0;

    g_assert(reader->loaded);
    bool more = nrd_frame_next_record(reader->payload, reader->payload_size, pos, &envelope, &size);
    int r = more ? nrd_record_parse(envelope, size, ret_view) : -EBADMSG;
    g_assert(r == 0);
}

/* Behind the loaded frame, the place of the first one that is not whole in the window, and the record that it begins with.
 * The headers on the way are not checked: what they say may be wrong. Pure. */
void nrd_frame_reader_behind_window(const NrdFrameReader *reader, uint64_t *ret_pos, uint64_t *ret_offset);

/* Forgets what was read, so that the next load looks at the file again; keeps the memory. */
void nrd_frame_reader_forget(NrdFrameReader *reader);

/* Forgets and gives the memory back. */
void nrd_frame_reader_clear(NrdFrameReader *reader);

#endif
