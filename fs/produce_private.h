/* What produce.c (opening, writing, closing) and produce_sync.c (fsync, and what each close of a descriptor does) share. */
#ifndef NRD_FS_PRODUCE_PRIVATE_H
#define NRD_FS_PRODUCE_PRIVATE_H

#include "fs/framing.h"
#include "fs/fs_private.h"
#include "fs/sink.h"

/* handle->state of a producing file; guarded by the handle's lock. */
typedef struct NrdProduceFile {
    NrdSink sink; /* none: opened for reading only, and never synced */
    NrdFraming framing;
    uint64_t n_writes; /* requests taken, and how many of them a successful sync has covered */
    uint64_t n_synced;
    /* A synchronous write that failed: its records stay in the buffer, so the same request coming again is synced
     * without being taken a second time. */
    bool failed;
    size_t failed_size;
    uint64_t failed_hash;
    size_t failed_taken;
} NrdProduceFile;

/* Ends what the handle has not ended, into sink: see nrd_framing_end. */
int nrd_produce_file_end_locked(NrdHandle *handle, NrdFramingEnd when, NrdSink sink) NRD_MUST_CHECK;

/* Why a record of it was refused (g_free): a phrase for the log. Under the handle's lock. */
char *nrd_produce_file_why(NrdHandle *handle);

/* ---- produce_sync.c ---- */

void nrd_produce_file_flush(NrdHandle *handle, fuse_req_t req);
void nrd_produce_file_fsync(NrdHandle *handle, fuse_req_t req);

#endif
