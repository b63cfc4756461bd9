/* Whether the servers still have what they have acknowledged to this daemon. Copies of a stream may come to differ (nats-server
 * 2.9), and which of them counts changes with the leader: so when there is another leader than the one whose copy was compared,
 * or something else gives reason for doubt, what was acknowledged lately is read from the leader and compared by its ids
 * (acked.h). What is not there, or is another record, for longer than a suspicion has to hold, poisons the partition for good.
 *
 * Nobody has to look for that: a stream that this daemon has produced to is looked at now and then, and after each failure
 * (kept_watch.c).
 *
 * Then the other copies are compared as well, in several rounds (copies.c): one that differs would be the leader's some day.
 *
 * A reader compares each record that it is given, too, and gives none that is another: see fetch.c.
 *
 * Threads: any; none of these waits but the last. Those that end in _locked want the partition's lock, the others take it. */
#ifndef NRD_ENGINE_JETSTREAM_KEPT_H
#define NRD_ENGINE_JETSTREAM_KEPT_H

#include "engine/jetstream/js_private.h"

#define NRD_JS_KEPT_ROUNDS 6 /* of comparing all copies, some seconds apart, after the last reason for doubt */

/* ---- kept.c: what is known ---- */

/* The record of that id (nrd_js_acked_hash) was acknowledged. false: another one was at that sequence. */
bool nrd_js_kept_note_locked(NrdPartition *partition, uint64_t sequence, uint32_t hash);
/* Whether the record of that id may be at that sequence, by what was acknowledged; NULL: one without an id. */
bool nrd_js_kept_agrees(NrdPartition *partition, uint64_t sequence, const char *id);
/* The servers have no record there any more, since somebody has deleted it: of one that is only held (acked.h) no more is known.
 * true: it was one. */
bool nrd_js_kept_gone(NrdPartition *partition, uint64_t sequence);
/* What there is now was accepted by hand. */
void nrd_js_kept_forget_locked(NrdPartition *partition);

/* ---- kept_watch.c: when it is compared ---- */

/* Something says otherwise: what was acknowledged is compared with what is there, on another thread. */
void nrd_js_kept_doubt(NrdPartition *partition);
/* A look has seen who leads. */
void nrd_js_kept_seen(NrdPartition *partition, const NrdJsStreamInfo *info);
/* Servers may have been away, and have come back with less: those that have led lead again. */
void nrd_js_kept_reconnected(NrdEngine *engine);
/* Every second or so: looks at streams that nobody has looked at for a while. */
void nrd_js_kept_watch(NrdEngine *engine);

/* ---- kept_compare.c ---- */

/* The job that compares. Of a partition with `compares` set, and a reference to its topic; the caller has counted it in
 * n_comparing. It takes all three back. Blocks. */
void nrd_js_kept_compare(void *partition);

#endif
