/* The ingress: what topics are produced to as a whole goes into one WAL, and from there to the partitions.
 *
 * An append is acknowledged when the WAL holds it durably. The dispatcher then commits its parts, per partition in the
 * order of the WAL, several parts in one commit, partitions beside each other on a few workers. A part whose commit fails
 * is tried again for ever, with a growing delay; after three failed passes, or at once when its partition is poisoned, it
 * goes to a sibling. What is done is written to a checkpoint behind the commits; what a crash leaves unfinished is
 * dispatched again by the next start.
 *
 * A full disk. An append is refused (-ENOSPC) when the disk would not have room for all that is undispatched, and what the
 * append brings, once more, and a little (admission.h); before that the WAL gives back what it has of entries that are
 * done. So what was acknowledged finds room, unless somebody else takes it. Then it waits in the WAL, told once; each part
 * that is committed gives its entry's room back when the next one fails, so that it goes on as soon as one entry has room.
 *
 * Once or twice. While nobody else commits to a partition the offset of each part is known when its entry is written, and
 * stands in the entry; when it was not known then (the partition was closed, or claimed at the time), the checkpoint says
 * it before the part is committed. A replay looks there first: records that are there byte for byte are not committed
 * again. That the offsets are true is kept so: who wants to commit to a partition directly claims it first
 * (nrd_ingress_claim); while it is claimed no offset is named, and for parts that are under way the checkpoint takes the
 * names back, durably, before the claim is granted (its `trust`, and its list); likewise before a part goes to a sibling.
 * So what replay finds was put there by the dispatcher. What cannot be looked up, because its partition does not open, does
 * not go to a sibling: it waits there, and what is behind it goes on without it. A second copy of an acknowledged record is
 * possible only for a part that was committed after the last checkpoint before a crash while its partition was claimed, or
 * that a nameless ingress (see the options) has found or committed.
 *
 * Locks: claims and appends may block on the disk. The dispatcher's lock is taken after every lock of the engine that
 * may be held when these functions are called, and before those that next_offset and sibling take; no callback but those
 * two is called with it held. Threads: everything from any. */
#ifndef NRD_INGRESS_INGRESS_H
#define NRD_INGRESS_INGRESS_H

#include "engine/base/macros.h"
#include "engine/ingress/wal_entry.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct NrdIngress NrdIngress;

typedef enum NrdIngressResult {
    NRD_INGRESS_DONE,
    NRD_INGRESS_FAILED,   /* a failed pass: tried again */
    NRD_INGRESS_NO_ROOM,  /* the disk is full: tried again, here, since the others have no more */
    NRD_INGRESS_POISONED, /* pointless to try again here: goes to a sibling at once */
    NRD_INGRESS_AWAY,     /* the topic is out of service, or nobody can tell: kept */
    NRD_INGRESS_GONE,     /* the metastore says that the incarnation is gone: discarded */
} NrdIngressResult;

typedef struct NrdIngressTarget {
    const char *topic;
    const char *id; /* incarnation */
    uint32_t partition;
} NrdIngressTarget;

/* Records for nrd_entry_next_record. */
typedef struct NrdIngressSlice {
    const uint8_t *records;
    size_t size;
    uint32_t n_records;
} NrdIngressSlice;

/* What the engine does for the ingress. commit, warm and present block and are called by workers, no lock held. */
typedef struct NrdIngressOps {
    /* Commits all of it, in order and without anything between, or nothing. */
    NrdIngressResult (*commit)(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slices,
                               size_t n_slices, uint64_t *ret_first);
    /* Opens what has to be open for next_offset to know. May fail: then the commit says why. */
    void (*warm)(void *user_data, const NrdIngressTarget *target);
    /* Whether exactly these records stand at offset, committed, or left by a crash in the middle of their commit. */
    NrdIngressResult (*present)(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slice,
                                uint64_t offset, bool *ret_present);
    /* Another partition of the topic that seems well; false: there is none. Memory only. */
    bool (*sibling)(void *user_data, const NrdIngressTarget *target, uint32_t *ret_partition);
    /* The offset that the next commit will get; false: not known now. Memory only. */
    bool (*next_offset)(void *user_data, const NrdIngressTarget *target, uint64_t *ret_offset);
    void *user_data;
} NrdIngressOps;

typedef struct NrdIngressOptions {
    int root_fd; /* of the data directory; borrowed */
    NrdIngressOps ops;
    unsigned n_workers;     /* 0: 8; one from the open on, the others as they are needed */
    uint64_t segment_bytes; /* of the WAL; 0: 16 MiB */
    uint64_t
        memory_bytes;   /* of entries kept in memory until they are dispatched; what is more is read again; 0: 64 MiB */
    uint64_t max_parts; /* undispatched, before appends are refused; a topic gets a quarter of it; 0: 262144 */
    uint64_t max_bytes; /* the same, of their entries in the WAL; 0: 8 GiB */
    bool nameless;      /* somebody may have committed directly before the open: no offset is named or believed */
    int64_t checkpoint_ms; /* at most one checkpoint in so long; 0: 250 */
} NrdIngressOptions;

/* Reads the WAL and the checkpoint. What is unfinished, and what is appended before, waits for nrd_ingress_start. Blocks for
 * one read of the WAL. An error means that something could not be read (told in the log), or with -EAGAIN that the system
 * gave no thread (not told); nothing was changed. */
int nrd_ingress_open(const NrdIngressOptions *options, NrdIngress **ret_ingress) NRD_MUST_CHECK;

/* From now on the operations may be called. Never blocks. */
void nrd_ingress_start(NrdIngress *ingress);

/* Waits for the appends that are under way, then up to drain_ms until all is dispatched, ends the workers, writes the
 * checkpoint. Nobody begins to append or claim any more. What is left is for the next start. Takes NULL. An error (told
 * in the log): the checkpoint could not be written, and records that are committed may come twice at the next start. */
int nrd_ingress_close(NrdIngress *ingress, int64_t drain_ms);

/* Is told of each part that was committed, before the part counts as done; release comes when nothing more will be told
 * (also when the append fails). No lock held, any thread. All may be NULL. */
typedef struct NrdIngressSink {
    void (*committed)(void *user_data, uint32_t partition, uint64_t first, uint64_t last);
    void (*release)(void *user_data);
    void *user_data;
} NrdIngressSink;

typedef void (*NrdIngressDoneFn)(void *user_data, int error);

/* Appends the draft (still the caller's) durably, then calls done, maybe before it returns: 0; -EAGAIN when far too much
 * is undispatched, of the topic or of all, -ENOSPC when the disk has no room (both are told in the log once, and when they
 * are over), or what the disk says: -ENOSPC, -EDQUOT, else -EIO. Two appends of one caller keep their order when the second
 * follows the first's done. */
void nrd_ingress_append(NrdIngress *ingress, const NrdEntryDraft *draft, const char *topic, const char *id,
                        const NrdIngressSink *sink, NrdIngressDoneFn done, void *user_data);

/* Whether records of this incarnation are not dispatched yet. Memory only. */
bool nrd_ingress_holds(NrdIngress *ingress, const char *id);

/* The incarnation is gone: nothing is to be told of it any more. Memory only. */
void nrd_ingress_forget(NrdIngress *ingress, const char *id);

/* Why the topic's last append was refused, and the next one would be: -ENOSPC, -EAGAIN; 0: it was not, or there is room
 * now. Asks the file system how much is free. */
int nrd_ingress_refusal(NrdIngress *ingress, const char *id);

/* Somebody commits to the partition directly, from now on until unclaim. May block on the disk. An error: the offsets
 * that entries name could not be taken back. */
int nrd_ingress_claim(NrdIngress *ingress, const char *id, uint32_t partition) NRD_MUST_CHECK;
void nrd_ingress_unclaim(NrdIngress *ingress, const char *id, uint32_t partition);

/* Something may be well again: what waits is tried now. Memory only. */
void nrd_ingress_kick(NrdIngress *ingress);

typedef struct NrdIngressStats {
    uint64_t n_parts;   /* not dispatched yet */
    uint64_t n_waiting; /* partitions whose parts wait after a failure */
    uint64_t wal_bytes;
    int error; /* the last append was refused since the WAL could not be written: -ENOSPC, -EDQUOT, -EIO; else 0 */
} NrdIngressStats;

void nrd_ingress_stats(NrdIngress *ingress, NrdIngressStats *ret_stats); /* memory only */

#endif
