/* What wal.c (rounds), wal_active.c (the active segment), wal_done.c (what entries that are done with leave), wal_proof.c and
 * wal_recovery.c share. */
#ifndef NRD_INGRESS_WAL_PRIVATE_H
#define NRD_INGRESS_WAL_PRIVATE_H

#include "engine/ingress/wal.h"

#include <pthread.h>
#include <stdatomic.h>

#define NRD_WAL_PROOF_BYTES ((size_t)256 * 1024)

struct NrdWal {
    NrdWalOptions options;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* with lock: nobody writes */
    /* guarded by lock */
    NrdWalAppend *head, **tail; /* who waits for the next round */
    bool writing;               /* somebody has the writer's role */
    unsigned n_handing;         /* who has just given it up */
    GPtrArray *segments;        /* of NrdWalSegment*, in order, the active one too */
    uint64_t next_sequence;
    bool unlink_told;
    bool punch_told;
    /* the writer's alone */
    NrdWalSegment *active; /* NULL: the next round makes one */
    int active_fd;
    uint64_t active_size; /* proven */
    uint64_t zero_end;    /* of the zeros written ahead of it; at most active_size: there are none */
    uint8_t *proof;       /* NRD_WAL_PROOF_BYTES, to read back into */
    uint64_t void_from;   /* what the next segment is named by; 0: by the next sequence */
    uint32_t next_number;
    int64_t named_ms;      /* monotonic; when the active segment's name was looked at last */
    bool folder_gone;      /* others have removed the folder, which is told when it is there again */
    atomic_int last_error; /* of the last round, to say the same failure once; who asks needs no role */
};

/* Fills segments, next_sequence and next_number. */
int nrd_wal_recover(NrdWal *wal, NrdWalFoundFn found, void *found_data) NRD_MUST_CHECK;

/* Whether the active segment has the round at active_size, to the byte; the writer only. Reads with calls that fail on a
 * file system that was shut down, where a sync may have returned success for what it never wrote: -EIO, and what the
 * read says. */
int nrd_wal_prove(NrdWal *wal, const NrdWalAppend *head, uint64_t n_bytes) NRD_MUST_CHECK;

/* Whether what is written to the active segment can be found again, as nrd_io_check_place says; for the writer. That it has
 * a name is seen each time, and which one, once in a second: that costs more. Blocks. */
int nrd_wal_check_place(NrdWal *wal) NRD_MUST_CHECK;

/* ---- wal_active.c; the writer only, no lock held, may block ---- */

/* A segment that the next round fits in: a new one when there is none, or it is full. Nothing is promised in it yet. */
int nrd_wal_ensure_active(NrdWal *wal) NRD_MUST_CHECK;

/* Zeros behind a round of n_bytes at active_size, so that the next ones overwrite blocks that the file has already and their
 * syncs need not write the inode. The round's own sync makes them durable; recovery passes them over. They are never a
 * failure of the round: what keeps them from being written meets the rounds themselves, if it matters. */
void nrd_wal_write_zeros_ahead(NrdWal *wal, uint64_t n_bytes);

/* Takes a failed write back. A crash before the cut is durable leaves entries that nobody was promised. When it cannot be
 * made durable nothing may follow it in this file: it is abandoned. sequence: the first of the round. */
void nrd_wal_cut_back(NrdWal *wal, uint64_t sequence);

/* The segment may hold whole entries of a round that failed (at `what`, for the log): they are void from `sequence` on, and
 * the next segment's name says so before anything else is promised. */
void nrd_wal_abandon_active(NrdWal *wal, uint64_t sequence, int error, const char *what);

/* Nothing is written to it any more, and nothing of it has failed. Without an active segment: nothing. */
void nrd_wal_leave_active(NrdWal *wal);

#endif
