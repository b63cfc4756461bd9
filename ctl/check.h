/* Looking through a data directory that nobody serves: what each part of it may call, and the parts. One thread; every
 * function may block on the disk. Nothing is ever written. */
#ifndef NRD_CTL_CHECK_H
#define NRD_CTL_CHECK_H

#include "ctl/json.h"
#include "ctl/progress.h"
#include "engine/meta/topic_record.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* As fsck(8): bits. */
enum {
    NRD_CHECK_CLEAN = 0,
    NRD_CHECK_ERRORS = 4,
    NRD_CHECK_FAILED = 8,
    NRD_CHECK_USAGE = 16,
    NRD_CHECK_CANCELLED = 32
};

/* A note is something that a crash or an earlier start leaves behind and that costs no record; an error is damage, or what
 * the next start makes worse. */
typedef enum NrdSeverity { NRD_NOTE, NRD_ERROR } NrdSeverity;

typedef struct NrdCheck {
    int root_fd;
    NrdJson *json; /* NULL: text */
    NrdProgress progress;
    GHashTable *records; /* topic -> NrdTopicRecord*, the readable ones */
    bool record_damaged; /* one of them at least is not */
    bool refused;        /* no daemon would start, which has been told: nothing is said of what a start would do */
    bool quiet;          /* what is found is counted, not told */
    uint64_t advised;    /* a bit for each kind of error so far, by its place in the table of advice */
    int exit;            /* bits so far */
    uint64_t n_errors;
    uint64_t n_notes;
    uint64_t n_topics;
    uint64_t n_partitions;
    uint64_t n_segments;
    uint64_t n_frames;
    uint64_t n_records;
    uint64_t n_wal_entries;
} NrdCheck;

/* Where a finding lies. */
typedef struct NrdSpot {
    const char *path; /* beneath the data directory */
    const char
        *kind; /* a word for programs: frame, tail, hwm, index, frontier, topic, orphan, ingress, stray, read ... */
    bool has_range; /* pos and end_pos hold */
    uint64_t pos;
    uint64_t end_pos;
    bool has_offsets; /* offset and end_offset hold */
    uint64_t offset;
    uint64_t end_offset;
} NrdSpot;

/* Prints a finding at once, and counts it. */
void nrd_check_tell(NrdCheck *check, NrdSeverity severity, const NrdSpot *spot, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
#define nrd_check_note(check, where, what, ...)                                                                        \
    nrd_check_tell(check, NRD_NOTE, &(NrdSpot){ .path = (where), .kind = (what) }, __VA_ARGS__)
#define nrd_check_error(check, where, what, ...)                                                                       \
    nrd_check_tell(check, NRD_ERROR, &(NrdSpot){ .path = (where), .kind = (what) }, __VA_ARGS__)

/* What the daemon makes of a file or folder that it cannot use. */
#define NRD_OUT_DAEMON "no daemon starts"
#define NRD_OUT_TOPIC "the topic is out of service"
#define NRD_OUT_PARTITION "the partition is out of service"
#define NRD_OUT_INGRESS "topics cannot be produced to as a whole, only their partitions"
#define NRD_OUT_SIDE_FILE "the segment is served without it, and retention cannot remove the segment"
#define NRD_OUT_CURSOR "what was committed since the attach is copied to that child again at each start"

/* Something could not be read, and outcome (one of the above) comes of it. What the machine is short of or forbids is a
 * failure of the check, what the disk or the file's kind says is damage; an interruption says nothing. */
void nrd_check_unreadable(NrdCheck *check, const char *path, const char *outcome, int error);

/* The names in one of the three folders at the top; NULL when there are none to go through, which has been told. One that
 * is missing is a note, missing: a crash may come before it is made; what is dangerous about that is told as `layout`. */
GPtrArray *nrd_check_list(NrdCheck *check, const char *dir, const char *missing);

/* Whether to go on. */
bool nrd_check_going(const NrdCheck *check);

/* The parts; each tells what it finds. */
void nrd_check_records(NrdCheck *check); /* meta/; fills check->records */
void nrd_check_topics(NrdCheck *check);  /* topics/ */
void nrd_check_ingress(NrdCheck *check); /* ingress/ */
void nrd_check_partition(NrdCheck *check, const char *dir);

/* What was found in a folder that no topic record names. */
typedef struct NrdOrphanHolds {
    uint64_t n_records; /* that are whole */
    bool damaged;       /* there are segments with damage as well */
} NrdOrphanHolds;

/* Tells what the next start makes of topics/<name>, which has no record. */
void nrd_check_orphan(NrdCheck *check, const char *name, const NrdOrphanHolds *holds);

/* The topic whose record carries that incarnation; NULL: none that could be read. */
const char *nrd_check_topic_of(const NrdCheck *check, const char *id);

/* What to do next. Notes that an error of a kind was found (each kind has its advice); prints it all in the end. */
void nrd_check_advise(NrdCheck *check, const char *kind);
void nrd_check_print_advice(const NrdCheck *check);

/* Where a partition ends: the lowest offset that no record has. */
void nrd_check_frontier(NrdCheck *check, const char *dir, uint64_t end_offset);

/* Cursors of fan-out: whether a file of a partition is one, and what is wrong with it. */
bool nrd_check_is_cursor(const char *name);
void nrd_check_cursor(NrdCheck *check, const char *path, uint64_t end_offset);
/* Those that the children in the topic's record should have in a partition's folder, and have not. */
void nrd_check_missing_cursors(NrdCheck *check, const char *dir, const NrdTopicRecord *record);

/* Reports a name that belongs to no file of the layout. */
void nrd_check_stray(NrdCheck *check, const char *dir, const char *name);

#endif
