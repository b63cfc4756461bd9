/* A FUSE file system of one file that passes another file's bytes on and does nothing else: what `log` is measured against.
 *
 * usage: mirror FILE MOUNTPOINT     serves FILE as MOUNTPOINT/file, in the foreground, until it is unmounted
 *
 * As plain as it can be while it is as fast as it can be: low-level, several threads, direct reads as `log` has them
 * (direct_io), pread into a buffer and fuse_reply_buf. */
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

#define FILE_NODE 2
#define MAX_BYTES ((size_t)1 << 20)

static int source_fd;

static int attributes(fuse_ino_t node, struct stat *st)
{
    if (node == FUSE_ROOT_ID) {
        *st = (struct stat){ .st_ino = node, .st_mode = S_IFDIR | 0555, .st_nlink = 2 };
        return 0;
    }
    if (node != FILE_NODE || fstat(source_fd, st) < 0)
        return ENOENT;
    st->st_ino = node;
    return 0;
}

static void on_init(void *user_data, struct fuse_conn_info *conn)
{
    conn->max_read = 0;
    (void)user_data;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = { .ino = FILE_NODE, .attr_timeout = 60, .entry_timeout = 60 };
    int error = parent == FUSE_ROOT_ID && strcmp(name, "file") == 0 ? attributes(FILE_NODE, &entry.attr) : ENOENT;
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
    (void)node;
    (void)info;
    if (!buffer && !(buffer = malloc(MAX_BYTES))) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    ssize_t n = pread(source_fd, buffer, size < MAX_BYTES ? size : MAX_BYTES, pos);
    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, buffer, (size_t)n);
}

int main(int argc, char **argv)
{
    static const struct fuse_lowlevel_ops ops = {
        .init = on_init, .lookup = on_lookup, .getattr = on_getattr, .open = on_open, .read = on_read
    };
    if (argc != 3) {
        fprintf(stderr, "usage: mirror FILE MOUNTPOINT\n");
        return 2;
    }
    source_fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (source_fd < 0) {
        perror(argv[1]);
        return 1;
    }
    char *words[] = { argv[0], "-o", "ro", NULL };
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    if (!session || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, argv[2]) != 0)
        return 1;
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    int rc = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return rc != 0;
}
