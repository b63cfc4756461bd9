/* Framings of producing files: turn the requests of one handle, cut anywhere, into records. Pure; the caller serialises
 * the calls of one framing.
 *
 *   NRD_FRAMING_LINES  `produce`        a record is a line, without its newline
 *   NRD_FRAMING_JSONL  `produce.jsonl`  a record is an object on a line of its own: see jsonl_in.h
 *   NRD_FRAMING_BIN    `produce.bin`    u32 key length, u32 payload length (big-endian), key, payload
 *
 * Limits. A payload has at most max_record bytes, a key at most NRD_KEY_MAX (what an extended attribute can show). What
 * is kept of an unfinished record is bounded too: a line by its limit, a JSON line by nrd_jsonl_line_max, a binary record
 * by its lengths, which are looked at before any of it is kept.
 *
 * All handles together keep so much as their budget allows (partial_budget.h). A request that would keep more is refused
 * with -EAGAIN before anything of it is taken, or taken up to the record that it does not end; sent again it is taken as if
 * that had not been. What a request ends is never refused so.
 *
 * A record over the limit (-EMSGSIZE) or malformed (-EINVAL) is refused whole:
 *  - A request that begins in such a record (one kept from before, or starting with the request) fails. What was kept of
 *    the record is dropped, nothing of the request is taken. If the request held the record's end the next request starts
 *    a new record; else input is swallowed up to that end: the newline, or as many bytes as the header said.
 *  - A request with complete records before it is taken up to its beginning.
 *  - A large write(2) arrives as several requests, and the kernel hides the failure of a later one behind a short
 *    count; the program then sends the failed request's bytes again, cut elsewhere if they lie elsewhere in its memory. And a
 *    program with buffers that was told keeps them, and sends them once more with the next flush, or when it closes. The end
 *    of a refused record must never become a record by that. So the beginning of a request that was refused inside a record is
 *    remembered when it held the record's end, or its failure may have been hidden, and a request that begins with the same
 *    bytes is refused like it. Any other request ends that.
 *  - A request without the end of its refused record may be only a piece of the program's write, also of one that sends
 *    the rest. If it failed, the kernel would not send the others, the program would go on with its next record, and that
 *    would be swallowed in place of this one's end. So such a request is taken, its bytes dropped, and the next one that
 *    is no such piece or holds the end fails; until then a sync does. */
#ifndef NRD_FS_FRAMING_H
#define NRD_FS_FRAMING_H

#include "engine/base/macros.h"
#include "engine/engine.h"
#include "fs/partial_budget.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_KEY_MAX ((size_t)65536)

typedef enum NrdFramingKind {
    NRD_FRAMING_LINES,
    NRD_FRAMING_JSONL,
    NRD_FRAMING_BIN,
} NrdFramingKind;

/* When a record may end without its own end. */
typedef enum NrdFramingEnd {
    NRD_FRAMING_SYNC,  /* an fsync: a line ends, a whole object too */
    NRD_FRAMING_FLUSH, /* a descriptor was closed, perhaps one of several: a whole object ends */
    NRD_FRAMING_CLOSE, /* the last one: as an fsync, and what is unfinished is dropped */
} NrdFramingEnd;

/* One request. may_be_cut: it may be only the beginning, or the middle, of a write(2). */
typedef struct NrdFramingRequest {
    const uint8_t *data;
    size_t size;
    bool may_be_cut;
} NrdFramingRequest;

typedef struct NrdFraming {
    NrdFramingKind kind;
    GByteArray *partial; /* the beginning of a record whose end has not come; within the limits above */
    NrdPartialBudget *budget;
    size_t max_key;    /* NRD_KEY_MAX, or less: its owner's */
    size_t n_charged;  /* of the budget, for partial */
    uint64_t n_skip;   /* bytes left of a refused record, partial is empty; NRD_TO_NEWLINE: up to that; 0: none */
    uint64_t n_doomed; /* ... of one that was found too long, of which the program has not been told yet */
    int doomed_error;  /* what it will be told */
    bool may_go_on;    /* the last request may have been cut from a write whose rest comes next */
    const char *why;   /* of the last record refused: one phrase for the log, static */
    bool why_limit;    /* ... it is longer than max_record */
    /* the head of the request before this one, if it was refused inside a record and may come again (see above), else
     * empty; with what, and how much of the record was left where that request began */
    GByteArray *refused;
    int refused_error;
    uint64_t refused_left;
} NrdFraming;

#define NRD_TO_NEWLINE UINT64_MAX

/* Complete records, in order; the bytes are valid during the call. */
typedef void (*NrdRecordsFn)(void *user_data, const NrdNewRecord *records, size_t n_records);

/* The budget is borrowed, and outlives the framing. */
void nrd_framing_init(NrdFraming *framing, NrdFramingKind kind, NrdPartialBudget *budget);
void nrd_framing_clear(NrdFraming *framing);

/* Whether the request is the one refused before, sent again. */
bool nrd_framing_resent(const NrdFraming *framing, const uint8_t *data, size_t size);

/* Takes a request; calls fn for the records completed, many at a time. *ret_taken: how much of it was taken, all unless a
 * record to be refused stands after complete ones. -EMSGSIZE, -EINVAL, -EAGAIN: refused, framing->why says why. */
int nrd_framing_feed(NrdFraming *framing, NrdFramingRequest request, size_t max_record, NrdRecordsFn fn,
                     void *user_data, size_t *ret_taken) NRD_MUST_CHECK;

/* Ends the record that has begun, if one has and may end here. At a sync -EINVAL when it is unfinished (it stays and can
 * be finished), or what it will be refused with (-EINVAL, -EMSGSIZE); at the last close the same when something was
 * dropped; else 0. */
int nrd_framing_end(NrdFraming *framing, NrdFramingEnd when, size_t max_record, NrdRecordsFn fn,
                    void *user_data) NRD_MUST_CHECK;

#endif
