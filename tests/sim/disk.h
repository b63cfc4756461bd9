/* A simulated disk: a second table behind engine/io, in memory, that can lose power, lie and fail to order.
 *
 * It keeps what was written apart from what is durable, at sectors of 512 bytes and, in folders, at single changes of
 * names. Four layers, as of a real machine: the page cache (what reads give), what of it is dirty, the disk, and the
 * changes of names that no fsync of their folder has made durable. The strictest reading of POSIX is the rule: fsync and
 * fdatasync of a file make its bytes and its size durable and not its name; a name is durable when its folder was synced
 * (both folders for a rename between two).
 *
 * Use: sim_disk_new, sim_disk_install, run the engine with data_path SIM_DATA; then sim_disk_snapshot (any time, also
 * from a watcher), sim_image_power_cut or a SimWalk for what a power cut can leave, and a new disk from each image.
 * A test that dies in place plans a fault of kind SIM_CRASH instead, closes the dead engine, and calls sim_disk_power_on.
 *
 * Everything is decided by seeds: the same seeds and the same order of calls give the same results. With threads the
 * order of calls is theirs, not the seed's. Who runs at random prints the seed, and sim_disk_print_trace when he fails.
 *
 * Threads: every function from any thread; one lock for everything. Nothing blocks but on that lock. */
#ifndef NRD_TEST_SIM_DISK_H
#define NRD_TEST_SIM_DISK_H

#include "engine/io/io.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Durable and empty on a new disk. Any other absolute path is a path on the simulated disk likewise, whose root exists. */
#define SIM_DATA "/data"

#define SIM_SECTOR_BYTES 512

typedef struct SimDisk SimDisk;
typedef struct SimImage SimImage; /* what a disk holds at one moment; never changes */
typedef struct SimWalk SimWalk;

/* ---- the calls ---- */

/* The entries of NrdIo; creating and syncing a folder are calls of their own. */
typedef enum SimCall {
    SIM_OPEN_ROOT,
    SIM_OPEN,   /* without O_CREAT */
    SIM_CREATE, /* open with O_CREAT, also of a file that exists */
    SIM_CLOSE,
    SIM_PREAD,
    SIM_PWRITEV,
    SIM_FDATASYNC,
    SIM_FSYNC,     /* of a file */
    SIM_FSYNC_DIR, /* of a folder */
    SIM_FTRUNCATE,
    SIM_PUNCH,
    SIM_SET_MTIME,
    SIM_FSTAT,
    SIM_FSTATAT,
    SIM_MKDIR,
    SIM_RENAME,
    SIM_UNLINK,
    SIM_RMDIR,
    SIM_LIST,
    SIM_DROP_CACHE,
    SIM_LOCK,
    SIM_FSTATVFS,
    SIM_MAP,
    SIM_UNMAP,
    SIM_N_CALLS,
    SIM_ANY_CALL = SIM_N_CALLS, /* in a fault: all of them */
    SIM_ANY_SYNC,               /* in a fault: fdatasync and both kinds of fsync */
} SimCall;

const char *sim_call_name(SimCall call); /* "pwritev"; static */

/* One call, as a watcher, a predicate and the trace see it. */
typedef struct SimCallInfo {
    uint64_t index; /* of all calls since the disk was made, from 1 */
    SimCall call;
    const char *path; /* from the root of the disk, as of the open for calls on a descriptor; valid in the callback */
    int64_t pos;      /* 0 where there is none; the new size of ftruncate */
    uint64_t size;    /* bytes asked for, 0 where there are none */
    int64_t result;   /* 0, a count, a descriptor or a negative errno; 0 before the call */
    int fault;        /* the id of the planned fault that fired, -1: none */
} SimCallInfo;

/* ---- a disk ---- */

typedef struct SimDiskOptions {
    uint64_t seed;           /* for whatever the disk decides by itself (which sectors a failed sync has written) */
    uint64_t capacity_bytes; /* 0: 1 GiB */
    uint64_t n_inodes;       /* files and folders, 0: a million */
    unsigned max_open;       /* descriptors, -EMFILE beyond; 0: 100,000 */
    bool
        names_with_files; /* as ext4: the fsync (or fdatasync) of a file also makes durable the name it was created with */
} SimDiskOptions;

/* An empty disk with SIM_DATA, all of it durable; or, with an image (which stays the caller's), a machine that was started
 * on it: what is unsynced in the image is unsynced still, as after kill -9. options may be NULL. */
SimDisk *sim_disk_new(const SimDiskOptions *options, const SimImage *image);

/* Takes NULL. The disk must not be installed; what is mapped stays mapped until it is unmapped with a disk installed. */
void sim_disk_free(SimDisk *disk);

/* Makes nrd_io the table of this disk; NULL: the real one again. One at a time, and not while another thread uses nrd_io.
 * Descriptors of another disk are -EBADF. */
void sim_disk_install(SimDisk *disk);

/* The table itself, for tests that put a table of their own in front. It acts on the disk installed last. */
extern const NrdIo sim_io;

/* From now on; what is there stays, also beyond the capacity. 0: as in the options. */
void sim_disk_set_capacity(SimDisk *disk, uint64_t capacity_bytes, uint64_t n_inodes);

/* As `echo 3 > drop_caches`: reads of clean pages give what the disk has. */
void sim_disk_drop_caches(SimDisk *disk);

/* Descriptors that are open now (leaks after a close of the engine); mappings likewise; and calls on descriptors that
 * were not open, such as a second close (no number is given out twice; a power off closes none of them). */
unsigned sim_disk_n_open(SimDisk *disk);
unsigned sim_disk_n_mapped(SimDisk *disk);
uint64_t sim_disk_n_bad(SimDisk *disk);

/* ---- power ---- */

/* Which changes of names a power cut may lose. */
typedef enum SimNames {
    SIM_NAMES_ORDERED,    /* in each folder the changes before some point are kept: journaling file systems */
    SIM_NAMES_ANY_SUBSET, /* each by itself; a rename is still one change */
} SimNames;

typedef enum SimKeep {
    SIM_KEEP_RANDOM, /* sectors, sizes and names each by themselves, as the seed says; at times all or none of a file */
    SIM_KEEP_NONE,   /* nothing but what is durable */
    SIM_KEEP_ALL,    /* everything, as if all was written back in time */
} SimKeep;

/* What a power cut leaves of what is not durable. A file's size is one of those that it had since its last sync, or a
 * sector's boundary on the way to a greater one; each sector has one of the contents it had since, and is never older than
 * a cut (ftruncate) that the chosen size includes. So writes are torn at sectors, reordered within and between files, and
 * zeros stand where a size came without its bytes. The time of the last write is the old or the new one. */
typedef struct SimCrash {
    SimKeep keep;
    SimNames names;
    uint64_t seed; /* of SIM_KEEP_RANDOM */
} SimCrash;

/* Power off, in place: every descriptor is dead, and every call is -EIO until sim_disk_power_on (close is 0, and unmap
 * works, so that a dead engine can be closed). May be called again. */
void sim_disk_power_off(SimDisk *disk);
bool sim_disk_is_off(SimDisk *disk);

/* Power on: what was not durable is decided as crash says; NULL: it was only the process that died (kill -9), everything
 * written is in the cache as before and still not durable. Descriptors from before are -EBADF, faults and counts stay.
 * Close what has them open before. */
void sim_disk_power_on(SimDisk *disk, const SimCrash *crash);

/* ---- images ---- */

/* What the disk holds now, unsynced changes included. Cheap: sectors are shared until they are written. From a watcher,
 * too. */
SimImage *sim_disk_snapshot(SimDisk *disk);

SimImage *sim_image_ref(SimImage *image);
void sim_image_unref(SimImage *image); /* takes NULL */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SimImage, sim_image_unref)

/* What a power cut at that moment leaves: a new image where everything is durable. */
SimImage *sim_image_power_cut(const SimImage *image, const SimCrash *crash);

/* How much is undecided: sectors, sizes and names that a power cut may lose. 0: it can leave one state only. */
uint64_t sim_image_n_undecided(const SimImage *image);

/* A number that is the same for images of the same folders, files, sizes, bytes (times are left out) as the cache sees
 * them; to leave out power cuts that were seen already. */
uint64_t sim_image_digest(const SimImage *image);

/* Every state that a power cut can leave, one by one (keep and seed of the crash are not used): for small images, since n
 * sectors make 2^n of them. image is held until sim_walk_free. next returns NULL when all were had. */
SimWalk *sim_walk_new(SimImage *image, SimNames names);
SimImage *sim_walk_next(SimWalk *walk);
void sim_walk_free(SimWalk *walk);

/* The files and folders (char*, from the root, in order; folders end in a slash; g_ptr_array_unref), and what a file holds
 * (NULL: there is none; g_bytes_unref); as reads see it, or as the disk has it. */
typedef enum SimLayer { SIM_CACHED, SIM_DURABLE } SimLayer;
GPtrArray *sim_image_paths(const SimImage *image, SimLayer layer);
GBytes *sim_image_read(const SimImage *image, SimLayer layer, const char *path);

/* A copy where one file (which exists) holds other bytes, durably: damage of whole files, at any place and length. */
SimImage *sim_image_with_file(const SimImage *image, const char *path, const void *data, size_t size);

/* ---- faults ---- */

/* Patterns for `pattern` below: globs (GPatternSpec: * also matches slashes) over the whole path. */
#define SIM_SEGMENTS SIM_DATA "/topics/*.log"
#define SIM_INDEXES "*.index"
#define SIM_RENDERED "*.rendered"
#define SIM_HWM "*/hwm"
#define SIM_CONSUMER_OFFSET "*/consumer.offset"
#define SIM_CONSUMER_AHEAD "*/consumer.ahead"
#define SIM_FAN_CURSORS "*/fanout-*.offset"
#define SIM_WAL SIM_DATA "/ingress/*.wal"
#define SIM_CHECKPOINT SIM_DATA "/ingress/*checkpoint*"
#define SIM_MARKERS "*/incarnation*" /* the temporary file as well */
#define SIM_RECORDS SIM_DATA "/meta/*"
#define SIM_TOPIC_FOLDERS SIM_DATA "/topics*"

typedef enum SimFaultKind {
    SIM_FAIL,  /* the call returns `error` */
    SIM_SHORT, /* a pread or pwritev does less than asked, see short_by */
    SIM_FLIP,  /* a pread gives its bytes with one bit turned: number `bit` modulo the bits that were read */
    SIM_LIE,   /* a sync returns 0 and nothing is durable; see forgets */
    SIM_CRASH, /* power off before the call (after it: done_anyway); the call returns -EIO */
} SimFaultKind;

/* What of the dirty sectors a failing sync has written to the disk. */
typedef enum SimReached { SIM_REACHED_NONE, SIM_REACHED_SOME, SIM_REACHED_ALL } SimReached;

#define SIM_SHORT_HALF (-1)        /* half of the bytes, rounded down */
#define SIM_SHORT_ALL_BUT_ONE (-2) /* n-1 bytes are missing: one is done */
#define SIM_SHORT_ALL (-3)         /* 0 is returned */

typedef bool (*SimPredicate)(const SimCallInfo *call, void *user_data);

/* A planned fault. It looks at the calls of that kind on such paths for which `when` holds, counts them from 1, and fires
 * on number nth, or on that and every later one (stays). A rename matches with either of its paths.
 *
 * A sync of a file that fails (SIM_FAIL) is the page cache's lie: its dirty pages are clean afterwards, reads give the new
 * bytes, the next sync returns 0, and the disk has only what `reached` says. What an ftruncate did stays to be written,
 * and so do the names of a folder whose sync fails: they are in the journal, not in pages (with forgets, names are lost
 * like data). keeps_dirty: everything stays dirty, as after EINTR. A SIM_FAIL with short_by writes that part before it
 * fails; with done_anyway the call does all it should and fails nevertheless; a close always gives the descriptor back.
 * Beware of EINTR that stays: the engine tries again for ever. */
typedef struct SimFault {
    SimFaultKind kind;
    SimCall call;
    const char *pattern; /* copied; NULL: every path */
    SimPredicate when;   /* called with the disk's lock held: it may not call the disk; NULL: always */
    void *user_data;
    uint64_t nth; /* 0: 1 */
    bool stays;
    int error;        /* a negative errno */
    int64_t short_by; /* bytes less than asked (at most all), or one of SIM_SHORT_ */
    uint64_t bit;
    SimReached reached;
    bool keeps_dirty;
    bool forgets; /* SIM_LIE: what was to be synced is never written; else the next honest sync writes it */
    bool done_anyway;
} SimFault;

/* Returns the fault's id, from 0. Several may be planned; the first one that fires on a call wins, and all count it. */
int sim_disk_plan(SimDisk *disk, const SimFault *fault);

/* Ends one fault, or all; what they have done so far can still be asked for. */
void sim_disk_unplan(SimDisk *disk, int id);
void sim_disk_unplan_all(SimDisk *disk);

typedef struct SimFired {
    uint64_t n_matched; /* calls that the fault looked at */
    uint64_t n_fired;
    SimCallInfo first; /* the call on which it fired first, if it did; path lives as long as the disk */
} SimFired;

void sim_disk_fired(SimDisk *disk, int id, SimFired *ret_fired);

/* ---- watching ---- */

/* before: the call has had no effect and no fault yet; else it is over. On the calling thread with the disk's lock held:
 * it may call sim_disk_snapshot, and of the rest of the disk nothing. One watcher; NULL ends it. */
typedef void (*SimWatchFn)(SimDisk *disk, const SimCallInfo *call, bool before, void *user_data);
void sim_disk_watch(SimDisk *disk, SimWatchFn watch, void *user_data);

/* Calls so far, of that kind (SIM_ANY_CALL, SIM_ANY_SYNC) on paths that match pattern (NULL: every path). */
uint64_t sim_disk_count(SimDisk *disk, SimCall call, const char *pattern);

/* Calls f for every kind and path that had calls, in order of path and kind; not under the lock. */
typedef void (*SimCountFn)(SimCall call, const char *path, uint64_t n, void *user_data);
void sim_disk_foreach_count(SimDisk *disk, SimCountFn f, void *user_data);

/* Writes the seed, the planned faults and what became of them, and the last 200 calls, oldest first, one a line. */
void sim_disk_print_trace(SimDisk *disk, FILE *to);

#endif
