/* Parked reads: a READ waits for a record without holding a thread. */
#ifndef NRD_FS_PARK_H
#define NRD_FS_PARK_H

#include "fs/fs_private.h"

/* Ends a read: has to reply to req. error is the engine's, delivery NULL then. Any thread, no lock held. */
typedef void (*NrdParkFn)(NrdHandle *handle, fuse_req_t req, size_t size, int error, const NrdDelivery *delivery);

/* Takes a record for the read, waiting up to wait_ms (0: not at all, -1: for ever); timeout_error (negative, or 0 for
 * an end of file) is what the reader gets when there is none. The reader's signals end the wait with EINTR. */
void nrd_park_read(NrdHandle *handle, fuse_req_t req, size_t size, int64_t wait_ms, int timeout_error, NrdParkFn done);

#endif
