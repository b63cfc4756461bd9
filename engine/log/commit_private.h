/* A commit that is under way: what commit.c (its steps) and commit_frames.c (its frames) share. By the committer. */
#ifndef NRD_LOG_COMMIT_PRIVATE_H
#define NRD_LOG_COMMIT_PRIVATE_H

#include "engine/log/frames/frame_writer.h"
#include "engine/log/log_private.h"
#include "engine/log/segments/frame_cache.h"

/* A frame that was written, as far as the steps after the write need it. */
typedef struct NrdWritten {
    uint8_t header[NRD_FRAME_HEADER_BYTES];
    uint64_t stored_bytes;
    uint32_t crc;
    uint32_t n_records;
    uint64_t text_bytes;
    NrdFrameData *frame; /* a reference, or NULL: for the cache */
} NrdWritten;

typedef struct NrdCommit {
    NrdLog *log;
    NrdSegment *active;
    int fd;            /* pinned */
    uint64_t pos;      /* the active segment's size before */
    uint64_t offset;   /* the first record's */
    int64_t now_ms;    /* what the clock said */
    int64_t commit_ms; /* the same, or the newest that the log has seen when that is later */
    bool keep;         /* somebody reads at the tail: the frames go into the cache */
    GArray *written;   /* NrdWritten */
} NrdCommit;

GArray *nrd_commit_written_new(void); /* g_array_unref */

/* Behind the last committed byte, and zeros behind them. On failure some of it may be written. */
int nrd_commit_write_frames(NrdCommit *c, GPtrArray *plans, const NrdLogSettings *settings) NRD_MUST_CHECK;

/* Reads them back; -EIO when they are not what was written. */
int nrd_commit_verify_frames(const NrdCommit *c) NRD_MUST_CHECK;

/* Lets who reads at the tail find the frames in memory; visible by now, so nothing that may be cut gets there. */
void nrd_commit_fill_cache(const NrdCommit *c);

#endif
