/* The file system as a whole: its table of operations, its beginning and its end. */
#include "fs/defer.h"
#include "fs/node.h"
#include "fs/prune.h"

#include <errno.h>

#define FIRST_MINOR_WITH_PRUNE 45 /* of FUSE's protocol 7: Linux 6.18 */

static void op_init(void *user_data, struct fuse_conn_info *conn)
{
    NrdFs *fs = user_data;
    /* Two pieces of one write must not be under way at once, and data of streams must not stay in the page cache. */
    conn->want &= ~(unsigned)(FUSE_CAP_ASYNC_DIO | FUSE_CAP_WRITEBACK_CACHE);
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    /* Locks are asked for here to be refused: the kernel's own would be on one of many inodes of the file. */
    conn->want |= conn->capable & (FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_ATOMIC_O_TRUNC);
    fs->max_write = conn->max_write;
    if (conn->proto_minor >= FIRST_MINOR_WITH_PRUNE)
        nrd_prune_start(fs->prune);
    if (fs->options.ready)
        fs->options.ready(fs->options.user_data);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    int error = nrd_engine_statvfs(nrd_req_fs(req)->engine, &st);
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    st.f_namemax = 255;
    fuse_reply_statfs(req, &st);
}

static void op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
    fuse_reply_err(req, EOPNOTSUPP);
}

/* Records take their place when they are committed; there is none to reserve, to punch or to zero. Not EOPNOTSUPP, which
 * an absent handler gives: posix_fallocate(3) of the C library then writes a NUL into every block itself, and each would
 * be a record. EINVAL is what POSIX has for a file system that cannot. */
static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                         struct fuse_file_info *fi)
{
    fuse_reply_err(req, EINVAL);
}

const struct fuse_lowlevel_ops *nrd_fs_ops(void)
{
    static const struct fuse_lowlevel_ops ops = {
        .init = op_init,
        .lookup = nrd_op_lookup,
        .forget = nrd_op_forget,
        .forget_multi = nrd_op_forget_multi,
        .getattr = nrd_op_getattr,
        .setattr = nrd_op_setattr,
        .readlink = nrd_op_readlink,
        .mknod = nrd_op_mknod,
        .mkdir = nrd_op_mkdir,
        .unlink = nrd_op_unlink,
        .rmdir = nrd_op_rmdir,
        .symlink = nrd_op_symlink,
        .rename = nrd_op_rename,
        .link = nrd_op_link,
        .create = nrd_op_create,
        .open = nrd_op_open,
        .read = nrd_op_read,
        .write = nrd_op_write,
        .flush = nrd_op_flush,
        .release = nrd_op_release,
        .fsync = nrd_op_fsync,
        .opendir = nrd_op_opendir,
        .readdir = nrd_op_readdir,
        .readdirplus = nrd_op_readdirplus,
        .releasedir = nrd_op_releasedir,
        .fsyncdir = nrd_op_fsyncdir,
        .statfs = op_statfs,
        .setxattr = nrd_op_setxattr,
        .getxattr = nrd_op_getxattr,
        .listxattr = nrd_op_listxattr,
        .removexattr = nrd_op_removexattr,
        .getlk = op_getlk,
        .setlk = op_setlk,
        .flock = op_flock,
        .poll = nrd_op_poll,
        .fallocate = op_fallocate,
    };
    return &ops;
}

NrdFs *nrd_fs_new(const NrdFsOptions *options)
{
    NrdDefer *defer = nrd_defer_new();
    if (!defer)
        return NULL;
    NrdFs *fs = g_new0(NrdFs, 1);
    fs->options = *options;
    fs->engine = options->engine;
    fs->mounted_ms = g_get_real_time() / 1000;
    fs->mounted_mono_ms = g_get_monotonic_time() / 1000;
    fs->handles = g_hash_table_new(g_direct_hash, g_direct_equal);
    fs->listings = g_hash_table_new(g_direct_hash, g_direct_equal);
    g_mutex_init(&fs->lock);
    g_cond_init(&fs->handle_gone);
    fs->nodes = nrd_nodes_new(fs);
    fs->prune = nrd_prune_new(fs);
    nrd_partial_budget_init(&fs->partials,
                            options->partial_bytes > 0 ? options->partial_bytes : NRD_PARTIAL_BYTES_DEFAULT);
    fs->defer = defer;
    return fs;
}

void nrd_fs_set_session(NrdFs *fs, struct fuse_session *session)
{
    fs->session = session;
}

void nrd_fs_shutdown(NrdFs *fs)
{
    nrd_prune_finish(fs->prune);
    nrd_defer_finish(fs->defer); /* it may still open handles */
    nrd_handles_close_all(fs);
    nrd_listings_close_all(fs);
    nrd_nodes_clear(fs->nodes);
}

void nrd_fs_free(NrdFs *fs)
{
    if (!fs)
        return;
    nrd_defer_free(fs->defer);
    nrd_nodes_free(fs->nodes);
    nrd_prune_free(fs->prune);
    g_hash_table_unref(fs->handles);
    g_hash_table_unref(fs->listings);
    nrd_partial_budget_clear(&fs->partials);
    g_cond_clear(&fs->handle_gone);
    g_mutex_clear(&fs->lock);
    g_free(fs);
}
