/* The helpers over the table of calls: whole reads and writes in spite of short ones, durable replacement, and that no
 * symbolic link inside the root is ever followed. */
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *root_path;
static int root_fd = -1;
static NrdIo io;
static int n_calls;

static void set_up(void)
{
    g_autoptr(GError) error = NULL;
    root_path = g_dir_make_tmp("naradfs-io-XXXXXX", &error);
    g_assert_no_error(error);
    g_assert_cmpint(nrd_io_open_root(root_path, &root_fd), ==, 0);
    io = nrd_io_real;
    nrd_io = &io;
    n_calls = 0;
}

static void tear_down(void)
{
    nrd_io = &nrd_io_real;
    nrd_io_close(&root_fd);
    g_autofree char *parent = g_path_get_dirname(root_path);
    g_autofree char *name = g_path_get_basename(root_path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(root_path);
}

static void assert_content(const char *path, const char *expected)
{
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(root_fd, path, 1000, &bytes), ==, 0);
    gsize n;
    const void *data = g_bytes_get_data(bytes, &n);
    g_assert_cmpmem(data, n, expected, strlen(expected));
}

static ssize_t one_byte_write(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    if (n_calls++ % 3 == 0)
        return -EINTR;
    struct iovec first = { iov->iov_base, 1 };
    return nrd_io_real.pwritev(fd, &first, 1, pos);
}

static ssize_t one_byte_read(int fd, void *buf, size_t size, int64_t pos)
{
    if (n_calls++ % 3 == 0)
        return -EINTR;
    return nrd_io_real.pread(fd, buf, MIN(size, 1), pos);
}

static void test_short_calls(void)
{
    set_up();
    io.pwritev = one_byte_write;
    io.pread = one_byte_read;
    int fd = io.open(root_fd, "f", O_RDWR | O_CREAT, 0600);
    g_assert_cmpint(fd, >=, 0);
    struct iovec iov[] = { { (void *)"abc", 3 }, { NULL, 0 }, { (void *)"defg", 4 } };
    g_assert_cmpint(nrd_io_pwritev_full(fd, iov, 3, 2), ==, 0);
    char buf[20];
    size_t n = 0;
    g_assert_cmpint(nrd_io_pread_full(fd, buf, sizeof buf, 0, &n), ==, 0);
    g_assert_cmpmem(buf, n, "\0\0abcdefg", 9);
    nrd_io_close(&fd);
    tear_down();
}

static ssize_t no_progress(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return 0;
}

static ssize_t failing_read(int fd, void *buf, size_t size, int64_t pos)
{
    return n_calls++ == 0 ? nrd_io_real.pread(fd, buf, 1, pos) : -EIO;
}

static void test_failing_calls(void)
{
    set_up();
    int fd = io.open(root_fd, "f", O_RDWR | O_CREAT, 0600);
    g_assert_cmpint(nrd_io_pwrite_full(fd, "abc", 3, 0), ==, 0);
    io.pwritev = no_progress;
    g_assert_cmpint(nrd_io_pwrite_full(fd, "abc", 3, 0), ==, -EIO);
    io.pread = failing_read;
    char buf[3];
    size_t n = 77;
    g_assert_cmpint(nrd_io_pread_full(fd, buf, 3, 0, &n), ==, -EIO); /* not "one byte, then the end" */
    g_assert_cmpuint(n, ==, 77);
    nrd_io_close(&fd);
    tear_down();
}

static int fsync_order[4];
static int failing_fsync_at = -1;

static int watching_fsync(int fd)
{
    struct stat st;
    nrd_io_real.fstat(fd, &st);
    fsync_order[n_calls & 3] = S_ISDIR(st.st_mode) ? 'd' : 'f';
    return n_calls++ == failing_fsync_at ? -EIO : nrd_io_real.fsync(fd);
}

static void test_replace(void)
{
    set_up();
    io.fsync = watching_fsync;
    g_assert_cmpint(nrd_io_make_dir(root_fd, "meta"), ==, 0);
    n_calls = 0;
    g_assert_cmpint(nrd_io_replace_file(root_fd, "meta/a", "one", 3), ==, 0);
    g_assert_cmpint(n_calls, ==, 2); /* the file before its name, the folder after */
    g_assert_cmpint(fsync_order[0], ==, 'f');
    g_assert_cmpint(fsync_order[1], ==, 'd');
    g_assert_cmpint(nrd_io_replace_file(root_fd, "meta/a", "two", 3), ==, 0);
    assert_content("meta/a", "two");
    n_calls = 0;
    failing_fsync_at = 0;
    g_assert_cmpint(nrd_io_replace_file(root_fd, "meta/a", "three", 5), ==, -EIO);
    failing_fsync_at = -1;
    assert_content("meta/a", "two");
    g_autoptr(GPtrArray) names = NULL;
    g_assert_cmpint(nrd_io_list_dir(root_fd, "meta", &names), ==, 0);
    g_assert_cmpuint(names->len, ==, 1); /* no temporary file left */
    struct stat st;
    g_assert_cmpint(nrd_io_stat(root_fd, "meta/a", &st), ==, 0);
    g_assert_cmphex(st.st_mode & 07777, ==, 0600);
    g_assert_cmpint(nrd_io_stat(root_fd, "meta", &st), ==, 0);
    g_assert_cmphex(st.st_mode & 07777, ==, 0700);
    tear_down();
}

static ssize_t wrong_byte(int fd, void *buf, size_t size, int64_t pos)
{
    ssize_t n = nrd_io_real.pread(fd, buf, size, pos);
    if (n > 0 && pos > 0)
        ((char *)buf)[n - 1] ^= 1;
    return n;
}

static ssize_t no_end(int fd, void *buf, size_t size, int64_t pos)
{
    return nrd_io_real.pread(fd, buf, size, 0);
}

static ssize_t dead_read(int fd, void *buf, size_t size, int64_t pos)
{
    return -EIO;
}

/* What the syncs said is not believed before the bytes were read back: a shorter file, a longer one, another byte. */
static void test_replace_is_proven(void)
{
    static ssize_t (*const reads[])(int, void *, size_t, int64_t) = { wrong_byte, no_end, dead_read, one_byte_read };
    static const size_t sizes[] = { 4097, 8192, 12288 };
    set_up();
    g_autofree char *data = g_strnfill(12288, 'x');
    for (size_t k = 0; k < G_N_ELEMENTS(sizes); k++) {
        for (size_t i = 0; i < G_N_ELEMENTS(reads); i++) {
            io.pread = reads[i];
            int rc = nrd_io_replace_file(root_fd, "f", data, sizes[k]);
            g_assert_cmpint(rc, ==, reads[i] == one_byte_read ? 0 : -EIO);
        }
        io.pread = nrd_io_real.pread;
        g_assert_cmpint(nrd_io_replace_file(root_fd, "f", data, sizes[k]), ==, 0);
        g_assert_cmpint(nrd_io_replace_file(root_fd, "f", data, 0), ==, 0);
    }
    tear_down();
}

static int count_fds(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    int n = 0;
    while (g_dir_read_name(dir))
        n++;
    return n;
}

static bool refused(int rc)
{
    return rc == -ELOOP || rc == -ENOTDIR;
}

static void test_links_in_the_way(void)
{
    set_up();
    g_assert_cmpint(nrd_io_make_dir(root_fd, "real"), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(root_fd, "real/deep"), ==, 0);
    g_assert_cmpint(nrd_io_replace_file(root_fd, "real/deep/f", "x", 1), ==, 0);
    assert_content("real/deep/f", "x");
    g_assert_cmpint(symlinkat("real", root_fd, "dirlink"), ==, 0);
    g_assert_cmpint(symlinkat("f", root_fd, "real/deep/link"), ==, 0);
    g_autoptr(GBytes) bytes = NULL;
    int fd = -1;
    g_assert_cmpint(nrd_io_read_file(root_fd, "real/deep/link", 10, &bytes), ==, -ELOOP);
    g_assert_true(refused(nrd_io_read_file(root_fd, "dirlink/deep/f", 10, &bytes)));
    g_assert_true(refused(nrd_io_replace_file(root_fd, "dirlink/g", "y", 1)));
    g_assert_true(refused(nrd_io_open_dir(root_fd, "dirlink", &fd)));
    g_assert_cmpint(nrd_io_open_dir(root_fd, "../real", &fd), ==, -EXDEV);
    g_assert_cmpint(nrd_io_read_file(root_fd, "real/none/f", 10, &bytes), ==, -ENOENT);
    tear_down();
}

static void test_links_refused(void)
{
    set_up();
    g_assert_cmpint(nrd_io_make_dir(root_fd, "real"), ==, 0);
    g_assert_cmpint(nrd_io_replace_file(root_fd, "real/f", "x", 1), ==, 0);
    g_assert_cmpint(symlinkat("real", root_fd, "dirlink"), ==, 0);
    g_assert_cmpint(symlinkat("f", root_fd, "real/link"), ==, 0);
    g_autoptr(GBytes) bytes = NULL;
    int fd = -1;
    g_assert_cmpint(nrd_io_read_file(root_fd, "real/link", 10, &bytes), ==, -ELOOP);
    g_assert_cmpint(nrd_io_read_file(root_fd, "dirlink/f", 10, &bytes), ==, -ELOOP);
    g_assert_cmpint(nrd_io_open_dir(root_fd, "dirlink", &fd), ==, -ELOOP);
    g_assert_cmpint(nrd_io_replace_file(root_fd, "dirlink/g", "y", 1), ==, -ELOOP);
    g_assert_cmpint(nrd_io_open_dir(root_fd, "../", &fd), ==, -EXDEV);
    g_assert_cmpint(nrd_io_make_dir(root_fd, "real/f"), ==, -ENOTDIR);
    /* removing a tree removes links, not what they point to */
    g_assert_cmpint(nrd_io_make_dir(root_fd, "tree"), ==, 0);
    g_assert_cmpint(symlinkat("../real", root_fd, "tree/link"), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(root_fd, "tree"), ==, 0);
    assert_content("real/f", "x");
    g_assert_cmpint(nrd_io_remove_tree(root_fd, "tree"), ==, 0);
    tear_down();
}

/* From here on openat2 does not exist, for this process. */
static void forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { G_N_ELEMENTS(code), code };
    g_assert_cmpint(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), ==, 0);
    g_assert_cmpint(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), ==, 0);
    g_assert_cmpint(syscall(SYS_openat2, AT_FDCWD, ".", NULL, 0), ==, -1);
    g_assert_cmpint(errno, ==, ENOSYS);
}

/* On kernels, and in sandboxes, without openat2: nothing else than above. */
static void test_without_openat2(void)
{
    if (!g_test_subprocess()) {
        g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
        g_test_trap_assert_passed();
        return;
    }
    forbid_openat2();
    int n_fds = count_fds();
    test_replace();
    test_links_in_the_way();
    g_assert_cmpint(count_fds(), ==, n_fds);
}

static void test_special_files(void)
{
    set_up();
    g_autofree char *path = g_build_filename(root_path, "fifo", NULL);
    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(root_fd, "fifo", 10, &bytes), ==, -EINVAL);
    g_assert_cmpint(nrd_io_read_file(root_fd, "none", 10, &bytes), ==, -ENOENT);
    g_assert_cmpint(nrd_io_replace_file(root_fd, "big", "0123456789a", 11), ==, 0);
    g_assert_cmpint(nrd_io_read_file(root_fd, "big", 10, &bytes), ==, -EFBIG);
    g_assert_null(bytes);
    tear_down();
}

static void test_rename(void)
{
    set_up();
    g_assert_cmpint(nrd_io_make_dir(root_fd, "a"), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(root_fd, "b"), ==, 0);
    g_assert_cmpint(nrd_io_rename(root_fd, "a", "b", false), ==, -EEXIST);
    io.fsync = watching_fsync;
    n_calls = 0;
    g_assert_cmpint(nrd_io_rename(root_fd, "a", "c", false), ==, 0);
    g_assert_cmpint(n_calls, >=, 1);
    g_assert_cmpint(nrd_io_unlink(root_fd, "nothing/there"), ==, 0);
    tear_down();
}

static int64_t no_seek(int fd, int64_t pos, bool hole)
{
    return -EINVAL;
}

static int64_t broken_seek(int fd, int64_t pos, bool hole)
{
    return -EIO;
}

static int64_t lying_seek(int fd, int64_t pos, bool hole)
{
    return pos; /* of a hole too: a run without a byte */
}

static void assert_run(int fd, uint64_t from, uint64_t size, uint64_t expected_pos, uint64_t expected_end)
{
    uint64_t pos = 1, end = 1;
    g_assert_cmpint(nrd_io_next_data(fd, from, size, &pos, &end), ==, 0);
    g_assert_cmpuint(pos, ==, expected_pos);
    g_assert_cmpuint(end, ==, expected_end);
}

static void test_holes(void)
{
    uint64_t pos, end, size = 10 * NRD_MIB, at = 4 * NRD_MIB;
    set_up();
    int fd = nrd_io->open(root_fd, "f", O_RDWR | O_CREAT, 0600);
    g_assert_cmpint(nrd_io->ftruncate(fd, (int64_t)size), ==, 0);
    assert_run(fd, 0, size, size, size); /* all of it is a hole */
    g_assert_cmpint(nrd_io_pwrite_full(fd, "x", 1, (int64_t)at), ==, 0);
    g_assert_cmpint(nrd_io_next_data(fd, 0, size, &pos, &end), ==, 0);
    g_assert_true(pos <= at && end > at && pos >= at - NRD_MIB && end <= at + NRD_MIB);
    assert_run(fd, pos + 1, size, pos + 1, end);
    assert_run(fd, end, size, size, size);
    assert_run(fd, 0, at / 2, at / 2, at / 2); /* behind what is asked for */
    assert_run(fd, size, size, size, size);
    io.seek = NULL;
    assert_run(fd, 7, size, 7, size);
    io.seek = no_seek;
    assert_run(fd, 7, size, 7, size);
    io.seek = lying_seek;
    assert_run(fd, 7, size, 7, size);
    io.seek = broken_seek;
    g_assert_cmpint(nrd_io_next_data(fd, 7, size, &pos, &end), ==, -EIO);
    nrd_io_close(&fd);
    tear_down();
}

static int opens_error; /* of every open */

static int no_open(int dirfd, const char *path, int flags, mode_t mode)
{
    return opens_error;
}

/* What the name says when it is looked at: rc, and whether it was looked at. */
static void assert_place(int fd, const NrdIoFileId *known, int rc, bool looked)
{
    bool ret_looked = false;
    g_assert_cmpint(nrd_io_check_place(fd, known, root_fd, "d/a", &ret_looked), ==, rc);
    g_assert_true(ret_looked == looked);
}

/* The same for want of descriptors, and where the folder cannot be looked into. */
static void assert_place_unseen(int fd, int in_a_shortage, int on_an_error)
{
    io.open = no_open;
    for (opens_error = -EMFILE;; opens_error = -ENFILE) {
        assert_place(fd, NULL, in_a_shortage, false);
        if (opens_error == -ENFILE)
            break;
    }
    opens_error = -EACCES;
    assert_place(fd, NULL, on_an_error, false);
    io.open = nrd_io_real.open;
}

static int asks_for_times(int fd, struct stat *ret_st)
{
    g_assert_not_reached();
}

/* Asked for, it would make every sync after it write the inode; and there is a look before every commit. */
static void test_no_times(void)
{
    struct stat st, full;
    set_up();
    g_assert_cmpint(nrd_io_replace_file(root_fd, "a", "12345", 5), ==, 0);
    int fd = nrd_io->open(root_fd, "a", O_RDWR, 0);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(nrd_io->fstat_untimed(fd, &st), ==, 0);
    g_assert_cmpint(nrd_io->fstat(fd, &full), ==, 0);
    g_assert_cmpint(full.st_mtim.tv_sec, >, 0);
    g_assert_cmpint(st.st_mtim.tv_sec, ==, 0);
    g_assert_true(st.st_dev == full.st_dev && st.st_ino == full.st_ino && st.st_mode == full.st_mode);
    g_assert_true(st.st_nlink == full.st_nlink && st.st_uid == full.st_uid && st.st_gid == full.st_gid);
    g_assert_true(st.st_size == full.st_size && st.st_blocks == full.st_blocks && st.st_blksize == full.st_blksize);
    g_assert_cmpint(nrd_io->fstat_untimed(-1, &st), ==, -EBADF);
    io.fstat = asks_for_times;
    g_assert_cmpint(nrd_io_check_place(fd, NULL, -1, NULL, NULL), ==, 0);
    nrd_io_close(&fd);
    tear_down();
}

static void test_place(void)
{
    struct stat st;
    set_up();
    g_assert_cmpint(nrd_io_make_dir(root_fd, "d"), ==, 0);
    g_assert_cmpint(nrd_io_replace_file(root_fd, "d/a", "1", 1), ==, 0);
    int fd = nrd_io->open(root_fd, "d/a", O_RDWR, 0);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(nrd_io->fstat(fd, &st), ==, 0);
    NrdIoFileId id = { st.st_dev, st.st_ino }, other = { st.st_dev, st.st_ino + 1 };
    assert_place(fd, &id, 0, true);
    assert_place(fd, NULL, 0, true);
    assert_place(fd, &other, -ESTALE, false);
    g_assert_cmpint(nrd_io_check_place(fd, &other, -1, NULL, NULL), ==, -ESTALE);
    assert_place_unseen(fd, 0, -EACCES);
    /* moved away: it has a name */
    g_assert_cmpint(nrd_io_rename(root_fd, "d/a", "d/b", true), ==, 0);
    g_assert_cmpint(nrd_io_check_place(fd, &id, -1, NULL, NULL), ==, 0);
    assert_place(fd, &id, -ENOENT, false);
    assert_place_unseen(fd, 0, -EACCES);
    /* another file has its name */
    g_assert_cmpint(nrd_io_replace_file(root_fd, "d/a", "2", 1), ==, 0);
    assert_place(fd, &id, -ESTALE, false);
    /* removed: whatever can be seen of the folder */
    g_assert_cmpint(nrd_io_unlink(root_fd, "d/b"), ==, 0);
    g_assert_cmpint(nrd_io_check_place(fd, &id, -1, NULL, NULL), ==, -ENOENT);
    assert_place(fd, &id, -ENOENT, false);
    assert_place_unseen(fd, -ENOENT, -ENOENT);
    nrd_io_close(&fd);
    tear_down();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/io/short-calls", test_short_calls);
    g_test_add_func("/io/failing-calls", test_failing_calls);
    g_test_add_func("/io/replace", test_replace);
    g_test_add_func("/io/replace-is-proven", test_replace_is_proven);
    g_test_add_func("/io/links", test_links_refused);
    g_test_add_func("/io/links-in-the-way", test_links_in_the_way);
    g_test_add_func("/io/without-openat2", test_without_openat2);
    g_test_add_func("/io/special-files", test_special_files);
    g_test_add_func("/io/rename", test_rename);
    g_test_add_func("/io/holes", test_holes);
    g_test_add_func("/io/place", test_place);
    g_test_add_func("/io/fstat-asks-for-no-times", test_no_times);
    return g_test_run();
}
