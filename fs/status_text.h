/* How the pages of status show times, sizes and spans. Pure. */
#ifndef NRD_FS_STATUS_TEXT_H
#define NRD_FS_STATUS_TEXT_H

#include <glib.h>
#include <stdint.h>

/* What a person does about commits that fail and poison nothing. */
#define NRD_TODO_COMMITS_FAIL                                                                                          \
    "make room (trim, retention, a topic less) or help the disk; writers that sync again go on by themselves"

/* What a person does when a topic refuses records: for a full disk, and for too much that waits. */
#define NRD_TODO_REFUSED_FULL "make room (trim, retention, a topic less); writers that sync again go on"
#define NRD_TODO_REFUSED_BUSY                                                                                          \
    "look below which partition takes none; writers that sync again go on when some of it is committed"

/* What a person does about records that are lost. */
#define NRD_TODO_DAMAGE                                                                                                \
    "the rest is served; take what is lost from a child or a backup and look at the disk; the note goes with its "     \
    "segment (retention, or `trim`)"

/* What a person does about whole records that hwm hides. */
#define NRD_TODO_HIDDEN                                                                                                \
    "the next record produced here brings them back; if a failed commit has left them, its producers send them again"

/* `2026-01-31T12:00:00Z`; 0: `never`. Unix milliseconds. */
void nrd_append_time(GString *text, int64_t ms);

/* `1.5 MiB` */
void nrd_append_size(GString *text, uint64_t bytes);

/* `5 s`, `3 min`, `7 h 12 min`, `4 days 7 h`; less than a second, and what is negative: `0 s`. */
void nrd_append_span(GString *text, int64_t ms);

/* `4.2 a second` and the like: n over a time, for people. */
void nrd_append_rate(GString *text, uint64_t n, int64_t ms);

#endif
