/* The file system: FUSE operations over an engine. What mount/ sees of fs/.
 *
 * Life: nrd_fs_new, a session made with nrd_fs_ops and the NrdFs as its user data, nrd_fs_set_session, its loop. Then, in this
 * order: nrd_engine_stop (parked readers are answered), nrd_fs_shutdown, the unmount, nrd_engine_close, the end of the
 * session, nrd_fs_free. */
#ifndef NRD_FS_FS_H
#define NRD_FS_FS_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fuse_lowlevel_ops;
struct fuse_session;

typedef struct NrdFs NrdFs;

typedef struct NrdFsOptions {
    NrdEngine *engine;
    const char *data_path; /* to be shown; outlives the file system */
    uid_t uid;             /* owner, group and umask of what belongs to no topic */
    gid_t gid;
    uint32_t umask;
    int64_t request_timeout_ms;     /* the kernel aborts the mount when a request takes that long; 0: never */
    uint64_t partial_bytes;         /* bound of unfinished records in memory, for the process; 0: 256 MiB */
    void (*ready)(void *user_data); /* called when the kernel has begun to talk, on the loop's thread */
    void *user_data;
} NrdFsOptions;

NrdFs *nrd_fs_new(const NrdFsOptions *options); /* NULL: the system gave no thread */

const struct fuse_lowlevel_ops *nrd_fs_ops(void);

/* The session made with the two, before its loop begins: what the kernel keeps of a deleted topic is taken back. */
void nrd_fs_set_session(NrdFs *fs, struct fuse_session *session);

/* Answers the requests that still wait for the disk, finishes every open handle as its last close would and gives every topic
 * back. The session's loop has ended, the connection is still there. Blocks on the disk. */
void nrd_fs_shutdown(NrdFs *fs);

/* Takes NULL. */
void nrd_fs_free(NrdFs *fs);

#endif
