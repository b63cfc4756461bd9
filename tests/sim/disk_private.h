/* What the files of the simulated disk share. See disk.h.
 *
 *   sector.c   sectors of bytes, counted and shared
 *   inode.c    files: what reads see, what is dirty, what the disk has
 *   tree.c     folders, and the whole state of a disk
 *   power.c    what a power cut leaves; images; walks over all that it can leave
 *   faults.c   planned faults, counts, the trace: before and after each call
 *   calls.c    the table
 *   disk.c     the life of a disk */
#ifndef NRD_TEST_SIM_DISK_PRIVATE_H
#define NRD_TEST_SIM_DISK_PRIVATE_H

#include "tests/sim/disk.h"

#define SECTORS_PER_PAGE 8
#define MAX_FILE_BYTES ((int64_t)1 << 43)
#define N_TRACE 200

/* ---- sectors ---- */

/* NULL is a hole: zeros that take no room. */
typedef struct SimSector {
    gint refs;
    uint8_t bytes[SIM_SECTOR_BYTES];
} SimSector;

SimSector *sim_sector_new(const uint8_t *bytes); /* SIM_SECTOR_BYTES of them */
SimSector *sim_sector_ref(SimSector *sector);    /* takes NULL */
void sim_sector_unref(SimSector *sector);        /* takes NULL */
const uint8_t *sim_sector_bytes(const SimSector *sector);
/* The sector of that number in a file of that size: what is beyond the end is zeros. A new reference. */
SimSector *sim_sector_cut(SimSector *sector, uint64_t number, int64_t file_size);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SimSector, sim_sector_unref)

/* Sectors by number; what is beyond the end of the array is a hole. */
SimSector *sim_sectors_get(GPtrArray *sectors, uint64_t number);
void sim_sectors_set(GPtrArray *sectors, uint64_t number, SimSector *sector); /* takes the reference */
GPtrArray *sim_sectors_copy(GPtrArray *sectors);

/* ---- files and folders ---- */

/* A content that a sector had since the last sync. Sequences count the changes of a tree. */
typedef struct SimVersion {
    uint64_t sequence;
    bool is_cut; /* made by an ftruncate that took the sector's bytes away */
    SimSector *sector;
} SimVersion;

typedef struct SimSize {
    uint64_t sequence;
    bool is_cut;       /* smaller than before */
    bool by_ftruncate; /* and not by a write: metadata, which a failing sync does not forget */
    int64_t size;
} SimSize;

/* Counted, and shared between trees until one of them changes it (sim_tree_own). */
typedef struct SimInode {
    gint refs;
    uint64_t number;
    bool is_dir;
    bool is_gone;     /* no name in the cache and no descriptor: only a lost unlink brings it back */
    unsigned n_links; /* names in the cache */
    int64_t mtime_ns, disk_mtime_ns;
    /* a file */
    int64_t size, disk_size;
    GPtrArray *cache, *disk; /* of SimSector* */
    GTree *dirty;            /* sector number -> GArray of SimVersion, the newest last */
    GArray *sizes;           /* of SimSize, since the last sync */
    uint64_t n_sectors;      /* in the cache, that take room */
    /* a folder */
    uint64_t parent;
    GTree *names, *disk_names; /* char* -> inode number */
} SimInode;

SimInode *sim_inode_new(uint64_t number, bool is_dir, uint64_t parent);
SimInode *sim_inode_copy(const SimInode *inode);
SimInode *sim_inode_ref(SimInode *inode);
void sim_inode_unref(SimInode *inode);

GTree *sim_names_new(void);
GTree *sim_names_copy(GTree *names);
void sim_names_set(GTree *names, const char *name, uint64_t number); /* 0: none */
uint64_t sim_names_get(GTree *names, const char *name);              /* 0: there is none */

size_t sim_inode_read(const SimInode *inode, SimLayer layer, void *buf, size_t size, int64_t pos);
void sim_inode_write(SimInode *inode, uint64_t sequence, const uint8_t *bytes, size_t size, int64_t pos);
void sim_inode_resize(SimInode *inode, uint64_t sequence, int64_t size);
void sim_inode_punch(SimInode *inode, uint64_t sequence, int64_t pos, int64_t size);
/* Sectors that a write there would take from the disk. */
uint64_t sim_inode_room_needed(const SimInode *inode, size_t size, int64_t pos);
void sim_inode_sync(SimInode *inode, bool with_time);
/* A failing sync has written what reached says. The other data is clean afterwards, though not on the disk; what an
 * ftruncate changed stays to be written, since it is in the file system's journal and not in pages. */
void sim_inode_fail_sync(SimInode *inode, SimReached reached, GRand *rand);
void sim_inode_drop_clean(SimInode *inode);

/* ---- the state of a disk ---- */

typedef enum SimChangeKind { SIM_LINKED, SIM_UNLINKED, SIM_RENAMED } SimChangeKind;

/* A change of names that is not durable. */
typedef struct SimChange {
    uint64_t sequence;
    SimChangeKind kind;
    uint64_t dir, to_dir; /* the same but for a rename between two */
    bool waits, to_waits; /* for a sync of dir, of to_dir */
    uint64_t inode;
    char *name, *to_name;
} SimChange;

#define SIM_ROOT 1 /* the number of its inode */

typedef struct SimTree {
    GHashTable *inodes; /* uint64_t* (in the inode) -> SimInode* */
    GPtrArray *changes; /* of SimChange*, in order */
    uint64_t sequence, next_number;
    uint64_t n_sectors, n_inodes; /* that take room */
} SimTree;

SimTree *sim_tree_new(void);
SimTree *sim_tree_copy(const SimTree *tree); /* shares what it can */
void sim_tree_free(SimTree *tree);
SimInode *sim_tree_get(const SimTree *tree, uint64_t number); /* NULL: there is none */
SimInode *sim_tree_own(SimTree *tree, uint64_t number);       /* to change it; pointers had before are stale */

uint64_t sim_tree_create(SimTree *tree, uint64_t dir, const char *name, bool is_dir); /* returns its number */
void sim_tree_unlink(SimTree *tree, uint64_t dir, const char *name);
/* what stands at the target is unlinked */
void sim_tree_rename(SimTree *tree, uint64_t dir, const char *name, uint64_t to_dir, const char *to_name);
bool sim_tree_is_below(const SimTree *tree, uint64_t number, uint64_t ancestor); /* or the same */
void sim_tree_sync_dir(SimTree *tree, uint64_t dir);
void sim_tree_forget_dir(SimTree *tree, uint64_t dir); /* a failing sync: the disk keeps the old names */
void sim_tree_sync_names_of(SimTree *tree, uint64_t number);
void sim_tree_apply(SimTree *tree, const SimChange *change); /* to the names on the disk */
void sim_tree_account(SimTree *tree, SimInode *owned, uint64_t n_sectors_before);
/* The inode has no descriptor any more (or never had); when it has no name either, its room is free. */
void sim_tree_release(SimTree *tree, uint64_t number);
void sim_tree_collect(SimTree *tree,
                      GHashTable *open); /* forgets inodes that nothing can bring back; open may be NULL */
uint64_t sim_tree_find(const SimTree *tree, SimLayer layer, const char *path); /* 0: there is none */

/* ---- the disk ---- */

typedef struct SimOpen {
    uint64_t inode;
    int flags;
    bool locks;
    const char *path; /* interned */
} SimOpen;

typedef struct SimMapping {
    uint64_t inode;
    uint8_t *addr;
    size_t size;
} SimMapping;

typedef struct SimPlan {
    SimFault fault;
    GPatternSpec *pattern; /* NULL: every path */
    bool ended;
    SimFired fired;
} SimPlan;

typedef struct SimTraced {
    SimCallInfo info;
    long thread;
} SimTraced;

struct SimDisk {
    GRecMutex lock;
    SimDiskOptions options;
    /* guarded by lock */
    uint64_t capacity_sectors, max_inodes;
    GRand *rand;
    SimTree *tree;
    bool is_off;
    GHashTable *open;    /* descriptor -> SimOpen* */
    GPtrArray *mappings; /* of SimMapping* */
    GStringChunk *paths; /* interned */
    GPtrArray *plans;    /* of SimPlan* */
    GHashTable *counts;  /* interned path -> uint64_t[SIM_N_CALLS] */
    SimTraced trace[N_TRACE];
    uint64_t n_calls, n_bad;
    SimWatchFn watch;
    void *watch_data;
};

/* A call under way. */
typedef struct SimAct {
    SimDisk *disk;
    SimCallInfo info;
    const char *to_path; /* of a rename */
    const SimPlan *plan; /* whose fault fired, or NULL */
    int error;           /* returned in place of success */
} SimAct;

/* Takes the lock. Whether the call shall do its work; otherwise its result stands in info. `installed` may not be NULL. */
bool sim_act_begin(SimAct *act);
/* Gives the lock back and returns what the call returns. */
int64_t sim_act_end(SimAct *act, int64_t result);
/* How much of size the call does. */
uint64_t sim_act_limit(const SimAct *act, uint64_t size);
void sim_plan_free(gpointer plan);

SimDisk *sim_disk_installed(void);
void sim_disk_power_off_locked(SimDisk *disk);
/* After bytes of it changed: what is mapped shows them. */
void sim_disk_refresh_maps(SimDisk *disk, uint64_t inode);

struct SimImage {
    gint refs;
    SimTree *tree;
};

/* The tree after a power cut; everything in it is durable. */
SimTree *sim_tree_after_cut(const SimTree *tree, const SimCrash *crash);

#endif
