/* Planned faults of the simulated disk: which call they hit, what they do, what is told of them. */
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const SimCrash lose_all = { .keep = SIM_KEEP_NONE };

static void assert_fired(Fixture *f, int id, uint64_t n_matched, uint64_t n_fired)
{
    SimFired fired;
    sim_disk_fired(f->disk, id, &fired);
    g_assert_cmpuint(fired.n_matched, ==, n_matched);
    g_assert_cmpuint(fired.n_fired, ==, n_fired);
}

static void test_nth(Fixture *f, gconstpointer data)
{
    int a = file_open(f, "a.log"), b = file_open(f, "b");
    struct iovec iov = { (char[]){ "xyz" }, 3 };
    int id = sim_disk_plan(
        f->disk,
        &(SimFault){ .kind = SIM_FAIL, .call = SIM_PWRITEV, .pattern = "/data/*.log", .nth = 2, .error = -EDQUOT });
    assert_fired(f, id, 0, 0);
    g_assert_cmpint(nrd_io->pwritev(a, &iov, 1, 0), ==, 3);
    g_assert_cmpint(nrd_io->pwritev(b, &iov, 1, 0), ==, 3);
    g_assert_cmpint(nrd_io->pwritev(b, &iov, 1, 0), ==, 3);
    g_assert_cmpint(nrd_io->pwritev(a, &iov, 1, 7), ==, -EDQUOT);
    g_assert_cmpint(nrd_io->pwritev(a, &iov, 1, 7), ==, 3);
    assert_fired(f, id, 3, 1);
    SimFired fired;
    sim_disk_fired(f->disk, id, &fired);
    g_assert_cmpstr(fired.first.path, ==, "/data/a.log");
    g_assert_cmpint(fired.first.call, ==, SIM_PWRITEV);
    g_assert_cmpint(fired.first.pos, ==, 7);
    g_assert_cmpuint(fired.first.size, ==, 3);
    g_assert_cmpuint(fired.first.index, ==, 7); /* after open_root, two creates and three writes */
    g_assert_cmpint(fired.first.result, ==, -EDQUOT);
    sim_disk_unplan(f->disk, id);
    g_assert_cmpint(nrd_io->pwritev(a, &iov, 1, 7), ==, 3);
    assert_fired(f, id, 3, 1);
}

static void test_stays(Fixture *f, gconstpointer data)
{
    int id = sim_disk_plan(
        f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_CREATE, .nth = 2, .stays = true, .error = -EMFILE });
    (void)file_open(f, "a");
    g_assert_cmpint(nrd_io->open(f->data_fd, "b", O_RDWR | O_CREAT, 0600), ==, -EMFILE);
    g_assert_cmpint(nrd_io->open(f->data_fd, "b", O_RDWR | O_CREAT, 0600), ==, -EMFILE);
    g_assert_cmpint(nrd_io->open(f->data_fd, "b", O_RDWR, 0600), ==, -ENOENT); /* it had no effect */
    assert_fired(f, id, 3, 2);
    sim_disk_unplan_all(f->disk);
    (void)file_open(f, "b");
}

static bool at_second_sector(const SimCallInfo *call, void *user_data)
{
    return call->pos == *(int64_t *)user_data;
}

static void test_predicate(Fixture *f, gconstpointer data)
{
    int64_t pos = 512;
    int fd = file_open(f, "a");
    struct iovec iov = { (char[]){ "x" }, 1 };
    (void)sim_disk_plan(
        f->disk,
        &(SimFault){
            .kind = SIM_FAIL, .call = SIM_ANY_CALL, .when = at_second_sector, .user_data = &pos, .error = -EIO });
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 0), ==, 1);
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 512), ==, -EIO);
}

/* Both paths of a rename are looked at. */
static void test_rename(Fixture *f, gconstpointer data)
{
    (void)file_open(f, "a.tmp");
    int id =
        sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_RENAME, .pattern = "*/a", .error = -ENOSPC });
    g_assert_cmpint(nrd_io->rename(f->data_fd, "a.tmp", f->data_fd, "a", true), ==, -ENOSPC);
    assert_fired(f, id, 1, 1);
    g_assert_null(file_read(f, "a", NULL));
    g_assert_cmpint(nrd_io->rename(f->data_fd, "a.tmp", f->data_fd, "a", true), ==, 0);
}

static void test_done_anyway(Fixture *f, gconstpointer data)
{
    (void)sim_disk_plan(f->disk,
                        &(SimFault){ .kind = SIM_FAIL, .call = SIM_UNLINK, .done_anyway = true, .error = -EIO });
    (void)sim_disk_plan(
        f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_CREATE, .nth = 2, .done_anyway = true, .error = -EIO });
    (void)file_open(f, "a");
    g_assert_cmpint(nrd_io->unlink(f->data_fd, "a", false), ==, -EIO);
    g_assert_null(file_read(f, "a", NULL));
    unsigned n_open = sim_disk_n_open(f->disk);
    g_assert_cmpint(nrd_io->open(f->data_fd, "b", O_RDWR | O_CREAT, 0600), ==, -EIO);
    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, n_open);
    g_autofree char *text = file_read(f, "b", NULL);
    g_assert_nonnull(text);
}

/* ---- shorter than asked ---- */

static void test_short(Fixture *f, gconstpointer data)
{
    static const struct {
        int64_t by;
        ssize_t done;
    } rows[] = { { 1, 99 },  { 27, 73 }, { SIM_SHORT_HALF, 50 }, { SIM_SHORT_ALL_BUT_ONE, 1 }, { SIM_SHORT_ALL, 0 },
                 { 1000, 0 } };
    char buf[100];
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);
        int fd = file_open(f, name);
        struct stat st;
        memset(buf, 'w', sizeof buf);
        struct iovec iov[2] = { { buf, 60 }, { buf, 40 } };
        (void)sim_disk_plan(
            f->disk, &(SimFault){ .kind = SIM_SHORT, .call = SIM_PWRITEV, .pattern = "*/f?", .short_by = rows[i].by });
        g_assert_cmpint(nrd_io->pwritev(fd, iov, 2, 0), ==, rows[i].done);
        g_assert_cmpint(nrd_io->fstat(fd, &st), ==, 0);
        g_assert_cmpint(st.st_size, ==, rows[i].done);
        g_assert_cmpint(nrd_io->pwritev(fd, iov, 2, 0), ==, 100);
        (void)sim_disk_plan(
            f->disk, &(SimFault){ .kind = SIM_SHORT, .call = SIM_PREAD, .pattern = "*/f?", .short_by = rows[i].by });
        g_assert_cmpint(nrd_io->pread(fd, buf, 100, 0), ==, rows[i].done);
        g_assert_cmpint(nrd_io->pread(fd, buf, 100, 0), ==, 100);
        sim_disk_unplan_all(f->disk);
    }
}

/* The helpers of engine/io go on after a short count and after EINTR; a part that was written before an error stays. */
static void test_short_then_rest(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    (void)sim_disk_plan(f->disk,
                        &(SimFault){ .kind = SIM_SHORT, .call = SIM_PWRITEV, .short_by = SIM_SHORT_ALL_BUT_ONE });
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_PWRITEV, .nth = 2, .error = -EINTR });
    file_write(fd, "whole", 0);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "whole");
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_PWRITEV, NULL), ==, 3);
    (void)sim_disk_plan(
        f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_PWRITEV, .error = -ENOSPC, .short_by = SIM_SHORT_HALF });
    g_assert_cmpint(nrd_io_pwrite_full(fd, "WHOLE!", 6, 0), ==, -ENOSPC);
    g_autofree char *torn = file_read(f, "a", NULL);
    g_assert_cmpstr(torn, ==, "WHOle");
}

static void test_flip(Fixture *f, gconstpointer data)
{
    char buf[4];
    file_make(f, "a", "abcd");
    int fd = file_open(f, "a");
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FLIP, .call = SIM_PREAD, .bit = 8 * 4 + 17 });
    g_assert_cmpint(nrd_io->pread(fd, buf, 4, 0), ==, 4);
    g_assert_cmpmem(buf, 4, "abad", 4); /* bit 17 of 32 */
    g_assert_cmpint(nrd_io->pread(fd, buf, 4, 0), ==, 4);
    g_assert_cmpmem(buf, 4, "abcd", 4);
}

/* ---- syncs ---- */

/* The lie of the page cache: after a failed sync the pages are clean, reads and the next sync are fine, and the disk has
 * nothing. What drops the cache sees it. */
static void test_page_cache_lies(Fixture *f, gconstpointer data)
{
    size_t size = 0;
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed, and longer", 0);
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    g_autofree char *cached = file_read(f, "a", NULL);
    g_assert_cmpstr(cached, ==, "changed, and longer");
    g_assert_cmpint(nrd_io->drop_cache(fd), ==, 0);
    g_autofree char *dropped = file_read(f, "a", &size); /* the size is the inode's, and no page */
    g_assert_cmpstr(dropped, ==, "durable");
    g_assert_cmpuint(size, ==, 19);
    fixture_power_cycle(f, &(SimCrash){ .keep = SIM_KEEP_ALL });
    g_autofree char *after = file_read(f, "a", &size);
    g_assert_cmpstr(after, ==, "durable");
    g_assert_cmpuint(size, ==, 7);
}

/* Whatever is kept of what is dirty: that is clean, and lost. */
static void test_page_cache_lost(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0); /* its time is durable; its bytes are not */
    fixture_power_cycle(f, &(SimCrash){ .keep = SIM_KEEP_ALL });
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "durable");
}

/* Writing the same bytes again is what cures it. */
static void test_written_again(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FSYNC, .error = -EIO });
    g_assert_cmpint(nrd_io->fsync(fd), ==, -EIO);
    file_write(fd, "changed", 0);
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0);
    g_assert_cmpint(nrd_io->drop_cache(fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "changed");
}

static void test_drop_dirty(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    g_assert_cmpint(nrd_io->drop_cache(fd), ==, 0); /* dirty pages stay */
    sim_disk_drop_caches(f->disk);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "changed");
}

static void test_keeps_dirty(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    (void)sim_disk_plan(f->disk,
                        &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .keeps_dirty = true, .error = -EINTR });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EINTR);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "changed");
}

static void test_reached(Fixture *f, gconstpointer data)
{
    static const SimReached reached[] = { SIM_REACHED_NONE, SIM_REACHED_SOME, SIM_REACHED_ALL };
    static const guint least[] = { 0, 1, 100 }, most[] = { 0, 99, 100 };
    for (guint i = 0; i < G_N_ELEMENTS(reached); i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);
        g_autofree char *empty = g_strnfill(100 * SIM_SECTOR_BYTES, 'o');
        file_make(f, name, empty);
        int fd = file_open(f, name);
        file_fill(fd, 'n', 100 * SIM_SECTOR_BYTES, 0);
        (void)sim_disk_plan(
            f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO, .reached = reached[i] });
        g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
        g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
        g_autofree char *path = g_strconcat(SIM_DATA "/", name, NULL);
        g_autofree char *text = image_text(image, SIM_DURABLE, path);
        guint n = 0;
        for (guint sector = 0; sector < 100; sector++)
            n += text[sector * SIM_SECTOR_BYTES] == 'n';
        g_assert_cmpuint(n, >=, least[i]);
        g_assert_cmpuint(n, <=, most[i]);
    }
}

/* What an ftruncate did is metadata: a failing sync does not forget it. */
static void test_cut_is_metadata(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    g_assert_cmpint(nrd_io->ftruncate(fd, 3), ==, 0);
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    size_t size = 0;
    g_autofree char *text = file_read(f, "a", &size);
    g_assert_cmpmem(text, size, "dur", 3);
}

static void test_lie(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    file_make(f, "b", "durable");
    int a = file_open(f, "a"), b = file_open(f, "b");
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_LIE, .call = SIM_ANY_SYNC, .pattern = "*/a", .stays = true });
    file_write(a, "changed", 0);
    file_write(b, "changed", 0);
    g_assert_cmpint(nrd_io->fdatasync(a), ==, 0);
    g_assert_cmpint(nrd_io->fsync(a), ==, 0);
    g_assert_cmpint(nrd_io->fsync(b), ==, 0);
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *lied = file_read(f, "a", NULL);
    g_autofree char *honest = file_read(f, "b", NULL);
    g_assert_cmpstr(lied, ==, "durable");
    g_assert_cmpstr(honest, ==, "changed");
    /* the disk may have written it at last; or an honest sync does */
    fixture_load(f, image);
    a = file_open(f, "a");
    g_assert_cmpint(nrd_io->fdatasync(a), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *written = file_read(f, "a", NULL);
    g_assert_cmpstr(written, ==, "changed");
}

static void test_lie_that_forgets(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_LIE, .call = SIM_FDATASYNC, .forgets = true });
    file_write(fd, "changed", 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    sim_disk_drop_caches(f->disk);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "durable");
}

static void test_folder_lies(Fixture *f, gconstpointer data)
{
    SimFault fault = { .kind = SIM_LIE, .call = SIM_FSYNC_DIR, .pattern = SIM_DATA };
    (void)sim_disk_plan(f->disk, &fault);
    file_make(f, "a", "x");
    fixture_power_cycle(f, &lose_all);
    g_assert_null(file_read(f, "a", NULL));
    (void)sim_disk_plan(f->disk, &fault);
    file_make(f, "a", "x");
    g_assert_cmpint(nrd_io->fsync(f->data_fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "x");
    fault.forgets = true;
    (void)sim_disk_plan(f->disk, &fault);
    file_make(f, "b", "x");
    g_assert_cmpint(nrd_io->fsync(f->data_fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_assert_null(file_read(f, "b", NULL));
}

/* ---- crashes ---- */

static void test_crash(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    int id = sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_CRASH, .call = SIM_FDATASYNC });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    g_assert_true(sim_disk_is_off(f->disk));
    assert_fired(f, id, 1, 1);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *before = file_read(f, "a", NULL);
    g_assert_cmpstr(before, ==, "durable");

    fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_CRASH, .call = SIM_FDATASYNC, .done_anyway = true });
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *after = file_read(f, "a", NULL);
    g_assert_cmpstr(after, ==, "changed");
}

/* By number, over all calls: the state before each of them. */
static void test_crash_by_index(Fixture *f, gconstpointer data)
{
    static const char *const left[] = { "none", "none", "none", "", "whole" };
    for (uint64_t nth = 1; nth <= 5; nth++) {
        Fixture g = { 0 };
        sim_disk_install(NULL);
        fixture_set_up(&g, NULL);
        (void)sim_disk_plan(g.disk, &(SimFault){ .kind = SIM_CRASH, .call = SIM_ANY_CALL, .nth = nth });
        int fd = nrd_io->open(g.data_fd, "a", O_RDWR | O_CREAT, 0600);
        struct iovec iov = { (char[]){ "whole" }, 5 };
        (void)!nrd_io->pwritev(fd, &iov, 1, 0);
        (void)!nrd_io->fsync(g.data_fd);
        (void)!nrd_io->fsync(fd);
        g_assert_cmpint(nrd_io->close(fd), ==, nth == 5 ? -EIO : 0);
        g_assert_true(sim_disk_is_off(g.disk));
        fixture_power_cycle(&g, &lose_all);
        g_autofree char *text = file_read(&g, "a", NULL);
        g_assert_cmpstr(text != NULL ? text : "none", ==, left[nth - 1]);
        fixture_tear_down(&g, NULL);
    }
    sim_disk_install(f->disk);
}

static void test_trace(Fixture *f, gconstpointer data)
{
    char *text = NULL;
    size_t size = 0;
    int fd = file_open(f, "a");

    (void)sim_disk_plan(f->disk, &(SimFault){ .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO });
    file_write(fd, "x", 3);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    for (int i = 0; i < 150; i++)
        file_write(fd, "y", 0);
    FILE *to = open_memstream(&text, &size);
    g_assert_nonnull(to);
    sim_disk_print_trace(f->disk, to);
    g_assert_cmpint(fclose(to), ==, 0);
    g_assert_nonnull(strstr(text, "seed 99"));
    g_assert_nonnull(
        strstr(text, "fault 0: fail fdatasync number 1 on every path: matched 1, fired 1, first at call 4"));
    g_assert_nonnull(strstr(text, "pwritev /data/a pos=3 size=1 = 1\n"));
    g_assert_nonnull(strstr(text, "fdatasync /data/a = Input/output error (fault 0)\n"));
    free(text);
}

#define ADD(name, options, test)                                                                                       \
    g_test_add("/sim/faults/" name, Fixture, options, fixture_set_up, test, fixture_tear_down)

int main(int argc, char **argv)
{
    static const SimDiskOptions seed = { .seed = 99 };
    g_test_init(&argc, &argv, NULL);
    ADD("nth", NULL, test_nth);
    ADD("stays", NULL, test_stays);
    ADD("predicate", NULL, test_predicate);
    ADD("rename", NULL, test_rename);
    ADD("done-anyway", NULL, test_done_anyway);
    ADD("short", NULL, test_short);
    ADD("short-then-rest", NULL, test_short_then_rest);
    ADD("flip", NULL, test_flip);
    ADD("page-cache-lies", NULL, test_page_cache_lies);
    ADD("page-cache-lost", NULL, test_page_cache_lost);
    ADD("written-again", NULL, test_written_again);
    ADD("drop-dirty", NULL, test_drop_dirty);
    ADD("keeps-dirty", NULL, test_keeps_dirty);
    ADD("reached", &seed, test_reached);
    ADD("cut-is-metadata", NULL, test_cut_is_metadata);
    ADD("lie", NULL, test_lie);
    ADD("lie-that-forgets", NULL, test_lie_that_forgets);
    ADD("folder-lies", NULL, test_folder_lies);
    ADD("crash", NULL, test_crash);
    ADD("crash-by-index", NULL, test_crash_by_index);
    ADD("trace", &seed, test_trace);
    return g_test_run();
}
