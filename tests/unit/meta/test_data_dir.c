/* The data directory: laid out, locked, refused with a sentence that names the file, and never changed when refused. */
#include "engine/meta/data_dir.h"

#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char *path; /* of DATA, inside the fixture's root */
static NrdDataDir *dir;

static void set_up(void)
{
    fix_set_up(false);
    path = g_build_filename(fix_path, "data", NULL);
}

static void tear_down(void)
{
    nrd_data_dir_close(g_steal_pointer(&dir));
    g_clear_pointer(&path, g_free);
    fix_tear_down();
}

static void open_well(bool read_only)
{
    g_autofree char *why = NULL;
    nrd_data_dir_close(g_steal_pointer(&dir));
    int rc = nrd_data_dir_open(path, read_only, &dir, &why);
    g_assert_cmpstr(why, ==, NULL);
    g_assert_cmpint(rc, ==, 0);
}

static void shut(void)
{
    nrd_data_dir_close(g_steal_pointer(&dir));
}

/* Every sentence names the thing. */
static void assert_refused(bool read_only, int error, const char *named)
{
    g_autofree char *why = NULL;
    NrdDataDir *refused = NULL;
    g_assert_cmpint(nrd_data_dir_open(path, read_only, &refused, &why), ==, error);
    g_assert_null(refused);
    g_assert_nonnull(why);
    g_assert_nonnull(strstr(why, named));
}

static void assert_laid_out(void)
{
    fix_assert_text("data/format", "1\n");
    g_assert_true(fix_exists("data/meta"));
    g_assert_true(fix_exists("data/topics"));
    g_assert_true(fix_exists("data/lock"));
    struct stat st;
    g_assert_cmpint(nrd_io_stat(fix_fd, "data/meta", &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0700);
    g_assert_cmpint(nrd_io_stat(fix_fd, "data/lock", &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0600);
}

static guint n_entries(void)
{
    g_autoptr(GPtrArray) names = NULL;
    g_assert_cmpint(nrd_io_list_dir(fix_fd, "data", &names), ==, 0);
    return names->len;
}

static void test_layout(void)
{
    set_up();
    open_well(false); /* made when its parent is there */
    assert_laid_out();
    open_well(false);
    fix_remove("data");
    shut();
    fix_make_dir("data");
    fix_make_dir("data/lost+found");
    open_well(false);
    assert_laid_out();
    struct stat a, b;
    g_assert_cmpint(nrd_io->fstat(nrd_data_dir_fd(dir), &a), ==, 0);
    g_assert_cmpint(nrd_io_stat(fix_fd, "data", &b), ==, 0);
    g_assert_cmpuint(a.st_ino, ==, b.st_ino);
    nrd_data_dir_close(NULL);
    tear_down();
}

static void test_paths(void)
{
    set_up();
    g_autofree char *plain = g_steal_pointer(&path);
    path = g_strconcat(plain, "//", NULL);
    open_well(false);
    assert_laid_out();
    shut();
    fix_remove("data");
    g_free(path);
    fix_make_dir("real");
    fix_link("link", "real");
    path = g_build_filename(fix_path, "link", "data", NULL);
    open_well(false); /* a link on the way to DATA is the user's own */
    g_assert_true(fix_exists("real/data/format"));
    g_free(path);
    path = g_build_filename(fix_path, "link", NULL);
    g_autofree char *why = NULL;
    int rc = nrd_data_dir_open(path, false, &dir, &why);
    g_assert_true(rc == -ELOOP || rc == -ENOTDIR); /* which of the two is open(2)'s choice */
    g_assert_nonnull(strstr(why, "link"));
    g_free(path);
    path = g_build_filename(fix_path, "none", "data", NULL);
    assert_refused(false, -ENOENT, "none/data");
    g_free(path);
    path = g_build_filename(fix_path, "file", NULL);
    fix_put_text("file", "x");
    assert_refused(false, -ENOTDIR, "file");
    tear_down();
}

static void test_lock(void)
{
    set_up();
    open_well(false);
    g_autofree char *pid = g_strdup_printf("%ld", (long)getpid());
    g_autofree char *line = g_strconcat(pid, "\n", NULL);
    fix_assert_text("data/lock", line);
    assert_refused(false, -EBUSY, pid);
    assert_refused(true, -EBUSY, pid);
    shut();
    fix_put_text("data/lock", "not a pid, and far longer than any pid that there could be, or anything of use");
    open_well(false); /* what it says is only for people */
    fix_assert_text("data/lock", line);
    shut();
    fix_put_text("data/lock", "");
    open_well(true); /* changes nothing, and yet locks */
    fix_assert_text("data/lock", "");
    assert_refused(false, -EBUSY, "another process");
    tear_down();
}

static void test_lock_not_a_file(void)
{
    set_up();
    open_well(false);
    shut();
    fix_put_text("target", "untouched");
    fix_remove("data/lock");
    fix_link("data/lock", "../target");
    assert_refused(false, -ELOOP, "data/lock");
    fix_assert_text("target", "untouched");
    fix_remove("data/lock");
    fix_fifo("data/lock");
    assert_refused(false, -EINVAL, "data/lock");
    assert_refused(true, -EINVAL, "data/lock");
    fix_remove("data/lock");
    fix_make_dir("data/lock");
    assert_refused(false, -EISDIR, "data/lock");
    tear_down();
}

static void test_foreign_folder(void)
{
    set_up();
    fix_make_dir("data");
    fix_put_text("data/thesis.tex", "years of work");
    assert_refused(false, -EINVAL, "format");
    assert_refused(true, -EINVAL, "format");
    g_assert_cmpuint(n_entries(), ==, 1); /* no lock was left there */
    fix_remove("data/thesis.tex");
    fix_make_dir("data/topics");
    assert_refused(false, -EINVAL, "format");
    g_assert_cmpuint(n_entries(), ==, 1);
    tear_down();
}

static void test_format(void)
{
    static const char *const garbled[] = {
        "", "\n", "x", "1x", "-1", "0", " 1", "1 2", "0x1", "1\n1\n", "99999999999999999999"
    };
    set_up();
    open_well(false);
    shut();
    for (size_t i = 0; i < G_N_ELEMENTS(garbled); i++) {
        fix_put_text("data/format", garbled[i]);
        assert_refused(false, -EINVAL, "data/format");
        fix_assert_text("data/format", garbled[i]);
    }
    fix_put_text("data/format", "2\n");
    assert_refused(false, -ENOTSUP, "data/format");
    fix_put_text("data/format", "4000000000");
    assert_refused(true, -ENOTSUP, "data/format");
    fix_put_text("data/format", "1"); /* written by hand */
    open_well(false);
    shut();
    fix_remove("data/format");
    fix_link("data/format", "meta");
    assert_refused(false, -ELOOP, "data/format");
    fix_remove("data/format");
    fix_fifo("data/format");
    assert_refused(false, -EINVAL, "data/format");
    tear_down();
}

static void test_meta_missing(void)
{
    set_up();
    open_well(false);
    shut();
    fix_remove("data/meta");
    open_well(false); /* a layout that was cut short */
    assert_laid_out();
    shut();
    fix_make_dir("data/topics/orders");
    fix_remove("data/meta");
    assert_refused(false, -EIO, "data/meta");
    assert_refused(true, -EIO, "data/meta");
    g_assert_false(fix_exists("data/meta"));
    fix_put_text("data/meta", "a file");
    assert_refused(false, -ENOTDIR, "data/meta");
    fix_remove("data/meta");
    fix_link("data/meta", "topics");
    assert_refused(false, -ENOTDIR, "data/meta");
    tear_down();
}

static void test_topics_missing(void)
{
    set_up();
    open_well(false);
    shut();
    fix_put_text("data/meta/README", "no record");
    fix_remove("data/topics");
    open_well(false);
    assert_laid_out();
    shut();
    fix_put_text("data/meta/orders.topic", "a record");
    fix_remove("data/topics");
    assert_refused(false, -EIO, "data/topics");
    assert_refused(true, -EIO, "data/topics");
    g_assert_false(fix_exists("data/topics"));
    fix_link("data/topics", "meta");
    assert_refused(false, -ENOTDIR, "data/topics");
    tear_down();
}

static void test_read_only(void)
{
    set_up();
    assert_refused(true, -ENOENT, "data");
    g_assert_false(fix_exists("data"));
    fix_make_dir("data");
    assert_refused(true, -ENOENT, "data");
    g_assert_cmpuint(n_entries(), ==, 0);
    open_well(false);
    shut();
    fix_remove("data/lock");
    open_well(true); /* without a lock file there is nobody who could hold it */
    g_assert_false(fix_exists("data/lock"));
    tear_down();
}

static int read_only_open(int dirfd, const char *name, int flags, mode_t mode)
{
    return (flags & O_ACCMODE) != O_RDONLY ? -EROFS : nrd_io_real.open(dirfd, name, flags, mode);
}

static void test_read_only_file_system(void)
{
    set_up();
    open_well(false);
    shut();
    fix_io.open = read_only_open;
    assert_refused(false, -EROFS, "ro");
    open_well(true);
    tear_down();
}

/* Each call fails, once: refused, or laid out whole; and the next start completes it. */
static void test_faults(void)
{
    static const FixCall calls[] = { FIX_OPEN, FIX_FSYNC, FIX_RENAME, FIX_MKDIR, FIX_WRITE, FIX_LIST };
    static const int errors[] = { -EIO, -ENOSPC, -EMFILE };
    int n_refused = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(calls) * G_N_ELEMENTS(errors) * 12; i++) {
        set_up();
        fix_make_dir("data");
        NrdDataDir *opened = NULL;
        g_autofree char *why = NULL;
        int nth = (int)(i % 12) + 1;
        fix_fail(calls[i / 12 % G_N_ELEMENTS(calls)], nth, nth, errors[i / 12 / G_N_ELEMENTS(calls)]);
        int rc = nrd_data_dir_open(path, false, &opened, &why);
        int n_fired = fix_n_failed();
        fix_heal();
        g_assert_true((rc < 0) == (why != NULL));
        g_assert_true(rc == 0 || n_fired > 0);
        n_refused += rc < 0;
        nrd_data_dir_close(opened);
        open_well(false);
        assert_laid_out();
        tear_down();
    }
    g_assert_cmpint(n_refused, >, 30);
}

/* For a look: the lock is taken and nothing is changed, whatever is wrong; what would keep a daemon away is told. */
static void test_inspect(void)
{
    g_autofree char *why = NULL;
    g_autofree char *none = NULL;
    g_autofree char *damage = NULL;
    NrdDataDir *looker = NULL;
    set_up();
    g_assert_cmpint(nrd_data_dir_inspect(path, &looker, &none, &why), ==, -ENOENT); /* not made */
    g_clear_pointer(&why, g_free);
    open_well(false);
    g_assert_cmpint(nrd_data_dir_inspect(path, &looker, &none, &why), ==, -EBUSY);
    g_autofree char *pid = g_strdup_printf("pid %ld", (long)getpid());
    g_assert_nonnull(strstr(why, pid));
    shut();
    g_assert_cmpint(nrd_data_dir_inspect(path, &looker, &none, &why), ==, 0);
    g_assert_null(none);
    assert_refused(false, -EBUSY, "in use"); /* it holds the lock */
    nrd_data_dir_close(g_steal_pointer(&looker));
    fix_put_text("data/format", "rubbish\n");
    g_assert_cmpint(nrd_data_dir_inspect(path, &looker, &damage, &why), ==, 0);
    g_assert_nonnull(strstr(damage, "format"));
    nrd_data_dir_close(g_steal_pointer(&looker));
    fix_assert_text("data/format", "rubbish\n");
    g_clear_pointer(&why, g_free);
    fix_put_text("data/format", "2\n");
    g_assert_cmpint(nrd_data_dir_inspect(path, &looker, &none, &why), ==, -ENOTSUP);
    g_assert_nonnull(strstr(why, "newer"));
    g_assert_null(looker);
    tear_down();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/data-dir/layout", test_layout);
    g_test_add_func("/data-dir/paths", test_paths);
    g_test_add_func("/data-dir/lock", test_lock);
    g_test_add_func("/data-dir/inspect", test_inspect);
    g_test_add_func("/data-dir/lock-not-a-file", test_lock_not_a_file);
    g_test_add_func("/data-dir/foreign-folder", test_foreign_folder);
    g_test_add_func("/data-dir/format", test_format);
    g_test_add_func("/data-dir/meta-missing", test_meta_missing);
    g_test_add_func("/data-dir/topics-missing", test_topics_missing);
    g_test_add_func("/data-dir/read-only", test_read_only);
    g_test_add_func("/data-dir/read-only-file-system", test_read_only_file_system);
    g_test_add_func("/data-dir/faults", test_faults);
    return g_test_run();
}
