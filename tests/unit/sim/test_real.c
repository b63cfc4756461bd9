/* The simulated disk beside the real calls: the same random operations, the same results and errors.
 *
 * NRD_SIM_SEED=N repeats a run, NRD_SIM_STEPS=N makes one longer. */
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define N_OPEN 12
#define MOST_BYTES 5000

/* Few names, so that they meet; some are odd. */
static const char *const names[] = { "a", "b", "c", "d", "a", "b", "c", "d", ".", "..", "" };
static const char *const paths[] = { "a",       "b",    "c",   "d",      "a/b", "b/a",  "a/a", "c/d/a",
                                     "a/",      ".",    "..",  "/a",     "",    "a/.",  "./b", "b/..",
                                     "a/../..", "a//b", "c/.", "b/../c", "d/a", "c/./d" };

typedef struct Pair {
    int real, sim; /* -1: none */
} Pair;

typedef struct Both {
    GRand *rand;
    Pair open[N_OPEN]; /* the first one is the root */
    char *tmp;
    uint64_t seed;
    guint step;
    GString *what; /* the operation at hand */
} Both;

static gint32 pick(Both *b, gint32 n)
{
    return g_rand_int_range(b->rand, 0, n);
}

static const char *pick_name(Both *b)
{
    return names[pick(b, G_N_ELEMENTS(names))];
}

static guint pick_open(Both *b)
{
    guint i = (guint)pick(b, N_OPEN);
    return b->open[i].real < 0 ? 0 : i;
}

static void say(Both *b, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void say(Both *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_string_vprintf(b->what, format, args);
    va_end(args);
}

static void same(Both *b, int64_t real, int64_t sim)
{
    if (real != sim)
        g_error("seed %" G_GUINT64_FORMAT ", step %u, %s: the real call returns %" G_GINT64_FORMAT
                ", the simulated one %" G_GINT64_FORMAT,
                b->seed, b->step, b->what->str, real, sim);
}

static void same_bytes(Both *b, const void *real, const void *sim, size_t size)
{
    if (memcmp(real, sim, size) != 0)
        g_error("seed %" G_GUINT64_FORMAT ", step %u, %s: other bytes", b->seed, b->step, b->what->str);
}

/* ---- operations ---- */

static void do_open(Both *b)
{
    static const int flags[] = {
        O_RDONLY,
        O_RDWR,
        O_WRONLY,
        O_RDWR | O_CREAT,
        O_RDWR | O_CREAT | O_EXCL,
        O_RDWR | O_TRUNC,
        O_RDWR | O_CREAT,
        O_RDONLY | O_CREAT,
        O_RDONLY | O_DIRECTORY,
        O_RDONLY | O_DIRECTORY,
        O_RDWR | O_DIRECTORY,
    };
    guint dir = pick_open(b), slot = 1 + (guint)pick(b, N_OPEN - 1);
    int flag = flags[pick(b, G_N_ELEMENTS(flags))];
    const char *path = paths[pick(b, G_N_ELEMENTS(paths))];
    Pair *pair = &b->open[slot];

    say(b, "open(%s, %#x)", path, (unsigned)flag);
    Pair got = { nrd_io_real.open(b->open[dir].real, path, flag, 0600),
                 sim_io.open(b->open[dir].sim, path, flag, 0600) };
    same(b, MIN(got.real, 0), MIN(got.sim, 0));
    if (got.real < 0)
        return;
    if (pair->real >= 0) {
        g_assert_cmpint(nrd_io_real.close(pair->real), ==, 0);
        g_assert_cmpint(sim_io.close(pair->sim), ==, 0);
    }
    *pair = got;
}

static void do_pwritev(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    int64_t pos = pick(b, 8) == 0 ? -1 : pick(b, MOST_BYTES);
    size_t size = (size_t)pick(b, 2000);
    g_autofree char *bytes = g_strnfill(size, 'a' + (char)pick(b, 26));
    struct iovec iov[3] = { { bytes, size / 3 }, { bytes, 0 }, { bytes, size - size / 3 } };
    say(b, "pwritev(%zu at %d)", size, (int)pos);
    same(b, nrd_io_real.pwritev(fd.real, iov, 3, pos), sim_io.pwritev(fd.sim, iov, 3, pos));
}

static void do_pread(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    int64_t pos = pick(b, 8) == 0 ? -1 : pick(b, MOST_BYTES);
    size_t size = (size_t)pick(b, 2 * MOST_BYTES);
    g_autofree char *real = g_malloc0(size + 1);
    g_autofree char *sim = g_malloc0(size + 1);
    say(b, "pread(%zu at %d)", size, (int)pos);
    same(b, nrd_io_real.pread(fd.real, real, size, pos), sim_io.pread(fd.sim, sim, size, pos));
    same_bytes(b, real, sim, size);
}

static void do_resize(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    int64_t size = pick(b, MOST_BYTES) - 50, pos = pick(b, MOST_BYTES) - 50;
    if (pick(b, 2) == 0) {
        say(b, "ftruncate(%d)", (int)size);
        same(b, nrd_io_real.ftruncate(fd.real, size), sim_io.ftruncate(fd.sim, size));
        return;
    }
    say(b, "punch(%d at %d)", (int)size, (int)pos);
    same(b, nrd_io_real.punch(fd.real, pos, size), sim_io.punch(fd.sim, pos, size));
}

static void same_stat(Both *b, const struct stat *real, const struct stat *sim)
{
    same(b, real->st_mode & S_IFMT, sim->st_mode & S_IFMT);
    if (S_ISREG(real->st_mode)) {
        same(b, real->st_size, sim->st_size);
        same(b, (int64_t)real->st_nlink, (int64_t)sim->st_nlink);
    }
}

static void do_stat(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    const char *name = pick_name(b);
    struct stat real = { 0 }, sim = { 0 };
    if (strcmp(name, "..") == 0)
        return; /* leads out of the folder that is compared */
    say(b, "fstatat(%s)", name);
    same(b, nrd_io_real.fstatat(fd.real, name, &real), sim_io.fstatat(fd.sim, name, &sim));
    same_stat(b, &real, &sim);
    say(b, "fstat");
    same(b, nrd_io_real.fstat(fd.real, &real), sim_io.fstat(fd.sim, &sim));
    same_stat(b, &real, &sim);
}

static void do_times(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    int64_t unix_ms = pick(b, 1000000) - 1000;
    struct stat real = { 0 }, sim = { 0 };
    say(b, "set_mtime(%d)", (int)unix_ms);
    int rc = nrd_io_real.set_mtime(fd.real, unix_ms);
    same(b, rc, sim_io.set_mtime(fd.sim, unix_ms));
    if (rc < 0)
        return;
    same(b, nrd_io_real.fstat(fd.real, &real), sim_io.fstat(fd.sim, &sim));
    same(b, real.st_mtim.tv_sec, sim.st_mtim.tv_sec);
    same(b, real.st_mtim.tv_nsec, sim.st_mtim.tv_nsec);
}

static void do_names(Both *b)
{
    Pair dir = b->open[pick_open(b)], to_dir = b->open[pick_open(b)];
    const char *name = pick_name(b), *to = pick_name(b);
    bool flag = pick(b, 2) == 0;
    switch (pick(b, 3)) {
    case 0:
        say(b, "mkdir(%s)", name);
        same(b, nrd_io_real.mkdir(dir.real, name, 0700), sim_io.mkdir(dir.sim, name, 0700));
        return;
    case 1:
        say(b, "unlink(%s, %d)", name, flag);
        if (strcmp(name, "..") != 0) /* as above */
            same(b, nrd_io_real.unlink(dir.real, name, flag), sim_io.unlink(dir.sim, name, flag));
        return;
    default:
        say(b, "rename(%s, %s, %d)", name, to, flag);
        same(b, nrd_io_real.rename(dir.real, name, to_dir.real, to, flag),
             sim_io.rename(dir.sim, name, to_dir.sim, to, flag));
    }
}

static gint compare_strings(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void do_list(Both *b)
{
    Pair dir = b->open[pick_open(b)];
    g_autoptr(GPtrArray) real = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) sim = g_ptr_array_new_with_free_func(g_free);
    say(b, "list");
    same(b, nrd_io_real.list(dir.real, real), sim_io.list(dir.sim, sim));
    same(b, real->len, sim->len);
    g_ptr_array_sort(real, compare_strings);
    for (guint i = 0; i < real->len; i++)
        g_assert_cmpstr(real->pdata[i], ==, sim->pdata[i]);
}

static void do_sync(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    struct statvfs st;
    say(b, "syncs");
    same(b, nrd_io_real.fdatasync(fd.real), sim_io.fdatasync(fd.sim));
    same(b, nrd_io_real.fsync(fd.real), sim_io.fsync(fd.sim));
    same(b, nrd_io_real.drop_cache(fd.real), sim_io.drop_cache(fd.sim));
    same(b, nrd_io_real.fstatvfs(fd.real, &st), sim_io.fstatvfs(fd.sim, &st));
    say(b, "lock");
    same(b, nrd_io_real.lock(fd.real), sim_io.lock(fd.sim));
}

static void do_close(Both *b)
{
    Pair *pair = &b->open[1 + pick(b, N_OPEN - 1)];
    say(b, "close");
    if (pair->real >= 0)
        same(b, nrd_io_real.close(pair->real), sim_io.close(pair->sim));
    *pair = (Pair){ -1, -1 };
}

static void do_map(Both *b)
{
    Pair fd = b->open[pick_open(b)];
    struct stat st;
    void *real = NULL, *sim = NULL;
    g_assert_cmpint(nrd_io_real.fstat(fd.real, &st), ==, 0);
    size_t size = S_ISREG(st.st_mode) ? (size_t)st.st_size : 100;
    say(b, "map(%zu)", size);
    int rc = nrd_io_real.map(fd.real, size, &real);
    same(b, rc, sim_io.map(fd.sim, size, &sim));
    if (rc < 0)
        return;
    same_bytes(b, real, sim, size);
    same(b, nrd_io_real.unmap(real, size), sim_io.unmap(sim, size));
}

/* ---- runs ---- */

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = g_getenv(name);
    return text != NULL ? g_ascii_strtoull(text, NULL, 10) : otherwise;
}

static void run(uint64_t seed, guint n_steps)
{
    static void (*const operations[])(Both *) = { do_open,  do_open,  do_open,   do_open,  do_pwritev, do_pwritev,
                                                  do_pread, do_pread, do_resize, do_stat,  do_names,   do_names,
                                                  do_names, do_list,  do_sync,   do_close, do_map,     do_times };
    Both b = { .rand = g_rand_new_with_seed((guint32)seed), .seed = seed, .what = g_string_new(NULL) };
    b.tmp = g_dir_make_tmp("naradfs-sim-XXXXXX", NULL);
    g_assert_nonnull(b.tmp);
    SimDisk *disk = sim_disk_new(NULL, NULL);
    sim_disk_install(disk);
    b.open[0] = (Pair){ nrd_io_real.open_root(b.tmp), sim_io.open_root(SIM_DATA) };
    for (guint i = 1; i < N_OPEN; i++)
        b.open[i] = (Pair){ -1, -1 };
    for (b.step = 0; b.step < n_steps; b.step++)
        operations[pick(&b, G_N_ELEMENTS(operations))](&b);
    for (guint i = 0; i < N_OPEN; i++) {
        if (b.open[i].real >= 0)
            g_assert_cmpint(nrd_io_real.close(b.open[i].real), ==, 0);
    }
    sim_disk_install(NULL);
    sim_disk_free(disk);
    g_autofree char *name = g_path_get_basename(b.tmp);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(g_get_tmp_dir(), &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(b.tmp);
    g_string_free(b.what, TRUE);
    g_rand_free(b.rand);
}

static void test_random(void)
{
    uint64_t seed = from_env("NRD_SIM_SEED", g_random_int());
    g_test_message("NRD_SIM_SEED=%" G_GUINT64_FORMAT, seed);
    for (uint64_t i = 0; i < (g_getenv("NRD_SIM_SEED") != NULL ? 1 : 10); i++)
        run(seed + i, (guint)from_env("NRD_SIM_STEPS", 1000));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim/real/random-operations", test_random);
    return g_test_run();
}
