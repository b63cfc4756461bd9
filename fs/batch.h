/* Many records in one reply. Belongs to the thread that makes the reply. */
#ifndef NRD_FS_BATCH_H
#define NRD_FS_BATCH_H

#include "fs/fs_private.h"

typedef struct NrdReplyBatch {
    NrdHandle *handle;
    char *bytes;
    size_t size; /* of the read's buffer, and of bytes */
    size_t used;
    NrdBatch batch; /* its holds are those of the records in bytes */
} NrdReplyBatch;

/* copy is the one of NrdBatch, called with the reply batch: it appends to bytes. sure: as in NrdBatch. */
void nrd_reply_batch_init(NrdReplyBatch *reply, NrdHandle *handle, size_t size,
                          size_t (*copy)(void *user_data, const NrdDelivery *delivery), bool sure);
void nrd_reply_batch_clear(NrdReplyBatch *reply);

/* Adds what is there and fits, without waiting: 0 or the error that ended it. */
int nrd_reply_batch_fill(NrdReplyBatch *reply) NRD_MUST_CHECK;

/* Replies; the records go back if nobody waits for it any more. */
void nrd_reply_batch_send(NrdReplyBatch *reply, fuse_req_t req);

#endif
