/* What wal.c and wal_recovery.c share. */
#ifndef NRD_INGRESS_WAL_PRIVATE_H
#define NRD_INGRESS_WAL_PRIVATE_H

#include "engine/ingress/wal.h"

#include <pthread.h>

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
    uint64_t zero_end;    /* of the zeros written ahead of it; 0: none */
    uint8_t *proof;       /* NRD_WAL_PROOF_BYTES, to read back into */
    uint64_t void_from;   /* what the next segment is named by; 0: by the next sequence */
    uint32_t next_number;
    int last_error; /* of the last round, to say the same failure once */
};

/* Fills segments, next_sequence and next_number. */
int nrd_wal_recover(NrdWal *wal, NrdWalFoundFn found, void *found_data) NRD_MUST_CHECK;

/* Whether the active segment has the round at active_size, to the byte; the writer only. Reads with calls that fail on a
 * file system that was shut down, where a sync may have returned success for what it never wrote: -EIO, and what the
 * read says. */
int nrd_wal_prove(NrdWal *wal, const NrdWalAppend *head, uint64_t n_bytes) NRD_MUST_CHECK;

#endif
