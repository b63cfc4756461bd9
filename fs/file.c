/* Requests on open files: checks that hold for every kind, then the kind's own operation. */
#include "fs/defer.h"
#include "fs/node.h"

#include <errno.h>
#include <fcntl.h>

static int check_open(NrdNode *node, int flags)
{
    if (!node)
        return -ESTALE;
    if (!node->info->ops)
        return S_ISDIR(node->info->mode) ? -EISDIR : -EINVAL;
    if ((flags & O_ACCMODE) == O_RDONLY)
        return (flags & O_TRUNC) && !node->info->truncate ? nrd_refuse_writing(node, "truncated") : 0;
    if (!node->info->ops->write)
        return nrd_refuse_writing(node, "opened for writing");
    return nrd_engine_read_only(node->fs->engine) ? -EROFS : 0;
}

/* What the kernel has not checked, since it is about another file. */
static int check_permissions(NrdNode *node, fuse_req_t req, int flags, bool may_settle)
{
    const char *lacking = NULL;
    if (node->info->ops == &nrd_drain_ops && !may_settle)
        lacking = "write ack, and reading this settles";
    else if (!nrd_may_open_sibling(req, node, flags))
        lacking = node->info->stream ? "read consume" : "write produce";
    if (!lacking)
        return 0;
    nrd_diag(NRD_LEVEL_NOTICE, nrd_node_place(node), "opening %s refused: user %u may not %s", node->info->name,
             (unsigned)fuse_req_ctx(req)->uid, lacking);
    return -EACCES;
}

static void open_now(NrdNode *node, fuse_req_t req, int flags, bool may_settle)
{
    NrdHandle *handle;
    int error = nrd_handle_open(node->fs, node, flags, &handle);
    if (error < 0) {
        /* A deleted topic's name is stale: the kernel then asks for it again. */
        nrd_reply_error(req, error == -EIDRM ? -ESTALE : error);
        return;
    }
    handle->may_settle = may_settle;
    nrd_reply_open(req, handle);
}

/* An OPEN that waits. */
typedef struct Opening {
    int flags;
    bool may_settle;
} Opening;

static void open_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    Opening *opening = data;
    if (error == 0)
        error = nrd_node_learn(node);
    if (error == 0)
        open_now(node, req, opening->flags, opening->may_settle);
    else
        nrd_reply_error(req, error == -EIDRM ? -ESTALE : error);
    g_free(opening);
}

/* Whether a partition has to be looked at or opened first; what is visited is read from the log as well. Who consumes a
 * topic may have to open many. */
static bool open_waits(const NrdNode *node)
{
    if (!node->partition)
        return node->info->ops->takes;
    bool needs_log = node->info->pins || node->info->ops->visit;
    return nrd_node_unknown(node) || (needs_log && !nrd_partition_is_open(node->partition));
}

void nrd_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    int error = check_open(node, fi->flags);
    bool may_settle = error == 0 && node->info->stream && nrd_may_settle(req, node);
    if (error == 0)
        error = check_permissions(node, req, fi->flags, may_settle);
    if (error < 0) {
        nrd_reply_error(req, error);
    } else if (open_waits(node)) {
        Opening *opening = g_new(Opening, 1);
        *opening = (Opening){ fi->flags, may_settle };
        nrd_defer(node, req, open_later, opening);
    } else {
        open_now(node, req, fi->flags, may_settle);
    }
}

static int check_alive(const NrdHandle *handle)
{
    return handle->topic && nrd_topic_deleted(handle->topic) ? -EIDRM : 0;
}

/* Reading moves the position too: who then writes on from there has left nothing out (note_hole). */
static void note_read(NrdHandle *handle, size_t size, off_t off)
{
    if (!handle->node->info->named)
        return;
    g_mutex_lock(&handle->lock);
    handle->written_to = MAX(handle->written_to, off + (off_t)size);
    g_mutex_unlock(&handle->lock);
}

void nrd_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    int error = check_alive(handle);
    note_read(handle, size, off);
    if (error < 0)
        nrd_reply_error(req, error);
    else if (size == 0)
        nrd_reply_empty(req);
    else
        handle->ops->read(handle, req, size, off, fi->flags);
}

/* A WRITE that waits. */
typedef struct Writing {
    NrdHandle *handle; /* referenced */
    int flags;
    size_t size;
    char bytes[];
} Writing;

static void write_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    Writing *writing = data;
    NrdHandle *handle = writing->handle;
    if (error < 0)
        nrd_reply_error(req, error);
    else
        handle->ops->write(handle, req, writing->bytes, writing->size, writing->flags);
    nrd_handle_unref(handle);
    g_free(writing);
}

static void defer_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    Writing *writing = g_malloc(sizeof *writing + size);
    *writing = (Writing){ nrd_handle_ref(handle), flags, size };
    memcpy(writing->bytes, buf, size);
    nrd_defer(handle->node, req, write_later, writing);
}

/* Positions mean nothing here, so a program that leaves out a block of zeros (cp of a sparse file, dd conv=sparse) by
 * moving on from where its last write ended loses that block. It cannot be told from one that writes here and there, and
 * is not refused; but it does not go unsaid. Once for a handle. Reading moves the same position: see note_read. */
static void note_hole(NrdHandle *handle, size_t size, off_t off, int flags)
{
    g_mutex_lock(&handle->lock);
    off_t hole = off - handle->written_to;
    bool tell = handle->node->info->named && !(flags & O_APPEND) && hole > 0 && !handle->hole_told;
    handle->written_to = MAX(handle->written_to, off + (off_t)size);
    handle->hole_told |= tell;
    g_mutex_unlock(&handle->lock);
    if (tell)
        nrd_diag(NRD_LEVEL_WARNING, nrd_handle_place(handle),
                 "a writer left out %lld bytes: a hole is nothing here, zeros have to be written", (long long)hole);
}

void nrd_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    int error = check_alive(handle);
    note_hole(handle, size, off, fi->flags);
    if (error < 0)
        nrd_reply_error(req, error);
    else if (size == 0)
        fuse_reply_write(req, 0);
    else if (handle->ops->write_waits)
        defer_write(handle, req, buf, size, fi->flags);
    else
        handle->ops->write(handle, req, buf, size, fi->flags);
}

void nrd_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    if (handle->ops->flush)
        handle->ops->flush(handle, req);
    else
        fuse_reply_err(req, 0);
}

void nrd_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    int error = check_alive(handle);
    if (error == 0 && handle->ops->fsync)
        handle->ops->fsync(handle, req);
    else
        nrd_reply_error(req, error);
}

/* Nobody waits for a RELEASE, and its work may wait for the disk: answer first. */
void nrd_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdHandle *handle = nrd_fi_handle(fi);
    fuse_reply_err(req, 0);
    nrd_handle_close(handle);
}
