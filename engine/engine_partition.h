/* engine.h: partitions, what is known of one, and the verbs of its ctl. */
#ifndef NRD_ENGINE_ENGINE_PARTITION_H
#define NRD_ENGINE_ENGINE_PARTITION_H

#include "engine/engine_types.h"

/* The partition, alive as long as the topic; NULL when there is none of that number. */
NrdPartition *nrd_topic_partition(NrdTopic *topic, uint32_t number);

/* A partition is closed until it is used, and again when nobody has used it for a while. Who uses it pins it: an open
 * handle does as long as it lives. pin opens (which recovers: it may read a whole segment) and blocks; while a topic's
 * partition is being opened or closed only callers of that topic wait. Errors: -EIDRM, -ENODEV, -EIO (it cannot be
 * opened; the next pin tries again), -EMFILE, -ENOMEM. unpin never blocks. Producers and readers below pin for themselves;
 * taking and settling need the caller's pin, until every callback has come. */
int nrd_partition_pin(NrdPartition *partition) NRD_MUST_CHECK;
void nrd_partition_unpin(NrdPartition *partition);

/* Whether a pin would be had (or refused) without waiting for the disk. Never blocks. */
bool nrd_partition_is_open(NrdPartition *partition);

/* Whether nrd_partition_info can answer. learn sees to it: it reads what a clean close left or opens the partition. A
 * partition that cannot be opened is known by that, as a fault. Errors, after which it is still not known, and what info
 * tells means nothing: -EIO the topic is out of service, -EIDRM, -ENODEV, -EMFILE, -ENFILE, -ENOMEM. Blocks. */
bool nrd_partition_known(NrdPartition *partition);
int nrd_partition_learn(NrdPartition *partition) NRD_MUST_CHECK;
void nrd_topic_learn(NrdTopic *topic); /* all its partitions; those that fail stay unknown. Blocks */

typedef struct NrdPartitionInfo {
    uint64_t oldest_offset;
    uint64_t hwm; /* exclusive */
    uint64_t next_offset;
    uint64_t frontier;
    uint64_t lag; /* hwm - frontier, less what is acked ahead and what is known to be lost */
    uint64_t in_flight;
    uint64_t acked_ahead;
    uint64_t segments;
    uint64_t size_bytes;
    uint64_t text_bytes; /* size of `log` for who opens it now */
    int64_t last_commit_ms;
    int64_t
        oldest_ms;  /* commit time of the oldest record, about; 0: there is none, or only a look at the disk can tell */
    bool poisoned;  /* a sync failed, or: */
    bool by_others; /* ... others have taken or replaced a file that is written to. `reopen` clears either */
    bool passes;    /* ... or servers give no answer: that passes by itself */
    const char *durability; /* as nrd_engine_durability, of this partition; NULL: not known, or the engine's */
    char *reason;           /* poison or fault in one sentence, "" when well; g_free */
    char *unsaved;          /* why progress of consumers cannot be written now, in one sentence; NULL: it can; g_free */
    char *apart;            /* that servers have copies that differ, in one sentence; NULL: none is known; g_free */
    uint64_t n_damaged;  /* frames known to be damaged, since the partition was opened; what they held is passed over */
    uint64_t n_lost;     /* records in them */
    uint64_t first_lost; /* the offset of the first; only with n_damaged above 0 */
    uint64_t n_holes;    /* places where a segment is gone or emptied, likewise */
    uint64_t n_missing;  /* records in them */
    uint64_t first_missing, last_missing; /* only with n_holes above 0 */
    uint64_t n_hidden;                    /* whole records from hwm on that are not served before the next commit */
    uint64_t n_unreadable;                /* segments whose last read failed: those who read there get EIO */
    uint64_t unreadable;                  /* the first record's offset, and the name, of the first of them */
    int unreadable_errno;                 /* why, positive; both only with n_unreadable above 0 */
    int commit_errno;                     /* positive; the last commit failed, the next may succeed. 0: well */
    bool anew;                            /* its folder was missing, and nobody has said by `reopen` that it is known */
    bool fault;                           /* could not be opened: every operation is -EIO */
    bool open;                            /* its files are open */
} NrdPartitionInfo;

/* Never waits for the disk: of a closed partition it tells what was true at its close. All zero while it is not known. */
void nrd_partition_info(NrdPartition *partition, NrdPartitionInfo *ret_info);
void nrd_partition_info_clear(NrdPartitionInfo *info);

/* The known damage in words (g_free); NULL: there is none. Pure. */
char *nrd_partition_info_damage(const NrdPartitionInfo *info);
/* The same of a folder that was missing; not to be freed. */
const char *nrd_partition_info_anew(const NrdPartitionInfo *info);
/* The same of segments that cannot be read. */
char *nrd_partition_info_unreadable(const NrdPartitionInfo *info);
/* The same of records that are hidden. */
char *nrd_partition_info_hidden(const NrdPartitionInfo *info);

/* A run of offsets that are lost: [offset, end_offset). */
typedef struct NrdLostRange {
    uint64_t offset;
    uint64_t end_offset;
} NrdLostRange;

/* The offsets known to be lost (NrdLostRange, ascending; g_array_unref). Opens a closed partition and may block for
 * that: -EIDRM, -EIO (fault), disk errors. Reads no record. */
int nrd_partition_lost_ranges(NrdPartition *partition, GArray **ret_ranges) NRD_MUST_CHECK;

uint32_t nrd_partition_number(const NrdPartition *partition);

/* The verbs of a partition's ctl. Each blocks; -EIDRM, -EROFS, disk errors. */
int nrd_partition_reopen(NrdPartition *partition) NRD_MUST_CHECK;
int nrd_partition_roll(NrdPartition *partition) NRD_MUST_CHECK;
int nrd_partition_trim(NrdPartition *partition, uint64_t offset) NRD_MUST_CHECK; /* -EINVAL above the high watermark */
typedef enum NrdSeek { NRD_SEEK_OFFSET, NRD_SEEK_START, NRD_SEEK_END } NrdSeek;
int nrd_partition_seek(NrdPartition *partition, NrdSeek to, uint64_t offset) NRD_MUST_CHECK; /* -EINVAL above the hwm */

#endif
