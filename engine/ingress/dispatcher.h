/* The dispatcher: lanes, workers, retries. Knows parts and the operations; knows nothing of how the WAL is written.
 *
 * A lane is a partition that has something to get, or is claimed: its parts in order, worked on by one worker at a time.
 * While a commit runs more parts gather, and the next commit takes them together; an idle lane's part is committed at
 * once. With nothing to do the workers sleep without a timeout.
 * Threads: any; one lock, which is in the middle of the order that ingress.h tells. */
#ifndef NRD_INGRESS_DISPATCHER_H
#define NRD_INGRESS_DISPATCHER_H

#include "engine/ingress/checkpoint.h"
#include "engine/ingress/ingress.h"
#include "engine/ingress/wal.h"

#include <pthread.h>

typedef struct NrdDispatcher NrdDispatcher;

/* An entry that has parts to dispatch. Guarded by the dispatcher's lock, but for what never changes. */
typedef struct NrdPending {
    uint64_t sequence;
    NrdWalSegment *segment; /* a reference */
    uint64_t pos;
    size_t size;
    char *topic;
    char id[NRD_ENTRY_ID_DIGITS + 1];
    NrdIngressSink sink;
    uint8_t *bytes; /* NULL: to be read from the WAL */
    uint32_t n_left;
} NrdPending;

void nrd_pending_free(NrdPending *entry); /* takes NULL */

/* Where the dispatcher gets the rest of its work. */
typedef struct NrdDispatcherOptions {
    NrdIngressOps ops;
    unsigned n_workers;
    bool nameless; /* see NrdIngressOptions */
    uint64_t memory_bytes;
    NrdWal *wal;
    /* Write one now, unless (note not 0) the last one knows of that move; blocks, no lock held. */
    int (*checkpoint)(void *user_data, uint64_t note);
    int64_t checkpoint_ms;
    void (*make_room)(void *user_data); /* the disk is full; blocks, no lock held */
    void *user_data;
} NrdDispatcherOptions;

/* With its first worker, which waits for the start: whatever the system gives later, what is acknowledged is dispatched. NULL:
 * it gave no thread. */
NrdDispatcher *nrd_dispatcher_new(const NrdDispatcherOptions *options);
void nrd_dispatcher_set_wal(NrdDispatcher *d, NrdWal *wal); /* before the start */
void nrd_dispatcher_start(NrdDispatcher *d);
bool nrd_dispatcher_drain(NrdDispatcher *d, int64_t ms); /* whether nothing is left */
void nrd_dispatcher_stop(NrdDispatcher *d);              /* after the jobs that run; joins the workers */
void nrd_dispatcher_free(NrdDispatcher *d);              /* stopped; what is left is forgotten; takes NULL */

/* A part of an entry that is about to be written: what offset it will get. Then either add or unstamp comes. */
uint64_t nrd_dispatcher_stamp(NrdDispatcher *d, const NrdIngressTarget *target, uint32_t n_records);
void nrd_dispatcher_unstamp(NrdDispatcher *d, const char *id, uint32_t partition, uint32_t n_records);

/* Takes over a durable entry (its bytes too) with all its parts. */
void nrd_dispatcher_add(NrdDispatcher *d, NrdPending *entry);

/* Takes over parts of an entry that was found in the WAL: those that the checkpoint does not know as done. Returns how
 * many; with 0 the entry was not taken. */
uint32_t nrd_dispatcher_replay(NrdDispatcher *d, NrdPending *entry, const NrdEntryView *view,
                               const NrdCheckpoint *checkpoint);

/* What a checkpoint has to say now. *ret_moved tells nrd_dispatcher_noted, after it was stored, what it knew. */
void nrd_dispatcher_snapshot(NrdDispatcher *d, NrdCheckpoint *checkpoint, uint64_t *ret_moved);
void nrd_dispatcher_noted(NrdDispatcher *d, uint64_t moved);
bool nrd_dispatcher_is_noted(NrdDispatcher *d, uint64_t moved);
void nrd_dispatcher_set_top(NrdDispatcher *d, uint64_t top, uint64_t trust);

bool nrd_dispatcher_write_wal(NrdDispatcher *d); /* a worker is to call nrd_wal_write_on; false: there is none */
void nrd_dispatcher_kick(NrdDispatcher *d);
bool nrd_dispatcher_holds(NrdDispatcher *d, const char *id);
uint64_t nrd_dispatcher_n_parts(NrdDispatcher *d);

/* What is not done yet: of all, and of an incarnation (looks at every lane). */
typedef struct NrdDispatcherLoad {
    uint64_t n_parts;
    uint64_t n_bytes; /* of entries in the WAL; of one incarnation: of the parts in them */
} NrdDispatcherLoad;

void nrd_dispatcher_load(NrdDispatcher *d, NrdDispatcherLoad *ret_load);
void nrd_dispatcher_load_of(NrdDispatcher *d, const char *id, NrdDispatcherLoad *ret_load);
uint64_t nrd_dispatcher_n_waiting(NrdDispatcher *d);
int nrd_dispatcher_claim(NrdDispatcher *d, const char *id, uint32_t partition) NRD_MUST_CHECK;
void nrd_dispatcher_unclaim(NrdDispatcher *d, const char *id, uint32_t partition);

#endif
