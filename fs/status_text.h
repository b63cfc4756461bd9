/* How the pages of status show times, sizes and spans. Pure. */
#ifndef NRD_FS_STATUS_TEXT_H
#define NRD_FS_STATUS_TEXT_H

#include <glib.h>
#include <stdint.h>

/* What an acknowledged record is worth where the disk is not this machine's, for a word of nrd_engine_durability. */
void nrd_append_durability(GString *text, const char *word);

/* What a person does about commits that fail and poison nothing. */
#define NRD_TODO_COMMITS_FAIL                                                                                          \
    "make room (trim, retention, a topic less) or help the disk; writers that sync again go on by themselves"

/* The same when the records are on other machines, where nobody can make room from here: even to remove something is to write. */
#define NRD_TODO_COMMITS_FAIL_THERE                                                                                    \
    "give the servers room (their disks, max_file and the account's limits) or help them; writers that sync again go " \
    "on by themselves"

/* What a person does when a topic refuses records: for a full disk, and for too much that waits. */
#define NRD_TODO_REFUSED_FULL "make room (trim, retention, a topic less); writers that sync again go on"
#define NRD_TODO_REFUSED_BUSY                                                                                          \
    "look below which partition takes none; writers that sync again go on when some of it is committed"

/* The same when the records are on other machines, and none of those answers, or they let nobody in. */
#define NRD_TODO_NO_SERVERS                                                                                            \
    "look at the servers of url= and at the network; what waits goes on by itself when one of them answers"
#define NRD_TODO_REFUSED_BY_SERVERS                                                                                    \
    "look at the user, password, token or certificate of this mount, and at what the servers log; it is tried again"

/* The same for an ingress WAL that could not be written. */
#define NRD_TODO_REFUSED_EIO                                                                                           \
    "the ingress WAL could not be written: see that ingress/ in the data directory is a folder that the daemon may "   \
    "write to, and that the disk is well; the next sync tries again, and partitions can be produced to"

/* What a person does about records that are lost. */
#define NRD_TODO_DAMAGE                                                                                                \
    "the rest is served; take what is lost from a child or a backup and look at the disk; the note goes with its "     \
    "segment (retention, or `trim`)"

/* The same where a segment's file is gone. */
#define NRD_TODO_MISSING                                                                                               \
    "the rest is served; put the file back from a backup and write `reopen` to the partition's ctl, or take what is "  \
    "lost from a child; the note goes with its segment (retention, or `trim`)"

/* What a person does about a folder that was missing. */
#define NRD_TODO_ANEW                                                                                                  \
    "put the folder back from a backup with the daemon stopped, or take what is lost from a child; records committed " \
    "to the new one since have the same offsets and go with it: naradctl export them first; then, or when nothing "    \
    "was in the old one"

/* What a person does about poison after a failed disk, and after others have changed files, which also keeps a partition from
 * being opened; then comes where to write it. */
#define NRD_TODO_POISON "when the disk is well"
#define NRD_TODO_SERVERS "when the servers are well and have what they should"
#define NRD_TODO_PASSES "nothing to do here: it passes by itself when its servers answer"
#define NRD_TODO_BY_OTHERS                                                                                             \
    "put that right in the data directory (a file back from a backup, what is none of the daemon's out of the way; "   \
    "what is not back is told as lost)"

/* What a person does about segments that cannot be read. */
#define NRD_TODO_UNREADABLE                                                                                            \
    "its readers get EIO and nothing is passed over, the rest is served; put the file right (permissions, the disk, "  \
    "a backup), then"

/* What a person does about progress of consumers that cannot be written. */
#define NRD_TODO_UNSAVED                                                                                               \
    "consumers that sync get an error, for others it is kept in memory, and a crash would deliver their records "      \
    "again; put the file right in the data directory (what is none of the daemon's out of the way, room, the disk): "  \
    "it is tried again by itself"

/* What a person does about copies of a stream that differ. */
#define NRD_TODO_APART                                                                                                 \
    "the leader's copy is served, and has what was acknowledged here lately; other records that consumers are sent "   \
    "are held back; copy the topic to another place (naradctl copy), then let the servers make the others anew: nats " \
    "stream edit STREAM --replicas 1, and when that is done, with the same server leading, as many as before"

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
