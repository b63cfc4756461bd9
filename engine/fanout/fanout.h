/* Fan-out: copies what parents commit to their children.
 *
 * A link is one parent with one child; it has a cursor for each partition of the parent: the next offset to copy. A pass
 * takes what is there from the cursor on (4,096 records or 4 MiB at most, as far as the delay's gate is open), gives each
 * record a partition of the child, commits the parts one after another, and only then moves the cursor. A part whose
 * commit fails is tried again for ever, with a growing delay; parts that are done are not committed again. Where the
 * partition seems unwell, or has failed in three passes, its records go to a sibling. Nothing else moves the cursor past
 * a record, but that the record can never be read again: retention was faster, or it is damaged. Those are counted.
 *
 * At least once: what a crash forgets is how far the cursor was, so a batch may come twice (cursor_store.h). A cursor that
 * is missing, damaged, another attachment's, or above the high watermark (the log has lost its end) starts with the first
 * record committed since the attach: copies, never loss.
 *
 * A cursor is worked on by one thread at a time, and two threads at most work for one link, so that a child whose disk hangs
 * leaves workers to the others; links with work take turns. The threads are few and fixed, one of them there from the start,
 * the others when there is something to do. An idle cursor has nothing open and is in no queue; one that waits for a delayed record is one node
 * of a heap, of which only the top is looked at, once a second at least, since the wall clock may be set.
 *
 * Locks: one, memory only, below every lock of the engine; no operation is called with it held.
 * Threads: everything from any. */
#ifndef NRD_FANOUT_FANOUT_H
#define NRD_FANOUT_FANOUT_H

#include "engine/base/macros.h"
#include "engine/fanout/cursor_file.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_FANOUT_BATCH_RECORDS 4096
#define NRD_FANOUT_BATCH_BYTES ((size_t)4 * 1024 * 1024)
#define NRD_FANOUT_LINGER_MS 25 /* from a commit to the pass that copies it */
#define NRD_FANOUT_MAX_PARTITIONS 1024

typedef struct NrdFanout NrdFanout;

/* A record of the parent; the bytes are valid until the source is used again. */
typedef struct NrdFanoutRecord {
    int64_t commit_ms; /* Unix milliseconds */
    const uint8_t *key;
    size_t key_size;
    const uint8_t *payload;
    size_t payload_size;
} NrdFanoutRecord;

/* What the engine does for the fan-out. parent and child are topics as given to nrd_fanout_add. Negative errnos; -EIDRM
 * and -ENODEV mean that it goes away, which is told by nobody. All but those said to be memory only may block. */
typedef struct NrdFanoutOps {
    void (*release)(void *topic); /* gives back what was given to nrd_fanout_add; memory only */

    /* The parent. */
    uint32_t (*n_partitions)(void *topic); /* the child's too; memory only */
    /* What stands for the partition's files: another value when they are others than before. Memory only. */
    uintptr_t (*identity)(void *parent, uint32_t partition);
    /* Without may_block memory only: -EAGAIN when it is not known. */
    int (*bounds)(void *parent, uint32_t partition, bool may_block, uint64_t *ret_oldest, uint64_t *ret_hwm);
    int (*open)(void *parent, uint32_t partition, void **ret_source); /* keeps the partition open */
    void (*close)(void *source);
    /* -ENOENT outside what is there; -EBADMSG damaged or lost: *ret_next is the next offset worth trying. */
    int (*read)(void *source, uint64_t offset, NrdFanoutRecord *ret_record, uint64_t *ret_next);
    int (*find_time)(void *source, int64_t time_ms, uint64_t *ret_offset);

    /* The child. */
    uint32_t (*key_partition)(const void *key, size_t key_size, uint32_t n_partitions);
    bool (*well)(void *child, uint32_t partition);                           /* memory only */
    bool (*sibling)(void *child, uint32_t partition, uint32_t *ret_sibling); /* memory only */
    int (*claim)(void *child, uint32_t partition);
    void (*unclaim)(void *child, uint32_t partition);
    void *(*batch_new)(void);
    void (*batch_free)(void *batch);
    void (*batch_add)(void *batch, const NrdFanoutRecord *record); /* copies */
    int (*commit)(void *child, uint32_t partition, void *batch);   /* takes the batch over; all of it or nothing */
} NrdFanoutOps;

typedef struct NrdFanoutOptions {
    int root_fd; /* of the data directory; borrowed */
    NrdFanoutOps ops;
    bool frozen;        /* read-only: links are known and looked at, nothing is copied or written */
    unsigned n_workers; /* 0: 4 */
} NrdFanoutOptions;

typedef struct NrdFanoutLink {
    void *parent;            /* taken over: released when the link is gone */
    void *child;             /* likewise */
    const char *parent_name; /* copied */
    const char *child_name;  /* copied */
    NrdCursorOwner owner;
    int64_t attached_ms; /* Unix milliseconds */
    int64_t delay_ms;
} NrdFanoutLink;

/* With its first thread, unless it is frozen: whatever the system gives later, what is committed is copied. NULL: it gave
 * none. */
NrdFanout *nrd_fanout_new(const NrdFanoutOptions *options);

/* From now on something is copied; links may have been added before. Memory only. */
void nrd_fanout_start(NrdFanout *fanout);

/* Waits for the passes under way, writes the cursors, ends the threads, forgets the links. Nobody adds or stops any more;
 * notifications still may come, and do nothing. Blocks. Takes NULL. */
void nrd_fanout_close(NrdFanout *fanout);
void nrd_fanout_free(NrdFanout *fanout); /* closed, and nobody notifies any more; takes NULL */

/* Writes a cursor of a link to come, durably. Blocks. */
int nrd_fanout_prepare(NrdFanout *fanout, const void *parent, const char *parent_name, uint32_t partition,
                       const char *child, const NrdCursorOwner *owner, uint64_t offset) NRD_MUST_CHECK;

/* Copies from now on. Memory only, unless frozen. */
void nrd_fanout_add(NrdFanout *fanout, const NrdFanoutLink *link);

/* The oldest link of parent with a child of that name ends: waits for the pass under way (it does not begin another
 * part), tells how many records are not copied any more, then removes the cursors. false: there is none. Blocks. */
bool nrd_fanout_stop(NrdFanout *fanout, const void *parent, const char *child);

/* Removes cursors of a link that is not there, of any epoch. Failures are told. Blocks. */
void nrd_fanout_forget(NrdFanout *fanout, const void *parent, const char *parent_name, uint32_t n_partitions,
                       const char *child);

/* The parent's partition now ends at hwm, or is new. Memory only. */
void nrd_fanout_notify(NrdFanout *fanout, const void *parent, uint32_t partition, uint64_t hwm);

/* The topic, a parent or a child, may be well again: what waits after a failure is tried now. Memory only. */
void nrd_fanout_kick(NrdFanout *fanout, const void *topic);

typedef struct NrdFanoutRow {
    uint32_t partition;
    uint64_t cursor;
    uint64_t hwm;
    int64_t due_ms;
    uint32_t n_failed;
    int error;
} NrdFanoutRow;

typedef struct NrdFanoutInfo {
    int64_t delay_ms;
    int64_t attached_ms;
    uint64_t lag;
    uint64_t n_copied;
    uint64_t n_dropped;
    GArray *rows; /* of NrdFanoutRow, one for each partition; g_array_unref */
} NrdFanoutInfo;

/* false: no such link. Memory only. */
bool nrd_fanout_info(NrdFanout *fanout, const void *parent, const char *child, NrdFanoutInfo *ret_info);

#endif
