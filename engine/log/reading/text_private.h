/* The inside of a text, for the text_*.c files of this folder.
 *
 * A text's positions are those of its span, less `skip`: the span begins with a whole segment, the text with a record
 * of it.
 *
 * Locks: io_lock (one read at a time, held across I/O) > log->lock > text->lock. */
#ifndef NRD_LOG_TEXT_PRIVATE_H
#define NRD_LOG_TEXT_PRIVATE_H

#include "engine/log/frames/frame_reader.h"
#include "engine/log/reading/frame_ahead.h"
#include "engine/log/reading/reading.h"
#include "engine/log/state/state.h"

/* A segment that has left the log, and where its text begins in the span. */
typedef struct NrdTextPart {
    NrdSegment *segment; /* a reference */
    uint64_t start;
} NrdTextPart;

struct NrdText {
    NrdLog *log;
    uint64_t from;   /* offset of the first record */
    bool from_start; /* of a segment: there is nothing to skip, ever */

    GMutex lock;
    /* guarded by lock */
    NrdSegmentList *list; /* a reference: the log's, when it was looked at last */
    guint first;          /* in list: the first segment of the span that is in the log */
    GArray *parts;        /* NrdTextPart: those that have left it since the text was opened, in order */
    NrdSegment *held;     /* the first segment of the span, a reference and a hold; NULL when there is none */
    uint64_t start;       /* where held's text begins in the span: bytes that were given up */
    uint64_t list_start;  /* where that of list's segments begins */
    bool summed;          /* list_start and the parts' starts are right, for */
    uint64_t version;     /* of the home's text */
    bool dropped;         /* held is not the segment that the text began in any more */
    uint64_t skip;        /* bytes of the first segment's text before the record `from` */
    uint64_t read_pos;    /* in the span: behind what was read last */
    int64_t read_ms;      /* monotonic time of that */
    uint64_t passed;      /* in the span: what lies before will not be asked for again */

    GMutex io_lock;
    /* guarded by io_lock: where reading in order goes on */
    uint64_t start_version; /* of the home's text, when skip was looked up */
    bool live;
    uint64_t pos;             /* next byte */
    uint64_t text_version;    /* of the home, when the place was looked up */
    NrdSegment *segment;      /* a reference */
    uint64_t segment_version; /* of its index, when what reader holds was read */
    NrdFrameReader reader;    /* the frame that pos is in */
    size_t record_pos;        /* in the frame's payload: behind the current record */
    uint64_t n_left;          /* records of the frame that follow the current one and count */
    const uint8_t *rest;      /* what of the current record's payload is still to come */
    size_t rest_size;
    bool newline; /* and its newline */

    uint64_t next;         /* behind the last read */
    unsigned n_in_order;   /* reads that went on from each other, before it */
    NrdFrameAhead *frames; /* what follows behind reader's window, or NULL */
};

/* Where a text position lies. */
typedef struct NrdTextFound {
    uint64_t total;      /* bytes of the whole text */
    bool gone;           /* pos lies in a segment that was given up */
    NrdSegment *segment; /* a reference and a hold, or NULL when gone or at the end */
    uint64_t local;      /* position within the segment's text */
    uint64_t version;    /* of the home's text, at the time */
} NrdTextFound;

/* text_span.c. Any thread; memory only. */
NrdTextFound nrd_text_find(NrdText *text, uint64_t pos);
void nrd_text_found_done(NrdTextFound *found); /* gives the segment back, if there is one */

/* Begins the span with the segment that holds text->from. log->lock is held. */
void nrd_text_begin_span_locked(NrdText *text);
void nrd_text_end_span(NrdText *text);

/* The text has been read up to pos: gives up detached segments that lie well before. */
void nrd_text_passed(NrdText *text, uint64_t pos);

/* text_start.c: looks up how much of the first segment's text to skip, when that is not known or may have changed.
 * io_lock is held. -EIO, -ENOMEM; may block. */
int nrd_text_settle_start(NrdText *text) NRD_MUST_CHECK;

/* Whether the start is the right one for that version of the home's text. io_lock is held. */
bool nrd_text_start_is_settled(const NrdText *text, uint64_t version);

#endif
