/* The frontier on disk. Directed cases for every way in which a file can be wrong, and a simulation of a disk beneath
 * the page cache: the real file is the cache, `disk` is what a power cut leaves. */
#include "engine/queue/offset_store.h"

#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define DIR "p00000"
#define AHEAD DIR "/consumer.ahead"
#define OFFSET DIR "/consumer.offset"
#define SECTOR 512
#define AHEAD_SIZE (2 * NRD_AHEAD_SLOT_SIZE)
#define N_SECTORS (AHEAD_SIZE / SECTOR)

static char *root_path;
static int root_fd = -1;
static NrdIo io;
static NrdFrontier state; /* what the last open recovered */
static NrdOffsetStore *store;

static void set_up(void)
{
    g_autoptr(GError) error = NULL;
    root_path = g_dir_make_tmp("naradfs-offsets-XXXXXX", &error);
    g_assert_no_error(error);
    g_assert_cmpint(nrd_io_open_root(root_path, &root_fd), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(root_fd, DIR), ==, 0);
    io = nrd_io_real;
    nrd_io = &io;
    state.ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
}

static void close_store(void)
{
    nrd_offset_store_free(g_steal_pointer(&store));
}

static void tear_down(void)
{
    close_store();
    nrd_io = &nrd_io_real;
    nrd_io_close(&root_fd);
    g_autofree char *parent = g_path_get_dirname(root_path);
    g_autofree char *name = g_path_get_basename(root_path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_array_unref(state.ahead);
    g_free(root_path);
}

static void put_file(const char *path, const void *bytes, size_t size)
{
    g_assert_cmpint(nrd_io_replace_file(root_fd, path, bytes, size), ==, 0);
}

static void put_offset(uint64_t value)
{
    uint8_t bytes[8];
    nrd_put_be64(bytes, value);
    put_file(OFFSET, bytes, sizeof bytes);
}

static void assert_file(const char *path, const void *expected, size_t size)
{
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(root_fd, path, 65536, &bytes), ==, 0);
    gsize n = 0;
    const void *data = g_bytes_get_data(bytes, &n);
    g_assert_cmpmem(data, n, expected, size);
}

static void assert_offset(uint64_t frontier)
{
    uint8_t bytes[8];
    nrd_put_be64(bytes, frontier - 1);
    assert_file(OFFSET, bytes, sizeof bytes);
}

static uint64_t hwm = UINT64_MAX;

/* A new process: whatever was in memory is gone. */
static int reopen(void)
{
    close_store();
    return nrd_offset_store_open(root_fd, DIR, "orders", 0, hwm, &state, &store);
}

static void reopen_well(void)
{
    g_assert_cmpint(reopen(), ==, 0);
}

/* The state number n: its frontier says which one it is, its set is of a shape that changes. */
static void make_state(uint64_t n, NrdFrontier *ret_state)
{
    ret_state->frontier = 10 * n;
    g_array_set_size(ret_state->ahead, 0);
    for (uint64_t i = 0; i < n % 5 * 300; i++) {
        uint64_t offset = 10 * n + 2 + 7 * i;
        g_array_append_val(ret_state->ahead, offset);
    }
}

static int tick(uint64_t n)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier next = { .frontier = 0, .ahead = ahead };
    make_state(n, &next);
    return nrd_offset_store_tick(store, &next);
}

static void save(uint64_t n)
{
    g_assert_cmpint(tick(n), ==, 0);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
}

static void assert_recovered(uint64_t n)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier expected = { .frontier = 0, .ahead = ahead };
    make_state(n, &expected);
    g_assert_cmpuint(state.frontier, ==, expected.frontier);
    g_assert_cmpmem(state.ahead->data, state.ahead->len * sizeof(uint64_t), ahead->data, ahead->len * sizeof(uint64_t));
}

/* ---- consumer.offset alone ---- */

static void test_nothing(void)
{
    set_up();
    reopen_well();
    assert_recovered(0);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(nrd_offset_store_level(store, 0), ==, 0);
    struct stat st;
    g_assert_cmpint(nrd_io_stat(root_fd, OFFSET, &st), ==, -ENOENT);
    g_assert_cmpint(nrd_io_stat(root_fd, AHEAD, &st), ==, -ENOENT);
    tear_down();
}

static void test_offset_values(void)
{
    static const struct {
        uint64_t value;
        uint64_t frontier;
    } cases[] = {
        { 0, 1 },
        { 41, 42 },
        { INT64_MAX - 1, INT64_MAX },
        { INT64_MAX, 0 }, /* no offset has a successor beyond it */
        { UINT64_C(1) << 63, 0 },
        { UINT64_MAX, 0 }, /* must not wrap to 0 by adding 1, nor be taken for a frontier */
    };
    set_up();
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        put_offset(cases[i].value);
        reopen_well();
        g_assert_cmpuint(state.frontier, ==, cases[i].frontier);
        g_assert_cmpuint(state.ahead->len, ==, 0);
    }
    tear_down();
}

/* It has no checksum: above the high watermark it is damage, not progress. */
static void test_offset_above_hwm(void)
{
    set_up();
    put_offset(9);
    hwm = 10;
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 10);
    hwm = 9;
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 0);
    hwm = UINT64_MAX;
    tear_down();
}

static void test_offset_sizes(void)
{
    static const uint8_t bytes[100000] = { 0, 0, 0, 0, 0, 0, 0, 9, 1 };
    static const size_t sizes[] = { 0, 1, 4, 7, 9, 16, 4096, 100000 };
    set_up();
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        put_file(OFFSET, bytes, sizes[i]);
        reopen_well();
        g_assert_cmpuint(state.frontier, ==, 0);
        g_assert_cmpint(nrd_offset_store_level(store, 5), ==, 0);
        assert_offset(5);
    }
    tear_down();
}

/* ---- what must not stay as it is ---- */

static void assert_mended(uint64_t end_offset)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier now = { .frontier = MIN(state.frontier, end_offset), .ahead = ahead };
    g_assert_true(nrd_offset_store_is_stale(store, end_offset));
    g_assert_cmpint(nrd_offset_store_mend(store, &now), ==, 0);
    g_assert_false(nrd_offset_store_is_stale(store, end_offset));
    hwm = UINT64_MAX; /* many records later */
    reopen_well();
    g_assert_false(nrd_offset_store_is_stale(store, end_offset));
    g_assert_cmpuint(state.frontier, ==, now.frontier);
    g_assert_cmpuint(state.ahead->len, ==, 0);
}

/* Records get the offsets that the files call settled: nobody would be given them after the next open. */
static void test_stale(void)
{
    set_up();
    reopen_well();
    g_assert_false(nrd_offset_store_is_stale(store, 0)); /* no files */
    put_offset(9);
    reopen_well();
    g_assert_false(nrd_offset_store_is_stale(store, 10));
    hwm = 9; /* hidden records have those offsets: they come back with the next commit, and so does this */
    reopen_well();
    g_assert_false(nrd_offset_store_is_stale(store, 10));
    assert_mended(9);
    put_offset(UINT64_MAX);
    reopen_well();
    assert_mended(5);
    save(10); /* settled below 100 */
    hwm = 7;
    reopen_well();
    g_assert_false(nrd_offset_store_is_stale(store, 100));
    assert_mended(7);
    tear_down();
}

static void test_stale_by_damage(void)
{
    static const uint8_t bytes[100000] = "damaged";
    static const size_t sizes[] = { 1, 7, 9, 8192, 8193, 100000 };
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        set_up();
        put_file(OFFSET, bytes, sizes[i]);
        reopen_well();
        assert_mended(3);
        put_file(AHEAD, bytes, sizes[i]);
        put_offset(1);
        reopen_well();
        g_assert_cmpuint(state.frontier, ==, 2);
        assert_mended(3);
        tear_down();
    }
}

static int fail_always(int fd)
{
    return -EIO;
}

static int n_syncs;

static int counting_sync(int fd)
{
    n_syncs++;
    return 0;
}

static void test_level(void)
{
    set_up();
    reopen_well();
    g_assert_cmpint(nrd_offset_store_level(store, 43), ==, 0);
    assert_offset(43);
    io.fdatasync = counting_sync;
    n_syncs = 0;
    g_assert_cmpint(nrd_offset_store_level(store, 43), ==, 0); /* it holds that */
    g_assert_cmpint(n_syncs, ==, 0);
    g_assert_cmpint(nrd_offset_store_level(store, 44), ==, 0);
    g_assert_cmpint(n_syncs, ==, 1);
    assert_offset(44);
    io.fdatasync = fail_always;
    g_assert_cmpint(nrd_offset_store_level(store, 45), ==, -EIO);
    io.fdatasync = counting_sync;
    n_syncs = 0;
    g_assert_cmpint(nrd_offset_store_level(store, 44), ==, 0); /* what it holds is not known any more */
    g_assert_cmpint(n_syncs, ==, 1);
    assert_offset(44);
    g_assert_cmpint(nrd_offset_store_level(store, 0), ==, 0);
    assert_file(OFFSET, "", 0);
    g_assert_cmpint(nrd_offset_store_level(store, UINT64_C(1) << 63), ==, -EINVAL);
    tear_down();
}

static int n_closes;

static int counting_close(int fd)
{
    n_closes++;
    return nrd_io_real.close(fd);
}

/* Between a write and its sync the descriptor is held; after it none is. */
static void test_rests(void)
{
    set_up();
    reopen_well();
    save(1);
    io.close = counting_close;
    n_closes = 0;
    g_assert_cmpint(tick(2), ==, 0);
    g_assert_cmpint(n_closes, ==, 0);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(n_closes, ==, 1);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(n_closes, ==, 1);
    g_assert_cmpint(tick(3), ==, 0);
    io.fdatasync = fail_always;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, -EIO);
    g_assert_cmpint(n_closes, ==, 1); /* its error must not be missed */
    io.fdatasync = nrd_io_real.fdatasync;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(n_closes, ==, 2);
    tear_down();
}

/* ---- both files ---- */

static void test_larger_wins(void)
{
    set_up();
    reopen_well();
    save(4); /* frontier 40, ahead 42, 49, 56, ... */
    put_offset(30);
    reopen_well();
    assert_recovered(4);
    put_offset(47); /* frontier 48: 42 goes, 49 does not touch it */
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 48);
    g_assert_cmpuint(state.ahead->len, ==, 1199);
    g_assert_cmpuint(g_array_index(state.ahead, uint64_t, 0), ==, 49);
    put_offset(48); /* frontier 49, which is settled */
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 50);
    g_assert_cmpuint(state.ahead->len, ==, 1198);
    put_offset(100000);
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 100001);
    g_assert_cmpuint(state.ahead->len, ==, 0);
    tear_down();
}

/* A seek backwards takes both files, in either order, and either half alone leaves the old place. */
/* Others remove the file between the write and its sync: what is promised durable stands in a new one. */
static void test_removed_under_it(void)
{
    set_up();
    reopen_well();
    save(1);
    save(2);
    for (uint64_t n = 3; n < 6; n++) {
        g_assert_cmpint(tick(n), ==, 0);
        g_assert_cmpint(nrd_io_unlink(root_fd, AHEAD), ==, 0);
        g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
        reopen_well();
        assert_recovered(n);
        save(n);
    }
    tear_down();
}

static void test_backwards(void)
{
    set_up();
    reopen_well();
    save(9);
    g_assert_cmpint(nrd_offset_store_level(store, 90), ==, 0);
    save(1);
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 90);
    g_assert_cmpint(nrd_offset_store_level(store, 10), ==, 0);
    reopen_well();
    assert_recovered(1);
    tear_down();
}

static void test_layout(void)
{
    set_up();
    reopen_well();
    g_assert_cmpint(tick(1), ==, 0);
    struct stat st;
    g_assert_cmpint(nrd_io_stat(root_fd, AHEAD, &st), ==, 0);
    g_assert_cmpint(st.st_size, ==, AHEAD_SIZE);
    g_assert_cmpint(st.st_mode & 07777, ==, 0600);
    for (uint64_t n = 2; n < 30; n++) {
        save(n);
        g_assert_cmpint(nrd_io_stat(root_fd, AHEAD, &st), ==, 0);
        g_assert_cmpint(st.st_size, ==, AHEAD_SIZE);
        reopen_well();
        assert_recovered(n);
    }
    tear_down();
}

static void test_does_not_fit(void)
{
    set_up();
    reopen_well();
    save(1);
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier large = { .frontier = 20, .ahead = ahead };
    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t offset = 30 + 1000 * i;
        g_array_append_val(ahead, offset);
    }
    g_assert_false(nrd_ahead_fits(20, (const uint64_t *)(const void *)ahead->data, ahead->len));
    g_assert_cmpint(nrd_offset_store_tick(store, &large), ==, -EINVAL);
    reopen_well();
    assert_recovered(1);
    tear_down();
}

/* ---- damage ---- */

static void read_ahead(uint8_t ret_bytes[AHEAD_SIZE])
{
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(root_fd, AHEAD, AHEAD_SIZE, &bytes), ==, 0);
    g_assert_cmpuint(g_bytes_get_size(bytes), ==, AHEAD_SIZE);
    memcpy(ret_bytes, g_bytes_get_data(bytes, NULL), AHEAD_SIZE);
}

/* Two valid slots: state 8 in one, the newer state 9 in the other; returns the slot of 9. */
static int make_two(uint8_t ret_bytes[AHEAD_SIZE])
{
    reopen_well();
    save(7);
    save(8);
    save(9);
    read_ahead(ret_bytes);
    NrdFrontier found = { .frontier = 0, .ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
    uint64_t sequence;
    g_assert_cmpint(nrd_ahead_decode(ret_bytes, &found, &sequence), ==, 0);
    g_array_unref(found.ahead);
    return found.frontier == 90 ? 0 : 1;
}

static void test_each_sector_torn(void)
{
    uint8_t good[AHEAD_SIZE], torn[AHEAD_SIZE];
    set_up();
    int newer = make_two(good);
    for (int i = 0; i < N_SECTORS; i++) {
        memcpy(torn, good, sizeof torn);
        for (int b = 0; b < SECTOR; b++)
            torn[i * SECTOR + b] ^= 0xa5;
        put_file(AHEAD, torn, sizeof torn);
        reopen_well();
        assert_recovered(i / (N_SECTORS / 2) == newer ? 8 : 9);
        /* and it goes on from there, with the torn slot as the window or beside it */
        save(12);
        reopen_well();
        assert_recovered(12);
    }
    tear_down();
}

static void test_both_bad(void)
{
    uint8_t bytes[AHEAD_SIZE];
    set_up();
    make_two(bytes);
    bytes[100] ^= 1;
    bytes[5000] ^= 1;
    put_file(AHEAD, bytes, sizeof bytes);
    put_offset(66);
    reopen_well();
    g_assert_cmpuint(state.frontier, ==, 67);
    g_assert_cmpuint(state.ahead->len, ==, 0);
    save(10);
    reopen_well();
    assert_recovered(10);
    tear_down();
}

static void test_ahead_sizes(void)
{
    static uint8_t bytes[100000];
    static const size_t sizes[] = { 0, 1, 4095, 4097, 8191, 8192, 8193, 20000, 100000 };
    set_up();
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        memset(bytes, 'x', sizeof bytes);
        put_file(AHEAD, bytes, sizes[i]);
        put_offset(2);
        reopen_well();
        g_assert_cmpuint(state.frontier, ==, 3);
        save(3);
        reopen_well();
        assert_recovered(3);
    }
    tear_down();
}

/* Cut at every length: a slot that is whole counts, nothing else does. */
static void test_cut(void)
{
    uint8_t bytes[AHEAD_SIZE];
    set_up();
    int newer = make_two(bytes);
    for (size_t size = 0; size < AHEAD_SIZE; size += 61) {
        put_file(AHEAD, bytes, size);
        reopen_well();
        assert_recovered(size < NRD_AHEAD_SLOT_SIZE ? 0 : newer == 0 ? 9 : 8);
    }
    tear_down();
}

static void test_not_a_file(void)
{
    static const char *const paths[] = { AHEAD, OFFSET };
    set_up();
    put_file("target", "untouched", 9);
    for (size_t i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_autofree char *path = g_build_filename(root_path, paths[i], NULL);
        g_assert_cmpint(symlink("../target", path), ==, 0);
        g_assert_cmpint(reopen(), ==, -ELOOP);
        g_assert_null(store);
        g_assert_cmpint(unlink(path), ==, 0);
        g_assert_cmpint(nrd_io_make_dir(root_fd, paths[i]), ==, 0);
        g_assert_cmpint(reopen(), ==, -EINVAL);
        g_assert_cmpint(rmdir(path), ==, 0);
        g_assert_cmpint(mkfifo(path, 0600), ==, 0);
        g_assert_cmpint(reopen(), ==, -EINVAL);
        g_assert_cmpint(unlink(path), ==, 0);
    }
    assert_file("target", "untouched", 9);
    tear_down();
}

static ssize_t fail_read(int fd, void *buf, size_t size, int64_t pos)
{
    return -EIO;
}

/* A read error is not an empty file. */
static void test_read_error(void)
{
    set_up();
    reopen_well();
    save(3);
    close_store();
    io.pread = fail_read;
    state.frontier = 4711;
    g_assert_cmpint(reopen(), ==, -EIO);
    g_assert_cmpuint(state.frontier, ==, 4711);
    io.pread = nrd_io_real.pread;
    reopen_well();
    assert_recovered(3);
    tear_down();
}

/* ---- the disk beneath the cache ---- */

static struct {
    GRand *rand;
    bool exists; /* on the disk */
    uint8_t disk[AHEAD_SIZE];
    bool dirty[N_SECTORS];
    int ahead_fd;
    bool fail_sync;
    int write_room; /* bytes that the next write may take before it fails; -1: all */
    int n_failed_syncs, n_torn_writes;
} sim;

static int sim_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = nrd_io_real.open(dirfd, path, flags, mode);
    if (fd >= 0 && g_str_has_suffix(path, "consumer.ahead") && (flags & O_ACCMODE) == O_RDWR)
        sim.ahead_fd = fd;
    return fd;
}

static int sim_close(int fd)
{
    if (fd == sim.ahead_fd)
        sim.ahead_fd = -1;
    return nrd_io_real.close(fd);
}

static void read_cache(uint8_t cache[AHEAD_SIZE])
{
    memset(cache, 0, AHEAD_SIZE);
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(root_fd, AHEAD, AHEAD_SIZE, &bytes), ==, 0);
    memcpy(cache, g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
}

static ssize_t sim_write(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    struct iovec first = iov[0];
    if (fd != sim.ahead_fd)
        return nrd_io_real.pwritev(fd, iov, n_iov, pos);
    if (sim.write_room == 0)
        return -EIO;
    if (sim.write_room > 0)
        first.iov_len = MIN(first.iov_len, (size_t)sim.write_room);
    ssize_t n = nrd_io_real.pwritev(fd, &first, 1, pos);
    g_assert_cmpint(n, >, 0);
    for (int64_t at = pos / SECTOR; at <= (pos + n - 1) / SECTOR; at++)
        sim.dirty[at] = true;
    if (sim.write_room > 0) {
        sim.write_room = 0;
        sim.n_torn_writes++;
    }
    return n;
}

/* Dirty sectors go to the disk; when it fails, some of them, and all are clean afterwards: what Linux does. */
static int sim_sync(int fd)
{
    if (fd != sim.ahead_fd)
        return 0;
    uint8_t cache[AHEAD_SIZE];
    read_cache(cache);
    for (int i = 0; i < N_SECTORS; i++) {
        if (sim.dirty[i] && (!sim.fail_sync || g_rand_boolean(sim.rand)))
            memcpy(sim.disk + i * SECTOR, cache + i * SECTOR, SECTOR);
        sim.dirty[i] = false;
    }
    sim.n_failed_syncs += sim.fail_sync;
    return sim.fail_sync ? -EIO : 0;
}

static int sim_fsync(int fd)
{
    return 0; /* of temporary files and folders: sim_rename knows */
}

static int sim_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    int rc = nrd_io_real.rename(from_dirfd, from, to_dirfd, to, replace);
    if (rc == 0 && strcmp(to, "consumer.ahead") == 0) {
        read_cache(sim.disk);
        memset(sim.dirty, 0, sizeof sim.dirty);
        sim.exists = true;
    }
    return rc;
}

/* Any part of what is dirty reaches the disk, sector by sector; then the cache is what the disk has. */
static void power_cut(void)
{
    close_store();
    if (!sim.exists)
        return;
    uint8_t cache[AHEAD_SIZE];
    read_cache(cache);
    for (int i = 0; i < N_SECTORS; i++) {
        if (sim.dirty[i] && g_rand_boolean(sim.rand))
            memcpy(sim.disk + i * SECTOR, cache + i * SECTOR, SECTOR);
        sim.dirty[i] = false;
    }
    uint8_t disk[AHEAD_SIZE];
    memcpy(disk, sim.disk, sizeof disk);
    put_file(AHEAD, disk, sizeof disk);
}

static void sim_set_up(guint32 seed)
{
    set_up();
    memset(&sim, 0, sizeof sim);
    sim.rand = g_rand_new_with_seed(seed);
    sim.ahead_fd = -1;
    sim.write_room = -1;
    io.open = sim_open;
    io.close = sim_close;
    io.pwritev = sim_write;
    io.fdatasync = sim_sync;
    io.fsync = sim_fsync;
    io.rename = sim_rename;
}

/* What must survive: at least what was promised durable, at most what was ticked, and always one of those states. */
static uint64_t check_recovered(uint64_t durable, uint64_t ticked)
{
    uint64_t n = state.frontier / 10;
    g_assert_cmpuint(n, >=, durable);
    g_assert_cmpuint(n, <=, ticked);
    assert_recovered(n);
    return n;
}

static void run_simulation(guint32 seed, int n_steps)
{
    uint64_t durable = 0, ticked = 0, n_cuts = 0;
    sim_set_up(seed);
    reopen_well();
    for (int i = 0; i < n_steps; i++) {
        int what = g_rand_int_range(sim.rand, 0, 100);
        bool fault = g_rand_int_range(sim.rand, 0, 4) == 0;
        if (what < 55) {
            sim.write_room = fault ? SECTOR * g_rand_int_range(sim.rand, 0, 8) : -1;
            sim.fail_sync = g_rand_int_range(sim.rand, 0, 4) == 0;
            (void)!tick(++ticked); /* after a failure the next tick or write-out makes up for it, or neither happens */
        } else if (what < 85) {
            uint64_t promised = ticked;
            sim.fail_sync = fault;
            sim.write_room = -1;
            /* the owner ticks again what a failed tick did not take */
            if (tick(ticked) == 0 && nrd_offset_store_write_out(store) == 0)
                durable = promised;
            else if (g_rand_boolean(sim.rand))
                (void)!nrd_offset_store_write_out(store);
        } else if (what < 88) {
            sim.fail_sync = fault;
            sim.write_room = -1;
            (void)!nrd_offset_store_write_out(store);
        } else {
            if (what < 94)
                power_cut();
            reopen_well();
            ticked = check_recovered(durable, ticked);
            durable = what < 94 ? ticked : durable;
            n_cuts++;
            sim.fail_sync = fault;
            sim.write_room = -1;
            /* what a restart shows is made durable on demand, without a tick */
            if (g_rand_boolean(sim.rand) && nrd_offset_store_write_out(store) == 0)
                durable = ticked;
        }
        sim.fail_sync = false;
        sim.write_room = -1;
    }
    power_cut();
    reopen_well();
    check_recovered(durable, ticked);
    g_assert_cmpuint(n_cuts, >, (uint64_t)n_steps / 20);
    g_assert_cmpint(sim.n_failed_syncs, >, n_steps / 40);
    g_assert_cmpint(sim.n_torn_writes, >, n_steps / 80);
    g_rand_free(sim.rand);
    tear_down();
}

static void test_simulation(void)
{
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    for (guint32 seed = 1; seed <= 10; seed++)
        run_simulation(seed, 1500);
}

/* A sync that failed is not made good by one that has nothing to write. */
static void test_failed_sync(void)
{
    sim_set_up(5);
    reopen_well();
    save(1);
    save(2);
    g_assert_cmpint(tick(3), ==, 0);
    sim.fail_sync = true;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, -EIO);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, -EIO);
    sim.fail_sync = false;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    power_cut();
    reopen_well();
    assert_recovered(3);
    g_rand_free(sim.rand);
    tear_down();
}

/* What is taken back is not written again by who only wants the disk to be in step. */
static void test_take_back(void)
{
    sim_set_up(7);
    reopen_well();
    save(1);
    sim.write_room = 0;
    g_assert_cmpint(tick(2), ==, -EIO);
    sim.write_room = -1;
    nrd_offset_store_take_back(store);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    power_cut();
    reopen_well();
    assert_recovered(1);
    g_assert_cmpint(tick(2), ==, 0);
    sim.fail_sync = true;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, -EIO);
    sim.fail_sync = false;
    nrd_offset_store_take_back(store);
    save(1); /* goes where the disk may have kept the other one, and counts more */
    power_cut();
    reopen_well();
    assert_recovered(1);
    g_rand_free(sim.rand);
    tear_down();
}

/* A process that dies leaves its last tick in the cache only; the next one promises it before it overwrites anything. */
static void test_restart_without_tick(void)
{
    sim_set_up(6);
    reopen_well();
    save(1);
    g_assert_cmpint(tick(2), ==, 0);
    reopen_well();
    assert_recovered(2);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    power_cut();
    reopen_well();
    assert_recovered(2);
    g_rand_free(sim.rand);
    tear_down();
}

/* The same for a frontier that stands in consumer.offset alone. */
static void test_restart_from_offset(void)
{
    set_up();
    put_offset(41);
    reopen_well();
    io.fdatasync = counting_sync;
    n_syncs = 0;
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(n_syncs, ==, 1);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    g_assert_cmpint(n_syncs, ==, 1);
    assert_offset(42);
    tear_down();
}

/* A create whose folder could not be synced is done again. */
static void test_create_fails(void)
{
    set_up();
    reopen_well();
    io.fsync = fail_always;
    g_assert_cmpint(tick(1), ==, -EIO);
    g_assert_cmpint(nrd_offset_store_level(store, 10), ==, -EIO);
    io.fsync = counting_sync;
    n_syncs = 0;
    g_assert_cmpint(tick(1), ==, 0);
    g_assert_cmpint(n_syncs, ==, 2); /* the file and its folder */
    g_assert_cmpint(nrd_offset_store_level(store, 10), ==, 0);
    g_assert_cmpint(n_syncs, ==, 4);
    g_assert_cmpint(nrd_offset_store_write_out(store), ==, 0);
    reopen_well();
    assert_recovered(1);
    tear_down();
}

static void test_file_taken_away(void)
{
    set_up();
    reopen_well();
    save(1);
    reopen_well();
    g_assert_cmpint(nrd_io_unlink(root_fd, AHEAD), ==, 0);
    save(2);
    reopen_well();
    assert_recovered(2);
    tear_down();
}

/* One bad read at the start neither takes the frontier back nor moves it on: as it is, with consumer.offset before
 * consumer.ahead and behind it, and alone. */
static void test_bad_reads(void)
{
    static const uint64_t frontiers[] = { 90, 90, 100, 12 };
    for (int how = 0; how < 4; how++) {
        set_up();
        reopen_well();
        save(7);
        save(8);
        save(9);
        if (how > 0)
            put_offset(how == 1 ? 4 : frontiers[how] - 1);
        if (how == 3)
            g_assert_cmpint(nrd_io_unlink(root_fd, AHEAD), ==, 0);
        for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
            int rc = reopen();
            bad_read_end(&bad);
            g_assert_cmpint(rc, ==, 0);
            g_assert_cmpuint(state.frontier, ==, frontiers[how]);
            if (how < 2)
                assert_recovered(9);
        }
        tear_down();
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/offset-store/nothing", test_nothing);
    g_test_add_func("/offset-store/offset-values", test_offset_values);
    g_test_add_func("/offset-store/offset-above-hwm", test_offset_above_hwm);
    g_test_add_func("/offset-store/stale", test_stale);
    g_test_add_func("/offset-store/stale-by-damage", test_stale_by_damage);
    g_test_add_func("/offset-store/offset-sizes", test_offset_sizes);
    g_test_add_func("/offset-store/level", test_level);
    g_test_add_func("/offset-store/rests", test_rests);
    g_test_add_func("/offset-store/larger-wins", test_larger_wins);
    g_test_add_func("/offset-store/removed-under-it", test_removed_under_it);
    g_test_add_func("/offset-store/backwards", test_backwards);
    g_test_add_func("/offset-store/layout", test_layout);
    g_test_add_func("/offset-store/does-not-fit", test_does_not_fit);
    g_test_add_func("/offset-store/each-sector-torn", test_each_sector_torn);
    g_test_add_func("/offset-store/both-bad", test_both_bad);
    g_test_add_func("/offset-store/ahead-sizes", test_ahead_sizes);
    g_test_add_func("/offset-store/cut", test_cut);
    g_test_add_func("/offset-store/not-a-file", test_not_a_file);
    g_test_add_func("/offset-store/read-error", test_read_error);
    g_test_add_func("/offset-store/failed-sync", test_failed_sync);
    g_test_add_func("/offset-store/take-back", test_take_back);
    g_test_add_func("/offset-store/restart-without-tick", test_restart_without_tick);
    g_test_add_func("/offset-store/restart-from-offset", test_restart_from_offset);
    g_test_add_func("/offset-store/create-fails", test_create_fails);
    g_test_add_func("/offset-store/file-taken-away", test_file_taken_away);
    g_test_add_func("/offset-store/simulation", test_simulation);
    g_test_add_func("/offset-store/bad-reads", test_bad_reads);
    return g_test_run();
}
