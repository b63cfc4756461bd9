/* What stream.c (what is held, and records read in part) and stream_settle.c (settling it) share. */
#ifndef NRD_FS_STREAM_PRIVATE_H
#define NRD_FS_STREAM_PRIVATE_H

#include "fs/held.h"
#include "fs/stream.h"

/* The note of a lease that is held: whether all of the record was delivered. */
enum { NRD_IN_PART, NRD_DELIVERED };

/* So many leases are kept before it is looked which of them have lapsed, and twice as many as lived then before the next
 * look: a delivery costs O(1) on average. */
#define NRD_STREAM_LOOK_AT 4096

struct NrdStream {
    gint n_refs; /* atomic */
    /* guarded by lock */
    GMutex lock;
    NrdHeld *held; /* a newer lease replaces a lapsed one */
    GQueue rests;  /* of records read in part, oldest first */
    guint look_at; /* number of leases at which to look for lapsed ones */
    bool forgot;   /* lapsed leases were let go, and nobody has been told */
};

/* The lease of that record, if it is the one that is held. */
NrdHold *nrd_stream_find_locked(NrdStream *stream, NrdHold lease);
void nrd_stream_hold_locked(NrdStream *stream, NrdHold lease, uint32_t note);
/* It is held no more, nor is what is left of its record. */
void nrd_stream_drop_locked(NrdStream *stream, NrdHold lease);

/* Gives leases back (NrdHold), whether they are still known here or not; one that has lapsed is nobody's loss. */
void nrd_stream_nack_all(NrdHandle *handle, const GArray *leases);

#endif
