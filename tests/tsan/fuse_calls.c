/* What the kernel orders and ThreadSanitizer cannot see; linked like glib_calls.c, into what uses libfuse.
 *
 * An open file's handle goes to the kernel in the answer to OPEN and comes back with every request about it, on any
 * thread. So what was done before that answer happens before those requests, and what was done before the answers to them
 * before RELEASE. So it is with a node: the answer to LOOKUP gives its id away, and FORGET comes after all answers to
 * requests that name it. Nothing else counts as ordered: two requests about one file may have been answered and taken one after
 * the other, and still have to keep each other out. (ThreadSanitizer's own view, every answer before every request that is
 * read later, hides most races; scripts/tsan turns it off: io_sync=0.) A folder's requests the kernel sends one by one. */
#define FUSE_USE_VERSION 312
#include "fs/fs_private.h"

#include <fuse_lowlevel.h>
#include <sanitizer/tsan_interface.h>

#define REAL(function) __real_##function
#define WRAP(function) __wrap_##function

#define N_NODE_KEYS 65536

/* Of the request that this thread is processing: its handle, or NULL; whether it has just been made; its node, or 0. */
static _Thread_local char *handle;
static _Thread_local bool opened;
static _Thread_local fuse_ino_t node;
static _Thread_local bool lists; /* it is a READDIRPLUS */
static struct fuse_lowlevel_ops real;
/* Only addresses count. */
static char node_keys[N_NODE_KEYS];
static char listed_nodes; /* of all that READDIRPLUS has told */

static void enter(fuse_ino_t ino, const struct fuse_file_info *fi)
{
    node = ino;
    handle = fi ? (char *)(uintptr_t)fi->fh : NULL;
    opened = false;
    if (handle)
        __tsan_acquire(handle);
}

static void leave(void)
{
    handle = NULL;
    node = 0;
}

/* Two addresses of a handle stand for the two orders: opened before used, used before released. */
static void answer(void)
{
    if (handle && opened)
        __tsan_release(handle);
    if (handle)
        __tsan_release(handle + sizeof(gpointer));
    if (node != 0)
        __tsan_release(&node_keys[node % N_NODE_KEYS]);
    leave();
}

/* After all answers about the handle. */
static void follow(void)
{
    __tsan_acquire(handle + sizeof(gpointer));
}

/* What READDIRPLUS tells of are nodes that it looked up. */
static void listed(void)
{
    if (lists)
        __tsan_release(&listed_nodes);
}

static void forget(fuse_ino_t ino)
{
    __tsan_acquire(&node_keys[ino % N_NODE_KEYS]);
    __tsan_acquire(&listed_nodes);
}

#define OP(op, fi, before, parameters, arguments)                                                                      \
    static void seen_##op parameters                                                                                   \
    {                                                                                                                  \
        enter(ino, fi);                                                                                                \
        before;                                                                                                        \
        real.op arguments;                                                                                             \
        leave();                                                                                                       \
    }
#define NODE_OP(op, parameters, arguments) OP(op, NULL, (void)0, parameters, arguments)
#define FILE_OP(op, parameters, arguments) OP(op, fi, (void)0, parameters, arguments)
/* A request that comes after all others about the handle, or after the one before. */
#define NEXT_OP(op, parameters, arguments) OP(op, fi, follow(), parameters, arguments)

NODE_OP(lookup, (fuse_req_t req, fuse_ino_t ino, const char *name), (req, ino, name))
NODE_OP(mkdir, (fuse_req_t req, fuse_ino_t ino, const char *name, mode_t mode), (req, ino, name, mode))
NODE_OP(rmdir, (fuse_req_t req, fuse_ino_t ino, const char *name), (req, ino, name))
NODE_OP(readlink, (fuse_req_t req, fuse_ino_t ino), (req, ino))
NODE_OP(getxattr, (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size), (req, ino, name, size))
NODE_OP(setxattr, (fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags),
        (req, ino, name, value, size, flags))
NODE_OP(listxattr, (fuse_req_t req, fuse_ino_t ino, size_t size), (req, ino, size))
NODE_OP(removexattr, (fuse_req_t req, fuse_ino_t ino, const char *name), (req, ino, name))
NODE_OP(statfs, (fuse_req_t req, fuse_ino_t ino), (req, ino))
NODE_OP(open, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
NODE_OP(opendir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
FILE_OP(getattr, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
FILE_OP(setattr, (fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi),
        (req, ino, st, to_set, fi))
FILE_OP(read, (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
        (req, ino, size, off, fi))
FILE_OP(write, (fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi),
        (req, ino, buf, size, off, fi))
FILE_OP(flush, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
FILE_OP(fsync, (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi), (req, ino, datasync, fi))
FILE_OP(poll, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph),
        (req, ino, fi, ph))
NEXT_OP(release, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
NEXT_OP(readdir, (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi),
        (req, ino, size, off, fi))
NEXT_OP(releasedir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi), (req, ino, fi))
OP(forget, NULL, forget(ino), (fuse_req_t req, fuse_ino_t ino, uint64_t nlookup), (req, ino, nlookup))

static void seen_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    enter(ino, fi);
    follow();
    lists = true;
    real.readdirplus(req, ino, size, off, fi);
    lists = false;
    leave();
}

static void seen_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        forget(forgets[i].ino);
    real.forget_multi(req, count, forgets);
}

#define OPS(SET)                                                                                                       \
    SET(lookup)                                                                                                        \
    SET(mkdir)                                                                                                         \
    SET(rmdir)                                                                                                         \
    SET(readlink)                                                                                                      \
    SET(getxattr)                                                                                                      \
    SET(setxattr)                                                                                                      \
    SET(listxattr)                                                                                                     \
    SET(removexattr)                                                                                                   \
    SET(statfs)                                                                                                        \
    SET(open)                                                                                                          \
    SET(opendir)                                                                                                       \
    SET(getattr)                                                                                                       \
    SET(setattr)                                                                                                       \
    SET(read)                                                                                                          \
    SET(write)                                                                                                         \
    SET(flush)                                                                                                         \
    SET(fsync)                                                                                                         \
    SET(poll)                                                                                                          \
    SET(release)                                                                                                       \
    SET(readdir)                                                                                                       \
    SET(readdirplus)                                                                                                   \
    SET(releasedir)                                                                                                    \
    SET(forget)                                                                                                        \
    SET(forget_multi)
#define SEEN(op) seen.op = seen_##op;

struct fuse_session *REAL(fuse_session_new)(struct fuse_args *args, const struct fuse_lowlevel_ops *ops,
                                            size_t ops_size, void *userdata);
struct fuse_session *WRAP(fuse_session_new)(struct fuse_args *args, const struct fuse_lowlevel_ops *ops,
                                            size_t ops_size, void *userdata);

struct fuse_session *WRAP(fuse_session_new)(struct fuse_args *args, const struct fuse_lowlevel_ops *ops,
                                            size_t ops_size, void *userdata)
{
    struct fuse_lowlevel_ops seen = *ops;
    g_assert(ops_size == sizeof seen);
    real = *ops;
    OPS(SEEN)
    return REAL(fuse_session_new)(args, &seen, ops_size, userdata);
}

/* ---- answers ---- */

void REAL(nrd_reply_open)(fuse_req_t req, NrdHandle *made);
void WRAP(nrd_reply_open)(fuse_req_t req, NrdHandle *made);

/* It calls fuse_reply_buf; on any thread. */
void WRAP(nrd_reply_open)(fuse_req_t req, NrdHandle *made)
{
    handle = (char *)made;
    opened = true;
    REAL(nrd_reply_open)(req, made);
    leave();
}

#define ANSWER(function, before, parameters, arguments)                                                                \
    int REAL(function) parameters;                                                                                     \
    int WRAP(function) parameters;                                                                                     \
    int WRAP(function) parameters                                                                                      \
    {                                                                                                                  \
        before;                                                                                                        \
        answer();                                                                                                      \
        return REAL(function) arguments;                                                                               \
    }

ANSWER(fuse_reply_open, __tsan_release((void *)(uintptr_t)fi->fh), (fuse_req_t req, const struct fuse_file_info *fi),
       (req, fi))
ANSWER(fuse_reply_entry, __tsan_release(&node_keys[entry->ino % N_NODE_KEYS]),
       (fuse_req_t req, const struct fuse_entry_param *entry), (req, entry))
ANSWER(fuse_reply_buf, listed(), (fuse_req_t req, const char *buf, size_t size), (req, buf, size))
ANSWER(fuse_reply_err, (void)0, (fuse_req_t req, int error), (req, error))
ANSWER(fuse_reply_write, (void)0, (fuse_req_t req, size_t count), (req, count))
ANSWER(fuse_reply_attr, (void)0, (fuse_req_t req, const struct stat *st, double timeout_s), (req, st, timeout_s))
ANSWER(fuse_reply_poll, (void)0, (fuse_req_t req, unsigned events), (req, events))
ANSWER(fuse_reply_xattr, (void)0, (fuse_req_t req, size_t size), (req, size))
ANSWER(fuse_reply_readlink, (void)0, (fuse_req_t req, const char *target), (req, target))
