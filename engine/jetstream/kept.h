/* Whether the servers still have what they have acknowledged to this daemon, and who finds out: see kept.c.
 * Threads: any; none of these waits. Those that end in _locked want the partition's lock, the others take it. */
#ifndef NRD_ENGINE_JETSTREAM_KEPT_H
#define NRD_ENGINE_JETSTREAM_KEPT_H

#include "engine/jetstream/js_private.h"

/* The record of that id (nrd_js_acked_hash) was acknowledged. false: another one was at that sequence. */
bool nrd_js_kept_note_locked(NrdPartition *partition, uint64_t sequence, uint32_t hash);
/* Whether the record of that id may be at that sequence, by what was acknowledged; NULL: one without an id. */
bool nrd_js_kept_agrees(NrdPartition *partition, uint64_t sequence, const char *id);
/* The servers have no record there any more, since somebody has deleted it: of one that is only held (acked.h) no more is known. */
void nrd_js_kept_gone(NrdPartition *partition, uint64_t sequence);
/* What there is now was accepted by hand. */
void nrd_js_kept_forget_locked(NrdPartition *partition);
/* Something says otherwise: what was acknowledged is compared with what is there, on another thread. */
void nrd_js_kept_doubt(NrdPartition *partition);
/* A look has seen who leads. */
void nrd_js_kept_seen(NrdPartition *partition, const NrdJsStreamInfo *info);
/* Servers may have been away, and have come back with less: those that have led lead again. */
void nrd_js_kept_reconnected(NrdEngine *engine);
/* Every second or so: looks at streams that nobody has looked at for a while. */
void nrd_js_kept_watch(NrdEngine *engine);

#endif
