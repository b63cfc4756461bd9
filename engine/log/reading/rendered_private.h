/* The inside of a rendered text, for rendered.c and rendered_span.c.
 *
 * Locks: io_lock (one read or measuring at a time, held across I/O) > log->lock > lock. */
#ifndef NRD_LOG_RENDERED_PRIVATE_H
#define NRD_LOG_RENDERED_PRIVATE_H

#include "engine/log/reading/frame_run.h"
#include "engine/log/reading/render.h"
#include "engine/log/state/state.h"

/* A segment of the span. */
typedef struct NrdRenderedPart {
    NrdSegment *segment; /* a reference */
    uint64_t start;      /* where it begins in the text; right when those before are known */
    uint64_t bytes;      /* of it, when it was asked last */
    bool asked;          /* the last one too: what is not measured of it is only what came since */
    bool known;          /* to its end: of all but the log's last segment, which grows */
} NrdRenderedPart;

struct NrdRendered {
    NrdRenderJob job;

    GMutex lock;
    /* guarded by lock */
    GArray *parts;       /* NrdRenderedPart, in order: all since the open, but those that were given up */
    uint64_t n_given_up; /* so many came before parts: a part's number stays */
    uint64_t next_base;  /* the next segment that is not in parts yet begins here or later */
    NrdSegment *held;    /* the first of parts, a reference and a hold; NULL when there is none */
    uint64_t version;    /* of the home's text, that the parts' sums belong to */
    uint64_t read_pos;   /* behind what was read last */
    int64_t read_ms;     /* monotonic time of that */
    uint64_t passed;     /* what lies before will not be asked for again */

    GMutex io_lock;
    /* guarded by io_lock: where reading in order goes on */
    bool live;
    uint64_t pos;
    uint64_t live_version; /* of the home's text, when the place was looked up */
    NrdFrameRun run;
    NrdSegment *segment; /* a reference */
    uint64_t offset;     /* the record that is rendered next */
    GString *line;       /* the current record, */
    gsize line_pos;      /* of which so much was given out */
};

/* Where a position lies. */
typedef struct NrdRenderedFound {
    uint64_t total;      /* of the text, when pos is not below it */
    NrdSegment *segment; /* a reference and a hold, or NULL */
    uint64_t local;      /* position within it */
    uint64_t version;    /* of the home's text, at the time */
} NrdRenderedFound;

/* rendered_span.c */
void nrd_rendered_begin_span_locked(NrdRendered *rendered); /* log->lock is held */
void nrd_rendered_end_span(NrdRendered *rendered);

/* Works lengths out until the part is known that holds pos. io_lock is held. Errors: as nrd_rendered_size, and -ENOENT when
 * it was given up. */
int nrd_rendered_find(NrdRendered *rendered, uint64_t pos, NrdRenderedFound *ret_found) NRD_MUST_CHECK;
void nrd_rendered_found_done(NrdRenderedFound *found);

/* What was learnt of the parts' lengths was wrong: they are asked for again. */
void nrd_rendered_forget_lengths(NrdRendered *rendered);

/* The text has been read up to pos: gives up detached segments that lie well before. */
void nrd_rendered_passed(NrdRendered *rendered, uint64_t pos);

/* As nrd_text_extend_all_locked, nrd_text_relist_all_locked and nrd_text_drop_idle (texts.h), for the rendered ones. log->lock
 * is held. */
void nrd_rendered_extend_all_locked(NrdLog *log);
void nrd_rendered_relist_all_locked(NrdLog *log);
void nrd_rendered_drop_idle_locked(NrdLog *log, int64_t idle_ms);

#endif
