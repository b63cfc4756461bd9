/* What the consuming files that wait for records share. */
#ifndef NRD_FS_CONSUME_H
#define NRD_FS_CONSUME_H

#include "fs/park.h"

/* Takes a record for the read as the topic's settings, the descriptor's flags and the kernel's limit on a request's time
 * say; done replies. */
void nrd_consume_park(NrdHandle *handle, fuse_req_t req, size_t size, int flags, NrdParkFn done);

/* Replies with a record, or as much of it as fits: the rest is for later reads. Takes text. receipts: who has the record
 * has its lease, else the open file has it. */
void nrd_consume_hand_over(NrdHandle *handle, fuse_req_t req, size_t size, const NrdDelivery *delivery, GString *text,
                           bool receipts);

#endif
