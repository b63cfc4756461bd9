/* Which record is at which sequence of a stream, as the servers have acknowledged it to this daemon: of the last sequences only,
 * and an id as a hash. What they give later can be compared with that.
 *
 * Memory: 8 bytes for each sequence, 256 KiB at most, as much as there is; and 1 KiB for sequences that are held. Pure: no locks, the caller has one. */
#ifndef NRD_ENGINE_JETSTREAM_ACKED_H
#define NRD_ENGINE_JETSTREAM_ACKED_H

#include <stdbool.h>
#include <stdint.h>

#define NRD_JS_ACKED_MAX 32768 /* sequences, back from the highest */
#define NRD_JS_ACKED_HELD 64   /* beside them */

typedef struct NrdJsAcked NrdJsAcked;

NrdJsAcked *nrd_js_acked_new(void);
void nrd_js_acked_free(NrdJsAcked *acked); /* takes NULL */

/* What is kept of a Nats-Msg-Id; NULL: of a message without one. Two of different records are equal once in 4 thousand million
 * times. Never 0. */
uint32_t nrd_js_acked_hash(const char *id);

/* The record of that id is acknowledged at that sequence (above 0). false: another one was before, which stays. */
bool nrd_js_acked_note(NrdJsAcked *acked, uint64_t sequence, uint32_t hash);

/* 0: nothing is known of that sequence. */
uint32_t nrd_js_acked_get(const NrdJsAcked *acked, uint64_t sequence);

/* The highest sequence of which something was known; 0: there is none. */
uint64_t nrd_js_acked_last(const NrdJsAcked *acked);

/* The first sequence from that one on of which something is known; 0: there is none. */
uint64_t nrd_js_acked_next(const NrdJsAcked *acked, uint64_t sequence);

/* ---- what stays known, however many come after it ---- */

/* From now on, if something is known of that sequence, and there is room. The functions above see no difference. */
void nrd_js_acked_hold(NrdJsAcked *acked, uint64_t sequence);
bool nrd_js_acked_holds(const NrdJsAcked *acked, uint64_t sequence);
/* Whether it is known by that alone, as it is too old by now. */
bool nrd_js_acked_is_old(const NrdJsAcked *acked, uint64_t sequence);
/* No more: those of [first, end). */
void nrd_js_acked_let_go(NrdJsAcked *acked, uint64_t first, uint64_t end);

#endif
