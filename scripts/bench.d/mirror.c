/* A FUSE file system that passes the bytes of other files on and does nothing else: what `log` and producers are measured
 * against.
 *
 * usage: mirror FILE... MOUNTPOINT     serves them as MOUNTPOINT/0, 1 and so on, in the foreground, until it is unmounted
 *
 * As plain as it can be while it is as fast as it can be: low-level, several threads, direct reads and writes as the mount
 * has them (direct_io), pread into a buffer and fuse_reply_buf; a write is appended, an fsync is an fdatasync. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_NODE 2
#define MAX_FILES 64
#define MAX_THREADS 32
#define MAX_BYTES ((size_t)1 << 20)

static int sources[MAX_FILES];
static unsigned n_sources;

static int attributes(fuse_ino_t node, struct stat *st)
{
    if (node == FUSE_ROOT_ID) {
        *st = (struct stat){ .st_ino = node, .st_mode = S_IFDIR | 0555, .st_nlink = 2 };
        return 0;
    }
    if (node - FIRST_NODE >= n_sources || fstat(sources[node - FIRST_NODE], st) < 0)
        return ENOENT;
    st->st_ino = node;
    return 0;
}

static void on_init(void *user_data, struct fuse_conn_info *conn)
{
    conn->max_read = 0;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_WRITEBACK_CACHE);
    (void)user_data;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = { .ino = FIRST_NODE + strtoul(name, NULL, 10),
                                      .attr_timeout = 60,
                                      .entry_timeout = 60 };
    int error = parent == FUSE_ROOT_ID ? attributes(entry.ino, &entry.attr) : ENOENT;
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    struct stat st;
    int error = attributes(node, &st);
    (void)info;
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_attr(req, &st, 60);
}

static void on_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    (void)node;
    info->direct_io = 1;
    fuse_reply_open(req, info);
}

static void on_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t pos, struct fuse_file_info *info)
{
    static _Thread_local char *buffer;
    (void)info;
    if (!buffer && !(buffer = malloc(MAX_BYTES))) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    ssize_t n = pread(sources[node - FIRST_NODE], buffer, size < MAX_BYTES ? size : MAX_BYTES, pos);
    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, buffer, (size_t)n);
}

static void on_write(fuse_req_t req, fuse_ino_t node, const char *bytes, size_t size, off_t pos,
                     struct fuse_file_info *info)
{
    (void)pos;
    (void)info;
    ssize_t n = write(sources[node - FIRST_NODE], bytes, size);
    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_write(req, (size_t)n);
}

static void on_fsync(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *info)
{
    (void)datasync;
    (void)info;
    fuse_reply_err(req, fdatasync(sources[node - FIRST_NODE]) < 0 ? errno : 0);
}

static int open_sources(char **paths, int n)
{
    for (int i = 0; i < n; i++) {
        sources[i] = open(paths[i], O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (sources[i] < 0) {
            perror(paths[i]);
            return -1;
        }
    }
    n_sources = (unsigned)n;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fuse_lowlevel_ops ops = { .init = on_init,
                                                  .lookup = on_lookup,
                                                  .getattr = on_getattr,
                                                  .open = on_open,
                                                  .read = on_read,
                                                  .write = on_write,
                                                  .fsync = on_fsync };
    if (argc < 3 || argc - 2 > MAX_FILES) {
        fprintf(stderr, "usage: mirror FILE... MOUNTPOINT\n");
        return 2;
    }
    if (open_sources(argv + 1, argc - 2) < 0)
        return 1;
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    if (!session || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, argv[argc - 1]) != 0)
        return 1;
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
    int rc = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return rc != 0;
}
