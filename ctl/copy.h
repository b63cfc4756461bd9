/* What the files of `naradctl copy` share: the job, a partition's part of it, a stream of records, a tally of them.
 *
 * copy.c         the verb: threads, one partition each at a time, and what is printed
 * copy_topic.c   the target: made, set, looked at, kept for this copy
 * copy_part.c    one partition: what is there is compared, the rest is written, all of it is verified
 * copy_write.c   batches of records into the target
 * copy_cursor.c  where consumers go on
 * copy_stream.c  records out of `log.bin`
 *
 * A record is counted when it is read in the source, and again when it has been read back in the target; progress is both. */
#ifndef NRD_CTL_COPY_H
#define NRD_CTL_COPY_H

#include "ctl/tree.h"
#include "engine/base/macros.h"

#include <glib.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- records ---- */

/* The pointers are the stream's, until its next call. */
typedef struct NrdCopyRecord {
    uint64_t offset;
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdCopyRecord;

bool nrd_copy_record_same(const NrdCopyRecord *a, const NrdCopyRecord *b); /* key and payload */

/* Appends the record as `produce.bin` takes it. */
void nrd_copy_record_put(GByteArray *out, const NrdCopyRecord *record);

/* Reads `log.bin` of a partition's folder, from its oldest record on. Negative errno; blocks. */
typedef struct NrdCopyStream NrdCopyStream;
int nrd_copy_stream_open(const char *partition_dir, NrdCopyStream **ret_stream) NRD_MUST_CHECK;
void nrd_copy_stream_free(NrdCopyStream *stream); /* takes NULL */

/* The next record; *ret_found false: that was all for now, and another call later may find more. -EBADMSG: no record. */
int nrd_copy_stream_next(NrdCopyStream *stream, NrdCopyRecord *ret_record, bool *ret_found) NRD_MUST_CHECK;

/* How many records, and SHA-256 over them as `produce.bin` takes them: offsets and times are not in it. */
typedef struct NrdCopyTally {
    uint64_t n;
    GChecksum *sum;
} NrdCopyTally;

void nrd_copy_tally_init(NrdCopyTally *tally);
void nrd_copy_tally_add(NrdCopyTally *tally, const NrdCopyRecord *record);
char *nrd_copy_tally_text(const NrdCopyTally *tally); /* of all so far, in hex; g_free */
void nrd_copy_tally_clear(NrdCopyTally *tally);

/* ---- the job ---- */

typedef struct NrdCopyJob {
    NrdTreePlace from, to;
    bool follow;
    uint32_t batch_records; /* at most so many in a batch */
    uint64_t n_partitions;
    GPtrArray *notes;        /* sentences about settings */
    int kept_fd;             /* see nrd_copy_keep */
    atomic_bool failed;      /* of some partition: the others stop at their next batch */
    _Atomic uint64_t n_done; /* for progress */
    _Atomic uint64_t n_total;
    _Atomic uint64_t n_written;
    _Atomic uint64_t n_compared; /* with what was there already */
    atomic_uint n_comparing;     /* partitions that are not done with that */
} NrdCopyJob;

/* Makes the target, or looks at the one that is there; *ret_why (g_free) says why not. */
int nrd_copy_prepare(NrdCopyJob *job, char **ret_why) NRD_MUST_CHECK;

/* ---- a partition ---- */

/* Records that the source does not give: lost to damage, or taken by retention. */
typedef struct NrdCopyGap {
    uint64_t offset;
    uint64_t n;
} NrdCopyGap;

typedef struct NrdCopyPart {
    NrdCopyJob *job;
    unsigned number;
    char *from, *to; /* folders */
    NrdCopyStream *source, *target;
    int out_fd;                         /* `produce.bin` of the target */
    NrdCopyTally read;                  /* of the source */
    NrdCopyTally there;                 /* read in the target */
    uint64_t first_offset, next_offset; /* in the source; records with gaps between them */
    GArray *gaps;                       /* of NrdCopyGap, by offset */
    GByteArray *batch;
    GArray *batch_ends; /* where in the batch each record ends, and its offset in the source: NrdCopyMark */
    uint64_t n_stored;  /* in the target, as far as this knows */
    uint64_t n_new;     /* written by this run */
    bool moved;         /* the source has got more */
    uint64_t frontier;  /* of the source; */
    uint64_t frontier_there;
    uint64_t n_ahead; /* settled in the source above its frontier */
    bool is_ahead;    /* consumers of the target had come further: nothing was moved */
    int error;        /* how it ended, and */
    char *why;        /* why; g_free */
} NrdCopyPart;

typedef struct NrdCopyMark {
    size_t end;
    uint64_t offset;
    size_t key_size, payload_size;
} NrdCopyMark;

void nrd_copy_part_init(NrdCopyPart *part, NrdCopyJob *job, unsigned number);
void nrd_copy_part_clear(NrdCopyPart *part);

/* All of it; the result is part->error. Runs on a thread of its own. */
void nrd_copy_part_run(NrdCopyPart *part);

/* Notes the failure: error, and a sentence that is taken over. Returns error. */
int nrd_copy_part_fail(NrdCopyPart *part, int error, char *why);

/* copy_write.c: opens the target's file and commits what an earlier run may have left in the daemon; adds a record, which
 * commits when a batch is full; commits. */
int nrd_copy_write_open(NrdCopyPart *part) NRD_MUST_CHECK;
int nrd_copy_write(NrdCopyPart *part, const NrdCopyRecord *record) NRD_MUST_CHECK;
int nrd_copy_write_commit(NrdCopyPart *part) NRD_MUST_CHECK;

/* copy_cursor.c: what the target's frontier becomes for an offset of the source. Pure. And: makes it so. */
uint64_t nrd_copy_index(const NrdCopyPart *part, uint64_t offset);
int nrd_copy_cursor(NrdCopyPart *part) NRD_MUST_CHECK;

#endif
