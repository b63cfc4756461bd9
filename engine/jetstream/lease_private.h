/* The leases of a partition and the acks on their way: what lease.c, acks.c and settle.c share.
 *
 * The servers' clock for a delivery begins when they send it, so ours begins at a moment that cannot be later: for a pull that
 * does not wait when it was asked for, unless its reader has given up, else when something was asked for that they had answered
 * before (asked.c), since the record may have lain here while this process was stopped. A lease is counted from there with what
 * the consumer on the servers is known to give (not with what the settings say by now, which get there some time later), less a
 * margin. */
#ifndef NRD_ENGINE_JETSTREAM_LEASE_PRIVATE_H
#define NRD_ENGINE_JETSTREAM_LEASE_PRIVATE_H

#include "engine/jetstream/js_private.h"

#define NRD_JS_ANSWER_MS 2000 /* for the answer to what settles */
#define NRD_JS_RETRY_MS 250

typedef struct NrdJsLease {
    uint64_t nonce;
    uint64_t offset;
    int64_t start_ms; /* monotonic */
    char *reply;
} NrdJsLease;

/* An ack on its way. */
typedef struct NrdJsAck {
    GList link;
    NrdPartition *partition; /* a reference to its topic */
    uint64_t number;
    NrdJsLeaseEnd end;
    bool due;       /* to be sent again */
    int void_errno; /* its lease is void: an ack that is not confirmed is not sent again */
    char *reply;
} NrdJsAck;

struct NrdJsLeases {
    NrdPartition *partition;
    GMutex lock;
    /* guarded by lock */
    GHashTable *leases; /* of NrdJsLease, by its nonce; of this generation */
    guint look_at;
    uint64_t generation;  /* of the consumer */
    int64_t wait_ms;      /* what that gives for each delivery, as far as is known; 0: nothing is */
    GHashTable *holders;  /* offset -> nonce of the newest lease on it, which may be gone */
    GHashTable *returned; /* offsets that were given back, or whose lease has lapsed, and that have not come again */
    int64_t lapse_ms;     /* monotonic: no lease lapses before */
    GArray *to_return;    /* see give_back.c: what goes back the next time */
    bool returning;       /* something is on its way back */
    GCond all_returned;   /* ... nothing is any more */
    GQueue acks;          /* of NrdJsAck, in order of number, by their link */
    uint64_t n_acks;
    GArray *waiters;         /* of those who sync */
    int untold_errno;        /* an ack was given up, and nobody has been told */
    uint64_t n_lost, n_void; /* given up, and not in the log yet */
    NrdTimer timer;
    GCond answered; /* an ack is on its way no more */
};

/* ---- lease.c ---- */

/* The live lease of that receipt, or NULL. */
NrdJsLease *nrd_js_lease_find_locked(NrdJsLeases *leases, uint64_t offset, uint64_t nonce);

/* When a lease that began then ends. */
NrdJsLeaseEnd nrd_js_lease_end_locked(const NrdJsLeases *leases, int64_t start_ms);

/* The servers have begun its time anew, at sent_ms or later. false: it may have ended before they did. */
bool nrd_js_lease_restarted(NrdJsLeases *leases, uint64_t nonce, int64_t sent_ms);

/* ---- returned.c ---- */

void nrd_js_returned_init(NrdJsLeases *leases);
void nrd_js_returned_clear(NrdJsLeases *leases);
void nrd_js_returned_forget_locked(NrdJsLeases *leases);

/* A record has come, and gets this lease: one that it had before is over, whatever our clock says of its time. */
void nrd_js_returned_come_locked(NrdJsLeases *leases, const NrdJsLease *lease);

/* Forgets the leases that have lapsed on the servers, too: how many. */
guint nrd_js_returned_lapse_locked(NrdJsLeases *leases);
/* ... those that have ended here, before they are counted by a longer time: their records may be somebody else's. */
guint nrd_js_returned_end_locked(NrdJsLeases *leases);

/* ---- give_back.c ---- */

void nrd_js_give_back_init(NrdJsLeases *leases);
void nrd_js_give_back_clear(NrdJsLeases *leases);

/* ---- acks.c ---- */

void nrd_js_acks_init(NrdJsLeases *leases);
void nrd_js_acks_clear(NrdJsLeases *leases);

/* An ack of that lease, whose subject it takes over; to be sent when the lock is not held. */
NrdJsAck *nrd_js_ack_new_locked(NrdJsLeases *leases, NrdJsLease *lease);
void nrd_js_ack_send(NrdJsAck *ack);

/* Those on their way mean nothing any more; then tell. */
void nrd_js_acks_void_locked(NrdJsLeases *leases, int error);
void nrd_js_acks_tell(NrdJsLeases *leases);

#endif
