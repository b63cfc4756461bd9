#include "fixture.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

char *fix_path;
int fix_fd = -1;
NrdIo fix_io;

static struct {
    int from, until, error, n_calls, n_failed;
} fault;

void fix_set_up(bool with_folders)
{
    g_autoptr(GError) error = NULL;
    fix_path = g_dir_make_tmp("naradfs-meta-XXXXXX", &error);
    g_assert_no_error(error);
    g_assert_cmpint(nrd_io_open_root(fix_path, &fix_fd), ==, 0);
    fix_io = nrd_io_real;
    nrd_io = &fix_io;
    if (with_folders) {
        fix_make_dir("meta");
        fix_make_dir("topics");
    }
}

void fix_tear_down(void)
{
    nrd_io = &nrd_io_real;
    nrd_io_close(&fix_fd);
    g_autofree char *parent = g_path_get_dirname(fix_path);
    g_autofree char *name = g_path_get_basename(fix_path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_clear_pointer(&fix_path, g_free);
}

void fix_put(const char *path, const void *bytes, size_t size)
{
    g_assert_cmpint(nrd_io_replace_file(fix_fd, path, bytes, size), ==, 0);
}

void fix_put_text(const char *path, const char *text)
{
    fix_put(path, text, strlen(text));
}

void fix_make_dir(const char *path)
{
    g_assert_cmpint(nrd_io_make_dir(fix_fd, path), ==, 0);
}

void fix_link(const char *path, const char *target)
{
    g_autofree char *host = g_build_filename(fix_path, path, NULL);
    g_assert_cmpint(symlink(target, host), ==, 0);
}

void fix_fifo(const char *path)
{
    g_autofree char *host = g_build_filename(fix_path, path, NULL);
    g_assert_cmpint(mkfifo(host, 0600), ==, 0);
}

void fix_remove(const char *path)
{
    g_assert_cmpint(nrd_io_remove_tree(fix_fd, path), ==, 0);
}

bool fix_exists(const char *path)
{
    struct stat st;
    int rc = nrd_io_stat(fix_fd, path, &st);
    g_assert_true(rc == 0 || rc == -ENOENT);
    return rc == 0;
}

char *fix_text(const char *path)
{
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(fix_fd, path, 1 << 22, &bytes), ==, 0);
    gsize size = 0;
    const char *data = g_bytes_get_data(bytes, &size);
    return g_strndup(data ? data : "", size);
}

void fix_assert_text(const char *path, const char *expected)
{
    g_autofree char *text = fix_text(path);
    g_assert_cmpstr(text, ==, expected);
}

static int fails(void)
{
    fault.n_calls++;
    bool hit = fault.n_calls >= fault.from && fault.n_calls <= fault.until;
    fault.n_failed += hit;
    return hit ? fault.error : 0;
}

static int bad_fsync(int fd)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.fsync(fd);
}

static int bad_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.rename(from_dirfd, from, to_dirfd, to, replace);
}

static int bad_unlink(int dirfd, const char *name, bool is_dir)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.unlink(dirfd, name, is_dir);
}

static int bad_mkdir(int dirfd, const char *name, mode_t mode)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.mkdir(dirfd, name, mode);
}

static ssize_t bad_write(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

static ssize_t bad_read(int fd, void *buf, size_t size, int64_t pos)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.pread(fd, buf, size, pos);
}

static int bad_list(int dirfd, GPtrArray *names)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.list(dirfd, names);
}

static int bad_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int rc = fails();
    return rc < 0 ? rc : nrd_io_real.open(dirfd, path, flags, mode);
}

void fix_heal(void)
{
    fix_io = nrd_io_real;
}

void fix_fail(FixCall call, int from, int until, int error)
{
    fix_heal();
    memset(&fault, 0, sizeof fault);
    fault.from = from;
    fault.until = until;
    fault.error = error;
    switch (call) {
    case FIX_FSYNC:
        fix_io.fsync = bad_fsync;
        break;
    case FIX_RENAME:
        fix_io.rename = bad_rename;
        break;
    case FIX_UNLINK:
        fix_io.unlink = bad_unlink;
        break;
    case FIX_MKDIR:
        fix_io.mkdir = bad_mkdir;
        break;
    case FIX_WRITE:
        fix_io.pwritev = bad_write;
        break;
    case FIX_LIST:
        fix_io.list = bad_list;
        break;
    case FIX_OPEN:
        fix_io.open = bad_open;
        break;
    case FIX_READ:
        fix_io.pread = bad_read;
        break;
    }
}

int fix_n_failed(void)
{
    return fault.n_failed;
}
