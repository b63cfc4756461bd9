/* What the handles of one consuming node share: the leases they hold, and records read in part.
 *
 * Records are identified by partition, offset and nonce. The engine decides whether a lease lives; here is only what was handed
 * out and not yet settled. Threads: any; functions that settle call the engine with no lock held. */
#ifndef NRD_FS_STREAM_H
#define NRD_FS_STREAM_H

#include "fs/fs_private.h"
#include "fs/lines.h"

typedef struct NrdStream NrdStream;

/* handle->state of a consuming file. */
typedef struct NrdStreamHandle {
    NrdStream *stream; /* referenced */
    NrdLines lines;    /* guarded by the handle's lock */
} NrdStreamHandle;

/* Open, destroy, release and poll of a consuming file. */
int nrd_stream_open(NrdHandle *handle);
void nrd_stream_destroy(NrdHandle *handle);
void nrd_stream_release(NrdHandle *handle, bool last);
uint32_t nrd_stream_poll(NrdHandle *handle);

static inline NrdStream *nrd_handle_stream(const NrdHandle *handle)
{
    return ((NrdStreamHandle *)handle->state)->stream;
}

/* The kernel cuts a read(2) longer than its limit (1 MiB, less from a buffer that begins within a page) into requests, and
 * sends the next one when the last was filled to its end. A stream has no position: what begins a read(2) is at 0, and what
 * is behind 0 goes on with one whose bytes so far the caller will get whatever the rest says. */
static inline bool nrd_stream_goes_on(off_t off)
{
    return off > 0;
}

/* Answers a read with what is left of a record read in part. When that completes the record and `receipts` is not set
 * it counts as delivered; with receipts its lease is the reader's. false: there is none, nothing replied. A request that
 * goes on with a read(2) (above) gets that or nothing, and is always answered: it must not wait for another record, take
 * one to the first, nor settle what its own read(2) brings. */
bool nrd_stream_reply_rest(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, bool receipts);

/* The payload as a line; g_string_free. */
GString *nrd_stream_line(const NrdDelivery *delivery);

/* A record handed over whole. */
void nrd_stream_hold(NrdStream *stream, NrdHold lease);

/* Records handed over whole (NrdHold, whose note is used). */
void nrd_stream_hold_all(NrdStream *stream, GArray *leases);

/* Lets go of leases that were handed over and have lapsed, once there are many, so that a reader who never settles anything
 * takes no memory for them: the next settling of all says -ESTALE for them. Before a record is handed over. */
void nrd_stream_forget_lapsed(NrdHandle *handle);

/* How many leases are kept for the handle's node. Takes the stream's lock alone. */
uint64_t nrd_stream_n_held(NrdHandle *handle);

/* A record of which pos bytes are handed over; takes text. */
void nrd_stream_hold_rest(NrdStream *stream, NrdHold lease, GString *text, size_t pos);

/* Gives records back (NrdHold) whose reader is gone. */
void nrd_stream_give_back(NrdHandle *handle, NrdHold lease);
void nrd_stream_give_back_all(NrdHandle *handle, const GArray *leases);

/* Acts on everything fully delivered, one after the other, whatever becomes of the others: 0, or the first error. What the
 * full acked-ahead set refuses stays held (-EAGAIN). -ESTALE tells once of leases that had lapsed, and are not held any
 * more; when another error has to be told, the next call tells of them. */
int nrd_stream_settle_delivered(NrdHandle *handle, NrdVerb verb) NRD_MUST_CHECK;

/* Settles everything fully delivered, and makes it durable: as above, or the failure of the disk; then what the partitions
 * that failed have delivered stays held, unsettled. Blocks. */
int nrd_stream_settle_durably(NrdHandle *handle) NRD_MUST_CHECK;

/* Settles one record: -ESTALE when it is not held. partition may be NRD_NO_PARTITION: then the one that is held with that
 * offset, -EINVAL when records of several partitions are. */
int nrd_stream_settle_record(NrdHandle *handle, NrdVerb verb, int64_t partition, uint64_t offset) NRD_MUST_CHECK;

/* One line about a line of `ack` or `consume` (line[0..size)) that did not take effect; nothing when error is 0. */
void nrd_log_settle_refused(NrdPlace place, const char *line, size_t size, int error);

/* The same about an fsync that could not settle all. */
void nrd_log_sync_refused(NrdPlace place, int error);

/* Makes what is settled durable, then replies: before, if not 0, else the result. */
void nrd_stream_reply_synced(NrdHandle *handle, fuse_req_t req, int before);

#endif
