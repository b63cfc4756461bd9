/* What the files of fs/ share: the kinds of nodes, nodes, handles, and the operations of a file.
 *
 * A node is what the kernel knows by a number; a kind says what it is. Nodes of fixed kinds are shared: two look-ups of
 * one name give one node. Nodes of `fresh` kinds are made anew by every look-up, with the same st_ino: the kernel locks
 * an inode across a write and an fsync, so files that many processes write at once must not share one.
 *
 * A handle is one OPEN. Handles of one node (descriptors reopened through /proc/self/fd, or of a fixed node) know each
 * other through it.
 *
 * Locks, in the order they may be taken: NrdNode.lock > NrdHandle.lock > NrdFs.lock. The tables of node.c, poll.c and
 * defer.c, and prune.c, have locks of their own, taken last. None is held across a reply, nor across an engine call that may call
 * back or block. */
#ifndef NRD_FS_FS_PRIVATE_H
#define NRD_FS_FS_PRIVATE_H

#define FUSE_USE_VERSION 312
#include "engine/base/diag.h"
#include "fs/fs.h"
#include "fs/partial_budget.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <glib.h>
#include <sys/stat.h>

typedef struct NrdNode NrdNode;
typedef struct NrdNodes NrdNodes;
typedef struct NrdHandle NrdHandle;
typedef struct NrdFileOps NrdFileOps;
typedef struct NrdPoll NrdPoll;
typedef struct NrdDefer NrdDefer;
typedef struct NrdPrune NrdPrune;

typedef enum NrdKind {
    NRD_KIND_ROOT,
    NRD_KIND_HELP,
    NRD_KIND_ROOT_STATUS,
    NRD_KIND_METRICS,
    NRD_KIND_TOPICS,
    NRD_KIND_TOPIC,
    NRD_KIND_TOPIC_CONFIG,
    NRD_KIND_TOPIC_CTL,
    NRD_KIND_TOPIC_STATUS,
    NRD_KIND_TOPIC_PRODUCE,
    NRD_KIND_TOPIC_PRODUCE_JSONL,
    NRD_KIND_TOPIC_PRODUCE_BIN,
    NRD_KIND_TOPIC_CONSUME_LINK,
    NRD_KIND_TOPIC_CONSUME_JSONL_LINK,
    NRD_KIND_TOPIC_CONSUME_BIN_LINK,
    NRD_KIND_TOPIC_DRAIN_LINK,
    NRD_KIND_TOPIC_ACK,
    NRD_KIND_TOPIC_STREAMS,
    NRD_KIND_TOPIC_CONSUME,
    NRD_KIND_TOPIC_CONSUME_JSONL,
    NRD_KIND_TOPIC_CONSUME_BIN,
    NRD_KIND_TOPIC_DRAIN,
    NRD_KIND_CHILDREN,
    NRD_KIND_CHILD,
    NRD_KIND_CHILD_STATUS,
    NRD_KIND_PARTITION,
    NRD_KIND_CTL,
    NRD_KIND_STATUS,
    NRD_KIND_PRODUCE,
    NRD_KIND_PRODUCE_JSONL,
    NRD_KIND_PRODUCE_BIN,
    NRD_KIND_CONSUME_LINK,
    NRD_KIND_CONSUME_JSONL_LINK,
    NRD_KIND_CONSUME_BIN_LINK,
    NRD_KIND_DRAIN_LINK,
    NRD_KIND_ACK,
    NRD_KIND_LOG,
    NRD_KIND_LOG_JSONL,
    NRD_KIND_LOG_BIN,
    NRD_KIND_FROM,
    NRD_KIND_FROM_START,
    NRD_KIND_FROM_END,
    NRD_KIND_FROM_OFFSET,
    NRD_KIND_RECORDS,
    NRD_KIND_RECORD,
    NRD_KIND_BY_TIME,
    NRD_KIND_TIME_LINK,
    NRD_KIND_SEGMENTS,
    NRD_KIND_SEGMENT,
    NRD_KIND_STREAMS,
    NRD_KIND_CONSUME,
    NRD_KIND_CONSUME_JSONL,
    NRD_KIND_CONSUME_BIN,
    NRD_KIND_DRAIN,
    NRD_N_KINDS,
} NrdKind;

/* One row of the table in kinds.c. */
typedef struct NrdKindInfo {
    NrdKind kind;
    NrdKind parent;
    const char *name; /* NULL: the names come from the engine, or say a number or a time */
    const char *path; /* for owner and mode: below the topic, or (with its slash) below the partition; or NULL */
    mode_t mode;      /* type and widest permissions */
    bool fresh;       /* a node of its own for each look-up */
    bool brief;       /* the kernel asks for the name each time */
    bool listed;
    bool named;       /* `name@<anything>` is the same file */
    bool stream;      /* FOPEN_STREAM: no file position */
    bool steady;      /* the kernel may remember its attributes for a while */
    bool truncate;    /* truncation is ignored instead of refused */
    bool pins;        /* an open one keeps its partition open */
    const char *link; /* target of a symlink */
    const NrdFileOps *ops;
} NrdKindInfo;

const NrdKindInfo *nrd_kind_info(NrdKind kind);
/* The kind of a fixed name in a directory, or NULL. *ret_alias: what follows the `@`, or NULL. */
const NrdKindInfo *nrd_kind_find(NrdKind parent, const char *name, const char **ret_alias);

/* What the requests of a file do. All of them reply exactly once. A NULL open does nothing; flush and fsync succeed;
 * size is 0. */
struct NrdFileOps {
    /* Looks at the disk for what a stat tells, and keeps it in node->seen: -ENOENT when there is no such thing, -EBADMSG.
     * Runs on the threads of defer.c. NULL: a stat needs no disk. */
    int (*visit)(NrdNode *node);
    bool visit_open; /* also while it is open: what it shows grows, and only a visit tells how much */
    int (*open)(NrdHandle *handle);
    void (*read)(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags);
    /* flags: the descriptor's at this moment; of a write with O_SYNC or O_DSYNC when this write has to be durable. */
    void (*write)(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags);
    bool write_waits; /* for the topic's guard or longer: write runs on the threads of defer.c */
    void (*flush)(NrdHandle *handle, fuse_req_t req);
    void (*fsync)(NrdHandle *handle, fuse_req_t req);
    /* The kernel is done with the handle. last: no other handle of the node is open. Takes over the kernel's reference
     * and gives it back (nrd_handle_unref), at once or when the engine is done. NULL: just that. */
    void (*release)(NrdHandle *handle, bool last);
    void (*destroy)(NrdHandle *handle); /* frees handle->state */
    uint64_t (*size)(NrdNode *node);
    char *(*text)(NrdNode *node); /* content of a text file (text_file.c) */
    uint32_t (*poll)(NrdHandle *handle);
    bool watch; /* poll waits for the partition to become readable */
    bool takes; /* it consumes: in a topic's folder, from every partition */
};

extern const NrdFileOps nrd_help_ops;
extern const NrdFileOps nrd_root_status_ops;
extern const NrdFileOps nrd_metrics_ops;
extern const NrdFileOps nrd_topic_config_ops;
extern const NrdFileOps nrd_topic_ctl_ops;
extern const NrdFileOps nrd_topic_status_ops;
extern const NrdFileOps nrd_child_status_ops;
extern const NrdFileOps nrd_partition_ctl_ops;
extern const NrdFileOps nrd_partition_status_ops;
extern const NrdFileOps nrd_produce_ops;
extern const NrdFileOps nrd_ack_ops;
extern const NrdFileOps nrd_log_ops;
extern const NrdFileOps nrd_log_jsonl_ops;
extern const NrdFileOps nrd_log_bin_ops;
extern const NrdFileOps nrd_from_start_ops;
extern const NrdFileOps nrd_from_end_ops;
extern const NrdFileOps nrd_from_offset_ops;
extern const NrdFileOps nrd_record_ops;
extern const NrdFileOps nrd_segment_ops;
extern const NrdFileOps nrd_consume_ops;
extern const NrdFileOps nrd_consume_jsonl_ops;
extern const NrdFileOps nrd_consume_bin_ops;
extern const NrdFileOps nrd_drain_ops;

/* What the last visit of a node found. */
typedef struct NrdSeen {
    uint64_t size_bytes;
    int64_t ms; /* time of the content; 0: the partition's last commit */
    bool keyed; /* a record with a key */
    bool final; /* none of this changes any more */
} NrdSeen;

struct NrdNode {
    /* fixed from the start */
    NrdFs *fs;
    uint64_t id;
    const NrdKindInfo *info;
    NrdTopic *topic; /* referenced; NULL above the topics */
    NrdPartition *partition;
    NrdTopic
        *child;   /* referenced; below children/: whose folder it is, that of another topic than `topic`; else NULL */
    uint64_t arg; /* an offset, the first one of a segment, or milliseconds (signed); else 0 */
    uint64_t ino;
    /* guarded by the table's lock */
    uint64_t n_lookups;
    GList age;
    uint32_t n_refs; /* of handles, listings and deferred requests; the node lives while there are look-ups or these */
    /* guarded by lock */
    GMutex lock;
    GPtrArray *handles; /* open ones, oldest first, not referenced */
    NrdSeen seen;
    void *stream; /* consume*, drain: what the handles share (stream.c) */
};

struct NrdHandle {
    /* fixed from the start */
    NrdFs *fs;
    NrdNode *node; /* referenced */
    NrdTopic *topic;
    NrdPartition *partition;
    NrdTopicConsumer *consumer; /* of a file that consumes a topic */
    const NrdFileOps *ops;
    int flags;       /* of the OPEN */
    NrdPoll *poll;   /* see poll.c */
    bool may_settle; /* of a consuming file: who opened it may write `ack` */
    bool pinned;     /* nrd_partition_unpin is owed */
    bool cached;     /* set by the kind's open: the content never changes, the kernel may keep it */
    gint n_refs;     /* atomic */
    GMutex lock;     /* guards state, as its file's module says, and the next two */
    void *state;
    off_t written_to; /* the highest position that a write or a read has reached */
    bool hole_told;   /* see note_hole */
};

struct NrdFs {
    NrdFsOptions options;
    NrdEngine *engine;
    int64_t mounted_ms;
    int64_t mounted_mono_ms;
    uint32_t max_write; /* set by INIT, before any other request */
    NrdNodes *nodes;
    NrdDefer *defer;
    NrdPrune *prune;
    NrdPartialBudget partials;    /* of the producing handles */
    struct fuse_session *session; /* set before the first request */
    /* guarded by lock */
    GMutex lock;
    GCond handle_gone;
    GHashTable *handles;  /* open ones */
    GHashTable *listings; /* open directories: an unmount does not always release them */
    uint64_t n_handles;   /* open ones, and those whose release is under way */
};

/* handle.c */
int nrd_handle_open(NrdFs *fs, NrdNode *node, int flags, NrdHandle **ret_handle) NRD_MUST_CHECK;
void nrd_handle_close(NrdHandle *handle); /* as RELEASE */
NrdHandle *nrd_handle_ref(NrdHandle *handle);
void nrd_handle_unref(NrdHandle *handle);
void nrd_handles_close_all(NrdFs *fs);
void nrd_listings_close_all(NrdFs *fs); /* dir.c */
NrdPlace nrd_handle_place(NrdHandle *handle);
NrdPlace nrd_node_place(const NrdNode *node);
/* Whether a WRITE of this size may be a part of a larger write(2): the kernel cuts those into requests of max_write, or of a
 * page less when their memory is not aligned. */
bool nrd_may_be_cut(const NrdHandle *handle, size_t size);
/* Says in the log that a file which can only be read was opened for writing, or what else was tried; is -EPERM. */
int nrd_refuse_writing(const NrdNode *node, const char *what);

/* open_reply.c */
void nrd_reply_open(fuse_req_t req, NrdHandle *handle);

/* access.c: whether the caller has write permission on a file of the topic (a path as in nrd_topic_get_attr), that and the
 * right to enter the topic's folder, which the kernel has not looked at when the topic is named and not walked to; whether
 * the caller may read the records of every partition; has write permission on the `ack` beside the node's file; whether
 * what `produce` and `consume` beside it allow the caller lets it be opened. Memory, and /proc of the caller for its
 * groups. */
bool nrd_may_write(fuse_req_t req, NrdTopic *topic, const char *path);
bool nrd_may_reach_and_write(fuse_req_t req, NrdTopic *topic, const char *path);
bool nrd_may_read_all(fuse_req_t req, NrdTopic *topic);
bool nrd_may_settle(fuse_req_t req, const NrdNode *node);
bool nrd_may_open_sibling(fuse_req_t req, const NrdNode *node, int flags);

/* attr.c */
void nrd_node_stat(NrdNode *node, struct stat *ret_st);
NrdSeen nrd_node_seen(NrdNode *node);
void nrd_node_set_seen(NrdNode *node, const NrdSeen *seen);
double nrd_node_attr_timeout(NrdNode *node);

/* poll.c */
void nrd_poll_register(NrdHandle *handle);
void nrd_poll_unregister(NrdHandle *handle);

/* text_file.c: files whose content is a text made when they are opened, and again when read from their start. open is
 * for those that change by themselves: a stat of an open one then tells the size of what will be read. */
int nrd_text_file_open(NrdHandle *handle);
void nrd_text_file_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags);
void nrd_text_file_destroy(NrdHandle *handle);
uint64_t nrd_text_file_size(NrdNode *node);

/* status.c: as RFC 3339, in seconds; 0: "never". */
void nrd_append_time(GString *text, int64_t ms);
/* status.c: the condition for a `reopen`, in words. */
const char *nrd_when_well(const NrdFs *fs);
/* What a person does about commits that fail. */
const char *nrd_when_commits_fail(const NrdFs *fs);

/* log.c: the first open handle of a node, referenced, or NULL. */
NrdHandle *nrd_node_any_handle(NrdNode *node);

/* by_time.c: answers READLINK of a link of by-time/; waits for the disk. */
void nrd_time_link_read(NrdNode *node, fuse_req_t req);

static inline NrdFs *nrd_req_fs(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static inline NrdHandle *nrd_fi_handle(const struct fuse_file_info *fi)
{
    return (NrdHandle *)(uintptr_t)fi->fh;
}

/* Engine errors are negative. The reply's own failure means that nobody waits for it any more. ENOSYS may come from a disk or
 * from a filter of system calls; the kernel would take it for "never ask again" and answer every later fsync itself, with 0
 * (fuse_fsync, fuse_flush in its fs/fuse/file.c). */
static inline void nrd_reply_error(fuse_req_t req, int error)
{
    fuse_reply_err(req, error == -ENOSYS ? EIO : -error);
}

static inline void nrd_reply_empty(fuse_req_t req)
{
    fuse_reply_buf(req, NULL, 0);
}

/* The FUSE operations, by file. */
void nrd_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void nrd_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void nrd_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void nrd_op_readlink(fuse_req_t req, fuse_ino_t ino);
void nrd_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void nrd_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void nrd_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void nrd_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void nrd_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void nrd_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name);
void nrd_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
                   unsigned int flags);
void nrd_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void nrd_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void nrd_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void nrd_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void nrd_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void nrd_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void nrd_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
void nrd_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void nrd_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void nrd_op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph);
void nrd_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void nrd_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void nrd_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void nrd_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
