/* Leases, and what settles them or gives them back. */
#ifndef NRD_ENGINE_JETSTREAM_LEASE_H
#define NRD_ENGINE_JETSTREAM_LEASE_H

#include "engine/jetstream/js_private.h"

/* ---- lease.c ---- */

NrdJsLeases *nrd_js_leases_new(NrdPartition *partition);
void nrd_js_leases_free(NrdJsLeases *leases);
/* A lease for a delivery: its nonce. reply is the subject that settles it, and what it says; came_ms (monotonic): the servers'
 * time for it began at that or later. */
uint64_t nrd_js_lease_add(NrdPartition *partition, const NrdJsAckSubject *delivered, const char *reply,
                          int64_t came_ms);
void nrd_js_leases_void(NrdPartition *partition); /* all are */
/* Deliveries are of that consumer from now on. true: that is another one, and all leases are void. */
bool nrd_js_leases_adopt(NrdPartition *partition, uint64_t generation);
uint64_t nrd_js_leases_generation(NrdPartition *partition); /* 0: not known yet, or the one without a number */
/* What the consumer on the servers is known to give for a delivery; and that it may be as little as that. */
void nrd_js_leases_know_wait(NrdPartition *partition, int64_t wait_ms);
void nrd_js_leases_limit_wait(NrdPartition *partition, int64_t wait_ms);
int64_t nrd_js_leases_wait_ms(NrdPartition *partition);
bool nrd_js_delivery_lives(NrdPartition *partition, int64_t came_ms); /* nobody else can have been given it since */
NrdJsLeaseEnd nrd_js_delivery_end(NrdPartition *partition, int64_t came_ms); /* its lease's, should it get one */
/* The subject that settles a live lease (g_free), and its end; or NULL. */
char *nrd_js_lease_subject(NrdPartition *partition, uint64_t offset, uint64_t nonce, NrdJsLeaseEnd *ret_end);
/* How many there are; those that have lapsed on the servers are none. */
guint nrd_js_leases_n_live(NrdPartition *partition);
/* Forgets a lease that nobody was given; its delivery is still the caller's. */
void nrd_js_lease_drop(NrdPartition *partition, uint64_t nonce);

/* ---- returned.c ---- */

/* Of what the servers call pending nobody holds what this daemon has given back or let lapse: that is deliverable. */
uint64_t nrd_js_leases_n_returned(NrdPartition *partition, uint64_t frontier);
void nrd_js_leases_note_returned(NrdPartition *partition, uint64_t offset);
/* All leases, to the servers: of a daemon that stops, as nobody can settle them any more. */
void nrd_js_leases_give_back(NrdPartition *partition);

/* ---- give_back.c ---- */

/* Gives a delivery back, if that can be sent before its end. Does not wait. */
void nrd_js_give_back(NrdPartition *partition, const char *reply, const NrdJsLeaseEnd *end);
/* Waits until what was given back is on its way, for a second at most. Blocks. */
void nrd_js_give_back_wait(NrdPartition *partition);

/* ---- acks.c ---- */

/* Until the servers have answered all acks that were sent by now, or the time is over: then what they tell knows of them. */
void nrd_js_acks_wait_answered(NrdPartition *partition, int64_t patience_ms);

/* ---- settle.c ---- */

/* Begins its time anew, once the servers have confirmed that. Does not wait. */
void nrd_js_lease_extend_later(NrdPartition *partition, uint64_t offset, uint64_t nonce);

#endif
