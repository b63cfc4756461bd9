/* The ingress WAL: an append-only log of entries for the whole process, with group commit.
 *
 * What is promised. An entry whose append was answered with 0 was written and synced by calls that reported no error, in
 * a segment whose name is durable, and was read back afterwards, byte for byte; it is found again by every later open until its
 * parts are committed, whatever else fails. An entry whose append was answered with an error is never found again once a later
 * append succeeded, nor in this process; a crash before that may bring it back (nobody was promised it).
 *
 * Failures. A failed write is cut off (truncated, and the cut synced) and the segment goes on. When that cut fails, or a
 * sync or the reading back has failed, nothing more is ever written to or synced in that segment: the kernel forgets what a
 * failed sync did not write, so a later success would prove nothing. It ends, for us, where it was proven to end, and a new
 * segment is started. The new segment's name says `first`, the lowest sequence of the failed round: entries of earlier segments
 * from there on are void, whatever the disk kept of them. The entries of a round whose sync or proof failed are written once
 * more to the new segment, under new sequences; if that fails too the error goes to the callers. Sequences only grow and are
 * never used twice; gaps mean nothing.
 *
 * Zeros are written ahead of the tail, so that most syncs change no more than blocks that the file has already (measured
 * with keyed batches of 2 KiB: 240 us for a write and fsync through the mount where 380 us were needed); they are no entry,
 * and no damage. They are cut when the segment is left without a failure; a crash leaves them.
 *
 * Others may remove the folder: it is made anew, durably, with the next segment.
 *
 * Recovery never appends to a segment of an earlier process: a torn tail needs no cut, since the next segment's name is
 * above every sequence that was found.
 *
 * Threads: append, read, segment functions from any; a callback runs on the thread that happens to write, with no lock
 * held, in the order of sequences. */
#ifndef NRD_INGRESS_WAL_H
#define NRD_INGRESS_WAL_H

#include "engine/base/macros.h"
#include "engine/ingress/wal_entry.h"
#include "engine/ingress/wal_segment.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdWal NrdWal;
typedef struct NrdWalAppend NrdWalAppend;

/* One entry on its way; embedded in its owner, who keeps it until done was called. */
struct NrdWalAppend {
    uint8_t *bytes; /* of nrd_entry_encode; the WAL seals them */
    size_t size;
    uint32_t n_parts;
    /* 0: durable, and the three below are set, the segment with n_parts live parts; -ENOSPC, -EDQUOT, -EIO. Called once. */
    void (*done)(NrdWalAppend *append, int error);
    /* When all of its round were told: the owner has it back. NULL: it has it back when done is called. */
    void (*answered)(NrdWalAppend *append);
    NrdWalSegment *segment; /* a reference, the callback's */
    uint64_t pos;
    uint64_t sequence;
    /* private to wal.c */
    NrdWalAppend *next;
    bool stamped;
};

typedef struct NrdWalOptions {
    int root_fd;            /* borrowed */
    uint64_t segment_bytes; /* a segment that is as large gets no further round */
    uint64_t min_sequence;  /* the next sequence is at least this (1 or more): what a checkpoint knows */
    /* Called for each append before it is written for the first time, in the order of sequences; may set what its parts
     * expect. On the writing thread, no lock held. NULL: nothing. */
    void (*stamp)(void *user_data, NrdWalAppend *append);
    /* A thread that has written for others long enough asks for nrd_wal_write_on to be called by another one; NULL, or
     * false: nobody will, it goes on itself. */
    bool (*hand_over)(void *user_data);
    void *user_data;
} NrdWalOptions;

/* An entry that was found at open; valid during the call. Each call may take parts of it over: their number is returned,
 * and the segment has so many live parts more. */
typedef uint32_t (*NrdWalFoundFn)(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view);

/* Lists and reads what is there (wal_recovery.c), in the order of sequences. An error means that something could not be
 * read, told in the log with the file's name: nothing was changed, and nothing may be assumed. Blocks for one read of
 * the WAL. */
int nrd_wal_open(const NrdWalOptions *options, NrdWalFoundFn found, void *found_data, NrdWal **ret_wal) NRD_MUST_CHECK;

/* Waits until every append was answered; writes what nobody else does. Nobody appends any more. */
void nrd_wal_settle(NrdWal *wal);

/* Nobody appends any more. Removes the segments without live parts; min_durable as in nrd_wal_sweep. */
void nrd_wal_close(NrdWal *wal, uint64_t min_durable); /* takes NULL */

/* Appends, durably, with whatever else wants to be appended: may write on this thread, for others too. */
void nrd_wal_append(NrdWal *wal, NrdWalAppend *append);

/* See hand_over. */
void nrd_wal_write_on(NrdWal *wal);

/* Reads an entry back and checks it: -EBADMSG, -EIO. The caller frees *ret_bytes (g_free). Blocks. */
int nrd_wal_read(NrdWal *wal, NrdWalSegment *segment, uint64_t pos, size_t size, uint8_t **ret_bytes) NRD_MUST_CHECK;

/* n parts of the segment are done with; and the whole entry, with the last of its parts. */
void nrd_wal_drop_live(NrdWal *wal, NrdWalSegment *segment, uint32_t n);
void nrd_wal_drop_entry(NrdWal *wal, NrdWalSegment *segment, uint64_t pos, uint64_t size_bytes);

/* Gives the disk back what entries take that are done with, in segments that stay for others (the active one too): holes,
 * which recovery passes over. Whether there was anything to give. The size of a segment that holds a little for a partition
 * that is stuck is that little then. What needs no checkpoint: the parts are committed durably, and an entry that is gone
 * is not replayed. Nothing on file systems without holes. Blocks. */
bool nrd_wal_make_room(NrdWal *wal);

/* Removes the files of sealed segments without live parts, when the durable checkpoint (min_durable) is above every
 * sequence in them, so that none is ever used again; the oldest also without that, if there is a later one to keep the
 * sequences: no name makes anything older void then, and a full disk that takes no checkpoint gets room. A segment in which
 * damage was found is set aside instead, under the name `<name>.damaged`. Failures are told once and met again by the next
 * call. Blocks. */
void nrd_wal_sweep(NrdWal *wal, uint64_t min_durable);

/* What the last round was answered with: 0, -ENOSPC, -EDQUOT or -EIO. Memory only. */
int nrd_wal_error(NrdWal *wal);

/* One above every sequence that was used. */
uint64_t nrd_wal_next_sequence(NrdWal *wal);
uint64_t nrd_wal_litter_bytes(NrdWal *wal); /* what nrd_wal_make_room would give back */
uint64_t nrd_wal_size_bytes(NrdWal *wal);   /* of all segments, without what was given back */

#endif
