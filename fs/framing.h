/* Framing of `produce`: a record is a line, without its newline. Turns the requests of one handle, cut anywhere, into
 * records. Pure; the caller serialises the calls.
 *
 * A record over the limit is refused whole:
 *  - A request that begins in such a record (one kept from before, or starting with the request) fails with -EMSGSIZE.
 *    What was kept of the record is dropped, nothing of the request is taken. If the request held the record's newline
 *    the next request starts a new record; else input is swallowed up to that newline.
 *  - A request with complete records before it is taken up to its beginning.
 *  - A large write(2) arrives as several requests, and the kernel hides the failure of a later one behind a short
 *    count; the program then sends the failed request's bytes again, cut elsewhere if they lie elsewhere in its memory.
 *    So the beginning of a refused request that began inside a record is remembered: a request that begins with the
 *    same bytes is refused again. Any other request ends that. */
#ifndef NRD_FS_FRAMING_H
#define NRD_FS_FRAMING_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct NrdFraming {
    GByteArray *partial; /* the beginning of a record whose newline has not come; never longer than the limit */
    bool skipping;       /* in a refused record; partial is empty */
    GByteArray *refused; /* the head of the request before this one, if it was refused inside a record; else empty */
} NrdFraming;

/* One complete record; the bytes are valid during the call. */
typedef void (*NrdRecordFn)(void *user_data, const uint8_t *record, size_t size);

void nrd_framing_init(NrdFraming *framing);
void nrd_framing_clear(NrdFraming *framing);

/* Whether the request is the one refused before, sent again. */
bool nrd_framing_resent(const NrdFraming *framing, const uint8_t *data, size_t size);

/* Takes a request; calls fn for each record completed. *ret_taken: how much of it was taken, all unless a record too
 * long stands after complete ones. -EMSGSIZE: refused. */
int nrd_framing_feed(NrdFraming *framing, const uint8_t *data, size_t size, size_t max_record, NrdRecordFn fn,
                     void *user_data, size_t *ret_taken) NRD_MUST_CHECK;

/* Ends the record that has begun, if one has, as a sync or the last close does. */
void nrd_framing_end(NrdFraming *framing, NrdRecordFn fn, void *user_data);

#endif
